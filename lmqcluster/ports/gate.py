"""The bounds of one port: how many connections, how many of strangers and for how long, and what is held for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import structlog

from .clients import BURST_S, Client, client_of
from .memory import Memory
from .notes import Notes
from .place import Ending, Place

__all__ = ["AUTHENTICATION_S", "STRANGERS_MAX", "Bounds", "Gate"]

log = structlog.get_logger("lmq.ports")

STRANGERS_MAX = 1024
AUTHENTICATION_S = 10.0
"""How long a client may take to say who it is, the TLS handshake included."""
SWEEP_S = 0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a port takes.

    Attributes:
        connections: in all.
        per_client: of one client.
        requests_per_s: of one client; 0 for any number.
        authentication_s: how long strangers may stay.
        spare: connections beyond these bounds, of one client or of all, for requests that must be answered all the same.
    """

    connections: int
    per_client: int
    requests_per_s: int = 0
    authentication_s: float = AUTHENTICATION_S
    spare: int = 0

    @property
    def strangers(self) -> int:
        """Connections that have not authenticated."""
        return max(1, min(STRANGERS_MAX, self.connections // 2))


class Gate:
    """Counts the connections of a port from their acceptance on.

    When a bound is reached, the oldest stranger goes: first one of the same client, else of the client that has most of them. So
    those who say who they are get in, however many say nothing. Only where there is no stranger is the new connection refused.

    Attributes:
        bounds: what it keeps.
        memory: the budget of the node.
        connections: how many are open.
        strangers: those that have not authenticated, the oldest first.
    """

    def __init__(self, port: str, bounds: Bounds, memory: Memory, must_authenticate: Callable[[object], bool]) -> None:
        """Take the bounds.

        Args:
            port: its name for people.
            bounds: what it keeps.
            memory: the budget of the node.
            must_authenticate: whether a client at this address has to show who it is before it is served.
        """
        self.port = port
        self.bounds = bounds
        self.memory = memory
        self.connections = 0
        self.strangers: dict[Place, None] = {}
        self._known: dict[Place, None] = {}
        self._must_authenticate = must_authenticate
        self._notes = Notes(port)
        self._clients: dict[str, Client] = {}
        self._crowd: dict[Client, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def endings(self) -> dict[Ending, int]:
        """Connections that were ended or not taken since the start, by reason."""
        return self._notes.totals

    # --- coming and going -----------------------------------------------------------------------------------------

    def enter(self, address: object) -> Place | None:
        """A connection was accepted: its place, or None if it is to be closed at once."""
        loop = asyncio.get_running_loop()
        name = client_of(address)
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(name, self.bounds.requests_per_s)
        refused = self._clear_way(client)
        if refused is not None:
            self.note(client, refused, "")
            self._forget_later(client)
            return None
        place = Place(self, client, address, loop.time())
        self.connections += 1
        client.connections += 1
        self.strangers[place] = None
        client.strangers[place] = None
        self._crowd[client] = None
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_S, self._sweep)
        return place

    def _clear_way(self, client: Client) -> Ending | None:
        """Make sure that one more connection of this client keeps the bounds; why it does not, if it cannot."""
        bounds = self.bounds
        if client.connections >= bounds.per_client + bounds.spare and not self._end_oldest(client, Ending.CLIENT_FULL):
            return Ending.CLIENT_FULL
        if self.connections >= bounds.connections + bounds.spare and not self._end_oldest(
            self._worst(), Ending.PORT_FULL
        ):
            return Ending.PORT_FULL
        if len(self.strangers) >= bounds.strangers:
            self._end_oldest(self._worst(), Ending.STRANGERS_FULL)
        return None

    def _worst(self) -> Client | None:
        """The client with most strangers; of several the one that came first."""
        return max(self._crowd, key=lambda client: len(client.strangers), default=None)

    def _end_oldest(self, client: Client | None, ending: Ending) -> bool:
        if client is None or not client.strangers:
            return False
        oldest = next(iter(client.strangers))
        oldest.note(ending)
        oldest.end()
        return True

    def places(self) -> Iterator[Place]:
        """All connections that are open, strangers first."""
        return chain(self.strangers, self._known)

    def admit(self, place: Place, *, spare: bool = False) -> bool:
        """A client has said who it is; False if its connection is beyond the bounds, and it may not take a spare one."""
        full = self._full(place.client) if self.bounds.spare else None
        place.is_spare = full is not None
        if full is not None and not spare:
            place.note(full)
            return False
        self._no_stranger(place)
        held = place.held_bytes
        self.memory.add(place, -held)
        place.is_known = True
        self._known[place] = None
        self.memory.add(place, held)
        return True

    def _full(self, client: Client) -> Ending | None:
        """Which bound does not allow one more known connection of this client; None if all do."""
        if client.connections - len(client.strangers) >= self.bounds.per_client:
            return Ending.CLIENT_FULL
        return Ending.PORT_FULL if len(self._known) >= self.bounds.connections else None

    def leave(self, place: Place) -> None:
        """A connection has ended."""
        self._no_stranger(place)
        self._known.pop(place, None)
        self.memory.add(place, -place.held_bytes)
        place.is_over = True
        client = place.client
        client.connections -= 1
        self.connections -= 1
        self._forget_later(client)

    def _no_stranger(self, place: Place) -> None:
        if not place.is_known:
            client = place.client
            del self.strangers[place], client.strangers[place]
            if not client.strangers:
                del self._crowd[client]

    def _forget_later(self, client: Client) -> None:
        if not client.connections:
            # Only when it may send as much as at first: reconnecting must not give a client more than its share.
            asyncio.get_running_loop().call_later(BURST_S, self._forget, client)

    def _forget(self, client: Client) -> None:
        if not client.connections and self._clients.get(client.name) is client:
            del self._clients[client.name]

    # --- memory and time ------------------------------------------------------------------------------------------

    def make_room(self, place: Place, more: int) -> bool:
        """Whether a connection may hold so many bytes more. Of strangers the one goes for whom most is held."""
        memory = self.memory
        while not memory.has_room(place, more):
            if place.is_known:
                return False
            largest = max(self.strangers, key=lambda stranger: stranger.held_bytes)
            if largest is place or largest.held_bytes == 0:
                return False
            largest.note(Ending.MEMORY)
            largest.end()
        return True

    def note(self, client: Client, ending: Ending, reason: str) -> None:
        """Count that a connection was ended or not taken, and say so if nothing was said of this client for a minute."""
        self._notes.take(client.name, ending, reason, asyncio.get_running_loop().time())

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        late = now_s - self.bounds.authentication_s
        for place in list(self.strangers):
            if place.since_s > late:
                break
            if self._must_authenticate(place.address):
                place.note(Ending.NOT_AUTHENTICATED)
                place.end()
        self._notes.review(now_s)
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Look after the connections no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
