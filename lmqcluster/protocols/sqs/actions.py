"""All actions by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import UNSUPPORTED, SqsError
from .policy_actions import PolicyActions
from .queue_actions import QueueActions
from .receive_actions import ReceiveActions
from .send_actions import SendActions
from .shapes import SHAPES

if TYPE_CHECKING:
    from .call import Action, Call, Tools
    from .rendering import Output

__all__ = ["actions_of"]


def actions_of(tools: Tools) -> Mapping[str, Action]:
    """Return the actions."""
    table = {
        **QueueActions(tools).table(),
        **SendActions(tools).table(),
        **ReceiveActions(tools).table(),
        **PolicyActions(tools).table(),
    }
    return {name: table.get(name, _unsupported) for name in SHAPES}


async def _unsupported(call: Call) -> Output:
    raise SqsError(UNSUPPORTED, f"{call.action} is not supported.")
