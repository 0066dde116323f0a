"""Judges a history: nothing acknowledged lost, nothing invented, nothing delivered twice without cause, order kept per producer.

The same rules as in `lmqcluster.spark.pipelines.verify`, for histories that fit into memory. Only what is certain counts: an
operation took effect some time between its begin and its end, and doubt speaks for the cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from .history import Event

__all__ = ["FAULTS", "Accounts", "Judgement", "judge"]

FAULTS: Final = (
    "lost",
    "phantom",
    "doubled_acks",
    "doubled_receipts",
    "doubled_after_ack",
    "doubled_leases",
    "reordered",
)
"""What a history can convict a cluster of."""
_NEVER: Final = 1 << 62
_HIDDEN_MAX: Final = 100
"""Deliveries of a message that a pull of unknown outcome can hide: its client may have sent it again and again."""
_EXAMPLES_MAX: Final = 20

Key = tuple[str, str]


@dataclass(slots=True)
class _Message:
    """What became of one value of one queue."""

    pushes: list[Event] = field(default_factory=list)
    deliveries: list[Event] = field(default_factory=list)
    acked_us: int | None = None
    ack_tried: bool = False

    @property
    def acknowledged(self) -> bool:
        return any(push.outcome == "ok" for push in self.pushes)

    @property
    def copies_max(self) -> int:
        return sum(push.outcome != "failed" for push in self.pushes)

    @property
    def push_start(self) -> int:
        return min(push.time_us for push in self.pushes)

    @property
    def stored_by(self) -> int:
        """When a copy was there for certain; asked only if one is acknowledged."""
        return min(push.end_us for push in self.pushes if push.outcome == "ok")

    @property
    def pushed_until(self) -> int:
        """Until when a copy may have been stored."""
        return max((_until(push) for push in self.pushes if push.outcome != "failed"), default=_NEVER)

    @property
    def last_start(self) -> int:
        return max(delivery.time_us for delivery in self.deliveries)

    @property
    def first_start(self) -> int:
        return min(delivery.time_us for delivery in self.deliveries)

    @property
    def first_end(self) -> int:
        return min(delivery.end_us for delivery in self.deliveries)


@dataclass(frozen=True, slots=True)
class Accounts:
    """The books of one process, or of all.

    Attributes:
        attempted, acknowledged: values that it pushed.
        failed, unknown: attempts to push that ended so.
        delivered, acked: how many of the values were; in all, also of those that nobody pushed.
        recovered: delivered although no push was acknowledged.
        lost: acknowledged and gone; `lost_where` says ``prefix``, ``middle`` or ``suffix`` of what was acknowledged.
        lost_first, lost_last: numbers of the first and last one lost.
    """

    attempted: int = 0
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    delivered: int = 0
    acked: int = 0
    recovered: int = 0
    lost: int = 0
    lost_where: str | None = None
    lost_first: int | None = None
    lost_last: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a history says.

    Attributes:
        faults: how many cases of each of `FAULTS`.
        examples: some of them, as texts.
        undecided: acknowledged messages that were not delivered, in queues that were not drained since.
        totals: over all processes.
        by_process: for each process that pushed.
        redelivered: deliveries after the first one of their message, which at-least-once allows.
    """

    faults: dict[str, int]
    examples: dict[str, list[str]]
    undecided: int
    totals: Accounts
    by_process: dict[str, Accounts]
    redelivered: int

    @property
    def convicted(self) -> bool:
        """Whether anything was found."""
        return any(self.faults.values())


def judge(events: Iterable[Event], *, grace_s: float = 60.0) -> Judgement:
    """Judge a history.

    Args:
        events: in any order.
        grace_s: for how long after its client gave up a pull of unknown outcome may have held messages.
    """
    books = _Books(list(events), round(grace_s * 1e6))
    found: dict[str, list[str]] = {name: [] for name in FAULTS}
    lost = list(books.lost())
    found["lost"] = [f"{key[1]} in {key[0]} was acknowledged and is gone" for key in lost]
    found["phantom"] = [
        f"{key[1]} in {key[0]} was delivered, but nobody can have pushed it" for key in books.phantoms()
    ]
    found["doubled_acks"] = list(books.doubled_acks())
    found["doubled_receipts"] = list(books.repeated("pull"))
    found["doubled_after_ack"] = list(books.after_ack())
    found["doubled_leases"] = list(books.overlapping())
    found["reordered"] = list(books.reordered())
    deliveries = sum(len(message.deliveries) for message in books.messages.values())
    totals, by_process = books.accounts(set(lost))
    return Judgement(
        faults={name: len(cases) for name, cases in found.items()},
        examples={name: cases[:_EXAMPLES_MAX] for name, cases in found.items() if cases},
        undecided=sum(1 for _ in books.missing(drained=False)),
        totals=totals,
        by_process=by_process,
        redelivered=deliveries - totals.delivered,
    )


class _Books:
    """The history sorted by message and by receipt."""

    def __init__(self, events: Sequence[Event], grace_us: int) -> None:
        self._grace_us = grace_us
        self.messages: dict[Key, _Message] = defaultdict(_Message)
        self._by_receipt: dict[tuple[str, Key], list[Event]] = defaultdict(list)
        self._drained: dict[str, int] = defaultdict(lambda: -1)
        self._all_drained = -1
        self._deleted: dict[str, int] = defaultdict(lambda: -1)
        self._deletes: dict[str, list[Event]] = defaultdict(list)
        self._lost_pulls: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._enter(event)
        self._enter_acks()

    def _enter(self, event: Event) -> None:
        op, queue = event.op, event.queue or ""
        if op == "push":
            self.messages[queue, event.value or ""].pushes.append(event)
        elif op == "pull" and event.outcome == "ok" and event.value is not None:
            self.messages[queue, event.value].deliveries.append(event)
            self._by_receipt["pull", (queue, event.receipt or "")].append(event)
        elif op == "pull" and event.outcome == "unknown":
            self._lost_pulls[queue].append(event)
        elif op in {"ack", "nack"} and event.outcome != "failed":
            self._by_receipt[op, (queue, event.receipt or "")].append(event)
        elif op == "delete" and event.outcome != "failed":
            self._deleted[queue] = max(self._deleted[queue], _until(event))
            if event.outcome == "ok":
                self._deletes[queue].append(event)
        elif op == "drained" and event.outcome == "ok":
            if event.queue is None:
                self._all_drained = max(self._all_drained, event.time_us)
            else:
                self._drained[queue] = max(self._drained[queue], event.time_us)

    def _enter_acks(self) -> None:
        for message in self.messages.values():
            for delivery in message.deliveries:
                acks = self._of_receipt("ack", delivery)
                message.ack_tried = message.ack_tried or bool(acks)
                ends = [ack.end_us for ack in acks if ack.outcome == "ok"]
                if message.acked_us is not None:
                    ends.append(message.acked_us)
                message.acked_us = min(ends, default=None)

    def _of_receipt(self, op: str, delivery: Event) -> list[Event]:
        return self._by_receipt.get((op, (delivery.queue or "", delivery.receipt or "")), [])

    def _drained_us(self, queue: str) -> int:
        return max(self._drained[queue], self._all_drained)

    def _excused(self, queue: str, since_us: int, until_us: int) -> bool:
        """Whether a pull whose answer nobody saw can have held a message between two moments."""
        pulls = self._lost_pulls.get(queue, ())
        return any(pull.time_us <= until_us and pull.end_us + self._grace_us >= since_us for pull in pulls)

    # --- findings -------------------------------------------------------------------------------------------------

    def missing(self, *, drained: bool) -> Iterator[Key]:
        """Acknowledged messages that nobody was given, in queues that were, or were not, drained since."""
        for key, message in self.messages.items():
            unseen = message.acknowledged and not message.deliveries and self._deleted[key[0]] <= message.push_start
            if unseen and (self._drained_us(key[0]) > message.stored_by) == drained:
                yield key

    def lost(self) -> Iterator[Key]:
        """Those never seen, and those whose deliveries left more to come, that nobody tried to ack, and that are gone."""
        yield from self.missing(drained=True)
        for key, message in self.messages.items():
            if not message.acknowledged or not message.deliveries or message.ack_tried:
                continue
            drained_us = self._drained_us(key[0])
            gone = drained_us > message.stored_by and self._deleted[key[0]] <= message.push_start
            left = min(delivery.retry or 0 for delivery in message.deliveries)
            used_up = left <= _HIDDEN_MAX * len(self._lost_pulls.get(key[0], ()))
            excused = used_up and self._excused(key[0], message.first_start, drained_us)
            if left > 0 and gone and not excused:
                yield key

    def phantoms(self) -> Iterator[Key]:
        """Deliveries of what nobody pushed, whose every push failed for certain, or that had gone with its queue."""
        for key, message in self.messages.items():
            if message.deliveries and (not message.copies_max or self._was_deleted(key[0], message)):
                yield key

    def _was_deleted(self, queue: str, message: _Message) -> bool:
        """Whether its queue was deleted after all its pushes, and before it was delivered."""
        return any(
            message.pushed_until < delete.time_us and delete.end_us < message.last_start
            for delete in self._deletes.get(queue, ())
        )

    def doubled_acks(self) -> Iterator[str]:
        """Successes beyond the first for one receipt, or for one message."""
        yield from self.repeated("ack")
        for key, message in self._single():
            receipts = {delivery.receipt for delivery in message.deliveries if self._was_acked(delivery)}
            if len(receipts) > 1:
                yield f"{key[1]} in {key[0]} was acked under {len(receipts)} receipts"

    def _was_acked(self, delivery: Event) -> bool:
        return any(ack.outcome == "ok" for ack in self._of_receipt("ack", delivery))

    def repeated(self, op: str) -> Iterator[str]:
        """Successes beyond the first for one receipt."""
        for (kind, key), events in self._by_receipt.items():
            times = sum(event.outcome == "ok" for event in events)
            if kind == op and times > 1:
                yield f"receipt {key[1]} of {key[0]} had {times} successful {op}s"

    def _single(self) -> Iterator[tuple[Key, _Message]]:
        """Messages of which there can be only one copy, delivered more than once."""
        for key, message in self.messages.items():
            if len(message.deliveries) > 1 and message.copies_max == 1:
                yield key, message

    def after_ack(self) -> Iterator[str]:
        """Deliveries that began after their message had been acked."""
        for key, message in self._single():
            for delivery in message.deliveries:
                if message.acked_us is not None and delivery.time_us > message.acked_us:
                    late_s = (delivery.time_us - message.acked_us) / 1e6
                    yield f"{key[1]} in {key[0]} was delivered {late_s:.3f} s after its ack"

    def overlapping(self) -> Iterator[str]:
        """Deliveries that ended before the lease of the one before can have ended, and the other way round."""
        for key, message in self._single():
            in_turn = sorted(message.deliveries, key=lambda delivery: (delivery.end_us, delivery.receipt or ""))
            for before, after in pairwise(in_turn):
                if before.lease_s is None or after.lease_s is None or before.receipt == after.receipt:
                    continue
                returned = [nack.time_us for nack in self._of_receipt("nack", before)]
                live_until = min([_lease_end(before), *returned])
                if after.end_us < live_until and before.end_us < _lease_end(after):
                    left_s = (live_until - after.end_us) / 1e6
                    yield f"{key[1]} in {key[0]} was delivered again {left_s:.3f} s before its lease could end"

    def reordered(self) -> Iterator[str]:
        """First deliveries that began after a later push of the same process had been delivered."""
        came: dict[tuple[str, str], list[tuple[Key, _Message, int]]] = defaultdict(list)
        for key, message in self.messages.items():
            pushes = [push for push in message.pushes if push.outcome != "failed"]
            if message.deliveries and len(pushes) == 1 and (sequence := pushes[0].sequence) is not None:
                came[key[0], pushes[0].process].append((key, message, sequence))
        for rows in came.values():
            yield from self._reordered_of(rows)

    def _reordered_of(self, rows: Sequence[tuple[Key, _Message, int]]) -> Iterator[str]:
        ends = sorted((message.first_end, sequence) for _key, message, sequence in rows)
        begins = sorted(rows, key=lambda row: row[1].first_start)
        highest, position = -1, 0
        for key, message, sequence in begins:
            while position < len(ends) and ends[position][0] < message.first_start:
                highest = max(highest, ends[position][1])
                position += 1
            late = highest > sequence and message.acknowledged
            if late and not self._excused(key[0], message.push_start, message.first_start):
                yield f"{key[1]} in {key[0]} was first delivered after number {highest} of the same process"

    # --- books ----------------------------------------------------------------------------------------------------

    def accounts(self, lost: set[Key]) -> tuple[Accounts, dict[str, Accounts]]:
        """The books of all processes together, and of each."""
        rows: dict[str, list[tuple[Key, _Message]]] = defaultdict(list)
        for key, message in self.messages.items():
            if message.pushes:
                rows[message.pushes[0].process].append((key, message))
        by_process = {process: _account(own, lost) for process, own in sorted(rows.items())}
        everything = _account(list(self.messages.items()), lost)
        # Numbers of different processes cannot be compared.
        places = {account.lost_where for account in by_process.values() if account.lost_where}
        where = ", ".join(sorted(places)) or None
        return replace(everything, lost_where=where, lost_first=None, lost_last=None), by_process


def _until(event: Event) -> int:
    """Until when something may have taken effect."""
    return event.end_us if event.outcome == "ok" else _NEVER


def _lease_end(delivery: Event) -> int:
    """Until when the delivery was surely leased: the lease began when the pull began, or later."""
    return delivery.time_us + round((delivery.lease_s or 0) * 1e6)


def _account(rows: Sequence[tuple[Key, _Message]], lost: set[Key]) -> Accounts:
    outcomes = Counter(push.outcome for _key, message in rows for push in message.pushes)
    acknowledged = sorted((_number(key[1]), key in lost) for key, message in rows if message.acknowledged)
    gone = [sequence for sequence, is_lost in acknowledged if is_lost]
    kept = [sequence for sequence, is_lost in acknowledged if not is_lost]
    return Accounts(
        attempted=sum(bool(message.pushes) for _key, message in rows),
        acknowledged=sum(message.acknowledged for _key, message in rows),
        failed=outcomes["failed"],
        unknown=outcomes["unknown"],
        delivered=sum(bool(message.deliveries) for _key, message in rows),
        acked=sum(message.acked_us is not None for _key, message in rows),
        recovered=sum(
            bool(message.deliveries) and message.copies_max > 0 and not message.acknowledged for _key, message in rows
        ),
        lost=len(gone),
        lost_where=_place(gone, kept) if gone else None,
        lost_first=min(gone, default=None),
        lost_last=max(gone, default=None),
    )


def _number(value: str) -> int:
    """The count at the end of a value ``process-number``."""
    digits = value.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


def _place(gone: Sequence[int], kept: Sequence[int]) -> str:
    if not kept:
        return "everything"
    if min(gone) > max(kept):
        return "suffix"
    if max(gone) < min(kept):
        return "prefix"
    return "middle"
