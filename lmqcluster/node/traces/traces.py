"""The spans of a node. It makes spans only for requests and messages that carry a sampled trace.

| Span              | Parent                                             | From                 | To                         |
|-------------------|----------------------------------------------------|----------------------|----------------------------|
| ``POST /v1/...``  | the header ``traceparent`` of the request          | the head has arrived | the answer is ready        |
| ``push QUEUE``    | the request, or the message's own ``traceparent``  | the push was decoded | the answer is ready        |
| ``commit``        | ``push QUEUE``                                     | the batch was made   | this node has applied it   |
| ``deliver QUEUE`` | the message's ``traceparent``                      | the pull was decoded | the message is handed over |

The log carries no spans: the node that serves the client makes them when a command returns from the log, from times that it
measures anyway. Messages of one command with the same ``traceparent`` share a span.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ...core import Fault
from ...core.log.commands import PULLS, PushAttempts, PushEach, PushRows, PushStream, Transaction, decode
from ...wire.attributes import unpack_attributes
from ...wire.trace_context import TraceParent, parse_traceparent

if TYPE_CHECKING:
    from ...core.log.results import Delivered
    from ..commit.proposer import PendingCommand
    from .export import SpanExport

__all__ = ["NodeTraces"]

SPANS_PER_BATCH_MAX: Final = 128
"""Most messages of a batch of commands that get spans, so that a batch of many traces does not hold up the event loop."""
_TRACE_IDS: Final = 1 << 64
_NAME: Final = b"traceparent"
_ServedSpan = tuple[str, Span]

Found = tuple[bytes, str]
"""Queue and ``traceparent`` of messages."""


class NodeTraces:
    """Makes the spans of a node (`RequestTraces`, `CommandTraces`).

    Args:
        export: takes the spans.
        sample: share of the sampled traces that get spans. The id of a trace decides, so that all nodes choose the same ones.
    """

    def __init__(self, export: SpanExport, sample: float) -> None:
        self.export = export
        self._bound = round(sample * _TRACE_IDS)
        # Requests in progress by their traceparent: the contexts of their spans.
        self._serving: dict[str, SpanContext] = {}

    def _wanted(self, traceparent: str) -> TraceParent | None:
        parent = parse_traceparent(traceparent)
        if parent is None or not parent.is_sampled or parent.trace_id % _TRACE_IDS >= self._bound:
            return None
        return parent

    # --- requests over HTTP -----------------------------------------------------------------------------------------

    def begin(self, traceparent: str | None, method: str) -> _ServedSpan | None:
        """Begin the span of a request; None if it gets none."""
        parent = None if traceparent is None else self._wanted(traceparent)
        if traceparent is None or parent is None or not self.export.has_room(1):
            return None
        span = self._span(method, _context(parent), SpanKind.SERVER, {"http.request.method": method})
        self._serving[traceparent] = span.get_span_context()
        return traceparent, span

    def end(self, served: _ServedSpan, method: str, route: str, status: int) -> None:
        """End the span of a request; a status of 0 means that it got no answer."""
        traceparent, span = served
        if self._serving.get(traceparent) == span.get_span_context():
            del self._serving[traceparent]
        span.update_name(f"{method} {route}" if route else method)
        if route:
            span.set_attribute("http.route", route)
        if status:
            span.set_attribute("http.response.status_code", status)
        if not status or status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    # --- commands ---------------------------------------------------------------------------------------------------

    def applied(self, made_s: float, pending_commands: Sequence[PendingCommand], results: Sequence[Any]) -> None:
        """Make the spans of commands that have returned from the log.

        Args:
            made_s: when their batch was made, by the monotonic clock.
            pending_commands: the commands.
            results: the result of each.
        """
        left = SPANS_PER_BATCH_MAX
        for pending, result in zip(pending_commands, results, strict=True):
            command = pending.command
            if command.op in PULLS:
                if type(result) is list and result:
                    left -= self._deliver(pending.since_s, result, left)
            elif isinstance(command, PushRows | PushAttempts | PushEach | PushStream | Transaction):
                left -= self._push(pending.since_s, made_s, _counted(_pushed(command)), result, left)

    def _push(self, since_s: float, made_s: float, found: dict[Found, int], result: Any, left: int) -> int:
        made = 0
        for (queue, traceparent), count in found.items():
            parent = self._wanted(traceparent)
            if parent is None:
                continue
            if made >= left:
                self.export.dropped += 2
                continue
            if not self.export.has_room(2):
                continue
            made += 1
            serving = self._serving.get(traceparent)
            context, kind = (_context(parent), SpanKind.SERVER) if serving is None else (serving, SpanKind.INTERNAL)
            span = self._span(f"push {_text(queue)}", context, kind, _described("push", queue, count), since_s)
            commit = self._span("commit", span.get_span_context(), SpanKind.INTERNAL, {}, max(made_s, since_s))
            if isinstance(result, Fault):
                span.set_attribute("error.type", result.code or "internal")
                span.set_status(Status(StatusCode.ERROR))
            commit.end()
            span.end()
        return made

    def _deliver(self, since_s: float, delivered: list[Delivered], left: int) -> int:
        made = 0
        for (queue, traceparent), count in _counted(_delivered(delivered)).items():
            parent = self._wanted(traceparent)
            if parent is None:
                continue
            if made >= left:
                self.export.dropped += 1
                continue
            if not self.export.has_room(1):
                continue
            made += 1
            described = _described("deliver", queue, count)
            self._span(f"deliver {_text(queue)}", _context(parent), SpanKind.SERVER, described, since_s).end()
        return made

    def _span(
        self,
        name: str,
        parent: SpanContext,
        kind: SpanKind,
        attributes: dict[str, str | int],
        since_s: float | None = None,
    ) -> Span:
        """Start a span, at a time of the monotonic clock or now."""
        start_ns = None if since_s is None else time.time_ns() - round((time.monotonic() - since_s) * 1e9)
        context = trace.set_span_in_context(NonRecordingSpan(parent))
        span: Span = self.export.tracer.start_span(name, context, kind, attributes, start_time=start_ns)
        return span


def _context(parent: TraceParent) -> SpanContext:
    return SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _described(name: str, queue: bytes, count: int) -> dict[str, str | int]:
    described: dict[str, str | int] = {
        "messaging.system": "lmqcluster",
        "messaging.operation.name": name,
        "messaging.destination.name": _text(queue),
    }
    return described if count == 1 else {**described, "messaging.batch.message_count": count}


def _text(queue: bytes) -> str:
    return queue.decode("utf-8", "replace")


def _counted(found: Iterable[Found]) -> dict[Found, int]:
    """Return how often each occurs, in the order of first occurrence."""
    counts: dict[Found, int] = {}
    for one in found:
        counts[one] = counts.get(one, 0) + 1
    return counts


def _traceparent(attributes: bytes) -> str | None:
    """Return the trace of packed attributes; None for none."""
    if _NAME not in attributes:
        return None
    found = unpack_attributes(attributes).get("traceparent")
    return found if isinstance(found, str) else None


def _pushed(command: PushRows | PushAttempts | PushEach | PushStream | Transaction) -> Iterator[Found]:
    """Yield queue and trace of each message of a push that has a trace."""
    if isinstance(command, Transaction):
        for step in map(decode, command.steps):
            if isinstance(step, PushRows):
                yield from _pushed(step)
    elif isinstance(command, PushEach):
        traceparent = _traceparent(command.item[2])
        if traceparent is not None:
            yield from ((queue, traceparent) for queue in command.queues)
    else:
        for row in command.rows:
            # A bare body has no attributes.
            if type(row) is not bytes and row[2] and (traceparent := _traceparent(row[2])) is not None:
                yield command.queue, traceparent


def _delivered(delivered: Iterable[Delivered]) -> Iterator[Found]:
    """Yield queue and trace of each delivery that has a trace."""
    for queue, _number, _remaining, message in delivered:
        attributes = message.meta[1]
        if attributes and (traceparent := _traceparent(attributes)) is not None:
            yield queue, traceparent
