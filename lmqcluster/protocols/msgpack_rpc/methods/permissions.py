"""Permissions that every method requires, and the check before each call. This is the only place that declares them.

While clients on this machine need no token, they get the plain table of methods, so the checks cost them nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....core import Role
from ....node.access.access import Principal
from ....node.access.permissions import (
    LOOK,
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
from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler
from ..values.arguments import pushes_of

__all__ = ["PERMISSIONS", "guarded"]

_WRITE: Final = Permission(Role.WRITE, Scope.ANYTHING)

PERMISSIONS: Final[Mapping[bytes, Permission]] = {
    b"auth": OPEN,
    b"ping": LOOK,
    b"cluster": LOOK,
    # Numbers the pushes of a connection; each push is still checked.
    b"producer": LOOK,
    b"cancel": LOOK,
    b"push": USE,
    b"push_many": USE,
    b"push_each": USE,
    b"pull": USE,
    b"pull_many": USE,
    b"push_all": USE_MANY,
    b"pull_any": USE_MANY,
    b"done": USE,
    b"release": USE,
    b"retain": USE,
    b"done_many": USE,
    b"release_many": USE,
    b"retain_many": USE,
    b"put_back_many": USE,
    # A job is accessible to its owner only. Each push is still checked.
    b"push_marked": USE,
    b"begin_epoch": Permission(Role.WRITE, Scope.ANYTHING),
    b"finish_epoch": Permission(Role.WRITE, Scope.ANYTHING),
    b"mark": Permission(Role.WRITE, Scope.ANYTHING),
    b"end_jobs": Permission(Role.WRITE, Scope.ANYTHING),
    b"jobs": LOOK,
    b"delete": MANAGE_QUEUE,
    b"purge": MANAGE_QUEUE,
    # The method checks the target queue.
    b"move": MANAGE_QUEUE,
    b"withdraw": USE,
    b"count_labelled": LOOK_AT_QUEUE,
    # Like move.
    b"redrive": MANAGE_QUEUE,
    b"start_move_task": MANAGE_QUEUE,
    b"cancel_move_task": MANAGE_QUEUE,
    b"move_tasks": LOOK_AT_QUEUE,
    b"bind": MANAGE_QUEUE,
    b"unbind": MANAGE_QUEUE,
    b"bindings": LOOK_AT_QUEUE,
    # Each operation is checked separately.
    b"transaction": Permission(Role.WRITE, Scope.ANYTHING),
    # A session is accessible to its owner only. Pulls and locks in it are checked with each request.
    b"open_session": Permission(Role.WRITE, Scope.ANYTHING),
    b"renew_session": Permission(Role.WRITE, Scope.ANYTHING),
    b"end_session": Permission(Role.WRITE, Scope.ANYTHING),
    b"leave_queue": USE,
    # A token's pattern for queues also applies to names of locks.
    b"lock": USE,
    b"unlock": USE,
    # The permission for the queue of a schedule is checked with each call.
    **dict.fromkeys(
        (b"set_schedule", b"pause_schedule", b"resume_schedule", b"run_schedule", b"delete_schedule"), _WRITE
    ),
    b"schedule": LOOK,
    b"schedules": LOOK,
    b"suspend": MANAGE_QUEUE,
    b"resume": MANAGE_QUEUE,
    # The method checks queues that properties name.
    b"update_props": USE,
    b"set_default_props": MANAGE,
    b"get_default_props": LOOK,
    # The methods check the queues that the messages come from.
    b"reserve_batch": USE_SUBSCRIPTION,
    b"read_batch": USE_SUBSCRIPTION,
    b"cut_batch": LOOK_AT_SUBSCRIPTION,
    b"renew_batches": USE_SUBSCRIPTION,
    b"settle_batches": USE_SUBSCRIPTION,
    b"abandon_batches": USE_SUBSCRIPTION,
    b"claim_subscription": USE_SUBSCRIPTION,
    b"delete_subscription": USE_SUBSCRIPTION,
    b"subscription": LOOK_AT_SUBSCRIPTION,
    b"subscriptions": LOOK,
    # The method checks the queue or pattern.
    b"backlog": LOOK,
    b"incarnation": LOOK,
    b"peek": LOOK_AT_QUEUE,
    b"peek_ranges": LOOK_AT_QUEUE,
}
"""Permissions by method. A method that is missing here requires an administrator; a test fails for it."""


def guarded(methods: Mapping[bytes, Handler]) -> dict[bytes, Handler]:
    """Return the methods, each behind the check of its permission."""
    return {name: _guard(name, handler, PERMISSIONS.get(name, MANAGE)) for name, handler in methods.items()}


def _guard(name: bytes, handler: Handler, need: Permission) -> Handler:
    role, scope = need
    if scope is Scope.NOTHING:
        return handler

    def refuse(connection: Connection, arguments: list[Any]) -> None:
        """Raise like `_authorise`. A refused push still uses up its numbers."""
        try:
            _authorise(connection.known_principal(), need, arguments)
        except LmqError:
            connection.next_sequence += pushes_of(name, arguments)
            raise

    if scope is not Scope.QUEUE:

        def check(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
            refuse(connection, arguments)
            handler(connection, msgid, arguments)

        return check

    def check_queue(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
        principal = connection.principal
        if (
            principal is None
            or not arguments
            or type(arguments[0]) is not bytes
            or not principal.allows(role, arguments[0])
        ):
            refuse(connection, arguments)
        handler(connection, msgid, arguments)

    return check_queue


def _authorise(principal: Principal, need: Permission, arguments: list[Any]) -> None:
    """Refuse a call that the client has no permission for.

    Raises:
        LmqError: ``unauthorized`` or ``forbidden``.
    """
    subject = arguments[0] if arguments else None
    if type(subject) is bytes:
        principal.demand(need, subject)
    else:
        # The method refuses an argument that is not a name.
        principal.demand(need if need.scope is Scope.CLUSTER else Permission(need.role, Scope.ANYTHING), b"")
