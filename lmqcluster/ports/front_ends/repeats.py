"""Requests that clients of one front end repeat: the front end recognizes them, and sends those of a group together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

from ...wire.repeats import Pattern
from .channel import Channel, Operation

__all__ = ["Answer", "RepeatGroup", "Repeats"]

_ANSWERS: Final = int(Operation.ANSWERS)

Answer = Callable[[list[Any], bytes, bytes], None]
"""Answers requests of these connections with the same bytes before and after the tag of each."""


class RepeatGroup(Protocol):
    """Requests of any connections that differ only in their bodies."""

    def start(self, connections: list[Any], bodies: list[Any]) -> bool:
        """Begin a request of each connection; return False if they must be handled in full, and then begin none.

        Args:
            connections: what names each connection to `Answer`.
            bodies: what the pattern of the group has made of each request.
        """


class Repeats:
    """The groups of one front end, and which connections may repeat their requests.

    A connection may do so until anything else arrives from it.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers: dict[Hashable, int] = {}
        self._groups: dict[int, tuple[Hashable, RepeatGroup]] = {}
        # The group of each connection, and the number of connections of each group.
        self._offered: dict[int, int] = {}
        self._users: dict[int, int] = {}
        self._last_number = 0
        self._delayed: dict[int, Callable[[bytes, bytes], None]] = {}

    def offer(
        self, connection: int, identity: Hashable, pattern: Pattern, make: Callable[[Answer], RepeatGroup]
    ) -> RepeatGroup:
        """Permit a connection to repeat its last request.

        Args:
            connection: its number.
            identity: equal for the requests of a group.
            pattern: recognizes the repetitions.
            make: makes the group of the identity if there is none.
        """
        self.end(connection)
        number = self._numbers.get(identity)
        if number is None:
            self._last_number = number = self._numbers[identity] = self._last_number + 1
            self._groups[number] = identity, make(self._answer)
        self._offered[connection] = number
        self._users[number] = self._users.get(number, 0) + 1
        self._channel.send(Operation.REPEAT, connection, (number, *pattern.row()))
        return self._groups[number][1]

    def end(self, connection: int) -> None:
        """Permit a connection to repeat its request no more."""
        number = self._offered.pop(connection, None)
        if number is not None:
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number]
                identity, _group = self._groups.pop(number)
                del self._numbers[identity]

    def received(self, number: int, connections: list[int], bodies: list[Any]) -> None:
        """Begin repeated requests. Those that are not valid any more come again as data."""
        offered = self._offered
        if any(offered.get(connection) != number for connection in connections):
            ended = [connection for connection in connections if offered.get(connection) != number]
            self._channel.send(Operation.IN_FULL, 0, ended)
            valid = [pair for pair in zip(connections, bodies, strict=True) if offered.get(pair[0]) == number]
            connections, bodies = [pair[0] for pair in valid], [pair[1] for pair in valid]
        if connections and not self._groups[number][1].start(connections, bodies):
            self._channel.send(Operation.IN_FULL, 0, connections)

    def delay(self, connection: int, answer: Callable[[bytes, bytes], None] | None) -> None:
        """Give the answers of a connection to `answer`, because other bytes go first; to the front end again if it is None."""
        if answer is None:
            self._delayed.pop(connection, None)
        else:
            self._delayed[connection] = answer

    def _answer(self, connections: list[int], before: bytes, after: bytes) -> None:
        if self._delayed:
            for connection in connections:
                if connection in self._delayed:
                    self._delayed[connection](before, after)
            connections = [connection for connection in connections if connection not in self._delayed]
            if not connections:
                return
        self._channel.send(_ANSWERS, 0, (connections, before, after))
