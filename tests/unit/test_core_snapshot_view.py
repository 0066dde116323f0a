"""Snapshot views and machine versions: bounded records, one view at a time, damage always a ValueError."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, IncompatibleVersionError, Machine, Op
from tests.property.driver import Driver, compile_pattern, copied, records

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
        assert Machine.restore(compile_pattern, view.records()).queues[Q].ready[0].remaining == 3
    assert records(driver.machine) != expected


def test_a_record_is_bounded_by_bytes() -> None:
    driver = Driver()
    driver.push(Q, *[b"x" * 100_000] * 7, b"y" * 1_000_000, b"z")
    sizes = [sum(map(len, record[-1])) for record in driver.machine.snapshot() if record[0] == "ready"]
    assert sizes == [200_000, 200_000, 200_000, 100_000, 1_000_000, 1]
    assert records(copied(driver.machine)) == records(driver.machine)


def test_an_upgrade_raises_the_version_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "VERSION_MAX", 3)
    driver = Driver()
    assert [driver.do(Op.UPGRADE, version) for version in (1, 3, 2, -1)] == [1, 3, 3, 3]
    assert copied(driver.machine).version == 3
    monkeypatch.setattr(Machine, "VERSION_MAX", 2)
    with pytest.raises(ValueError, match="too old"):
        copied(driver.machine)


def test_an_upgrade_beyond_the_program_stops_it() -> None:
    driver = Driver()
    with pytest.raises(IncompatibleVersionError, match="up to 2"):
        driver.batch([Op.UPGRADE, 3])
    assert isinstance(driver.batch([Op.UPGRADE, b"2"])[0], Fault)


@pytest.mark.parametrize("garbage", [None, -1, 1 << 63, b"", b"x", [], [[]], {}, 1.5])
def test_any_replaced_field_is_restored_or_refused_with_value_error(garbage: Any) -> None:
    """Nothing but ValueError, wherever the damage is."""
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
