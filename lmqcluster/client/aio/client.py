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
"""Maximum of ``timeout_s`` in seconds. The client retries a push until its deadline, so the deadline must be well within the
time for which the cluster recognizes a repeated push."""
_LARGE_BYTES = 64 * 1024
_BATCH_BYTES = 8 * 1024 * 1024
"""Size of the largest batch that is sent as one request."""
_WAIT_S_MAX = 1e8


class AsyncClient(BatchCalls, JobCalls, QueueCalls, SettleCalls, TransactionCalls, SessionClient):
    """A connection to the cluster through any of its nodes.

    ``async with AsyncClient("host:18800,host:18810") as client:`` connects on entry and closes on exit. Without it, the first
    call connects, and the application must call `close`. A client belongs to one event loop.

    Any number of calls may be in flight; they share one connection and take effect in the order they were made. If the node
    fails, the client connects to the next one and retries unanswered calls; a push is still stored exactly once. A call in retry
    fails only after ``timeout_s``, with an `LmqError` whose ``outcome`` shows whether it may have taken effect.

    Methods that return a `Future` send immediately and need not be awaited one by one; pulls send when they are awaited. If a
    pull is cancelled, the client cancels it at the node and returns a message in flight without charging a retry. If any other
    call is cancelled, its outcome is unknown.

    Queue names are `str` or `bytes`. Contents are any MessagePack value. MessagePack-RPC does not distinguish strings from bytes,
    so both come back as `bytes`; with ``decode=True``, those that are UTF-8 come back as `str`. See `Message`.
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
        """Configure the client without sending anything.

        Args:
            nodes: ``"host:port,host:port"`` or a list of ``"host:port"``, in order of preference: the addresses to start with.
                The client learns the other nodes from the one that it reaches. List several, so that one of them answers.
            timeout_s: maximum duration of a call over all attempts, in addition to the wait of a pull. Above 0 and at most
                300, the time for which the cluster promises to recognize a repeated push.
            connect_timeout_s: how long a node may take to accept a connection and answer on it.
            heartbeat_s: after this much silence while a call is unanswered, the client pings the node; after as much again it
                closes the connection.
            decode: return strings in contents as `str` if they are UTF-8.
            in_flight_max: maximum number of unanswered calls, without waiting pulls; further calls wait in the client.
            backlog_max: maximum number of calls that wait in the client; further calls fail with ``overloaded``.
            backlog_bytes_max: maximum size of the requests that wait in the client, with the same effect.
            backoff: waits between attempts to connect.
            token: the token to present first; required if the cluster has tokens. If every node refuses it, calls fail
                immediately with ``unauthorized``.
            token_file: file that holds the token. If a node refuses the token, the client reads the file again; if the file has
                a new token, the client presents it and repeats the call. With `token`, the client reads the file only then.
            tls_ca: file with the certificate of the authority that signed the nodes' certificates, or ``"system"`` for those that
                the machine trusts; enables TLS. The client reads it again for each new connection.
            tls_cert: file with the certificate and key to present to nodes that request them; read again likewise.
            tls: a context in place of both files.
            discover: whether to use the addresses that the cluster names too. Disable it if they are not reachable, for example
                behind NAT, or if the client must use certain nodes only.

        Raises:
            ValueError: an argument is out of range or not an address, both TLS files and `tls` are given, or `token_file` holds
                no token.
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
        """Reject new calls, cancel waiting pulls, wait for the answers to all other calls, and disconnect.

        Args:
            grace_s: how long to wait for answers, in seconds, default ``timeout_s``; then the unanswered calls fail.
        """
        await self._session.close(self._timeout_s if grace_s is None else grace_s)

    @property
    def settlements_given_up(self) -> int:
        """Number of acks, nacks and the like that ended without a known outcome since the client was created."""
        return self._kept.given_up

    def _settling(self, persistence: Persistence) -> Self:
        """Return a copy of the client that retries settlements for another time."""
        client = copy.copy(self)
        client._persistence = persistence
        return client

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node that the client is connected to at present, as ``(host, port)``."""
        return self._session.address

    @property
    def nodes(self) -> tuple[NodeAddress, ...]:
        """Addresses of all nodes that the client may connect to: those it was given, then those that the cluster named."""
        return self._session.settings.nodes.all

    # --- push -----------------------------------------------------------------------------------------------------

    def push(self, queue: Name, content: Any, **options: Unpack[PushOptions]) -> Future[str]:
        """Push one message, which is stored exactly once even if nodes fail.

        Args:
            queue: name of the queue, which is created if it does not exist.
            content: any MessagePack value.
            options: ``key``, ``delay``, ``due``, ``ttl``, ``priority``, ``label``, ``group``, ``wait``, see `PushOptions`.

        Returns:
            Awaited: ``"ok"``, or ``"packing started"`` or ``"packed"`` if the queue accumulates messages.

        Raises:
            LmqError: awaited: for example ``bad_name``, ``too_large``, ``full``; ``unknown_outcome`` if no answer arrived in
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
            # A waiting push has no producer sequence number, so only a key makes it idempotent.
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
        """Push many messages to one queue, in order; much faster than single pushes.

        Large batches are sent as several requests. With `options`, each request is stored atomically.

        Args:
            queue: name of the queue.
            contents: any MessagePack values.
            keys: idempotency keys as for `push`, one for each content.
            content_types: one for each content. The content must then be the body as bytes and is stored unchanged, as over HTTP;
                with None it is any MessagePack value. They require keys or options.
            options: those of `push` for each content, or None; use `keys` for keys.
            headers: for each content (name, value) pairs or None; the cluster keeps those that the queue's hooks name. They
                require keys or options.

        Returns:
            Awaited: one result per content, as `push`.

        Raises:
            LmqError: awaited: as `push`; then a first part of the messages may have been stored. ``stored_in_part`` if a bounded
                queue has accepted only some of them.
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

        This call is not idempotent: if the connection is lost before the answer, it fails with outcome ``unknown``.

        Args:
            pattern: regular expression (RE2), searched anywhere in the name.
            content: any MessagePack value. A string is stored without a content type.

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
            lease: duration of the lease in seconds; None = the queue's ``timeout``.
            auto_ack: whether the node acknowledges the message before it sends it. If the message does not arrive, it is lost.
            session: id of a session with which the lease ends; see `session`.
            after: id of the last message of this queue that arrived in the session, empty if none did. If the session holds
                later ones, which were lost in flight, the pull returns these again. `ClientSession` sets it automatically.

        Returns:
            The message, or None if none arrived in time.

        Raises:
            LmqError: for example ``bad_name``; with `auto_ack`, ``unknown_outcome`` if the connection was lost before the answer.
        """
        if lease is not None or auto_ack or session is not None:
            head, decode = self._option_pull_heads[queue], self._settled_message if auto_ack else self._message
            return self._pull(head, decode, timeout, PullOptions(lease, auto_ack, session, after))
        return self._pull(self._pull_heads[queue], self._message, timeout, may_share=True)

    def pull_any(self, pattern: Name, timeout: float | None = None) -> Coroutine[Any, Any, Message | None]:
        """Take one message from any queue whose name matches, including queues created during the wait.

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
        """Take up to `max` (1 to 10,000) messages; wait only until there is at least one.

        Args:
            queue: name of the queue.
            max: maximum number of messages.
            timeout: as in `pull`, but without a wait by default.
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
        """Wait for the result of a pull that was sent. If the caller is cancelled, cancel the pull or return its messages."""
        future = call.future
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._session.forget(call)
            elif call.gives_back and future.exception() is None:
                self._give_back(future.result())  # The answer arrived in the same turn as the cancellation.
            raise

    def messages(self, queue: Name, *, prefetch: int = 1, timeout: float | None = None) -> Messages:
        """Iterate over the messages of a queue: ``async for message in client.messages("jobs"):``.

        Args:
            queue: name of the queue.
            prefetch: number of messages to take at once. All their leases start then, so process them within the queue's
                ``timeout``. With more than 1, use ``async with client.messages(...) as messages:``. At the end of the block,
                it returns the messages that were not yielded without charging a retry.
            timeout: end the iteration if no message arrives for this many seconds; None = never.
        """
        return Messages(
            prefetch,
            lambda: self.pull_many(queue, prefetch, timeout),
            lambda ids: self.put_back_many(queue, ids),
        )

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
        """Return messages without a receiver to their queues, in the background; if that fails, their leases still expire."""
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
