"""Rows of CSV or JSON-lines input as messages: the queue and the content of each."""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lmqcluster.client.options import PushOptions
from lmqcluster.wire.legacy_msgpack import pack
from lmqcluster.wire.limits import MESSAGE_BYTES_MAX

from ...shared.errors import CliError, ExitCode
from .queue_template import QueueTemplate
from .row_source import Stream

__all__ = ["BadRow", "Row", "csv_rows", "json_rows", "numbered_lines"]

LINE_BYTES_MAX: Final = MESSAGE_BYTES_MAX
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Row(NamedTuple):
    """A message to push.

    Attributes:
        line: the line on which its row starts.
        queue: name of its queue.
        content: a MessagePack value, or the body.
        content_type: that of the body; None for a MessagePack value.
        options: those of the push; None for a row without any.
    """

    line: int
    queue: bytes
    content: Any
    content_type: str | None = None
    options: PushOptions | None = None

    def size(self) -> int:
        """Return the approximate bytes of the content."""
        return len(self.content) if isinstance(self.content, bytes) else len(pack(self.content))


class BadRow(NamedTuple):
    """A row that cannot become a message, and the reason."""

    line: int
    reason: str


def csv_rows(stream: Stream, template: QueueTemplate, delimiter: str = ",") -> Iterator[Row | BadRow]:
    """Yield each record as a JSON object of its columns, all values strings, in the order of the header line.

    Raises:
        CliError: the header is unusable, or a line is too long to continue after it.
    """
    csv.field_size_limit(MESSAGE_BYTES_MAX)
    reader = csv.reader(_text_lines(stream), delimiter=delimiter, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as exc:
        raise CliError(f"line {reader.line_num}: the header is not CSV: {exc}", ExitCode.BAD_DATA) from exc
    positions = _positions(header, template)
    width = len(header or ())
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
            if record is None:
                return
            if not record:
                continue
            if len(record) != width:
                yield BadRow(line, f"{len(record)} fields where the header has {width}")
                continue
            queue = template.name(tuple([record[position] for position in positions]))
            content = _encode(dict(zip(header or (), record, strict=True))).encode()
        except csv.Error as exc:
            yield BadRow(line, f"not CSV: {exc}")
        except UnicodeError:
            yield BadRow(line, "not UTF-8")
        except ValueError as exc:
            yield BadRow(line, str(exc))
        else:
            yield _check_size(line, queue, content)


def json_rows(stream: Stream, template: QueueTemplate) -> Iterator[Row | BadRow]:
    """Yield each line, which must be a JSON object, unchanged.

    Raises:
        CliError: a line is too long to continue after it.
    """
    for line, data in numbered_lines(stream):
        content = data.strip()
        if not content:
            continue
        try:
            record = json.loads(content)
            if not isinstance(record, dict):
                yield BadRow(line, "not a JSON object")
                continue
            queue = template.name_of(record)
        except UnicodeError:
            yield BadRow(line, "not UTF-8")
        except json.JSONDecodeError as exc:
            yield BadRow(line, f"not JSON: {exc.msg} at column {exc.colno}")
        except (ValueError, RecursionError) as exc:
            yield BadRow(line, str(exc))
        else:
            yield _check_size(line, queue, content)


def _check_size(line: int, queue: bytes, content: bytes) -> Row | BadRow:
    if len(content) > MESSAGE_BYTES_MAX:
        return BadRow(line, f"{len(content)} bytes exceed the maximum size of a message ({MESSAGE_BYTES_MAX})")
    return Row(line, queue, content)


def numbered_lines(stream: Stream) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1.

    Raises:
        CliError: a line is too long.
    """
    number = 0
    while data := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(data) > LINE_BYTES_MAX:
            raise CliError(f"line {number} is longer than {LINE_BYTES_MAX} bytes", ExitCode.BAD_DATA)
        if number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        yield number, data


def _text_lines(stream: Stream) -> Iterator[str]:
    for _number, data in numbered_lines(stream):
        # Bytes that are not UTF-8 pass here and are reported later with their line.
        yield data.decode(errors="surrogateescape")


def _positions(header: list[str] | None, template: QueueTemplate) -> list[int]:
    if not header:
        raise CliError("the header line with the names of the columns is missing", ExitCode.BAD_DATA)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise CliError(f"the header names {twice[0]!r} twice", ExitCode.BAD_DATA)
    for column in template.columns:
        if column not in header:
            close = difflib.get_close_matches(column, header, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(header)}"
            raise CliError(f"unknown column {column!r}; {hint}", ExitCode.BAD_DATA)
    return [header.index(column) for column in template.columns]
