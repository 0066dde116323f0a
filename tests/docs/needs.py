"""The wording in which the reference pages state what a method or a route needs."""

from __future__ import annotations

from typing import Final

from lmqcluster.core import Role
from lmqcluster.node.access.permissions import Permission, Scope

__all__ = ["phrase"]

_SUBJECTS: Final = {
    Scope.ANYTHING: "",
    Scope.QUEUE: " for the queue",
    Scope.SUBSCRIPTION: " for the subscription",
    Scope.PATTERN: " for the pattern",
    Scope.CLUSTER: " for all queues",
}


def phrase(need: Permission) -> str:
    """Return the text after "Needs:"."""
    if need.scope is Scope.NOTHING:
        return "nothing"
    return f"`{Role(need.role).name.lower()}`{_SUBJECTS[need.scope]}"
