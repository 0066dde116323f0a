"""Look-ups and connections for callers without an event loop. Imports nothing of asyncio, so that programs start fast."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Final

from .names import LOOKUP_S, NAMES, Addresses, Names
from .race import Race

__all__ = ["connect", "find"]

_SLICE_S: Final = 0.05
"""How often a caller that is connecting looks whether the name has been looked up again."""


def find(host: str, timeout_s: float = LOOKUP_S, *, names: Names = NAMES) -> Addresses:
    """Return the addresses of a name: those that it has, or had last if the name server does not answer.

    Raises:
        OSError: the name has none, or no answer came in time (a `TimeoutError`).
    """
    lookup = names.look_up(host)
    with contextlib.suppress(TimeoutError):
        lookup.answer.result(lookup.wait_s(timeout_s))
    return lookup.result(timeout_s)


def connect(
    host: str, port: int, *, timeout_s: float, lookup_s: float = LOOKUP_S, attempt: int = 0, names: Names = NAMES
) -> socket.socket:
    """Connect to a host; the socket blocks, for up to `timeout_s`.

    Args:
        host: a name, or an address in digits.
        port: the port.
        timeout_s: how long connecting may take once an address is known.
        lookup_s: how long the look-up of the name may take.
        attempt: how often this was tried before, with connections that were of no use: each time another address comes first.
        names: looks up the name.

    Raises:
        OSError: it cannot be reached; a `TimeoutError` if no address or no connection came in time.
    """
    with Race(names.look_up(host), port, timeout_s, lookup_s, attempt) as race:
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
