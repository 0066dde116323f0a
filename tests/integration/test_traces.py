"""One trace from a producer over HTTP through a redelivery and a transaction to tasks of Celery, as one tree.

The producer, the consumer with the Python client, the three nodes and the Celery worker export their spans to a collector,
which writes them to a file.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra otel")
pytest.importorskip("opentelemetry.instrumentation.celery", reason="needs the instrumentation of Celery")

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from lmqcluster import Client

from .celery_workers import Workers
from .cluster import Cluster, wait_for
from .collectors import Receiver, SpanRecord, StartedCollector, collector_program, spans_in, tree_of
from .raw_http import call

APPLICATION = """
import os
from celery import Celery
from celery.signals import worker_process_init
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
import lmqcluster.integrations.kombu

app = Celery(broker=os.environ["BROKER"], backend=os.environ["RESULTS"])
app.conf.broker_connection_retry_on_startup = True

@worker_process_init.connect(weak=False)
def trace_tasks(**_):
    provider = TracerProvider(resource=Resource.create({"service.name": "worker"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=ENDPOINT)))
    trace.set_tracer_provider(provider)
    CeleryInstrumentor().instrument()

@app.task(name="ship")
def ship(order):
    bill.delay(order)

@app.task(name="bill")
def bill(order):
    pass
"""


@pytest.fixture(params=["receiver", "collector"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Receiver | StartedCollector]:
    if request.param == "receiver":
        with Receiver(tmp_path / "traces.json") as receiver:
            yield receiver
        return
    program = collector_program()
    if program is None:
        pytest.skip("there is no OpenTelemetry Collector on this machine")
    with StartedCollector(program, tmp_path) as started:
        yield started


@pytest.fixture
def provider(collector: Receiver | StartedCollector) -> Iterator[TracerProvider]:
    made = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    made.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.endpoint)))
    yield made
    made.shutdown()


@pytest.fixture
def cluster(collector: Receiver | StartedCollector, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, directory=tmp_path, arguments=("--trace-otlp-endpoint", collector.endpoint)) as nodes:
        yield nodes


@pytest.fixture
def workers(cluster: Cluster, collector: Receiver | StartedCollector, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, f"lmq://{cluster.nodes[2].rpc}/tasks")
    (tmp_path / "application.py").write_text(f"ENDPOINT = {collector.endpoint!r}\n{APPLICATION}")
    made.start("one", "-c", "1")
    yield made
    made.close()


class FailedError(Exception):
    """The first attempt to process the order."""


def consume(client: Client) -> None:
    """Fail once, then consume the order and send a task in its place, in one step."""
    message = client.pull("orders", 60)
    assert message is not None
    with pytest.raises(FailedError), message:
        raise FailedError
    again = client.pull("orders", 60)
    assert again is not None
    with again, client.transaction() as transaction:
        transaction.done(again)
        body = json.dumps([[again.text], {}, {}]).encode()
        attributes: Any = {"task": "ship", "id": str(uuid.uuid4())}
        transaction.push("tasks.celery", body, content_type="application/json", attributes=attributes)


STORED: tuple[str, list[Any]] = ("commit", [])
TREE: list[tuple[str, list[Any]]] = [
    ("POST /messages/{name}", [("push orders", [STORED])]),
    *[("deliver orders", [])] * 2,
    ("process orders", [
        ("commit tasks.celery", [
            ("deliver tasks.celery", []),
            ("push tasks.celery", [STORED]),
            ("run/ship", [
                ("apply_async/bill", [
                    ("deliver tasks.celery", []),
                    ("push tasks.celery", [STORED]),
                    ("run/bill", []),
                ]),
            ]),
        ]),
    ]),
    ("process orders", [("nack orders", [])]),
    *[("pull orders", [])] * 2,
]  # fmt: skip
"""The spans below that of the producer: from three nodes, the client, and the worker."""


def names_in(tree: list[tuple[str, list[Any]]]) -> list[str]:
    return [name for name, below in tree for name in (name, *names_in(below))]


def test_one_trace_from_http_to_celery(
    cluster: Cluster, collector: Receiver | StartedCollector, provider: TracerProvider, workers: Workers
) -> None:
    with provider.get_tracer("test").start_as_current_span("order") as order:
        headers: dict[str, str] = {}
        inject(headers)
        assert call(cluster.nodes[0].http, "POST", "/messages/orders", b"one book", headers).status == 200
    with Client(cluster.nodes[1].rpc, tracing=provider) as client:
        consume(client)
    trace_id, root = f"{order.get_span_context().trace_id:032x}", f"{order.get_span_context().span_id:016x}"

    def spans() -> list[SpanRecord]:
        return [span for span in spans_in(collector.file) if span.trace == trace_id]

    wanted = ["order", *names_in(TREE)]
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: len(spans()) >= len(wanted), "all spans", 120)
    found = spans()
    assert Counter(span.name for span in found) == Counter(wanted)
    assert [span.name for span in found if not span.parent] == ["order"]
    assert tree_of(found, root) == sorted(TREE)
    services = {span.name: span.service for span in found}
    assert services["run/ship"] == services["apply_async/bill"] == "worker"
    assert services["commit tasks.celery"] == services["process orders"] == services["order"] == "shop"
    assert services["push tasks.celery"] == services["POST /messages/{name}"] == "lmqcluster"
    failed = [span for span in found if span.name == "process orders"]
    assert sorted(span.is_error for span in failed) == [False, True]
    assert sorted(span.attributes["messaging.lmqcluster.delivery"] for span in failed) == [1, 2]
