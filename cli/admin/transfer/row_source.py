"""Sources of rows: a plain, gzip or single-member zip file, or standard input."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, Protocol

import click

from ...shared.errors import CliError, ExitCode

__all__ = ["FORMATS", "RowSource", "Stream", "open_source"]

FORMATS: Final = ("csv", "tsv", "jsonl")
_FORMAT_OF_SUFFIX: Final = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}


class Stream(Protocol):
    """The method that readers need of an open input."""

    def readline(self, size: int = -1, /) -> bytes:
        """Return the next line with its line end, at most `size` bytes of it; empty at the end."""


@dataclass(frozen=True, slots=True)
class RowSource:
    """An open input.

    Attributes:
        stream: the uncompressed bytes.
        form: one of `FORMATS`.
        bytes_total: the `position` at the end; ``None`` if unknown.
        position: the progress of reading, in the same units.
    """

    stream: Stream
    form: str
    bytes_total: int | None
    position: Callable[[], int]


@contextmanager
def open_source(name: str, form: str | None) -> Iterator[RowSource]:
    """Open a file, or standard input for ``-``; the file's name determines the format unless it is given.

    Raises:
        click.UsageError: the file cannot be opened, or its format is unknown.
        CliError: the file is damaged; also raised during reading.
    """
    try:
        with _open(name, form) as source:
            yield source
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as exc:
        raise CliError(f"{name} is damaged: {exc}", ExitCode.BAD_DATA) from exc


@contextmanager
def _open(name: str, form: str | None) -> Iterator[RowSource]:
    if name == "-":
        # Not sys.stdin, and never closed: a thread that is still reading holds the lock that both would wait for.
        stdin = open(0, "rb", closefd=False)  # noqa: SIM115
        yield RowSource(stdin, form or _format_of("-"), None, lambda: 0)
        return
    path = Path(name)
    try:
        raw = path.open("rb")
    except OSError as exc:
        raise click.UsageError(f"cannot read {name}: {exc.strerror}") from exc
    with raw:
        size = path.stat().st_size
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(raw) as archive:
                member = _only_member(archive, name)
                with archive.open(member) as unpacked:
                    stream = io.BufferedReader(unpacked)  # type: ignore[type-var]  # implements RawIOBase
                    yield RowSource(stream, form or _format_of(member.filename), member.file_size, unpacked.tell)
        elif path.suffix.lower() == ".gz":
            with gzip.open(raw, "rb") as unpacked_gzip:
                yield RowSource(unpacked_gzip, form or _format_of(path.stem), size, raw.tell)
        else:
            yield RowSource(raw, form or _format_of(name), size, raw.tell)


def _only_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    members = [info for info in archive.infolist() if not info.is_dir()]
    if len(members) != 1:
        raise click.UsageError(f"{name} contains {len(members)} files; replay takes an archive with one file")
    return members[0]


def _format_of(name: str) -> str:
    form = _FORMAT_OF_SUFFIX.get(PurePath(name).suffix.lower())
    if form is None:
        source = "standard input" if name == "-" else name
        raise click.UsageError(f"the format of {source} is unknown: pass --format {'|'.join(FORMATS)}")
    return form
