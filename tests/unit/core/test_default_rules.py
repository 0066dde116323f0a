"""When a change of the default rules takes effect: at the same entry of the log on every replica."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Op
from lmqcluster.core.state.default_rules import SPREAD_STEPS
from tests.property.driver import Driver, copied, records

AGE_S = 15
RULE = (b"^tmp", {"max_queue_age": AGE_S})


class Replicas:
    """Two replicas of one log: the second may write snapshots, or be restored from one."""

    def __init__(self) -> None:
        self.drivers = [Driver() for _ in range(2)]

    def do(self, *command: Any) -> None:
        for driver in self.drivers:
            driver.do(*command)

    def wait(self, seconds: float) -> None:
        for driver in self.drivers:
            driver.wait(seconds)

    def write_a_snapshot(self) -> None:
        with self.drivers[1].machine.freeze_view() as view:
            list(view.records())

    def restore(self) -> None:
        self.drivers[1] = Driver(copied(self.drivers[1].machine))

    def names(self) -> list[list[bytes]]:
        return [list(driver.machine.state.names) for driver in self.drivers]


@pytest.mark.parametrize("disturb", [Replicas.write_a_snapshot, Replicas.restore])
def test_a_rule_for_idle_queues_takes_effect_whether_snapshots_are_written_or_not(disturb: Any) -> None:
    replicas = Replicas()
    replicas.do(Op.PUSH, b"tmp-1", None, [b"x"], None, 0)
    replicas.do(Op.PURGE, b"tmp-1", 0)
    replicas.do(Op.SET_DEFAULTS, [[RULE[0], [[b"max_queue_age", AGE_S]]]])
    disturb(replicas)
    replicas.wait(AGE_S + 1)
    replicas.do(Op.BARRIER)
    assert replicas.names() == [[], []]


def test_an_unused_child_keeps_its_inherited_properties_over_a_restore() -> None:
    replicas = Replicas()
    replicas.do(Op.SET_PROPERTIES, b"news", [[b"max_queue_age", AGE_S]])
    replicas.do(Op.PUSH, b"news", None, [b"x"], None, 0)
    replicas.do(Op.BIND, b"news", b"news+ada")
    replicas.restore()
    replicas.wait(AGE_S + 1)
    replicas.do(Op.BARRIER)
    assert replicas.names() == [[b"news"], [b"news"]]


def _crowd(count: int) -> Driver:
    driver = Driver()
    for number in range(count):
        driver.push(b"q%04d" % number, b"x")
    return driver


def _retries(driver: Driver) -> list[int]:
    return [driver.machine.state.queues[name].settings.deliveries for name in driver.machine.state.names]


def test_a_change_reaches_a_bounded_number_of_queues_with_each_batch() -> None:
    driver = _crowd(2 * SPREAD_STEPS + 1)
    driver.defaults((b"", {"retry": 7}))
    assert _retries(driver) == [8] * SPREAD_STEPS + [3] * (SPREAD_STEPS + 1)
    assert driver.machine.state.properties(b"q0000")["retry"] == 7
    assert driver.machine.state.properties(b"q%04d" % (2 * SPREAD_STEPS))["retry"] == 2
    assert driver.machine.state.expiry.next_us == 0
    driver.tick(2)
    assert _retries(driver) == [8] * (2 * SPREAD_STEPS + 1)
    assert not driver.machine.state.defaults.is_spreading()


@pytest.mark.parametrize("ticks", [0, 1])
def test_a_replica_restored_while_changes_spread_continues_them(ticks: int) -> None:
    driver = _crowd(3 * SPREAD_STEPS)
    driver.defaults((b"", {"retry": 3}))
    driver.defaults((b"", {"retry": 4}))
    driver.defaults((b"", {"retry": 5}))
    driver.tick(ticks)
    restored = Driver(copied(driver.machine))
    for _ in range(8):
        assert _retries(restored) == _retries(driver)
        assert records(restored.machine) == records(driver.machine)
        driver.push(b"q0000-new", b"x")
        restored.push(b"q0000-new", b"x")
    assert set(_retries(driver)) == {6}
