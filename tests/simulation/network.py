"""The simulated network: paths between machines, and the connections that processes open over them.

A connection has generations; data of a generation arrives in order, and is lost when it breaks. Each side notices
the break at its own time. A blocked path delays data, as TCP does when packets are dropped, until it opens again or
until the connection is closed after `IDLE_LIMIT_S`.

Either one connection serves a pair in both directions (PySyncObj's own transport), or each side opens a connection
to send on (lmqcluster's). In the second case, data that a process sent shortly before it died may still arrive after
its successor has connected, until the successor's first message supersedes it.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.simulation.clock import Clock

__all__ = ["IDLE_LIMIT_S", "Connection", "Endpoint", "Network", "Path"]

IDLE_LIMIT_S = 4.0
"""A connection without traffic is closed after this time."""

RETRY_S = (0.1, 0.5)
"""Range of the pause between two attempts to connect."""


class Endpoint(Protocol):
    """One node as the network sees it. While it is paused, the endpoint may queue the network's calls."""

    id: str

    def dials(self, peer: str) -> bool:
        """Return whether the process wants a connection with `peer` and believes that it has none."""

    def accepts(self, peer: str) -> bool:
        """Return whether the process would accept `peer`'s connection."""

    def session(self, peer: str) -> int | None:
        """Return the generation on which this side believes that it can send to `peer`."""

    def arrived(self, peer: str, generation: int, message: Any) -> None: ...

    def connected(self, peer: str, generation: int) -> None: ...

    def disconnected(self, peer: str, generation: int) -> None: ...


class Path:
    """One direction between two machines. Random draws of one path do not depend on events on another."""

    __slots__ = ("blocked", "delay_s", "rng")

    def __init__(self, delay_s: tuple[float, float], seed: str) -> None:
        self.delay_s = delay_s
        self.blocked = False
        self.rng = random.Random(seed)


class _Stream:
    """One direction of a connection; keeps data in order."""

    __slots__ = ("connection", "held", "last_arrival", "path", "receiver", "sender")

    def __init__(self, connection: Connection, sender: Endpoint, receiver: Endpoint, path: Path) -> None:
        self.connection = connection
        self.sender = sender
        self.receiver = receiver
        self.path = path
        self.last_arrival = 0.0
        self.held: deque[tuple[int, Any]] = deque()


class Connection:
    """`generation` is None while disconnected; `lingering` are broken generations whose data is still in flight."""

    __slots__ = ("dialer", "forbidden", "generation", "lingering", "listener", "lossless", "rng", "streams", "two_way")

    def __init__(self, dialer: Endpoint, listener: Endpoint, *, two_way: bool, seed: str) -> None:
        self.dialer = dialer
        self.listener = listener
        self.two_way = two_way
        self.generation: int | None = None
        self.lingering: set[int] = set()
        self.forbidden = False
        self.lossless = False
        self.rng = random.Random(seed)
        self.streams: list[_Stream] = []


class Network:
    """All paths and connections. The nemesis uses `cut`, `join`, `block`, `unblock`, `slow`, `break_off`, `expire`."""

    def __init__(self, clock: Clock, seed: int, delay_s: tuple[float, float], *, shared_connections: bool) -> None:
        self._clock = clock
        self._seed = seed
        self._delay_s = delay_s
        self._shared = shared_connections
        self._endpoints: list[Endpoint] = []
        self._paths: dict[tuple[str, str], Path] = {}
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._connections: dict[frozenset[str], list[Connection]] = {}
        self._generations = 0
        self.messages_sent = 0

    def attach(self, endpoint: Endpoint) -> None:
        """Add an endpoint and connect it with every other one."""
        for other in self._endpoints:
            low, high = sorted((other, endpoint), key=lambda each: each.id)
            for sender, receiver in ((low, high), (high, low)):
                self._paths[sender.id, receiver.id] = Path(self._delay_s, f"{self._seed}:{sender.id}>{receiver.id}")
            # The higher id dials if one connection serves both, as in the library.
            pairs = [(high, low)] if self._shared else [(high, low), (low, high)]
            connections = [self._connection(dialer, listener) for dialer, listener in pairs]
            self._connections[frozenset((low.id, high.id))] = connections
        self._endpoints.append(endpoint)

    def _connection(self, dialer: Endpoint, listener: Endpoint) -> Connection:
        seed = f"{self._seed}:{dialer.id}-{listener.id}"
        connection = Connection(dialer, listener, two_way=self._shared, seed=seed)
        ways = [(dialer, listener), (listener, dialer)] if self._shared else [(dialer, listener)]
        for sender, receiver in ways:
            stream = _Stream(connection, sender, receiver, self._paths[sender.id, receiver.id])
            connection.streams.append(stream)
            self._streams[sender.id, receiver.id] = stream
        self._clock.after(connection.rng.uniform(0.0, RETRY_S[0]), self._dial, connection)
        return connection

    def send(self, sender: str, receiver: str, message: Any) -> bool:
        """Return False if the sender knows that it has no connection. True guarantees nothing."""
        stream = self._streams.get((sender, receiver))
        if stream is None:
            return False
        generation = stream.sender.session(receiver)
        if generation is None:
            return False
        self.messages_sent += 1
        if generation != stream.connection.generation:
            return True  # The connection is dead, but this side has not noticed it yet.
        low, high = stream.path.delay_s
        arrival = max(self._clock.now + low + (high - low) * stream.path.rng.random(), stream.last_arrival)
        stream.last_arrival = arrival
        self._clock.at(arrival, self._arrive, stream, generation, message)
        return True

    def _arrive(self, stream: _Stream, generation: int, message: Any) -> None:
        connection = stream.connection
        if generation != connection.generation and generation not in connection.lingering:
            return
        if stream.path.blocked:
            stream.held.append((generation, message))
        else:
            stream.receiver.arrived(stream.sender.id, generation, message)

    def _dial(self, connection: Connection) -> None:
        """Try to connect, repeatedly and without end."""
        self._clock.after(connection.rng.uniform(*RETRY_S), self._dial, connection)
        dialer, listener = connection.dialer, connection.listener
        if connection.forbidden or connection.generation is not None or not dialer.dials(listener.id):
            return
        if self.path(dialer.id, listener.id).blocked or self.path(listener.id, dialer.id).blocked:
            return
        if not listener.accepts(dialer.id):
            return
        self._generations += 1
        connection.generation = self._generations
        for stream in connection.streams:
            if not connection.lingering:
                stream.held.clear()
                stream.last_arrival = self._clock.now
            stream.sender.connected(stream.receiver.id, self._generations)

    def others(self, endpoint_id: str) -> list[str]:
        return [endpoint.id for endpoint in self._endpoints if endpoint.id != endpoint_id]

    def path(self, sender: str, receiver: str) -> Path:
        return self._paths[sender, receiver]

    def connections(self, one: str, other: str) -> list[Connection]:
        return self._connections[frozenset((one, other))]

    def _hang_up(self, connection: Connection, notice_s: tuple[float, float], *, linger: bool = False) -> None:
        generation = connection.generation
        if generation is None:
            return
        connection.generation = None
        connection.lingering = {generation} if linger else set()
        for stream in connection.streams:
            delay_s = connection.rng.uniform(*notice_s)
            self._clock.after(delay_s, stream.sender.disconnected, stream.receiver.id, generation)

    def close(self, closer: str, peer: str, *, notice_s: tuple[float, float]) -> None:
        """Close the connections of `closer` with `peer`, because it chose to or its process died.

        Data that it sent on its own connection is in its kernel's buffers and may still arrive.
        """
        for connection in self.connections(closer, peer):
            own = not self._shared and connection.dialer.id == closer
            linger = own and (connection.lossless or connection.rng.random() < 0.7)
            if not own:
                # The process that died first has no successor that could read what was sent to it.
                connection.lingering = set()
            self._hang_up(connection, notice_s, linger=linger)

    def break_off(self, one: str, other: str, *, notice_s: tuple[float, float]) -> None:
        """Reset the pair's connections; data in flight is lost."""
        for connection in self.connections(one, other):
            connection.lingering = set()
            self._hang_up(connection, notice_s)

    def cut(self, one: str, other: str, *, notice_s: tuple[float, float]) -> None:
        """Break the pair's connections and allow no new one until `join`."""
        for connection in self.connections(one, other):
            connection.forbidden = True
        self.break_off(one, other, notice_s=notice_s)

    def join(self, one: str, other: str) -> None:
        for connection in self.connections(one, other):
            connection.forbidden = False

    def forbid(self, dialer: str, listener: str) -> None:
        """Reset the connections that `dialer` opened to `listener` and allow no new ones until `join`."""
        for connection in self.connections(dialer, listener):
            if connection.dialer.id == dialer:
                connection.forbidden = True
                self._hang_up(connection, (0.0, 0.0))

    def keep_in_flight(self, sender: str, receiver: str) -> None:
        """Deliver what `sender` has sent on its own connection even if its process dies now."""
        for connection in self.connections(sender, receiver):
            connection.lossless = connection.lossless or connection.dialer.id == sender

    def generations(self, one: str, other: str) -> list[int | None]:
        """Return the current state of the pair's connections, for `expire`."""
        return [connection.generation for connection in self.connections(one, other)]

    def expire(self, one: str, other: str, generations: list[int | None]) -> None:
        """Close the connections that are still of `generations`, on both sides."""
        for connection, generation in zip(self.connections(one, other), generations, strict=True):
            if generation == connection.generation:
                self._hang_up(connection, (0.0, 1.0))

    def block(self, sender: str, receiver: str) -> None:
        """Block one direction. Without confirmations the other direction is closed too if the block lasts too long."""
        path = self.path(sender, receiver)
        if not path.blocked:
            path.blocked = True
            generations = self.generations(sender, receiver)
            self._clock.after(IDLE_LIMIT_S, self._give_up, sender, receiver, generations)

    def _give_up(self, sender: str, receiver: str, generations: list[int | None]) -> None:
        if self.path(sender, receiver).blocked:
            self.expire(sender, receiver, generations)

    def unblock(self, sender: str, receiver: str) -> None:
        """Deliver the delayed data at once, in order."""
        self.path(sender, receiver).blocked = False
        stream = self._streams[sender, receiver]
        while stream.held:
            self._arrive(stream, *stream.held.popleft())

    def slow(self, sender: str, receiver: str, delay_s: tuple[float, float]) -> None:
        self.path(sender, receiver).delay_s = delay_s

    def heal(self) -> None:
        """Remove all cuts and blocks and restore the initial delays."""
        for connections in self._connections.values():
            for connection in connections:
                connection.forbidden = False
        for (sender, receiver), path in self._paths.items():
            path.delay_s = self._delay_s
            self.unblock(sender, receiver)
