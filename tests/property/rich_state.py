"""The parts of the model of all queue features: messages with traits, and queues with their history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Entry:
    """One message."""

    arrival: int
    body: bytes
    pushed_us: int
    due_us: int
    remaining: int
    traits: tuple[int, int, bytes, bytes, Any] | None = None  # priority, expires, label, group, origin
    attributes: bytes = b""
    state: str = "line"
    came_back: bool = True  # or joined the end of the queue, as number `joined`
    joined: int = 0
    number: int = 0
    ready_us: int = 0
    delivered: int = 0

    @property
    def priority(self) -> int:
        return self.traits[0] if self.traits else 0

    @property
    def group(self) -> bytes:
        return self.traits[3] if self.traits else b""


@dataclass(eq=False)
class Queue:
    """A queue."""

    name: bytes
    created_us: int
    entries: list[Entry] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    suspended: bool = False
    busy: dict[bytes, Entry] = field(default_factory=dict)

    def add(self, counter: str, count: int = 1) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + count
