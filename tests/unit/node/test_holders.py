"""The connections that hold a node's deliveries, with the real core."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.log.results import Delivered
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.node.queues.pulls import holders
from lmqcluster.node.queues.pulls.holders import Holders, Holding
from lmqcluster.ports import ConnectionSlot


def new_machine() -> Machine:
    machine = Machine(compile_pattern)
    machine.apply(1, b"test", 1, 1, [[Op.BARRIER]])
    return machine


class Bench:
    """A machine, and the record of its deliveries."""

    def __init__(self) -> None:
        self.machine = new_machine()
        self.now_us = self.sequence = 1
        self.holders = Holders(lambda: self.machine.state)

    def apply(self, *command: Any) -> Any:
        self.now_us += 1
        self.sequence += 1
        (result,) = self.machine.apply(self.now_us, b"test", 1, self.sequence, [list(command)]).results
        return result

    def push(self, count: int, queue: bytes = b"q") -> None:
        self.apply(Op.PUSH, queue, None, [b"x"] * count, None, 0)

    def pull(self, place: ConnectionSlot, count: int = 1, queue: bytes = b"q") -> list[Delivered]:
        delivered: list[Delivered] = self.apply(Op.PULL, queue, count)
        self.holders.note(place, delivered, 0, len(delivered))
        return delivered

    def ack(self, delivered: list[Delivered]) -> None:
        self.apply(Op.ACK, delivered[0][0], [number for _name, number, *_ in delivered])

    def held(self, queue: bytes | None = None) -> tuple[list[Holding], bool]:
        return asyncio.run(self.holders.held(FairSlices(), b"c", queue))

    def counts(self, queue: bytes | None = None) -> dict[tuple[ConnectionSlot, bytes], int]:
        return {(one.place, one.queue): one.leased for one in self.held(queue)[0]}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def client() -> ConnectionSlot:
    """A connection, of which only the identity matters here."""
    return ConnectionSlot.__new__(ConnectionSlot)


def test_what_is_pulled_is_held_until_it_is_answered(bench: Bench) -> None:
    first, second = client(), client()
    bench.push(5)
    kept = bench.pull(first, 2)
    bench.ack(bench.pull(second, 1))
    bench.pull(second, 2)
    assert bench.counts() == {(first, b"q"): 2, (second, b"q"): 2}
    bench.ack(kept[1:])
    assert bench.counts() == {(first, b"q"): 1, (second, b"q"): 2}


def test_a_queue_may_be_deleted_before_its_messages_are_delivered(bench: Bench) -> None:
    bench.push(1)
    delivered = bench.apply(Op.PULL, b"q", 1)
    bench.apply(Op.DELETE, b"q")
    bench.holders.note(client(), delivered, 0, 1)
    assert bench.counts() == {}


def test_it_is_known_when_the_first_lease_ends(bench: Bench) -> None:
    place = client()
    bench.push(2)
    bench.pull(place)
    first_us = bench.now_us
    bench.pull(place)
    ((holding,), is_all) = bench.held()
    assert (holding.leased, holding.ends_us, is_all) == (2, first_us + 30_000_000, True)


def test_an_expired_lease_has_no_holder(bench: Bench) -> None:
    first, second = client(), client()
    bench.push(1)
    bench.pull(first)
    bench.now_us += 31_000_000
    bench.pull(second)
    assert bench.counts() == {(second, b"q"): 1}


def test_holders_of_one_queue(bench: Bench) -> None:
    place = client()
    bench.push(1)
    bench.push(3, b"other")
    bench.pull(place)
    bench.pull(place, 2, b"other")
    assert bench.counts(b"other") == {(place, b"other"): 2}
    assert [one.queue for one in bench.held()[0]] == [b"other", b"q"], "the largest holder is first"
    bench.apply(Op.DELETE, b"other")
    assert bench.counts() == {(place, b"q"): 1}


def test_deliveries_of_several_queues_and_parts_of_a_command(bench: Bench) -> None:
    first, second = client(), client()
    bench.push(2)
    bench.push(1, b"other")
    mixed = [
        *bench.apply(Op.PULL, b"q", 1),
        *bench.apply(Op.PULL, b"other", 1),
        *bench.apply(Op.PULL, b"q", 1),
    ]
    bench.holders.note(first, mixed, 0, 2)
    bench.holders.note(second, mixed, 2, 3)
    bench.holders.note(None, mixed, 0, 3)
    bench.holders.note(first, mixed, 3, 3)
    assert bench.counts() == {(first, b"q"): 1, (first, b"other"): 1, (second, b"q"): 1}


def test_settled_deliveries_are_forgotten_as_new_ones_arrive(bench: Bench) -> None:
    place = client()
    bench.push(1_010)
    kept = [bench.pull(place) for _ in range(10)]
    for _ in range(1_000):
        bench.ack(bench.pull(place))
    assert len(bench.holders) <= 30
    assert bench.counts() == {(place, b"q"): len(kept)}


def test_a_large_run_is_forgotten_in_steps(bench: Bench) -> None:
    place, busy = client(), client()
    bench.push(1_200)
    bench.ack(bench.pull(place, 1_000))
    for _ in range(200):
        bench.pull(busy)
    assert bench.counts() == {(busy, b"q"): 200}


def test_it_is_bounded_and_reports_omissions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "RUNS_MAX", 50)
    place = client()
    bench.push(80)
    for _ in range(80):
        bench.pull(place)
    rows, is_all = bench.held()
    assert len(bench.holders) == 50
    assert (sum(one.leased for one in rows), is_all) == (50, False)
    bench.now_us += 31_000_000
    bench.apply(Op.PUSH, b"another", None, [b"x"], None, 0)
    assert bench.held()[1], "forgotten deliveries have ended"


def test_one_list_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "NUMBERS_MAX", 15)
    bench.push(20)
    bench.pull(client(), 10)
    bench.pull(client(), 10)
    rows, is_all = bench.held()
    assert (sum(one.leased for one in rows), is_all) == (10, False)


def test_a_replaced_machine_is_used(bench: Bench) -> None:
    bench.push(1)
    bench.pull(client())
    bench.machine = new_machine()
    assert bench.counts() == {}


def test_noting_costs_little_whatever_is_held(bench: Bench) -> None:
    """Counted in steps, not in time: a run checks two others, and eight numbers of each."""
    place = client()
    bench.push(5_000)
    for _ in range(2_000):
        bench.pull(place)
    looked: list[int] = []

    class Counting(dict[int, Any]):
        def __contains__(self, number: object) -> bool:
            looked.append(1)
            return super().__contains__(number)

    leases = bench.machine.state.queues[b"q"].store.leases
    leases.messages = Counting(leases.messages)
    bench.pull(place, 100)
    assert 0 < len(looked) <= 20
