"""Receivers for pulls that may take several messages, or settle them."""

from __future__ import annotations

from typing import Any

from ....core.log.commands import Ack
from ....core.log.results import Delivered
from ....node.commit.proposer import PendingCommand
from ....node.queues.pulls.pulls import Waiter
from ....node.queues.pulls.unsent import Unsent
from ....node.queues.sending import requests
from ....ports import ConnectionSlot
from ....wire.errors import LmqError, Outcome
from ..connection.connection import MANY_BYTES_MAX, Connection
from ..values import replies

__all__ = ["ConnectionPuller", "ManyPuller", "SettlingPuller"]


class ConnectionPuller:
    """The part of a receiver (`DeliverySink`) that its connection answers."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        """Return whether the client has disconnected."""
        return self._connection.closed

    @property
    def waiting(self) -> set[Waiter]:
        """Return the connection's pulls that wait in line."""
        return self._connection.waiting

    @property
    def place(self) -> ConnectionSlot | None:
        """Return the slot of the connection that holds the messages."""
        return self._connection.place

    def may_wait(self) -> bool:
        """Return whether one more pull of the connection may wait."""
        return self._connection.may_wait()


class ManyPuller(ConnectionPuller):
    """Receiver for one ``pull_many``, or for a ``pull`` with options (`DeliverySink`).

    Args:
        is_many: whether the client expects a list.
        unsent: how messages that cannot be sent are returned.
    """

    __slots__ = ("_is_many", "_unsent")

    def __init__(self, connection: Connection, *, is_many: bool = True, unsent: Unsent = Unsent.UNDO) -> None:
        super().__init__(connection)
        self._is_many = is_many
        self._unsent = unsent

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        """Encode the messages, then send them."""
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
        """Send the encoded messages and put the others back into their queues."""
        connection = self._connection
        size = sum(map(len, encoded))
        if connection.must_ask(size) and not connection.has_room(size):
            connection.put_back(token, delivered, self._unsent)
            return
        if len(encoded) < len(delivered):
            self.put_back(delivered[len(encoded) :])
        self.answer(token, encoded)

    def put_back(self, delivered: list[Delivered]) -> None:
        """Put messages that are not sent back into their queues."""
        self._connection.service.pulls.put_back(delivered, self._unsent)

    def answer(self, token: Any, encoded: list[bytes]) -> None:
        """Answer with the messages, possibly none."""
        if self._is_many:
            result = replies.array_header(len(encoded)) + b"".join(encoded)
        else:
            result = encoded[0] if encoded else replies.EMPTY
        self._connection.succeed(token, result)

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Refuse the pull."""
        self._connection.fail(token, error.rpc_text())


class SettlingPuller(ManyPuller):
    """Receiver for a pull that acknowledges the messages it sends (`DeliverySink`).

    Once the acknowledgement is sent, the answer follows in any case, so the room for it is checked first.
    """

    __slots__ = ()

    @property
    def place(self) -> ConnectionSlot | None:
        """Return None, because settled messages are not held."""
        return None

    def send(self, token: Any, delivered: list[Delivered], encoded: list[bytes]) -> None:
        """Acknowledge the encoded messages and put the others back into their queues."""
        connection = self._connection
        size = sum(map(len, encoded))
        must_ask = connection.promised_bytes or connection.must_ask(size)
        if must_ask and not connection.has_room(size):
            connection.put_back(token, delivered, self._unsent)
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
            request = requests.settle(Ack(name, numbers))
            connection.service.sender.proposer.add(
                PendingCommand(request.command, [token], settlement), request.size_bytes
            )
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
        """Count the answer, which is certain to be sent."""
        self._connection.promised_bytes += self._size

    def completed(self, pending: PendingCommand, settled: list[bool] | None) -> None:
        """Send the messages whose leases had not expired."""
        requests, pending.requests = pending.requests, []
        for token in requests:
            self._connection.promised_bytes -= self._size
            results = settled if settled is not None else [False] * len(self._encoded)
            kept = [one for one, is_settled in zip(self._encoded, results, strict=True) if is_settled]
            self._puller.answer(token, kept)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Refuse the pull. Messages that are certainly not acknowledged return to their queues."""
        requests, pending.requests = pending.requests, []
        for token in requests:
            self._connection.promised_bytes -= self._size
            if error.outcome is Outcome.NOT_APPLIED:
                self._puller.put_back(self._delivered)
            self._connection.fail(token, error.rpc_text())
