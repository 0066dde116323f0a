"""The meaning of the properties of a queue, for the naive model of queue features beyond LMQ's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .rich_state import Entry, Queue, grown

DEFAULTS: dict[str, Any] = {"retry": 2, "timeout": 30}
MAX_US = 1 << 60


class QueueRules:
    """All queues with their properties."""

    def __init__(self) -> None:
        self.now_us = 0
        self.queues: dict[bytes, Queue] = {}
        self.bound: list[tuple[bytes, bytes]] = []

    def named(self, name: bytes) -> Queue:
        return self.queues.setdefault(name, Queue(name, self.now_us))

    def value(self, queue: Queue, key: str) -> Any:
        parent = queue.name.partition(b"+")[0]
        inherited = key not in ("destination_queues", "fanout_only") and (parent, queue.name) in self.bound
        above = self.queues[parent].own if inherited and parent in self.queues else {}
        return queue.own.get(key, above.get(key, DEFAULTS.get(key)))

    def us(self, queue: Queue, key: str, default: Any = None) -> Any:
        value = self.value(queue, key)
        return default if value is None else round(Fraction(value) * 1_000_000)

    def set_properties(self, name: bytes, pairs: list[Any]) -> bool:
        queue = self.named(name)
        queue.own.update({key.decode(): value for key, value in pairs})
        queue.own = {key: value for key, value in queue.own.items() if value is not None}
        return True

    def retry_delay(self, queue: Queue, entry: Entry) -> int:
        first_us, most_us = self.us(queue, "retry_delay", 0), self.us(queue, "retry_delay_max", MAX_US)
        return grown(first_us, most_us, self.value(queue, "retry_backoff") or 1, entry.delivered - 1)

    def is_expired(self, queue: Queue, entry: Entry) -> bool:
        age_us = self.us(queue, "max_age")
        by_age = age_us is not None and entry.pushed_us + age_us <= self.now_us
        return by_age or bool(entry.traits and 0 < entry.traits[1] <= self.now_us)

    def is_used_up(self, queue: Queue, entry: Entry) -> bool:
        most, target = self.value(queue, "max_deliveries"), self.value(queue, "dead_letter_queue")
        return most is not None and entry.delivered >= most and (not target or target in self.queues)

    def ends(self, queue: Queue) -> list[tuple[int, int, Entry]]:
        """Return when messages expire without being looked at, with their arrival."""
        waiting = [e for e in queue.entries if e.state != "leased"]
        ends = [(e.traits[1], e.arrival, e) for e in waiting if e.traits and e.traits[1]]
        age_us, line = self.us(queue, "max_age"), [e for e in waiting if not e.traits and not e.came_back]
        if age_us is not None and line:
            first = min(line, key=lambda e: e.joined)
            ends.append((first.due_us + age_us, first.arrival, first))
        return ends

    def gives_traits(self, _name: bytes) -> bool:
        """Return whether every message that is pushed to the queue gets traits."""
        return False

    def keeps_traits(self, name: bytes) -> bool:
        """Return whether every message that is delivered gets traits."""
        return self.value(self.queues[name], "max_age") is not None

    def enrich(self, name: bytes, entry: Entry) -> None:
        """Give a message that is delivered traits if it needs them."""
        if entry.traits is None and self.keeps_traits(name):
            age_us = self.us(self.queues[name], "max_age")
            entry.traits = (0, entry.pushed_us + age_us if age_us else 0, b"", b"", None)
