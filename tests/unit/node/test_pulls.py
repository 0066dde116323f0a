"""Pulls that wait at a node: order, ends of waits, closed clients, and returned messages."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.queue import queue as queue_module
from lmqcluster.core.state import deliveries
from lmqcluster.node.commit import proposer as proposer_module
from lmqcluster.node.process import fair_slices as turns
from lmqcluster.node.queues.pulls import pulls as pulls_module
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.limits import PULL_COUNT_MAX

from .command_bench import Bench, until
from .pull_bench import Client, left, push, run


def test_a_pull_returns_ready_messages_or_nothing_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, b"1", b"2")
        for token in range(3):
            bench.pulls.start(b"q", (client, token, 1, 0.0))
        await bench.settle()
        assert client.got == [(0, [b"1"]), (1, [b"2"]), (2, [])]
        assert bench.pulls.waiting() == 0

    run(scenario)


def test_waits_are_served_in_order_for_any_count() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        for token, count in enumerate([1, 3, 1]):
            bench.pulls.start(b"q", (client, token, count, None))
        await bench.settle()
        assert (client.got, bench.pulls.waiting(), len(client.waiting)) == ([], 3, 3)
        push(bench, b"1", b"2")
        await bench.settle()
        assert client.got == [(0, [b"1"]), (1, [b"2"])]
        push(bench, b"3", b"4")
        await bench.settle()
        assert client.got[2:] == [(2, [b"3"])]
        assert (bench.pulls.waiting(), client.waiting) == (0, set())
        assert left(bench) == [(b"4", 2)]

    run(scenario)


def test_a_later_pull_does_not_overtake_a_waiting_one() -> None:
    """A pull that arrives while a message for an earlier one is in flight gets the next message."""

    async def scenario(bench: Bench) -> None:
        early, late = Client(), Client()
        bench.pulls.start(b"q", (early, "early", 1, None))
        await bench.settle()
        push(bench, b"1")
        bench.pulls.start(b"q", (late, "late", 1, None))
        await bench.settle()
        assert (early.got, late.got) == ([("early", [b"1"])], [])
        push(bench, b"2")
        await bench.settle()
        assert late.got == [("late", [b"2"])]

    run(scenario)


def test_the_end_of_a_wait_returns_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, 0.01))
        await bench.settle()
        await until(lambda: client.got)
        assert client.got == [(1, [])]
        push(bench, b"later")
        await bench.settle()
        assert left(bench) == [(b"later", 2)]

    run(scenario)


def test_an_expired_wait_gets_its_claimed_message() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, 0.05))
        await bench.settle()
        (waiter,) = client.waiting
        push(bench, b"1", b"2")
        await bench.turn()
        await until(lambda: waiter.is_over)
        assert client.got == []
        await bench.settle()
        assert client.got == [(1, [b"1"])]
        assert (bench.pulls.waiting(), client.waiting) == (0, set())
        assert left(bench) == [(b"2", 2)]

    run(scenario)


def test_an_expired_wait_ends_empty_if_another_node_was_faster_than_the_claim() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        push(bench, b"1")
        assert left(bench) == [(b"1", 2)]
        await bench.turn()
        assert bench.pulls.cancel(client, 1)
        assert not bench.pulls.cancel(client, 1)
        await bench.settle()
        assert client.got == [(1, [])]
        assert (bench.pulls.waiting(), client.waiting) == (0, set())

    run(scenario)


@pytest.mark.parametrize(("limit", "expected"), [("UNKNOWN_AFTER_S", "unknown_outcome"), ("NO_LEADER_AFTER_S", [])])
def test_an_expired_wait_gets_the_error_of_its_claim(
    monkeypatch: pytest.MonkeyPatch, limit: str, expected: Any
) -> None:
    monkeypatch.setattr(proposer_module, "SWEEP_S", 0.005)
    monkeypatch.setattr(proposer_module, limit, 0.05)

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        bench.leader = limit == "UNKNOWN_AFTER_S"
        push(bench, b"1")
        await bench.turn()
        assert bench.pulls.cancel(client, 1)
        await until(lambda: client.got)
        assert client.got == [(1, expected)]
        bench.leader = True
        await bench.settle()
        assert left(bench) == [(b"1", 2)]

    run(scenario)


def test_a_message_for_a_closed_client_is_put_back_uncharged() -> None:
    async def scenario(bench: Bench) -> None:
        client, other = Client(), Client()
        push(bench, b"1", b"2", b"3")
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start(b"q", (other, 2, 1, None))
        await bench.turn()
        client.closed = True
        bench.pulls.abandon(client)
        await bench.settle()
        assert (client.got, other.got) == ([], [(2, [b"1"])])
        assert left(bench) == [(b"2", 2), (b"3", 2)]

    run(scenario)


def test_a_closed_client_is_forgotten_and_later_ones_are_served() -> None:
    async def scenario(bench: Bench) -> None:
        gone, behind = Client(), Client()
        for token in range(50):
            bench.pulls.start(b"q", (gone, token, 1, None))
        bench.pulls.start(b"q", (behind, "behind", 1, None))
        bench.pulls.start_any(b"^q$", (gone, "any", 1, None), b"c")
        await bench.settle()
        gone.closed = True
        bench.pulls.abandon(gone)
        assert (bench.pulls.waiting(), gone.waiting) == (1, set())
        push(bench, b"1")
        await bench.settle()
        assert (gone.got, behind.got) == ([], [("behind", [b"1"])])

    run(scenario)


def test_cancelled_wait_is_answered_as_empty() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start(b"q", (client, 2, 1, None))
        await bench.settle()
        assert bench.pulls.cancel(client, 1)
        assert not bench.pulls.cancel(client, 1)
        assert not bench.pulls.cancel(client, "unknown")
        push(bench, b"x")
        await bench.settle()
        assert client.got == [(1, []), (2, [b"x"])]

    run(scenario)


@pytest.mark.parametrize("another_takes_it", [False, True])
@pytest.mark.parametrize("applied", [0, 1])
def test_a_pull_that_is_still_searching_can_be_cancelled(applied: int, another_takes_it: bool) -> None:
    """A pull from a pattern has several commands; the cancellation may arrive between any two."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, b"x")
        bench.pulls.start_any(b"^q", (client, 1, 1, None), b"c")
        bench.pulls.start_any(b"^q", (client, 2, 1, None), b"c")
        await bench.turn()
        for position in range(applied):
            bench.apply(position)
            await bench.turn()
        if another_takes_it:
            assert left(bench) == [(b"x", 2)]
        assert bench.pulls.cancel(client, 1)
        assert not bench.pulls.cancel(client, 1), "it is cancelled already"
        bench.skip(applied)
        await bench.settle()
        assert client.got == [(1, [] if another_takes_it else [b"x"])]
        assert bench.pulls.waiting() == 1
        assert not list(bench.pulls._any.requests())

    run(scenario)


def test_a_pull_can_be_cancelled_while_its_view_is_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)

    async def scenario(bench: Bench) -> None:
        bench.foreign(*([Op.PUSH, b"other%d" % number, None, [b"x"], None, 0] for number in range(200)))
        client = Client()
        bench.pulls.start_any(b"^q", (client, 1, 1, None), b"c")
        await bench.turn()
        bench.apply(0)
        await bench.turn()
        assert bench.pulls.cancel(client, 1)
        bench.skip(1)
        await until(lambda: client.got)
        assert client.got == [(1, [])]

    run(scenario)


def test_a_pull_that_met_only_exhausted_messages_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "PASSES_MAX", 1)
    monkeypatch.setattr(deliveries, "PASSES_MAX", 1)

    async def scenario(bench: Bench) -> None:
        client = Client()
        # As if more leases had ended than end by themselves with one batch.
        bench.machine.state.expiry.watch([])
        bench.foreign([Op.SET_PROPERTIES, b"q", [[b"retry", 0], [b"timeout", 1]]])
        push(bench, b"1", b"2")
        assert len(left(bench)) == 2
        bench.clock.advance(2)
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.turn()
        bench.apply(0)
        await bench.turn()
        assert not client.waiting
        assert bench.pulls.cancel(client, 1)
        bench.skip(1)
        await bench.settle()
        assert client.got == [(1, [])]
        assert not bench.pulls._again

    run(scenario)


def test_wait_on_a_deleted_queue_is_kept() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        bench.foreign([Op.DELETE, b"q"])
        push(bench, b"again")
        await bench.settle()
        assert client.got == [(1, [b"again"])]

    run(scenario)


def test_any_takes_one_message_and_sees_new_queues() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start_any(b"^q[12]$", (client, 1, 1, None), b"c")
        await bench.settle()
        push(bench, b"no", queue=b"q3")
        push(bench, b"yes", queue=b"q1")
        push(bench, b"late", queue=b"q2")
        await bench.settle()
        assert client.got == [(1, [b"yes"])]
        assert (left(bench, b"q2"), left(bench, b"q3")) == ([(b"late", 2)], [(b"no", 2)])

    run(scenario)


def test_end_of_a_lease_wakes_a_wait() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.foreign([Op.SET_PROPERTIES, b"q", [["timeout", 0.02]]])
        push(bench, b"x")
        assert left(bench) == [(b"x", 2)]
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        assert client.got == []
        bench.clock.advance(1)
        await until(lambda: len(bench.sent) > 1)
        await bench.settle()
        assert client.got == [(1, [b"x"])]

    run(scenario)


def test_message_that_another_node_took_first_is_waited_for_again() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        push(bench, b"1")
        assert left(bench) == [(b"1", 2)]
        await bench.settle()
        assert client.got == []
        push(bench, b"2")
        await bench.settle()
        assert client.got == [(1, [b"2"])]

    run(scenario)


def test_waits_on_a_suspended_queue_cost_nothing_until_it_is_resumed() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, b"1")
        bench.foreign([Op.SUSPEND, b"q", True])
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start_any(b"^q$", (client, 2, 1, None), b"c")
        await bench.settle()
        before = len(bench.sent)
        push(bench, b"2")
        bench.clock.advance(60)
        bench.pulls.notice_all()
        await bench.settle()
        assert (len(bench.sent), client.got, bench.pulls.waiting()) == (before, [], 2), "nothing is claimed in vain"
        bench.foreign([Op.SUSPEND, b"q", False])
        await bench.settle()
        assert sorted(token for token, _ in client.got) == [1, 2]
        assert sorted(bodies for _, bodies in client.got) == [[b"1"], [b"2"]]

    run(scenario)


def test_a_claim_that_finds_its_queue_suspended_is_not_repeated() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        push(bench, b"1")
        await bench.turn()
        bench.foreign([Op.SUSPEND, b"q", True])
        await bench.settle()
        assert client.got == []
        (line,) = bench.pulls.lines()
        assert (line.claim, line.timer) == (None, None), "it waits for an event"
        bench.foreign([Op.SUSPEND, b"q", False])
        await bench.settle()
        assert client.got == [(1, [b"1"])]

    run(scenario)


def test_pulls_that_share_a_command_request_no_more_than_one_command_returns() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, *[b"x"] * (PULL_COUNT_MAX + 5))
        for token in range(3):
            bench.pulls.start(b"q", (client, token, PULL_COUNT_MAX, 0.0))
        await bench.settle()
        assert [(token, len(got)) for token, got in client.got] == [(0, PULL_COUNT_MAX), (1, 5), (2, 0)]

    run(scenario)


def test_close_answers_all_waits() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start_any(b"q", (client, 2, 1, 60.0), b"c")
        await bench.settle()
        bench.pulls.close(LmqError("shutting_down", "going"))
        assert sorted(client.got) == [(1, "shutting_down"), (2, "shutting_down")]
        assert (bench.pulls.waiting(), client.waiting) == (0, set())

    run(scenario)


def test_a_queue_stays_while_a_pull_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue without pushes expires an hour after the last pull; a waiting pull is repeated from time to time."""
    monkeypatch.setattr(pulls_module, "KEEP_PERIOD_S", 0.001)

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start(b"empty", (client, 2, 1, 0.0))
        await bench.settle()
        queues = bench.machine.state.queues
        for _ in range(8):
            bench.clock.advance(20 * 60)
            sent = len(bench.sent)
            await until(lambda sent=sent: len(bench.sent) > sent)  # type: ignore[misc]
            await bench.settle()
            assert queues[b"q"].idle_us == bench.clock.us
        bench.foreign([Op.BARRIER])
        assert list(queues) == [b"q"]
        push(bench, b"1")
        await bench.settle()
        assert client.got == [(2, []), (1, [b"1"])]

    run(scenario)


def test_pulls_wait_again_after_they_were_reopened() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.close(LmqError("left_cluster", "the node has left"))
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        bench.pulls.reopen()
        bench.pulls.start(b"q", (client, 2, 1, None))
        bench.pulls.start_any(b"^q$", (client, 3, 1, None), b"c")
        await bench.settle()
        assert (client.got, bench.pulls.waiting()) == ([(1, "left_cluster")], 2)

    run(scenario)
