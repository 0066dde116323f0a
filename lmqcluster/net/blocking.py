"""Look-ups and connections for callers without an event loop. Does not import asyncio, so that programs start fast."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Final

from .race import Race
from .resolver import LOOKUP_S, RESOLVER, Addresses, Resolver

__all__ = ["connect", "find"]

_SLICE_S: Final = 0.05
"""How often a connecting caller checks whether the look-up is complete."""


def find(host: str, timeout_s: float = LOOKUP_S, *, resolver: Resolver = RESOLVER) -> Addresses:
    """Return the addresses of a host; the last known ones if the name server does not answer.

    Raises:
        OSError: the host has no address, or no answer arrived in time (a `TimeoutError`).
    """
    lookup = resolver.look_up(host)
    with contextlib.suppress(TimeoutError):
        lookup.answer.result(lookup.wait_s(timeout_s))
    return lookup.result(timeout_s)


def connect(
    host: str,
    port: int,
    *,
    timeout_s: float,
    lookup_s: float = LOOKUP_S,
    attempt: int = 0,
    resolver: Resolver = RESOLVER,
) -> socket.socket:
    """Connect to a host; the socket blocks, for up to `timeout_s`.

    Args:
        host: a name or a numeric address.
        port: the port.
        timeout_s: how long connecting may take once an address is known.
        lookup_s: how long the look-up may take.
        attempt: number of earlier attempts that failed; each attempt starts with another address.
        resolver: looks up the name.

    Raises:
        OSError: the host cannot be reached; a `TimeoutError` if the look-up or the connection timed out.
    """
    with Race(resolver.look_up(host), port, timeout_s, lookup_s, attempt) as race:
        while (winner := race.winner(time.monotonic())) is None:
            _wait(race, race.wait_s(time.monotonic()))
    winner.settimeout(timeout_s)
    return winner


def _wait(race: Race, wait_s: float) -> None:
    numbers = race.numbers()
    if not numbers:
        with contextlib.suppress(TimeoutError):
            race.lookup.answer.result(wait_s)
        return
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLOUT)
    poll.poll(1000 * (wait_s if race.lookup.answer.done() else min(wait_s, _SLICE_S)))
