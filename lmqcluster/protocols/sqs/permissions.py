"""The permission that each action requires of clients with a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...core import Role
from ...node.access.permissions import LOOK, LOOK_AT_QUEUE, MANAGE_QUEUE, USE, Permission, Scope

__all__ = ["PERMISSIONS"]

PERMISSIONS: Final[Mapping[str, Permission]] = {
    "ListQueues": LOOK,
    **dict.fromkeys(("GetQueueUrl", "GetQueueAttributes", "ListQueueTags"), LOOK_AT_QUEUE),
    **dict.fromkeys(("ListDeadLetterSourceQueues", "ListMessageMoveTasks"), LOOK_AT_QUEUE),
    **dict.fromkeys(("CreateQueue", "SetQueueAttributes", "TagQueue", "UntagQueue"), USE),
    **dict.fromkeys(("SendMessage", "SendMessageBatch", "ReceiveMessage"), USE),
    **dict.fromkeys(("DeleteMessage", "DeleteMessageBatch"), USE),
    **dict.fromkeys(("ChangeMessageVisibility", "ChangeMessageVisibilityBatch"), USE),
    **dict.fromkeys(("DeleteQueue", "PurgeQueue", "StartMessageMoveTask"), MANAGE_QUEUE),
    # The handle of a task names its queue, which the action checks.
    "CancelMessageMoveTask": Permission(Role.ADMIN, Scope.ANYTHING),
    **dict.fromkeys(("AddPermission", "RemovePermission"), MANAGE_QUEUE),
}
"""Permissions by action."""
