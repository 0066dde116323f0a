"""What every method asks of a client: the one place where it is declared, and the check that stands before the method.

As long as clients on this machine need no token they get the plain table of methods, so the checks cost them nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core import Role
from ...node.access import Need, Principal, Scope
from ...wire.errors import LmqError
from .arguments import pushes_of
from .connection import Connection, Handler

__all__ = ["NEEDS", "guarded"]

_OPEN: Final = Need(Role.READ, Scope.NOTHING)
_LOOK: Final = Need(Role.READ, Scope.ANYTHING)
_LOOK_AT_QUEUE: Final = Need(Role.READ, Scope.QUEUE)
_USE: Final = Need(Role.WRITE, Scope.QUEUE)
_USE_MANY: Final = Need(Role.WRITE, Scope.PATTERN)
_USE_SUBSCRIPTION: Final = Need(Role.WRITE, Scope.SUBSCRIPTION)
_MANAGE_QUEUE: Final = Need(Role.ADMIN, Scope.QUEUE)
_MANAGE: Final = Need(Role.ADMIN, Scope.CLUSTER)

NEEDS: Final[Mapping[bytes, Need]] = {
    b"auth": _OPEN,
    b"ping": _LOOK,
    b"cluster": _LOOK,
    # A number for the pushes of a connection; says nothing of what may be pushed.
    b"producer": _LOOK,
    b"cancel": _LOOK,
    b"push": _USE,
    b"push_many": _USE,
    b"pull": _USE,
    b"pull_many": _USE,
    b"push_all": _USE_MANY,
    b"pull_any": _USE_MANY,
    b"done": _USE,
    b"release": _USE,
    b"retain": _USE,
    b"done_many": _USE,
    b"release_many": _USE,
    b"retain_many": _USE,
    b"put_back_many": _USE,
    # Whoever knows the scope of a job's keys may let go of them.
    b"forget_keys": Need(Role.WRITE, Scope.ANYTHING),
    b"delete": _MANAGE_QUEUE,
    b"purge": _MANAGE_QUEUE,
    # The queue that messages go to is checked by the method itself.
    b"move": _MANAGE_QUEUE,
    b"suspend": _MANAGE_QUEUE,
    b"resume": _MANAGE_QUEUE,
    b"update_props": _USE,
    b"set_default_props": _MANAGE,
    b"get_default_props": _LOOK,
    # Where the messages come from is checked by the methods themselves.
    b"reserve_batch": _USE_SUBSCRIPTION,
    b"read_batch": _USE_SUBSCRIPTION,
    b"renew_batches": _USE_SUBSCRIPTION,
    b"settle_batches": _USE_SUBSCRIPTION,
    b"abandon_batches": _USE_SUBSCRIPTION,
    b"subscription": Need(Role.READ, Scope.SUBSCRIPTION),
    b"subscriptions": _LOOK,
    # A queue or a pattern, which the method looks at itself.
    b"backlog": _LOOK,
    b"peek": _LOOK_AT_QUEUE,
}
"""By method. One that is missing here is the administrators'; a test refuses it."""


def guarded(methods: Mapping[bytes, Handler]) -> dict[bytes, Handler]:
    """The methods, each behind the check of what it asks of a client."""
    return {name: _guard(name, handler, NEEDS.get(name, _MANAGE)) for name, handler in methods.items()}


def _guard(name: bytes, handler: Handler, need: Need) -> Handler:
    role, scope = need
    if scope is Scope.NOTHING:
        return handler

    def refuse(connection: Connection, arguments: list[Any]) -> None:
        """Raise what `_authorise` raises; a refused push uses up its number all the same."""
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


def _authorise(principal: Principal, need: Need, arguments: list[Any]) -> None:
    """Refuse what the client may not do.

    Raises:
        LmqError: ``unauthorized`` or ``forbidden``.
    """
    role, scope = need
    subject = arguments[0] if arguments else None
    if scope is Scope.CLUSTER:
        principal.require_all(role)
    elif type(subject) is not bytes or scope is Scope.ANYTHING:
        # A subject that is not a name is refused by the method itself.
        principal.require_role(role)
    elif scope is Scope.QUEUE:
        principal.require(role, subject)
    elif scope is Scope.SUBSCRIPTION:
        principal.require_subscription(role, subject)
    else:
        principal.require_pattern(role, subject)
