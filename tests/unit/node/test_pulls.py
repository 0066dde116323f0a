"""Pulls that wait at a node: order, ends of waits, clients that are gone, and what is put back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core import queue as queue_module
from lmqcluster.core import queue_state as queue_state_module
from lmqcluster.core.commands import Delivered
from lmqcluster.node import proposer as proposer_module
from lmqcluster.node import turns
from lmqcluster.node.queues import pulls as pulls_module
from lmqcluster.node.queues.pulls import Waiter
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.limits import PULL_COUNT_MAX

from .command_bench import DEADLINE_S, Bench, until

Scenario = Callable[[Bench], Awaitable[None]]


class Client:
    """A puller that writes down what it gets: (token, contents) or (token, error code)."""

    def __init__(self) -> None:
        self.closed = False
        self.place = None
        self.waiting: set[Waiter] = set()
        self.got: list[tuple[Any, Any]] = []

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        self.got.append((token, [message.content for _name, _number, _remaining, message in delivered]))

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self.got.append((token, error.code))


def run(scenario: Scenario) -> None:
    """Run a scenario on a bench of its own, and close the bench."""

    async def main() -> None:
        bench = Bench()
        await scenario(bench)
        error = LmqError("shutting_down", "the test is over")
        bench.pulls.close(error)
        bench.proposer.close(error)

    asyncio.run(main())


def push(bench: Bench, *contents: bytes, queue: bytes = b"q") -> None:
    """Another node pushes."""
    bench.foreign([Op.PUSH, queue, None, list(contents), None, 0])


def left(bench: Bench, queue: bytes = b"q") -> list[tuple[bytes, int]]:
    """Pull all that is there: (content, deliveries that remain)."""
    (found,) = bench.foreign([Op.PULL, queue, 1000])
    return [(message.content, remaining) for _name, _number, remaining, message in found]


def test_pull_returns_what_is_there_or_nothing_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, b"1", b"2")
        for token in range(3):
            bench.pulls.start(b"q", (client, token, 1, 0.0))
        await bench.settle()
        assert client.got == [(0, [b"1"]), (1, [b"2"]), (2, [])]
        assert bench.pulls.waiting() == 0

    run(scenario)


def test_waits_are_served_in_order_whatever_they_want() -> None:
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


def test_who_comes_later_does_not_overtake_who_waits() -> None:
    """A pull that comes while a message for an earlier one is on its way gets the next message."""

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


def test_end_of_a_wait_says_nothing_was_there() -> None:
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


def test_wait_whose_time_is_over_gets_what_was_claimed_for_it() -> None:
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


def test_wait_whose_time_is_over_ends_empty_if_another_node_was_faster_than_the_claim() -> None:
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


@pytest.mark.parametrize(("limit", "told"), [("UNKNOWN_AFTER_S", "unknown_outcome"), ("NO_LEADER_AFTER_S", [])])
def test_wait_whose_time_is_over_learns_that_its_claim_has_failed(
    monkeypatch: pytest.MonkeyPatch, limit: str, told: Any
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
        assert client.got == [(1, told)]
        bench.leader = True
        await bench.settle()
        assert left(bench) == [(b"1", 2)]

    run(scenario)


def test_message_for_a_client_that_is_gone_is_put_back_uncharged() -> None:
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


def test_client_that_is_gone_is_forgotten_and_those_behind_it_are_served() -> None:
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
def test_a_pull_that_still_looks_for_a_message_can_be_cancelled(applied: int, another_takes_it: bool) -> None:
    """A pull from a pattern has several commands; the cancellation may come between any two."""

    async def scenario(bench: Bench) -> None:
        bench.machine.version = 2
        bench.machine.begin_version_2(rebuild=True)
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
        assert not list(bench.pulls._any.tickets())

    run(scenario)


def test_a_pull_that_looks_while_its_view_is_filled_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)

    async def scenario(bench: Bench) -> None:
        bench.machine.version = 2
        bench.machine.begin_version_2(rebuild=True)
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
    monkeypatch.setattr(queue_state_module, "PASSES_MAX", 1)

    async def scenario(bench: Bench) -> None:
        client = Client()
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
        assert (line.claim, line.timer) == (None, None), "it waits to be told"
        bench.foreign([Op.SUSPEND, b"q", False])
        await bench.settle()
        assert client.got == [(1, [b"1"])]

    run(scenario)


def test_one_claim_at_a_time_for_what_is_wanted() -> None:
    """A burst of pushes must not make the node claim more than its waits want."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        for token in range(2):
            bench.pulls.start(b"q", (client, token, 1, None))
        await bench.settle()
        before = bench.machine.last_delivery
        for number in range(20):
            push(bench, b"%d" % number)
        await bench.settle()
        assert client.got == [(0, [b"0"]), (1, [b"1"])]
        assert bench.machine.last_delivery - before == 2

    run(scenario)


def test_pulls_that_share_a_command_want_no_more_than_one_command_gives() -> None:
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


def test_next_pull_does_not_overtake_what_was_claimed_for_a_wait_that_is_over() -> None:
    """The next pull is in the log already when the claim arrives."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, "waits", 1, None))
        await bench.settle()
        push(bench, b"1")
        await bench.turn()
        push(bench, b"2", b"3")
        assert bench.pulls.cancel(client, "waits")
        for token in ("second", "third"):
            bench.pulls.start(b"q", (client, token, 1, 0.0))
            await bench.turn()
        await bench.settle()
        assert client.got == [("waits", [b"1"]), ("second", [b"2"]), ("third", [b"3"])]

    run(scenario)


def test_next_pull_does_not_overtake_what_was_claimed_for_a_wait_that_got_less_than_it_wanted() -> None:
    """More messages came while the first were claimed: they are not claimed as well."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, "waits", 10, None))
        await bench.settle()
        push(bench, b"1")
        await bench.turn()
        push(bench, b"2", b"3")
        await bench.settle()
        bench.pulls.start(b"q", (client, "next", 10, 0.0))
        await bench.settle()
        assert client.got == [("waits", [b"1"]), ("next", [b"2", b"3"])]

    run(scenario)


def test_pull_takes_nothing_from_waits_that_are_about_to_be_served() -> None:
    """Otherwise the claim would arrive for nobody, and what is put back could be overtaken."""

    async def scenario(bench: Bench) -> None:
        waits, asks = Client(), Client()
        bench.pulls.start(b"q", (waits, "waits", 1, None))
        await bench.settle()
        bench.pulls.start(b"q", (asks, "asks", 1, 0.0))
        await bench.turn()
        push(bench, b"1", b"2")
        await bench.settle()
        assert (asks.got, waits.got) == ([("asks", [b"1"])], [("waits", [b"2"])])

    run(scenario)


def test_node_that_retires_puts_back_what_was_on_its_way_to_a_wait_and_answers_everybody() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, "waits", 1, None))
        await bench.settle()
        push(bench, b"1")
        bench.pulls.start(b"empty", (client, "on its way", 1, None))
        await bench.turn()
        error = LmqError("shutting_down", "bye")
        bench.proposer.retire(error)
        bench.pulls.close(error)
        assert client.got == [("waits", "shutting_down")]
        with pytest.raises(LmqError, match="bye"):
            bench.pulls.start(b"q", (client, "late", 1, None))
        drained = asyncio.ensure_future(bench.proposer.drained(DEADLINE_S))
        await bench.settle()
        await drained
        assert client.got[1:] == [("on its way", "shutting_down")]
        assert bench.proposer.pending() == 0
        assert left(bench) == [(b"1", 2)]

    run(scenario)


def test_pull_of_unknown_outcome_fails_once_and_its_message_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer_module, "SWEEP_S", 0.005)
    monkeypatch.setattr(proposer_module, "UNKNOWN_AFTER_S", 0.02)

    async def scenario(bench: Bench) -> None:
        client = Client()
        push(bench, b"1")
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.turn()
        await until(lambda: client.got)
        await bench.settle()
        assert client.got == [(1, "unknown_outcome")]
        assert left(bench) == [(b"1", 2)]

    run(scenario)


def test_claim_of_unknown_outcome_does_not_cost_the_wait_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposer_module, "SWEEP_S", 0.005)
    monkeypatch.setattr(proposer_module, "UNKNOWN_AFTER_S", 0.02)

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        await bench.settle()
        push(bench, b"1")
        await bench.turn()
        # The claim gets no answer for a while: the line claims again, and both may be applied in the end.
        sent = len(bench.sent)
        await until(lambda: len(bench.sent) > sent)
        await bench.settle()
        assert client.got == [(1, [b"1"])]
        assert left(bench) == []

    run(scenario)


def test_a_queue_stays_as_long_as_somebody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that nothing was pushed to ends an hour after the last pull; whoever waits pulls now and then."""
    monkeypatch.setattr(pulls_module, "KEEP_PERIOD_S", 0.001)

    async def scenario(bench: Bench) -> None:
        bench.foreign([Op.UPGRADE, 2])
        client = Client()
        bench.pulls.start(b"q", (client, 1, 1, None))
        bench.pulls.start(b"nobody", (client, 2, 1, 0.0))
        await bench.settle()
        queues = bench.machine.queues
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
