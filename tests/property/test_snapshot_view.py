"""A snapshot view, read while the machine works on, gives the state at its opening."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster.core import Machine, Op, Queue, SnapshotView
from lmqcluster.core.log.commands import Place
from lmqcluster.core.queue import lease_table as lease
from lmqcluster.core.snapshot import view as snapshot_view
from lmqcluster.core.state.batch_leases import BatchLeases

from . import model as m
from .driver import SECOND, compile_pattern, over_the_wire, records
from .test_machine import ANY_COMMAND, PULL, PUSH, PUSH_ROWS, SET_PROPERTIES, SETTLE, STEPS_US

SUBSCRIPTION, EPOCH, LEASE_US = (
    st.sampled_from([b"s", b"t"]),
    st.integers(1, 3),
    st.sampled_from([1, SECOND, 60 * SECOND]),
)
BATCH_LEASE = st.one_of(
    st.tuples(
        st.just(Op.RESERVE),
        SUBSCRIPTION,
        EPOCH,
        st.sampled_from([b"a", b"b"]),
        st.just(True),
        st.integers(1, 3),
        LEASE_US,
    ),
    st.tuples(st.just(Op.RENEW), SUBSCRIPTION, LEASE_US),
    st.tuples(st.just(Op.SETTLE_BATCHES), SUBSCRIPTION, EPOCH),
    st.tuples(st.just(Op.ABANDON_BATCHES), SUBSCRIPTION),
).map(list)
COMMAND = st.one_of(PUSH, PUSH_ROWS, PULL, SETTLE, SET_PROPERTIES, ANY_COMMAND, BATCH_LEASE)
BATCH = st.tuples(STEPS_US, st.lists(COMMAND, min_size=1, max_size=5))
BATCHES = st.lists(BATCH, max_size=12)
# How many records are read before each batch.
READS = st.lists(st.integers(0, 3), min_size=12, max_size=12)


@pytest.fixture(autouse=True, scope="module")
def small_slices() -> Iterator[None]:
    """Makes a record end after two rows or a few bytes, so that many reads fall between two commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_view, "_ROWS_MAX", 2)
        patch.setattr(snapshot_view, "_BODY_BYTES_MAX", 4)
        patch.setattr(lease, "_SWEEP_MIN", 0)
        yield


class Log:
    """Feeds batches to a machine, naming deliveries by their age."""

    def __init__(self) -> None:
        self.machine = Machine(compile_pattern)
        self.sequence = 0
        self.stamp_us = 1_000 * SECOND
        self.delivered: list[tuple[bytes, int]] = []

    def apply(self, step_us: int, commands: list[list[Any]]) -> None:
        self.sequence += 1
        self.stamp_us += step_us
        resolved = [self._resolved(command) for command in commands]
        applied = self.machine.apply(self.stamp_us, b"n", 1, self.sequence, resolved)
        for command, result in zip(resolved, applied.results, strict=True):
            if command[0] in (m.PULL, m.PULL_FIRST) and isinstance(result, list):
                self.delivered += [(queue, number) for queue, number, _, _ in result]

    def _resolved(self, command: list[Any]) -> list[Any]:
        op, *arguments = command
        if op not in (m.ACK, m.NACK, m.EXTEND):
            return command
        queue, ages, *more = arguments
        latest = self.delivered[::-1]
        chosen = [latest[age % len(latest)] for age in ages if latest]
        if queue is None:
            queue = chosen[0][0] if chosen else b"a"
        return [op, queue, [number for _, number in chosen] or [0, 7], *more]


def _packed(found: Iterable[Any]) -> list[bytes]:
    return [msgpack.packb(record) for record in found]


@settings(max_examples=250)
@given(before=BATCHES, during=BATCHES, reads=READS, after=BATCHES)
def test_a_view_does_not_see_later_changes(
    before: list[Any], during: list[Any], reads: list[int], after: list[Any]
) -> None:
    log, twin = Log(), Log()
    for batch in before:
        log.apply(*batch)
        twin.apply(*batch)
    expected = _packed(log.machine.snapshot())
    view = log.machine.freeze_view()
    found = view.records()
    got: list[bytes] = []
    for batch, count in zip(during, reads, strict=False):
        got += _packed(islice(found, count))
        log.apply(*batch)
        twin.apply(*batch)
    got += _packed(found)
    view.close()
    assert got == expected
    _assert_no_trace(log.machine, view)
    for batch in after:
        log.apply(*batch)
        twin.apply(*batch)
    assert records(log.machine) == records(twin.machine)


_NUMBERS = [0, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        [m.ACK, b"a", _NUMBERS],
        [m.EXTEND, b"a", _NUMBERS],
        [m.NACK, b"a", _NUMBERS],
        [m.NACK, b"a", _NUMBERS, Place.KEEP],
        [m.NACK, b"a", _NUMBERS, Place.HEAD],
        [m.NACK, b"a", _NUMBERS, Place.TAIL, -1, True],
        [m.NACK, b"a", _NUMBERS, Place.TAIL, -1, False, b"why", 1_000],
    ],
)
def test_a_view_does_not_see_settlements_at_any_point_of_its_reading(change: list[Any]) -> None:
    before = [[m.PUSH, b"a", None, [b"%d" % number for number in range(6)]], [m.PULL, b"a", len(_NUMBERS)]]
    log = Log()
    log.apply(0, before)
    expected = _packed(log.machine.snapshot())
    for read in range(len(expected) + 1):
        log = Log()
        log.apply(0, before)
        view = log.machine.freeze_view()
        found = view.records()
        got = _packed(islice(found, read))
        log.apply(SECOND, [change])
        assert got + _packed(found) == expected, read
        view.close()


@settings(max_examples=100)
@given(before=BATCHES, during=BATCHES)
def test_a_machine_restored_from_a_view_is_the_machine_of_that_moment(before: list[Any], during: list[Any]) -> None:
    log, twin = Log(), Log()
    for batch in before:
        log.apply(*batch)
        twin.apply(*batch)
    with log.machine.freeze_view() as view:
        for batch in during:
            log.apply(*batch)
        restored = Machine.restore(compile_pattern, (over_the_wire(record) for record in view.records()))
    twin_again = Log()
    twin_again.__dict__.update(twin.__dict__, machine=restored, delivered=list(twin.delivered))
    assert records(restored) == records(twin.machine)
    for batch in during:
        twin.apply(*batch)
        twin_again.apply(*batch)
    assert records(restored) == records(twin.machine)


@given(before=BATCHES, during=BATCHES, count=st.integers(0, 10))
def test_a_view_can_be_abandoned_at_any_time(before: list[Any], during: list[Any], count: int) -> None:
    log = Log()
    for batch in before:
        log.apply(*batch)
    view = log.machine.freeze_view()
    found = view.records()
    read = list(islice(found, count))
    for batch in during:
        log.apply(*batch)
    view.close()
    _assert_no_trace(log.machine, view)
    if not read or read[-1][0] != "end":
        with pytest.raises(RuntimeError, match="closed"):
            next(found)


def _view_over_batch_commands() -> bool:
    """Return whether a view that is read after changes of a batch lease shows the earlier state."""
    log = Log()
    log.apply(0, [[Op.PUSH, b"a", None, [b"1", b"2", b"3", b"4"], None, 0]])
    log.apply(0, [[Op.RESERVE, b"s", 1, b"a", True, 2, 60 * SECOND]])
    expected = _packed(log.machine.snapshot())
    with log.machine.freeze_view() as view:
        found = view.records()
        log.apply(SECOND, [[Op.RENEW, b"s", 90 * SECOND]])
        log.apply(SECOND, [[Op.RESERVE, b"s", 1, b"a", True, 4, 60 * SECOND], [Op.ABANDON_BATCHES, b"s"]])
        return _packed(found) == expected


def _renew_without_pre_image(self: Queue, now_us: int, first: int, count: int, deadline_us: int) -> None:
    self.store.leases.reschedule_live(now_us, first, count, deadline_us)


_rows = BatchLeases.rows


def _rows_as_they_are_read(self: BatchLeases) -> Iterator[list[object]]:
    yield from _rows(self)


def test_a_view_shows_batch_leases_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test detects a renewal that keeps no pre-image, and rows that the view shares with the table."""
    assert _view_over_batch_commands()
    for owner, name, planted in (
        (Queue, "renew", _renew_without_pre_image),
        (BatchLeases, "rows", _rows_as_they_are_read),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, planted)
            assert not _view_over_batch_commands()


def _assert_no_trace(machine: Machine, view: SnapshotView) -> None:
    assert all(queue.pre_images is None for queue in machine.state.queues.values())
    assert view._pre_images is None
    assert not view._frozen
    machine.freeze_view().close()
