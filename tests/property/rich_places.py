"""The places of messages, and what happens to them by time, in the naive model of queue features beyond LMQ's."""

from __future__ import annotations

from typing import Any

from .rich_rules import MAX_US, QueueRules
from .rich_state import Entry, Queue


class PlacedMessages(QueueRules):
    """All queues with their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = 0

    def delete(self, name: bytes) -> bool:
        self.bound = [pair for pair in self.bound if pair[1] != name]
        return self.queues.pop(name, None) is not None

    # --- time -----------------------------------------------------------------------------------------------------

    def advance(self, now_us: int) -> None:
        """Apply what happens by time alone: leases expire first, then messages expire or become due, queue by queue."""
        self.now_us = max(self.now_us, now_us)
        leases = [
            (min(e.due_us for e in leased), name)
            for name, queue in self.queues.items()
            if (leased := [e for e in queue.entries if e.state == "leased" and e.due_us <= self.now_us])
        ]
        for _, name in sorted(leases):
            self.end_leases(name)
        while True:
            timers = [(us, name) for name in self.queues if (us := self.timer(name)) <= self.now_us]
            if not timers:
                return
            self.let_happen(min(timers)[1])

    def end_leases(self, name: bytes) -> None:
        queue = self.queues[name]
        ended = [e for e in queue.entries if e.state == "leased" and e.due_us <= self.now_us]
        for entry in sorted(ended, key=lambda e: (e.due_us, e.number)):
            if entry.remaining <= 0:
                self.exhaust(name, entry)
            else:
                queue.add("redelivered")
                self.come_back(name, entry, entry.due_us + self.retry_delay(queue, entry))

    def timer(self, name: bytes) -> int:
        queue = self.queues[name]
        times = [e.due_us for e in queue.entries if e.state == "scheduled" and e.traits]
        times += [us for us, _, _ in self.ends(queue)]
        if not queue.entries and self.value(queue, "max_queue_age") is not None:
            times.append(queue.created_us + self.us(queue, "max_queue_age"))
        return min(times, default=MAX_US)

    def let_happen(self, name: bytes) -> None:
        queue = self.queues[name]
        if not queue.entries:
            self.delete(name)
            return
        while (first := min(self.ends(queue), default=None, key=lambda one: one[:2])) and first[0] <= self.now_us:
            self.expire(name, first[2])
        due = [e for e in queue.entries if e.state == "scheduled" and e.traits and e.due_us <= self.now_us]
        for entry in sorted(due, key=lambda e: (e.due_us, e.arrival)):
            self.line_up(queue, entry)

    # --- positions of messages ----------------------------------------------------------------------------------------

    def line_up(self, queue: Queue, entry: Entry) -> None:
        entry.state = "line"
        queue.arrange(entry.group, self.now_us)

    def place(self, queue: Queue, entry: Entry) -> None:
        if entry.due_us > self.now_us and entry.traits:
            entry.state = "scheduled"
        elif entry.traits:
            self.line_up(queue, entry)
        else:
            entry.state = "line"

    def remove(self, name: bytes, entry: Entry) -> None:
        """Remove the message from the queue; the next one of its group may become due now."""
        queue = self.queues[name]
        queue.entries.remove(entry)
        queue.arrange(entry.group, self.now_us)

    def come_back(self, name: bytes, entry: Entry, due_us: int) -> None:
        queue = self.queues[name]
        entry.number = 0
        if self.is_expired(queue, entry):
            self.expire(name, entry)
            return
        entry.due_us, entry.came_back = due_us, True
        self.place(queue, entry)
        queue.arrange(entry.group, self.now_us)

    def expire(self, name: bytes, entry: Entry) -> None:
        queue = self.queues[name]
        self.remove(name, entry)
        queue.add("expired")
        target = self.value(queue, "expire_to_queue")
        if target:
            self.pass_on(name, entry, target, b"expired")

    def exhaust(self, name: bytes, entry: Entry) -> None:
        queue = self.queues[name]
        self.remove(name, entry)
        target = self.value(queue, "dead_letter_queue")
        queue.add("dead_lettered" if target else "dropped")
        if target:
            self.pass_on(name, entry, target, b"exhausted")

    def pass_on(self, name: bytes, entry: Entry, target: bytes, reason: bytes) -> None:
        origin = (name, reason, self.now_us, entry.delivered, entry.arrival, entry.pushed_us, entry.identity())
        self.receive(target, entry, origin)

    def receive(self, target: bytes, entry: Entry, origin: Any) -> None:
        self.named(target)
        priority, _, label, group, _ = entry.traits or (0, 0, b"", b"", None)
        self.arrivals += 1
        retry = self.value(self.queues[target], "retry")
        traits = (priority, 0, label, group, origin)
        new = Entry(self.arrivals, entry.body, self.now_us, self.now_us, retry + 1, traits, attributes=entry.attributes)
        self.queues[target].entries.append(new)
        self.queues[target].add("moved_in")
        self.place(self.queues[target], new)
