"""Sending of the asynchronous client's calls."""

from __future__ import annotations

import asyncio
import copy
import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, Self

from lmqcluster.wire.legacy_msgpack import pack, pack_raw

from ..message import Message
from ..options import random_key
from ..transport.calls import (
    Call,
    OptionPull,
    Persistence,
    Pull,
    PullOptions,
    Push,
    PushMany,
    Sender,
    Settle,
    SettleMany,
    Settlement,
    WaitingCall,
    push_texts,
)
from ..transport.failover import FailoverConnection
from ..transport.replies import push_text
from ..transport.requests import Heads, Name, name_bytes, request_body
from ..transport.shared_requests import ITEM_BYTES_MAX

__all__ = ["WAIT_S_MAX", "CallSender"]

logger = logging.getLogger("lmqcluster.client")

_LARGE_BYTES = 64 * 1024
WAIT_S_MAX = 1e8
"""The longest wait in seconds, which means without limit."""


def _check_wait(name: str, seconds: float) -> None:
    if not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= WAIT_S_MAX:
        raise ValueError(f"{name} must be 0 to {WAIT_S_MAX:,.0f} seconds, not {seconds!r}")


class CallSender:
    """Makes a call of each request, with a future and a deadline, and sends it.

    Attributes:
        session: the connection to the cluster.
        timeout_s: maximum duration of a call over all attempts, in addition to its wait, in seconds.
        loop: the event loop of the client; None before its first call.
        kept: settlements that may be retried for longer than their callers wait.
    """

    def __init__(self, session: FailoverConnection, timeout_s: float) -> None:
        self.session = session
        self.timeout_s = timeout_s
        self.loop: asyncio.AbstractEventLoop | None = None
        self.kept = session.kept
        self._sender: Sender = session
        self._settle_heads = {verb: Heads(verb, 2) for verb in (b"done", b"release", b"retain")}
        self.persistence = Persistence.WHILE_UNKNOWN

    def over(self, sender: Sender, loop: asyncio.AbstractEventLoop) -> Self:
        """Return a copy that sends calls over another connection."""
        calls = copy.copy(self)
        calls._sender, calls.loop = sender, loop
        return calls

    def settling(self, persistence: Persistence) -> Self:
        """Return a copy that retries settlements for another time."""
        calls = copy.copy(self)
        calls.persistence = persistence
        return calls

    def bind(self) -> asyncio.AbstractEventLoop:
        """Bind the client to the running event loop, and return it."""
        self.loop = self.session.loop
        return self.loop

    # --- calls of any kind ----------------------------------------------------------------------------------------

    def call(self, kind: Callable[..., Call], body: bytes, decode: Callable[[Any], Any]) -> Future[Any]:
        """Send a request. Awaited, return the decoded answer."""
        loop = self.loop or self.bind()
        call = kind(Future(loop=loop), body, decode, loop.time() + self.timeout_s)
        self._submit(call)
        return call.future

    def call_waiting(self, body: Callable[[float], bytes], decode: Callable[[Any], Any], wait_s: float) -> Future[Any]:
        """Send a request that the node may delay for `wait_s` seconds; `body` returns it for the remaining time."""
        _check_wait("wait", wait_s)
        loop = self.loop or self.bind()
        future: Future[Any] = Future(loop=loop)
        self._submit(WaitingCall(future, body, decode, loop.time(), wait_s, self.timeout_s))
        return future

    def _submit(self, call: Call) -> None:
        if self.kept.asked and isinstance(call, Settlement):
            self.kept.join(call)
        if len(call.body) < _LARGE_BYTES:
            self._sender.submit(call)
        else:
            self._sender.enqueue(call)

    # --- pushes ---------------------------------------------------------------------------------------------------

    def push(self, head: bytes, item: bytes) -> Future[str]:
        """Push an encoded content without options; `head` is the request before it."""
        loop = self.loop or self.bind()
        future: Future[str] = Future(loop=loop)
        share = head if len(item) <= ITEM_BYTES_MAX else None
        self._submit_push(Push(future, head + item, loop.time() + self.timeout_s, share, item))
        return future

    def push_with_options(self, head: bytes, options: dict[str, Any]) -> Future[str]:
        """Push a content with options; `head` is the request before them."""
        wait_s = options.pop("wait", None)
        if wait_s:
            # A waiting push has no producer sequence number, so only a key makes it idempotent.
            options.setdefault("key", random_key())
            return self.call_waiting(lambda left_s: head + pack({**options, "wait": left_s}), push_text, wait_s)
        body = head + pack(options)
        if "key" in options:
            return self.call(Call, body, push_text)
        loop = self.loop or self.bind()
        future: Future[str] = Future(loop=loop)
        self._submit_push(Push(future, body, loop.time() + self.timeout_s))
        return future

    def push_batch(self, name: bytes, packed: bytes, count: int, options: dict[str, Any] | None) -> Future[list[str]]:
        """Push `count` encoded contents to a queue in one request."""
        loop = self.loop or self.bind()
        future: Future[list[str]] = Future(loop=loop)
        deadline = loop.time() + self.timeout_s
        if count == 0:
            future.set_result([])
            return future
        parts = (b"\x92", name, packed) if options is None else (b"\x93", name, packed, pack(options))
        body = b"".join((PushMany.HEAD, *parts))
        if options is not None and "keys" in options:
            self._submit(Call(future, body, push_texts, deadline))
        else:
            self._submit_push(PushMany(future, body, deadline, count))
        return future

    def _submit_push(self, call: Push) -> None:
        if len(call.body) < _LARGE_BYTES:
            self._sender.submit_push(call)
        else:
            self._sender.enqueue(call)

    # --- pulls ----------------------------------------------------------------------------------------------------

    async def pull(
        self,
        head: bytes,
        decode: Callable[[Any], Any],
        wait_s: float | None,
        options: PullOptions | None = None,
        *,
        may_share: bool = False,
    ) -> Any:
        """Pull; `head` is the request before the wait and the options."""
        if wait_s is not None:
            _check_wait("timeout", wait_s)
        loop = self.loop or self.bind()
        future: Future[Any] = Future(loop=loop)
        if options is None:
            call = Pull(future, head, decode, loop.time(), wait_s, self.timeout_s, may_share=may_share)
        else:
            call = OptionPull(future, head, decode, loop.time(), wait_s, self.timeout_s, options)
        self._sender.submit(call)
        return await self.pulled(call)

    async def pulled(self, call: Pull) -> Any:
        """Wait for the result of a pull that was sent. If the caller is cancelled, cancel the pull or return its messages."""
        future = call.future
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self.session.forget(call)
            elif call.gives_back and future.exception() is None:
                self.give_back(future.result())  # The answer arrived in the same turn as the cancellation.
            raise

    def give_back(self, pulled: Message | list[Message] | None) -> None:
        """Return messages without a receiver to their queues, in the background; if that fails, their leases still expire."""
        by_queue: dict[str, list[str]] = {}
        for message in [pulled] if isinstance(pulled, Message) else pulled or ():
            by_queue.setdefault(message.queue, []).append(message.id)
        calls = self.settling(Persistence.UNTIL_KNOWN)
        for queue, ids in by_queue.items():
            future = calls.settle_many(b"put_back_many", queue, ids, ends=True, is_internal=True)
            future.add_done_callback(_note_failure)

    # --- settlements ----------------------------------------------------------------------------------------------

    def settle(self, verb: bytes, queue: Name, message_id: Name, *, ends: bool) -> Future[bool]:
        """Settle a delivery without options; `ends` tells whether this ends its lease."""
        loop = self.loop or self.bind()
        head, item = self._settle_heads[verb][queue], pack_raw(name_bytes(message_id))
        future: Future[bool] = Future(loop=loop)
        call = Settle(future, head + item, loop.time() + self.timeout_s, ends, self.persistence, head, item)
        if self.kept.asked:
            self.kept.join(call)
        self._sender.submit(call)
        return future

    def settle_with(
        self, verb: bytes, queue: Name, message_id: Name, options: dict[str, Any], *, ends: bool
    ) -> Future[bool]:
        """Settle a delivery with options."""
        loop = self.loop or self.bind()
        body = request_body(verb, [name_bytes(queue), name_bytes(message_id), options])
        future: Future[bool] = Future(loop=loop)
        self._submit(Settle(future, body, loop.time() + self.timeout_s, ends, self.persistence))
        return future

    def settle_many(
        self,
        verb: bytes,
        queue: Name,
        message_ids: Sequence[Name],
        options: dict[str, Any] | None = None,
        *,
        ends: bool,
        is_internal: bool = False,
    ) -> Future[list[bool]]:
        """Settle several deliveries of one queue in one request; `is_internal` if the client itself makes the call."""
        if isinstance(message_ids, (str, bytes)):
            raise TypeError("message_ids must be a list of ids")
        loop = self.loop or self.bind()
        future: Future[list[bool]] = Future(loop=loop)
        ids = [name_bytes(message_id) for message_id in message_ids]
        if not ids:
            future.set_result([])
            return future
        body = request_body(verb, [name_bytes(queue), ids, *([options] if options else ())])
        deadline = loop.time() + self.timeout_s
        call = SettleMany(future, body, deadline, ends=ends, persistence=self.persistence, count=len(ids))
        if is_internal:
            self.session.enqueue(call, internal=True)
        else:
            self._submit(call)
        return future


def _note_failure(future: Future[Any]) -> None:
    """Log that messages without a receiver could not be returned."""
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.warning("messages could not be given back, their leases have to run out: %s", error)
