"""Export of spans over OTLP/HTTP by OpenTelemetry's SDK: ``pip install lmqcluster[otel]``.

Only a node with traces imports this module. A thread of the SDK sends the spans in batches, so a collector that does not answer
delays no request. At most `QUEUE_MAX` spans wait or are on their way; further ones are dropped and counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

__all__ = ["QUEUE_MAX", "SpanExport"]

log = structlog.get_logger("lmq.traces")

QUEUE_MAX: Final = 4096
BATCH_MAX: Final = 256
INTERVAL_S: Final = 1.0
TIMEOUT_S: Final = 5.0
CLOSE_S: Final = 2.0
"""How long a stopping node waits for the last spans to be sent."""


class SpanExport:
    """The spans that wait for export.

    Attributes:
        tracer: creates the spans.
        dropped: number of spans that were not created because too many wait.
    """

    def __init__(
        self, endpoint: str, name: str, *, timeout_s: float = TIMEOUT_S, interval_s: float = INTERVAL_S
    ) -> None:
        # The SDK logs each failure; the node logs only changes.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._counted = _CountedExporter(OTLPSpanExporter(endpoint=endpoint, timeout=timeout_s))
        processor: Any = BatchSpanProcessor(
            self._counted,
            max_queue_size=QUEUE_MAX,
            schedule_delay_millis=interval_s * 1000,
            max_export_batch_size=BATCH_MAX,
        )
        resource = Resource.create(
            {"service.name": "lmqcluster", "service.instance.id": name, "service.version": version("lmqcluster")}
        )
        # The node has decided before it creates a span.
        self._provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self.tracer: Tracer = self._provider.get_tracer("lmqcluster.node", version("lmqcluster"))
        self.dropped = 0
        self._created = 0

    def has_room(self, count: int) -> bool:
        """Return whether `count` more spans may be created; otherwise count them as dropped."""
        if self._created + count - self._counted.taken > QUEUE_MAX:
            self.dropped += count
            return False
        self._created += count
        return True

    @property
    def exported_total(self) -> int:
        """Number of spans that the collector has accepted."""
        return self._counted.exported

    @property
    def dropped_total(self) -> int:
        """Number of spans that were dropped: there was no room for them, or the collector did not accept them."""
        return self.dropped + self._counted.failed

    def close(self) -> None:
        """Send the spans that wait, for at most `CLOSE_S`. This blocks."""
        # A request to a collector that does not answer cannot be ended; its thread ends with the process.
        ending = threading.Thread(target=self._provider.shutdown, name="lmq-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)


class _CountedExporter:
    """An exporter (`SpanExporter`) that counts, and logs when exports begin to fail and to succeed again.

    Attributes:
        taken: number of spans whose export has ended. Only the thread of the SDK writes the numbers.
        exported, failed: number of those that the collector has accepted, and of the others.
    """

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self._fails = False
        self.taken = 0
        self.exported = 0
        self.failed = 0

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        """Send spans."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            done = result is SpanExportResult.SUCCESS
            self.taken += len(spans)
            if done:
                self.exported += len(spans)
            else:
                self.failed += len(spans)
            self._note(fails=not done)
        return result

    def _note(self, *, fails: bool) -> None:
        if fails and not self._fails:
            log.warning("the collector does not accept traces; their spans are dropped")
        elif self._fails and not fails:
            log.info("the collector accepts traces again")
        self._fails = fails

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, _timeout_millis: int = 30_000) -> bool:
        """Return True: nothing waits here."""
        return True
