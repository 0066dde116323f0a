"""All actions by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .move_actions import MoveActions
from .policy_actions import PolicyActions
from .queue_actions import QueueActions
from .receive_actions import ReceiveActions
from .send_actions import SendActions

if TYPE_CHECKING:
    from .call import Action, Tools

__all__ = ["actions_of"]


def actions_of(tools: Tools) -> Mapping[str, Action]:
    """Return the actions."""
    return {
        **QueueActions(tools).table(),
        **SendActions(tools).table(),
        **ReceiveActions(tools).table(),
        **PolicyActions(tools).table(),
        **MoveActions(tools).table(),
    }
