"""Purges and moves that take several commands, on a real proposer and machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lmqcluster.core import Op
from lmqcluster.core.handlers.checks import STEP_MAX
from lmqcluster.node.queues.service import QueueService
from lmqcluster.wire.errors import LmqError, Outcome

from .command_bench import Bench

Q, R = b"q", b"r"
Scenario = Callable[[Bench, QueueService], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        bench = Bench()
        limits = {"message_bytes_max": 1 << 20, "memory_bytes_max": 1 << 30}
        await scenario(
            bench,
            QueueService(bench.proposer, bench.pulls, lambda: bench.machine.state, bench.views, bench.turns, **limits),
        )
        bench.proposer.close(LmqError("shutting_down", "the test is over"))

    asyncio.run(main())


def fill(bench: Bench, count: int) -> None:
    bench.foreign([Op.PUSH, Q, None, [b"x"] * count, None, 0])


def size(bench: Bench, queue: bytes) -> int:
    return len(bench.machine.state.queues[queue])


async def next_step(bench: Bench) -> None:
    """Apply the command that was sent last, and run the operation's callbacks."""
    await bench.turn()
    bench.apply(-1)
    await bench.turn()


def test_messages_pushed_during_a_purge_stay() -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, STEP_MAX + 5)
        purge = asyncio.ensure_future(service.operations.purge(Q))
        await next_step(bench)
        fill(bench, 100)
        await next_step(bench)
        assert await purge == STEP_MAX + 5
        assert size(bench, Q) == 100

    run(scenario)


def test_leases_do_not_end_a_purge_early_or_keep_it_going() -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, 2 * STEP_MAX)
        bench.foreign([Op.PULL, Q, 10])
        purge = asyncio.ensure_future(service.operations.purge(Q))
        for _ in range(2):
            await next_step(bench)
        assert await purge == 2 * STEP_MAX - 10
        assert size(bench, Q) == 10

    run(scenario)


@pytest.mark.parametrize(("count", "steps"), [(None, 3), (STEP_MAX + 7, 2)])
def test_a_purge_of_everything_is_repeated_until_no_lease_is_left(count: int | None, steps: int) -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, 2 * STEP_MAX + 30)
        bench.foreign([Op.PULL, Q, 2 * STEP_MAX + 10])
        purge = asyncio.ensure_future(service.operations.purge(Q, count, everything=True))
        for _ in range(steps):
            await next_step(bench)
        assert await purge == (2 * STEP_MAX + 30 if count is None else count)
        assert size(bench, Q) == 2 * STEP_MAX + 30 - await purge
        assert len(bench.sent) == steps

    run(scenario)


@pytest.mark.parametrize(("count", "steps"), [(STEP_MAX + 7, 2), (STEP_MAX, 1), (7, 1), (None, 3)])
def test_a_move_takes_the_requested_number(count: int | None, steps: int) -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, 2 * STEP_MAX + 7)
        move = asyncio.ensure_future(service.operations.move(Q, R, count))
        for _ in range(steps):
            await next_step(bench)
        assert await move == (2 * STEP_MAX + 7 if count is None else count)
        assert size(bench, R) == await move
        assert len(bench.sent) == steps

    run(scenario)


def test_deleting_the_queue_ends_a_move() -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, 2 * STEP_MAX)
        move = asyncio.ensure_future(service.operations.move(Q, R))
        await bench.turn()
        bench.apply(-1)
        bench.foreign([Op.DELETE, Q])
        await bench.turn()
        assert await move == STEP_MAX

    run(scenario)


@pytest.mark.parametrize(("verb", "retryable"), [("purge", True), ("move", False)])
def test_an_operation_that_fails_half_way_has_an_unknown_outcome(verb: str, retryable: bool) -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        if verb == "purge":
            # Those that wait for a window are removed step by step; those that are due, all at once.
            bench.foreign([Op.SET_PROPERTIES, Q, [[b"accum", -1]]])
        fill(bench, 2 * STEP_MAX)
        operations = service.operations
        begun = asyncio.ensure_future(operations.purge(Q) if verb == "purge" else operations.move(Q, R))
        await bench.turn()
        bench.proposer.retire(LmqError("shutting_down", "use another node"))
        bench.apply(-1)
        with pytest.raises(LmqError, match=f"{STEP_MAX} messages were {verb}d before this: use another node") as caught:
            await begun
        assert (caught.value.code, caught.value.outcome) == ("unknown_outcome", Outcome.UNKNOWN)
        assert caught.value.retryable is retryable
        assert size(bench, Q) == STEP_MAX

    run(scenario)


def test_an_operation_that_is_refused_at_once_reports_it() -> None:
    async def scenario(bench: Bench, service: QueueService) -> None:
        fill(bench, 1)
        bench.proposer.retire(LmqError("shutting_down", "use another node"))
        for begin in (service.operations.purge, service.operations.suspend, service.operations.resume):
            with pytest.raises(LmqError, match="use another node") as caught:
                begin(Q)
            assert caught.value.outcome is Outcome.NOT_APPLIED
        assert bench.sent == []

    run(scenario)
