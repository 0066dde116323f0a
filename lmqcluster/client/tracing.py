"""Spans of a client's calls, by OpenTelemetry's conventions for messaging: ``pip install lmqcluster[otel]``.

Only a client with ``tracing`` imports this module. Its calls go through a `Tracer`, which makes them with a copy of the client
that has no tracer.

A message carries the context of the span that pushed it, in the attributes ``traceparent`` and ``tracestate``. Spans of its
consumer continue that trace: their parent is the current span if that belongs to the trace, otherwise the span that pushed the
message. The current span is linked then.
"""

from __future__ import annotations

import copy
import time
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lmqcluster.wire.attributes import (
    ATTRIBUTE_BYTES_MAX,
    ATTRIBUTES_MAX,
    TRACE_ATTRIBUTES,
    Attributes,
    Value,
    pack_attributes,
    unpack_attributes,
)
from lmqcluster.wire.errors import LmqError

from .message import Message
from .options import Place, PushOptions
from .transport.addresses import NodeAddress
from .transport.requests import Name, name_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.trace import TracerProvider

__all__ = ["Settled", "TracedMessage", "Tracer"]

T = TypeVar("T")
C = TypeVar("C", bound="TracedClient")

_LINKS_MAX = 128
"""Most links of a span, OpenTelemetry's default."""
_W3C = TraceContextTextMapPropagator()


class TracedClient(Protocol):
    """The attributes of a client that a tracer uses."""

    _tracer: Tracer | None

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node."""


class Pushed(Protocol):
    """An operation of a transaction that pushes."""

    queue: bytes
    options: dict[str, Any] | None


class Settled(Protocol):
    """A message that a transaction settles."""

    _reply: dict[bytes, Any]


class Tracer:
    """Makes the spans of a client.

    Args:
        provider: provider of the spans; None for the process's.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("lmqcluster", version("lmqcluster"), provider)

    # --- pushes -----------------------------------------------------------------------------------------------------

    def push(
        self, client: C, queue: Name, options: PushOptions, call: Callable[[C, PushOptions], Future[T]]
    ) -> Future[T]:
        """Push one message, which gets the context of the span unless it has its own."""
        own = options.get("attributes") or {}
        span = self._start("push", "send", SpanKind.PRODUCER, queue, contexts=[_context_of(own)])
        given: PushOptions = {**options, "attributes": _injected(span, own)}
        return _call(span, client, lambda plain: call(plain, given))

    def push_many(
        self,
        client: C,
        queue: Name,
        count: int,
        options: Sequence[PushOptions | None] | None,
        call: Callable[[C, list[PushOptions | None]], Future[T]],
    ) -> Future[T]:
        """Push messages, which get the context of one span unless they have their own."""
        each = [one or {} for one in options or [None] * count]
        contexts = [_context_of(one.get("attributes") or {}) for one in each]
        span = self._start("push", "send", SpanKind.PRODUCER, queue, contexts=contexts, count=count)
        given: list[PushOptions | None] = [
            {**one, "attributes": _injected(span, one.get("attributes") or {})} for one in each
        ]
        return _call(span, client, lambda plain: call(plain, given))

    def with_current(self, options: PushOptions) -> PushOptions:
        """Return the options of a later push, with the context of the current span unless they have their own."""
        current = trace.get_current_span()
        if not current.get_span_context().is_valid:
            return options
        return {**options, "attributes": _injected(current, options.get("attributes") or {})}

    # --- pulls ------------------------------------------------------------------------------------------------------

    async def pull(
        self, client: C, queue: Name | None, call: Callable[[C], Awaitable[Message | None]]
    ) -> TracedMessage | None:
        """Take a message; a pull that finds none makes no span. Without `queue`, that of the message counts."""
        began_ns = time.time_ns()
        try:
            message = await call(_plain(client))
        except LmqError as error:
            self._failed("pull", queue, client, began_ns, error)
            raise
        if message is None:
            return None
        traced = TracedMessage(self, client, message)
        self._received(client, message.queue if queue is None else queue, [traced], began_ns, is_batch=False)
        return traced

    async def pull_many(self, client: C, queue: Name, call: Callable[[C], Awaitable[list[Message]]]) -> list[Message]:
        """Take messages; see `pull`."""
        began_ns = time.time_ns()
        try:
            found = await call(_plain(client))
        except LmqError as error:
            self._failed("pull", queue, client, began_ns, error)
            raise
        messages: list[Message] = [TracedMessage(self, client, message) for message in found]
        if messages:
            self._received(client, queue, messages, began_ns, is_batch=True)
        return messages

    def _received(
        self, client: TracedClient, queue: Name, messages: Sequence[Message], began_ns: int, *, is_batch: bool
    ) -> None:
        contexts = [_context_of(message.attributes) for message in messages]
        count = len(messages) if is_batch else None
        span = self._start(
            "pull",
            "receive",
            SpanKind.CLIENT,
            queue,
            contexts=contexts,
            count=count,
            joins=len(messages) == 1,
            at=began_ns,
        )
        if not is_batch:
            _describe(span, messages[0]._reply)
        _end(span, client, None)

    def _failed(self, name: str, queue: Name | None, client: TracedClient, began_ns: int, error: LmqError) -> None:
        span = self._start(name, "receive", SpanKind.CLIENT, queue, at=began_ns)
        _end(span, client, error)

    # --- settlements ------------------------------------------------------------------------------------------------

    def settle(
        self, client: C, name: str, queue: Name, call: Callable[[C], Future[T]], count: int | None = None
    ) -> Future[T]:
        """Settle messages, as part of the current trace; `count` for several."""
        span = self._start(name, "settle", SpanKind.CLIENT, queue, count=count)
        return _call(span, client, call)

    @contextmanager
    def continued(self, reply: Mapping[bytes, Any]) -> Iterator[None]:
        """Continue the trace of a message in a block, see the module."""
        context = _context_of(_attributes_of(reply))
        current = trace.get_current_span().get_span_context()
        if context is None or (current.is_valid and current.trace_id == context.trace_id):
            yield
            return
        token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(context)))
        try:
            yield
        finally:
            otel_context.detach(token)

    @contextmanager
    def committing(self, client: TracedClient, pushes: Sequence[Pushed], settled: Sequence[Settled]) -> Iterator[None]:
        """Commit a transaction in a block. Its messages get the context of the span unless they have their own."""
        queues = {push.queue for push in pushes}
        own = [unpack_attributes((push.options or {}).get("attributes", b"")) for push in pushes]
        span = self._start(
            "commit",
            "send" if pushes else "settle",
            SpanKind.PRODUCER if pushes else SpanKind.CLIENT,
            queues.pop() if len(queues) == 1 else None,
            contexts=[_context_of(_attributes_of(message._reply)) for message in settled],
            count=len(pushes) or len(settled),
        )
        for push, attributes in zip(pushes, own, strict=True):
            push.options = {**(push.options or {}), "attributes": pack_attributes(_injected(span, attributes))}
        with _current(span, client):
            yield

    # --- processing -------------------------------------------------------------------------------------------------

    @contextmanager
    def processing(self, client: TracedClient, reply: Mapping[bytes, Any], queue: str) -> Iterator[None]:
        """Process a message in a block, with a span that is the current one."""
        contexts = [_context_of(_attributes_of(reply))]
        span = self._start("process", "process", SpanKind.CONSUMER, queue, contexts=contexts)
        _describe(span, reply)
        with _current(span, client):
            yield

    def note_failure(self, error: BaseException) -> None:
        """Note that the consumer of the current span has failed with an exception that does not leave the block."""
        _note(trace.get_current_span(), error)

    def in_context(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function that runs in the present context, in any thread."""
        return partial(_run_in, otel_context.get_current(), function)

    # --- spans ------------------------------------------------------------------------------------------------------

    def _start(
        self,
        name: str,
        kind_of_operation: str,
        kind: SpanKind,
        queue: Name | None,
        *,
        contexts: Iterable[SpanContext | None] = (),
        count: int | None = None,
        joins: bool = True,
        at: int | None = None,
    ) -> Span:
        """Start a span.

        Args:
            contexts: those of the messages. The span continues the trace of the first one and links the others.
            joins: whether it may do so.
            at: start as Unix time in nanoseconds, default now.
        """
        # Contexts have no hash.
        known = list({(one.trace_id, one.span_id): one for one in contexts if one is not None}.values())
        current = trace.get_current_span().get_span_context()
        parent = None
        if joins and known and not any(current.is_valid and current.trace_id == one.trace_id for one in known):
            parent = trace.set_span_in_context(trace.NonRecordingSpan(known[0]))
            linked = [*([current] if current.is_valid else ()), *known[1:]]
        else:
            linked = [one for one in known if one.span_id != current.span_id]
        shown = None if queue is None else name_bytes(queue).decode("utf-8", "replace")
        attributes: dict[str, str | int] = {
            "messaging.system": "lmqcluster",
            "messaging.operation.name": name,
            "messaging.operation.type": kind_of_operation,
        }
        if shown is not None:
            attributes["messaging.destination.name"] = shown
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        span: Span = self._tracer.start_span(
            name if shown is None else f"{name} {shown}",
            context=parent,
            kind=kind,
            attributes=attributes,
            links=[Link(one) for one in linked[:_LINKS_MAX]],
            start_time=at,
        )
        return span


class TracedMessage(Message):
    """A message pulled by a client with tracing. ``async with message:`` is a span, the current one in the block."""

    __slots__ = ("_block", "_tracer")

    def __init__(self, tracer: Tracer, client: Any, message: Message) -> None:
        super().__init__(client, message._reply, message.content)
        self._settled = message._settled
        self._tracer = tracer
        self._block: AbstractContextManager[None] | None = None

    def ack(self) -> Awaitable[bool]:
        """See `Message.ack`."""
        with self._tracer.continued(self._reply):
            return super().ack()

    def nack(self, *, delay: float | None = None, place: Place = "tail") -> Awaitable[bool]:
        """See `Message.nack`."""
        with self._tracer.continued(self._reply):
            return super().nack(delay=delay, place=place)

    async def __aenter__(self) -> Self:
        client: Any = self._client
        self._block = self._tracer.processing(client, self._reply, self.queue)
        self._block.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        try:
            await super().__aexit__(kind, value, traceback)
        finally:
            if block is not None:
                block.__exit__(kind, value, traceback)


def _plain(client: C) -> C:
    """Return a copy of a client without its tracer."""
    plain = copy.copy(client)
    plain._tracer = None
    return plain


def _call(span: Span, client: C, call: Callable[[C], Future[T]]) -> Future[T]:
    """Make a call and end its span with the outcome."""
    try:
        future = call(_plain(client))
    except BaseException as error:
        _end(span, client, error)
        raise
    if future.done():
        _end_with(span, client, future)
    else:
        future.add_done_callback(partial(_end_with, span, client))
    return future


def _end_with(span: Span, client: TracedClient, future: Future[Any]) -> None:
    _end(span, client, CancelledError() if future.cancelled() else future.exception())


def _end(span: Span, client: TracedClient, error: BaseException | None) -> None:
    address = client.address
    if address is not None:
        span.set_attribute("server.address", address[0])
        span.set_attribute("server.port", address[1])
    if error is not None:
        _note(span, error)
    span.end()


def _note(span: Span, error: BaseException) -> None:
    """Give a span the status of an error."""
    span.set_attribute("error.type", error.code if isinstance(error, LmqError) else type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)[:200]))


@contextmanager
def _current(span: Span, client: TracedClient) -> Iterator[None]:
    """Make a span the current one in a block, and end it with the block."""
    token = otel_context.attach(trace.set_span_in_context(span))
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        otel_context.detach(token)
        _end(span, client, failure)
        # The error refers to this frame, so the variable would create a reference cycle.
        del failure


def _describe(span: Span, reply: Mapping[bytes, Any]) -> None:
    """Add the attributes of one delivery."""
    span.set_attribute("messaging.message.id", reply[b"id"].decode())
    span.set_attribute("messaging.lmqcluster.delivery", reply.get(b"delivery", 1))


def _attributes_of(reply: Mapping[bytes, Any]) -> dict[str, Value]:
    """Return the attributes of a delivery; those of a compound message belong to its parts."""
    packed = reply.get(b"attributes", b"")
    return unpack_attributes(packed) if isinstance(packed, bytes) else {}


def _context_of(attributes: Attributes) -> SpanContext | None:
    """Return the context that a message carries; None if there is none, or a malformed one."""
    carrier = {name: value for name in TRACE_ATTRIBUTES if isinstance(value := attributes.get(name), str)}
    if not carrier:
        return None
    found: SpanContext = trace.get_current_span(_W3C.extract(carrier, otel_context.Context())).get_span_context()
    return found if found.is_valid else None


def _injected(span: Span, attributes: Attributes) -> Attributes:
    """Return the attributes of a message with the context of a span, unless they have their own or no room for it."""
    if not attributes.keys().isdisjoint(TRACE_ATTRIBUTES):
        return attributes
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    merged = {**attributes, **carrier}
    if attributes and (len(merged) > ATTRIBUTES_MAX or len(pack_attributes(merged)) > ATTRIBUTE_BYTES_MAX):
        return attributes
    return merged


def _run_in(context: Any, function: Callable[..., T], *arguments: Any) -> T:
    token = otel_context.attach(context)
    try:
        return function(*arguments)
    finally:
        otel_context.detach(token)
