"""The naive model of queues whose messages are named by id and tag, on top of the model of queue features
beyond LMQ's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .rich_model import FULL, OVERSIZED, REFUSED, REPLAYED, Entry, RichModel
from .rich_state import Run

DELETE, POLL, PUSH, UPDATE = range(4)
ENDPOINTS = ("delete", "poll", "push", "update")
GONE, VALID, EXPIRED, OUTDATED = range(4)
PLAIN = (0, 0, b"", b"", None)
ATTEMPT_US = 300_000_000


@dataclass
class Limits:
    """Limits of one queue, or of all."""

    suspended: list[bool] = field(default_factory=lambda: [False] * 4)
    throttle: tuple[int, int] | None = None
    taken: list[int] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, counter: str, more: int = 1) -> None:
        self.counts[counter] = self.counts.get(counter, 0) + more

    def has_room(self, now_us: int) -> bool:
        if self.throttle is None:
            return True
        most, window_us = self.throttle
        return sum(us // window_us == now_us // window_us for us in self.taken) < most


@dataclass
class Index(Limits):
    since: int = 0
    is_named_fresh: bool = True


class PolledModel(RichModel):
    """All queues. Tags are looked up in one table: the number of the latest delivery or update of each message."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Limits()
        self.indexes: dict[bytes, Index] = {}
        self.numbers: dict[int, int] = {}
        self.keys: dict[bytes, bytes] = {}
        # Attempts of pushes and of polls: owner, queue, attempt, end, and the result.
        self.sent: list[tuple[bytes, bytes, bytes, int, tuple[int, int]]] = []
        self.received: list[tuple[bytes, bytes, bytes, int, list[int]]] = []
        # Deliveries that were returned again.
        self.again: set[int] = set()

    def index(self, name: bytes) -> Index:
        return self.indexes.setdefault(name, Index(since=self.arrivals))

    def delete(self, name: bytes) -> bool:
        self.indexes.pop(name, None)
        return super().delete(name)

    def create(self, name: bytes, _owner: bytes, pairs: list[Any], _indexed: bool, annotations: Any = ()) -> bool:
        if name in self.queues:
            return False
        self.set_properties(name, pairs)
        self.index(name).is_named_fresh = not annotations
        return True

    def gives_traits(self, name: bytes) -> bool:
        return name in self.indexes and self.indexes[name].is_named_fresh

    def keeps_traits(self, name: bytes) -> bool:
        return name in self.indexes or super().keeps_traits(name)

    def put(self, name: bytes, body: bytes, asked: list[Any], attributes: bytes = b"") -> None:
        super().put(name, body, asked, attributes)
        entry = self.queues[name].entries[-1]
        if name in self.indexes:
            entry.place_us = self.now_us
            self.place(self.queues[name], entry)
            self.queues[name].arrange(entry.group, self.now_us)

    def pull(self, name: bytes, count: int, lease_us: int = 0, settles: bool = False) -> list[Any]:
        delivered = super().pull(name, count, lease_us, settles)
        for entry in self.queues[name].entries:
            if name in self.indexes and entry.traits and entry.number in [one[1] for one in delivered]:
                self.numbers[entry.arrival] = entry.number
                entry.first_us = entry.first_us or self.now_us
        return delivered

    # --- requests -------------------------------------------------------------------------------------------------

    def refuses(self, name: bytes, endpoint: int) -> bool:
        if name not in self.queues:
            return True
        own = self.index(name)
        if self.total.suspended[endpoint] or own.suspended[endpoint]:
            for limits in (own, self.total):
                limits.add(f"suspended_{ENDPOINTS[endpoint]}")
            return True
        return False

    def count(self, name: bytes, counter: str, more: int = 1) -> None:
        for limits in (self.index(name), self.total):
            limits.add(counter, more)

    def push_rows(
        self,
        name: bytes,
        rows: list[Any],
        owner: bytes = b"",
        producer: bytes | None = None,
        first: int = 0,
        must_exist: bool = False,
        _wait_us: int = 0,
    ) -> Any:
        if not must_exist:
            return super().push_rows(name, rows, owner, producer, first)
        whole: list[Any] = []
        for row in rows:
            whole.append([row, None, b"", None, whole[-1][4] if whole else []] if isinstance(row, bytes) else row)
        return REFUSED if self.refuses(name, PUSH) else super().push_rows(name, whole, owner)

    def push_attempts(self, name: bytes, rows: list[Any], owner: bytes = b"") -> Any:
        """Store each row that is not refused and whose attempt is not remembered."""
        return REFUSED if self.refuses(name, PUSH) else [self.push_attempt(name, row, owner) for row in rows]

    def push_attempt(self, name: bytes, row: list[Any], owner: bytes) -> tuple[int, int]:
        *asked, attempt, options = row
        place = owner, name, attempt
        known = [result for *one, ends_us, result in self.sent if tuple(one) == place and self.now_us < ends_us]
        if known:
            self.queues[name].add("deduplicated")
            return known[-1][0] | REPLAYED, known[-1][1]
        flag, sequence = self.push_row(name, [*asked, None, options], owner)
        if flag & (FULL | OVERSIZED):
            return flag, 0
        if attempt is not None:
            self.sent.append((*place, self.now_us + ATTEMPT_US, (flag, sequence)))
        return flag, sequence

    def poll(
        self,
        name: bytes,
        count: int,
        hide_us: int,
        takes_hidden: bool,
        is_again: bool,
        owner: bytes = b"",
        attempt: bytes = b"",
        remember_us: int = 0,
    ) -> Any:
        if self.refuses(name, POLL):
            return REFUSED
        before = self.polled_before(name, count, hide_us, (owner, name, attempt)) if attempt else []
        if before:
            return before
        if not is_again:
            throttles = (self.total, self.index(name))
            if not all(one.has_room(self.now_us) for one in throttles):
                self.count(name, "throttled_poll")
                return REFUSED
            for one in throttles:
                one.taken.append(self.now_us)
        delivered = [self.deliver(name, entry) for entry in self.chosen(name, count, takes_hidden=takes_hidden)]
        for entry in [entry for entry in self.queues[name].entries if entry.state == "taken"]:
            if hide_us > 0:
                entry.ready_us, entry.due_us, entry.state = entry.due_us, self.now_us + hide_us, "leased"
        # Messages that are not hidden return in the order of their delivery.
        for row in delivered if hide_us <= 0 else []:
            entry = next(one for one in self.queues[name].entries if one.number == row[1])
            self.come_back(name, entry, self.now_us + hide_us)
        self.count(name, "empty_poll", not delivered)
        if attempt and delivered and hide_us > 0:
            numbers = [one[1] for one in delivered]
            self.received.append((owner, name, attempt, self.now_us + remember_us, numbers))
        return delivered

    def polled_before(self, name: bytes, count: int, hide_us: int, place: tuple[bytes, bytes, bytes]) -> list[Any]:
        """Return the deliveries of the poll with this attempt once more, if all are still under lease."""
        known = [one for one in self.received if one[:3] == place and self.now_us < one[3]]
        numbers = known[-1][4] if known else []
        entries = [self.leased(name, number) for number in numbers]
        if not numbers or None in entries or hide_us <= 0 or self.queues[name].suspended or len(numbers) > count:
            return []
        for entry in entries:
            assert entry is not None
            entry.due_us = self.now_us + hide_us
            self.again.add(entry.number)
        return [self.polled_row(name, entry) for entry in entries if entry is not None]

    def put_back(self, name: bytes, numbers: list[int]) -> Any:
        done = super().put_back(name, [number for number in numbers if number not in self.again])
        return None if done is None else [number not in self.again and done.pop(0) for number in numbers]

    def deliver(self, name: bytes, entry: Entry) -> Any:
        self.deliveries += 1
        entry.number = self.numbers[entry.arrival] = self.deliveries
        entry.remaining -= 1
        entry.delivered += 1
        self.enrich(name, entry)
        entry.first_us = entry.first_us or self.now_us
        return self.polled_row(name, entry)

    def polled_row(self, name: bytes, entry: Entry) -> Any:
        return (
            name,
            entry.number,
            entry.remaining,
            entry.delivered,
            entry.pushed_us,
            entry.body,
            entry.attributes,
            entry.traits,
        )

    def chosen(self, name: bytes, count: int, *, takes_hidden: bool) -> list[Entry]:
        queue = self.queues[name]
        taken: list[Entry] = []
        run = Run(self.value(queue, "group_max_in_flight") or 1)
        while len(taken) < count and not queue.suspended:
            entry = run.following(queue) or self.next_in_line(name)
            is_hidden = entry is None
            if entry is None and takes_hidden:
                entry = self.next_hidden(name)
            if entry is None:
                break
            if self.is_deliverable(name, entry):
                run = Run(run.most) if is_hidden else run
                if not is_hidden:
                    run.take(entry)
                entry.state = "taken"
                taken.append(entry)
        return taken

    def next_hidden(self, name: bytes) -> Entry | None:
        queue = self.queues[name]
        leased = [(e.due_us, 0, e.number, e) for e in queue.entries if e.state == "leased"]
        scheduled = [(e.due_us, 1, e.arrival, e) for e in queue.entries if e.state == "scheduled"]
        entry = min(leased + scheduled, key=lambda row: row[:3], default=(0, 0, 0, None))[3]
        if entry is not None and entry.state == "scheduled" and entry.group:
            others = [one for one in queue.members(entry.group) if one is not entry]
            if any((one.place_us, one.arrival) < (entry.place_us, entry.arrival) for one in others):
                return None
        return entry

    def named(self, name: bytes, *ids: int) -> Any:
        """Return the queue and the named message for an id and a tag."""
        if not ids:
            return super().named(name)
        arrival, tag = ids
        number = self.numbers.get(arrival, 0)
        for entry in self.queues[name].entries:
            if (
                entry.arrival == arrival
                and entry.traits
                and tag == number
                and (tag or arrival > self.index(name).since)
            ):
                return entry
        return None

    def state_of(self, name: bytes, arrival: int, tag: int) -> tuple[int, Entry | None]:
        """Return the state of a tag, and the message if it is valid."""
        entry = self.named(name, arrival, tag)
        if entry is None:
            is_here = any(one.arrival == arrival for one in self.queues[name].entries)
            return OUTDATED if is_here and arrival in self.numbers else GONE, None
        return (EXPIRED, None) if tag and entry.group and entry.state != "leased" else (VALID, entry)

    def update(self, name: bytes, arrival: int, tag: int, hide_us: int, keeps_tag: bool = False) -> Any:
        if self.refuses(name, UPDATE):
            return REFUSED
        state, entry = self.state_of(name, arrival, tag)
        if entry is None:
            self.count(name, "missing_update")
            return state, 0
        self.count(name, "updated")
        if not keeps_tag:
            self.deliveries += 1
            self.numbers[arrival] = self.deliveries
        if tag and hide_us > 0:
            if entry.state != "leased":
                entry.ready_us = entry.due_us
            entry.due_us, entry.state, entry.number = self.now_us + hide_us, "leased", self.numbers[arrival]
        elif entry.remaining > 0:
            self.come_back(name, entry, self.now_us + hide_us)
        else:
            self.exhaust(name, entry)
        return state, self.numbers.get(arrival, 0)

    def delete_polled(self, name: bytes, pairs: list[tuple[int, int]]) -> Any:
        if self.refuses(name, DELETE):
            return REFUSED
        results = []
        for arrival, tag in pairs:
            state, entry = self.state_of(name, arrival, tag)
            results.append(state)
            if entry is not None:
                self.remove(name, entry)
                self.queues[name].add("acked")
        self.count(name, "missing_delete", len([one for one in results if one != VALID]))
        return results

    # --- limits ---------------------------------------------------------------------------------------------------

    def set_poll_limits(self, name: bytes, switches: list[bool | None] | None, throttle: Any = None) -> Any:
        if name and name not in self.queues:
            return REFUSED
        limits = self.index(name) if name else self.total
        if switches is not None:
            limits.suspended = [
                before if one is None else one for before, one in zip(limits.suspended, switches, strict=True)
            ]
        if throttle is not None:
            limits.throttle, limits.taken = None if throttle[0] is None else tuple(throttle), []
        return limits.suspended.copy()

    def set_key(self, key: bytes, prefix: bytes | None) -> bool:
        if prefix is None:
            return self.keys.pop(key, None) is not None
        self.keys[key] = prefix
        return True
