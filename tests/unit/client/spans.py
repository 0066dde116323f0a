"""Spans that a test has recorded."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["Recorder"]


class Recorder:
    """A provider whose spans are kept.

    Attributes:
        provider: for ``Client(tracing=...)``.
    """

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._kept = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = self.provider.get_tracer("test")

    def ended(self) -> list[ReadableSpan]:
        """Return all spans that have ended, in that order."""
        return list(self._kept.get_finished_spans())

    def names(self) -> list[str]:
        """Return their names."""
        return [span.name for span in self.ended()]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (found,) = (span for span in self.ended() if span.name == name)
        return found

    def parent_name(self, span: ReadableSpan) -> str | None:
        """Return the name of a span's parent, None for a root; the parent must be here and in the same trace."""
        if span.parent is None:
            return None
        (parent,) = (one for one in self.ended() if one.context.span_id == span.parent.span_id)
        assert parent.context.trace_id == span.context.trace_id
        return parent.name


def traceparent(span: ReadableSpan) -> str:
    """Return the value that continues a span."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def linked(span: ReadableSpan) -> list[Any]:
    """Return the ids of the spans that a span links."""
    return [link.context.span_id for link in span.links]
