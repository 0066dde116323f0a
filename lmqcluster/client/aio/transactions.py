"""Several operations in one step: all of them are done, or none."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, Unpack

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import pack, pack_raw
from lmqcluster.wire.limits import REQUEST_BYTES_MAX

from ..options import Header, Place, PushOptions, give_back_options, packed_headers, packed_push_options, random_key
from ..transport import calls
from ..transport.calls import push_texts
from ..transport.requests import Name, encode_content, name_bytes, pack_array
from .call_base import CallBase

__all__ = ["Operations", "SyncTransaction", "Transaction", "TransactionCalls"]

_FOUR = b"\x94"
_Send = Callable[[bytes, Callable[[Any], Any], bool], Future[list[str]]]


class Settleable(Protocol):
    """A message that a client has pulled."""

    _reply: dict[bytes, Any]
    _settled: bool


class _Operation(NamedTuple):
    """Its verb, its queue with the content or the id in MessagePack, and its options."""

    verb: bytes
    operands: bytes
    options: dict[str, Any] | None


class Operations:
    """What a transaction is to do, in this order. Each message may be settled once in it.

    Attributes:
        results: once it is done: what became of each operation, in their order: ``"ok"``, or for a push to a queue that
            accumulates what `AsyncClient.push` says. None before, and if nothing was done.
    """

    def __init__(self, send: _Send) -> None:
        self.results: list[str] | None = None
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
        headers: Iterable[Header] | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        """Store a message, with the options of `AsyncClient.push`.

        Args:
            queue: its name.
            content: any MessagePack value; with a content type bytes, the body as it is.
            content_type: that of the body.
            headers: (name, value) pairs; those are kept that the queue's hooks name.
            options: see `AsyncClient.push`.
        """
        packed = packed_push_options(options)
        if content_type is not None:
            packed["content_type"] = name_bytes(content_type)
        if headers is not None:
            [packed["headers"]] = packed_headers([headers])
        self._add(b"push", queue, encode_content(content), packed)

    def done(self, message: Settleable | Name, message_id: Name | None = None) -> None:
        """Ack a message: give the message itself, or its queue and its id."""
        self._settle(b"done", message, message_id, None, ends=True)

    def release(
        self,
        message: Settleable | Name,
        message_id: Name | None = None,
        *,
        delay: float | None = None,
        place: Place = "tail",
    ) -> None:
        """Nack a message, see `AsyncClient.release`: give the message itself, or its queue and its id."""
        self._settle(b"release", message, message_id, give_back_options(delay, place), ends=True)

    def retain(self, message: Settleable | Name, message_id: Name | None = None, *, lease: float | None = None) -> None:
        """Extend a lease, see `AsyncClient.retain`: give the message itself, or its queue and its id."""
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
        self._operations.append(_Operation(verb, b"".join((pack_raw(name_bytes(queue)), subject)), options))

    async def _commit(self) -> None:
        """Send the operations."""
        self._is_open = False
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
        """An operation as it is sent.

        A repetition of the transaction has to know whether an earlier attempt was carried out. A delivery that has ended tells
        it, otherwise the keys of the pushes do.
        """
        verb, operands, options = operation
        if verb == b"push" and not self._ends:
            options = {"key": random_key(), **(options or {})}
        return b"".join((_FOUR, pack_raw(verb), operands, pack(options)))

    def _decode(self, results: Any) -> list[str]:
        if len(results) != len(self._operations):
            raise ValueError(f"expected {len(self._operations)} results")
        return push_texts(results)

    def _abandon(self) -> None:
        self._is_open = False


class Transaction(Operations):
    """``async with client.transaction() as transaction:``, see `AsyncClient.transaction`."""

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
    """``with client.transaction() as transaction:``, see `Client.transaction`."""

    def __init__(self, send: _Send, run: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        super().__init__(send)
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


class TransactionCalls(CallBase):
    """Transactions."""

    _persistence: calls.Persistence

    def transaction(self) -> Transaction:
        """Several operations in one step: all of them are done, or none.

        They are sent when the block ends; when an exception leaves it, nothing is sent::

            async with client.transaction() as transaction:
                transaction.done(message)
                transaction.push("results", result)

        Up to 1,000 operations, together within the size of a request. It is done exactly once, also when the client has to
        repeat it.

        Raises:
            LmqError: at the end of the block. Nothing was done: ``lease_lost``, ``full``, ``too_large``, ``key_reused``,
                ``quota_exceeded``; or ``unknown_outcome``.
        """
        return Transaction(self._send_transaction)

    def _send_transaction(self, operations: bytes, decode: Callable[[Any], Any], ends: bool) -> Future[list[str]]:
        return self._call(partial(calls.Transaction, ends=ends, persistence=self._persistence), operations, decode)
