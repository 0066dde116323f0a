"""What every route asks of a client: of one with a token, and of one with an API key.

A route that is missing here is the administrators'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...core import Role
from ...node.access.access import Principal
from ...node.access.permissions import LOOK, LOOK_AT_ALL, LOOK_AT_QUEUE, MANAGE, MANAGE_QUEUE, OPEN, USE, Permission

__all__ = ["PERMISSIONS", "KeyHolder", "permissions_of"]

_QUEUE: Final = "/queue/{name}"

PERMISSIONS: Final[Mapping[str, Mapping[str, Permission]]] = {
    _QUEUE: {"PUT": USE, "DELETE": MANAGE_QUEUE},
    "/queues": {"GET": LOOK},
    **{f"{_QUEUE}/messages/{verb}": {"POST": USE} for verb in ("push", "poll", "update", "delete")},
    f"{_QUEUE}/suspend": {"GET": LOOK_AT_QUEUE, "POST": MANAGE_QUEUE},
    f"{_QUEUE}/throttle": {"GET": LOOK_AT_QUEUE, "POST": MANAGE_QUEUE},
    f"{_QUEUE}/metrics": {"GET": LOOK_AT_QUEUE},
    "/suspend": {"GET": LOOK, "POST": MANAGE},
    "/throttle": {"GET": LOOK, "POST": MANAGE},
    "/metrics": {"GET": LOOK_AT_ALL},
    "/healthz": {"GET": OPEN},
    "/api-keys": {"GET": MANAGE},
    "/api-key/{key}": {"PUT": MANAGE, "DELETE": MANAGE},
}
"""By path and method, for tokens. API keys open the routes below a queue whose name begins as they say, and no others."""


def permissions_of(path: str) -> Mapping[str, Permission]:
    """What the methods of a route ask for."""
    return PERMISSIONS.get(path, {})


class KeyHolder(Principal):
    """Somebody who shows an API key: everything with the messages and limits of some queues, and nothing else.

    Attributes:
        prefix: what the names of these queues begin with.
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes) -> None:
        super().__init__("API key", Role.ADMIN, b"^")
        self.prefix = prefix

    def covers(self, queue: bytes) -> bool:
        """Whether a queue's name begins so."""
        return queue.startswith(self.prefix)

    def may_use(self, route: str) -> bool:
        """Whether API keys are good for a route at all."""
        return route.startswith(f"{_QUEUE}/")
