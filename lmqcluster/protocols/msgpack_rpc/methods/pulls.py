"""Methods that pull, and ``cancel``, which ends a pull."""

from __future__ import annotations

from typing import Any

from ....core.log.commands import Delivered
from ....node.commit.proposer import PendingCommand
from ....node.queues.pulls.pulls import Waiter
from ....node.queues.sending import requests
from ....ports import ConnectionSlot
from ....wire.errors import LmqError
from ....wire.limits import PULL_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..connection.option_pulls import pull_many
from ..values import replies
from ..values.arguments import arity, count, text, wait

__all__ = ["PULL_METHODS"]

Arguments = list[Any]


class _LookingPuller:
    """Receiver for a ``pull_any`` that does not wait (`DeliverySink`).

    The node may have to search for a message first. Until then the client's next requests, which take effect later, are
    held back.
    """

    __slots__ = ("_connection", "_holds", "_is_over")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
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

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def waiting(self) -> set[Waiter]:
        return self._connection.waiting

    @property
    def place(self) -> ConnectionSlot:
        return self._connection.place

    def may_wait(self) -> bool:
        return self._connection.may_wait()

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

    def completed(self, group: PendingCommand, result: Any) -> None:  # noqa: ARG002
        """Cancel the pull. It has either been answered or is waiting in line."""
        self._connection.service.pulls.cancel(self._connection, group.requests[0])

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        """Do nothing: the pull, which was sent earlier, fails too."""


def _cancel(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``cancel(msgid)``: end a waiting pull of this connection, which is then answered as empty."""
    arity(arguments, 1, 1)
    pulls = connection.service.pulls
    if not pulls.cancel(connection, arguments[0]):
        request = requests.barrier()
        group = PendingCommand(request.command, [arguments[0]], _Cancellation(connection))
        connection.service.proposer.add(group, request.size_bytes)
    connection.succeed(msgid, replies.OK)


def _pull_many(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``pull_many(name, max[, timeout[, {lease, auto_ack, session}]])``."""
    arity(arguments, 2, 4)
    name, most = text(arguments[0]), count(arguments[1], PULL_COUNT_MAX)
    wait_s = 0.0 if len(arguments) == 2 else wait(arguments[2])
    pull_many(connection, msgid, name, (most, wait_s), arguments[3:])


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
    b"pull": Connection.pull,
    b"pull_many": _pull_many,
    b"pull_any": _pull_any,
    b"cancel": _cancel,
}
