"""The shapes of the results of commands."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from ..messages.message import Message

__all__ = [
    "Delivered",
    "Fault",
    "IncompatibleVersionError",
    "PushFlag",
    "Refusal",
    "RefusedError",
    "TagState",
    "Updated",
    "shown",
]

Delivered = tuple[bytes, int, int, "Message"]
"""Queue name, delivery number, deliveries that remain after this one, message."""


class PushFlag(IntFlag):
    """The outcome of a pushed message."""

    STORED = 0
    WINDOW_OPENED = 1
    WINDOW_JOINED = 2
    REPLAYED = 4  # added to the flag of the push that first used the key; nothing was stored
    FULL = 8  # not stored: the queue is full
    OVERSIZED = 16  # not stored: the body exceeds the queue's limit


class Refusal(int):
    """The flag of a message that is not stored, `FULL` or `OVERSIZED`, with the reason for its producer."""

    reason: str

    def __new__(cls, flag: PushFlag, reason: str) -> Self:
        """Return the flag with a reason."""
        refusal = super().__new__(cls, flag)
        refusal.reason = reason
        return refusal

    @property
    def code(self) -> str:
        """Return the error code for clients."""
        return "too_large" if self & PushFlag.OVERSIZED else "full"


class TagState(IntEnum):
    """State of the tag in a request that names a polled message. Only a request with a valid tag is carried out."""

    GONE = 0  # the message is not in the queue
    VALID = 1
    EXPIRED = 2  # the message is of an ordered group, and the time for which it was hidden is over
    OUTDATED = 3  # the message was delivered, or hidden again, under another tag since


class Updated(NamedTuple):
    """The result of hiding a polled message again.

    Attributes:
        state: state of the tag that was named.
        number: the number from which the tag derives that it has from now on; 0 if it was not hidden.
    """

    state: TagState
    number: int = 0


class Fault(NamedTuple):
    """The result of a command that could not be carried out.

    Attributes:
        code: the error code for clients if the command was understood and refused, with nothing of it applied; empty
            if the command is broken, in which case its effect is undefined.
    """

    reason: str
    code: str = ""


class RefusedError(Exception):
    """Raised by a command before it has changed anything; its result is a `Fault` with this code and reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def shown(name: bytes) -> str:
    """Return a name as error texts quote it."""
    return repr(name.decode("utf-8", "backslashreplace"))


class IncompatibleVersionError(RuntimeError):
    """The log requires a machine version that this program does not have.

    Apart from running out of memory and losing a page, the one error that applying a batch raises: a replica that
    continued would diverge from those that understood the command.
    """
