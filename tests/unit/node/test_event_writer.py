"""The thread of the event journal: order is kept, everything is bounded, a failing disk is reported once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from lmqcluster.node.events import writer as event_writer
from lmqcluster.node.events.files import EventFiles
from lmqcluster.node.events.lines import Answered, Event, Pulled, Pushed, Record
from lmqcluster.node.events.writer import EventWriter
from tests.event_reader import files_of, read_events
from tests.integration.cluster import wait_for

NOON_US = 1_793_707_200_000_000
LONG_S = 3600.0


def pushes(count: int, first: int = 0) -> list[Record]:
    """Return records of one event each, numbered by `count`."""
    return [record(Pushed(b"q", number, 1, None), first + number) for number in range(first, first + count)]


def record(event: Event, after_us: int = 0, size: int = 1) -> Record:
    return Record(NOON_US + after_us, "p-", [event], size)


def found(folder: Path) -> list[int]:
    return [event["count"] for event in read_events(folder)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., EventWriter]]:
    """Creates writers to the folder ``events`` and closes them at the end."""
    writers: list[EventWriter] = []
    (tmp_path / "events").mkdir()

    def make(**options: Any) -> EventWriter:
        files = EventFiles(tmp_path / "events", "n1", bytes_max=1 << 20, files_max=9)
        writers.append(EventWriter(files, "n1", **{"flush_s": LONG_S, "retry_s": 0.01, **options}))
        return writers[-1]

    yield make
    for writer in writers:
        writer.close()


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events"


def test_closing_writes_waiting_events_in_order(make: Callable[..., EventWriter], events: Path) -> None:
    writer = make()
    for one in pushes(1000):
        writer.put(one)
    assert files_of(events) == []
    writer.close()
    assert found(events) == list(range(1000))
    assert (writer.written_total, writer.dropped_total, writer.errors_total) == (1000, 0, 0)


def test_events_are_written_without_a_request(make: Callable[..., EventWriter], events: Path) -> None:
    writer = make(flush_s=0.01)
    writer.put(pushes(1)[0])
    wait_for(lambda: writer.written_total == 1, "the event is written")
    assert found(events) == [0]


def test_many_events_do_not_wait_for_the_interval(make: Callable[..., EventWriter], events: Path) -> None:
    writer = make()
    count = event_writer._WAKE_COUNT
    for one in pushes(count):
        writer.put(one)
    wait_for(lambda: writer.written_total == count, "the events are written")
    assert found(events) == list(range(count))


def test_events_beyond_the_bound_are_dropped_counted_and_reported(
    make: Callable[..., EventWriter], events: Path, logged: list[Any]
) -> None:
    writer = make(pending_max=10)
    for one in pushes(25):
        writer.put(one)
    assert writer.dropped_total == 15
    writer.close()
    assert found(events) == list(range(10))
    assert (writer.written_total, writer.dropped_total) == (10, 15)
    assert [(line["event"], line["dropped_total"]) for line in logged] == [
        ("events dropped: they arrive faster than they can be written", 15)
    ]


def test_a_record_is_accepted_entirely_or_not_at_all(make: Callable[..., EventWriter], events: Path) -> None:
    writer = make(pending_max=10)
    writer.put(record(Answered("ack", b"q", [1] * 8, [True] * 8), size=8))
    writer.put(record(Answered("ack", b"q", [2] * 8, [True] * 8), size=8))
    writer.put(record(Answered("ack", b"q", [3] * 2, [True] * 2), size=2))
    writer.close()
    assert [event["id"][-1] for event in read_events(events)] == ["1"] * 8 + ["3"] * 2
    assert writer.dropped_total == 8


def test_a_failing_folder_is_reported_once_retried_and_nothing_is_lost(
    make: Callable[..., EventWriter], events: Path, logged: list[Any]
) -> None:
    writer = make(flush_s=0.01)
    away = events.with_name("away")
    events.rename(away)
    for one in pushes(5):
        writer.put(one)
    wait_for(lambda: writer.errors_total >= 3, "it is tried again")
    assert (writer.written_total, writer.dropped_total) == (0, 0)
    away.rename(events)
    wait_for(lambda: writer.written_total == 5, "the events are written")
    assert found(events) == list(range(5))

    def of_writing() -> list[Any]:
        # The thread may have looked for a torn end when the folder was already missing.
        return [line for line in logged if "cannot be checked" not in line["event"]]

    wait_for(lambda: len(of_writing()) == 2, "both lines are there")
    failed, again = of_writing()
    assert (failed["log_level"], failed["option"], failed["folder"]) == ("warning", "event_journal", str(events))
    assert "No such file" in failed["reason"]
    assert again["event"] == "event journal writable again"


def test_while_it_fails_events_wait_up_to_the_bound(make: Callable[..., EventWriter], events: Path) -> None:
    writer = make(flush_s=0.01, pending_max=10)
    away = events.with_name("away")
    events.rename(away)
    for one in pushes(4):
        writer.put(one)
    wait_for(lambda: writer.errors_total, "it fails")
    for one in pushes(16, 4):
        writer.put(one)
    assert writer.dropped_total == 10
    away.rename(events)
    wait_for(lambda: writer.written_total == 10, "the events are written")
    assert found(events) == list(range(10))


def test_closing_while_it_fails_ends_and_counts_lost_events(
    make: Callable[..., EventWriter], events: Path, logged: list[Any]
) -> None:
    writer = make(flush_s=0.01)
    events.rmdir()
    for one in pushes(3):
        writer.put(one)
    writer.close()
    assert (writer.written_total, writer.dropped_total) == (0, 3)
    assert logged[-1]["event"].startswith("events lost")
    assert logged[-1]["count"] == 3


def test_a_hanging_disk_blocks_neither_put_nor_close(
    make: Callable[..., EventWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`put` returns and `close` stops waiting although a write never returns."""
    monkeypatch.setattr(event_writer, "CLOSE_S", 0.05)
    hanging, goes_on = threading.Event(), threading.Event()

    def hang(*_arguments: object) -> None:
        hanging.set()
        goes_on.wait()

    writer = make(flush_s=0.01, pending_max=5)
    monkeypatch.setattr(EventFiles, "append", hang)
    writer.put(pushes(1)[0])
    hanging.wait()
    for one in pushes(9):
        writer.put(one)
    assert writer.dropped_total == 5
    writer.close()
    assert writer.dropped_total == 10
    goes_on.set()


def test_an_event_that_cannot_be_encoded_is_counted_and_the_others_are_written(
    make: Callable[..., EventWriter], events: Path, logged: list[Any]
) -> None:
    writer = make()
    bad: Any = record(Pulled(b"q", [("no number",)] * 7), size=7)  # type: ignore[list-item]
    for one in (pushes(1)[0], bad, pushes(1, 1)[0]):
        writer.put(one)
    writer.close()
    assert found(events) == [0, 1]
    assert (writer.written_total, writer.dropped_total) == (2, 7)
    assert [line["count"] for line in logged if line["log_level"] == "error"] == [7]


def test_large_amounts_are_written_in_members_of_bounded_size(
    make: Callable[..., EventWriter], events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members: list[int] = []
    append = EventFiles.append

    def watch(self: EventFiles, member: bytes, first_us: int) -> None:
        members.append(len(member))
        append(self, member, first_us)

    monkeypatch.setattr(EventFiles, "append", watch)
    writer = make()
    for one in pushes(9_000):
        writer.put(one)
    writer.close()
    assert len(members) >= 9_000 * 90 // event_writer._MEMBER_BYTES
    assert sum(members) == sum(path.stat().st_size for path in files_of(events))
    assert found(events) == list(range(9_000))
