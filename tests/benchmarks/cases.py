"""Modes, routes through the cluster and sizes to measure, and the matrix of them that a run covers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

IN_FLIGHT: Final = 256
"""Outstanding requests per connection in the pipelined modes, on every system."""
BATCH: Final = 100
"""Messages per batch request."""
BATCHES_IN_FLIGHT: Final = 16
"""Outstanding batch requests per connection."""
HTTP_CONNECTIONS: Final = 64
"""Keep-alive connections of the HTTP modes to one node, each with one outstanding request."""
SIZES: Final = {"100B": 100, "1KB": 1_000, "64KB": 64_000}
"""Content sizes in bytes by their names."""
SMALL: Final = 100
"""The size that is measured through every route; the others go through the leader only, unless all are requested."""


class Mode(StrEnum):
    """The manner of sending requests. The table shows the text."""

    PIPELINED = "pipelined"
    CONSUME = "consume"
    BATCHED = "batched"
    ONE_AT_A_TIME = "one at a time"
    WAKE_UP = "end to end"
    HTTP = "HTTP"
    HTTP_BATCHED = "HTTP batched"


OPERATIONS: Final[dict[Mode, tuple[str, ...]]] = {
    Mode.PIPELINED: ("push", "pull", "done"),
    Mode.CONSUME: ("pull + done",),
    Mode.BATCHED: ("push_many", "pull_many", "done_many"),
    Mode.ONE_AT_A_TIME: ("push", "pull", "done"),
    Mode.WAKE_UP: ("push to woken pull",),
    Mode.HTTP: ("push",),
    Mode.HTTP_BATCHED: ("push_many",),
}
"""The timed operations of each mode, in order: each is a row of the table."""


class Via(StrEnum):
    """The node that the client is connected to."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ALL = "all nodes"


@dataclass(frozen=True, slots=True)
class Case:
    """A unit that runs as a whole, on a separate queue; gives one or several rows."""

    mode: Mode
    via: Via
    size: int
    """Bytes of one content."""

    def __str__(self) -> str:
        return f"{self.mode}, {self.via}, {size_name(self.size)}"

    def rows(self) -> list[Row]:
        """Return the rows that this case can give; a system may lack some of the operations."""
        return [Row(self, operation) for operation in OPERATIONS[self.mode]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: an operation within a case."""

    case: Case
    operation: str

    def __str__(self) -> str:
        return f"{self.case.mode} {self.operation}, {self.case.via}, {size_name(self.case.size)}"


def size_name(size: int) -> str:
    """Return the name of a size, such as ``100B`` or ``1KB``."""
    return f"{size // 1000}KB" if size >= 1000 and size % 1000 == 0 else f"{size}B"


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``100``, ``100B``, ``1KB`` or ``64k`` (thousands).

    Raises:
        ValueError: the text is not a size.
    """
    match = re.fullmatch(r"(\d+)\s*(k?)b?", text.strip(), re.IGNORECASE)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} is not a size such as 100B or 64KB")
    return int(match[1]) * (1000 if match[2] else 1)


def matrix(sizes: Iterable[int], *, full: bool) -> Iterator[Case]:
    """Return all cases for these sizes; those larger than `SMALL` through the leader only, unless `full`."""
    for size in sizes:
        for mode in Mode:
            for via in Via:
                if full or size <= SMALL or via is Via.LEADER:
                    yield Case(mode, via, size)


def select(cases: Iterable[Case], pattern: str | None) -> Sequence[Case]:
    """Return the cases with at least one row that matches the regular expression, ignoring case.

    Raises:
        ValueError: the pattern is invalid, or nothing matches.
    """
    if pattern is None:
        return list(cases)
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except re.error as exc:
        raise ValueError(f"{pattern!r} is not a regular expression: {exc}") from exc
    found = [case for case in cases if any(wanted.search(str(row)) for row in case.rows())]
    if not found:
        raise ValueError(f"no case matches {pattern!r}; --list shows them all")
    return found
