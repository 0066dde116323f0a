"""Treatment of deliveries that do not reach the client that asked for them."""

from __future__ import annotations

from enum import Enum, auto

from ....core.log.commands import PullInSession
from .pull_options import AnyPull

__all__ = ["Unsent", "unsent_in_session", "unsent_of"]


class Unsent(Enum):
    """The treatments.

    Attributes:
        UNDO: they return to their places, and the deliveries that they used up are restored.
        NACK: they return to their places; they have used up no delivery.
        KEEP: their session holds them, and the client's next pull returns them. Another pull of the session may already
            have sent them, so returning them would take them from the client.
    """

    UNDO = auto()
    NACK = auto()
    KEEP = auto()


def unsent_in_session(charge: int, known: int) -> Unsent:
    """Return the treatment for a pull with this charge.

    `known` is the last delivery that its client has received, -1 if the client does not give it.
    """
    if known >= 0:
        return Unsent.KEEP
    return Unsent.UNDO if charge else Unsent.NACK


def unsent_of(command: AnyPull) -> Unsent:
    """Return the treatment for a pull command."""
    if isinstance(command, PullInSession):
        return unsent_in_session(command.charge, command.known)
    return Unsent.UNDO
