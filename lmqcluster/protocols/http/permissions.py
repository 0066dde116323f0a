"""What every route asks of a client: the one place where it is declared.

A route that is missing here is the administrators'; a test refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...core import Role
from ...node.access import Need, Scope

__all__ = ["NEEDS", "UNDECLARED", "needs_of"]

_OPEN: Final = Need(Role.READ, Scope.NOTHING)
_LOOK: Final = Need(Role.READ, Scope.ANYTHING)
_LOOK_AT_ALL: Final = Need(Role.READ, Scope.CLUSTER)
_LOOK_AT_QUEUE: Final = Need(Role.READ, Scope.QUEUE)
_USE: Final = Need(Role.WRITE, Scope.QUEUE)
_USE_MANY: Final = Need(Role.WRITE, Scope.PATTERN)
_MANAGE_QUEUE: Final = Need(Role.ADMIN, Scope.QUEUE)
_MANAGE: Final = Need(Role.ADMIN, Scope.CLUSTER)
UNDECLARED: Final = _MANAGE

_QUEUE: Final = "/v1/queues/{name}"
_SUBSCRIPTION: Final = "/v1/subscriptions/{name}"

NEEDS: Final[Mapping[str, Mapping[str, Need]]] = {
    # LMQ's routes
    "/messages": {"GET": _USE_MANY, "POST": _USE_MANY},
    "/messages/{name}": {"GET": _USE, "POST": _USE},
    "/messages/{name}/{id}": {"POST": _USE},
    "/queues/{name}": {"DELETE": _MANAGE_QUEUE},
    "/properties": {"GET": _LOOK, "PUT": _MANAGE, "DELETE": _MANAGE},
    "/properties/{name}": {"GET": _LOOK_AT_QUEUE, "PATCH": _USE, "DELETE": _USE},
    "/stats": {"GET": _LOOK},
    # queues
    "/v1/queues": {"GET": _LOOK},
    _QUEUE: {"GET": _LOOK_AT_QUEUE, "DELETE": _MANAGE_QUEUE},
    f"{_QUEUE}/properties": {"GET": _LOOK_AT_QUEUE, "PATCH": _USE, "DELETE": _USE},
    f"{_QUEUE}/stats": {"GET": _LOOK_AT_QUEUE},
    f"{_QUEUE}/messages": {"GET": _LOOK_AT_QUEUE, "POST": _USE},
    f"{_QUEUE}/pull": {"POST": _USE},
    f"{_QUEUE}/ack": {"POST": _USE},
    f"{_QUEUE}/nack": {"POST": _USE},
    f"{_QUEUE}/extend": {"POST": _USE},
    **{f"{_QUEUE}/{verb}": {"POST": _MANAGE_QUEUE} for verb in ("purge", "move", "suspend", "resume")},
    "/v1/subscriptions": {"GET": _LOOK},
    _SUBSCRIPTION: {"GET": Need(Role.READ, Scope.SUBSCRIPTION)},
    f"{_SUBSCRIPTION}/abandon": {"POST": Need(Role.WRITE, Scope.SUBSCRIPTION)},
    # the cluster
    "/v1/overview": {"GET": _LOOK},
    "/v1/cluster": {"GET": _LOOK},
    "/v1/cluster/join": {"POST": _MANAGE},
    "/v1/cluster/leave": {"POST": _MANAGE},
    "/v1/cluster/remove": {"POST": _MANAGE},
    "/v1/cluster/transfer": {"POST": _MANAGE},
    "/v1/cluster/check": {"GET": _LOOK},
    "/v1/snapshots": {"POST": _MANAGE},
    "/v1/snapshots/{index}/blocks/{number}": {"GET": _MANAGE},
    "/v1/tokens": {"GET": _MANAGE, "POST": _MANAGE},
    "/v1/tokens/{name}": {"DELETE": _MANAGE},
    "/v1/access": {"GET": _LOOK},
    # this node
    "/livez": {"GET": _OPEN},
    "/readyz": {"GET": _OPEN},
    "/metrics": {"GET": _LOOK},
    "/metrics/queues": {"GET": _LOOK_AT_ALL},
    "/v1/log-level": {"GET": _LOOK, "PUT": _MANAGE},
    "/openapi.json": {"GET": _LOOK},
    "/v1/openapi.json": {"GET": _LOOK},
}
"""By path and method."""

_CONSOLE: Final[Mapping[str, Need]] = {"GET": _OPEN, "HEAD": _OPEN}
"""The console's files hold no data; what it shows it asks for with a token."""


def needs_of(path: str) -> Mapping[str, Need]:
    """What the methods of a route ask for."""
    if path == "/console" or path.startswith("/console/"):
        return _CONSOLE
    return NEEDS.get(path, {})
