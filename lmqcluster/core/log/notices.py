"""Results of a batch for clients that wait for something other than messages. Each node picks those that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Ended", "Granted", "Notice", "Pushed"]


class Granted(NamedTuple):
    """The notice that a session in line has acquired a lock."""

    name: bytes
    session: int
    token: int


class Pushed(NamedTuple):
    """The result of a push that waited for room: flags and sequences as of any push, or a `Fault`."""

    ticket: int
    result: Any
    queue: bytes
    bodies: Sequence[bytes]


class Ended(NamedTuple):
    """The notice that a session has ended and holds nothing any more."""

    session: int


Notice = Granted | Pushed | Ended
