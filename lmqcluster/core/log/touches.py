"""The messages that a command reads or stores, as far as the command itself shows them.

`prefetch` derives from them the pages that a batch needs, and `command_copies` the cost of applying a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Copies", "Head", "Moved", "Released", "Returned", "Tail", "Touch"]


class Head(NamedTuple):
    """Up to `most` messages that leave the head of a queue's line."""

    queue: bytes
    most: int


class Tail(NamedTuple):
    """Up to `most` messages that are stored in a queue."""

    queue: bytes
    most: int


class Copies(NamedTuple):
    """One message, of which each of these queues gets a copy."""

    queues: Sequence[bytes]


class Returned(NamedTuple):
    """Deliveries that return to their queue before their leases end."""

    queue: bytes
    numbers: Sequence[int]


class Released(NamedTuple):
    """All deliveries that a session holds."""

    session: int


class Moved(NamedTuple):
    """Up to `most` messages that go to another queue; those with `label` and with `sequences`, of those that are not None."""

    queue: bytes
    label: bytes | None
    most: int
    sequences: list[int] | None = None


Touch = Head | Tail | Copies | Returned | Released | Moved
