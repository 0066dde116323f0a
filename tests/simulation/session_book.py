"""Sessions and what they hold as derived from the log alone: plain lists, searched from the front."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Held", "Lines", "Messages", "Session"]


@dataclass
class Session:
    """One session and its deliveries."""

    number: int
    ttl_us: int
    ends_us: int
    deliveries: list[int] = field(default_factory=list)


class Held(NamedTuple):
    """A message under a lease."""

    queue: bytes
    arrival: int
    content: bytes


class Messages:
    """The messages of some queues, in order of arrival."""

    def __init__(self) -> None:
        self.lines: dict[bytes, list[tuple[int, bytes]]] = {}
        self.held: dict[int, Held] = {}
        self._arrivals = 0

    def line(self, queue: bytes) -> list[tuple[int, bytes]]:
        return self.lines.setdefault(queue, [])

    def push(self, queue: bytes, content: bytes) -> None:
        self._arrivals += 1
        self.line(queue).append((self._arrivals, content))

    def come_back(self, delivery: int) -> None:
        """Return the message to its old position."""
        held = self.held.pop(delivery)
        bisect.insort(self.line(held.queue), (held.arrival, held.content))


class Lines:
    """Wait lists by name; the first session of a list is the holder."""

    def __init__(self) -> None:
        self.lines: dict[bytes, list[int]] = {}
        self._places: list[tuple[int, bytes]] = []

    def holder(self, name: bytes) -> int:
        line = self.lines.get(name)
        return line[0] if line else 0

    def join(self, name: bytes, session: int) -> None:
        line = self.lines.setdefault(name, [])
        if session not in line:
            line.append(session)
            self._places.append((session, name))

    def leave(self, name: bytes, session: int) -> int | None:
        """Remove the session; return the new holder, 0 for none, or None if the holder has not changed."""
        line = self.lines.get(name, [])
        if session not in line:
            return None
        held = line[0] == session
        line.remove(session)
        self._places.remove((session, name))
        return self.holder(name) if held else None

    def of(self, session: int) -> list[bytes]:
        """Return the names for which the session waits, in the order of its requests."""
        return [name for number, name in self._places if number == session]
