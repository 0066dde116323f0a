"""Pages of the connections, waiting pulls and held leases of this node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from ...ports import ConnectionLimiter, ConnectionSlot
from ..queues.pulls.holders import Holding
from ..queues.pulls.pulls import Pulls
from ..queues.pulls.wait_lists import PatternWaitList, WaitList

__all__ = ["PAGE_MAX", "Connected", "Held", "Waiting", "address_of", "connections", "held", "waiting"]

PAGE_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection of a client.

    Attributes:
        port: the port that accepted it.
        address: host and port of the client.
        user: name of the token that it presented; empty while it has presented none.
        age_s: seconds since it was accepted.
        held_bytes: bytes that it takes of the memory budget.
    """

    port: str
    address: str
    user: str
    age_s: float
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pulls that wait for the same queue or pattern.

    Attributes:
        name: a queue, or a regular expression for the names of queues.
        is_pattern: whether `name` is a regular expression.
        pulls: number of waiting pulls.
        messages: maximum number of messages that they request.
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
        port, address, user: see `Connected`.
        connected: whether the connection is still open. The leases outlive it.
        leased: number of messages.
        ends_in_s: seconds until the first lease expires, 0 if it has; None if the leases end with a session.
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
    """Return a page of the connections of clients and their total number; `now_s` is the event loop's time.

    The order is port by port, unauthenticated connections first.
    """
    listed = [gate for gate in gates if gate.connections]
    places = chain.from_iterable(((gate.port, place) for place in gate.slots()) for gate in listed)
    rows = [
        Connected(port, address_of(place), place.user, now_s - place.since_s, place.held_bytes)
        for port, place in islice(places, offset, offset + limit)
    ]
    return rows, sum(gate.connections for gate in listed)


def address_of(place: ConnectionSlot) -> str:
    """Return host and port of a client; ``?`` if they are unknown."""
    address = place.address
    if not isinstance(address, tuple) or len(address) < 2:
        return "?"
    return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"


def waiting(pulls: Pulls, *, offset: int, limit: int) -> tuple[list[Waiting], int]:
    """Return a page of the wait lists of pulls at this node, and the number of lists."""
    lines = [line for line in pulls.lines() if line.live]
    return [_row(line) for line in lines[offset : offset + limit]], len(lines)


def _row(line: WaitList) -> Waiting:
    return Waiting(line.key, isinstance(line, PatternWaitList), line.live, line.wanted)


def held(holdings: list[Holding], now_us: int, *, offset: int, limit: int) -> list[Held]:
    """Return a page of the leases that connections hold; `now_us` is the log time."""
    return [
        Held(
            one.queue,
            one.place.port,
            address_of(one.place),
            one.place.user,
            not one.place.is_released,
            one.leased,
            None if one.ends_us is None else max(0, one.ends_us - now_us) / 1e6,
        )
        for one in holdings[offset : offset + limit]
    ]
