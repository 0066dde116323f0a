"""What a route or a method may ask of a client, and the permissions that both protocols share."""

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
    """What a request is about, and so what a token's pattern has to match."""

    NOTHING = "no token is asked for"
    ANYTHING = "any token will do; what it may not see is left out"
    QUEUE = "one queue by name"
    SUBSCRIPTION = "a subscription by name"
    PATTERN = "the queues that a regular expression finds"
    CLUSTER = "all queues, or what is not about queues"


class Permission(NamedTuple):
    """What a route or a method asks of a client."""

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
"""Also what is asked where nothing is declared."""
