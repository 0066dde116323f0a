"""One round: one case on one system, on a new queue, with every message counted."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self, TypeVar

from .cases import BATCH, BATCHES_IN_FLIGHT, IN_FLIGHT, OPERATIONS, Case, Mode, Row
from .load import (
    Stopwatch,
    check_all_there,
    contents,
    first_error_group,
    in_batches,
    one_at_a_time,
    pull_in_batches,
    timed,
    windowed,
)
from .statistics import Measurement, percentile
from .system import Link, Message, System, Tally

T = TypeVar("T")
R = TypeVar("R")

ROUND_TIMEOUT_S = 120.0
"""Deadline of one round, a guard against hangs that does not affect the result."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The measurement of one operation: the time for all of them, or also the time of each."""

    operations: int
    elapsed_s: float
    client_cpu_s: float
    durations_ms: Sequence[float] = ()

    @classmethod
    def of(cls, operations: int, watch: Stopwatch, durations_ms: Sequence[float] = ()) -> Self:
        """Return the timing of a stopped stopwatch."""
        return cls(operations, watch.elapsed_s, watch.client_cpu_s, durations_ms)

    def measurement(self, system: str, row: Row, repeat: int) -> Measurement:
        """Return the figures for the result."""
        common = Measurement(
            system=system,
            row=row,
            repeat=repeat,
            operations=self.operations,
            client_load=round(self.client_cpu_s / self.elapsed_s, 3),
        )
        if self.durations_ms:
            p50_ms, p99_ms = percentile(self.durations_ms, 50), percentile(self.durations_ms, 99)
            return replace(common, p50_ms=p50_ms, p99_ms=p99_ms)
        return replace(common, rate=self.operations / self.elapsed_s)


_names = itertools.count(1)


async def run_round(system: System, case: Case, count: int) -> dict[Row, Timing]:
    """Run a case with `count` messages. Rows without an operation of the system are left out.

    Raises:
        LostMessagesError: messages were lost, duplicated or changed.
        TimeoutError: it hung.
    """
    name = f"bench-{next(_names)}"
    run = _RUNS[case.mode]
    what = f"{system.name}, {case}"
    try:
        async with asyncio.timeout(ROUND_TIMEOUT_S), system.queue(name, case) as links:
            timings = await run(what, links, contents(count, case.size))
    except TimeoutError as exc:
        raise TimeoutError(f"{what}, {count} messages: not done within {ROUND_TIMEOUT_S:g} s") from exc
    except Exception as exc:
        exc.add_note(f"while measuring {what}, {count} messages")
        raise
    return {Row(case, operation): timing for operation, timing in timings.items()}


async def _fill(links: Sequence[Link], sent: Sequence[bytes]) -> None:
    shared = iter(sent)
    await windowed([map(link.push, shared) for link in links], IN_FLIGHT)


async def _settle(links: Sequence[Link]) -> None:
    await asyncio.gather(*(link.settle() for link in links if link.settle is not None))


def _contents_of(links: Sequence[Link], pulled: Sequence[Sequence[Message]]) -> Iterator[bytes]:
    for link, messages in zip(links, pulled, strict=True):
        yield from map(link.content_of, messages)


async def _pipelined(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    count = len(sent)
    push, pull, done = OPERATIONS[Mode.PIPELINED]
    with timed() as pushing:
        await _fill(links, sent)
    slots = itertools.repeat((), count)
    with timed() as pulling:
        pulled = await windowed([itertools.starmap(link.pull, slots) for link in links], IN_FLIGHT)
    check_all_there(sent, _contents_of(links, pulled), what)
    with timed() as answering:
        await windowed([map(link.done, mine) for link, mine in zip(links, pulled, strict=True)], IN_FLIGHT)
        await _settle(links)
    return {
        push: Timing.of(count, pushing),
        pull: Timing.of(count, pulling),
        done: Timing.of(count, answering),
    }


async def _consume(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    await _fill(links, sent)
    tally = Tally(len(sent))
    with timed() as consuming:
        async with first_error_group() as group:
            for link in links:
                group.create_task(link.consume(tally))
    check_all_there(sent, tally.contents, what)
    return {OPERATIONS[Mode.CONSUME][0]: Timing.of(len(sent), consuming)}


async def _batched(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    count = len(sent)
    push_many, pull_many, done_many = OPERATIONS[Mode.BATCHED]
    timings = {}
    if links[0].push_many is None:
        await _fill(links, sent)
    else:
        timings[push_many] = await _push_batches(links, sent, BATCHES_IN_FLIGHT)
    with timed() as pulling:
        pulled = await pull_in_batches(links, count, BATCH, BATCHES_IN_FLIGHT)
    timings[pull_many] = Timing.of(count, pulling)
    check_all_there(sent, _contents_of(links, pulled), what)
    pairs = list(zip(links, pulled, strict=True))
    if links[0].done_many is None:
        await windowed([map(link.done, mine) for link, mine in pairs], IN_FLIGHT)
        await _settle(links)
    else:
        with timed() as answering:
            await windowed([_batches(link.done_many, mine) for link, mine in pairs], BATCHES_IN_FLIGHT)
        timings[done_many] = Timing.of(count, answering)
    return timings


def _batches(operation: Callable[[list[T]], Awaitable[R]] | None, items: Sequence[T]) -> Iterator[Awaitable[R]]:
    assert operation is not None
    return map(operation, in_batches(items, BATCH))


async def _push_batches(links: Sequence[Link], sent: Sequence[bytes], in_flight: int) -> Timing:
    shared = iter(in_batches(sent, BATCH))
    operations = [link.push_many for link in links if link.push_many is not None]
    with timed() as pushing:
        await windowed([map(push_many, shared) for push_many in operations], in_flight)
    return Timing.of(len(sent), pushing)


async def _one_at_a_time(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    count = len(sent)
    push, pull, done = OPERATIONS[Mode.ONE_AT_A_TIME]
    turns = list(itertools.islice(itertools.cycle(links), count))
    with timed() as pushing:
        _, push_ms = await one_at_a_time([partial(link.push, each) for link, each in zip(turns, sent, strict=True)])
    with timed() as pulling:
        pulled, pull_ms = await one_at_a_time([link.pull for link in turns])
    check_all_there(sent, (link.content_of(m) for link, m in zip(turns, pulled, strict=True)), what)
    with timed() as answering:
        _, done_ms = await one_at_a_time([partial(link.done, m) for link, m in zip(turns, pulled, strict=True)])
    await _settle(links)
    timings = {push: Timing.of(count, pushing, push_ms), pull: Timing.of(count, pulling, pull_ms)}
    if links[0].done_is_confirmed:
        timings[done] = Timing.of(count, answering, done_ms)
    return timings


async def _wake_up(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    """Push through each link in turn to a consumer that waits at the next one."""
    durations_ms: list[float] = []
    received: list[bytes] = []
    receiving_links = [*links[1:], links[0]]
    with timed() as watch:
        for pushing, receiving, mine in zip(links, receiving_links, _dealt(sent, len(links)), strict=True):
            async with receiving.receiver() as receiver:
                for content in mine:
                    waiting = asyncio.create_task(_received_at(receiver.receive()))
                    await receiver.settled()
                    started = time.perf_counter()
                    await pushing.push(content)
                    message, arrived = await waiting
                    durations_ms.append((arrived - started) * 1e3)
                    received.append(receiving.content_of(message))
                    await receiving.done(message)
                if receiving.settle is not None:
                    await receiving.settle()
    check_all_there(sent, received, what)
    return {OPERATIONS[Mode.WAKE_UP][0]: Timing.of(len(sent), watch, durations_ms)}


def _dealt(items: Sequence[T], hands: int) -> Iterator[Sequence[T]]:
    """Return the items in `hands` runs of about the same length."""
    for hand in range(hands):
        yield items[len(items) * hand // hands : len(items) * (hand + 1) // hands]


async def _received_at(receiving: Awaitable[Message]) -> tuple[Message, float]:
    return await receiving, time.perf_counter()


async def _http(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    """Measure pushes over links of one keep-alive connection with one outstanding request; drain the messages
    untimed.
    """
    shared = iter(sent)
    with timed() as pushing:
        await windowed([map(link.push, shared) for link in links], 1)
    await _drain(what, links[0], sent)
    return {OPERATIONS[Mode.HTTP][0]: Timing.of(len(sent), pushing)}


async def _http_batched(what: str, links: Sequence[Link], sent: Sequence[bytes]) -> dict[str, Timing]:
    timing = await _push_batches(links, sent, 1)
    await _drain(what, links[0], sent)
    return {OPERATIONS[Mode.HTTP_BATCHED][0]: timing}


async def _drain(what: str, link: Link, sent: Sequence[bytes]) -> None:
    [pulled] = await pull_in_batches([link], len(sent), BATCH, BATCHES_IN_FLIGHT)
    check_all_there(sent, map(link.content_of, pulled), what)
    await windowed([_batches(link.done_many, pulled)], BATCHES_IN_FLIGHT)


_RUNS: Final[dict[Mode, Callable[[str, Sequence[Link], Sequence[bytes]], Awaitable[dict[str, Timing]]]]] = {
    Mode.PIPELINED: _pipelined,
    Mode.CONSUME: _consume,
    Mode.BATCHED: _batched,
    Mode.ONE_AT_A_TIME: _one_at_a_time,
    Mode.WAKE_UP: _wake_up,
    Mode.HTTP: _http,
    Mode.HTTP_BATCHED: _http_batched,
}
