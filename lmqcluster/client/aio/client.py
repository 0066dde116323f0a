"""The asynchronous client."""

from __future__ import annotations

import asyncio
import copy
import ssl
from asyncio import Future, ensure_future
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from lmqcluster.wire.legacy_msgpack import pack, pack_raw
from lmqcluster.wire.limits import IDEMPOTENCY_WINDOW_S, PUSH_COUNT_MAX

from ..batches import Backlog, BatchColumns, BatchLease
from ..mark import Mark
from ..message import Message
from ..move_tasks import move_task_options, move_task_rows
from ..options import (
    BatchOptions,
    Place,
    PushOptions,
    give_back_options,
    packed_push_options,
)
from ..schedules import Missed, optional_schedule, schedule_options, schedule_page
from ..transport.addresses import NodeAddress
from ..transport.backoff import Backoff
from ..transport.calls import Call, NonRepeatableCall, Persistence, PullOptions
from ..transport.calls import Transaction as TransactionCall
from ..transport.credentials import Credentials, FileName
from ..transport.failover import FailoverConnection
from ..transport.known_nodes import KnownNodes
from ..transport.replies import (
    decode_strings,
    default_rules,
    mapping,
    mappings,
    name_text,
    name_texts,
    nothing,
    ok,
    optional_int,
    optional_mapping,
)
from ..transport.requests import Heads, Name, encode_content, name_bytes, pack_array, request_body, split_batch
from ..transport.session_settings import SessionSettings
from .call_sender import WAIT_S_MAX, CallSender
from .messages import Messages, check_count
from .sessions import ClientSession
from .transactions import Transaction

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ..tracing import Tracer

__all__ = ["AsyncClient"]


TIMEOUT_S_MAX = IDEMPOTENCY_WINDOW_S / 2
"""Maximum of ``timeout_s`` in seconds. The client retries a push until its deadline, so the deadline must be well within the
time for which the cluster recognizes a repeated push."""
_BATCH_BYTES = 8 * 1024 * 1024
"""Size of the largest batch that is sent as one request."""


class AsyncClient:
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
        tracing: bool | TracerProvider = False,
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
            tracing: whether to make OpenTelemetry spans of pushes, pulls, settlements and processed messages; or the provider of
                the spans, instead of the process's. Requires the extra ``otel``.

        Raises:
            ModuleNotFoundError: `tracing` is given and OpenTelemetry is not installed.
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
        self._calls = CallSender(self._session, timeout_s)
        self._tracer: Tracer | None = None
        self._message_type = Message
        if tracing:
            self._trace(None if tracing is True else tracing)
        self._push_heads = Heads(b"push", 2)
        self._option_push_heads = Heads(b"push", 3)
        self._pull_heads = Heads(b"pull", 2)
        self._pull_any_heads = Heads(b"pull_any", 2)
        self._pull_many_heads = Heads(b"pull_many", 3)
        self._option_pull_heads = Heads(b"pull", 3)
        self._option_pull_many_heads = Heads(b"pull_many", 4)

    def _trace(self, provider: TracerProvider | None) -> None:
        try:
            from .traced_calls import TracedCalls, TracedMessage, Tracer  # noqa: PLC0415 - imports OpenTelemetry
        except ModuleNotFoundError as error:
            reason = "tracing needs a library that is not installed: install lmqcluster with the extra otel"
            raise ModuleNotFoundError(reason) from error
        self._tracer = Tracer(provider)
        self._calls = TracedCalls(self._session, self._calls.timeout_s, self._tracer)
        self._message_type = TracedMessage

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
        await self._session.close(self._calls.timeout_s if grace_s is None else grace_s)

    @property
    def settlements_given_up(self) -> int:
        """Number of acks, nacks and the like that ended without a known outcome since the client was created."""
        return self._calls.kept.given_up

    def _settling(self, persistence: Persistence) -> Self:
        """Return a copy of the client that retries settlements for another time."""
        client = copy.copy(self)
        client._calls = self._calls.settling(persistence)
        return client

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node that the client is connected to at present, as ``(host, port)``."""
        return self._session.address

    @property
    def nodes(self) -> tuple[NodeAddress, ...]:
        """Addresses of all nodes that the client may connect to: those it was given, then those that the cluster named."""
        return self._session.settings.nodes.all

    # --- push ------------------------------------------------------------------------------------------------------

    def push(self, queue: Name, content: Any, **options: Unpack[PushOptions]) -> Future[str]:
        """Push one message, which is stored exactly once even if nodes fail.

        Args:
            queue: name of the queue, which is created if it does not exist.
            content: any MessagePack value.
            options: ``key``, ``delay``, ``due``, ``ttl``, ``priority``, ``label``, ``group``, ``attributes``, ``wait``, see
                `PushOptions`.

        Returns:
            Awaited: ``"ok"``, or ``"packing started"`` or ``"packed"`` if the queue accumulates messages.

        Raises:
            LmqError: awaited: for example ``bad_name``, ``too_large``, ``full``; ``unknown_outcome`` if no answer arrived in
                time.
        """
        if self._tracer is not None:
            return self._tracer.push(self, queue, content, options)
        if options and (packed := packed_push_options(options)):
            return self._calls.push_with_options(self._option_push_heads[queue] + encode_content(content), packed)
        return self._calls.push(self._push_heads[queue], encode_content(content))

    def push_many(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        keys: Sequence[Name] | None = None,
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
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

        Returns:
            Awaited: one result per content, as `push`.

        Raises:
            LmqError: awaited: as `push`; then a first part of the messages may have been stored. ``stored_in_part`` if a bounded
                queue has accepted only some of them.
        """
        if isinstance(contents, (str, bytes)):
            raise TypeError("contents must be a list of messages")
        if self._tracer is not None:
            return self._tracer.push_many(self, queue, contents, options, keys, content_types)
        each = BatchOptions(len(contents), keys, content_types, options)
        calls, name = self._calls, pack_raw(name_bytes(queue))
        if len(contents) <= PUSH_COUNT_MAX:
            packed = pack(contents)
            if len(packed) <= _BATCH_BYTES:
                return calls.push_batch(name, packed, len(contents), each.of(0, len(contents)))
        encoded = [encode_content(content) for content in contents]
        parts = [
            calls.push_batch(name, pack_array(encoded[start:end]), end - start, each.of(start, end))
            for start, end in split_batch(encoded, PUSH_COUNT_MAX, _BATCH_BYTES)
        ]
        return (calls.loop or calls.bind()).create_task(_concatenated(parts))

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
        return self._calls.call(NonRepeatableCall, body, ok)

    # --- pull ------------------------------------------------------------------------------------------------------

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
            return self._calls.pull(head, decode, timeout, PullOptions(lease, auto_ack, session, after))
        return self._calls.pull(self._pull_heads[queue], self._message, timeout, may_share=True)

    def pull_any(self, pattern: Name, timeout: float | None = None) -> Coroutine[Any, Any, Message | None]:
        """Take one message from any queue whose name matches, including queues created during the wait.

        Args:
            pattern: regular expression (RE2), searched anywhere in the name.
            timeout: as in `pull`.
        """
        return self._calls.pull(self._pull_any_heads[pattern], self._message, timeout)

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
        check_count("max", max)
        if lease is not None or auto_ack or session is not None:
            head = self._option_pull_many_heads[queue] + pack(max)
            decode = self._settled_messages if auto_ack else self._messages
            return self._calls.pull(head, decode, timeout, PullOptions(lease, auto_ack, session, after))
        return self._calls.pull(self._pull_many_heads[queue] + pack(max), self._messages, timeout)

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
        return self._message_type(self, reply, content if self._decode is None else self._decode(content))

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
        self._calls.give_back(pulled)

    # --- settle ----------------------------------------------------------------------------------------------------

    def done(self, queue: Name, message_id: Name) -> Future[bool]:
        """Ack: remove a message for good.

        Returns:
            Awaited: whether its lease was valid. If not, the message has been or will be redelivered, or was settled before. The
            result is exact even if the connection is lost and the client retries the request.

        Raises:
            LmqError: awaited: ``unknown_outcome`` if no node answers in time.
        """
        return self._calls.settle(b"done", queue, message_id, ends=True)

    def release(
        self,
        queue: Name,
        message_id: Name,
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> Future[bool]:
        """Nack: return a message for redelivery, which costs a retry. Result as `done`.

        Args:
            queue, message_id: the message.
            delay: seconds after which it is due again; None = the delay of the queue, which is 0 by default.
            place: ``"tail"``, behind the waiting messages; ``"keep"``, its old place; ``"head"``, before all others.
            reason: why it comes back, which becomes its attribute ``lmq.reason``; cut to 1 KiB of UTF-8.
        """
        options = give_back_options(delay, place, reason)
        if not options:
            return self._calls.settle(b"release", queue, message_id, ends=True)
        return self._calls.settle_with(b"release", queue, message_id, options, ends=True)

    def retain(self, queue: Name, message_id: Name, *, lease: float | None = None) -> Future[bool]:
        """Extend: restart a message's lease.

        Args:
            queue, message_id: the message.
            lease: duration from now in seconds; None = the queue's ``timeout``.

        Returns:
            Awaited: whether the lease is valid.
        """
        if lease is None:
            return self._calls.settle(b"retain", queue, message_id, ends=False)
        return self._calls.settle_with(b"retain", queue, message_id, {"lease": lease}, ends=False)

    async def put_back(self, queue: Name, message_id: Name) -> bool:
        """Return a message to its queue as if it had never been pulled: no retry is charged. Result as `done`."""
        return (await self.put_back_many(queue, [message_id]))[0]

    def done_many(self, queue: Name, message_ids: Sequence[Name]) -> Future[list[bool]]:
        """Ack several messages of one queue. The results are in their order, each as `done`; False if the queue is missing."""
        return self._calls.settle_many(b"done_many", queue, message_ids, ends=True)

    def release_many(
        self,
        queue: Name,
        message_ids: Sequence[Name],
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> Future[list[bool]]:
        """Nack several messages of one queue, see `done_many` and `release`."""
        options = give_back_options(delay, place, reason)
        return self._calls.settle_many(b"release_many", queue, message_ids, options, ends=True)

    def retain_many(
        self, queue: Name, message_ids: Sequence[Name], *, lease: float | None = None
    ) -> Future[list[bool]]:
        """Extend the leases of several messages of one queue, see `done_many` and `retain`."""
        options = None if lease is None else {"lease": lease}
        return self._calls.settle_many(b"retain_many", queue, message_ids, options, ends=False)

    def put_back_many(self, queue: Name, message_ids: Sequence[Name]) -> Future[list[bool]]:
        """Return several messages to one queue without charging a retry, see `done_many` and `put_back`."""
        return self._calls.settle_many(b"put_back_many", queue, message_ids, ends=True)

    def transaction(self) -> Transaction:
        """Return a transaction, whose operations take effect atomically.

        The client sends them at the end of the block. If the block raises, it sends nothing::

            async with client.transaction() as transaction:
                transaction.done(message)
                transaction.push("results", result)

        A transaction has up to 1,000 operations, together within the size of a request. It is executed exactly once, also if the
        client retries it.

        Raises:
            LmqError: at the end of the block. Without any effect: ``lease_lost``, ``full``, ``too_large``, ``key_reused``,
                ``quota_exceeded``; or ``unknown_outcome``.
        """
        return Transaction(self._send_transaction, self)

    def _send_transaction(self, operations: bytes, decode: Callable[[Any], Any], ends: bool) -> Future[list[str]]:
        return self._calls.call(
            partial(TransactionCall, ends=ends, persistence=self._calls.persistence), operations, decode
        )

    # --- queues and the cluster ------------------------------------------------------------------------------------

    def delete(self, queue: Name) -> Future[str]:
        """Delete a queue with all its messages. Awaited: ``"ok"``, also if it did not exist."""
        return self._calls.call(Call, request_body(b"delete", [name_bytes(queue)]), ok)

    def purge(self, queue: Name) -> Future[int]:
        """Remove all messages of a queue that are not leased: ready, delayed, and in an open accumulation window.

        Messages pushed during the purge stay, unless they arrive when fewer are left than the queue held at its start. The call
        is idempotent. If the client retries it after a lost connection, the result counts only the last attempt.

        Returns:
            Awaited: number of removed messages.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._calls.call(Call, request_body(b"purge", [name_bytes(queue)]), int)

    def move(self, queue: Name, to: Name, max: int | None = None) -> Future[int]:  # noqa: A002
        """Move messages that can be pulled now to the end of another queue, in their order, as new messages.

        They keep content, content type and attributes. The target queue determines their number of deliveries and does not
        accumulate them. This call is not idempotent: if the connection is lost before the answer, it fails with outcome
        ``unknown``.

        Args:
            queue: name of the source queue.
            to: name of the target queue, which is created if it does not exist.
            max: maximum number of messages to move; None = all.

        Returns:
            Awaited: number of moved messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_name``, ``bad_request``, ``unknown_outcome``.
        """
        arguments = [name_bytes(queue), name_bytes(to), *_limit(max)]
        return self._calls.call(NonRepeatableCall, request_body(b"move", arguments), int)

    def withdraw(
        self,
        queue: Name,
        label: Name,
        max: int | None = None,  # noqa: A002
        attribute: tuple[str, str] | None = None,
    ) -> Future[int]:
        """Remove messages with a label that are not leased.

        The call is idempotent. If the client retries it after a lost connection, the result counts only the last attempt.

        Args:
            queue: name of the queue.
            label: label from the push.
            max: maximum number of messages to remove; None = all.
            attribute: only messages that also have an attribute of this name whose text is the second string, see `peek`.

        Returns:
            Awaited: number of removed messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_request``.
        """
        arguments: list[Any] = [name_bytes(queue), name_bytes(label), *_limit(max)]
        if attribute is not None:
            arguments = [*arguments[:2], max, attribute]
        return self._calls.call(Call, request_body(b"withdraw", arguments), int)

    def count_labelled(self, queue: Name, label: Name) -> Future[int]:
        """Count the messages with a label that are not leased.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_request``.
        """
        return self._calls.call(Call, request_body(b"count_labelled", [name_bytes(queue), name_bytes(label)]), int)

    def redrive(
        self,
        queue: Name,
        *,
        to: Name | None = None,
        label: Name | None = None,
        max: int | None = None,  # noqa: A002
    ) -> Future[int]:
        """Send messages that the cluster moved into a queue, such as dead letters, back to their queues of origin.

        Each becomes a new message with its label, group and priority. The call is idempotent, because messages sent by an earlier
        attempt are no longer in the queue. If the client retries it, the result counts only the last attempt.

        Args:
            queue: name of the queue that holds them.
            to: name of another target queue.
            label: send only messages with this label.
            max: maximum number of messages to send; None = all.

        Returns:
            Awaited: number of sent messages.

        Raises:
            LmqError: awaited: ``queue_not_found``, ``bad_name``, ``bad_request``.
        """
        options: dict[str, Any] = {}
        if max is not None:
            (options["max"],) = _limit(max)
        if to is not None:
            options["to"] = name_bytes(to)
        if label is not None:
            options["label"] = name_bytes(label)
        return self._calls.call(Call, request_body(b"redrive", [name_bytes(queue), options]), int)

    def start_move_task(self, queue: Name, *, to: Name | None = None, rate: int | None = None) -> Future[int]:
        """Start a task that moves the messages of a queue; see `lmqcluster.client.move_tasks`. Awaited: its number."""
        body = request_body(b"start_move_task", [name_bytes(queue), move_task_options(to, rate)])
        return self._calls.call(NonRepeatableCall, body, int)

    def cancel_move_task(self, queue: Name, number: int) -> Future[int]:
        """Cancel a running task; ``task_not_found`` if it does not run. Awaited: how many messages it has moved."""
        return self._calls.call(Call, request_body(b"cancel_move_task", [name_bytes(queue), number]), int)

    def move_tasks(self, queue: Name) -> Future[list[dict[str, Any]]]:
        """List the latest tasks of a queue, the newest first. Awaited: ``number``, ``status``, ``moved`` and more of each."""
        return self._calls.call(Call, request_body(b"move_tasks", [name_bytes(queue)]), move_task_rows)

    def bind(self, source: Name, target: Name) -> Future[bool]:
        """Store a copy of each message pushed to one queue in another, atomically. Both are created if they do not exist.

        Returns:
            Awaited: True if the binding is new. After a retry it may be False because of the first attempt.

        Raises:
            LmqError: awaited: ``bad_name``, ``bad_request``.
        """
        return self._calls.call(Call, request_body(b"bind", [name_bytes(source), name_bytes(target)]), bool)

    def unbind(self, source: Name, target: Name) -> Future[bool]:
        """Remove a binding. Awaited: whether it existed; after a retry as for `bind`."""
        return self._calls.call(Call, request_body(b"unbind", [name_bytes(source), name_bytes(target)]), bool)

    def bindings(self, source: Name) -> Future[list[str]]:
        """List the queues that receive copies of messages pushed to this one, as far as the token covers them."""
        return self._calls.call(Call, request_body(b"bindings", [name_bytes(source)]), name_texts)

    def suspend(self, queue: Name) -> Future[str]:
        """Stop deliveries from a queue until `resume`. All pulls, also by pattern and of batches, treat it as empty.

        Pushes, acks, nacks and extends still work, and leases expire. The suspension applies to all nodes and survives restarts.

        Returns:
            Awaited: ``"ok"``, also if the queue is already suspended.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._calls.call(Call, request_body(b"suspend", [name_bytes(queue)]), ok)

    def resume(self, queue: Name) -> Future[str]:
        """Resume deliveries from a suspended queue, first to the pulls that already wait. Result as `suspend`."""
        return self._calls.call(Call, request_body(b"resume", [name_bytes(queue)]), ok)

    def update_props(
        self,
        queue: Name,
        props: Mapping[str, Any] | None = None,
        *,
        only_unset: bool = False,
        annotations: Mapping[str, str | None] | None = None,
    ) -> Future[str]:
        """Set some of a queue's properties, or clear all that were set on it.

        Args:
            queue: name of the queue, which is created if it does not exist.
            props: any of ``accum`` (also called ``pack``; seconds), ``retry``, ``timeout`` (seconds), ``hooks``, ``max_items``
                and the like, see docs/properties.md; the others are kept. None or empty: the queue reverts to the defaults.
            only_unset: keep properties that the queue already has, whether set on it, by a default rule or by its parent. So a
                program can set what it needs, and an operator can override it.
            annotations: texts to keep with the queue, set together with the properties or not at all; None removes one. If
                any are given, no property is cleared.

        Returns:
            Awaited: ``"ok"``.

        Raises:
            LmqError: awaited: ``bad_property``, ``too_large`` for the annotations.
        """
        arguments: list[Any] = [name_bytes(queue)] if props is None else [name_bytes(queue), dict(props)]
        if only_unset or annotations:
            options = {"only_unset": only_unset, "annotations": dict(annotations or {})}
            arguments = [name_bytes(queue), dict(props or {}), options]
        return self._calls.call(Call, request_body(b"update_props", arguments), ok)

    def set_default_props(self, rules: Iterable[tuple[str, Mapping[str, Any]]]) -> Future[str]:
        """Replace the list of default properties.

        Args:
            rules: pairs of a regular expression (RE2) and properties; the first one that matches a queue's name applies.

        Returns:
            Awaited: ``"ok"``.
        """
        return self._calls.call(
            Call,
            request_body(b"set_default_props", [[[pattern, dict(props)] for pattern, props in rules]]),
            ok,
        )

    def get_default_props(self) -> Future[list[tuple[str, dict[str, Any]]]]:
        """Return the list of default properties as it was set. Accumulation appears as ``pack``, in seconds."""
        return self._calls.call(Call, request_body(b"get_default_props", []), default_rules)

    def cluster(self) -> Future[dict[str, Any]]:
        """Return the node's view of the cluster, including ``self``, ``leader`` and the nodes' addresses."""
        return self._calls.call(Call, request_body(b"cluster", []), mapping)

    def ping(self) -> Future[str]:
        """Ping the cluster. Awaited: ``"pong"`` from any node that answers."""
        return self._calls.call(Call, request_body(b"ping", []), name_text)

    # --- batches ---------------------------------------------------------------------------------------------------

    def reserve_batch(
        self,
        subscription: Name,
        epoch: int,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        count: int,
        lease_s: float = 86_400.0,
        session: int | None = None,
    ) -> Future[BatchLease]:
        """Lease many messages together, for an epoch of a subscription.

        The same epoch returns the same batch again, through any node and after any crash, until the batch is settled, abandoned
        or its lease expires. Other consumers can pull the rest of the queue at the same time.

        Args:
            subscription: name of the consumer, 1 to 255 bytes.
            epoch: number of the batch; each new one must be higher than all before it.
            queue: take from this queue;
            pattern: or from all queues whose names match this regular expression (RE2).
            count: maximum number of messages, 1 to 100,000; the call does not wait for messages.
            lease_s: seconds after which unsettled messages return to their queues, which costs no retry.
            session: the result of `claim_subscription`, if the subscription was claimed.

        Raises:
            ValueError: not exactly one of `queue` and `pattern` is given.
            LmqError: awaited: ``bad_request``, ``bad_name``, ``bad_pattern``; ``fenced`` if the session is not that of the latest
                claim; ``quota_exceeded``.
        """
        source, is_pattern = _source(queue, pattern)
        options = {"pattern": is_pattern, "count": count, "lease": lease_s}
        if session is not None:
            options["session"] = session
        arguments = [name_bytes(subscription), epoch, source, options]

        decode = partial(BatchLease.of, name_text(name_bytes(subscription)), epoch)
        return self._calls.call(Call, request_body(b"reserve_batch", arguments), decode)

    def claim_subscription(self, subscription: Name) -> Future[int]:
        """Take over a subscription: its later calls require the new session, and calls with an earlier one fail.

        The batches stay, so the consumer that claims continues where the one before stopped.

        Returns:
            Awaited: the session.

        Raises:
            LmqError: awaited: ``bad_name``, ``quota_exceeded``.
        """
        return self._calls.call(Call, request_body(b"claim_subscription", [name_bytes(subscription)]), int)

    def delete_subscription(self, subscription: Name) -> Future[str]:
        """Abandon all batches like `abandon_batches`, and delete the subscription, also if another consumer has claimed it.

        Awaited: ``"ok"``, also if it did not exist.
        """
        return self._calls.call(Call, request_body(b"delete_subscription", [name_bytes(subscription)]), ok)

    def read_batch(
        self,
        subscription: Name,
        epoch: int,
        start: int,
        count: int,
        *,
        session: int | None = None,
        details: bool = False,
        skip_lost: bool = False,
    ) -> Future[BatchColumns]:
        """Read messages of a batch from position `start`, up to `count`, at most 10,000 and about 16 MiB.

        The call is read-only, so several readers can read slices of one batch, any number of times. With `details`, the columns
        include `BatchColumns.details`. With `skip_lost`, messages that are no longer leased are skipped and counted; otherwise
        the first one is an error. The next slice begins at `BatchColumns.next`.

        Raises:
            LmqError: awaited: ``lease_expired`` if the batch is no longer live, ``batch_not_found`` if there is none,
                ``lease_lost`` if it has lost messages, such as those of a deleted queue.
        """
        arguments = [name_bytes(subscription), epoch, start, count, session, details, skip_lost]
        return self._calls.call(Call, request_body(b"read_batch", arguments), BatchColumns)

    def cut_batch(self, subscription: Name, epoch: int, parts: int) -> Future[list[int]]:
        """Divide a batch between several readers without splitting a group, so that each reader keeps the order of groups.

        Returns:
            Awaited: the start positions, the first of them 0; fewer than `parts` (1 to 10,000) if groups are large, none if the
            batch is not live.
        """
        return self._calls.call(Call, request_body(b"cut_batch", [name_bytes(subscription), epoch, parts]), list)

    def incarnation(self) -> Future[str]:
        """Return the name of the cluster's current incarnation.

        It changes if the cluster is restored from a backup, or loses the end of its log. The cluster may then reuse sequences and
        epochs of an earlier incarnation. Ids of messages begin with the incarnation.
        """
        return self._calls.call(Call, request_body(b"incarnation", []), name_text)

    def renew_batches(
        self, subscription: Name, lease_s: float = 86_400.0, *, session: int | None = None
    ) -> Future[int]:
        """Extend the leases of all live batches of a subscription, to `lease_s` seconds from now. Awaited: their number."""
        arguments = [name_bytes(subscription), lease_s, *_given(session)]
        return self._calls.call(Call, request_body(b"renew_batches", arguments), int)

    def settle_batches(self, subscription: Name, epoch: int, *, session: int | None = None) -> Future[list[int]]:
        """Ack all batches of a subscription up to an epoch. Idempotent, at any later time.

        Returns:
            Awaited: the epochs among them whose leases had expired, so that their messages may be redelivered.
        """
        return self._calls.call(
            Call, request_body(b"settle_batches", [name_bytes(subscription), epoch, *_given(session)]), list
        )

    def abandon_batches(self, subscription: Name, *, session: int | None = None) -> Future[str]:
        """Abandon all batches of a subscription: their messages return to their places without charging a retry.

        If the subscription has never settled a batch, it is deleted.
        """
        return self._calls.call(
            Call, request_body(b"abandon_batches", [name_bytes(subscription), *_given(session)]), ok
        )

    def subscription(self, name: Name) -> Future[dict[str, Any] | None]:
        """Return the state of a subscription.

        Returns:
            Awaited: ``owner``, ``session`` (None if it was never claimed), ``settled`` (the highest settled epoch) and
            ``batches``, each with ``epoch``, ``state``, ``count`` and ``expires_in_s``; None if it is unknown.
        """
        return self._calls.call(Call, request_body(b"subscription", [name_bytes(name)]), optional_mapping)

    def subscriptions(self) -> Future[list[dict[str, Any]]]:
        """List all subscriptions, each as `subscription` returns it with its ``name``."""
        return self._calls.call(Call, request_body(b"subscriptions", []), mappings)

    def backlog(
        self,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        bytes_max: int | None = None,
        queues_max: int | None = None,
    ) -> Future[Backlog]:
        """Count the messages that can be pulled now from a queue, or from all queues whose names match.

        Args:
            queue: this queue;
            pattern: or all queues whose names match this regular expression (RE2).
            bytes_max: request also the number of first messages that have about this many bytes.
            queues_max: request also the bytes, and this many of the queues with the most messages; at most 100.

        Raises:
            ValueError: not exactly one of `queue` and `pattern` is given.
        """
        wanted = [bytes_max, queues_max] if queues_max is not None else _given(bytes_max)
        return self._calls.call(Call, request_body(b"backlog", [*_source(queue, pattern), *wanted]), Backlog.of)

    def peek(
        self,
        queue: Name,
        count: int,
        start_sequence: int = 0,
        *,
        end_sequence: int | None = None,
        due_from_us: int | None = None,
        due_to_us: int | None = None,
        attribute: tuple[str, str] | None = None,
        details: bool = False,
        bodies: bool = True,
    ) -> Future[BatchColumns]:
        """Return messages that are not leased, in order of sequence from `start_sequence`, without taking them.

        A page has at most 10,000 messages and about 16 MiB. The next page starts at `BatchColumns.next`, which is None at the
        end. An earlier page can also have fewer messages than `count`, or none.

        Args:
            queue: name of the queue.
            count: maximum number of messages in the page.
            start_sequence: the lowest sequence.
            end_sequence: the list ends before it.
            due_from_us: only messages that became due at this log time (microseconds since 1970) or later.
            due_to_us: only messages that became due before this log time.
            attribute: only messages with an attribute of this name whose text is the second string. A number is its decimal
                text, a binary value its Base64. A page compares at most 10,000 messages.
            details: fill `BatchColumns.details`.
            bodies: False omits the bodies: `BatchColumns.bodies` has empty ones.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        options = {
            "end": end_sequence,
            "due_from": due_from_us,
            "due_to": due_to_us,
            "attribute": attribute,
            "details": details or None,
            "bodies": None if bodies else False,
        }
        given = {name: value for name, value in options.items() if value is not None}
        arguments = [name_bytes(queue), count, start_sequence, *([given] if given else [])]
        return self._calls.call(Call, request_body(b"peek", arguments), BatchColumns)

    def peek_ranges(self, queue: Name, range_bytes: int, ranges_min: int = 1) -> Future[list[int]]:
        """Divide a queue into ranges of sequences that can be listed in parallel with `peek`.

        Args:
            queue: name of the queue.
            range_bytes: approximate size of a range, with 300 bytes for each message in addition to its body. There are at most
                1,000 ranges.
            ranges_min: minimum number of ranges, if there are enough messages; at most 1,000.

        Returns:
            Awaited: the first sequence of each range, in order, and the end of the last one, which is after all current messages
            of the queue.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._calls.call(Call, request_body(b"peek_ranges", [name_bytes(queue), range_bytes, ranges_min]), list)

    # --- jobs ------------------------------------------------------------------------------------------------------

    def push_marked(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        job: Name,
        stream: Name,
        first: int,
        note: bytes = b"",
        done: bool = False,
        epoch: int | None = None,
        run: Name = b"",
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> Future[int | None]:
        """Push the next messages of a stream atomically, in one request.

        A job that must write exactly once numbers the messages of each of its streams 0, 1, 2, ... The cluster stores each
        stream's position until `end_jobs`, or until the job was not used for 30 days. So the cost is independent of the number
        of messages.

        Args:
            queue: name of the queue.
            contents: any MessagePack values; up to 10,000, together within the size of a request.
            job: name of the job, with which `end_jobs` ends its streams; 1 to 255 bytes. It belongs to the token that pushes.
            stream: name of the stream within the job; 1 to 255 bytes.
            first: position of the first content.
            note: at most 1 MiB that the cluster stores with the position; `mark` returns it.
            done: whether these contents, possibly none, complete the stream. The cluster then deletes its notes and treats any
                later push to it as already stored.
            epoch, run: for a job that writes in epochs, see `begin_epoch`; the note then has 16 bytes for each message.
            content_types: as in `push_many`, without keys.
            options: for each content the options of `push` except the key, or None.

        Returns:
            Awaited: number of messages stored by this call: all except those that an earlier run of the epoch has stored. None
            if the stream was already past them, for example because of a lost attempt of this call.

        Raises:
            LmqError: awaited: ``out_of_sequence`` if `first` is not the stream's position; ``quota_exceeded``. In both cases
                nothing is stored.
        """
        if isinstance(contents, (str, bytes)):
            raise TypeError("contents must be a list of messages")
        request: dict[str, Any] = {"job": name_bytes(job), "stream": name_bytes(stream), "first": first}
        if note:
            request["note"] = note
        if done:
            request["done"] = True
        if epoch is not None:
            request |= {"epoch": epoch, "run": name_bytes(run)}
        if options is not None:
            request["options"] = [None if one is None else packed_push_options(one) for one in options]
        if content_types is not None:
            request["content_types"] = [None if kind is None else name_bytes(kind) for kind in content_types]
        body = request_body(b"push_marked", [name_bytes(queue), list(contents), request])
        return self._calls.call(Call, body, optional_int)

    def begin_epoch(self, job: Name, epoch: int, run: Name) -> Future[bool]:
        """Begin an attempt to write an epoch of a job.

        If a job divides its messages into different streams on each attempt, it numbers its writes 0, 1, 2, ..., its *epochs*. A
        *run* is one attempt to write an epoch. It has one client per stream, and each of them begins it. The notes of its pushes
        are the digests of the messages: 16 bytes for each, which identify it. The cluster does not store a message again that an
        earlier run of the epoch has stored in any stream. `finish_epoch` ends the epoch.

        Args:
            job: name of the job, 1 to 255 bytes.
            epoch: number of the epoch, 0 or more. When a later epoch begins, the cluster drops an unfinished one.
            run: name of the attempt, 1 to 64 bytes, for example a random text. After another run begins, this one cannot push.

        Returns:
            Awaited: False if the epoch is already finished, so that no push is needed.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if another run has taken over, or if the epoch is older than the last 100
                finished ones, which the cluster remembers.
        """
        return self._calls.call(Call, request_body(b"begin_epoch", [name_bytes(job), epoch, name_bytes(run)]), bool)

    def finish_epoch(self, job: Name, epoch: int, run: Name, rows: int, digest: bytes) -> Future[None]:
        """Finish an epoch after all its messages were pushed. Idempotent, also for a later run.

        Args:
            job: name of the job.
            epoch: number of the epoch.
            run: name of the attempt.
            rows: number of messages in the epoch.
            digest: the sum of their digests modulo 2**128, 16 bytes, most significant byte first.

        Raises:
            LmqError: awaited: ``epoch_conflict`` if the stored messages differ from these.
        """
        request = [name_bytes(job), epoch, name_bytes(run), rows, digest]
        return self._calls.call(Call, request_body(b"finish_epoch", request), nothing)

    def mark(self, job: Name, stream: Name) -> Future[Mark | None]:
        """Return the stored position of a stream. Awaited: None if the stream is unknown."""
        return ensure_future(self._mark(name_bytes(job), name_bytes(stream)))

    async def _mark(self, job: bytes, stream: bytes) -> Mark | None:
        notes = b""
        while True:
            found = await self._calls.call(Call, request_body(b"mark", [job, stream, len(notes)]), Mark.part)
            if found is None:
                return None
            position, done, note_bytes, part = found
            notes += part
            if done or len(notes) >= note_bytes:
                return Mark(position, done, b"" if done else notes)

    def end_jobs(self, jobs: Sequence[Name]) -> Future[int]:
        """Delete jobs with all their streams. Awaited: number of deleted streams."""
        return self._calls.call(Call, request_body(b"end_jobs", [[name_bytes(job) for job in jobs]]), int)

    def jobs(self) -> Future[list[dict[str, Any]]]:
        """List the jobs of the client's token; all jobs for a token with all permissions.

        Returns:
            Awaited: for each job ``owner``, ``name``, ``streams``, ``messages``, ``note_bytes``, ``idle_s``, and for jobs that
            write in epochs ``finished_epoch``, ``open_epoch`` and ``unclaimed``.
        """
        return self._calls.call(Call, request_body(b"jobs", []), mappings)

    # --- sessions and locks ----------------------------------------------------------------------------------------

    def session(self, ttl: float = 30.0) -> ClientSession:
        """Return a session that is renewed in the background: ``async with client.session() as session:``.

        Args:
            ttl: time without a renewal after which the session ends, in seconds; at most 3,600.
        """
        return ClientSession(self, ttl)

    def open_session(self, ttl: float) -> Future[str]:
        """Open a session that ends `ttl` seconds after its last renewal, at most 3,600. Awaited: its id.

        Raises:
            LmqError: awaited: ``bad_request``, ``quota_exceeded``.
        """
        return self._calls.call(Call, request_body(b"open_session", [ttl]), name_text)

    def renew_session(self, session: Name) -> Future[bool]:
        """Restart the TTL of a session. Awaited: False if it has ended."""
        return self._calls.call(Call, request_body(b"renew_session", [name_bytes(session)]), bool)

    def end_session(self, session: Name) -> Future[bool]:
        """End a session and release its leases and locks. Awaited: False if it had already ended."""
        return self._calls.call(Call, request_body(b"end_session", [name_bytes(session)]), bool)

    def leave_queue(self, queue: Name, session: Name) -> Future[bool]:
        """Give up the turn, or the place in line, at an exclusive queue and return the messages that the session holds of it.

        Returns:
            Awaited: whether the session was in line.

        Raises:
            LmqError: awaited: ``session_lost``.
        """
        return self._calls.call(Call, request_body(b"leave_queue", [name_bytes(queue), name_bytes(session)]), bool)

    def lock(self, name: Name, session: Name, wait: float | None = None) -> Future[int | None]:
        """Acquire a named lock for a session, first come, first served.

        Args:
            name: 1 to 255 bytes.
            session: id of the session, with which the lock ends.
            wait: how long to wait for it, in seconds; 0 = not at all, None = without limit.

        Returns:
            Awaited: the fencing token, greater than all earlier ones; unchanged if the session already holds the lock. None if
            another session held it during the whole wait.

        Raises:
            LmqError: awaited: ``session_lost``, ``quota_exceeded``.
        """
        wait_s = WAIT_S_MAX if wait is None else wait
        arguments = [name_bytes(name), name_bytes(session)]

        def body(left_s: float) -> bytes:
            return request_body(b"lock", [*arguments, left_s] if wait_s else arguments)

        return self._calls.call_waiting(body, optional_int, wait_s)

    def unlock(self, name: Name, session: Name) -> Future[bool]:
        """Release a lock. Awaited: whether the session held it or was in line for it; possibly False if the call was retried.

        Raises:
            LmqError: awaited: ``session_lost``.
        """
        return self._calls.call(Call, request_body(b"unlock", [name_bytes(name), name_bytes(session)]), bool)

    # --- schedules -------------------------------------------------------------------------------------------------

    def set_schedule(
        self,
        name: Name,
        queue: Name,
        content: Any,
        *,
        interval: float | None = None,
        cron: str | None = None,
        zone: str | None = None,
        start: float | None = None,
        end: float | None = None,
        jitter: float | None = None,
        missed: Missed | None = None,
        content_type: Name | None = None,
        **options: Unpack[PushOptions],
    ) -> Future[str]:
        """Create a schedule, or replace the one of this name; the cluster then pushes the content at each due time, exactly once.

        A schedule with the same definition stays as it is, so every process of an application may set its schedules.

        Args:
            name: name of the schedule, 1 to 255 bytes of UTF-8.
            queue: where it pushes.
            content: any MessagePack value, or with a `content_type` a body as it is; at most 256 KiB.
            interval: seconds between two due times, at least 1; the first is `start`, without it one interval from now.
            cron: instead of it a cron expression of five fields, or of six with seconds first.
            zone: the IANA time zone of the cron expression, such as ``Europe/Berlin``; by default UTC.
            start, end: Unix times in seconds; no due time is earlier or later.
            jitter: each message is pushed up to this many seconds after its due time, at most 3,600 and at most the interval.
            missed: ``skip`` drops due times that the cluster missed by more than a minute, ``once`` pushes one message for all
                of them; by default ``skip``.
            content_type: MIME type of the content, which must be `bytes`.
            options: ``delay``, ``ttl``, ``priority``, ``label``, ``group`` and ``attributes`` of the messages. The cluster adds
                the attributes ``schedule``, the name, and ``scheduled_at``, the due time.

        Returns:
            Awaited: ``created``, ``replaced`` or ``unchanged``.

        Raises:
            LmqError: awaited: ``bad_request``, ``bad_name``, ``too_large``, ``quota_exceeded``.
        """
        rule = {
            "interval": interval,
            "cron": cron,
            "zone": zone,
            "start": start,
            "end": end,
            "jitter": jitter,
            "missed": missed,
        }
        request = schedule_options(rule, content_type, options)
        body = request_body(b"set_schedule", [name_bytes(name), name_bytes(queue), content, request])
        return self._calls.call(Call, body, name_text)

    def schedule(self, name: Name) -> Future[dict[str, Any] | None]:
        """Return a schedule with its message; awaited: None if there is none of this name."""
        return self._calls.call(Call, request_body(b"schedule", [name_bytes(name)]), optional_schedule)

    def schedules(self) -> Future[list[dict[str, Any]]]:
        """List the schedules whose queues the token covers, by name.

        Returns:
            Awaited: for each schedule ``name``, ``queue``, the members of its definition, ``next_s``, ``last_s``, ``paused``,
            ``pushed``, ``missed_total`` and more.
        """
        return ensure_future(self._schedules())

    async def _schedules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: bytes | None = b""
        while after is not None:
            page, after = await self._calls.call(Call, request_body(b"schedules", [after]), schedule_page)
            found += page
        return found

    def pause_schedule(self, name: Name) -> Future[str]:
        """Stop a schedule until it is resumed.

        Raises:
            LmqError: awaited: ``schedule_not_found``.
        """
        return self._calls.call(Call, request_body(b"pause_schedule", [name_bytes(name)]), ok)

    def resume_schedule(self, name: Name) -> Future[str]:
        """Continue a paused schedule; due times that passed in between count as missed.

        Raises:
            LmqError: awaited: ``schedule_not_found``.
        """
        return self._calls.call(Call, request_body(b"resume_schedule", [name_bytes(name)]), ok)

    def run_schedule(self, name: Name) -> Future[str]:
        """Push the message of a schedule now, in addition to its due times.

        Raises:
            LmqError: awaited: ``schedule_not_found``, ``full``; ``unknown_outcome`` if the message may be pushed.
        """
        return self._calls.call(NonRepeatableCall, request_body(b"run_schedule", [name_bytes(name)]), ok)

    def delete_schedule(self, name: Name) -> Future[str]:
        """Delete a schedule. A call that was retried may raise ``schedule_not_found`` although it has deleted it.

        Raises:
            LmqError: awaited: ``schedule_not_found``.
        """
        return self._calls.call(Call, request_body(b"delete_schedule", [name_bytes(name)]), ok)


async def _concatenated(parts: list[Future[list[str]]]) -> list[str]:
    """Return the results of a batch that was sent as several requests."""
    return [result for results in await asyncio.gather(*parts) for result in results]


def _given(value: int | None) -> list[int]:
    """Return an optional last argument."""
    return [] if value is None else [value]


def _limit(most: int | None) -> list[int]:
    """Return the maximum number of messages as an optional last argument."""
    if most is not None and most < 1:
        raise ValueError(f"max must be 1 or more, not {most!r}")
    return _given(most)


def _source(queue: Name | None, pattern: Name | None) -> tuple[bytes, bool]:
    """Return a queue's name or a pattern, and whether it is a pattern."""
    if queue is not None and pattern is None:
        return name_bytes(queue), False
    if pattern is not None and queue is None:
        return name_bytes(pattern), True
    raise ValueError("give either a queue or a pattern")
