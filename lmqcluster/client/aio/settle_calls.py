"""Calls of the asynchronous client that settle deliveries."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from asyncio import Future
from collections.abc import Sequence
from typing import Any

from lmqcluster.wire.legacy_msgpack import pack_raw

from ..options import Place, give_back_options
from ..transport.calls import Call, Persistence, Sender, Settle, SettleMany
from ..transport.kept_settlements import KeptSettlements
from ..transport.requests import Heads, Name, name_bytes, request_body
from .call_base import CallBase

__all__ = ["SettleCalls"]


class SettleCalls(CallBase):
    """Ack, nack, extend and put back. See `AsyncClient` for how long the client retries them."""

    _sender: Sender
    _kept: KeptSettlements
    _loop: asyncio.AbstractEventLoop | None
    _timeout_s: float
    _settle_heads: dict[bytes, Heads]
    _persistence: Persistence

    @abstractmethod
    def _bind(self) -> asyncio.AbstractEventLoop:
        """Bind the client to the running loop."""

    @abstractmethod
    def _submit(self, call: Call) -> None:
        """Send a call."""

    def done(self, queue: Name, message_id: Name) -> Future[bool]:
        """Ack: remove a message for good.

        Returns:
            Awaited: whether its lease was valid. If not, the message has been or will be redelivered, or was settled before. The
            result is exact even if the connection is lost and the client retries the request.

        Raises:
            LmqError: awaited: ``unknown_outcome`` if no node answers in time.
        """
        return self._settle(b"done", queue, message_id, ends=True)

    def release(
        self, queue: Name, message_id: Name, *, delay: float | None = None, place: Place = "tail"
    ) -> Future[bool]:
        """Nack: return a message for redelivery, which costs a retry. Result as `done`.

        Args:
            queue, message_id: the message.
            delay: seconds after which it is due again; None = the delay of the queue, which is 0 by default.
            place: ``"tail"``, behind the waiting messages; ``"keep"``, its old place; ``"head"``, before all others.
        """
        if delay is None and place == "tail":
            return self._settle(b"release", queue, message_id, ends=True)
        return self._settle_with(b"release", queue, message_id, give_back_options(delay, place), ends=True)

    def retain(self, queue: Name, message_id: Name, *, lease: float | None = None) -> Future[bool]:
        """Extend: restart a message's lease.

        Args:
            queue, message_id: the message.
            lease: duration from now in seconds; None = the queue's ``timeout``.

        Returns:
            Awaited: whether the lease is valid.
        """
        if lease is None:
            return self._settle(b"retain", queue, message_id, ends=False)
        return self._settle_with(b"retain", queue, message_id, {"lease": lease}, ends=False)

    async def put_back(self, queue: Name, message_id: Name) -> bool:
        """Return a message to its queue as if it had never been pulled: no retry is charged. Result as `done`."""
        return (await self.put_back_many(queue, [message_id]))[0]

    def done_many(self, queue: Name, message_ids: Sequence[Name]) -> Future[list[bool]]:
        """Ack several messages of one queue. The results are in their order, each as `done`; False if the queue is missing."""
        return self._settle_many(b"done_many", queue, message_ids, ends=True)

    def release_many(
        self, queue: Name, message_ids: Sequence[Name], *, delay: float | None = None, place: Place = "tail"
    ) -> Future[list[bool]]:
        """Nack several messages of one queue, see `done_many` and `release`."""
        return self._settle_many(b"release_many", queue, message_ids, give_back_options(delay, place), ends=True)

    def retain_many(
        self, queue: Name, message_ids: Sequence[Name], *, lease: float | None = None
    ) -> Future[list[bool]]:
        """Extend the leases of several messages of one queue, see `done_many` and `retain`."""
        options = None if lease is None else {"lease": lease}
        return self._settle_many(b"retain_many", queue, message_ids, options, ends=False)

    def put_back_many(self, queue: Name, message_ids: Sequence[Name]) -> Future[list[bool]]:
        """Return several messages to one queue without charging a retry, see `done_many` and `put_back`."""
        return self._settle_many(b"put_back_many", queue, message_ids, ends=True)

    def _settle(self, verb: bytes, queue: Name, message_id: Name, *, ends: bool) -> Future[bool]:
        loop = self._loop or self._bind()
        head, item = self._settle_heads[verb][queue], pack_raw(name_bytes(message_id))
        future: Future[bool] = Future(loop=loop)
        call = Settle(future, head + item, loop.time() + self._timeout_s, ends, self._persistence, head, item)
        if self._kept.asked:
            self._kept.join(call)
        self._sender.submit(call)
        return future

    def _settle_with(
        self, verb: bytes, queue: Name, message_id: Name, options: dict[str, Any], *, ends: bool
    ) -> Future[bool]:
        loop = self._loop or self._bind()
        body = request_body(verb, [name_bytes(queue), name_bytes(message_id), options])
        future: Future[bool] = Future(loop=loop)
        self._submit(Settle(future, body, loop.time() + self._timeout_s, ends, self._persistence))
        return future

    def _settle_many(
        self,
        verb: bytes,
        queue: Name,
        message_ids: Sequence[Name],
        options: dict[str, Any] | None = None,
        *,
        ends: bool,
    ) -> Future[list[bool]]:
        call = self._settle_many_call(verb, queue, message_ids, options, ends=ends)
        if message_ids:
            self._submit(call)
        else:
            call.future.set_result([])
        return call.future

    def _settle_many_call(
        self,
        verb: bytes,
        queue: Name,
        message_ids: Sequence[Name],
        options: dict[str, Any] | None = None,
        *,
        ends: bool,
    ) -> SettleMany:
        if isinstance(message_ids, (str, bytes)):
            raise TypeError("message_ids must be a list of ids")
        loop = self._loop or self._bind()
        ids = [name_bytes(message_id) for message_id in message_ids]
        body = request_body(verb, [name_bytes(queue), ids, *([options] if options else ())])
        future: Future[list[bool]] = Future(loop=loop)
        deadline = loop.time() + self._timeout_s
        return SettleMany(future, body, deadline, ends=ends, persistence=self._persistence, count=len(message_ids))
