"""A broker for dramatiq: ``pip install lmqcluster[dramatiq]``.

A message of dramatiq is a message of the cluster. The cluster implements delays and priorities, so there are no delay
queues. Options of a message are attributes too. A worker holds its messages through a session for as long as it lives.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Unpack

from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
from dramatiq.common import xq_name
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound

from lmqcluster.client import Client, ClientOptions, PushOptions
from lmqcluster.client import Message as Delivered
from lmqcluster.wire.attributes import Attributes, Value
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.reasons import REASON_ATTRIBUTE, cut_reason, reason_of

from .header_attributes import as_attributes, push_with_attributes
from .settlements import Settlements
from .worker_session import LEASE_S_MAX, WorkerSession

__all__ = ["LmqBroker"]

_DELIVERIES_MAX = 1 << 40
"""Unlimited for practical purposes: a message is redelivered however often its worker dies, unless an operator sets a
limit.
"""
_DEAD_TTL_S = 7 * 86_400.0
_PULL_S = 1.0
"""Maximum wait of one pull."""
_LABEL = "dramatiq"
"""Label of all messages. Messages that are not due are counted by it."""
_PRIORITY_MAX = 2**31 - 1
_OWN_ATTRIBUTES = ("actor_name", "message_id", REASON_ATTRIBUTE)
"""Attributes that are not options."""


class LmqBroker(Broker):
    """A broker on the cluster: ``dramatiq.set_broker(LmqBroker("host:18800,host:18810"))``.

    It connects on first use, so it may be created before worker processes are forked.
    """

    def __init__(
        self,
        nodes: str | Iterable[str] = "127.0.0.1:18800",
        *,
        middleware: list[Middleware] | None = None,
        namespace: str = "dramatiq",
        lease: float = 30.0,
        dead_message_ttl: float = _DEAD_TTL_S,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Configure the broker; this sends nothing.

        Args:
            nodes: addresses of the nodes, as for `lmqcluster.Client`.
            middleware: as for any broker of dramatiq.
            namespace: prefix of the names of queues in the cluster: ``NAMESPACE.QUEUE``.
            lease: seconds after which the messages of a dead worker are redelivered, at most an hour.
            dead_message_ttl: seconds for which dead letters are kept, in ``NAMESPACE.QUEUE.XQ``.
            options: those of `lmqcluster.Client`.

        Raises:
            ValueError: `lease` or `dead_message_ttl` is out of range.
        """
        if not 0 < lease <= LEASE_S_MAX:
            raise ValueError(f"lease must be above 0 and at most {LEASE_S_MAX:g} seconds")
        if dead_message_ttl <= 0:
            raise ValueError("dead_message_ttl must be above 0")
        super().__init__(middleware=middleware)
        self.actor_options.add("broker_priority")
        self.queues: set[str] = set()
        self._nodes = nodes
        self._namespace = namespace
        self._dead_message_ttl = dead_message_ttl
        self._client_options = options
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._lease_s = lease
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._pulls: dict[str, int] = {}  # queue -> pulls that have ended
        self._consumers: dict[str, int] = {}  # queue -> consumers that are open
        self.session = WorkerSession(lambda: self.client, self._lease_s)
        self.settlements = Settlements(lambda: self.client, self.session, self.logger)

    @property
    def client(self) -> Client:
        """Return the client, connected or not. A forked process gets its own client."""
        with self._lock:
            if self._client is None or self._pid != os.getpid():
                self._client = Client(self._nodes, **self._client_options)
                self._begin()
            return self._client

    def stored_name(self, queue_name: str) -> str:
        """Return the name of a queue in the cluster."""
        return f"{self._namespace}.{queue_name}"

    # --- the interface of brokers ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait until the last messages are settled, at most the client's ``timeout_s``, and disconnect."""
        if self._client is not None and self._pid == os.getpid():
            self.settlements.close(self._client)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> Consumer:
        """See `dramatiq.Broker.consume`."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        try:
            self._ensure(queue_name)
        except LmqError as error:
            raise ConnectionClosed(error) from error
        return _LmqConsumer(self, queue_name, prefetch, timeout)

    def declare_queue(self, queue_name: str) -> None:
        """See `dramatiq.Broker.declare_queue`. The queue is created in the cluster on first use."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """Return the names of all declared queues."""
        return self.queues.copy()

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """See `dramatiq.Broker.enqueue`. The cluster implements the delay, in milliseconds, up to 10^12.

        Raises:
            QueueNotFound: the queue was not declared.
            LmqError: the message was not stored, or the outcome is unknown.
        """
        queue_name = message.queue_name
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        self._ensure(queue_name)
        self.logger.debug("Enqueueing message %r on queue %r.", message.message_id, queue_name)
        self.emit_before("enqueue", message, delay)
        options: PushOptions = {"label": _LABEL, "priority": self._priority(message)}
        if delay is not None:
            options["delay"] = max(delay, 0) / 1000
        options["attributes"] = _attributes(message)
        stored, content = self.stored_name(queue_name), message.encode()
        push_with_attributes(lambda given: self.client.push(stored, content, **given), options)
        self.emit_after("enqueue", message, delay)
        return message

    def _priority(self, message: Message[Any]) -> int:
        actor = self.actors.get(message.actor_name)
        priority = message.options.get("broker_priority")
        if priority is None and actor is not None:
            priority = actor.options.get("broker_priority")
        # A lower actor priority is more urgent, as in the cluster; a higher broker priority is more urgent.
        chosen = -int(priority) if priority is not None else 0 if actor is None else actor.priority
        return max(-_PRIORITY_MAX, min(chosen, _PRIORITY_MAX))

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue that no worker holds, including dead letters."""
        for name in (queue_name, xq_name(queue_name)):
            try:
                self.client.purge(self.stored_name(name))
            except LmqError as error:
                if error.code != "queue_not_found":
                    raise

    def flush_all(self) -> None:
        """Drop all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Wait until all messages of a queue, including delayed ones, are processed. For tests.

        Messages held by other processes are not seen.

        Raises:
            QueueNotFound: the queue was not declared.
            QueueJoinTimeout: messages remain after `timeout` milliseconds.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        seen_at: int | None = None  # pulls completed when the queue was first seen empty
        while True:
            with self._lock:
                pulls, consumers = self._pulls.get(queue_name, 0), self._consumers.get(queue_name, 0)
            busy = self.session.count(self.stored_name(queue_name)) > 0
            if busy or self._waiting(queue_name):
                seen_at = None
            elif consumers == 0 or (seen_at is not None and pulls > seen_at + consumers):
                return  # All pulls that were in progress have completed, and their messages are processed.
            elif seen_at is None:
                seen_at = pulls
            if deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(interval / 1000)

    # --- the cluster ----------------------------------------------------------------------------------------------

    def _ensure(self, queue_name: str) -> None:
        if queue_name not in self._known:
            stored = self.stored_name(queue_name)
            self.client.update_props(stored, {"retry": _DELIVERIES_MAX}, only_unset=True)
            self._known.add(queue_name)

    def _waiting(self, queue_name: str) -> int:
        try:
            return self.client.count_labelled(self.stored_name(queue_name), _LABEL)
        except LmqError as error:
            if error.code != "queue_not_found":
                raise
            return 0

    def count_consumers(self, queue_name: str, change: int) -> None:
        """Change the number of open consumers of a queue by `change`, 1 or -1."""
        with self._lock:
            self._consumers[queue_name] = self._consumers.get(queue_name, 0) + change

    def pull(self, queue_name: str, count: int, timeout_s: float) -> list[Delivered]:
        """Pull messages of a queue.

        Raises:
            LmqError: the cluster refused the pull.
        """
        stored = self.stored_name(queue_name)
        messages = self.client._run(lambda: self.session.pull(stored, count, timeout_s))
        with self._lock:
            self._pulls[queue_name] = self._pulls.get(queue_name, 0) + 1
        return messages

    def bury(self, queue_name: str, receipt: str, body: object, attributes: Attributes) -> None:
        """Move a message to the dead letters, atomically and in the background."""
        dead_letters = self.stored_name(xq_name(queue_name))
        stored = self.stored_name(queue_name)
        self.settlements.move(stored, receipt, dead_letters, body, attributes, self._dead_message_ttl)


def _attributes(message: Message[Any], error: BaseException | None = None) -> dict[str, Value]:
    """Return the attributes of a message: its actor, its id, its options, and the error that makes it a dead letter."""
    own = {"actor_name": message.actor_name, "message_id": message.message_id}
    if error is not None:
        own[REASON_ATTRIBUTE] = cut_reason(reason_of(error)).decode()
    return as_attributes({**message.options, **own}, _OWN_ATTRIBUTES)


def _with_options(message: Message[Any], attributes: Attributes) -> Message[Any]:
    """Return a message whose options include its attributes, which replace those of the same name."""
    options = {name: value for name, value in attributes.items() if name not in _OWN_ATTRIBUTES}
    return message.copy(options=options) if options else message


class _LmqMessage(MessageProxy):
    """A message held by a worker, with the receipt of its delivery."""

    def __init__(self, message: Message[Any], receipt: str) -> None:
        super().__init__(message)
        self.receipt = receipt


class _LmqConsumer(Consumer):
    def __init__(self, broker: LmqBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        self._broker = broker
        self._queue_name = queue_name
        self._stored = broker.stored_name(queue_name)
        self._prefetch = max(prefetch, 1)
        self._wait_s = min(timeout / 1000, _PULL_S)
        self._cache: deque[Delivered] = deque()
        self._outstanding: set[str] = set()
        self._freed = threading.Event()
        self._closed = False
        broker.count_consumers(queue_name, 1)

    def __next__(self) -> MessageProxy | None:
        if not self._cache and not self._fetch():
            return None
        taken = self._cache.popleft()
        try:
            message = _with_options(Message.decode(taken.content), taken.attributes)
        except (DecodeError, TypeError, ValueError):
            self._broker.logger.exception("undecodable message in queue %r", self._queue_name)
            self._broker.bury(self._queue_name, taken.id, taken.content, taken.attributes)
            return None
        self._outstanding.add(taken.id)
        return _LmqMessage(message, taken.id)

    def _fetch(self) -> bool:
        self._freed.clear()
        room = self._prefetch - len(self._outstanding)
        if room <= 0 or not self._broker.settlements.has_room:
            self._freed.wait(self._wait_s)
            return False
        try:
            messages = self._broker.pull(self._queue_name, room, self._wait_s)
        except LmqError as error:
            raise ConnectionClosed(error) from error
        self._cache.extend(messages)
        return bool(messages)

    def ack(self, message: MessageProxy) -> None:
        receipt: str = message.receipt
        self._broker.settlements.ack(self._stored, receipt)
        self._forget([receipt])

    def nack(self, message: MessageProxy) -> None:
        receipt: str = message.receipt
        buried = message._message
        self._broker.bury(self._queue_name, receipt, buried.encode(), _attributes(buried, message._exception))
        self._forget([receipt])

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        self._put_back([message.receipt for message in messages])

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        cached, self._cache = self._cache, deque()
        try:
            self._put_back([message.id for message in cached])
            self._broker.settlements.flush(self._broker.client.timeout_s)
        finally:
            self._broker.count_consumers(self._queue_name, -1)

    def _put_back(self, receipts: list[str]) -> None:
        self._broker.settlements.put_back(self._stored, receipts)
        self._forget(receipts)

    def _forget(self, receipts: list[str]) -> None:
        self._outstanding.difference_update(receipts)
        self._freed.set()
