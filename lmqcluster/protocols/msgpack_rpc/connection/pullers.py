"""Answers to pulls that may take several messages, or settle what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core import Op
from ....core.log.commands import Delivered
from ....node.commit.proposer import PendingCommand
from ....node.queues.pulls.pulls import Waiter
from ....node.queues.pulls.unsent import Unsent
from ....node.queues.sending import requests
from ....ports import ConnectionSlot
from ....wire.errors import LmqError, Outcome
from ..values import replies

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["MANY_BYTES_MAX", "ManyPuller", "SettlingPuller"]

MANY_BYTES_MAX = 16 * 1024 * 1024
"""A batch ends with the message that exceeds this, however many were asked for."""


class ManyPuller:
    """The answer to one ``pull_many``, or to a ``pull`` with options (`DeliverySink`).

    Args:
        is_many: whether the client expects a list.
        unsent: what becomes of messages that cannot be sent.
    """

    __slots__ = ("_connection", "_is_many", "_unsent")

    def __init__(self, connection: Connection, *, is_many: bool = True, unsent: Unsent = Unsent.PUT_BACK) -> None:
        self._connection = connection
        self._is_many = is_many
        self._unsent = unsent

    @property
    def closed(self) -> bool:
        """The client is gone."""
        return self._connection.closed

    @property
    def waiting(self) -> set[Waiter]:
        """Its pulls that stand in a line."""
        return self._connection.waiting

    @property
    def place(self) -> ConnectionSlot | None:
        """The client's connection, which holds the messages."""
        return self._connection.place

    def may_wait(self) -> bool:
        """Whether the connection may have one more pull that waits."""
        return self._connection.may_wait()

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        """Encode the messages."""
        connection = self._connection
        encode = connection.encoder().encode
        encoded: list[bytes] = []
        size = 0
        try:
            for one in delivered:
                encoded.append(encode(one))
                size += len(encoded[-1])
                if size > MANY_BYTES_MAX:
                    break
        except replies.LargeBodyError:
            connection.encode_later(token, delivered, self.send, self._unsent)
            return
        self.send(token, delivered, encoded)

    def send(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        """Send what is encoded, and put back what is not."""
        connection = self._connection
        size = sum(map(len, encoded))
        if connection.must_ask(size) and not connection.has_room(size):
            connection.give_back(token, delivered, self._unsent)
            return
        if len(encoded) < len(delivered):
            self.put_back(delivered[len(encoded) :])
        self.answer(token, encoded)

    def put_back(self, delivered: list[Delivered]) -> None:
        """Return messages that are not sent."""
        self._connection.service.pulls.put_back(delivered, self._unsent)

    def answer(self, token: Any, encoded: list[bytes]) -> None:
        """Send messages, or that there are none."""
        if self._is_many:
            result = replies.array_header(len(encoded)) + b"".join(encoded)
        else:
            result = encoded[0] if encoded else replies.EMPTY
        self._connection.succeed(token, result)

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Refuse the pull."""
        self._connection.fail(token, error.rpc_text())


class SettlingPuller(ManyPuller):
    """The answer to a pull that acknowledges what it sends (`DeliverySink`).

    Once the acknowledgement is on its way the answer is sent in any case, so the room for it is looked for before.
    """

    __slots__ = ()

    @property
    def place(self) -> ConnectionSlot | None:
        """Nobody holds what is settled at once."""
        return None

    def send(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        """Acknowledge what is encoded, and put back what is not."""
        connection = self._connection
        size = sum(map(len, encoded))
        must_ask = connection.promised_bytes or connection.must_ask(size)
        if must_ask and not connection.has_room(size):
            connection.give_back(token, delivered, self._unsent)
            return
        if len(encoded) < len(delivered):
            self.put_back(delivered[len(encoded) :])
        if encoded:
            self._settle(token, delivered[: len(encoded)], encoded)
        else:
            self.answer(token, [])

    def _settle(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        connection = self._connection
        name = delivered[0][0]
        numbers = [number for _name, number, _remaining, _message in delivered]
        settlement = _Settlement(connection, self, delivered, encoded)
        try:
            request = requests.settle(Op.ACK, name, numbers)
            connection.service.proposer.add(PendingCommand(request.command, [token], settlement), request.size_bytes)
        except LmqError as exc:
            self.put_back(delivered)
            connection.fail(token, exc.rpc_text())
        else:
            settlement.promise()


class _Settlement:
    """Messages that are acknowledged and then sent (`Sink`)."""

    __slots__ = ("_connection", "_delivered", "_encoded", "_puller", "_size")

    def __init__(
        self, connection: Connection, puller: SettlingPuller, delivered: list[Delivered], encoded: list[bytes]
    ) -> None:
        self._connection = connection
        self._puller = puller
        self._delivered = delivered
        self._encoded = encoded
        self._size = sum(map(len, encoded))

    def promise(self) -> None:
        """Count the answer, which will be sent."""
        self._connection.promised_bytes += self._size

    def completed(self, group: PendingCommand, settled: list[bool] | None) -> None:
        """Send those whose leases had not ended."""
        tickets, group.tickets = group.tickets, []
        for token in tickets:
            self._connection.promised_bytes -= self._size
            results = settled if settled is not None else [False] * len(self._encoded)
            kept = [one for one, is_settled in zip(self._encoded, results, strict=True) if is_settled]
            self._puller.answer(token, kept)

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        """Refuse the pull; what is certainly not acknowledged goes back."""
        tickets, group.tickets = group.tickets, []
        for token in tickets:
            self._connection.promised_bytes -= self._size
            if error.outcome is Outcome.NOT_APPLIED:
                self._puller.put_back(self._delivered)
            self._connection.fail(token, error.rpc_text())
