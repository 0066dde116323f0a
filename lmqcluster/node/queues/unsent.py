"""Ways to treat deliveries that do not reach the client that asked for them."""

from __future__ import annotations

from enum import Enum, auto

from ...core import Op
from ...core.command_layout import OP
from ...core.commands import Command

__all__ = ["Unsent", "unsent_in_session", "unsent_of"]

_CHARGE = 5
_KNOWN = 6


class Unsent(Enum):
    """The ways.

    Attributes:
        PUT_BACK: they return to their places, and the deliveries that they used up are restored.
        GIVE_BACK: they return to their places; they have used up nothing.
        KEEP: their session holds them, and the client's next pull returns them. Another pull of the session may have sent them
            already, so that to return them would take them from the client.
    """

    PUT_BACK = auto()
    GIVE_BACK = auto()
    KEEP = auto()


def unsent_in_session(charge: int, known: int) -> Unsent:
    """Return the way for a pull in a session, see `Op.PULL_IN_SESSION`."""
    if known >= 0:
        return Unsent.KEEP
    return Unsent.PUT_BACK if charge else Unsent.GIVE_BACK


def unsent_of(command: Command) -> Unsent:
    """Return the way for a pull."""
    if command[OP] != Op.PULL_IN_SESSION:
        return Unsent.PUT_BACK
    return unsent_in_session(command[_CHARGE], command[_KNOWN])
