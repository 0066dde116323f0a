"""Claims of a node for waiting pulls: no more than they want, for no other pull, and returned if they have ended."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster.node.commit import proposer as proposer_module
from lmqcluster.wire.errors import LmqError

from .command_bench import DEADLINE_S, Bench, until
from .pull_bench import Client, left, push, run


def test_one_claim_at_a_time_for_what_is_wanted() -> None:
    """A burst of pushes must not make the node claim more than its waits want."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        for token in range(2):
            bench.pulls.start(b"q", (client, token, 1, None))
        await bench.settle()
        before = bench.machine.state.last_delivery
        for number in range(20):
            push(bench, b"%d" % number)
        await bench.settle()
        assert client.got == [(0, [b"0"]), (1, [b"1"])]
        assert bench.machine.state.last_delivery - before == 2

    run(scenario)


def test_next_pull_does_not_overtake_a_claim_for_an_ended_wait() -> None:
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


def test_next_pull_does_not_overtake_a_claim_for_a_partly_served_wait() -> None:
    """More messages arrived while the first were claimed: they are not claimed as well."""

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
    """Otherwise the claim would arrive without a receiver, and returned messages could be overtaken."""

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


def test_a_retiring_node_puts_back_claimed_messages_and_answers_all_waits() -> None:
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
        # The claim gets no answer for a while: the wait list claims again, and both may be applied in the end.
        sent = len(bench.sent)
        await until(lambda: len(bench.sent) > sent)
        await bench.settle()
        assert client.got == [(1, [b"1"])]
        assert left(bench) == []

    run(scenario)
