"""Spans of a client's calls, by OpenTelemetry's conventions for messaging: ``pip install lmqcluster[otel]``.

Only a client with ``tracing`` imports this module.

A message carries the context of the span that pushed it, in the attributes ``traceparent`` and ``tracestate``. Spans of its
consumer continue that trace: their parent is the current span if that belongs to the trace, otherwise the span that pushed the
message. The current span is linked then.
"""

from __future__ import annotations

import copy
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

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
P = TypeVar("P", bound="Pusher")

_LINKS_MAX = 128
"""Most links of a span, OpenTelemetry's default."""
_W3C = TraceContextTextMapPropagator()


class Connected(Protocol):
    """An object that knows the node in use."""

    @property
    def address(self) -> NodeAddress | None:
        """Address of the node."""


class Pusher(Connected, Protocol):
    """The pushes of a client."""

    _tracer: Tracer | None

    def push(self, queue: Name, content: Any, **options: Unpack[PushOptions]) -> Future[str]:
        """Push a message."""

    def push_many(
        self,
        queue: Name,
        contents: Sequence[Any],
        *,
        keys: Sequence[Name] | None = None,
        content_types: Sequence[Name | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> Future[list[str]]:
        """Push messages."""


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

    def push(self, client: Pusher, queue: Name, content: Any, options: PushOptions) -> Future[str]:
        """Push one message, which gets the context of the span unless it has one already."""
        own = options.get("attributes") or {}
        span = self._start("push", "send", SpanKind.PRODUCER, queue, contexts=[_context_of(own)])
        given: PushOptions = {**options, "attributes": _injected(span, own)}
        return _call(span, client, lambda: _plain(client).push(queue, content, **given))

    def push_many(
        self,
        client: Pusher,
        queue: Name,
        contents: Sequence[Any],
        options: Sequence[PushOptions | None] | None,
        keys: Sequence[Name] | None,
        content_types: Sequence[Name | None] | None,
    ) -> Future[list[str]]:
        """Push messages, which get the context of one span unless they have one already."""
        each = [one or {} for one in options or [None] * len(contents)]
        own = [one.get("attributes") or {} for one in each]
        contexts = map(_context_of, own)
        span = self._start("push", "send", SpanKind.PRODUCER, queue, contexts=contexts, count=len(contents))
        given: list[PushOptions | None] = [
            {**one, "attributes": _injected(span, attributes)} for one, attributes in zip(each, own, strict=True)
        ]

        def call() -> Future[list[str]]:
            return _plain(client).push_many(queue, contents, keys=keys, content_types=content_types, options=given)

        return _call(span, client, call)

    def with_current(self, options: PushOptions) -> PushOptions:
        """Return the options of a later push, with the context of the current span unless they have one already."""
        current = trace.get_current_span()
        if not current.get_span_context().is_valid:
            return options
        return {**options, "attributes": _injected(current, options.get("attributes") or {})}

    # --- pulls and settlements --------------------------------------------------------------------------------------

    def received(self, node: Connected, pulled: Message | list[Message] | None, began_ns: int) -> None:
        """Note the result of a pull; one that found nothing makes no span."""
        if not pulled:
            return
        messages = pulled if isinstance(pulled, list) else [pulled]
        span = self._start(
            "pull",
            "receive",
            SpanKind.CLIENT,
            messages[0].queue,
            contexts=[_context_of(message.attributes) for message in messages],
            count=len(messages) if isinstance(pulled, list) else None,
            joins=len(messages) == 1,
            at=began_ns,
        )
        if isinstance(pulled, Message):
            _describe(span, pulled._reply)
        _end(span, node, None)

    def pull_failed(self, node: Connected, began_ns: int, error: LmqError) -> None:
        """Note a pull that failed."""
        _end(self._start("pull", "receive", SpanKind.CLIENT, None, at=began_ns), node, error)

    def settle(
        self, node: Connected, name: str, queue: Name, call: Callable[[], Future[T]], count: int | None = None
    ) -> Future[T]:
        """Settle messages, as part of the current trace; `count` for several."""
        return _call(self._start(name, "settle", SpanKind.CLIENT, queue, count=count), node, call)

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
    def committing(self, node: Connected, pushes: Sequence[Pushed], settled: Sequence[Settled]) -> Iterator[None]:
        """Commit a transaction in a block. Its messages get the context of the span unless they have one already."""
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
        with _current(span, node):
            yield

    # --- processing -------------------------------------------------------------------------------------------------

    @contextmanager
    def processing(self, node: Connected, reply: Mapping[bytes, Any], queue: str) -> Iterator[None]:
        """Process a message in a block, with a span that is the current one."""
        contexts = [_context_of(_attributes_of(reply))]
        span = self._start("process", "process", SpanKind.CONSUMER, queue, contexts=contexts)
        _describe(span, reply)
        with _current(span, node):
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

    def __init__(self, client: Any, reply: dict[bytes, Any], content: Any) -> None:
        super().__init__(client, reply, content)
        self._tracer: Tracer = client._tracer
        self._block: AbstractContextManager[None] | None = None

    def ack(self) -> Awaitable[bool]:
        """See `Message.ack`."""
        with self._tracer.continued(self._reply):
            return super().ack()

    def nack(self, *, delay: float | None = None, place: Place = "tail", reason: str | None = None) -> Awaitable[bool]:
        """See `Message.nack`."""
        with self._tracer.continued(self._reply):
            return super().nack(delay=delay, place=place, reason=reason)

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


def _plain(client: P) -> P:
    """Return a copy of a client without its tracer."""
    plain = copy.copy(client)
    plain._tracer = None
    return plain


def _call(span: Span, node: Connected, call: Callable[[], Future[T]]) -> Future[T]:
    """Make a call and end its span with the outcome."""
    try:
        future = call()
    except BaseException as error:
        _end(span, node, error)
        raise
    if future.done():
        _end_with(span, node, future)
    else:
        future.add_done_callback(partial(_end_with, span, node))
    return future


def _end_with(span: Span, node: Connected, future: Future[Any]) -> None:
    _end(span, node, CancelledError() if future.cancelled() else future.exception())


def _end(span: Span, node: Connected, error: BaseException | None) -> None:
    address = node.address
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
def _current(span: Span, node: Connected) -> Iterator[None]:
    """Make a span the current one in a block, and end it with the block."""
    token = otel_context.attach(trace.set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        _note(span, error)
        raise
    finally:
        otel_context.detach(token)
        _end(span, node, None)


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
    """Return the attributes of a message with the context of a span, unless they have one already, or no room for it."""
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
