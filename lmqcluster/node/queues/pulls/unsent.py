"""Treatment of deliveries that do not reach the client that asked for them."""

from __future__ import annotations

from enum import Enum, auto

from ....core.log.command_layout import charge_and_known
from ....core.log.commands import Command

__all__ = ["Unsent", "unsent_in_session", "unsent_of"]


class Unsent(Enum):
    """The treatments.

    Attributes:
        PUT_BACK: they return to their places, and the deliveries that they used up are restored.
        GIVE_BACK: they return to their places; they have used up no delivery.
        KEEP: their session holds them, and the client's next pull returns them. Another pull of the session may already
            have sent them, so returning them would take them from the client.
    """

    PUT_BACK = auto()
    GIVE_BACK = auto()
    KEEP = auto()


def unsent_in_session(charge: int, known: int) -> Unsent:
    """Return the treatment for a pull with this charge.

    `known` is the last delivery that its client has received, -1 if the client does not give it.
    """
    if known >= 0:
        return Unsent.KEEP
    return Unsent.PUT_BACK if charge else Unsent.GIVE_BACK


def unsent_of(command: Command) -> Unsent:
    """Return the treatment for a pull command."""
    return unsent_in_session(*charge_and_known(command))
