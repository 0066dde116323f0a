"""Transactions: several operations that take effect atomically."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import pack, pack_raw
from lmqcluster.wire.limits import REQUEST_BYTES_MAX

from ..options import Place, PushOptions, give_back_options, packed_push_options, random_key
from ..transport.addresses import NodeAddress
from ..transport.calls import push_texts
from ..transport.requests import Name, encode_content, name_bytes, pack_array

if TYPE_CHECKING:
    from ..tracing import Tracer

__all__ = ["Operations", "SyncTransaction", "Transaction"]

_FOUR = b"\x94"
_Send = Callable[[bytes, Callable[[Any], Any], bool], Future[list[str]]]


class Settleable(Protocol):
    """A message that a client has pulled."""

    _reply: dict[bytes, Any]
    _settled: bool


@dataclass(slots=True)
class _Operation:
    """An operation: verb, queue, the content or the id in MessagePack, and options."""

    verb: bytes
    queue: bytes
    subject: bytes
    options: dict[str, Any] | None


class _Committer(Protocol):
    """The client of a transaction."""

    _tracer: Tracer | None

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node."""


class Operations:
    """Operations of a transaction, in order. It may settle each message once.

    Attributes:
        results: after the commit, the result of each operation in order: ``"ok"``, or for a push to a queue that accumulates
            messages the result of `AsyncClient.push`. None before, and if the transaction failed or was abandoned.
    """

    def __init__(self, send: _Send, client: _Committer) -> None:
        self.results: list[str] | None = None
        self._client = client
        self._send = send
        self._operations: list[_Operation] = []
        self._ends = False
        self._settled: list[Settleable] = []
        self._is_open = True

    def push(
        self,
        queue: Name,
        content: Any,
        *,
        content_type: Name | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        """Store a message, with the options of `AsyncClient.push`.

        Args:
            queue: name of the queue.
            content: any MessagePack value; with a content type, the body as bytes, which is stored unchanged.
            content_type: content type of the body.
            options: see `AsyncClient.push`.
        """
        packed = packed_push_options(options)
        if content_type is not None:
            packed["content_type"] = name_bytes(content_type)
        self._add(b"push", queue, encode_content(content), packed)

    def done(self, message: Settleable | Name, message_id: Name | None = None) -> None:
        """Ack a message; pass the message itself, or its queue and its id."""
        self._settle(b"done", message, message_id, None, ends=True)

    def release(
        self,
        message: Settleable | Name,
        message_id: Name | None = None,
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> None:
        """Nack a message, see `AsyncClient.release`; pass the message itself, or its queue and its id."""
        self._settle(b"release", message, message_id, give_back_options(delay, place, reason), ends=True)

    def retain(self, message: Settleable | Name, message_id: Name | None = None, *, lease: float | None = None) -> None:
        """Extend a lease, see `AsyncClient.retain`; pass the message itself, or its queue and its id."""
        self._settle(b"retain", message, message_id, None if lease is None else {"lease": lease}, ends=False)

    def _settle(
        self,
        verb: bytes,
        message: Settleable | Name,
        message_id: Name | None,
        options: dict[str, Any] | None,
        *,
        ends: bool,
    ) -> None:
        self._ends = self._ends or ends
        if isinstance(message, (str, bytes)):
            if message_id is None:
                raise TypeError("give a message, or the name of a queue and the id of a message")
            self._add(verb, message, pack_raw(name_bytes(message_id)), options)
            return
        if message_id is not None:
            raise TypeError("a message has its id already")
        self._add(verb, message._reply[b"queue"], pack_raw(message._reply[b"id"]), options)
        if ends:
            self._settled.append(message)

    def _add(self, verb: bytes, queue: Name, subject: bytes, options: dict[str, Any] | None) -> None:
        if not self._is_open:
            raise RuntimeError("the transaction has ended")
        self._operations.append(_Operation(verb, name_bytes(queue), subject, options))

    async def _commit(self) -> None:
        """Send the operations."""
        self._is_open = False
        tracer = self._client._tracer
        if tracer is None or not self._operations:
            await self._send_all()
            return
        pushes = [operation for operation in self._operations if operation.verb == b"push"]
        with tracer.committing(self._client, pushes, self._settled):
            await self._send_all()

    async def _send_all(self) -> None:
        if self._operations:
            operations = pack_array(list(map(self._packed, self._operations)))
            if len(operations) > REQUEST_BYTES_MAX:
                reason = f"the transaction has {len(operations)} bytes, a request may have {REQUEST_BYTES_MAX}"
                raise LmqError("too_large", reason)
            self.results = await self._send(operations, self._decode, self._ends)
        else:
            self.results = []
        for message in self._settled:
            message._settled = True

    def _packed(self, operation: _Operation) -> bytes:
        """Encode an operation for the wire.

        A retry of the transaction must detect whether an earlier attempt was executed. A settled delivery shows that; without
        one, the keys of the pushes do.
        """
        verb, options = operation.verb, operation.options
        if verb == b"push" and not self._ends:
            options = {"key": random_key(), **(options or {})}
        return b"".join((_FOUR, pack_raw(verb), pack_raw(operation.queue), operation.subject, pack(options)))

    def _decode(self, results: Any) -> list[str]:
        if len(results) != len(self._operations):
            raise ValueError(f"expected {len(self._operations)} results")
        return push_texts(results)

    def _abandon(self) -> None:
        self._is_open = False


class Transaction(Operations):
    """A transaction for ``async with client.transaction() as transaction:``, see `AsyncClient.transaction`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit()
        else:
            self._abandon()


class SyncTransaction(Operations):
    """A transaction for ``with client.transaction() as transaction:``, see `Client.transaction`."""

    def __init__(self, send: _Send, client: _Committer, run: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        super().__init__(send, client)
        self._run = run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._run(self._commit)
        else:
            self._abandon()
