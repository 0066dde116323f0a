"""What a batch tells those who wait for something other than messages. Each node looks for those that it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Ended", "Granted", "Notice", "Pushed"]


class Granted(NamedTuple):
    """A session that stood in line for a lock has it now."""

    name: bytes
    session: int
    token: int


class Pushed(NamedTuple):
    """A push that waited for room has its result: flags and sequences as of any push, or a `Fault`."""

    ticket: int
    result: Any
    queue: bytes
    bodies: Sequence[bytes]


class Ended(NamedTuple):
    """A session has ended, and holds nothing any more."""

    session: int


Notice = Granted | Pushed | Ended
