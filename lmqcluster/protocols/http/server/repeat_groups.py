"""Requests that connections of this process repeat. Those of a group that arrive in one turn of the event loop begin together.

A connection that a front end relays repeats its requests here once; then the front end recognizes the next ones, see
`ports.front_ends.repeats`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import structlog

from ....ports import Answer, RelayedTransport, RepeatGroup

if TYPE_CHECKING:
    from ....wire.repeats import Pattern
    from .connection import Connection

__all__ = ["RepeatGroups"]

log = structlog.get_logger(__name__)

Make = Callable[[Answer], RepeatGroup]
_TURN_BYTES: Final = 256 * 1024
"""Requests with this many bytes begin before the turn ends, so that no command of the log is large."""


class RepeatGroups:
    """The groups of one port. A group exists as long as a connection may repeat one of its requests."""

    def __init__(self) -> None:
        self._groups: WeakValueDictionary[Hashable, _TurnGroup] = WeakValueDictionary()

    def offer(self, client: Connection, operation: str, identity: Hashable, pattern: Pattern, make: Make) -> None:
        """Permit a connection to repeat its last request.

        Args:
            client: the connection.
            operation: what the request does; of each operation, a connection repeats the last request.
            identity: equal for the requests of a group.
            pattern: recognizes the repetitions.
            make: makes the group of the identity if there is none.
        """
        group = self._groups.get(identity)
        if group is None:
            self._groups[identity] = group = _TurnGroup(make)
        client.remember(_GroupedRepeat(client, identity, pattern, group), operation)


class _TurnGroup:
    """The requests of a group that have arrived in this turn of the event loop."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self._group = make(_answer)
        self._loop = asyncio.get_running_loop()
        self._connections: list[Connection] = []
        self._bodies: list[Any] = []
        self._size_bytes = 0

    def add(self, connection: Connection, body: object, size_bytes: int) -> None:
        """Begin a request at the end of this turn."""
        if not self._connections:
            self._loop.call_soon(self._start)
        self._connections.append(connection)
        self._bodies.append(body)
        self._size_bytes += size_bytes
        if self._size_bytes >= _TURN_BYTES:
            self._start()

    def _start(self) -> None:
        connections, bodies = self._connections, self._bodies
        self._connections, self._bodies, self._size_bytes = [], [], 0
        if not connections:
            return
        try:
            has_begun = self._group.start(connections, bodies)
        except Exception:
            # Their clients would wait for answers.
            log.exception("repeated requests failed")
            for connection in connections:
                connection.force_close()
            return
        if not has_begun:
            _for_each(connections, lambda connection: connection.repeat_in_full())


class _GroupedRepeat:
    """A request that its connection may repeat (`Repeat`)."""

    __slots__ = ("_answered", "_client", "_group", "_identity", "_pattern", "_relayed")

    def __init__(self, client: Connection, identity: Hashable, pattern: Pattern, group: _TurnGroup) -> None:
        self._client = client
        self._identity = identity
        self._pattern = pattern
        self._group = group
        self._relayed = client.transport if isinstance(client.transport, RelayedTransport) else None
        self._answered = 0

    def start(self, data: bytes) -> bool:
        found = self._pattern.match(data)
        if found is None:
            return False
        self._group.add(self._client, found[1], len(data))
        if self._relayed is not None:
            self._offer(self._relayed)
        return True

    def _offer(self, transport: RelayedTransport) -> None:
        # Another operation of the client ends its repetitions at the front end, so the next one must be likely.
        if self._answered == self._client.answered:
            transport.offer_repeat(self._identity, self._pattern, self._group.make)
        self._answered = self._client.answered + 1

    def cancel(self) -> None:
        """Do nothing: what has begun goes on without its client."""


def _answer(connections: list[Connection], before: bytes, after: bytes) -> None:
    content = before + after
    _for_each(connections, lambda connection: connection.answer_repetition(content))


def _for_each(connections: list[Connection], act: Callable[[Connection], None]) -> None:
    """Act on each connection. One that fails is closed, and does not keep the others from their answers."""
    for connection in connections:
        try:
            act(connection)
        except Exception:
            log.exception("connection failed")
            connection.force_close()
