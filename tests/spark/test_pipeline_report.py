"""Figures from event journals: those that nodes have written, and generated ones with known figures; and their page."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lmqcluster import Client
from lmqcluster.spark.pipelines.base.failures import PipelineError
from lmqcluster.spark.pipelines.reports.report import ReportSettings, report
from lmqcluster.spark.pipelines.reports.report_page import report_page
from tests.integration.cluster import Cluster

from .queues import numbered, push


def work(client: Client) -> None:
    """Process messages of three queues with every kind of outcome."""
    push(client, "calm", numbered(5))
    first, second, third, fourth, fifth = client.pull_many("calm", 5, 5)
    assert client.done_many("calm", [first.id, second.id, third.id]) == [True] * 3
    assert fourth.nack()
    again = client.pull("calm", 5)
    assert again is not None
    assert again.content == fourth.content
    assert again.ack()
    assert fifth.extend()
    assert fifth.ack()
    assert not fifth.ack()

    client.update_props("strict", {"retry": 0})
    push(client, "strict", [b"dropped"])
    [only] = client.pull_many("strict", 1, 5)
    assert only.nack()

    push(client, "hasty", [b"back"])
    back = client.pull("hasty", 60)
    assert back is not None
    client.update_props("hasty", {"timeout": 0.2})
    push(client, "hasty", [b"slow"])
    assert client.pull("hasty", 60) is not None
    client.update_props("hasty", {"timeout": 600})
    assert back.put_back()
    again_both = [client.pull("hasty", 60) for _ in range(2)]
    assert {message.content for message in again_both if message and message.ack()} == {b"slow", b"back"}
    assert client.delete("strict") == "ok"


def test_the_figures_of_a_real_cluster(spark: SparkSession, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with Cluster(3, directory=tmp_path, arguments=("--event-journal", str(journal))) as cluster:
        with Client(cluster.rpc_addresses) as client:
            work(client)
        for node in cluster:
            node.stop()
    found = report(spark, ReportSettings(journals=[str(journal)], lease_s=0))
    queues = {entry["queue"]: entry for entry in found["queues"]}
    names = (
        "arrivals",
        "deliveries",
        "redeliveries",
        "acks",
        "nacks",
        "extends",
        "late_acks",
        "put_backs",
        "drops",
        "lease_ends",
    )
    figures = {queue: tuple(entry[name] for name in names) for queue, entry in queues.items()}
    assert figures == {
        "calm": (5, 6, 1, 5, 1, 1, 1, 0, 0, 0),
        "strict": (1, 1, 0, 0, 1, 0, 0, 0, 1, 0),
        "hasty": (2, 3, 1, 2, 0, 0, 0, 1, 0, 1),
    }
    assert queues["calm"]["bytes"] > 0
    assert queues["strict"]["deletes"] == 1
    assert tuple(found["total"][name] for name in names) == tuple(map(sum, zip(*figures.values(), strict=True)))
    assert found["span"]["unreadable_lines"] == 0
    assert found["queue_count"] == 3
    waiting = queues["hasty"]["waiting_s"]
    assert 0 <= waiting["p50"] <= waiting["p99"] <= waiting["max"]
    assert sum(entry["arrivals"] for entry in found["series"]) == 8


def write_journal(path: Path, lines: Sequence[dict[str, Any] | str]) -> None:
    """Write a journal as nodes do, in two gzip members."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    half = len(texts) // 2
    members = (gzip.compress("".join(f"{text}\n" for text in part).encode()) for part in (texts[:half], texts[half:]))
    path.write_bytes(b"".join(members))


def event(kind: str, at_s: int, queue: str = "q", **fields: Any) -> dict[str, Any]:
    """Return an event, `at_s` seconds after three o'clock."""
    time = f"2026-11-03T{15 + at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}.000000Z"
    return {"time": time, "event": kind, "queue": queue, "node": "n1", **fields}


def delivery(at_s: int, number: int, wait_s: float, **fields: Any) -> dict[str, Any]:
    """Return a first delivery after which there may be two more."""
    known = {"id": f"id-{number}", "sequence": number, "wait_us": round(wait_s * 1e6)}
    return event("pull", at_s, **{**known, "retry_remaining": 2, "redelivery": False, **fields})


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A journal of a hundred messages that waited 0.01 s, 0.02 s, ... 1 s, and of three whose last delivery
    is not acked.
    """
    lines: list[dict[str, Any] | str] = [
        event("push", 0, count=100, bytes=1000),
        "no json",
        event("push", 1),
        '{"time": "x"}',
    ]
    lines += [delivery(10 + number, number, number / 100) for number in range(1, 101)]
    lines += [event("ack", 10 + number + 2, id=f"id-{number}", ok=True) for number in range(1, 101)]
    last = {"retry_remaining": 0, "redelivery": True}
    lines += [delivery(at_s, 1000 + at_s, 0.5, queue="last", **last) for at_s in (100, 900, 2000)]
    lines += [
        event("nack", 2001, queue="last", id="id-3000", ok=True),
        event("push", 3000, queue="<i>&", count=1, bytes=1),
    ]
    write_journal(tmp_path / "events-20261103T150000.000000Z-n1.jsonl.gz", lines)
    return tmp_path


def test_quantiles_drops_and_times(spark: SparkSession, known: Path) -> None:
    found = report(spark, ReportSettings(journals=[f"{known}/*.gz"], lease_s=2000))
    queues = {entry["queue"]: entry for entry in found["queues"]}
    waiting = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
    assert {name: queues["q"]["waiting_s"][name] for name in waiting} == pytest.approx(waiting, abs=0.01)
    assert queues["q"]["waiting_s"]["mean"] == pytest.approx(0.505)
    assert set(queues["q"]["holding_s"].values()) == {2.0}
    # The journal ends at 3000 s: of the deliveries at 100, 900 and 2000 s the last may still be leased, but was nacked.
    assert (queues["last"]["drops"], queues["last"]["redeliveries"], queues["last"]["lease_ends"]) == (3, 3, 3)
    assert found["span"]["begin"] == "2026-11-03T15:00:00.000Z"
    assert found["span"]["seconds"] == 3000
    assert found["span"]["unreadable_lines"] == 3
    assert queues["<i>&"]["waiting_s"] is None
    assert found["total"]["arrivals_per_s"] == pytest.approx(101 / 3000)
    assert found["bucket_s"] == 30
    assert sum(entry["deliveries"] for entry in found["series"]) == 103
    shorter = report(spark, ReportSettings(journals=[str(known)], lease_s=2500, queues_max=1))
    assert [entry["queue"] for entry in shorter["queues"]] == ["q"]
    assert (shorter["queue_count"], shorter["total"]["drops"]) == (3, 2)

    page = _Page()
    page.feed(report_page(found))
    assert page.open_tags == []
    assert page.pictures == [
        "Arrivals and deliveries over time",
        "Waiting time over time",
        "Redeliveries and drops over time",
        "Waiting time by queue",
    ]
    assert page.first_cells == ["q", "last", "<i>&", "All queues"]
    assert page.references == []
    assert "@media (prefers-color-scheme: dark)" in page.style


class _Page(HTMLParser):
    """Parses a page as a browser does."""

    def __init__(self) -> None:
        super().__init__()
        self.open_tags: list[str] = []
        self.pictures: list[str | None] = []
        self.references: list[str] = []
        self.first_cells: list[str] = []
        self.style = ""
        self._cell = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag != "meta":
            self.open_tags.append(tag)
        self.references += [f"{tag} {name}" for name in ("src", "href", "xlink:href") if name in values]
        self.references += [tag] if tag in ("script", "link", "iframe", "img") else []
        if tag == "svg":
            self.pictures.append(values["aria-label"])
        self._cell = 0 if tag == "tr" else self._cell + 1 if tag == "td" else self._cell

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if self.open_tags[-1:] == ["td"] and self._cell == 1:
            self.first_cells.append(data)
        if self.open_tags[-1:] == ["style"]:
            self.style += data
            assert "url(" not in data
            assert "@import" not in data


def test_a_file_without_events_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(PipelineError, match="no readable event"):
        report(spark, ReportSettings(journals=[str(tmp_path)]))
