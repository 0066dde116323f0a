"""A transport for kombu, and so for Celery: ``pip install lmqcluster[celery]``.

Importing this module registers the broker URL ``lmq://host:18800,host:18810/NAMESPACE``. A queue of kombu is a queue of
the cluster, and headers of a message are attributes too. Direct and topic exchanges are routed by the publishing process,
as in all transports without exchanges. A message published to a fanout exchange goes to all queues of the cluster that
represent a binding.
"""

# The base classes are barely typed, and their signatures do not match their callers.
# mypy: disable-error-code="override, no-any-return, assignment"

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from queue import Empty, SimpleQueue
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from lmqcluster.client import Client, ClientOptions, Message, PushOptions
from lmqcluster.wire.errors import LmqError

from .header_attributes import as_attributes, push_with_attributes
from .receiver import Receiver
from .settlements import Settlements
from .worker_session import LEASE_S_MAX, WorkerSession

__all__ = ["EXPIRES_ATTRIBUTE", "Channel", "Transport", "push_options"]

logger = logging.getLogger("lmqcluster.integrations.kombu")

_DELIVERIES_MAX = 1 << 40
"""Unlimited for practical purposes: a message is redelivered however often its worker dies, unless an operator sets a
limit.
"""
_PORT = 18800
_PREFETCH_MAX = 1000
"""Messages held by a consumer that sets no prefetch limit."""
_SETTLED_MAX = 100
"""Messages pulled without an ack that their consumer has not seen yet."""
_TRANSIENT_TTL_S = 300.0
"""How long broadcasts and replies are kept for a process that has ended."""
_BROADCASTS_MAX = 10_000
_PRIORITY_MAX = 255
_CLIENT_OPTIONS = (
    "token", "token_file", "tls_ca", "tls_cert", "tls", "timeout_s", "connect_timeout_s", "heartbeat_s", "discover",
)  # fmt: skip
_CELERY_EVENTS = "celeryev"
EXPIRES_ATTRIBUTE = "celery_expires"
"""Attribute of a schedule: seconds after its due time at which a task expires."""
_FIRST_ATTRIBUTES = ("task", "id")
"""Headers that are attributes even if there is no room for all."""
_FANOUT_LIKE = re.compile(r"^fanout(?=[/%])")


class _Held:
    """A message held by a channel.

    Attributes:
        queue: the queue of kombu.
        stored: the queue of the cluster.
        is_new: whether its consumer has not seen it yet.
    """

    __slots__ = ("is_new", "queue", "stored")

    def __init__(self, queue: str, stored: str, is_new: bool) -> None:
        self.queue = queue
        self.stored = stored
        self.is_new = is_new


class QoS(virtual.QoS):
    """Prefetch limits. Acks are sent to the cluster."""

    restore_at_shutdown = False  # `Channel.close` returns held messages.

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        self.channel.settle(delivery_tag, requeue=False)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return the message to its old position, or drop it."""
        self.channel.settle(delivery_tag, requeue=requeue)
        super().ack(delivery_tag)

    def restore_unacked(self) -> None:
        """Return all held messages."""
        self.channel.give_back(None)
        delivered: Any = self._delivered
        delivered.clear()


class Channel(virtual.Channel):
    """A channel: consumers and the messages that they hold."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Transport, **options: Any) -> None:
        super().__init__(connection, **options)
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._handlers: dict[str, tuple[Any, bool]] = {}  # queue -> callback, no_ack
        self._receivers: dict[str, list[Receiver]] = {}
        self._own: set[str] = set()  # queues that are deleted with their consumer

    # --- queues and exchanges -------------------------------------------------------------------------------------

    def exchange_declare(self, exchange: Any = None, type: str = "direct", **options: Any) -> None:  # noqa: A002
        """Declare an exchange. Celery's event exchange reaches every bound queue, in any process."""
        kind = "fanout" if exchange == _CELERY_EVENTS else type
        super().exchange_declare(exchange, kind, **options)

    def _new_queue(
        self, queue: str, *, auto_delete: bool = False, exclusive: bool = False, arguments: Any = None, **_: Any
    ) -> None:
        properties: dict[str, Any] = {"retry": _DELIVERIES_MAX}
        ttl_ms = (arguments or {}).get("x-message-ttl")
        if ttl_ms:
            properties["max_age"] = ttl_ms / 1000
        self.connection.lmq.update_props(self.connection.stored_name(queue), properties, only_unset=True)
        if auto_delete and exclusive:
            self._own.add(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: Any, queue: str) -> None:  # noqa: ARG002
        if self.typeof(exchange).type != "fanout":
            return
        properties = {
            "retry": _DELIVERIES_MAX,
            "max_age": _TRANSIENT_TTL_S,
            "max_items": _BROADCASTS_MAX,
            "discard_old_when_full": True,
        }
        fanout = self.connection.fanout_name(exchange, queue)
        self.connection.lmq.update_props(fanout, properties, only_unset=True)

    def _stored_names(self, queue: str) -> list[str]:
        bound = {one.exchange for one in self.state.queue_bindings(queue) if self.typeof(one.exchange).type == "fanout"}
        fanouts = [self.connection.fanout_name(exchange, queue) for exchange in sorted(bound)]
        return [self.connection.stored_name(queue), *fanouts]

    def _lookup(self, exchange: str, routing_key: str, default: Any = None) -> Any:
        found = super()._lookup(exchange, routing_key, default)
        if not found and exchange.startswith("reply."):
            # A mailbox waits for replies in another process, whose bindings are unknown here. kombu names such queues
            # like this.
            return [f"{routing_key}.{exchange}"]
        return found

    def _has_queue(self, queue: str, **_: Any) -> bool:
        try:
            self.connection.lmq.peek(self.connection.stored_name(queue), 1)
        except LmqError as error:
            return _unless_missing(error, False)
        return True

    def _size(self, queue: str) -> int:
        return sum(self._count(stored) for stored in self._stored_names(queue))

    def _count(self, stored: str) -> int:
        try:
            return self.connection.lmq.backlog(queue=stored).messages
        except LmqError as error:
            return _unless_missing(error, 0)

    def _purge(self, queue: str) -> int:
        return sum(self._purge_stored(stored) for stored in self._stored_names(queue))

    def _purge_stored(self, stored: str) -> int:
        try:
            return self.connection.lmq.purge(stored)
        except LmqError as error:
            return _unless_missing(error, 0)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:  # noqa: ARG002
        """Delete a queue and its messages."""
        if if_empty and self._size(queue):
            return
        for stored in self._stored_names(queue):
            self.connection.lmq.delete(stored)
        self.state.queue_bindings_delete(queue)

    # --- publishing -----------------------------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        stored, content = self.connection.stored_name(queue), dumps(message).encode()
        push_with_attributes(
            lambda options: self.connection.lmq.push(stored, content, **options), push_options(message)
        )

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any) -> None:  # noqa: ARG002
        pattern = "^" + re.escape(self.connection.fanout_name(exchange, ""))
        self.connection.lmq.push_all(pattern, dumps(message).encode())

    # --- consuming ------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **_: Any) -> None:
        """Start to pull messages of a queue; `Transport.drain_events` delivers them."""
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        self._active_queues.append(queue)
        if queue in self._handlers:
            return
        self._handlers[queue] = (callback, no_ack)
        pull = self.connection.pull_settled if no_ack else self.connection.pull

        def receiver(stored: str) -> Receiver:
            def received(messages: list[Message]) -> None:
                self._on_messages(queue, stored, messages, no_ack)

            room = self._settled_room if no_ack else self._room
            return Receiver(self.connection.lmq, stored, room, pull, received, logger)

        self._receivers[queue] = [receiver(stored) for stored in self._stored_names(queue)]

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop pulling; messages that the consumer has not seen are returned."""
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag)
        self._active_queues.remove(queue)
        if queue in self._active_queues:
            return
        self._stop(queue)
        self.give_back(lambda held: held.is_new and held.queue == queue)
        if queue in self._own:
            self._own.discard(queue)
            self.queue_delete(queue)

    def _stop(self, queue: str) -> None:
        self._handlers.pop(queue, None)
        for receiver in self._receivers.pop(queue, ()):
            receiver.stop()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Limit the number of held messages, for each queue."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.wake()

    def _room(self) -> int:
        if not self.connection.settlements.has_room:
            return 0
        return min(self.qos.prefetch_count or _PREFETCH_MAX, _PREFETCH_MAX) - len(self._held)

    def _settled_room(self) -> int:
        return _SETTLED_MAX - self.connection.inbox.qsize()

    def wake(self) -> None:
        """Resume pulling after messages were settled."""
        for receivers in list(self._receivers.values()):
            for receiver in receivers:
                receiver.wake()

    def _on_messages(self, queue: str, stored: str, messages: list[Message], no_ack: bool) -> None:
        if not no_ack:
            with self._lock:
                self._held.update({message.id: _Held(queue, stored, is_new=True) for message in messages})
        for message in messages:
            self.connection.inbox.put((self, queue, message))

    def hand_out(self, queue: str, message: Message) -> bool:
        """Deliver a message to its consumer; return False if the consumer is gone or the message cannot be decoded."""
        handler = self._handlers.get(queue)
        if handler is None:
            return False
        callback, no_ack = handler
        made = self._made(message)
        if no_ack:
            self.wake()
            if made is not None:
                callback(made)
            return made is not None
        with self._lock:
            held = self._held.get(message.id)
            if held is None:
                return False
            held.is_new = False
        if made is None:
            self._bury(held.stored, message)
            return False
        self.qos.append(made, made.delivery_tag)
        callback(made)
        return True

    def _made(self, message: Message) -> Any:
        """Return the decoded message; None if it cannot be decoded."""
        try:
            raw = _envelope(message)
            properties = raw["properties"]
            properties["delivery_tag"] = message.id
            if "scheduled_at" in message.attributes:
                _tell_apart(raw, message)
            properties.setdefault("delivery_info", {})["redelivered"] = (message.delivery or 1) > 1
            return self.Message(raw, channel=self)
        except Exception:
            # Any client may have pushed this message.
            logger.exception("undecodable message in queue %r", message.queue)
            return None

    def _bury(self, stored: str, message: Message) -> None:
        with self._lock:
            self._held.pop(message.id, None)
        self.connection.settlements.move(
            stored, message.id, f"{stored}.unreadable", message.content, message.attributes
        )

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Pull one message without waiting; None if the queue is empty."""
        for stored in self._stored_names(queue):
            pulled = self.connection.pull_now(stored, no_ack)
            for one in pulled:
                if not no_ack:
                    with self._lock:
                        self._held[one.id] = _Held(queue, stored, is_new=False)
                made = self._made(one)
                if made is None and not no_ack:
                    self._bury(stored, one)
                elif made is not None:
                    if not no_ack:
                        self.qos.append(made, made.delivery_tag)
                    return made
        return None

    def settle(self, delivery_tag: str, *, requeue: bool) -> None:
        """Acknowledge a message or return it to its old position, in the background.

        A return counts as a delivery, so that a task that kills its process becomes a dead letter if an operator limits
        deliveries.
        """
        with self._lock:
            held = self._held.pop(delivery_tag, None)
        if held is None:
            return
        if requeue:
            self.connection.settlements.release(held.stored, delivery_tag)
        else:
            self.connection.settlements.ack(held.stored, delivery_tag)
        self.wake()

    def give_back(self, chosen: Callable[[_Held], bool] | None) -> None:
        """Return the held messages for which `chosen` is true, or all of them."""
        by_stored: dict[str, list[str]] = {}
        with self._lock:
            for tag, held in list(self._held.items()):
                if chosen is None or chosen(held):
                    by_stored.setdefault(held.stored, []).append(tag)
                    del self._held[tag]
        for stored, tags in by_stored.items():
            self.connection.settlements.put_back(stored, tags)

    def close(self) -> None:
        """Cancel all consumers and return all held messages."""
        if not self.closed and self.connection.is_used:
            for tag in list(self._consumers):
                self.basic_cancel(tag)
            self.give_back(None)
        super().close()


class Transport(virtual.Transport):
    """A broker connection in Celery's terms: one client.

    Transport options: ``lease`` (30: seconds after which the messages of a dead worker are redelivered), ``namespace``,
    ``token``, ``token_file``, ``tls_ca``, ``tls_cert``, ``tls``, ``timeout_s``, ``connect_timeout_s``, ``heartbeat_s``
    and ``discover``, as for `lmqcluster.Client`.
    """

    Channel = Channel
    can_parse_url = True
    default_port = _PORT
    driver_type = "lmq"
    driver_name = "lmqcluster"
    connection_errors = (*virtual.Transport.connection_errors, LmqError)
    implements = virtual.Transport.implements.extend(exchange_type=frozenset(("direct", "topic", "fanout")))

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.nodes, path = _parse_url(client.hostname)
        used = client.transport_options
        self._namespace = used.get("namespace") or path or "celery"
        self._lease_s = float(used.get("lease", 30.0))
        if not 0 < self._lease_s <= LEASE_S_MAX:
            raise ValueError(f"the transport option lease must be above 0 and at most {LEASE_S_MAX:g} seconds")
        self._client_options: ClientOptions = {name: used[name] for name in _CLIENT_OPTIONS if name in used}
        self._lmq: Client | None = None
        self._pid = 0
        self._renew()

    def _renew(self) -> None:
        self.inbox: SimpleQueue[tuple[Channel, str, Message]] = SimpleQueue()
        self.session = WorkerSession(lambda: self.lmq, self._lease_s)
        self.settlements = Settlements(lambda: self.lmq, self.session, logger, self._wake_channels)

    def _wake_channels(self) -> None:
        for channel in list(self.channels):
            channel.wake()

    @property
    def is_used(self) -> bool:
        """Return whether this process has a client. After a fork, the parent's client has no thread here."""
        return self._lmq is not None and self._pid == os.getpid()

    @property
    def lmq(self) -> Client:
        """Return the client, which connects on first use."""
        if self._lmq is None or self._pid != os.getpid():
            self._lmq, self._pid = Client(self.nodes, **self._client_options), os.getpid()
            self._renew()
        return self._lmq

    async def pull(self, stored: str, count: int) -> list[Message]:
        """Wait for messages, on the client's event loop."""
        return await self.session.pull(stored, count, None)

    async def pull_settled(self, stored: str, count: int) -> list[Message]:
        """Wait for messages that need no ack, on the client's event loop."""
        return await self.lmq._client.pull_many(stored, count, None, auto_ack=True)

    def pull_now(self, stored: str, no_ack: bool) -> list[Message]:
        """Pull one message without waiting."""
        if no_ack:
            return self.lmq._run(lambda: self.lmq._client.pull_many(stored, 1, 0, auto_ack=True))
        return self.lmq._run(lambda: self.session.pull(stored, 1, 0))

    def stored_name(self, queue: str) -> str:
        """Return the name of a queue in the cluster. It differs from every `fanout_name`."""
        return f"{self._namespace}.{_FANOUT_LIKE.sub('fanout%', queue)}"

    def fanout_name(self, exchange: str, queue: str) -> str:
        """Return the name of the cluster's queue for a binding of a queue to a fanout exchange."""
        return f"{self._namespace}.fanout/{exchange.replace('%', '%25').replace('/', '%2F')}/{queue}"

    def driver_version(self) -> str:
        """Return the version of lmqcluster."""
        return version("lmqcluster")

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:  # noqa: ARG002
        """Return the URL, which contains no secret."""
        return uri

    def establish_connection(self) -> Any:
        """Connect to a node.

        Raises:
            LmqError: no node answers.
        """
        self.lmq.ping()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels and disconnect."""
        super().close_connection(connection)
        if self.is_used and self._lmq is not None:
            self.settlements.close(self._lmq)
        self._lmq = None

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # noqa: ARG002
        """Deliver one message; wait for it at most `timeout` seconds.

        Raises:
            TimeoutError: no message arrived.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                channel, queue, message = self.inbox.get(timeout=left_s)
            except Empty:
                raise TimeoutError from None
            if not channel.closed and channel.hand_out(queue, message):
                return


def _parse_url(url: str | None) -> tuple[str, str]:
    """Return the addresses and the namespace of a URL such as ``lmq://host:18800,host:18810/NAMESPACE``."""
    rest = (url or "").removeprefix("lmq://")
    addresses, _, path = rest.partition("/")
    if "@" in addresses:
        raise ValueError("a URL lmq://... takes no user or password; set the transport option token")
    return _with_ports(addresses.split(",") if addresses else ["127.0.0.1"]), path.strip("/")


def _with_ports(addresses: Iterable[str]) -> str:
    return ",".join(one if re.search(r":[0-9]+$", one) else f"{one}:{_PORT}" for one in addresses)


def _tell_apart(raw: dict[str, Any], message: Message) -> None:
    """Give the task of a schedule its own id for each due time, the same at each delivery, and its time of expiry."""
    headers, due_s = raw.get("headers") or {}, float(message.attributes["scheduled_at"])
    if "id" not in headers:
        return
    stored = headers["id"]
    identity = str(uuid.uuid5(uuid.UUID(stored), repr(due_s)))
    for place in (headers, raw["properties"]):
        place.update({name: identity for name in ("id", "root_id", "correlation_id") if place.get(name) == stored})
    expires_s = message.attributes.get(EXPIRES_ATTRIBUTE)
    if expires_s is not None:
        headers["expires"] = datetime.fromtimestamp(due_s + float(expires_s), UTC).isoformat()


def push_options(message: dict[str, Any]) -> PushOptions:
    """Return the options of a push that a message of kombu asks for."""
    properties, headers = message["properties"], message.get("headers") or {}
    priority = properties.get("priority")
    options: PushOptions = {"attributes": as_attributes(headers, _FIRST_ATTRIBUTES)}
    if isinstance(priority, int) and priority:
        options["priority"] = -max(
            -_PRIORITY_MAX, min(priority, _PRIORITY_MAX)
        )  # A higher Celery priority is more urgent; in the cluster, a lower one is.
    if properties.get("expiration"):
        options["ttl"] = max(float(properties["expiration"]) / 1000, 0.001)
    if str((properties.get("delivery_info") or {}).get("exchange", "")).startswith("reply."):
        options["ttl"] = _TRANSIENT_TTL_S
    due = _due(headers.get("eta")) if "task" in headers else None
    if due is not None:
        options["due"] = due
    return options


def _envelope(message: Message) -> dict[str, Any]:
    """Return a message in kombu's form: its attributes are headers, and replace those of the same name.

    A producer that knows no envelope pushes the body of a task and gives its name as the attribute ``task``.
    """
    attributes = message.attributes
    raw = loads(message.content)
    if isinstance(raw, dict) and "properties" in raw:
        raw["headers"] = {**(raw.get("headers") or {}), **attributes}
        return raw
    if "task" not in attributes:
        raise ValueError("neither an envelope of kombu nor a body with the attribute task")
    task_id = str(attributes.setdefault("id", message.id))
    return {
        "body": message.text,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": attributes,
        "properties": {"correlation_id": task_id, "delivery_info": {}},
    }


def _due(eta: Any) -> float | None:
    """Return Celery's ETA as a Unix time; None if it has no time zone, because only the worker knows it."""
    if not isinstance(eta, str):
        return None
    moment = datetime.fromisoformat(eta)
    return None if moment.tzinfo is None else max(moment.timestamp(), 1.0)


def _unless_missing(error: LmqError, value: Any) -> Any:
    try:
        if error.code != "queue_not_found":
            raise error
    finally:
        # The error keeps a reference to this frame.
        del error
    return value


TRANSPORT_ALIASES["lmq"] = "lmqcluster.integrations.kombu:Transport"
