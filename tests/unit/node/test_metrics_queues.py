"""Sums and pages over very many queues: made in slices, with totals that never fall."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lmqcluster.core import Machine, Op, State
from lmqcluster.core.queue.counters import COUNTERS
from lmqcluster.node.metrics.queues_page import queues_page
from lmqcluster.node.metrics.totals import Totals, sum_queues
from lmqcluster.node.process.fair_slices import SLICE_ITEMS, FairSlices
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.replication.base.log_clock import LogClock
from lmqcluster.wire.errors import LmqError

SECOND_US = 1_000_000


def machine_with(names: list[bytes], now_us: int = SECOND_US) -> Machine:
    machine = Machine(compile_pattern)
    machine.apply(now_us, b"n1", 1, 1, [[Op.PUSH, name, None, [b"body"], None, 0] for name in names])
    return machine


def node_of(machine: Machine, now_us: int) -> Any:
    """The part of a node that the page reads."""
    clock = LogClock()
    clock.follow(now_us)
    replica = SimpleNamespace(machine=machine, clock=clock)
    service = SimpleNamespace(
        sender=SimpleNamespace(state=lambda: machine.state), pulls=SimpleNamespace(waiting_for=lambda _name: 2)
    )
    return SimpleNamespace(replica=replica, service=service, turns=FairSlices())


def samples(page: bytes) -> dict[tuple[str, str | None, str | None], float]:
    return {
        (sample.name, sample.labels.get("queue"), sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def page_of(node: Any, *arguments: Any) -> bytes:
    """Return the page in one piece."""

    async def main() -> bytes:
        return b"".join([piece async for piece in queues_page(node, *arguments)])

    return asyncio.run(main())


def test_ten_thousand_queues_are_summed_in_slices() -> None:
    machine = machine_with([b"queue-%05d" % number for number in range(10_000)])
    turns = FairSlices()
    totals = asyncio.run(sum_queues(machine.state, turns))
    assert turns.given_total >= 10_000 // SLICE_ITEMS
    assert (totals.queues, totals.ready, totals.body_bytes) == (10_000, 10_000, 40_000)
    assert totals.counters["pushed_total"] == 10_000
    assert totals.oldest_us == SECOND_US


def test_ten_thousand_queues_are_written_in_slices() -> None:
    machine = machine_with([b"queue-%05d" % number for number in range(10_000)])
    node = node_of(machine, SECOND_US)
    assert len(samples(page_of(node, b"^queue", 10_000))) > 10_000 * len(COUNTERS)
    assert node.turns.given_total >= len(COUNTERS) * 10_000 // SLICE_ITEMS


def test_a_total_does_not_fall_when_a_queue_is_deleted_during_the_sum() -> None:
    names = [b"queue-%05d" % number for number in range(3 * SLICE_ITEMS)]
    machine = machine_with(names)

    async def delete_while_summing() -> list[int]:
        summing = asyncio.ensure_future(sum_queues(machine.state, FairSlices()))
        await asyncio.sleep(0)
        machine.apply(2 * SECOND_US, b"n1", 1, 2, [[Op.DELETE, names[0]], [Op.DELETE, names[-1]]])
        return [
            (await summing).counters["pushed_total"],
            (await sum_queues(machine.state, FairSlices())).counters["pushed_total"],
        ]

    assert asyncio.run(delete_while_summing()) == [len(names), len(names)]


def test_the_page_shows_the_first_queues_by_name_and_the_number_of_omitted_ones() -> None:
    node = node_of(machine_with([b"b", b"a", b"c"]), 4 * SECOND_US)
    shown = samples(page_of(node, None, 2))
    assert {queue for _name, queue, _state in shown if queue is not None} == {"a", "b"}
    assert shown["lmq_queue_metrics_omitted", None, None] == 1
    assert shown["lmq_queue_messages", "a", "ready"] == 1
    assert shown["lmq_queue_waiters", "a", None] == 2
    assert shown["lmq_queue_oldest_message_age_seconds", "a", None] == pytest.approx(3, abs=60)
    assert shown["lmq_queue_oldest_message_age_seconds", "a", None] >= 3


def test_a_pattern_chooses_queues() -> None:
    node = node_of(machine_with([b"mail.in", b"mail.out", b"jobs"]), SECOND_US)
    shown = samples(page_of(node, b"^mail[.]"))
    assert {queue for _name, queue, _state in shown if queue is not None} == {"mail.in", "mail.out"}
    assert shown["lmq_queue_metrics_omitted", None, None] == 0
    with pytest.raises(LmqError, match="regular expression"):
        page_of(node, b"(")


def test_any_name_becomes_a_label() -> None:
    names = [b'a "quoted" name', b"back\\slash", b"not utf-8 \xff", "größe".encode()]
    shown = samples(page_of(node_of(machine_with(names), SECOND_US)))
    assert {queue for _name, queue, _state in shown if queue is not None} == {
        'a "quoted" name',
        "back\\slash",
        "not utf-8 \\xff",
        "größe",
    }


def test_held_messages_and_busy_groups_are_counted() -> None:
    machine = Machine(compile_pattern)
    rows = [[b"body", None, b"", None, [-1, 0, 0, 0, b"", group]] for group in (b"g", b"g", b"g", b"h")]
    machine.apply(SECOND_US, b"n1", 1, 1, [[Op.BARRIER]])
    commands = [[Op.PUSH_ROWS, b"q", rows], [Op.PUSH, b"plain", None, [b"body"], None, 0], [Op.PULL, b"q", 1]]
    machine.apply(SECOND_US, b"n1", 1, 2, commands)
    totals = asyncio.run(sum_queues(machine.state, FairSlices()))
    assert (totals.ready, totals.leased, totals.held, totals.busy_groups) == (2, 1, 2, 2)
    page = samples(page_of(node_of(machine, SECOND_US)))
    assert page["lmq_queue_messages_held", "q", None] == page["lmq_queue_groups_busy", "q", None] == 2
    assert page["lmq_queue_messages_held", "plain", None] == page["lmq_queue_groups_busy", "plain", None] == 0


def test_waiting_pushes_are_counted_by_queue() -> None:
    machine = Machine(compile_pattern)
    machine.apply(SECOND_US, b"n1", 1, 1, [[Op.SET_PROPERTIES, b"q", [["max_items", 1]]]])
    waiting = [Op.PUSH_ROWS, b"q", [[b"body", None, b"", None, []]], b"", None, 0, False, SECOND_US]
    machine.apply(SECOND_US, b"n1", 1, 2, [waiting, waiting, waiting])
    page = samples(page_of(node_of(machine, SECOND_US)))
    assert page["lmq_queue_pushes_waiting", "q", None] == 2


def test_fresh_sums_show_applied_commands_and_are_computed_once_for_all_waiting_requests() -> None:
    machine = machine_with([b"%d" % number for number in range(3 * SLICE_ITEMS)])
    counts = 0

    def counted() -> State:
        nonlocal counts
        counts += 1
        return machine.state

    async def ask() -> None:
        totals = Totals(counted, FairSlices())
        first = asyncio.ensure_future(totals.fresh())
        await asyncio.sleep(0)
        machine.apply(SECOND_US, b"n1", 1, 2, [[Op.PUSH, b"0", None, [b"more"], None, 0]])
        asked = await asyncio.gather(*(totals.fresh() for _ in range(100)))
        before = (await first).queues.counters["pushed_total"]
        assert before in (3 * SLICE_ITEMS, 3 * SLICE_ITEMS + 1)
        assert {one.queues.counters["pushed_total"] for one in asked} == {3 * SLICE_ITEMS + 1}
        assert counts == 2
        machine.apply(SECOND_US, b"n1", 1, 3, [[Op.PUSH, b"0", None, [b"more"], None, 0]])
        assert (await totals.fresh()).queues.counters["pushed_total"] == 3 * SLICE_ITEMS + 2

    asyncio.run(ask())
