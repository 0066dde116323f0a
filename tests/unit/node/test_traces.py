"""Spans of commands that return from the log: which get some, their times, and bounds."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra otel")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from lmqcluster.core import Fault
from lmqcluster.core.log.commands import Ack, Pull, Push, PushEach, PushRows, Transaction
from lmqcluster.core.messages.message import Message
from lmqcluster.node.commit.proposer import PendingCommand
from lmqcluster.node.traces import export as module
from lmqcluster.node.traces.export import QUEUE_MAX, SpanExport
from lmqcluster.node.traces.traces import SPANS_PER_BATCH_MAX, NodeTraces
from lmqcluster.wire.attributes import pack_attributes

SPAN = "00f067aa0ba902b7"


def parent(number: int = 1, flags: str = "01") -> str:
    return f"00-{number:032x}-{SPAN}-{flags}"


def attributes(number: int = 1, flags: str = "01") -> bytes:
    return pack_attributes({"a": 1, "traceparent": parent(number, flags)})


def row(packed: bytes) -> list[Any]:
    return [b"x", None, packed, None, []]


class Kept:
    """An export that keeps the spans (`SpanExport`)."""

    def __init__(self, room: int = 1_000_000) -> None:
        provider = TracerProvider()
        self._kept = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("test")
        self.dropped = 0
        self.room = room

    def has_room(self, count: int) -> bool:
        if self.room < count:
            self.dropped += count
            return False
        self.room -= count
        return True

    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.spans()]


class Bench:
    """Traces with commands that were just applied."""

    def __init__(self, sample: float = 1.0, room: int = 1_000_000) -> None:
        self.kept = Kept(room)
        export: Any = self.kept
        self.traces = NodeTraces(export, sample)

    def applied(self, command: Any, result: Any = None) -> list[str]:
        """Report a command as applied; return the names of its spans."""
        sink: Any = None
        before = len(self.kept.spans())
        self.traces.applied(time.monotonic(), [PendingCommand(command, [], sink)], [result])
        return self.kept.names()[before:]


def delivered(*packed: bytes) -> list[Any]:
    return [(b"q", number, 0, Message(number, 0, 0, (None, one), b"x")) for number, one in enumerate(packed)]


def test_each_kind_of_push_gets_spans() -> None:
    bench = Bench()
    rows = PushRows(b"q", [row(attributes(1)), b"bare", row(b""), row(attributes(2))])
    assert bench.applied(rows, []) == ["commit", "push q"] * 2
    assert bench.applied(PushEach([b"a", b"b"], row(attributes())), []) == ["commit", "push a", "commit", "push b"]
    steps = [PushRows(b"t", [row(attributes())]).encode(), Ack(b"q", [1]).encode()]
    assert bench.applied(Transaction(steps), []) == ["commit", "push t"]
    assert bench.applied(Push(b"q", None, [b"x"]), []) == []
    assert bench.applied(Ack(b"q", [1]), [True]) == []


def test_deliveries_of_one_trace_share_a_span() -> None:
    bench = Bench()
    assert (
        bench.applied(Pull(b"q", 3), delivered(attributes(1), b"", attributes(2), attributes(1))) == ["deliver q"] * 2
    )
    first, second = bench.kept.spans()
    assert (first.attributes or {})["messaging.batch.message_count"] == 2
    assert "messaging.batch.message_count" not in (second.attributes or {})
    assert bench.applied(Pull(b"q", 3), []) == []
    assert bench.applied(Pull(b"q", 3), None) == []


def test_parents_and_times() -> None:
    bench = Bench()
    begun_ns = time.time_ns()
    bench.applied(PushRows(b"q", [row(attributes())]), [])
    commit, push = bench.kept.spans()
    assert push.parent is not None
    assert f"{push.parent.span_id:016x}" == SPAN
    assert push.context.trace_id == 1
    assert commit.parent is not None
    assert commit.parent.span_id == push.context.span_id
    slack_ns = 50_000_000
    assert begun_ns - slack_ns <= (push.start_time or 0) <= (commit.start_time or 0) + slack_ns
    assert (commit.end_time or 0) <= (push.end_time or 0)


def test_a_push_is_a_child_of_its_request() -> None:
    bench = Bench()
    served = bench.traces.begin(parent(), "POST")
    assert served is not None
    bench.applied(PushRows(b"q", [row(attributes())]), [])
    bench.traces.end(served, "POST", "/messages/{name}", 200)
    _commit, push, request = bench.kept.spans()
    assert push.parent is not None
    assert push.parent.span_id == request.context.span_id
    bench.applied(PushRows(b"q", [row(attributes())]), [])
    later = bench.kept.spans()[-1]
    assert later.parent is not None
    assert f"{later.parent.span_id:016x}" == SPAN


def test_requests_with_the_same_trace_end_in_any_order() -> None:
    bench = Bench()
    first, second = bench.traces.begin(parent(), "POST"), bench.traces.begin(parent(), "POST")
    assert first is not None
    assert second is not None
    bench.traces.end(first, "POST", "", 0)
    bench.traces.end(second, "POST", "", 500)
    assert bench.traces._serving == {}
    assert {span.status.status_code for span in bench.kept.spans()} == {StatusCode.ERROR}


def test_a_refused_command_is_an_error() -> None:
    bench = Bench()
    bench.applied(PushRows(b"q", [row(attributes())]), Fault("", "full"))
    push = bench.kept.spans()[1]
    assert push.status.status_code is StatusCode.ERROR
    assert (push.attributes or {})["error.type"] == "full"


@pytest.mark.parametrize("flags", ["00", "fe", "0x"])
def test_unsampled_and_malformed_traces_get_no_spans(flags: str) -> None:
    bench = Bench()
    assert bench.applied(PushRows(b"q", [row(attributes(1, flags))]), []) == []
    assert bench.applied(Pull(b"q", 1), delivered(attributes(1, flags))) == []
    assert bench.traces.begin(parent(1, flags), "GET") is None
    assert bench.traces.begin(None, "GET") is None


def test_values_that_are_no_text_get_no_spans() -> None:
    bench = Bench()
    for value in (b"\xff", 7, 0.5, "", "traceparent"):
        packed = pack_attributes({"traceparent": value})
        assert bench.applied(PushRows(b"q", [row(packed)]), []) == []
    assert bench.applied(PushRows(b"q", [row(pack_attributes({"x": "traceparent"}))]), []) == []


def test_a_share_of_the_traces_gets_spans_and_each_trace_all_of_them() -> None:
    half = Bench(sample=0.5)
    step = (1 << 64) // 1000
    chosen = [number for number in range(1, 1000) if half.applied(Pull(b"q", 1), delivered(attributes(number * step)))]
    assert chosen == list(range(1, 500)) + ([500] if 500 in chosen else [])
    again = [number for number in range(1, 1000) if half.applied(PushRows(b"q", [row(attributes(number * step))]), [])]
    assert again == chosen
    assert Bench(sample=0).applied(Pull(b"q", 1), delivered(attributes())) == []


def test_a_batch_of_many_traces_gets_few_spans_and_the_others_are_counted() -> None:
    bench = Bench()
    many = [attributes(number + 1) for number in range(SPANS_PER_BATCH_MAX + 10)]
    assert len(bench.applied(Pull(b"q", 1000), delivered(*many))) == SPANS_PER_BATCH_MAX
    assert bench.kept.dropped == 10
    assert len(bench.applied(PushRows(b"q", [row(one) for one in many]), [])) == 2 * SPANS_PER_BATCH_MAX
    assert bench.kept.dropped == 10 + 20


def test_without_room_there_are_no_spans() -> None:
    bench = Bench(room=3)
    assert bench.applied(PushRows(b"q", [row(attributes())]), []) == ["commit", "push q"]
    assert bench.applied(PushRows(b"q", [row(attributes())]), []) == []
    assert bench.traces.begin(parent(), "GET") is not None
    assert bench.traces.begin(parent(), "GET") is None
    assert bench.kept.dropped == 3


def test_the_export_is_bounded_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Any] = []
    outcomes = vars(module)["SpanExportResult"]

    class Exporter:
        def __init__(self, **_options: Any) -> None:
            self.is_over = False

        def export(self, _spans: Any) -> Any:
            results.append(outcomes.SUCCESS if len(results) % 2 else outcomes.FAILURE)
            return results[-1]

        def shutdown(self) -> None:
            self.is_over = True

    monkeypatch.setattr(module, "OTLPSpanExporter", Exporter)
    export = SpanExport("http://127.0.0.1:1/", "n1", interval_s=600)
    assert export.has_room(QUEUE_MAX)
    assert not export.has_room(1)
    assert export.dropped_total == 1
    counted = export._counted
    counted.export([None] * 100)
    counted.export([None] * 50)
    assert (export.exported_total, export.dropped_total) == (50, 101)
    assert export.has_room(150)
    assert not export.has_room(1)
    export.close()
