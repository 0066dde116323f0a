"""Permissions that every route requires. This is the only place that declares them.

A route that is missing here requires an administrator; a test fails for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....core import Role
from ....node.access.permissions import (
    LOOK,
    LOOK_AT_ALL,
    LOOK_AT_QUEUE,
    LOOK_AT_SUBSCRIPTION,
    MANAGE,
    MANAGE_QUEUE,
    OPEN,
    USE,
    USE_MANY,
    USE_SUBSCRIPTION,
    Permission,
    Scope,
)

__all__ = ["PERMISSIONS", "permissions_of"]

_QUEUE: Final = "/v1/queues/{name}"
_SUBSCRIPTION: Final = "/v1/subscriptions/{name}"
_SCHEDULE: Final = "/v1/schedules/{name}"
_WRITE: Final = Permission(Role.WRITE, Scope.ANYTHING)

PERMISSIONS: Final[Mapping[str, Mapping[str, Permission]]] = {
    # LMQ's routes
    "/messages": {"GET": USE_MANY, "POST": USE_MANY},
    "/messages/{name}": {"GET": USE, "POST": USE},
    "/messages/{name}/{id}": {"POST": USE},
    "/queues/{name}": {"DELETE": MANAGE_QUEUE},
    "/properties": {"GET": LOOK, "PUT": MANAGE, "DELETE": MANAGE},
    "/properties/{name}": {"GET": LOOK_AT_QUEUE, "PATCH": USE, "DELETE": USE},
    "/stats": {"GET": LOOK},
    # queues
    "/v1/queues": {"GET": LOOK},
    _QUEUE: {"GET": LOOK_AT_QUEUE, "PUT": USE, "DELETE": MANAGE_QUEUE},
    f"{_QUEUE}/properties": {"GET": LOOK_AT_QUEUE, "PATCH": USE, "DELETE": USE},
    f"{_QUEUE}/stats": {"GET": LOOK_AT_QUEUE},
    f"{_QUEUE}/history": {"GET": LOOK_AT_QUEUE},
    f"{_QUEUE}/consumers": {"GET": LOOK_AT_QUEUE},
    f"{_QUEUE}/messages": {"GET": LOOK_AT_QUEUE, "POST": USE},
    f"{_QUEUE}/pull": {"POST": USE},
    f"{_QUEUE}/ack": {"POST": USE},
    f"{_QUEUE}/nack": {"POST": USE},
    f"{_QUEUE}/extend": {"POST": USE},
    **{
        f"{_QUEUE}/{verb}": {"POST": MANAGE_QUEUE}
        for verb in ("purge", "move", "redrive", "bind", "unbind", "suspend", "resume")
    },
    f"{_QUEUE}/move-tasks": {"GET": LOOK_AT_QUEUE, "POST": MANAGE_QUEUE},
    f"{_QUEUE}/move-tasks/{{number}}": {"DELETE": MANAGE_QUEUE},
    f"{_QUEUE}/withdraw": {"POST": USE},
    f"{_QUEUE}/bindings": {"GET": LOOK_AT_QUEUE},
    f"{_QUEUE}/labels": {"GET": LOOK_AT_QUEUE},
    # Each operation is checked separately.
    "/v1/transactions": {"POST": Permission(Role.WRITE, Scope.ANYTHING)},
    # A session is accessible to its owner only. Pulls and locks in it are checked with each request.
    "/v1/sessions": {"GET": MANAGE, "POST": Permission(Role.WRITE, Scope.ANYTHING)},
    "/v1/sessions/{id}": {"DELETE": Permission(Role.WRITE, Scope.ANYTHING)},
    "/v1/sessions/{id}/renew": {"POST": Permission(Role.WRITE, Scope.ANYTHING)},
    f"{_QUEUE}/leave": {"POST": USE},
    "/v1/locks": {"GET": MANAGE},
    # A token's pattern for queues also applies to names of locks.
    "/v1/locks/{name}": {"GET": LOOK_AT_QUEUE, "POST": USE, "DELETE": USE},
    # The permission for the queue of a schedule is checked with each request.
    "/v1/schedules": {"GET": LOOK},
    _SCHEDULE: {"GET": LOOK, "PUT": _WRITE, "DELETE": _WRITE},
    **{f"{_SCHEDULE}/{verb}": {"POST": _WRITE} for verb in ("pause", "resume", "run")},
    "/v1/subscriptions": {"GET": LOOK},
    _SUBSCRIPTION: {"GET": LOOK_AT_SUBSCRIPTION, "DELETE": USE_SUBSCRIPTION},
    f"{_SUBSCRIPTION}/abandon": {"POST": USE_SUBSCRIPTION},
    # A job is accessible to its owner only.
    "/v1/jobs": {"GET": LOOK},
    "/v1/jobs/{name}": {"DELETE": Permission(Role.WRITE, Scope.ANYTHING)},
    # the cluster
    "/v1/overview": {"GET": LOOK},
    "/v1/cluster": {"GET": LOOK},
    "/v1/cluster/join": {"POST": MANAGE},
    "/v1/cluster/leave": {"POST": MANAGE},
    "/v1/cluster/remove": {"POST": MANAGE},
    "/v1/cluster/transfer": {"POST": MANAGE},
    "/v1/cluster/check": {"GET": LOOK},
    "/v1/snapshots": {"POST": MANAGE},
    "/v1/snapshots/{index}/blocks/{number}": {"GET": MANAGE},
    "/v1/tokens": {"GET": MANAGE, "POST": MANAGE},
    "/v1/tokens/{name}": {"DELETE": MANAGE},
    "/v1/access": {"GET": LOOK},
    "/v1/connections": {"GET": MANAGE},
    "/v1/connections/close": {"POST": MANAGE},
    "/v1/consumers": {"GET": MANAGE},
    "/v1/leases": {"GET": MANAGE},
    # this node
    "/livez": {"GET": OPEN},
    "/readyz": {"GET": OPEN},
    "/metrics": {"GET": LOOK},
    "/metrics/queues": {"GET": LOOK_AT_ALL},
    "/stats.json": {"GET": LOOK},
    "/stats.txt": {"GET": LOOK},
    "/v1/log-level": {"GET": LOOK, "PUT": MANAGE},
    "/openapi.json": {"GET": LOOK},
}
"""Permissions by path and method."""

_CONSOLE: Final[Mapping[str, Permission]] = {"GET": OPEN, "HEAD": OPEN}
"""The console's files hold no data. The console requests data with a token."""


def permissions_of(path: str) -> Mapping[str, Permission]:
    """Return the permissions that the methods of a route require."""
    if path in ("/", "/console") or path.startswith("/console/"):
        return _CONSOLE
    return PERMISSIONS.get(path, {})
