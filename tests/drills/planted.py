"""Histories in which exactly one thing is wrong, and ones that are correct although they look suspicious."""

from __future__ import annotations

from collections.abc import Callable

from lmqcluster_chaos.load.history import Event, Op, Outcome

SECOND = 1_000_000


class Writer:
    """Writes events of one queue; times are in seconds, and every operation takes 10 ms."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.events: list[Event] = []

    def add(self, op: Op, at_s: float, *, outcome: Outcome = "ok", takes_s: float = 0.01, **fields: object) -> None:
        fields = {"process": "p1", "queue": self.queue, **fields}
        begin_us = round(at_s * SECOND)
        end_us = begin_us + round(takes_s * SECOND)
        self.events.append(Event(op=op, outcome=outcome, time_us=begin_us, end_us=end_us, **fields))

    def push(self, value: str, at_s: float, **fields: object) -> None:
        self.add("push", at_s, value=value, **fields)  # type: ignore[arg-type]

    def pull(self, value: str, receipt: str, at_s: float, **fields: object) -> None:
        fields = {"process": "c1", "lease_s": 5.0, "retry": 9, **fields}
        self.add("pull", at_s, value=value, receipt=receipt, **fields)  # type: ignore[arg-type]

    def ack(self, receipt: str, at_s: float, **fields: object) -> None:
        self.add("ack", at_s, receipt=receipt, **{"process": "c1", **fields})  # type: ignore[arg-type]

    def drained(self, at_s: float) -> None:
        self.add("drained", at_s)

    def lives(self, count: int = 5) -> None:
        """Add regular messages."""
        for number in range(count):
            self.push(f"p1-{number}", number, sequence=number)
            self.pull(f"p1-{number}", f"r{number}", number + 0.1)
            self.ack(f"r{number}", number + 0.2)


Case = Callable[[Writer], None]


def lost_suffix(w: Writer) -> None:
    w.push("p1-5", 6)
    w.push("p1-6", 7)


def lost_after_a_delivery_without_an_ack(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)


def phantom(w: Writer) -> None:
    w.pull("p9-0", "r9", 6)
    w.ack("r9", 7)


def phantom_of_a_refused_push(w: Writer) -> None:
    w.push("p1-5", 6, outcome="failed")
    w.pull("p1-5", "r5", 7)
    w.ack("r5", 8)


def acked_twice(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.ack("r5", 8)
    w.ack("r5", 8.5, process="c2")


def acked_under_two_receipts(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.pull("p1-5", "r6", 12.5, process="c2")
    w.ack("r6", 13, process="c2")
    w.ack("r5", 14)


def back_from_a_deleted_queue(w: Writer) -> None:
    w.push("p1-5", 6)
    w.add("delete", 7)
    w.pull("p1-5", "r5", 8)
    w.ack("r5", 9)


def vanished_beside_a_lost_pull(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7, retry=101)
    w.add("pull", 8, outcome="unknown", process="c1")


def one_receipt_for_two(w: Writer) -> None:
    w.push("p1-5", 6)
    w.push("p1-6", 6.5)
    w.pull("p1-5", "r5", 7)
    w.pull("p1-6", "r5", 7.5)
    w.ack("r5", 8)


def delivered_after_its_ack(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.ack("r5", 8)
    w.pull("p1-5", "r6", 20)
    w.ack("r6", 21, outcome="failed")


def delivered_within_its_lease(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.pull("p1-5", "r6", 8, process="c2")
    w.ack("r6", 9, process="c2")


def out_of_order(w: Writer) -> None:
    w.push("p1-5", 6, sequence=5)
    w.push("p1-6", 7, sequence=6)
    w.pull("p1-6", "r6", 8)
    w.pull("p1-5", "r5", 9)
    w.ack("r6", 10)
    w.ack("r5", 10)


GUILTY: dict[str, tuple[Case, str, int]] = {
    "lost suffix": (lost_suffix, "lost", 2),
    "lost after a delivery": (lost_after_a_delivery_without_an_ack, "lost", 1),
    "phantom": (phantom, "phantom", 1),
    "phantom of a refused push": (phantom_of_a_refused_push, "phantom", 1),
    "acked twice": (acked_twice, "doubled_acks", 1),
    "acked under two receipts": (acked_under_two_receipts, "doubled_acks", 1),
    "back from a deleted queue": (back_from_a_deleted_queue, "phantom", 1),
    "vanished beside a lost pull": (vanished_beside_a_lost_pull, "lost", 1),
    "one receipt for two": (one_receipt_for_two, "doubled_receipts", 1),
    "delivered after its ack": (delivered_after_its_ack, "doubled_after_ack", 1),
    "delivered within its lease": (delivered_within_its_lease, "doubled_leases", 1),
    "out of order": (out_of_order, "reordered", 1),
}
"""The planted faults, with their findings and the number of cases."""


def unknown_push_that_came(w: Writer) -> None:
    w.push("p1-5", 6, outcome="unknown", takes_s=3)
    w.pull("p1-5", "r5", 20)
    w.ack("r5", 21)


def unknown_push_that_never_came(w: Writer) -> None:
    w.push("p1-5", 6, outcome="unknown", takes_s=3)


def delivered_again_after_its_lease(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.pull("p1-5", "r6", 12.5)
    w.ack("r6", 13)


def delivered_again_after_it_was_returned(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.add("nack", 7.5, receipt="r5", process="c1")
    w.pull("p1-5", "r6", 8)
    w.ack("r6", 9)


def gone_with_its_queue(w: Writer) -> None:
    w.push("p1-5", 6)
    w.add("delete", 7)


def pushed_again_after_doubt(w: Writer) -> None:
    w.push("p1-5", 6, outcome="unknown")
    w.push("p1-5", 7)
    w.pull("p1-5", "r5", 8)
    w.pull("p1-5", "r6", 8.1)
    w.ack("r5", 9)
    w.ack("r6", 9)


def held_back_by_a_lost_answer(w: Writer) -> None:
    w.push("p1-5", 6, sequence=5)
    w.push("p1-6", 6.5, sequence=6)
    w.add("pull", 6.2, outcome="unknown", process="c1")
    w.pull("p1-6", "r6", 8)
    w.pull("p1-5", "r5", 12)
    w.ack("r6", 13)
    w.ack("r5", 13)


def acked_in_doubt_and_gone(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.ack("r5", 8, outcome="unknown")


def last_delivery_in_a_lost_answer(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7, retry=100)
    w.add("pull", 13, outcome="unknown", process="c1")


def on_its_way_when_its_queue_was_deleted(w: Writer) -> None:
    w.push("p1-5", 6, takes_s=2)
    w.add("delete", 7)
    w.pull("p1-5", "r5", 9)
    w.ack("r5", 10)


def late_ack_refused(w: Writer) -> None:
    w.push("p1-5", 6)
    w.pull("p1-5", "r5", 7)
    w.pull("p1-5", "r6", 12.5, process="c2")
    w.ack("r5", 13, outcome="failed")
    w.ack("r6", 14, process="c2")


def numbered_by_a_refused_push(w: Writer) -> None:
    w.push("p1-9", 5, outcome="failed", process="p0", sequence=9)
    w.push("p1-5", 5.5, process="p0", sequence=5)
    w.pull("p1-5", "r5", 6)
    w.ack("r5", 7)
    w.push("p1-6", 7, outcome="failed", process="p0", sequence=4)
    w.push("p1-6", 8, sequence=6)
    w.pull("p1-6", "r6", 9)
    w.ack("r6", 9.5)


INNOCENT: dict[str, Case] = {
    case.__name__.replace("_", " "): case
    for case in (
        unknown_push_that_came,
        unknown_push_that_never_came,
        delivered_again_after_its_lease,
        delivered_again_after_it_was_returned,
        gone_with_its_queue,
        pushed_again_after_doubt,
        held_back_by_a_lost_answer,
        acked_in_doubt_and_gone,
        last_delivery_in_a_lost_answer,
        on_its_way_when_its_queue_was_deleted,
        late_ack_refused,
        numbered_by_a_refused_push,
    )
}


def history(queue: str, case: Case | None = None) -> list[Event]:
    """Return a drained history with some regular messages and one case."""
    writer = Writer(queue)
    writer.lives()
    if case is not None:
        case(writer)
    writer.drained(30)
    return writer.events
