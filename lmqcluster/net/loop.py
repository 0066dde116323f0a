"""Look-ups and connections for callers on an event loop; a look-up never blocks the loop."""

from __future__ import annotations

import asyncio
import socket
import time

from .race import Race
from .resolver import LOOKUP_S, RESOLVER, Addresses, Resolver

__all__ = ["connect", "find"]


async def find(host: str, timeout_s: float = LOOKUP_S, *, resolver: Resolver = RESOLVER) -> Addresses:
    """Return the addresses of a host; the last known ones if the name server does not answer.

    Raises:
        OSError: the host has no address, or no answer arrived in time (a `TimeoutError`).
    """
    lookup = resolver.look_up(host)
    if not lookup.answer.done():
        await asyncio.wait((asyncio.wrap_future(lookup.answer),), timeout=lookup.wait_s(timeout_s))
    return lookup.result(timeout_s)


async def connect(
    host: str,
    port: int,
    *,
    timeout_s: float,
    lookup_s: float = LOOKUP_S,
    attempt: int = 0,
    resolver: Resolver = RESOLVER,
) -> socket.socket:
    """Connect to a host; the socket does not block. Arguments and errors are those of `blocking.connect`."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    with Race(resolver.look_up(host), port, timeout_s, lookup_s, attempt) as race:
        if not race.lookup.answer.done():
            asyncio.wrap_future(race.lookup.answer).add_done_callback(lambda _answer: news.set())
        while (winner := race.winner(time.monotonic())) is None:
            numbers = race.numbers()
            for number in numbers:
                loop.add_writer(number, news.set)
            try:
                await _wait(news, race.wait_s(time.monotonic()))
            finally:
                for number in numbers:
                    loop.remove_writer(number)
        return winner


async def _wait(news: asyncio.Event, wait_s: float) -> None:
    try:
        async with asyncio.timeout(wait_s):
            await news.wait()
    except TimeoutError:
        return
    news.clear()
