"""Collectors of traces for tests: a small receiver of OTLP/HTTP, and a real OpenTelemetry Collector if there is one.

Both write spans to a file, a JSON object in each line, as the collector's ``file`` exporter does.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .cluster import ports, reaper, wait_for

__all__ = ["Receiver", "SilentCollector", "SpanRecord", "StartedCollector", "collector_program", "spans_in", "tree_of"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "tracing.md"


@dataclass(frozen=True)
class SpanRecord:
    """A span in the file of a collector.

    Attributes:
        service: name of the program.
    """

    trace: str
    id: str
    parent: str
    name: str
    service: str
    kind: int
    attributes: dict[str, Any]
    is_error: bool


def _value(value: dict[str, Any]) -> Any:
    (kind, content), *_ = value.items()
    return int(content) if kind == "intValue" else content


def _attributes(of: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: _value(one["value"]) for one in of.get("attributes", ())}


def spans_in(file: Path) -> list[SpanRecord]:
    """Return the spans that a collector has written completely."""
    if not file.exists():
        return []
    lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    resources = [resource for line in lines for resource in json.loads(line)["resourceSpans"]]
    return [
        _record(span, _attributes(resource["resource"]).get("service.name", ""))
        for resource in resources
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def _record(span: dict[str, Any], service: str) -> SpanRecord:
    return SpanRecord(
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        span["name"],
        service,
        int(span.get("kind", 0)),
        _attributes(span),
        span.get("status", {}).get("code", 0) == 2,
    )


def tree_of(spans: list[SpanRecord], root: str) -> list[tuple[str, list[Any]]]:
    """Return the descendants of a span as sorted pairs of name and descendants."""
    children = [span for span in spans if span.parent == root]
    return sorted((span.name, tree_of(spans, span.id)) for span in children)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        from google.protobuf.json_format import MessageToDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        content = MessageToDict(request, use_integers_for_enums=True)
        spans = [
            span for resource in content["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]
        ]
        raw = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
        for span, one in zip(spans, raw, strict=True):
            span |= {
                "traceId": one.trace_id.hex(),
                "spanId": one.span_id.hex(),
                "parentSpanId": one.parent_span_id.hex(),
            }
        with self.server.file.open("a") as file:  # type: ignore[attr-defined]
            file.write(json.dumps(content) + "\n")
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Receiver:
    """A receiver of OTLP/HTTP that writes spans to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.file = file  # type: ignore[attr-defined]
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class SilentCollector:
    """A port that accepts connections and never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/traces"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()


def collector_program() -> str | None:
    """Return the program of an OpenTelemetry Collector that has the exporter ``file``; None if there is none."""
    return os.environ.get("TEST_OTEL_COLLECTOR") or shutil.which("otelcol-contrib")


class StartedCollector:
    """A real collector with the configuration of the documentation."""

    def __init__(self, program: str, folder: Path) -> None:
        self.file = folder / "traces.json"
        address = f"127.0.0.1:{ports.take()}"
        self.endpoint = f"http://{address}/v1/traces"
        (config,) = re.findall(r"```yaml\n(receivers:.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
        assert "127.0.0.1:4318" in config
        assert "/var/lib/otelcol/traces.json" in config
        self._config = folder / "collector.yaml"
        self._config.write_text(
            config.replace("127.0.0.1:4318", address).replace("/var/lib/otelcol/traces.json", str(self.file))
            # Its own metrics have a fixed port.
            + "  telemetry:\n    metrics:\n      level: none\n"
        )
        self._address = address
        self._log = folder / "collector.log"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        host, port = self._address.split(":")
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return False
        return True

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, "--config", str(self._config)], stdout=log, stderr=log, start_new_session=True
            )
        reaper.tell("+", self._process.pid)
        wait_for(self._listens, "the collector listens")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        reaper.tell("-", self._process.pid)
