"""The load, which is the same for every system except for the awaitables that it drives."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from .system import Link, LostMessagesError, Message

T = TypeVar("T")

_NUMBER_DIGITS = 10


class Stopwatch:
    """The time between entering and leaving the `timed` section, in seconds."""

    elapsed_s: float = 0.0
    client_cpu_s: float = 0.0
    """Processor time that this process used."""


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Time a section. The client's garbage collector is off: it would bill one system for the garbage of another."""
    watch = Stopwatch()
    gc.collect()
    gc.disable()
    started, cpu_started = time.perf_counter(), time.process_time()
    try:
        yield watch
    finally:
        watch.elapsed_s = time.perf_counter() - started
        watch.client_cpu_s = time.process_time() - cpu_started
        gc.enable()


def contents(count: int, size: int) -> list[bytes]:
    """Return distinct contents of `size` bytes, at least 10: a number and filler."""
    filler = bytes(range(32, 127)) * (size // 95 + 1)
    return [b"%0*d" % (_NUMBER_DIGITS, number) + filler[: size - _NUMBER_DIGITS] for number in range(count)]


def check_all_there(sent: Sequence[bytes], received: Iterable[bytes], what: str) -> None:
    """Check that every content arrived exactly once and intact.

    Raises:
        LostMessagesError: it did not.
    """
    arrived = sorted(received)
    if arrived != sorted(sent):
        missing = len(set(sent) - set(arrived))
        doubled = len(arrived) - len(set(arrived))
        raise LostMessagesError(
            f"{what}: sent {len(sent)} messages, received {len(arrived)}: {missing} missing, {doubled} doubled"
        )


@asynccontextmanager
async def first_error_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Return a task group that fails with only the first error: when a node is lost, hundreds of tasks report
    the same.
    """
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        first.add_note(f"{len(errors.exceptions) - 1} more operations failed")
        raise first from None


async def windowed(jobs: Sequence[Iterator[Awaitable[T]]], in_flight: int) -> list[list[T]]:
    """Run lazily created operations with a fixed number outstanding, as coroutines that each await one at a time.

    Args:
        jobs: one iterator of operations per connection. Iterators may share a source; a free connection then takes the next one.
        in_flight: operations outstanding per connection.

    Returns:
        The results, per connection, in the order of completion.
    """
    results: list[list[T]] = [[] for _ in jobs]

    async def worker(operations: Iterator[Awaitable[T]], done: list[T]) -> None:
        for operation in operations:
            done.append(await operation)  # noqa: PERF401  the point is that each worker awaits its own

    async with first_error_group() as group:
        for operations, done in zip(jobs, results, strict=True):
            for _ in range(in_flight):
                group.create_task(worker(operations, done))
    return results


async def one_at_a_time(operations: Iterable[Callable[[], Awaitable[T]]]) -> tuple[list[T], list[float]]:
    """Run operations one after the other. Return their results and their durations in milliseconds."""
    results: list[T] = []
    durations_ms: list[float] = []
    clock = time.perf_counter
    for operation in operations:
        started = clock()
        result = await operation()
        durations_ms.append((clock() - started) * 1e3)
        results.append(result)
    return results, durations_ms


async def pull_in_batches(links: Sequence[Link], count: int, batch: int, in_flight: int) -> list[list[Message]]:
    """Pull `count` messages in batch requests, with `in_flight` outstanding per connection. Return the messages per
    connection.

    Raises:
        LostMessagesError: a request returned nothing although messages are missing.
    """
    left = count
    pulled: list[list[Message]] = [[] for _ in links]

    async def worker(pull_many: Callable[[int], Awaitable[list[Message]]], mine: list[Message]) -> None:
        nonlocal left
        while left > 0:
            wanted = min(batch, left)
            left -= wanted
            messages = await pull_many(wanted)
            if not messages:
                raise LostMessagesError(f"a pull of {wanted} messages returned nothing")
            left += wanted - len(messages)
            mine.extend(messages)

    async with first_error_group() as group:
        for link, mine in zip(links, pulled, strict=True):
            assert link.pull_many is not None
            for _ in range(in_flight):
                group.create_task(worker(link.pull_many, mine))
    return pulled


def in_batches(items: Sequence[T], batch: int) -> list[list[T]]:
    """Yield the items in lists of `batch`, the last one perhaps shorter."""
    return [list(items[start : start + batch]) for start in range(0, len(items), batch)]
