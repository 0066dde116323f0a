"""Options of the traces that a node exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import NoReturn

from . import values
from .option import option

__all__ = ["TraceOptions"]


def has_otel() -> bool:
    """Return whether the libraries for traces are installed."""
    try:
        return (
            find_spec("opentelemetry.exporter.otlp.proto.http") is not None
            and find_spec("opentelemetry.sdk") is not None
        )
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """Options of traces."""

    trace_otlp_endpoint: str | None = field(
        default=None,
        metadata=option(
            values.url_or_off,
            "URL to which the node sends spans over OTLP/HTTP, such as http://127.0.0.1:4318/v1/traces, or off. Only requests "
            "and messages with a sampled traceparent get spans. Needs the extra otel of the package.",
            extremes="If the collector does not answer, the node drops spans and counts them; requests do not wait.",
            metavar="URL",
            default="off",
        ),
    )
    trace_sample: float = field(
        default=1.0,
        metadata=option(
            values.ratio,
            "Share of the sampled traces for which the node makes spans, 0 to 1. Set the same on all nodes: they then choose "
            "the same traces.",
            extremes="Each span costs the node about 30 microseconds.",
            metavar="RATIO",
            default="1",
        ),
    )

    def validate_traces(self, fail: Callable[[str, str], NoReturn]) -> None:
        """Call `fail` with the name of an invalid option and the reason."""
        if self.trace_otlp_endpoint is not None and not has_otel():
            fail("trace_otlp_endpoint", "needs a library that is not installed: install lmqcluster with the extra otel")
