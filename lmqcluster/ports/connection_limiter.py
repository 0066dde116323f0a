"""The limits of one port: connections, unauthenticated connections, the time to authenticate, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import structlog

from .client import BURST_S, Client, client_of
from .ending import Ending
from .memory import Memory
from .rate_limited_log import RateLimitedLog

__all__ = ["AUTHENTICATION_S", "UNAUTHENTICATED_MAX", "Bounds", "ConnectionLimiter", "ConnectionSlot"]

log = structlog.get_logger("lmq.ports")

UNAUTHENTICATED_MAX = 1024
AUTHENTICATION_S = 10.0
"""How long a client may take to authenticate, including the TLS handshake."""
SWEEP_S = 0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a port.

    Attributes:
        connections: of all clients together.
        per_client: connections of one client.
        requests_per_s: of one client; 0 is unlimited.
        authentication_s: how long a connection may stay unauthenticated.
        spare: connections beyond both limits, for requests that must be answered even if a limit is reached.
    """

    connections: int
    per_client: int
    requests_per_s: int = 0
    authentication_s: float = AUTHENTICATION_S
    spare: int = 0

    @property
    def unauthenticated(self) -> int:
        """Return the limit of unauthenticated connections."""
        return max(1, min(UNAUTHENTICATED_MAX, self.connections // 2))


class ConnectionSlot:
    """A connection from acceptance to its end, including the TLS handshake.

    Attributes:
        client: the client that opened it.
        address: the peer's socket address.
        since_s: when it was accepted, in the event loop's time.
        is_known: whether it is authenticated.
        is_released: whether it is no longer counted.
        is_spare: whether it exceeds the limits of its port and must be closed after one answer.
        held_bytes: its share of the memory budget.
        user: name of the token that it authenticated with; empty before.
        verified_digest: digest of the last password that was verified on this connection.
    """

    __slots__ = (
        "__weakref__",
        "_end",
        "_gate",
        "address",
        "client",
        "held_bytes",
        "is_known",
        "is_released",
        "is_spare",
        "since_s",
        "user",
        "verified_digest",
    )  # fmt: skip

    def __init__(self, gate: ConnectionLimiter, client: Client, address: object, since_s: float) -> None:
        self.client = client
        self.address = address
        self.since_s = since_s
        self.is_known = self.is_spare = False
        self.held_bytes = 0
        self.user = ""
        self.verified_digest = b""
        self._gate = gate
        self.is_released = False
        self._end: Callable[[], object] | None = None

    @property
    def port(self) -> str:
        """Return the name of the port."""
        return self._gate.port

    @property
    def known_client(self) -> Client | None:
        """Return the client, None before it has authenticated on this connection."""
        return self.client if self.is_known else None

    @property
    def is_port_crowded(self) -> bool:
        """Return whether the port has few places left."""
        return self._gate.is_crowded

    def set_abort(self, end: Callable[[], object]) -> None:
        """Set the function that aborts the connection; the port calls it to make room."""
        self._end = end

    def admit(self, *, spare: bool = False) -> bool:
        """Mark the connection as authenticated, after a permitted request. Idempotent and cheap.

        Args:
            spare: whether the request may use a connection that the port keeps in reserve.

        Returns:
            False if the port is full; the caller must refuse the request.
        """
        return self.is_known or self.is_released or self._gate.admit(self, spare=spare)

    def hold(self, size_bytes: int, *, must: bool = False) -> bool:
        """Set the number of bytes that this connection holds; with `must`, even beyond the budget.

        Returns:
            False if the budget does not allow it; then nothing has changed and the caller must not keep the data.
        """
        more = size_bytes - self.held_bytes
        if more > 0 and not must and not self.is_released and not self._gate.make_room(self, more):
            return False
        if more and not self.is_released:
            self._gate.memory.add(self.known_client, more)
            self.held_bytes = size_bytes
        return True

    def note(self, ending: Ending, reason: str = "") -> None:
        """Count why the node closes this connection; log it at most once a minute for each client."""
        self._gate.note(self.client, ending, reason)

    def release(self) -> None:
        """Unregister the connection after it was closed. Idempotent."""
        self._end = None
        if not self.is_released:
            self._gate.leave(self)

    def abort(self) -> None:
        """Abort the connection and unregister it."""
        end = self._end
        self.release()
        if end is not None:
            end()


class ConnectionLimiter:
    """Counts the connections of a port from the moment they are accepted, and enforces the limits.

    When a limit is reached, the oldest unauthenticated connection is closed: of the same client if it has one, else of
    the client that has most. A new connection is refused only if there is no unauthenticated connection to close. So
    clients that authenticate are served however many idle connections others open.

    Attributes:
        bounds: the limits.
        memory: the memory budget of the node.
        connections: open connections.
        unauthenticated: unauthenticated connections, oldest first.
    """

    def __init__(self, port: str, bounds: Bounds, memory: Memory, must_authenticate: Callable[[object], bool]) -> None:
        """Set the limits.

        Args:
            port: name of the port, for people.
            bounds: the limits.
            memory: the memory budget of the node.
            must_authenticate: returns whether a client at this address must authenticate.
        """
        self.port = port
        self.bounds = bounds
        self.memory = memory
        self.connections = 0
        self.unauthenticated: dict[ConnectionSlot, None] = {}
        self._known: dict[ConnectionSlot, None] = {}
        self._must_authenticate = must_authenticate
        self._log = RateLimitedLog(port)
        self._clients: dict[str, Client] = {}
        self._unauthenticated_of: dict[Client, dict[ConnectionSlot, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def endings(self) -> dict[Ending, int]:
        """Return the number of connections closed or refused since the start, by reason."""
        return self._log.totals

    @property
    def is_crowded(self) -> bool:
        """Return whether more than three quarters of the connections are taken."""
        return 4 * self.connections > 3 * self.bounds.connections

    # --- connections -----------------------------------------------------------------------------------------------

    def enter(self, address: object) -> ConnectionSlot | None:
        """Register an accepted connection; return its slot, or None if the caller must close it at once."""
        loop = asyncio.get_running_loop()
        name = client_of(address)
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = Client(name, self.bounds.requests_per_s)
        refused = self._make_way(client)
        if refused is not None:
            self.note(client, refused, "")
            self._forget_later(client)
            return None
        slot = ConnectionSlot(self, client, address, loop.time())
        self.connections += 1
        client.connections += 1
        self.unauthenticated[slot] = None
        self._unauthenticated_of.setdefault(client, {})[slot] = None
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_S, self._sweep)
        return slot

    def _make_way(self, client: Client) -> Ending | None:
        """Make room for one more connection of this client; return the limit that prevents it, None if there is room."""
        bounds = self.bounds
        if client.connections >= bounds.per_client + bounds.spare and not self._end_oldest(client, Ending.CLIENT_FULL):
            return Ending.CLIENT_FULL
        if self.connections >= bounds.connections + bounds.spare and not self._end_oldest(
            self._worst(), Ending.PORT_FULL
        ):
            return Ending.PORT_FULL
        if len(self.unauthenticated) >= bounds.unauthenticated:
            self._end_oldest(self._worst(), Ending.UNAUTHENTICATED_FULL)
        return None

    def _worst(self) -> Client | None:
        """Return the client with most unauthenticated connections; of several, the one that came first."""
        return max(self._unauthenticated_of, key=lambda client: len(self._unauthenticated_of[client]), default=None)

    def _end_oldest(self, client: Client | None, ending: Ending) -> bool:
        if client is None or client not in self._unauthenticated_of:
            return False
        oldest = next(iter(self._unauthenticated_of[client]))
        oldest.note(ending)
        oldest.abort()
        return True

    def slots(self) -> Iterator[ConnectionSlot]:
        """Yield the slots of all open connections, unauthenticated ones first."""
        return chain(self.unauthenticated, self._known)

    def admit(self, slot: ConnectionSlot, *, spare: bool = False) -> bool:
        """Mark a connection as authenticated; return False if that exceeds a limit and it may not use a spare
        connection.
        """
        full = self._full(slot.client) if self.bounds.spare else None
        slot.is_spare = full is not None
        if full is not None and not spare:
            slot.note(full)
            return False
        self._forget_unauthenticated(slot)
        self.memory.add(None, -slot.held_bytes)
        slot.is_known = True
        self._known[slot] = None
        self.memory.add(slot.client, slot.held_bytes)
        return True

    def _full(self, client: Client) -> Ending | None:
        """Return the limit that one more authenticated connection of this client would exceed; None if there is none."""
        if client.connections - len(self._unauthenticated_of.get(client, ())) >= self.bounds.per_client:
            return Ending.CLIENT_FULL
        return Ending.PORT_FULL if len(self._known) >= self.bounds.connections else None

    def leave(self, slot: ConnectionSlot) -> None:
        """Unregister a connection that was closed."""
        self._forget_unauthenticated(slot)
        self._known.pop(slot, None)
        self.memory.add(slot.known_client, -slot.held_bytes)
        slot.is_released = True
        client = slot.client
        client.connections -= 1
        self.connections -= 1
        self._forget_later(client)

    def _forget_unauthenticated(self, slot: ConnectionSlot) -> None:
        if not slot.is_known:
            client = slot.client
            unauthenticated = self._unauthenticated_of[client]
            del self.unauthenticated[slot], unauthenticated[slot]
            if not unauthenticated:
                del self._unauthenticated_of[client]

    def _forget_later(self, client: Client) -> None:
        if not client.connections:
            # Kept until its bucket is full again: reconnecting must not give a client more than its rate.
            asyncio.get_running_loop().call_later(BURST_S, self._forget, client)

    def _forget(self, client: Client) -> None:
        if not client.connections and self._clients.get(client.name) is client:
            del self._clients[client.name]

    # --- memory and time ------------------------------------------------------------------------------------------

    def make_room(self, slot: ConnectionSlot, more: int) -> bool:
        """Make room for `more` bytes of a connection; return False if there is none.

        Closes the unauthenticated connections that hold most memory, if the budget of unauthenticated connections is
        exhausted.
        """
        memory = self.memory
        while not memory.has_room(slot.known_client, more):
            if slot.is_known:
                return False
            largest = max(self.unauthenticated, key=lambda one: one.held_bytes)
            if largest is slot or largest.held_bytes == 0:
                return False
            largest.note(Ending.MEMORY)
            largest.abort()
        return True

    def note(self, client: Client, ending: Ending, reason: str) -> None:
        """Count that a connection was closed or refused; log it at most once a minute for each client."""
        self._log.count(client.name, ending, reason, asyncio.get_running_loop().time())

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        late = now_s - self.bounds.authentication_s
        for slot in list(self.unauthenticated):
            if slot.since_s > late:
                break
            if self._must_authenticate(slot.address):
                slot.note(Ending.NOT_AUTHENTICATED)
                slot.abort()
        self._log.flush(now_s)
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """Stop the timer that closes late unauthenticated connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
