"""Counts the work of the core instead of timing it: executed lines, and calls of built-ins that visit everything."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import lmqcluster.core

__all__ = ["Work", "counted"]

_CORE = str(Path(lmqcluster.core.__file__).parent)
_LINEAR = frozenset(
    {"remove", "index", "count", "insert", "sort", "sorted", "heapify", "copy", "reverse", "sum", "max"}
)


class Work:
    """Executed lines of the core, and calls of built-ins whose cost grows with the size of their argument."""

    def __init__(self) -> None:
        self.lines = 0
        self.linear_calls: Counter[str] = Counter()


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work of the core inside the block."""
    work = Work()

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            work.lines += 1
        return trace if event != "call" or frame.f_code.co_filename.startswith(_CORE) else None

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and argument.__name__ in _LINEAR and frame.f_code.co_filename.startswith(_CORE):
            work.linear_calls[argument.__name__] += 1

    traced, profiled = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        yield work
    finally:
        sys.settrace(traced)
        sys.setprofile(profiled)
