"""Histories of a model queue under random clients: of a correct one, and of ones with a bug each.

Clients overlap, answers get lost, pushes are refused, leases expire, messages are nacked, the queue is deleted from
time to time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lmqcluster_chaos.load.history import Event, Op, Outcome

SECOND: Final = 1_000_000
LEASE_S: Final = 4.0
GRACE_S: Final = LEASE_S + 2.0
"""Maximum time after its client's timeout during which a pull of the model can hold a message."""
RETRIES: Final = 1_000
BUGS: Final = {
    "acknowledged messages vanish": ("lost",),
    "delivered messages vanish": ("lost",),
    "refused pushes are stored": ("phantom",),
    "a deleted queue comes back": ("phantom",),
    "acks succeed twice": ("doubled_acks",),
    "acks of ended leases succeed": ("doubled_acks", "doubled_after_ack"),
    "acked messages come back": ("doubled_after_ack", "doubled_leases", "doubled_acks"),
    "receipts are used again": ("doubled_receipts", "doubled_after_ack", "doubled_acks"),
    "leases are handed out late": ("doubled_leases",),
    "leases end with the next pull": ("doubled_leases",),
    "the last comes first": ("reordered",),
}
"""The bugs, and their findings: the first one names the bug, the others may occur with it."""


@dataclass(order=True)
class _Message:
    place: int
    value: str = field(compare=False)


@dataclass
class _Lease:
    message: _Message
    end_us: int


class ModelQueue:
    """A sequential queue, with at most one bug."""

    def __init__(self, rng: random.Random, bug: str | None = None) -> None:
        self._rng = rng
        self._bug = bug
        self._waiting: list[_Message] = []
        self._leases: dict[str, _Lease] = {}
        self._acked: set[str] = set()
        self._ended: set[str] = set()
        self._count = 0
        self._receipts = 0
        self.struck = False

    @property
    def empty(self) -> bool:
        return not self._waiting and not self._leases

    def push(self, value: str, outcome: Outcome) -> None:
        strikes = outcome == "ok" and self._strikes("acknowledged messages vanish")
        stored = outcome == "ok" or (outcome == "unknown" and self._rng.random() < 0.5)
        if outcome == "failed":
            stored = self._strikes("refused pushes are stored")
        if stored and not strikes:
            self._count += 1
            self._waiting.append(_Message(self._count, value))

    def pull(self, now_us: int, *, seen: bool) -> tuple[str, str] | None:
        """Return value and receipt of the next message; `seen` says whether the client learns of it."""
        self._end_leases(now_us)
        if seen and self._leases and self._strikes("leases end with the next pull"):
            self._return(self._rng.choice(list(self._leases)))
            self._waiting.sort()
        if not self._waiting:
            return None
        position = -1 if len(self._waiting) > 1 and seen and self._strikes("the last comes first") else 0
        message = self._waiting.pop(position)
        if seen and self._strikes("delivered messages vanish"):
            return message.value, self._receipt()
        receipt = self._receipt()
        late_us = round(LEASE_S * SECOND * 0.9) if seen and self._strikes("leases are handed out late") else 0
        self._leases[receipt] = _Lease(message, now_us + round(LEASE_S * SECOND) - late_us)
        return message.value, receipt

    def ack(self, receipt: str, now_us: int) -> bool:
        self._end_leases(now_us)
        if receipt in self._acked:
            return self._strikes("acks succeed twice")
        lease = self._leases.pop(receipt, None)
        if lease is None:
            return receipt in self._ended and self._strikes("acks of ended leases succeed")
        self._acked.add(receipt)
        if self._strikes("acked messages come back"):
            self._waiting.append(lease.message)
        return True

    def nack(self, receipt: str, now_us: int) -> bool:
        self._end_leases(now_us)
        if receipt not in self._leases:
            return False
        self._return(receipt)
        return True

    def delete(self) -> None:
        if not (self._waiting and self._strikes("a deleted queue comes back")):
            self._waiting.clear()
        self._leases.clear()

    def _strikes(self, bug: str) -> bool:
        strikes = self._bug == bug and self._rng.random() < 0.4
        self.struck = self.struck or strikes
        return strikes

    def _receipt(self) -> str:
        held = f"r{self._receipts}" in self._leases
        if held or not self._receipts or not self._strikes("receipts are used again"):
            self._receipts += 1
        return f"r{self._receipts}"

    def _return(self, receipt: str) -> None:
        self._waiting.append(self._leases.pop(receipt).message)
        self._waiting.sort()

    def _end_leases(self, now_us: int) -> None:
        for receipt in [receipt for receipt, lease in self._leases.items() if lease.end_us <= now_us]:
            self._ended.add(receipt)
            self._return(receipt)


class _Clients:
    """Two producers and two consumers, by one clock."""

    def __init__(self, name: str, rng: random.Random, bug: str | None) -> None:
        self._name = name
        self._rng = rng
        self.queue = ModelQueue(rng, bug)
        self.events: list[Event] = []
        self._todo: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0

    def run(self) -> None:
        for process in ("p1", "p2"):
            self._produce(process)
        for process in ("c1", "c2"):
            for _ in range(12):
                self._at(self._moment(0, 20), lambda begin_us, process=process: self._pull(process, begin_us))  # type: ignore[misc]
        if self._rng.random() < 0.25:
            self._at(self._moment(4, 16), self._delete)
        now_us = self._continue_work()
        while not self.queue.empty:
            self._pull("c1", now_us + SECOND, calm=True)
            now_us = self._continue_work()
        self._note("drained", "ok", now_us + SECOND, now_us + SECOND, "drill")

    def _continue_work(self) -> int:
        """Run all events; return when all have ended."""
        while self._todo:
            moment, _count, act = heapq.heappop(self._todo)
            act(moment)
        return max(event.end_us for event in self.events)

    def _at(self, moment_us: int, act: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._todo, (moment_us, self._count, act))

    def _moment(self, first_s: float, last_s: float) -> int:
        return round(self._rng.uniform(first_s, last_s) * SECOND)

    def _outcome(self, *, calm: bool = False) -> Outcome:
        return "ok" if calm else self._rng.choices(("ok", "failed", "unknown"), (0.84, 0.06, 0.1))[0]

    def _note(self, op: Op, outcome: Outcome, begin_us: int, end_us: int, process: str, **fields: Any) -> None:
        self.events.append(
            Event(op=op, outcome=outcome, time_us=begin_us, end_us=end_us, process=process, queue=self._name, **fields)
        )

    def _produce(self, process: str) -> None:
        """Schedule pushes; those of one process take effect in order, although they overlap."""
        effects = sorted(self._moment(0.2, 15) for _ in range(10))
        for number, effect_us in enumerate(effects):
            begin_us, end_us = effect_us - self._moment(0, 0.2), effect_us + self._moment(0, 0.2)
            outcome = self._outcome()
            value = f"{process}-{number}"
            self._note("push", outcome, begin_us, end_us, process, value=value, sequence=number)
            late_us = self._moment(0, 1) if outcome == "unknown" else 0
            self._at(effect_us + late_us, lambda _now, value=value, outcome=outcome: self.queue.push(value, outcome))  # type: ignore[misc]

    def _pull(self, process: str, begin_us: int, *, calm: bool = False) -> None:
        outcome = self._outcome(calm=calm)
        end_us = begin_us + self._moment(0, 1)

        def take(now_us: int) -> None:
            got = None if outcome == "failed" else self.queue.pull(now_us, seen=outcome == "ok")
            if got is None or outcome != "ok":
                self._note("pull", outcome, begin_us, end_us, process)
                return
            value, receipt = got
            fields = {"value": value, "receipt": receipt, "lease_s": LEASE_S, "retry": RETRIES}
            self._note("pull", "ok", begin_us, end_us, process, **fields)
            self._settle(process, receipt, end_us, calm=calm)

        # If the answer of a pull is lost, the node may still take a message afterwards.
        late_us = self._moment(0, 1) if outcome == "unknown" else 0
        self._at(self._rng.randint(begin_us, end_us) + late_us, take)

    def _settle(self, process: str, receipt: str, since_us: int, *, calm: bool) -> None:
        what = "ack" if calm else self._rng.choices(("ack", "nack", "nothing"), (0.7, 0.15, 0.15))[0]
        begin_us = since_us + self._moment(0, 5)
        if what == "nothing":
            return
        self._at(begin_us, lambda begin_us: self._end(what, process, receipt, begin_us))
        if what == "ack" and self._rng.random() < 0.3:
            self._at(begin_us + self._moment(0, 2), lambda begin_us: self._end(what, "c3", receipt, begin_us))

    def _end(self, what: str, process: str, receipt: str, begin_us: int) -> None:
        outcome = self._outcome()
        end_us = begin_us + self._moment(0, 0.5)

        def end(now_us: int) -> None:
            act = self.queue.ack if what == "ack" else self.queue.nack
            worked = outcome != "failed" and act(receipt, now_us)
            reported: Outcome = "unknown" if outcome == "unknown" else "ok" if worked else "failed"
            self._note("ack" if what == "ack" else "nack", reported, begin_us, end_us, process, receipt=receipt)

        self._at(self._rng.randint(begin_us, end_us), end)

    def _delete(self, begin_us: int) -> None:
        outcome: Outcome = self._rng.choice(("ok", "ok", "unknown"))
        end_us = begin_us + self._moment(0, 0.5)

        def delete(_now: int) -> None:
            self.queue.delete()
            self._note("delete", outcome, begin_us, end_us, "c1")

        self._at(self._rng.randint(begin_us, end_us), delete)


def model_history(queue: str, seed: int, bug: str | None = None) -> tuple[list[Event], bool]:
    """Return a history that ends drained, and whether the bug struck."""
    clients = _Clients(queue, random.Random(f"{bug} {seed}"), bug)
    clients.run()
    return clients.events, clients.queue.struck


def any_history(queue: str, seed: int) -> list[Event]:
    """Return random lines, of few values and few moments, as no queue would write them; all judges must
    interpret them alike.
    """
    rng = random.Random(f"any {seed}")
    events = []
    for number in range(rng.randint(4, 16)):
        op: Op = rng.choices(("push", "pull", "ack", "nack", "delete", "drained"), (5, 6, 3, 1, 0.3, 0.5))[0]
        outcome: Outcome = rng.choices(("ok", "failed", "unknown"), (7, 1, 2))[0]
        begin_us = rng.randrange(40) * SECOND // 2
        # Deliveries of one message never end at the same moment, so they have one order.
        end_us = begin_us + rng.randrange(8) * SECOND // 2 + (number if op == "pull" else 0)
        fields: dict[str, Any] = {"process": rng.choice(("p1", "p2"))}
        if op == "push":
            fields |= {"value": f"v{rng.randrange(4)}", "sequence": rng.choice((None, 0, 1, 2, 3))}
        elif op == "pull" and rng.random() < 0.9:
            fields |= {"value": f"v{rng.randrange(5)}", "receipt": f"r{rng.randrange(5)}"}
            fields |= {"lease_s": rng.choice((None, 2.0, 5.0)), "retry": rng.choice((None, 0, 1, 3))}
        elif op in {"ack", "nack"}:
            fields["receipt"] = f"r{rng.randrange(5)}"
        events.append(Event(op=op, outcome=outcome, time_us=begin_us, end_us=end_us, queue=queue, **fields))
    return events
