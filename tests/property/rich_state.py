"""The parts of the model of all queue features: messages with traits, queues with their history, runs of groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack


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
    first_us: int = 0  # the first delivery, in a queue with an index
    place_us: int = -1  # in its group, then by arrival; the first due time unless it is given

    def __post_init__(self) -> None:
        if self.place_us < 0:
            self.place_us = self.due_us

    @property
    def priority(self) -> int:
        return self.traits[0] if self.traits else 0

    def identity(self) -> tuple[int, int, int, int]:
        """Return sequence and time of the first push, all deliveries, and the time of the first one."""
        origin = self.traits[4] if self.traits else None
        if origin is None:
            return self.arrival, self.pushed_us, self.delivered, self.first_us
        arrival, pushed_us, delivered, first_us = origin[6]
        return arrival, pushed_us, delivered + self.delivered, first_us or self.first_us

    def explain(self, reason: bytes, bytes_max: int) -> None:
        """Keep a reason among the attributes, or the part of it for which there is room."""
        named = msgpack.unpackb(self.attributes) if self.attributes else {}
        named.pop("lmq.reason", None)
        room = bytes_max - sum(len(msgpack.packb(one)) for pair in named.items() for one in pair) - 17
        text = reason[: max(0, room)].decode(errors="ignore")
        named = {**({"lmq.reason": text} if text else {}), **named}
        self.attributes = msgpack.packb(named) if named else b""

    @property
    def label(self) -> bytes:
        return self.traits[2] if self.traits else b""

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

    def members(self, group: bytes) -> list[Entry]:
        """Return the messages of a group in their order. One that is not due for the first time yet is not among them."""
        found = [one for one in self.entries if one.group == group]
        found = [one for one in found if one.state != "scheduled" or one.due_us != one.place_us]
        return sorted(found, key=lambda one: (one.place_us, one.arrival))

    def arrange(self, group: bytes, now_us: int) -> None:
        """Put the first message of a group in line unless it is in flight or delayed, and hold the other due ones."""
        for place, entry in enumerate(self.members(group) if group else []):
            if entry.state in ("line", "held"):
                if place == 0 and entry.state == "held":
                    entry.due_us = now_us
                entry.state = "held" if place else "line"

    def front(self, priority: int, now_us: int) -> int:
        """Return the earliest due time of messages in line with this priority."""
        return min([one.due_us for one in self.entries if one.state == "line" and one.priority == priority] + [now_us])

    def behind(self, entry: Entry) -> Entry | None:
        """Return the message of the group that may follow this one, which is in flight."""
        members = self.members(entry.group) if entry.group else [entry]
        following = members[members.index(entry) + 1 :]
        return following[0] if following and following[0].state == "held" else None

    def add(self, counter: str, count: int = 1) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + count


def grown(delay_us: int, most_us: int, factor: float, times: int) -> int:
    """Return a delay that has grown several times."""
    delay = float(delay_us)
    for _ in range(times):
        if delay < most_us:
            delay *= factor
    return min(int(delay), most_us)


class Run:
    """The messages that one pull takes of a group, one right behind the other."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left = 0
        self.last: Entry | None = None

    def following(self, queue: Queue) -> Entry | None:
        return queue.behind(self.last) if self.last is not None and self.left > 0 else None

    def take(self, entry: Entry) -> None:
        follows = self.last is not None and self.left > 0 and entry.state == "held"
        self.left = self.left - 1 if follows else self.most - 1
        self.last = entry
