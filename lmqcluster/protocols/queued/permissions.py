"""What every route asks of a client: of one with a token, and of one with an API key.

A route that is missing here is the administrators'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...node.access.permissions import LOOK, LOOK_AT_ALL, LOOK_AT_QUEUE, MANAGE, MANAGE_QUEUE, OPEN, USE, Permission

__all__ = ["PERMISSIONS", "opens_route", "permissions_of"]

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


def opens_route(route: str) -> bool:
    """Return whether API keys are good for a route at all."""
    return route.startswith(f"{_QUEUE}/")
