"""Ways to treat deliveries that do not reach the client that asked for them."""

from __future__ import annotations

from enum import Enum, auto

from ....core.log.command_layout import charge_and_known
from ....core.log.commands import Command

__all__ = ["Unsent", "unsent_in_session", "unsent_of"]


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
    """Return the way for a pull with this charge, whose client has received this delivery last (-1: it does not say)."""
    if known >= 0:
        return Unsent.KEEP
    return Unsent.PUT_BACK if charge else Unsent.GIVE_BACK


def unsent_of(command: Command) -> Unsent:
    """Return the way for a pull."""
    return unsent_in_session(*charge_and_known(command))
