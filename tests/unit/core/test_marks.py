"""Writers that number their messages: each message is stored once, however often and late it is sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.dedup.stream_positions import StreamPositions
from lmqcluster.core.owners.quotas import Kind, Quotas
from tests.property.driver import SECOND, Driver, copied, records

Q = b"q"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def _write(
    driver: Driver,
    first: int,
    *contents: bytes,
    stream: bytes = b"s",
    note: bytes = b"",
    done: bool = False,
    owner: bytes = b"a",
) -> Any:
    rows = [[content, None, b""] for content in contents]
    result = driver.batch([Op.PUSH_STREAM, Q, rows, b"job", stream, first, note, done, owner])[0]
    return len(result) if isinstance(result, list) else result


def _mark(driver: Driver, stream: bytes = b"s", owner: bytes = b"a") -> tuple[int, bool, bytes] | None:
    found = driver.machine.state.marks.find(owner, b"job", stream)
    return None if found is None else (found.position, found.done, b"".join(found.notes))


def test_a_repetition_stores_nothing(driver: Driver) -> None:
    assert [_write(driver, 0, b"1", b"2"), _write(driver, 0, b"1", b"2"), _write(driver, 2, b"3")] == [2, 0, 1]
    assert driver.drain(Q) == [b"1", b"2", b"3"]


def test_streams_jobs_and_owners_are_apart(driver: Driver) -> None:
    assert [_write(driver, 0, b"1"), _write(driver, 0, b"2", stream=b"t"), _write(driver, 0, b"3", owner=b"b")] == [
        1
    ] * 3
    assert driver.drain(Q) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "prepare",
    [
        lambda driver: None,
        lambda driver: driver.set(Q, accum=1_000),
        lambda driver: driver.set(Q, hooks=[["pre_http_push", [["m", ["h"]]]]]),
        lambda driver: driver.set(Q, max_items=40, discard_old_when_full=True),
        lambda driver: driver.set(Q, destination_queues=["one", "two"]),
        lambda driver: driver.do(Op.BIND, Q, b"copy"),
    ],
    ids=["plain", "accum", "hooks", "bounded", "alias", "bound"],
)
def test_a_batch_is_stored_like_single_messages(prepare: Callable[[Driver], object]) -> None:
    def stored(step: int) -> list[Any]:
        driver = Driver()
        prepare(driver)
        commands = [
            [Op.PUSH_STREAM, Q, rows[first : first + step], b"job", b"s", first, b"", False, b"a"]
            for first in range(0, len(rows), step)
        ]
        assert [len(flags) for flags in driver.batch(*commands)] == [step] * len(commands)
        return records(driver.machine)

    chance = random.Random(3)
    kinds: list[list[Any]] = [[None, b""], [b"t", b""], [None, b"\x81\xa1h\xa11"], [None, b"", [0, 0, 0, 2, b"l", b""]]]
    rows = [[b"%d" % number, *kind] for number in range(60) for kind in [chance.choice(kinds)] * chance.choice((1, 4))]
    rows = rows[:100]
    assert stored(1) == stored(50) == stored(100)


@pytest.mark.parametrize("first", [1, 3, 5])
def test_a_gap_or_an_overlap_is_refused_and_stores_nothing(driver: Driver, first: int) -> None:
    _write(driver, 0, b"1", b"2")
    result = _write(driver, first, b"x", b"y")
    assert isinstance(result, Fault)
    assert (result.code, "is 2, not" in result.reason) == ("out_of_sequence", True)
    assert driver.drain(Q) == [b"1", b"2"]


def test_notes_are_returned_until_the_stream_is_done(driver: Driver) -> None:
    _write(driver, 0, b"1", note=b"abc")
    _write(driver, 0, b"1", note=b"abc")
    _write(driver, 1, b"2", note=b"d" * 20_000)
    assert _mark(driver) == (2, False, b"abc" + b"d" * 20_000)
    assert driver.machine.state.quotas.used(Kind.NOTE_BYTES, b"a") == 20_003
    assert _mark(Driver(copied(driver.machine))) == _mark(driver)
    assert records(copied(driver.machine)) == records(driver.machine)
    assert _write(driver, 2, done=True) == 0
    assert _mark(driver) == (2, True, b"")
    assert driver.machine.state.quotas.used(Kind.NOTE_BYTES, b"a") == 0
    assert _write(driver, 7, b"anything") == 0
    assert len(driver.drain(Q)) == 2


def test_a_job_ends_by_command_for_its_owner_only(driver: Driver) -> None:
    _write(driver, 0, b"1")
    _write(driver, 0, b"1", stream=b"t")
    assert driver.do(Op.END_JOBS, [b"job"], b"thief") == 0
    assert driver.do(Op.END_JOBS, [b"job", b"unknown"], b"a") == 2
    assert _mark(driver) is None
    assert driver.machine.state.quotas.used(Kind.MARKS, b"a") == 0


def test_a_job_ends_after_thirty_days_without_use(driver: Driver) -> None:
    days = StreamPositions.REMEMBER_US / SECOND
    _write(driver, 0, b"1")
    driver.wait(days - 1)
    _write(driver, 1, b"2")
    driver.wait(days - 1)
    driver.tick()
    assert _mark(driver) is not None
    driver.wait(1)
    driver.tick()
    assert _mark(driver) is None


def test_a_job_without_a_token_can_continue_with_one(driver: Driver) -> None:
    _write(driver, 0, b"1", owner=b"")
    assert [_write(driver, 0, b"1"), _write(driver, 1, b"2")] == [0, 1]
    assert (_mark(driver, owner=b"a"), driver.machine.state.quotas.used(Kind.MARKS, b"")) == ((2, False, b""), 0)


def test_marks_and_notes_have_quotas(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.MARKS: 2, Kind.NOTE_BYTES: 10})
    results = [_write(driver, 0, b"x", stream=b"%d" % index) for index in range(3)]
    assert [isinstance(one, Fault) and one.code for one in results] == [False, False, "quota_exceeded"]
    assert _write(driver, 0, b"x", owner=b"b", note=b"x" * 10) == 1
    assert _write(driver, 1, b"x", owner=b"b", note=b"x").code == "quota_exceeded"
    driver.do(Op.END_JOBS, [b"job"], b"a")
    assert _write(driver, 0, b"x", stream=b"3") == 1


def test_three_million_messages_leave_one_mark(driver: Driver) -> None:
    """Two million keys used to be the limit: the state does not grow with the messages written."""
    before = len(records(driver.machine))
    for first in range(0, 30_000, 1_000):
        assert _write(driver, first, *[b""] * 1_000) == 1_000
    driver.do(Op.PURGE, Q, 10_000)
    assert len(driver.machine.state.marks) == 1
    assert len(records(driver.machine)) < before + 80


def test_messages_may_carry_traits(driver: Driver) -> None:
    rows = [
        [b"late", None, b"", [-1, 0, 0, 5, b"", b""]],
        [b"first", None, b"", [-1, 0, 0, -5, b"", b"g"]],
        [b"plain", None, b""],
    ]
    command = [Op.PUSH_STREAM, Q, rows, b"job", b"s", 0, b"", False, b"a"]
    assert driver.batch(command, command) == [[0, 0, 0], []]
    assert driver.drain(Q) == [b"first", b"plain", b"late"]


def test_a_full_queue_stores_none_of_them() -> None:
    driver = Driver()
    driver.batch([Op.SET_PROPERTIES, Q, [[b"max_items", 1]]])
    rows = [[b"1", None, b"", [0, 0, 0, 1, b"", b""]], [b"2", None, b""]]
    result = driver.batch([Op.PUSH_STREAM, Q, rows, b"job", b"s", 0, b"", False, b"a"])[0]
    assert isinstance(result, Fault)
    assert result.code == "full"
    assert driver.drain(Q) == []
    assert _mark(driver) is None
