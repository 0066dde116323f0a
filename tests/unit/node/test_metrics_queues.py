"""Sums and pages over very many queues: made in slices, with totals that never fall."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lmqcluster.core import Machine, Op
from lmqcluster.node.metrics.queues_page import queues_page
from lmqcluster.node.metrics.totals import QUEUES_PER_SLICE, sum_queues
from lmqcluster.node.queues.patterns import compile_pattern
from lmqcluster.node.turns import Turns
from lmqcluster.replication.log_clock import LogClock
from lmqcluster.wire.errors import LmqError

SECOND_US = 1_000_000


def machine_with(names: list[bytes], now_us: int = SECOND_US) -> Machine:
    machine = Machine(compile_pattern)
    machine.apply(now_us, b"n1", 1, 1, [[Op.PUSH, name, None, [b"body"], None, 0] for name in names])
    return machine


def node_of(machine: Machine, now_us: int) -> Any:
    """As much of a node as the page reads."""
    clock = LogClock()
    clock.follow(now_us)
    replica = SimpleNamespace(machine=machine, clock=clock)
    service = SimpleNamespace(pulls=SimpleNamespace(waiting_for=lambda _name: 2))
    return SimpleNamespace(replica=replica, service=service, turns=Turns())


def samples(page: bytes) -> dict[tuple[str, str | None, str | None], float]:
    return {
        (sample.name, sample.labels.get("queue"), sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


async def _turns_meanwhile(work: Any) -> int:
    """How often the event loop turned while `work` was under way."""
    turns = 0
    done = asyncio.ensure_future(work)
    while not done.done():
        turns += 1
        await asyncio.sleep(0)
    done.result()
    return turns


def test_ten_thousand_queues_are_summed_in_slices() -> None:
    machine = machine_with([b"queue-%05d" % number for number in range(10_000)])
    assert asyncio.run(_turns_meanwhile(sum_queues(machine))) >= 10_000 // QUEUES_PER_SLICE
    totals = asyncio.run(sum_queues(machine))
    assert (totals.queues, totals.ready, totals.body_bytes) == (10_000, 10_000, 40_000)
    assert totals.counters["pushed_total"] == 10_000
    assert totals.oldest_us == SECOND_US


def test_ten_thousand_queues_are_written_in_slices() -> None:
    machine = machine_with([b"queue-%05d" % number for number in range(10_000)])
    turns = asyncio.run(_turns_meanwhile(queues_page(node_of(machine, SECOND_US), b"^queue", 10_000)))
    assert turns >= 10_000 // 100


def test_a_total_does_not_fall_when_a_queue_is_deleted_meanwhile() -> None:
    names = [b"queue-%05d" % number for number in range(3 * QUEUES_PER_SLICE)]
    machine = machine_with(names)

    async def delete_while_summing() -> list[int]:
        summing = asyncio.ensure_future(sum_queues(machine))
        await asyncio.sleep(0)
        machine.apply(2 * SECOND_US, b"n1", 1, 2, [[Op.DELETE, names[0]], [Op.DELETE, names[-1]]])
        return [(await summing).counters["pushed_total"], (await sum_queues(machine)).counters["pushed_total"]]

    assert asyncio.run(delete_while_summing()) == [len(names), len(names)]


def test_the_page_shows_the_first_queues_by_name_and_says_how_many_it_omits() -> None:
    node = node_of(machine_with([b"b", b"a", b"c"]), 4 * SECOND_US)
    shown = samples(asyncio.run(queues_page(node, None, 2)))
    assert {queue for _name, queue, _state in shown if queue is not None} == {"a", "b"}
    assert shown["lmq_queue_metrics_omitted", None, None] == 1
    assert shown["lmq_queue_messages", "a", "ready"] == 1
    assert shown["lmq_queue_waiters", "a", None] == 2
    assert shown["lmq_queue_oldest_message_age_seconds", "a", None] == pytest.approx(3, abs=60)
    assert shown["lmq_queue_oldest_message_age_seconds", "a", None] >= 3


def test_a_pattern_chooses_queues() -> None:
    node = node_of(machine_with([b"mail.in", b"mail.out", b"jobs"]), SECOND_US)
    shown = samples(asyncio.run(queues_page(node, b"^mail[.]")))
    assert {queue for _name, queue, _state in shown if queue is not None} == {"mail.in", "mail.out"}
    assert shown["lmq_queue_metrics_omitted", None, None] == 0
    with pytest.raises(LmqError, match="regular expression"):
        asyncio.run(queues_page(node, b"("))


def test_any_name_makes_a_label() -> None:
    names = [b'a "quoted" name', b"back\\slash", b"not utf-8 \xff", "größe".encode()]
    shown = samples(asyncio.run(queues_page(node_of(machine_with(names), SECOND_US))))
    assert {queue for _name, queue, _state in shown if queue is not None} == {
        'a "quoted" name',
        "back\\slash",
        "not utf-8 \\xff",
        "größe",
    }


def test_held_messages_and_busy_groups_are_counted() -> None:
    machine = Machine(compile_pattern)
    rows = [[b"body", None, [], None, [-1, 0, 0, 0, b"", group]] for group in (b"g", b"g", b"g", b"h")]
    machine.apply(SECOND_US, b"n1", 1, 1, [[Op.UPGRADE, 2], [Op.UPGRADE, 3]])
    commands = [[Op.PUSH_TRAITS, b"q", rows], [Op.PUSH, b"plain", None, [b"body"], None, 0], [Op.PULL, b"q", 1]]
    machine.apply(SECOND_US, b"n1", 1, 2, commands)
    totals = asyncio.run(sum_queues(machine))
    assert (totals.ready, totals.leased, totals.held, totals.busy_groups) == (2, 1, 2, 2)
    page = samples(asyncio.run(queues_page(node_of(machine, SECOND_US))))
    assert page["lmq_queue_messages_held", "q", None] == page["lmq_queue_groups_busy", "q", None] == 2
    assert page["lmq_queue_messages_held", "plain", None] == page["lmq_queue_groups_busy", "plain", None] == 0


def test_pushes_that_wait_are_counted_by_queue() -> None:
    machine = Machine(compile_pattern)
    machine.apply(SECOND_US, b"n1", 1, 1, [[Op.UPGRADE, 3], [Op.SET_PROPERTIES, b"q", [["max_items", 1]]]])
    waiting = [Op.PUSH_OR_WAIT, b"q", [[b"body", None, [], None, []]], SECOND_US]
    machine.apply(SECOND_US, b"n1", 1, 2, [waiting, waiting, waiting])
    page = samples(asyncio.run(queues_page(node_of(machine, SECOND_US))))
    assert page["lmq_queue_pushes_waiting", "q", None] == 2
