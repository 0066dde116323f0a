"""Judges a history: no acknowledged message lost, none invented, none delivered twice without cause, order kept per
producer.

The rules are those of `spark_checker`, for histories that fit into memory. Only certain violations count: an operation
took effect at some time between its begin and its end, and doubt is resolved in favour of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..load.history import Event
from .accounts import Accounts, account_for
from .books import Books, Key, Message

__all__ = ["FAULTS", "HIDDEN_MAX", "Accounts", "Judgement", "judge"]

FAULTS: Final = (
    "lost",
    "phantom",
    "doubled_acks",
    "doubled_receipts",
    "doubled_after_ack",
    "doubled_leases",
    "reordered",
)
"""Findings that convict a cluster, in the order of reports."""
HIDDEN_MAX: Final = 100
"""Deliveries of a message that a pull of unknown outcome can hide: its client may have retried it."""
_EXAMPLES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a history.

    Attributes:
        faults: number of cases of each of `FAULTS`.
        examples: some of them, as text.
        undecided: acknowledged messages that were not delivered, in queues that were not drained afterwards.
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
        """Return whether there is any finding."""
        return any(self.faults.values())


def judge(events: Iterable[Event], *, grace_s: float = 60.0) -> Judgement:
    """Judge a history.

    Args:
        events: in any order.
        grace_s: how long after its client gave up a pull of unknown outcome may have held messages.
    """
    books = Books(events)
    findings = _Findings(books, round(grace_s * 1e6))
    found: dict[str, list[str]] = {name: [] for name in FAULTS}
    lost = list(findings.lost())
    found["lost"] = [f"{key[1]} in {key[0]} was acknowledged and is lost" for key in lost]
    found["phantom"] = [
        f"{key[1]} in {key[0]} was delivered, but no client can have pushed it" for key in findings.phantoms()
    ]
    found["doubled_acks"] = list(findings.doubled_acks())
    found["doubled_receipts"] = list(findings.repeated("pull"))
    found["doubled_after_ack"] = list(findings.after_ack())
    found["doubled_leases"] = list(findings.overlapping())
    found["reordered"] = list(findings.reordered())
    deliveries = sum(len(message.deliveries) for message in books.messages.values())
    totals, by_process = account_for(books.messages, set(lost))
    return Judgement(
        faults={name: len(cases) for name, cases in found.items()},
        examples={name: cases[:_EXAMPLES_MAX] for name, cases in found.items() if cases},
        undecided=sum(1 for _ in findings.missing(drained=False)),
        totals=totals,
        by_process=by_process,
        redelivered=deliveries - totals.delivered,
    )


class _Findings:
    """The findings in a history."""

    def __init__(self, books: Books, grace_us: int) -> None:
        self._books = books
        self._grace_us = grace_us

    def _excused(self, queue: str, since_us: int, until_us: int) -> bool:
        """Return whether a pull with a lost answer can have held a message between two moments."""
        pulls = self._books.lost_pulls.get(queue, ())
        return any(pull.time_us <= until_us and pull.end_us + self._grace_us >= since_us for pull in pulls)

    def missing(self, *, drained: bool) -> Iterator[Key]:
        """Yield acknowledged messages without a delivery, in queues that were, or were not, drained afterwards."""
        for key, message in self._books.messages.items():
            unseen = (
                message.acknowledged and not message.deliveries and self._books.deleted_us(key[0]) <= message.push_start
            )
            if unseen and (self._books.drained_us(key[0]) > message.stored_by) == drained:
                yield key

    def lost(self) -> Iterator[Key]:
        """Yield messages without a delivery, and messages with further deliveries left and no attempted ack that
        disappeared.
        """
        yield from self.missing(drained=True)
        for key, message in self._books.messages.items():
            if not message.acknowledged or not message.deliveries or message.ack_tried:
                continue
            drained_us = self._books.drained_us(key[0])
            gone = drained_us > message.stored_by and self._books.deleted_us(key[0]) <= message.push_start
            left = min(delivery.retry or 0 for delivery in message.deliveries)
            used_up = left <= HIDDEN_MAX * len(self._books.lost_pulls.get(key[0], ()))
            excused = used_up and self._excused(key[0], message.first_start, drained_us)
            if left > 0 and gone and not excused:
                yield key

    def phantoms(self) -> Iterator[Key]:
        """Yield deliveries of values that no client pushed, whose every push certainly failed, or whose queue had been
        deleted.
        """
        for key, message in self._books.messages.items():
            if message.deliveries and (not message.copies_max or self._was_deleted(key[0], message)):
                yield key

    def _was_deleted(self, queue: str, message: Message) -> bool:
        """Return whether its queue was deleted after all its pushes, and before it was delivered."""
        return any(
            message.pushed_until < delete.time_us and delete.end_us < message.last_start
            for delete in self._books.deletes.get(queue, ())
        )

    def doubled_acks(self) -> Iterator[str]:
        """Yield successful acks beyond the first for one receipt, or for one message."""
        yield from self.repeated("ack")
        for key, message in self._single():
            receipts = {delivery.receipt for delivery in message.deliveries if self._was_acked(delivery)}
            if len(receipts) > 1:
                yield f"{key[1]} in {key[0]} was acked under {len(receipts)} receipts"

    def _was_acked(self, delivery: Event) -> bool:
        return any(ack.outcome == "ok" for ack in self._books.of_receipt("ack", delivery))

    def repeated(self, op: str) -> Iterator[str]:
        """Yield successes beyond the first for one receipt."""
        for (kind, key), events in self._books.by_receipt.items():
            times = sum(event.outcome == "ok" for event in events)
            if kind == op and times > 1:
                yield f"receipt {key[1]} of {key[0]} had {times} successful {op}s"

    def _single(self) -> Iterator[tuple[Key, Message]]:
        """Yield messages with only one possible copy that were delivered more than once."""
        for key, message in self._books.messages.items():
            if len(message.deliveries) > 1 and message.copies_max == 1:
                yield key, message

    def after_ack(self) -> Iterator[str]:
        """Yield deliveries that began after their message had been acked."""
        for key, message in self._single():
            for delivery in message.deliveries:
                if message.acked_us is not None and delivery.time_us > message.acked_us:
                    late_s = (delivery.time_us - message.acked_us) / 1e6
                    yield f"{key[1]} in {key[0]} was delivered {late_s:.3f} s after its ack"

    def overlapping(self) -> Iterator[str]:
        """Yield deliveries that ended before the lease of the previous one can have expired, and vice versa."""
        for key, message in self._single():
            in_turn = sorted(message.deliveries, key=lambda delivery: (delivery.end_us, delivery.receipt or ""))
            for before, after in pairwise(in_turn):
                if before.lease_s is None or after.lease_s is None or before.receipt == after.receipt:
                    continue
                returned = [nack.time_us for nack in self._books.of_receipt("nack", before)]
                live_until = min([_lease_end(before), *returned])
                if after.end_us < live_until and before.end_us < _lease_end(after):
                    left_s = (live_until - after.end_us) / 1e6
                    yield f"{key[1]} in {key[0]} was delivered again {left_s:.3f} s before its lease could end"

    def reordered(self) -> Iterator[str]:
        """Yield first deliveries that began after a later push of the same process had been delivered."""
        came: dict[tuple[str, str], list[tuple[Key, Message, int]]] = defaultdict(list)
        for key, message in self._books.messages.items():
            pushes = [push for push in message.pushes if push.outcome != "failed"]
            if message.deliveries and len(pushes) == 1 and (sequence := pushes[0].sequence) is not None:
                came[key[0], pushes[0].process].append((key, message, sequence))
        for rows in came.values():
            yield from self._reordered_of(rows)

    def _reordered_of(self, rows: Sequence[tuple[Key, Message, int]]) -> Iterator[str]:
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


def _lease_end(delivery: Event) -> int:
    """Return until when the delivery was certainly leased: the lease began when the pull began, or later."""
    return delivery.time_us + round((delivery.lease_s or 0) * 1e6)
