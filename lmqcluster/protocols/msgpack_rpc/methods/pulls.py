"""Methods that pull, and ``cancel``, which ends a pull."""

from __future__ import annotations

from typing import Any

from ....core.log.commands import Pull, PullInSession
from ....core.log.results import Delivered
from ....node.commit.proposer import PendingCommand
from ....node.queues.pulls.pull_options import PullOptions
from ....node.queues.pulls.unsent import unsent_in_session
from ....node.queues.sending import requests
from ....node.queues.sending.times import lease_us
from ....wire.errors import LmqError
from ....wire.limits import PULL_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, count, text, wait
from ..values.options import flag_of, given, seconds_of
from .pullers import ConnectionPuller, ManyPuller, SettlingPuller

__all__ = ["PULL_METHODS"]

Arguments = list[Any]
_OPTIONS = frozenset((b"lease", b"auto_ack", b"session", b"after"))


class _LookingPuller(ConnectionPuller):
    """Receiver for a ``pull_any`` that does not wait (`DeliverySink`).

    The node may have to search for a message first. Until then the client's next requests, which take effect later, are
    held back.
    """

    __slots__ = ("_holds", "_is_over")

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._holds = False
        self._is_over = False

    def hold(self) -> None:
        if not self._is_over:
            self._holds = True
            self._connection.hold()

    def _go_on(self) -> None:
        self._is_over = True
        if self._holds:
            self._holds = False
            self._connection.go_on()

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        self._connection.pulled(token, delivered)
        self._go_on()

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self._connection.pull_failed(token, error)
        self._go_on()


class _Cancellation:
    """Second attempt to cancel a pull, after all earlier commands have returned from the log (`Sink`)."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def completed(self, pending: PendingCommand, result: Any) -> None:  # noqa: ARG002
        """Cancel the pull. It has either been answered or is waiting in line."""
        self._connection.service.pulls.cancel(self._connection, pending.requests[0])

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Do nothing: the pull, which was sent earlier, fails too."""


def _cancel(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``cancel(msgid)``: end a waiting pull of this connection, which is then answered as empty."""
    arity(arguments, 1, 1)
    pulls = connection.service.pulls
    if not pulls.cancel(connection, arguments[0]):
        request = requests.barrier()
        pending = PendingCommand(request.command, [arguments[0]], _Cancellation(connection))
        connection.service.sender.proposer.add(pending, request.size_bytes)
    connection.succeed(msgid, replies.OK)


def _pull(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``pull(name[, timeout[, {lease, auto_ack, session, after}]])``."""
    if len(arguments) == 2:
        name, wait_s = arguments[0], wait(arguments[1])
    elif len(arguments) == 1:
        name, wait_s = arguments[0], None
    else:
        arity(arguments, 3, 3)
        name, wait_s, options = text(arguments[0]), wait(arguments[1]), given(arguments[2], _OPTIONS)
        _pull_with_options(connection, msgid, name, (1, wait_s), options, is_many=False)
        return
    if type(name) is not bytes:
        raise LmqError("bad_arguments", "a queue name must be a string")
    service, since = connection.service, connection.last_number
    if service.sender.proposer.open_command(service.pulls, Pull, name, since) is None:
        service.sender.check_name(name, connection.kept_for())
        service.receipts()
    connection.last_number = service.pulls.start(name, (connection, msgid, 1, wait_s), since=since)


def _pull_many(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``pull_many(name, max[, timeout[, {lease, auto_ack, session, after}]])``."""
    arity(arguments, 2, 4)
    name, most = text(arguments[0]), count(arguments[1], PULL_COUNT_MAX)
    wait_s = 0.0 if len(arguments) == 2 else wait(arguments[2])
    options = given(arguments[3], _OPTIONS) if len(arguments) == 4 else {}
    _pull_with_options(connection, msgid, name, (most, wait_s), options, is_many=True)


def _pull_with_options(
    connection: Connection,
    msgid: Any,
    name: bytes,
    wanted: tuple[int, float],
    options: dict[bytes, Any],
    *,
    is_many: bool,
) -> None:
    settles = flag_of(options, b"auto_ack")
    if settles and not connection.is_answered(msgid):
        raise LmqError("bad_request", "a notification has no reply, so its pull must not acknowledge")
    service, puller = connection.service, SettlingPuller if settles else ManyPuller
    lease_s = seconds_of(options, b"lease")
    if b"session" in options:
        own_lease_us = 0 if lease_s is None else lease_us(lease_s)
        number = service.sessions.number(text(options[b"session"]))
        service.sender.check_name(name, connection.kept_for())
        known = service.sessions.known(text(options[b"after"]) if b"after" in options else None)
        pull_options = PullOptions(PullInSession, (own_lease_us, number, 1, known, connection.state_owner()))
        answer = puller(connection, is_many=is_many, unsent=unsent_in_session(1, known))
        service.pulls.start(name, (answer, msgid, *wanted), pull_options)
        return
    ticket = puller(connection, is_many=is_many), msgid, *wanted
    pull_options = PullOptions(Pull, (0 if lease_s is None else lease_us(lease_s), False))
    service.sender.check_name(name, connection.kept_for())
    service.receipts()
    service.pulls.start(name, ticket, pull_options)


def _pull_any(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    arity(arguments, 1, 2)
    pattern = text(arguments[0])
    wait_s = None if len(arguments) == 1 else wait(arguments[1])
    connection.service.receipts()
    if wait_s is None or wait_s > 0:
        connection.service.pulls.start_any(pattern, (connection, msgid, 1, wait_s), connection.client())
        return
    puller = _LookingPuller(connection)
    if not connection.service.pulls.start_any(pattern, (puller, msgid, 1, wait_s), connection.client()):
        puller.hold()


PULL_METHODS: dict[bytes, Handler] = {
    b"pull": _pull,
    b"pull_many": _pull_many,
    b"pull_any": _pull_any,
    b"cancel": _cancel,
}
