"""Snapshot views and machine versions: bounded records, one view at a time, damage always a ValueError."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, IncompatibleVersionError, Machine, Op, State
from lmqcluster.core.snapshot import view as snapshot_view
from tests.property.driver import Driver, compile_pattern, copied, over_the_wire, records
from tests.property.work import counted

Q = b"q"


def test_one_view_at_a_time() -> None:
    machine = Machine(compile_pattern)
    with machine.freeze_view() as view:
        with pytest.raises(RuntimeError, match="open already"):
            machine.freeze_view()
        list(view.records())
        with pytest.raises(RuntimeError, match="only once"):
            view.records()
    view.close()
    machine.freeze_view().close()


def test_a_plain_snapshot_does_not_disturb_an_open_view() -> None:
    driver = Driver()
    driver.push(Q, b"1", b"2")
    expected = records(driver.machine)
    with driver.machine.freeze_view() as view:
        list(driver.machine.snapshot())
        driver.pull(Q, 2)
        assert Machine.restore(compile_pattern, view.records()).state.queues[Q].store.ready[0].remaining == 3
    assert records(driver.machine) != expected


def test_a_record_is_bounded_by_bytes() -> None:
    driver = Driver()
    driver.push(Q, *[b"x" * 100_000] * 7, b"y" * 1_000_000, b"z")
    sizes = [sum(map(len, record[5])) for record in driver.machine.snapshot() if record[0] == "ready"]
    assert sizes == [200_000, 200_000, 200_000, 100_000, 1_000_000, 1]
    assert records(copied(driver.machine)) == records(driver.machine)


def test_an_upgrade_raises_the_version_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a later program, which understands two versions more."""
    now = State.VERSION_MAX
    monkeypatch.setattr(State, "VERSION_MAX", now + 2)
    driver = Driver()
    assert [driver.do(Op.UPGRADE, version) for version in (now, now + 2, now + 1, -1)] == [now, *[now + 2] * 3]
    assert copied(driver.machine).state.version == now + 2
    monkeypatch.setattr(State, "VERSION_MAX", now)
    with pytest.raises(ValueError, match="too old"):
        copied(driver.machine)


def test_an_upgrade_beyond_the_program_stops_it() -> None:
    driver = Driver()
    with pytest.raises(IncompatibleVersionError, match=f"up to {State.VERSION_MAX}"):
        driver.batch([Op.UPGRADE, State.VERSION_MAX + 1])
    assert isinstance(driver.batch([Op.UPGRADE, b"2"])[0], Fault)


@pytest.mark.parametrize("garbage", [None, -1, 1 << 63, b"", b"x", [], [[]], {}, 1.5])
def test_any_replaced_field_is_restored_or_refused_with_value_error(garbage: Any) -> None:
    """The only error is ValueError, wherever the damage is."""
    driver = Driver()
    driver.push_item(Q, b"1", b"t", key=b"k")
    driver.produce(Q, b"p", 1, b"2")
    driver.pull(Q)
    driver.set(Q, accum=1000)
    driver.push(Q, b"3")
    sound = records(driver.machine)
    refused = 0
    for place, record in enumerate(sound):
        for field in range(len(record)):
            damaged = [*record[:field], garbage, *record[field + 1 :]]
            try:
                Machine.restore(compile_pattern, [*sound[:place], damaged, *sound[place + 1 :]])
            except ValueError:
                refused += 1
    assert refused > len(sound)


def test_opening_a_view_visits_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It copies the names, in blocks; the state of a queue is copied when the queue is used or read."""
    kept: list[bytes] = []
    make = snapshot_view._FrozenQueue.__init__

    def counted_make(self: Any, queue: Any, *rest: Any) -> None:
        kept.append(queue.name)
        make(self, queue, *rest)

    monkeypatch.setattr(snapshot_view._FrozenQueue, "__init__", counted_make)
    driver = Driver()
    for start in range(0, 20_000, 1_000):
        driver.batch(*([Op.PUSH, b"q%05d" % number, None, [b"x"], None, 0] for number in range(start, start + 1_000)))
    with counted() as work:
        view = driver.machine.freeze_view()
    assert (kept, work.lines < 500) == ([], True)
    driver.push(b"q00007", b"y")
    driver.push(b"q00007", b"z")
    driver.push(b"new", b"y")
    assert kept == [b"q00007"]
    found = list(view.records())
    assert len(kept) == len(set(kept)) == 20_000
    assert sum(record[0] == "queue" for record in found) == 20_000
    view.close()


def test_a_view_is_unaffected_by_changes_of_its_queues() -> None:
    """Created, deleted, recreated, moved, changed by rules: before the reader reaches them, and after."""
    driver = Driver()
    for name in (b"a", b"deleted", b"moved", b"remade", b"z"):
        driver.push(name, b"1", b"2")
    driver.pull(b"z")
    expected = records(driver.machine)
    view = driver.machine.freeze_view()
    found = view.records()
    got: list[Any] = []
    while not got or got[-1][:2] != ["queue", b"a"]:
        got.append(next(found))
    for name in (b"a", b"deleted", b"remade"):
        driver.delete(name)
    driver.push(b"remade", b"other")
    driver.push(b"aa", b"new")
    driver.defaults((b"", {"retry": 9}))
    driver.do(Op.MOVE, b"moved", b"target", 1)
    driver.push(b"a", b"again")
    driver.set(b"z", timeout=1)
    driver.wait(31)
    driver.pull(b"z", 2)
    got += found
    view.close()
    assert [over_the_wire(record) for record in got] == expected
    assert all(queue.pre_images is None for queue in driver.machine.state.queues.values())


def test_a_view_that_is_closed_while_a_queue_is_read_releases_it() -> None:
    driver = Driver()
    driver.push(Q, *[b"x"] * 2_000)
    view = driver.machine.freeze_view()
    found = view.records()
    while next(found)[0] != "ready":
        pass
    view.close()
    assert driver.machine.state.queues[Q].pre_images is None


def test_a_push_that_is_refused_after_waiting_is_not_in_an_open_view() -> None:
    driver = Driver()
    driver.do(Op.SET_PROPERTIES, Q, [[b"max_items", 0]])
    driver.do(Op.PUSH_ROWS, Q, [[b"1", None, b"", None, []]], b"", None, 0, False, 1_000_000)
    expected = records(driver.machine)
    with driver.machine.freeze_view() as view:
        driver.wait(2)
        driver.do(Op.BARRIER)
        assert records(Machine.restore(compile_pattern, view.records())) == expected
    assert driver.machine.state.queues[Q].counters.refused_total == 1
