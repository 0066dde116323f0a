"""Who is connected to this node, what pulls wait for here, and who holds what was delivered here, in pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from ...ports import ConnectionLimiter, ConnectionSlot
from ..queues.pulls.holders import Holding
from ..queues.pulls.pulls import Pulls
from ..queues.pulls.wait_lists import PatternWaitList, WaitList

__all__ = ["PAGE_MAX", "Connected", "Held", "Waiting", "connections", "held", "waiting"]

PAGE_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection of a client.

    Attributes:
        port: which port it came to.
        address: host and port of the client.
        user: name of the token that it has shown; empty while it has shown none.
        age_s: since it was accepted.
        held_bytes: what it counts in the memory budget.
    """

    port: str
    address: str
    user: str
    age_s: float
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pulls that wait for the same.

    Attributes:
        name: a queue, or a regular expression for the names of queues.
        is_pattern: which of the two.
        pulls: how many wait.
        messages: how many messages they want at most.
    """

    name: bytes
    is_pattern: bool
    pulls: int
    messages: int


@dataclass(frozen=True, slots=True)
class Held:
    """Messages of a queue that a connection holds under lease.

    Attributes:
        queue: name of the queue.
        port, address, user: as of `Connected`.
        connected: whether the connection is still there. The leases stay without it.
        leased: how many messages.
        ends_in_s: after how many seconds the first of the leases ends, 0 if it is over; None if they end with a session.
    """

    queue: bytes
    port: str
    address: str
    user: str
    connected: bool
    leased: int
    ends_in_s: float | None


def connections(
    gates: Iterable[ConnectionLimiter], now_s: float, *, offset: int, limit: int
) -> tuple[list[Connected], int]:
    """A page of the connections of clients, and how many there are; `now_s` is the event loop's time.

    They stand port by port; those that have not said who they are come first.
    """
    listed = [gate for gate in gates if gate.connections]
    places = chain.from_iterable(((gate.port, place) for place in gate.slots()) for gate in listed)
    rows = [
        Connected(port, _address(place), place.user, now_s - place.since_s, place.held_bytes)
        for port, place in islice(places, offset, offset + limit)
    ]
    return rows, sum(gate.connections for gate in listed)


def _address(place: ConnectionSlot) -> str:
    address = place.address
    if not isinstance(address, tuple) or len(address) < 2:
        return "?"
    return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"


def waiting(pulls: Pulls, *, offset: int, limit: int) -> tuple[list[Waiting], int]:
    """A page of what pulls wait for at this node, and how long the list is."""
    lines = [line for line in pulls.lines() if line.live]
    return [_row(line) for line in lines[offset : offset + limit]], len(lines)


def _row(line: WaitList) -> Waiting:
    return Waiting(line.key, isinstance(line, PatternWaitList), line.live, line.wanted)


def held(holdings: list[Holding], now_us: int, *, offset: int, limit: int) -> list[Held]:
    """A page of what connections hold; `now_us` is the log time."""
    return [
        Held(
            one.queue,
            one.place.port,
            _address(one.place),
            one.place.user,
            not one.place.is_released,
            one.leased,
            None if one.ends_us is None else max(0, one.ends_us - now_us) / 1e6,
        )
        for one in holdings[offset : offset + limit]
    ]
