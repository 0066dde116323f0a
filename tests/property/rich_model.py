"""The naive model of queue features beyond LMQ's: traits, limits, dead letters, bindings, transactions.

As in `model`, everything is a list that is searched. A message is in one of four states: ``line`` (due), ``scheduled``
(not due), ``held`` (behind another one of its group), ``leased``. Returning messages without traits precede new ones
if they are due at the same microsecond. In a queue with a maximum age, a message that was pushed without options gets
traits when it is delivered; before that, the first in line expires when it has been due for so long.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import takewhile
from typing import Any

from .known_pushes import REMEMBER_US, KnownPushes, place_of
from .rich_places import PlacedMessages
from .rich_rules import MAX_US
from .rich_state import Entry, Queue, Run

FULL, OVERSIZED, REPLAYED = 8, 16, 4
TAIL, KEEP, HEAD = 0, 1, 2
REFUSED = "refused"
Targets = tuple[list[bytes], list[bytes], list[bytes]]
PUSH_ROWS, ACK, NACK, EXTEND = 2, 20, 21, 22


class RichModel(PlacedMessages):
    """All queues."""

    def __init__(self) -> None:
        super().__init__()
        self.deliveries = 0
        self.joins = 0
        self.numbered: dict[bytes, tuple[int, set[int], int]] = {}  # producer: highest number, refused ones, last use
        self.keyed = KnownPushes()

    # --- properties -----------------------------------------------------------------------------------------------

    def delete(self, name: bytes) -> bool:
        self.keyed.forget(name)
        return super().delete(name)

    def suspend(self, name: bytes, flag: bool) -> bool | None:
        if name not in self.queues:
            return None
        self.queues[name].suspended = flag
        return True

    def bind(self, source: bytes, target: bytes, bound: bool = True) -> Any:
        if not bound:
            return self.unbind(source, target)
        if source == target:
            return REFUSED
        self.named(source)
        self.named(target)
        if (source, target) in self.bound:
            return False
        self.bound.append((source, target))
        return True

    def unbind(self, source: bytes, target: bytes) -> bool:
        found = (source, target) in self.bound
        self.bound = [pair for pair in self.bound if pair != (source, target)]
        return found

    # --- push -----------------------------------------------------------------------------------------------------

    def targets(self, name: bytes) -> Targets:
        """Return the queues that decide, those of them that keep the message, and those that get copies."""
        deciding: list[bytes] = []
        keeping: list[bytes] = []
        copies: list[bytes] = []
        pending, seen = [name], [name]
        while pending:
            one = pending.pop(0)
            queue = self.named(one)
            if self.value(queue, "destination_queues"):
                new = [one for one in self.value(queue, "destination_queues") if one not in seen]
                seen += new
                pending += new
                continue
            deciding.append(one)
            if not self.value(queue, "fanout_only"):
                keeping.append(one)
            for source, target in self.bound:
                if source == one and target not in seen and target in self.queues:
                    seen.append(target)
                    copies.append(target)
        return deciding, keeping, copies

    def takes(self, name: bytes, count: int, before_last: int) -> bool:
        queue = self.queues[name]
        waiting = [e for e in queue.entries if e.state != "leased"]
        items, size = self.value(queue, "max_items"), self.value(queue, "max_size")
        if items is not None and len(waiting) + count > items:
            return False
        return size is None or sum(len(e.body) + len(e.attributes) for e in waiting) + before_last < size

    def refusal(self, name: bytes, body: bytes) -> int:
        queue = self.queues[name]
        largest = self.value(queue, "max_item_size")
        if largest is not None and len(body) > largest:
            flag = OVERSIZED
        elif self.value(queue, "discard_old_when_full"):
            flag = FULL if 0 in (self.value(queue, "max_items"), self.value(queue, "max_size")) else 0
        else:
            flag = 0 if self.takes(name, 1, 0) else FULL
        queue.add("refused", 1 if flag else 0)
        return flag

    def make_room(self, name: bytes) -> None:
        while self.value(self.queues[name], "discard_old_when_full") and not self.takes(name, 1, 0):
            oldest = self.next_to_go(name)
            assert oldest is not None
            self.remove(name, oldest)
            self.queues[name].add("discarded")

    def push(self, name: bytes, _type: None, bodies: list[bytes], _producer: None, _first: int) -> list[int]:
        self.named(name)
        targets = self.targets(name)
        return [self.push_one(targets, body, []) for body in bodies]

    def push_one(self, targets: Targets, body: bytes, asked: list[Any], attributes: bytes = b"") -> int:
        deciding, keeping, copies = targets
        for one in deciding:
            flag = self.refusal(one, body)
            if flag:
                return flag
        for one in deciding:
            self.make_room(one)
        for one in keeping:
            self.put(one, body, asked, attributes)
        for one in copies:
            if not self.refusal(one, body):
                self.make_room(one)
                self.put(one, body, asked, attributes)
        return 0

    def put(self, name: bytes, body: bytes, asked: list[Any], attributes: bytes = b"") -> None:
        queue = self.queues[name]
        delay_us, due_us, ttl_us, priority, label, group = asked or [-1, 0, 0, 0, b"", b""]
        if delay_us >= 0:
            due_us = self.now_us + delay_us
        elif not due_us:
            due_us = self.now_us + self.us(queue, "delay", 0)
        ends = [us for us in (ttl_us, self.us(queue, "max_age", 0)) if us]
        expires_us = self.now_us + min(ends) if ends else 0
        is_rich = priority or ttl_us or label or group or due_us > self.now_us or self.gives_traits(name)
        traits = (priority, expires_us, label, group, None) if is_rich else None
        self.arrivals += 1
        queue.add("pushed")
        retry = self.value(queue, "retry")
        entry = Entry(self.arrivals, body, self.now_us, due_us, retry + 1, traits, attributes=attributes)
        entry.due_us = max(due_us, self.now_us)
        entry.came_back = entry.due_us > self.now_us
        self.joins += 1
        entry.joined = self.joins
        queue.entries.append(entry)
        self.place(queue, entry)

    def push_each(self, names: list[bytes], item: list[Any]) -> list[tuple[bytes, int]]:
        body, _type, attributes, _key = item
        found = [name for name in dict.fromkeys(names) if name in self.queues]
        return [(name, self.push_one(self.targets(name), body, [], attributes)) for name in found]

    def push_rows(
        self, name: bytes, rows: list[Any], owner: bytes = b"", producer: bytes | None = None, first: int = 0
    ) -> Any:
        """Store all of them, or none."""
        self.named(name)
        if producer is not None:
            return self.push_numbered(name, rows, producer, first)
        result = self.try_rows(name, rows, owner)
        if isinstance(result, list):
            return result
        if result is not None:
            self.queues[name].add("refused")
        return REFUSED

    def push_numbered(self, name: bytes, rows: list[Any], producer: bytes, first: int) -> list[Any]:
        """Store those whose numbers are not stored yet, all or none."""
        highest, refused, used_us = self.numbered.get(producer, (0, set(), self.now_us))
        if self.now_us >= used_us + REMEMBER_US:
            highest, refused = 0, set()
        numbers = range(first, first + len(rows))
        due = [number for number in numbers if number > highest or number in refused]
        results = dict.fromkeys(numbers, (REPLAYED, 0))
        stored = self.try_rows(name, [rows[number - first] for number in due]) if due else []
        if isinstance(stored, list):
            refused = refused.difference(due)
        else:
            assert stored is not None
            self.queues[name].add("refused")
            refused, stored = refused.union(due), [(stored, 0)] * len(due)
        results.update(zip(due, stored, strict=True))
        self.numbered[producer] = (max(highest, first + len(rows) - 1), refused, self.now_us)
        return list(results.values())

    def try_rows(self, name: bytes, rows: list[Any], owner: bytes = b"") -> list[Any] | int | None:
        """Store the rows one by one; if one is refused, undo all and return its flag, None for a reused key."""
        before = copy.deepcopy(self.__dict__)
        results: list[Any] = []
        for row in rows:
            known = self.known(name, row, owner)
            result = None if known is not None and known[2] != row[0] else self.push_row(name, row, owner)
            if result is None or result[0] & (FULL | OVERSIZED):
                made = {one: queue.created_us for one, queue in self.queues.items()}
                self.__dict__.update(before)
                for one, created_us in made.items():
                    self.queues.setdefault(one, Queue(one, created_us))
                return None if result is None else int(result[0])
            results.append(result)
        return results

    def push_row(self, name: bytes, row: list[Any], owner: bytes) -> Any:
        body, _type, attributes, _key, asked = row
        place, known = place_of(self, name, row, owner), self.known(name, row, owner)
        if known is not None:
            self.queues[name].add("deduplicated")
            return known[0] + REPLAYED, known[1]
        first = self.arrivals + 1
        flag = self.push_one(self.targets(name), body, asked, attributes)
        self.keyed.add(place, body, self.now_us, flag, first)
        return flag, first

    def known(self, name: bytes, row: list[Any], owner: bytes = b"") -> tuple[int, int, bytes] | None:
        return self.keyed.find(place_of(self, name, row, owner), row[0], self.now_us)

    # --- pull -----------------------------------------------------------------------------------------------------

    def next_in_line(self, name: bytes) -> Entry | None:
        line = [e for e in self.queues[name].entries if e.state == "line" and e.due_us <= self.now_us]
        plain = [e for e in line if not e.traits]
        rich = [e for e in line if e.traits]
        first = min(
            plain, key=lambda e: (e.due_us, not e.came_back, e.arrival if e.came_back else e.joined), default=None
        )
        urgent = min(rich, key=lambda e: (e.priority, e.due_us, e.arrival), default=None)
        if first is None or urgent is None:
            return first or urgent
        return urgent if (urgent.priority, urgent.due_us, urgent.arrival) < (0, first.due_us, first.arrival) else first

    def next_to_go(self, name: bytes) -> Entry | None:
        """Return the message that is discarded or purged next."""
        entries = self.queues[name].entries
        plain = [e for e in entries if e.state == "line" and not e.traits]
        scheduled = [e for e in entries if e.state == "scheduled"]
        held = [e for e in entries if e.state == "held"]
        return (
            self.next_in_line(name)
            or min(plain, key=lambda e: (e.due_us, e.arrival), default=None)
            or min(scheduled, key=lambda e: (e.due_us, e.arrival), default=None)
            or min(held, key=lambda e: (e.group, e.place_us, e.arrival), default=None)
        )

    def pull(
        self,
        name: bytes,
        count: int,
        lease_us: int = 0,
        settles: bool = False,
        *,
        charge: int = 1,
        in_turn: bool = False,
    ) -> Any:
        queue = self.named(name)
        if self.value(queue, "exclusive") and not in_turn:
            return REFUSED
        timeout_us = lease_us or self.us(queue, "timeout")
        delivered: list[Any] = []
        run = Run(1 if settles else self.value(queue, "group_max_in_flight") or 1)
        while len(delivered) < count and not queue.suspended:
            entry = run.following(queue) or self.next_in_line(name)
            if entry is None:
                break
            if not self.is_deliverable(name, entry):
                continue
            run.take(entry)
            self.enrich(name, entry)
            self.deliveries += 1
            entry.remaining -= charge
            entry.delivered += 1
            entry.number = self.deliveries
            delivered += self.shown(name, [entry])
            if settles:
                self.remove(name, entry)
                queue.add("acked")
            else:
                entry.ready_us, entry.due_us, entry.state = entry.due_us, self.now_us + timeout_us, "leased"
        return delivered

    def pull_first(self, names: list[bytes], count: int) -> list[Any]:
        delivered: list[Any] = []
        while len(delivered) < count and (name := self.due_first(names)) is not None:
            delivered += self.pull(name, 1)
        return delivered

    def due_first(self, names: list[bytes]) -> bytes | None:
        """Return which of these queues has the message that has been due longest; leased ones count too."""
        heads = [(us, name) for name in dict.fromkeys(names) if (us := self.head_us(name)) is not None]
        due_us, name = min(heads, default=(MAX_US, b""))
        return name if due_us <= self.now_us else None

    def head_us(self, name: bytes) -> int | None:
        queue = self.queues.get(name)
        if queue is None or queue.suspended or self.value(queue, "exclusive"):
            return None
        return min([e.due_us for e in queue.entries if e.state != "held"], default=None)

    def is_deliverable(self, name: bytes, entry: Entry) -> bool:
        """Return whether a message may be delivered; drop it otherwise."""
        if self.is_expired(self.queues[name], entry):
            self.expire(name, entry)
            return False
        if entry.remaining <= 0 or self.is_used_up(self.queues[name], entry):
            self.exhaust(name, entry)
            return False
        return True

    def shown(self, name: bytes, entries: list[Entry]) -> list[Any]:
        """Return their deliveries."""
        return [
            (name, one.number, one.remaining, one.delivered, one.pushed_us, one.body, one.attributes, one.traits)
            for one in entries
        ]

    # --- settle ---------------------------------------------------------------------------------------------------

    def leased(self, name: bytes, number: int) -> Entry | None:
        found = [e for e in self.queues[name].entries if e.state == "leased" and e.number == number]
        return found[0] if found else None

    def ack(self, name: bytes, numbers: list[int]) -> Any:
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                self.remove(name, entry)
                self.queues[name].add("acked")
            results.append(entry is not None)
        return results

    def extend(self, name: bytes, numbers: list[int], lease_us: int = 0) -> Any:
        if name not in self.queues:
            return None
        entries = [self.leased(name, number) for number in numbers]
        for entry in entries:
            if entry is not None:
                entry.due_us = self.now_us + (lease_us or self.us(self.queues[name], "timeout"))
        return [entry is not None for entry in entries]

    def put_back(self, name: bytes, numbers: list[int]) -> Any:
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                entry.remaining += 1
                entry.delivered -= 1
                entry.first_us = entry.first_us if entry.delivered else 0
                self.come_back(name, entry, entry.ready_us)
            results.append(entry is not None)
        return results

    def nack(
        self,
        name: bytes,
        numbers: list[int],
        place: int = TAIL,
        delay_us: int = -1,
        undoes: bool = False,
        reason: bytes = b"",
        attribute_bytes_max: int = 0,
    ) -> Any:
        if undoes:
            return self.put_back(name, numbers)
        if name not in self.queues:
            return None
        queue = self.queues[name]
        results: list[bool] = []
        returned: list[Entry] = []
        for number in numbers:
            entry = self.leased(name, number)
            results.append(entry is not None)
            if entry is not None:
                entry.number = 0
                entry.state = "coming back"
                returned.append(entry)
                queue.add("nacked")
        for entry in reversed(returned) if place == HEAD else returned:
            if reason:
                entry.explain(reason, attribute_bytes_max)
            if entry.remaining <= 0:
                self.exhaust(name, entry)
                continue
            later_us = delay_us if delay_us >= 0 else self.retry_delay(queue, entry) if place == TAIL else 0
            if later_us:
                self.come_back(name, entry, self.now_us + later_us)
            elif place == KEEP:
                self.come_back(name, entry, entry.ready_us)
            elif place == HEAD:
                self.come_back(name, entry, min(entry.ready_us, queue.front(entry.priority, self.now_us) - 1))
            else:
                self.come_back(name, entry, self.now_us)
                self.joins += 1
                entry.joined, entry.came_back = self.joins, False
        return results

    # --- operate --------------------------------------------------------------------------------------------------

    def purge(
        self,
        name: bytes,
        limit: int,
        label: bytes = b"",
        sequences: list[int] | None = None,
        everything: bool = False,
    ) -> Any:
        if sequences is not None and len(sequences) > limit:
            return REFUSED
        if name not in self.queues:
            return None
        if label or sequences is not None:
            return self.withdraw(name, self.selected(name, label, sequences, moved=not label)[:limit], label)
        if not limit:
            self.keyed.forget(name)
        leased = [e for e in self.queues[name].entries if e.state == "leased" and everything]
        gone = sorted(leased, key=lambda e: e.number)[: limit or None]
        for one in gone:
            self.remove(name, one)
        count = len(gone)
        while (not limit or count < limit) and (entry := self.next_to_go(name)) is not None:
            self.remove(name, entry)
            count += 1
        self.queues[name].add("purged", count)
        return count

    def selected(self, name: bytes, label: bytes, sequences: list[int] | None, *, moved: bool) -> list[Entry]:
        """Return the messages of these labels and sequences in the order of arrival, perhaps only those moved here."""
        waiting = [e for e in self.queues[name].entries if e.state != "leased" and e.traits]
        chosen = [e for e in waiting if e.traits and (e.traits[4] or not moved) and (not label or e.traits[2] == label)]
        named = [e for e in chosen if sequences is None or e.arrival in sequences]
        return sorted(named, key=lambda e: e.arrival)

    def withdraw(self, name: bytes, entries: list[Entry], label: bytes) -> int:
        for entry in entries:
            self.remove(name, entry)
        self.queues[name].add("withdrawn" if label else "purged", len(entries))
        return len(entries)

    def move(self, name: bytes, target: bytes, limit: int) -> Any:
        """Move messages with their priority, label and group."""
        if name not in self.queues:
            return None
        self.named(target)
        if target == name:
            return REFUSED
        moved: list[Entry] = []
        while len(moved) < limit and (entry := self.next_in_line(name)) is not None:
            self.remove(name, entry)
            moved.append(entry)
        self.queues[name].add("moved_out", len(moved))
        for entry in moved:
            self.receive(target, entry, None)
            if not (entry.priority or entry.label or entry.group):
                self.joins += 1
                plain = self.queues[target].entries[-1]
                plain.traits, plain.came_back, plain.joined = None, False, self.joins
        return len(moved)

    def redrive(
        self, name: bytes, to: bytes | list[bytes], label: bytes, limit: int, sequences: list[int] | None = None
    ) -> Any:
        if to == name or (sequences is not None and len(sequences) > limit):
            return REFUSED
        if name not in self.queues:
            return None
        moved = self.selected(name, label, sequences, moved=True)[:limit]
        if isinstance(to, list):
            moved = list(takewhile(lambda e: e.traits and e.traits[4][0] in to, moved))
        elif to:
            self.named(to)
        for entry in moved:
            self.remove(name, entry)
        self.queues[name].add("moved_out", len(moved))
        for entry in moved:
            source = entry.traits[4][0] if entry.traits else b""
            self.receive(to if to and isinstance(to, bytes) else source, replace(entry), None)
        return len(moved)

    # --- transactions ---------------------------------------------------------------------------------------------

    def transaction(self, operations: list[Any]) -> Any:
        """Apply the operations in order; if one fails, undo all except created queues and refused pushes."""
        before = copy.deepcopy(self.__dict__)
        used: set[int] = set()
        results: list[Any] = []
        for index, (op, name, *arguments) in enumerate(operations):
            result = self.operate(op, name, arguments, used)
            if result is not True and not isinstance(result, tuple):
                made = {one: queue.created_us for one, queue in self.queues.items()}
                self.__dict__.update(before)
                for one, created_us in made.items():
                    self.queues.setdefault(one, Queue(one, created_us))
                if isinstance(result, bytes):
                    self.queues[result].add("refused")
                return index
            results.append(result)
        return results

    def operate(self, op: int, name: bytes, arguments: list[Any], used: set[int]) -> Any:
        if op == PUSH_ROWS:
            (row,) = arguments[0]
            known = self.known(name, row) if name in self.queues else None
            result = self.push_rows(name, [row])
            if result == REFUSED:
                return False if known is not None else name
            return result[0]
        (number,), *rest = arguments
        if name not in self.queues or self.leased(name, number) is None or number in used:
            return False
        used.add(number)
        verb = {ACK: self.ack, NACK: self.nack, EXTEND: self.extend}[op]
        verb(name, [number], *rest)
        return True
