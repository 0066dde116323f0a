"""Waits for one queue with different options, as those of sessions: they share its messages and its wake-ups."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import msgpack
import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Pull, PullInSession
from lmqcluster.node.queues.pulls import pulls as pulls_module
from lmqcluster.node.queues.pulls.pull_options import PullOptions
from lmqcluster.wire.errors import LmqError

from .command_bench import Bench, until
from .pull_bench import Client, Scenario, push
from .pull_bench import run as run_plain

HOUR_US = 3_600_000_000


def run(scenario: Scenario) -> None:
    """Run a scenario on a machine with per-pull leases and delays."""

    async def upgraded(bench: Bench) -> None:
        await scenario(bench)

    run_plain(upgraded)


def wait_in_line(bench: Bench, client: Client, line: int, count: int = 1) -> None:
    """Wait in a separate list, as a consumer with a session does; line 0 is that of plain pulls."""
    if line == 0:
        bench.pulls.start(b"q", (client, line, count, None))
    else:
        bench.pulls.start(b"q", (client, line, count, None), PullOptions(Pull, (HOUR_US + line, False)))


def pulls_sent(bench: Bench) -> int:
    """Return the number of pulls proposed so far."""
    kinds = {int(Op.PULL), int(Op.PULL_IN_SESSION)}
    batches = (msgpack.unpackb(batch, strict_map_key=False)[3] for _, batch in bench.sent)
    return sum(command[0] in kinds for batch in batches for command in batch)


def delayed(bench: Bench, content: bytes, delay_s: float) -> None:
    """Push a message as another node that is due `delay_s` later."""
    bench.foreign([Op.PUSH_ROWS, b"q", [[content, None, b"", None, [int(delay_s * 1e6), 0, 0, 0, b"", b""]]]])


@pytest.mark.parametrize("lines", [2, 1000])
def test_a_push_wakes_one_line(lines: int) -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        for line in range(lines):
            wait_in_line(bench, client, line)
        await bench.settle()
        before = pulls_sent(bench)
        for number in range(2):
            push(bench, b"%d" % number)
            await bench.settle()
        assert pulls_sent(bench) - before == 2
        assert client.got == [(0, [b"0"]), (1, [b"1"])]

    run(scenario)


def test_as_many_lines_claim_at_once_as_messages_are_due() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        for line in range(5):
            wait_in_line(bench, client, line)
        await bench.settle()
        before = pulls_sent(bench)
        push(bench, b"1", b"2", b"3")
        await bench.turn()
        assert pulls_sent(bench) - before == 3, "the third does not wait for the first"
        await bench.settle()
        assert sorted(token for token, _ in client.got) == [0, 1, 2]
        assert pulls_sent(bench) - before == 3

    run(scenario)


def test_lines_are_served_in_turn() -> None:
    """A consumer that pulls again at once, or a long list, does not starve the others."""

    async def scenario(bench: Bench) -> None:
        client = Client()
        for line in (0, 0, 0, 0, 0, 1, 2):
            wait_in_line(bench, client, line)
        await bench.settle()
        for number in range(9):
            push(bench, b"%d" % number)
            await bench.settle()
            wait_in_line(bench, client, client.got[-1][0])
            await bench.settle()
        assert Counter(token for token, _ in client.got) == {0: 3, 1: 3, 2: 3}

    run(scenario)


def test_a_leaving_wait_does_not_cancel_the_timer() -> None:
    async def scenario(bench: Bench) -> None:
        leaves, stays = Client(), Client()
        wait_in_line(bench, leaves, 1)
        wait_in_line(bench, stays, 2)
        delayed(bench, b"x", 0.02)
        await bench.settle()
        assert [line.timer is not None for line in bench.pulls.lines()] == [True, False], "one timer is enough"
        assert bench.pulls.cancel(leaves, 1)
        bench.clock.advance(1)
        sent = len(bench.sent)
        await until(lambda: len(bench.sent) > sent)
        await bench.settle()
        assert stays.got == [(2, [b"x"])]

    run(scenario)


def test_a_line_whose_claim_is_refused_does_not_block_the_others() -> None:
    """A session that has just ended cannot pull; its list learns of that after the message arrives."""

    async def scenario(bench: Bench) -> None:
        ended, waits = Client(), Client()
        push(bench, b"x")
        bench.pulls.wait(b"q", (ended, 1, 1, None), PullOptions(PullInSession, (HOUR_US, 99, 0, -1, b"")))
        wait_in_line(bench, waits, 2)
        bench.foreign([Op.PULL, b"q", 1])
        await bench.settle()
        push(bench, b"y")
        await bench.settle()
        assert waits.got == [(2, [b"y"])]
        assert ended.got == []

    run(scenario)


class FastClock:
    """The estimate of log time of a node that is a second ahead of the leader."""

    def __init__(self, bench: Bench) -> None:
        self._clock = bench.clock

    def now_us(self) -> int:
        return self._clock.us + 1_000_000


def test_lines_back_off_after_an_unsuccessful_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulls_module, "_AGAIN_S", 3600.0)

    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.clock = FastClock(bench)  # type: ignore[assignment]
        for line in range(3):
            wait_in_line(bench, client, line)
        await bench.settle()
        before = pulls_sent(bench)
        delayed(bench, b"x", 0.5)
        async with asyncio.timeout(30):
            await bench.settle()
        assert pulls_sent(bench) - before == 3, "each looks once"
        bench.clock.advance(1)
        push(bench, b"y")
        await bench.settle()
        assert sorted(contents for _, contents in client.got) == [[b"x"], [b"y"]]

    run(scenario)


def test_lines_that_back_off_try_again() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        bench.pulls.clock = FastClock(bench)  # type: ignore[assignment]
        for line in range(3):
            wait_in_line(bench, client, line)
        await bench.settle()
        delayed(bench, b"x", 0.5)
        await bench.settle()
        assert all(line.is_backing_off for lines in bench.pulls._queues.values() for line in lines.in_turn())
        bench.clock.advance(1)

        async def is_delivered() -> None:
            while not client.got:
                await bench.settle()
                await asyncio.sleep(0.001)

        await asyncio.wait_for(is_delivered(), 30)
        assert [contents for _, contents in client.got] == [[b"x"]]

    run(scenario)


def test_close_while_a_timer_runs_starts_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        client = Client()
        for line in range(3):
            wait_in_line(bench, client, line)
        delayed(bench, b"x", 0.02)
        await bench.settle()
        bench.clock.advance(1)
        sent = len(bench.sent)
        bench.pulls.close(LmqError("shutting_down", "going"))
        await bench.turn()
        assert [answer for _, answer in client.got] == ["shutting_down"] * 3
        assert (len(bench.sent), bench.pulls.lines()) == (sent, [])

    run(scenario)


@pytest.mark.parametrize("seed", range(60))
def test_no_message_stays_ready_while_a_pull_waits(seed: int) -> None:
    """Waits begin, end and leave, other nodes push and pull, some messages are due later, some commands are lost."""
    rng = random.Random(seed)

    async def scenario(bench: Bench) -> None:
        client, pushed = Client(), 0
        for _ in range(60):
            deed = rng.choice(["wait", "wait", "wait", "push", "push", "delay", "foreign", "cancel", "time", "settle"])
            if deed == "wait":
                wait_in_line(bench, client, rng.randrange(6), rng.choice([1, 1, 3]))
            elif deed == "push":
                count = rng.choice([1, 1, 1, 4])
                push(bench, *[b"x"] * count)
                pushed += count
            elif deed == "delay":
                delayed(bench, b"x", rng.choice([0.001, 0.005]))
                pushed += 1
            elif deed == "foreign":
                (found,) = bench.foreign([Op.PULL, b"q", 1])
                pushed -= len(found)
            elif deed == "cancel" and client.waiting:
                bench.pulls.cancel(client, rng.choice(sorted(waiter.token for waiter in client.waiting)))
            elif deed == "time":
                bench.clock.advance(rng.choice([0.0, 0.002]))
            else:
                await bench.settle()
        for line in range(6):
            wait_in_line(bench, client, line, 1000)
        bench.clock.advance(1)

        async def rest_arrives() -> None:
            while sum(len(contents) for _, contents in client.got) < pushed:
                await bench.settle()
                await asyncio.sleep(0.001)

        await asyncio.wait_for(rest_arrives(), 30)
        assert sum(len(contents) for _, contents in client.got) == pushed
        assert all(lines.claimed == 0 for lines in bench.pulls._queues.values())

    run(scenario)
