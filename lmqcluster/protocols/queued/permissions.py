"""Permissions that every route requires of clients with a token, and the routes that an API key opens.

A route that is missing here requires an administrator.
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
"""Permissions for tokens, by path and method."""


def permissions_of(path: str) -> Mapping[str, Permission]:
    """Return the permissions that the methods of a route require."""
    return PERMISSIONS.get(path, {})


def opens_route(route: str) -> bool:
    """Return whether API keys can open a route."""
    return route.startswith(f"{_QUEUE}/")
