"""The asynchronous client."""

from __future__ import annotations

import asyncio
import copy
import ssl
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from lmqcluster.wire.legacy_msgpack import pack, pack_raw
from lmqcluster.wire.limits import IDEMPOTENCY_WINDOW_S, PULL_COUNT_MAX, PUSH_COUNT_MAX

from ..message import Message
from ..options import BatchOptions, Header, PushOptions, packed_push_options, random_key
from ..transport.addresses import NodeAddress
from ..transport.backoff import Backoff
from ..transport.calls import (
    Call,
    NonRepeatableCall,
    OptionPull,
    Persistence,
    Pull,
    PullOptions,
    Push,
    PushMany,
    Sender,
    Settlement,
    WaitingCall,
    push_texts,
)
from ..transport.credentials import Credentials, FileName
from ..transport.failover import FailoverConnection
from ..transport.known_nodes import KnownNodes
from ..transport.replies import decode_strings, push_text
from ..transport.requests import Heads, Name, encode_content, name_bytes, pack_array, request_body, split_batch
from ..transport.session_settings import SessionSettings
from ..transport.shared_requests import ITEM_BYTES_MAX
from .batch_calls import BatchCalls
from .call_base import concatenated, note_failure, ok
from .job_calls import JobCalls
from .messages import Messages
from .queue_calls import QueueCalls
from .session_calls import SessionClient
from .settle_calls import SettleCalls
from .transactions import TransactionCalls

__all__ = ["AsyncClient"]


TIMEOUT_S_MAX = IDEMPOTENCY_WINDOW_S / 2
"""A push is sent again until its deadline, which must be well within the time that the cluster knows it again."""
_LARGE_BYTES = 64 * 1024
_BATCH_BYTES = 8 * 1024 * 1024
"""Batches above this are sent as several requests."""
_WAIT_S_MAX = 1e8


class AsyncClient(BatchCalls, JobCalls, QueueCalls, SettleCalls, TransactionCalls, SessionClient):
    """A connection to the cluster through any of its nodes.

    ``async with AsyncClient("host:18800,host:18810") as client:`` connects on entry and closes on exit; without it the first call
    connects, and `close` has to be called. It belongs to one event loop.

    Any number of calls may be under way at once; they share one connection and take effect in the order they were made. When the
    node is lost, the client goes to the next one and sends unanswered calls again: a push is stored once all the same. A call
    fails only when ``timeout_s`` is over, with an `LmqError` whose ``outcome`` tells whether it may have taken effect.

    Methods that return a `Future` send at once and need not be awaited one by one; pulls send when they are awaited. Cancelling
    a pull makes the node forget it, and a message already on its way is given back without a charged retry. Cancelling
    anything else leaves its outcome open.

    Queue names are `str` or `bytes`. Contents are any MessagePack value; MessagePack-RPC does not tell strings from bytes, so
    both come back as `bytes`, or, with ``decode=True``, as `str` where they are UTF-8. See `Message`.
    """

    def __init__(
        self,
        nodes: str | Iterable[str] | KnownNodes = "127.0.0.1:18800",
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 2.0,
        heartbeat_s: float = 5.0,
        decode: bool = False,
        in_flight_max: int = 8192,
        backlog_max: int = 1_000_000,
        backlog_bytes_max: int = 256 * 1024 * 1024,
        backoff: Backoff | None = None,
        token: str | None = None,
        token_file: FileName | None = None,
        tls_ca: FileName | None = None,
        tls_cert: FileName | None = None,
        tls: ssl.SSLContext | None = None,
        discover: bool = True,
    ) -> None:
        """Set the client up; nothing is sent yet.

        Args:
            nodes: ``"host:port,host:port"`` or a list of ``"host:port"``, in order of preference: where to start. The client
                learns the other nodes from the one that it reaches. List several, so that one of them answers at the start.
            timeout_s: how long a call may take in all, over however many attempts, beyond the time that a pull is to wait.
                More than 0 and at most 300, the time for which the cluster promises to know a repeated push.
            connect_timeout_s: how long a node may take to accept a connection and answer on it.
            heartbeat_s: after this much silence while something is unanswered the node is asked for a sign of life, and after as
                much again it is given up.
            decode: show strings in contents as `str` where they are UTF-8.
            in_flight_max: most calls sent and unanswered, waiting pulls not counted; further ones wait in the client.
            backlog_max: most calls waiting in the client; more fail as ``overloaded``.
            backlog_bytes_max: most bytes of requests waiting in the client, likewise.
            backoff: waits between attempts to connect.
            token: shown to nodes first of all; needed as soon as the cluster has tokens. When every node refuses it, calls
                fail at once as ``unauthorized``.
            token_file: file that holds the token. It is read again when a node refuses the token: if it holds another one by
                then, the client shows that, and the call goes on. With `token`, the file is read only then.
            tls_ca: file with the certificate of the authority that nodes have theirs from, or ``"system"`` for those that the
                machine trusts; turns TLS on. It is read again for each new connection.
            tls_cert: file with the certificate and key to show to nodes that ask for one; likewise.
            tls: a context of one's own in place of both.
            discover: whether to use the addresses that the cluster names too. Switch it off where they lead nowhere or
                elsewhere, as behind NAT, or where the client is to use certain nodes only.

        Raises:
            ValueError: an argument is out of range or no address, files for TLS and `tls` are given, or `token_file` holds no
                token.
            OSError: a file cannot be read.
        """
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s must be above 0 and at most {TIMEOUT_S_MAX:g}, not {timeout_s!r}")
        if min(connect_timeout_s, heartbeat_s) <= 0:
            raise ValueError("connect_timeout_s and heartbeat_s must be above 0")
        if min(in_flight_max, backlog_max, backlog_bytes_max) < 1:
            raise ValueError("in_flight_max, backlog_max and backlog_bytes_max must be at least 1")
        self._timeout_s = timeout_s
        self._decode = decode_strings if decode else None
        settings = SessionSettings(
            nodes=nodes if isinstance(nodes, KnownNodes) else KnownNodes(nodes, discovers=discover),
            credentials=Credentials(token=token, token_file=token_file, tls_ca=tls_ca, tls_cert=tls_cert, tls=tls),
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
            heartbeat_s=heartbeat_s,
            in_flight_max=in_flight_max,
            backlog_max=backlog_max,
            backlog_bytes_max=backlog_bytes_max,
            backoff=backoff or Backoff(),
            late=self._give_back,
        )
        self._session = FailoverConnection(settings)
        self._kept = self._session.kept
        self._sender: Sender = self._session
        self._loop: asyncio.AbstractEventLoop | None = None
        self._push_heads = Heads(b"push", 2)
        self._option_push_heads = Heads(b"push", 3)
        self._pull_heads = Heads(b"pull", 2)
        self._pull_any_heads = Heads(b"pull_any", 2)
        self._pull_many_heads = Heads(b"pull_many", 3)
        self._option_pull_heads = Heads(b"pull", 3)
        self._option_pull_many_heads = Heads(b"pull_many", 4)
        self._settle_heads = {verb: Heads(verb, 2) for verb in (b"done", b"release", b"retain")}
        self._persistence = Persistence.WHILE_UNKNOWN

    async def __aenter__(self) -> Self:
        try:
            await self.ping()
        except BaseException:
            await self._session.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, grace_s: float | None = None) -> None:
        """Take no more calls, end waiting pulls, wait for the answers to everything else, and disconnect.

        Args:
            grace_s: how long to wait for answers, default ``timeout_s``. Calls without one by then fail.
        """
        await self._session.close(self._timeout_s if grace_s is None else grace_s)

    @property
    def settlements_given_up(self) -> int:
        """How many acks, nacks and the like have ended without a known outcome since the client was made."""
        return self._kept.given_up

    def _settling(self, persistence: Persistence) -> Self:
        """The same client, except for how long it repeats settlements."""
        client = copy.copy(self)
        client._persistence = persistence
        return client

    @property
    def address(self) -> NodeAddress | None:
        """The node that the client is connected to at present, as ``(host, port)``."""
        return self._session.address

    @property
    def nodes(self) -> tuple[NodeAddress, ...]:
        """Every node that the client may turn to: those it was given, then those that the cluster has named."""
        return self._session.settings.nodes.all

    # --- push -----------------------------------------------------------------------------------------------------

    def push(self, queue: Name, content: Any, **options: Unpack[PushOptions]) -> Future[str]:
        """Push one message; it is stored exactly once, whatever happens to nodes meanwhile.

        Args:
            queue: name of the queue, which is made if it does not exist.
            content: any MessagePack value.
            options: ``key``, ``delay``, ``due``, ``ttl``, ``priority``, ``label``, ``group``, ``wait``, see `PushOptions`.

        Returns:
            Awaited: ``"ok"``, or in a queue that accumulates ``"packing started"`` or ``"packed"``.

        Raises:
            LmqError: awaited: for instance ``bad_name``, ``too_large``, ``full``; ``unknown_outcome`` if there was no answer in
                time.
        """
        if options and (packed := packed_push_options(options)):
            return self._push_with_options(queue, content, packed)
        loop = self._loop or self._bind()
        head, item = self._push_heads[queue], encode_content(content)
        body = head + item
        future: Future[str] = Future(loop=loop)
        share = head if len(item) <= ITEM_BYTES_MAX else None
        self._submit_push(Push(future, body, loop.time() + self._timeout_s, share, item))
        return future

    def _push_with_options(self, queue: Name, content: Any, options: dict[str, Any]) -> Future[str]:
        head = self._option_push_heads[queue] + encode_content(content)
        wait_s = options.pop("wait", None)
        if wait_s:
            # A push that waits has no number of its producer, so it needs a key to be stored once.
            options.setdefault("key", random_key())
            return self._call_waiting(lambda left_s: head + pack({**options, "wait": left_s}), push_text, wait_s)
        body = head + pack(options)
        if "key" in options:
            return self._call(Call, body, push_text)
        loop = self._loop or self._bind()
        future: Future[str] = Future(loop=loop)
        self._submit_push(Push(future, body, loop.time() + self._timeout_s))
        return future

    def _call_waiting(self, body: Callable[[float], bytes], decode: Callable[[Any], Any], wait_s: float) -> Future[Any]:
        if not 0 <= wait_s <= _WAIT_S_MAX:
            raise ValueError(f"a wait must be 0 seconds or more, not {wait_s!r}")
        loop = self._loop or self._bind()
        future: Future[Any] = Future(loop=loop)
        self._submit(WaitingCall(future, body, decode, loop.time(), wait_s, self._timeout_s))
        return future

    def push_many(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        keys: Sequence[Name] | None = None,
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
    ) -> Future[list[str]]:
        """Push many messages to one queue, in order; much faster than one by one.

        Large batches are sent as several requests. With `options` a request is stored as a whole or not at all.

        Args:
            queue: name of the queue.
            contents: any MessagePack values.
            keys: idempotency keys as for `push`, one for each content.
            content_types: one for each content, which then must be the body as bytes and is stored as it is, as over HTTP; None
                where the content is any MessagePack value. They need keys or options.
            options: those of `push` for each content, or None; keys are given by `keys`.
            headers: for each content (name, value) pairs or None; those are kept that the queue's hooks name. They need keys or
                options.

        Returns:
            Awaited: one result per content, as `push`.

        Raises:
            LmqError: awaited: as `push`; then a first part of the messages may have been stored. ``stored_in_part`` if a queue
                with bounds has taken some of them.
        """
        if isinstance(contents, (str, bytes)):
            raise TypeError("contents must be a list of messages")
        each = BatchOptions(len(contents), keys, content_types, options, headers)
        loop = self._loop or self._bind()
        name = pack_raw(name_bytes(queue))
        if len(contents) <= PUSH_COUNT_MAX:
            packed = pack(contents)
            if len(packed) <= _BATCH_BYTES:
                return self._push_batch(loop, name, packed, len(contents), each.of(0, len(contents)))
        encoded = [encode_content(content) for content in contents]
        parts = [
            self._push_batch(loop, name, pack_array(encoded[start:end]), end - start, each.of(start, end))
            for start, end in split_batch(encoded, PUSH_COUNT_MAX, _BATCH_BYTES)
        ]
        return loop.create_task(concatenated(parts))

    def _push_batch(
        self,
        loop: asyncio.AbstractEventLoop,
        name: bytes,
        packed: bytes,
        count: int,
        options: dict[str, Any] | None,
    ) -> Future[list[str]]:
        future: Future[list[str]] = Future(loop=loop)
        deadline = loop.time() + self._timeout_s
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

    def push_all(self, pattern: Name, content: Any) -> Future[str]:
        """Push one message to every queue whose name matches.

        This cannot be repeated safely: if the connection is lost before the answer, it fails with outcome ``unknown``.

        Args:
            pattern: regular expression (RE2), searched anywhere in the name.
            content: any MessagePack value. A string is stored without content type.

        Returns:
            Awaited: ``"ok"``, also if no queue matched.
        """
        body = request_body(b"push_all", [name_bytes(pattern), content])
        return self._call(NonRepeatableCall, body, ok)

    # --- pull -----------------------------------------------------------------------------------------------------

    def pull(
        self,
        queue: Name,
        timeout: float | None = None,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> Coroutine[Any, Any, Message | None]:
        """Take the next message under a lease.

        Args:
            queue: name of the queue.
            timeout: how long to wait for one, in seconds; 0 = not at all, None = without limit.
            lease: how long the lease lasts, in seconds; None = the queue's ``timeout``.
            auto_ack: have the node acknowledge the message before it sends it. If it does not arrive, it is lost.
            session: id of a session with which the lease ends; see `session`.
            after: id of the last message of this queue that arrived in the session, empty if none did. While the session holds
                later ones, which were lost on the way, the pull returns these again. `ClientSession` sets it by itself.

        Returns:
            The message, or None if there was none in time.

        Raises:
            LmqError: for instance ``bad_name``; with `auto_ack` ``unknown_outcome`` if the connection was lost before the answer.
        """
        if lease is not None or auto_ack or session is not None:
            head, decode = self._option_pull_heads[queue], self._settled_message if auto_ack else self._message
            return self._pull(head, decode, timeout, PullOptions(lease, auto_ack, session, after))
        return self._pull(self._pull_heads[queue], self._message, timeout, may_share=True)

    def pull_any(self, pattern: Name, timeout: float | None = None) -> Coroutine[Any, Any, Message | None]:
        """Take one message from any queue whose name matches, also from queues made while waiting.

        Args:
            pattern: regular expression (RE2), searched anywhere in the name.
            timeout: as in `pull`.
        """
        return self._pull(self._pull_any_heads[pattern], self._message, timeout)

    def pull_many(
        self,
        queue: Name,
        max: int,  # noqa: A002
        timeout: float | None = 0,
        *,
        lease: float | None = None,
        auto_ack: bool = False,
        session: Name | None = None,
        after: Name | None = None,
    ) -> Coroutine[Any, Any, list[Message]]:
        """Take up to `max` (1 to 10,000) messages; waits only while there is none at all.

        Args:
            queue: name of the queue.
            max: most messages to take.
            timeout: as in `pull`, but not waiting by default.
            lease, auto_ack, session, after: as in `pull`.
        """
        if not 1 <= max <= PULL_COUNT_MAX:
            raise ValueError(f"max must be 1 to {PULL_COUNT_MAX}, not {max!r}")
        if lease is not None or auto_ack or session is not None:
            head = self._option_pull_many_heads[queue] + pack(max)
            decode = self._settled_messages if auto_ack else self._messages
            return self._pull(head, decode, timeout, PullOptions(lease, auto_ack, session, after))
        return self._pull(self._pull_many_heads[queue] + pack(max), self._messages, timeout)

    async def _pull(
        self,
        head: bytes,
        decode: Callable[[Any], Any],
        wait_s: float | None,
        options: PullOptions | None = None,
        *,
        may_share: bool = False,
    ) -> Any:
        if wait_s is not None and not 0 <= wait_s < _WAIT_S_MAX:
            raise ValueError(f"a timeout must be 0 seconds or more, not {wait_s!r}")
        loop = self._loop or self._bind()
        future: Future[Any] = Future(loop=loop)
        if options is None:
            call = Pull(future, head, decode, loop.time(), wait_s, self._timeout_s, may_share=may_share)
        else:
            call = OptionPull(future, head, decode, loop.time(), wait_s, self._timeout_s, options)
        self._sender.submit(call)
        return await self._pulled(call)

    async def _pulled(self, call: Pull) -> Any:
        """What a pull that was sent gives."""
        future = call.future
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._session.forget(call)
            elif call.gives_back and future.exception() is None:
                self._give_back(future.result())  # The answer and the cancellation came together.
            raise

    def messages(self, queue: Name, *, prefetch: int = 1, timeout: float | None = None) -> Messages:
        """Iterate over the messages of a queue: ``async for message in client.messages("jobs"):``.

        Args:
            queue: name of the queue.
            prefetch: how many messages to take at once. Their leases all start then, so work through them within the queue's
                ``timeout``. With more than 1 use ``async with client.messages(...) as messages:``, which gives back those not
                handed out, without a charged retry, when the block is left.
            timeout: end when none came for so many seconds; None = never.
        """
        return Messages(self, queue, prefetch, timeout)

    def _message(self, reply: Any) -> Message | None:
        if reply == b"empty":
            return None
        content = reply[b"content"]
        return Message(self, reply, content if self._decode is None else self._decode(content))

    def _messages(self, replies: Any) -> list[Message]:
        messages = [self._message(reply) for reply in replies]
        return [message for message in messages if message is not None]

    def _settled_message(self, reply: Any) -> Message | None:
        message = self._message(reply)
        if message is not None:
            message._settled = True
        return message

    def _settled_messages(self, replies: Any) -> list[Message]:
        messages = self._messages(replies)
        for message in messages:
            message._settled = True
        return messages

    def _give_back(self, pulled: Message | list[Message] | None) -> None:
        """Return messages nobody will see, in the background; if that fails, their leases end all the same."""
        by_queue: dict[str, list[str]] = {}
        for message in [pulled] if isinstance(pulled, Message) else pulled or ():
            by_queue.setdefault(message.queue, []).append(message.id)
        for queue, ids in by_queue.items():
            call = self._settling(Persistence.UNTIL_KNOWN)._settle_many_call(b"put_back_many", queue, ids, ends=True)
            call.future.add_done_callback(note_failure)
            self._session.enqueue(call, internal=True)

    # --- helpers --------------------------------------------------------------------------------------------------

    def _call(self, kind: Callable[..., Call], body: bytes, decode: Callable[[Any], Any]) -> Future[Any]:
        loop = self._loop or self._bind()
        call = kind(Future(loop=loop), body, decode, loop.time() + self._timeout_s)
        self._submit(call)
        return call.future

    def _bind(self) -> asyncio.AbstractEventLoop:
        self._loop = self._session.loop
        return self._loop

    def _submit(self, call: Call) -> None:
        if self._kept.asked and isinstance(call, Settlement):
            self._kept.join(call)
        if len(call.body) < _LARGE_BYTES:
            self._sender.submit(call)
        else:
            self._sender.enqueue(call)

    def _submit_push(self, call: Push) -> None:
        if len(call.body) < _LARGE_BYTES:
            self._sender.submit_push(call)
        else:
            self._sender.enqueue(call)
