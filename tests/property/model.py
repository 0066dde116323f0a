"""The naive model of the queues: the most obvious implementation of LMQ's behaviour, to compare the real one with.

Everything is a list that is searched from the front. It shares no code with `lmqcluster.core`, knows nothing of garbage
input, and may be slow.

LMQ leaves open the order of messages that are due at the same microsecond. The model defines it: first windows and
messages put back, by arrival; then expired leases, by delivery; then the queue, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .model_state import NO_ATTRIBUTES, Attributes, Batch, Delivery, Entry, Queue, Subscription, with_headers

SYSTEM = {"accum": 0, "retry": 2, "timeout": 30}
NO, NEW, YES = 0, 1, 2
REPLAYED = 4
WINDOWS_FIRST, LEASES_NEXT, LINE_LAST = 0, 1, 2

PUSH, PUSH_ROWS, PUSH_EACH, PUSH_STREAM, PULL, PULL_FIRST = 1, 2, 3, 4, 10, 11
ACK, NACK, EXTEND = 20, 21, 22
UNDONE = -1
UNDO = (0, 0, True)  # the last fields of a nack that undoes deliveries
DELETE, SET_PROPERTIES, SET_DEFAULTS, SUSPEND, PURGE, MOVE = 31, 32, 33, 34, 36, 37
RESERVE, RENEW, SETTLE_BATCHES, ABANDON_BATCHES = 41, 42, 43, 44
BARRIER, SET_SALT = 70, 71
LIVE, EMPTY, SETTLED, EXPIRED = 1, 2, 3, 4
REFUSED = "refused"
ANY_NUMBER = object()


class Model:
    """All queues. `search(pattern, name)` returns whether the pattern is found in the name.

    `step` is how many messages one command adds to a batch or takes from it, `block` how many in a row come from one
    queue, `remembered` how many deliveries are known that ended otherwise than by an ack.
    """

    def __init__(self, search: Any, window_s: int, step: int, block: int, remembered: int) -> None:
        self.search = search
        self.remembered = remembered
        self.step = step
        self.block = block
        self.subscriptions: dict[bytes, Subscription] = {}
        self.window_us = window_s * 1_000_000
        self.marks: dict[tuple[bytes, bytes, bytes], tuple[int, bool]] = {}  # owner, job, stream: position, done
        self.now_us = 0
        self.arrivals = 0
        self.deliveries = 0
        self.queues: dict[bytes, Queue] = {}
        self.rules: list[tuple[bytes, dict[str, Any]]] = []
        self.batches: list[tuple[bytes, int, int]] = []  # origin, incarnation, sequence of each batch applied
        self.produced: dict[bytes, tuple[int, int]] = {}  # producer: highest sequence, log time of its last push
        self.keyed: list[tuple[bytes, bytes, int, int, int, bytes]] = []  # queue, key, flag, sequence, log time, body
        self.ended: dict[int, int | None] = {}  # delivery: the command that ended it, None for its expiry

    # Batches

    def apply(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[list[Any]]
    ) -> tuple[str, list[Any]]:
        self.now_us = max(self.now_us, now_us)
        self.end_leases()
        latest = max([i for o, i, _ in self.batches if o == origin], default=0)
        if incarnation < latest:
            return "duplicate", []
        last = max([s for o, i, s in self.batches if o == origin and i == incarnation], default=0)
        if sequence <= last:
            return "duplicate", []
        if sequence > last + 1:
            return "gap", []
        self.batches.append((origin, incarnation, sequence))
        return "applied", [self.do(command) for command in commands]

    def do(self, command: list[Any]) -> Any:
        op, *arguments = command
        operations: dict[int, Callable[..., Any]] = {
            PUSH: self.push,
            PUSH_ROWS: self.push_rows,
            PULL: self.pull,
            PULL_FIRST: self.pull_first,
            ACK: self.ack,
            NACK: self.nack,
            EXTEND: self.extend,
            PUSH_EACH: self.push_each,
            SET_PROPERTIES: self.set_properties,
            DELETE: self.delete,
            SET_DEFAULTS: self.set_defaults,
            BARRIER: lambda: True,
            SET_SALT: lambda _salt: True,
            PUSH_STREAM: self.push_stream,
            RESERVE: self.reserve,
            RENEW: self.renew,
            SETTLE_BATCHES: self.settle_batches,
            ABANDON_BATCHES: self.abandon_batches,
            PURGE: self.purge,
            MOVE: self.move,
            SUSPEND: self.suspend,
        }
        return operations[op](*arguments)

    # Time

    def end_leases(self) -> None:
        """Make leased messages that are due ready again, or remove them if they are exhausted."""
        firsts = [
            (min(entry.place[0] for entry in leased), name)
            for name, queue in self.queues.items()
            if (leased := [entry for entry in queue.entries if entry.state == "leased"])
        ]
        for _, name in sorted(firsts):
            queue = self.queues[name]
            for entry in sorted(queue.entries, key=lambda entry: entry.place):
                if entry.state == "leased" and entry.due_us <= self.now_us:
                    self.ended[entry.number] = None
                    entry.state, entry.place = "waiting", (entry.due_us, WINDOWS_FIRST, entry.arrival)
                    if entry.remaining <= 0:
                        queue.entries.remove(entry)
                        queue.dropped += 1

    # Properties

    def named(self, name: bytes) -> Queue:
        """Return the queue, creating it if it does not exist."""
        if name not in self.queues:
            self.queues[name] = Queue()
        return self.queues[name]

    def property(self, name: bytes, key: str) -> Any:
        """Return the own value, else that of the first rule that matches (and of no other), else the system default."""
        if name in self.queues and key in self.queues[name].own:
            return self.queues[name].own[key]
        for pattern, values in self.rules:
            if self.search(pattern, name):
                return values.get(key, SYSTEM.get(key))
        return SYSTEM.get(key)

    def properties(self, name: bytes) -> dict[str, Any]:
        keys = ["accum", "hooks", "retry", "timeout"]
        return {key: self.property(name, key) for key in keys if self.property(name, key) is not None}

    def timeout_us(self, name: bytes) -> int:
        return round(Fraction(self.property(name, "timeout")) * 1_000_000)

    def set_properties(self, name: bytes, pairs: list[Any], _only_unset: bool = False, clears: bool = False) -> bool:
        queue = self.named(name)
        queue.own = {**({} if clears else queue.own), **{key.decode(): value for key, value in pairs}}
        return True

    def set_defaults(self, rules: list[Any]) -> bool:
        self.rules = [(pattern, {key.decode(): value for key, value in pairs}) for pattern, pairs in rules]
        return True

    def delete(self, name: bytes) -> bool:
        queue = self.queues.pop(name, None)
        for entry in queue.entries if queue is not None else []:
            if entry.state == "leased":
                self.ended[entry.number] = ACK
        return queue is not None

    # Push

    def store(self, name: bytes, content: bytes, content_type: bytes | None, attributes: Attributes) -> int:
        queue = self.named(name)
        self.arrivals += 1
        accum_ms = self.property(name, "accum")
        if accum_ms != 0:
            for entry in queue.entries:
                if entry.state == "window" and entry.due_us > self.now_us:
                    entry.content.append((content_type, attributes, content))
                    return YES
            place = (self.now_us + accum_ms * 1000, WINDOWS_FIRST, self.arrivals)
            state, body, meta = "window", [(content_type, attributes, content)], (None, NO_ATTRIBUTES)
        else:
            place = (self.now_us, LINE_LAST, self.end_of_line(queue))
            state, body, meta = "waiting", content, (content_type, attributes)  # type: ignore[assignment]
        queue.entries.append(Entry(state, place, self.arrivals, self.allowed_deliveries(name), *meta, body))
        queue.entered += 1
        return NO if accum_ms == 0 else NEW

    def allowed_deliveries(self, name: bytes) -> int:
        deliveries: int = self.property(name, "retry") + 1
        return max(1, deliveries)

    def end_of_line(self, queue: Queue) -> int:
        return 1 + max([entry.place[2] for entry in queue.entries if entry.place[1] == LINE_LAST], default=0)

    def push(
        self, name: bytes, content_type: bytes | None, contents: list[bytes], producer: bytes | None, first: int
    ) -> list[int]:
        self.named(name)
        flags = []
        highest = 0
        if producer is not None:
            highest, used_us = self.produced.get(producer, (0, 0))
            if used_us <= self.now_us - self.window_us:
                highest = 0
            self.produced[producer] = (max(highest, first + len(contents) - 1), self.now_us)
        for sequence, content in enumerate(contents, first):
            known = producer is not None and sequence <= highest
            flags.append(NO if known else self.store(name, content, content_type, NO_ATTRIBUTES))
        return flags

    def push_rows(self, name: bytes, rows: list[Any]) -> Any:
        self.named(name)
        if self.another_body(name, rows):
            return REFUSED
        return [self.push_item(name, *row[:4], *row[5:]) for row in rows]

    def another_body(self, name: bytes, rows: list[Any]) -> bool:
        """Return whether a key had another body before, or has two now."""
        seen = {key: body for queue, key, _, _, at_us, body in self.keyed if queue == name and self.is_known(at_us)}
        return any(key is not None and seen.setdefault(key, content) != content for content, _, _, key, *_ in rows)

    def is_known(self, at_us: int) -> bool:
        return self.now_us < at_us + self.window_us

    def push_stream(
        self,
        name: bytes,
        items: list[Any],
        job: bytes,
        stream: bytes,
        first: int,
        note: bytes,
        done: bool,
        owner: bytes,
    ) -> Any:
        position, complete = self.marks.get((owner, job, stream), (0, False))
        if complete or (items and first + len(items) <= position):
            self.named(name)
            return []
        if first != position:
            return REFUSED
        self.named(name)
        for content, content_type, attributes in items:
            self.push_item(name, content, content_type, attributes, None)
        self.marks[owner, job, stream] = (position + len(items), done)
        return [0] * len(items)

    def push_item(
        self,
        name: bytes,
        content: bytes,
        content_type: bytes | None,
        attributes: bytes,
        key: bytes | None,
        headers: list[Any] | None = None,
    ) -> tuple[int, int]:
        for queue, known, flag, sequence, at_us, _ in self.keyed:
            if key is not None and (queue, known) == (name, key) and self.is_known(at_us):
                return flag + REPLAYED, sequence
        flag = self.store(name, content, content_type, with_headers(attributes, self.preserved(name, headers or [])))
        if key is not None:
            self.keyed.append((name, key, flag, self.arrivals, self.now_us, content))
        return flag, self.arrivals

    def preserved(self, name: bytes, headers: list[Any]) -> list[tuple[bytes, bytes]]:
        """Return the headers that the queue's hooks name, in the order of the hooks."""
        kept: list[tuple[bytes, bytes]] = []
        for point, modules in self.property(name, "hooks") or []:
            for _module, arguments in modules:
                for argument in arguments:
                    for header, value in headers:
                        already = [known for known, _ in kept]
                        if point == b"pre_http_push" and header == argument and header not in already:
                            kept.append((header, value))
        return kept

    def push_each(self, names: list[bytes], item: list[Any]) -> list[tuple[bytes, int]]:
        content, content_type, attributes, _key, *headers = item
        return [
            (name, self.push_item(name, content, content_type, attributes, None, *headers)[0])
            for name in self.found(names)
        ]

    def found(self, names: list[bytes]) -> list[bytes]:
        """Those of the queues that exist, each once."""
        return [name for name in dict.fromkeys(names) if name in self.queues]

    # Pull

    def pull(self, name: bytes, count: int) -> list[Delivery]:
        self.named(name)
        delivered: list[Delivery] = []
        while len(delivered) < count:
            one = self.pull_one(name)
            if one is None:
                break
            delivered.append(one)
        return delivered

    def pull_one(self, name: bytes, deadline_us: int | None = None, charge: int = 1) -> Delivery | None:
        queue = self.queues[name]
        while True:
            if queue.suspended:
                return None
            due = [entry for entry in queue.entries if entry.due_us <= self.now_us]
            if not due:
                return None
            entry = min(due, key=lambda entry: entry.place)
            if entry.state == "leased":
                self.ended[entry.number] = None
            if entry.remaining > 0:
                break
            queue.entries.remove(entry)
            queue.dropped += 1
        self.deliveries += 1
        entry.remaining -= charge
        entry.number = self.deliveries
        entry.state = "leased"
        entry.place_before_lease = entry.place
        end_us = self.now_us + self.timeout_us(name) if deadline_us is None else deadline_us
        entry.place = (end_us, LEASES_NEXT, entry.number)
        content = list(entry.content) if isinstance(entry.content, list) else entry.content
        return Delivery(name, entry.number, entry.remaining, entry.content_type, entry.attributes, content)

    def pull_first(self, names: list[bytes], count: int) -> list[Delivery]:
        delivered: list[Delivery] = []
        while len(delivered) < count:
            heads = self.heads(names)
            if not heads or min(heads)[0] > self.now_us:
                break
            one = self.pull_one(min(heads)[1])
            if one is not None:
                delivered.append(one)
        return delivered

    def head_us(self, name: bytes) -> int | None:
        """Return when the next message of the queue is due, leased ones included; never if it is suspended."""
        queue = self.queues[name]
        return None if queue.suspended else min([entry.due_us for entry in queue.entries], default=None)

    def heads(self, names: list[bytes]) -> list[tuple[int, bytes]]:
        """Due time and name of those of the queues that have something to hand out."""
        found = [(self.head_us(name), name) for name in self.found(names)]
        return [(due_us, name) for due_us, name in found if due_us is not None]

    # Settle

    def leased(self, name: bytes, number: int) -> Entry | None:
        for entry in self.queues[name].entries:
            if entry.state == "leased" and entry.number == number and entry.due_us > self.now_us:
                return entry
        return None

    def ack(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                self.queues[name].entries.remove(entry)
                self.queues[name].acked += 1
                self.ended[number] = ACK
            results.append(entry is not None)
        return results

    def nack(
        self, name: bytes, numbers: list[int], _place: int = 0, _delay_us: int = -1, undoes: bool = False
    ) -> list[bool] | None:
        if undoes:
            return self.put_back(name, numbers)
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                entry.state = "waiting"
                entry.place = (self.now_us, LINE_LAST, self.end_of_line(self.queues[name]))
                self.ended[number] = NACK
                if entry.remaining <= 0:
                    self.queues[name].entries.remove(entry)
                    self.queues[name].dropped += 1
            results.append(entry is not None)
        return results

    def is_repeated(self, how: int, number: int, remembered: int) -> bool | None:
        """Return whether such an ack or nack has ended the delivery; None once more than `remembered` others ended otherwise
        than by an ack.
        """
        endings = [ended for ended, by in self.ended.items() if by != ACK]
        forgotten = endings[:-remembered]
        if number not in self.ended:
            return False
        if number not in endings[-remembered:] and number <= max(forgotten, default=0):
            return None
        return self.ended[number] == how

    def extend(self, name: bytes, numbers: list[int]) -> list[bool] | None:
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                entry.place = (self.now_us + self.timeout_us(name), LEASES_NEXT, number)
            results.append(entry is not None)
        return results

    def put_back(self, name: bytes, numbers: list[int], refund: int = 1) -> list[bool] | None:
        if name not in self.queues:
            return None
        results = []
        for number in numbers:
            entry = self.leased(name, number)
            if entry is not None:
                entry.state = "waiting"
                entry.place = (entry.place_before_lease[0], WINDOWS_FIRST, entry.arrival)
                entry.remaining += refund
                self.ended[number] = UNDONE
            results.append(entry is not None)
        return results

    # Operations on whole queues

    def withdraw(self, name: bytes, limit: int, until_us: float) -> list[Entry]:
        """Remove unleased messages that are due until `until_us`, in the order of delivery."""
        queue = self.queues[name]
        taken: list[Entry] = []
        while len(taken) < limit:
            free = [
                e for e in queue.entries if (e.state != "leased" or e.due_us <= self.now_us) and e.due_us <= until_us
            ]
            if not free:
                break
            entry = min(free, key=lambda entry: entry.place)
            if entry.state == "leased":
                self.ended[entry.number] = None
            queue.entries.remove(entry)
            taken.append(entry)
        return taken

    def purge(self, name: bytes, limit: int) -> Any:
        if name not in self.queues:
            return None
        taken = self.withdraw(name, limit or 1 << 30, float("inf"))
        self.queues[name].purged += len(taken)
        return len(taken)

    def move(self, name: bytes, destination: bytes, limit: int) -> Any:
        if name not in self.queues:
            return None
        if name == destination:
            return REFUSED
        target = self.named(destination)
        taken = self.withdraw(name, limit, self.now_us)
        self.queues[name].moved_out += len(taken)
        for old in taken:
            self.arrivals += 1
            place = (self.now_us, LINE_LAST, self.end_of_line(target))
            remaining = self.allowed_deliveries(destination)
            meta = (old.content_type, old.attributes)
            target.entries.append(Entry("waiting", place, self.arrivals, remaining, *meta, old.content))
        target.entered += len(taken)
        target.moved_in += len(taken)
        return len(taken)

    def suspend(self, name: bytes, suspended: bool) -> Any:
        if name not in self.queues:
            return None
        self.queues[name].suspended = suspended
        return True

    # Batch leases

    def reserve(
        self, name: bytes, epoch: int, source: bytes | list[bytes], are_all: bool, count: int, lease_us: int
    ) -> Any:
        subscription = self.subscriptions.setdefault(name, Subscription())
        if epoch <= subscription.settled:
            return (SETTLED, 0, True, 0)
        batch = subscription.batches.get(epoch)
        if batch is None:
            if any(other > epoch for other in subscription.batches):
                return REFUSED
            batch = Batch(self.now_us + lease_us)
        elif batch.deadline_us <= self.now_us:
            return (EXPIRED, len(batch.items), True, batch.deadline_us)
        if not batch.sealed:
            limit = min(self.step, count - len(batch.items))
            if limit <= 0:
                is_dry = False
            elif isinstance(source, bytes):
                is_dry = self.take(source, limit, batch) < limit
            else:
                is_dry = self.take_first(source, limit, batch) < limit and are_all
            batch.sealed = is_dry or len(batch.items) >= count
        if not batch.items:
            if not subscription.batches and not subscription.settled:
                del self.subscriptions[name]
            return (EMPTY, 0, batch.sealed, 0)
        subscription.batches[epoch] = batch
        return (LIVE, len(batch.items), batch.sealed, batch.deadline_us)

    def take(self, name: bytes, limit: int, batch: Batch) -> int:
        self.named(name)
        taken = 0
        while taken < limit:
            one = self.pull_one(name, batch.deadline_us, charge=0)
            if one is None:
                break
            batch.items.append((name, one.number))
            taken += 1
        return taken

    def take_first(self, names: list[bytes], limit: int, batch: Batch) -> int:
        taken = 0
        while taken < limit:
            heads = self.heads(names)
            if not heads or min(heads)[0] > self.now_us:
                break
            taken += self.take(min(heads)[1], min(self.block, limit - taken), batch)
        return taken

    def renew(self, name: bytes, lease_us: int) -> tuple[int, int]:
        subscription = self.subscriptions.get(name, Subscription())
        live = [batch for batch in subscription.batches.values() if batch.deadline_us > self.now_us]
        for batch in live:
            batch.deadline_us = self.now_us + lease_us
            for queue, number in batch.items:
                entry = self.leased(queue, number) if queue in self.queues else None
                if entry is not None:
                    entry.place = (batch.deadline_us, LEASES_NEXT, number)
        return len(live), 0

    def settle_batches(self, name: bytes, epoch: int) -> Any:
        subscription = self.subscriptions.setdefault(name, Subscription())
        subscription.settled = max(subscription.settled, epoch)
        expired = []
        for one in sorted(subscription.batches):
            if one <= epoch:
                items = subscription.batches.pop(one).items
                acked = [self.ack(queue, [number]) == [True] for queue, number in items]
                left = [item for item, is_acked in zip(items, acked, strict=True) if not is_acked]
                if any(self.may_come_again(queue, number) for queue, number in left):
                    expired.append(one)
        return expired, False

    def may_come_again(self, queue: bytes, number: int) -> bool:
        """Return whether a message may be redelivered that is not leased under this number."""
        return queue in self.queues and self.is_repeated(ACK, number, self.remembered) is not True

    def abandon_batches(self, name: bytes) -> bool:
        subscription = self.subscriptions.get(name, Subscription())
        left = self.step
        for epoch in sorted(subscription.batches, reverse=True):
            batch = subscription.batches[epoch]
            if left:
                batch.sealed = False
            while batch.items and left:
                queue, number = batch.items.pop()
                self.put_back(queue, [number], 0)
                left -= 1
            if not batch.items:
                del subscription.batches[epoch]
        if not subscription.batches and not subscription.settled:
            self.subscriptions.pop(name, None)
        return bool(subscription.batches)

    def read(self, name: bytes, epoch: int) -> Any:
        """Return the contents of a batch: its state, or the messages, or None if one of them is not leased any more."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return EMPTY
        if epoch <= subscription.settled:
            return SETTLED
        batch = subscription.batches.get(epoch)
        if batch is None or not batch.sealed:
            return EMPTY
        if batch.deadline_us <= self.now_us:
            return EXPIRED
        found = []
        for queue, number in batch.items:
            entries = self.queues[queue].entries if queue in self.queues else []
            found += [(e.number, e.remaining - 1) for e in entries if e.state == "leased" and e.number == number]
        return found if len(found) == len(batch.items) else None
