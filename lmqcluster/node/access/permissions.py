"""Permissions that routes and methods require; both protocols share them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ...core import Role

__all__ = [
    "LOOK",
    "LOOK_AT_ALL",
    "LOOK_AT_QUEUE",
    "LOOK_AT_SUBSCRIPTION",
    "MANAGE",
    "MANAGE_QUEUE",
    "OPEN",
    "USE",
    "USE_MANY",
    "USE_SUBSCRIPTION",
    "Permission",
    "Scope",
]


class Scope(Enum):
    """The subject of a request, which a token's pattern must match."""

    NOTHING = "no token is asked for"
    ANYTHING = "any token will do; what it may not see is left out"
    QUEUE = "one queue by name"
    SUBSCRIPTION = "a subscription by name"
    PATTERN = "the queues that a regular expression finds"
    CLUSTER = "all queues, or what is not about queues"


class Permission(NamedTuple):
    """The role that a route or a method requires, and its scope."""

    role: Role
    scope: Scope


OPEN: Final = Permission(Role.READ, Scope.NOTHING)
LOOK: Final = Permission(Role.READ, Scope.ANYTHING)
LOOK_AT_ALL: Final = Permission(Role.READ, Scope.CLUSTER)
LOOK_AT_QUEUE: Final = Permission(Role.READ, Scope.QUEUE)
LOOK_AT_SUBSCRIPTION: Final = Permission(Role.READ, Scope.SUBSCRIPTION)
USE: Final = Permission(Role.WRITE, Scope.QUEUE)
USE_MANY: Final = Permission(Role.WRITE, Scope.PATTERN)
USE_SUBSCRIPTION: Final = Permission(Role.WRITE, Scope.SUBSCRIPTION)
MANAGE_QUEUE: Final = Permission(Role.ADMIN, Scope.QUEUE)
MANAGE: Final = Permission(Role.ADMIN, Scope.CLUSTER)
"""Also the default for routes and methods that declare nothing."""
