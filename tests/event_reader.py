"""Reads event journals as anybody would: plain gzip, plain JSON, and what is whole of a file that was cut."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

__all__ = ["files_of", "read_events", "read_file"]


def files_of(folder: Path, node: str | None = None) -> list[Path]:
    """The files in order of time, of all nodes or one."""
    return sorted(folder.glob("events-*.jsonl.gz" if node is None else f"events-*-{node}.jsonl.gz"))


def read_file(path: Path, *, cut: bool = False) -> list[dict[str, Any]]:
    """All events of a file.

    Args:
        cut: whether the file may end in the middle of a member, whose whole lines then count.

    Raises:
        EOFError, gzip.BadGzipFile: the file was cut and must not be.
    """
    lines: list[bytes] = []
    with gzip.open(path) as file:
        try:
            lines += file
        except (EOFError, gzip.BadGzipFile):
            if not cut:
                raise
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def read_events(folder: Path, node: str | None = None) -> list[dict[str, Any]]:
    """The events of all files, every one of which has to be whole."""
    return [event for path in files_of(folder, node) for event in read_file(path)]
