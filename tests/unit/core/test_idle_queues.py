"""Queues have an owner and a quota; queues that unsuccessful pulls created expire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.timers.idle_queues import KEEP_US, TOUCH_US
from tests.property.driver import Driver, copied, records

HOUR_S = KEEP_US / 1e6
DIGEST = b"d" * 32


def _driver() -> Driver:
    return Driver()


def _with_token(driver: Driver) -> None:
    driver.do(Op.SET_TOKEN, b"boss", DIGEST, 3, b".*", 0, False, driver.now_us)


def _names(driver: Driver) -> list[bytes]:
    return sorted(driver.machine.state.queues)


def _limits(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    changed: Mapping[Any, int] = {**Quotas.LIMITS, **{Kind[name]: limit for name, limit in limits.items()}}
    monkeypatch.setattr(Quotas, "LIMITS", changed)


def test_a_queue_created_by_an_unsuccessful_pull_expires_after_an_hour() -> None:
    driver = _driver()
    for name in (b"idle", b"pushed", b"set", b"suspended", b"pulled again"):
        driver.pull(name)
    driver.push(b"pushed", b"x")
    driver.set(b"set", retry=1)
    driver.do(Op.SUSPEND, b"suspended", True)
    driver.wait(TOUCH_US / 1e6 + 1)
    driver.pull(b"pulled again")
    driver.wait(HOUR_S - TOUCH_US / 1e6 - 2)
    driver.do(Op.BARRIER)
    assert b"idle" in driver.machine.state.queues
    driver.wait(2)
    driver.do(Op.BARRIER)
    assert _names(driver) == [b"pulled again", b"pushed", b"set", b"suspended"]
    driver.wait(HOUR_S)
    driver.do(Op.BARRIER)
    assert _names(driver) == [b"pushed", b"set", b"suspended"]
    driver.drain(b"pushed")
    driver.wait(3 * HOUR_S)
    driver.do(Op.BARRIER)
    assert _names(driver) == [b"pushed", b"set", b"suspended"], "a queue that was used stays"


def test_very_many_end_a_few_at_a_time_and_alike_on_a_restored_replica() -> None:
    driver = _driver()
    for start in range(0, 1_000, 100):
        driver.batch(*([Op.PULL, b"q%d" % (number * 7 % 1_000), 1] for number in range(start, start + 100)))
    other = Driver(copied(driver.machine))
    left = [1_000]
    for each in (driver, other):
        each.wait(HOUR_S + 1)
    while left[-1]:
        for each in (driver, other):
            each.do(Op.BARRIER)
        assert records(driver.machine) == records(other.machine)
        left.append(len(driver.machine.state.queues))
        assert 0 < left[-2] - left[-1] <= 100
    assert driver.machine.state.expiry.next_us > driver.now_us
    assert driver.machine.state.quotas.total(Kind.QUEUES) == 0


def test_the_table_of_idle_queues_does_not_grow_with_pulls() -> None:
    driver = _driver()
    for _ in range(1_000):
        driver.pull(b"q")
        driver.wait(TOUCH_US / 1e6 + 1)
    assert len(driver.machine.state.idle._heap) <= 2 + 64 + 1


def test_queues_count_to_their_owner_until_they_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    _limits(monkeypatch, QUEUES=3)
    driver = _driver()
    _with_token(driver)
    for number in range(3):
        driver.do(Op.CREATE, b"q%d" % number, b"a")
    refused = driver.batch([Op.CREATE, b"q3", b"a"])[0]
    assert isinstance(refused, Fault)
    assert (refused.code, b"q3" in driver.machine.state.queues) == ("quota_exceeded", False)
    assert (driver.do(Op.CREATE, b"q1", b"a"), driver.do(Op.CREATE, b"q3", b"b")) == (False, True)
    assert copied(driver.machine).state.quotas.used(Kind.QUEUES, b"a") == 3
    driver.delete(b"q1")
    driver.do(Op.CREATE, b"q4", b"a")
    assert driver.machine.state.queues[b"q4"].owner == copied(driver.machine).state.queues[b"q4"].owner == b"a"


def test_queues_without_an_owner_have_a_quota_where_tokens_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node's quota check that other commands overtook cannot be used to bypass the quota."""
    _limits(monkeypatch, QUEUES=2)
    driver = _driver()
    for number in range(5):
        driver.push(b"before tokens %d" % number)
    _with_token(driver)
    commands = [[Op.PUSH, b"new", None, [b"x"], None, 0], [Op.PULL, b"new", 1], [Op.SET_PROPERTIES, b"new", []]]
    for refused in driver.batch(*commands):
        assert isinstance(refused, Fault)
        assert refused.code == "quota_exceeded"
    assert b"new" not in driver.machine.state.queues
    assert len(copied(driver.machine).state.queues) == 5


def test_properties_count_to_the_queues_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    _limits(monkeypatch, PROPERTY_BYTES=1_000)
    driver = _driver()
    _with_token(driver)
    driver.do(Op.CREATE, b"q", b"a")
    driver.set(b"q", retry=1)
    hooks = [["pre_http_push", [["m", ["x-%d" % number for number in range(20)]]]]]  # noqa: UP031
    refused = driver.batch([Op.SET_PROPERTIES, b"q", [[b"hooks", hooks]]])[0]
    assert isinstance(refused, Fault)
    assert (refused.code, driver.machine.state.queues[b"q"].own) == ("quota_exceeded", {"retry": 1})
    used = driver.machine.state.quotas.used(Kind.PROPERTY_BYTES, b"a")
    assert used == driver.machine.state.totals.property_bytes > 0
    driver.delete(b"q")
    assert driver.machine.state.quotas.total(Kind.PROPERTY_BYTES) == driver.machine.state.totals.property_bytes == 0
