"""The history of a drill: one line for each attempt of an operation, recorded by its client, all by one clock.

It is JSON lines in the format that ``lmq-drill verify`` reads, which judges histories too large for one process;
`lmqcluster_chaos.judges.spark_checker` describes the fields. Two further fields, ``site`` and ``error``, are ignored by
both judges.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ..errors import DrillError

__all__ = ["Event", "History", "Op", "Outcome", "now_us", "read_history"]

Op = Literal["push", "pull", "ack", "nack", "extend", "delete", "drained"]
Outcome = Literal["ok", "failed", "unknown"]


def now_us() -> int:
    """Return the clock of all histories on this machine: microseconds since it was booted, the same for every process."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One attempt.

    Attributes:
        op, outcome, queue, value, sequence, receipt, lease_s, retry: see `lmqcluster_chaos.judges.spark_checker`.
        time_us, end_us: when it began, and when its outcome was known or the client gave up.
        process: the client.
        site: the node of the client.
        error: code of the error that the client got.
    """

    op: Op
    outcome: Outcome
    time_us: int
    end_us: int
    process: str
    queue: str | None = None
    value: str | None = None
    sequence: int | None = None
    receipt: str | None = None
    lease_s: float | None = None
    retry: int | None = None
    site: str | None = None
    error: str | None = None

    def to_json(self) -> str:
        """Return the JSON line, without empty fields."""
        return json.dumps({name: value for name in _NAMES if (value := getattr(self, name)) is not None})


_NAMES: Final = tuple(field.name for field in fields(Event))
_OPS: Final = frozenset(get_args(Op))
_OUTCOMES: Final = frozenset(get_args(Outcome))


class History:
    """Records events, in memory for the reports and in a file. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Record an event."""
        with self._lock:
            self._events.append(event)
            self._file.write(event.to_json() + "\n")

    def events(self) -> list[Event]:
        """Return all events so far."""
        with self._lock:
            return list(self._events)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(paths: Iterable[Path]) -> Iterator[Event]:
    """Yield the events of files of JSON lines.

    Raises:
        DrillError: a line is not an event; the text names it.
    """
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield _event(json.loads(line))
                except (ValueError, TypeError, KeyError) as exc:
                    raise DrillError(f"{path}, line {number} is not an event of a history: {exc}") from exc


def _event(line: dict[str, Any]) -> Event:
    if line["op"] not in _OPS or line["outcome"] not in _OUTCOMES:
        raise ValueError(f"op {line['op']!r} with outcome {line['outcome']!r} is unknown")
    known = {name: value for name, value in line.items() if name in _NAMES}
    known.setdefault("end_us", known["time_us"])
    known.setdefault("process", "")
    return Event(**known)
