"""Annotations of a queue: set together with properties, bounded, in quotas, digests and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.queue.annotations import ANNOTATION_BYTES_MAX, ANNOTATIONS_MAX
from lmqcluster.core.state.contents_digest import part_of_contents
from tests.property.driver import SECOND, Driver, copied, over_the_wire, records

Q = b"q"


def _set(driver: Driver, pairs: list[Any], annotations: list[Any], *, must_exist: bool = False) -> Any:
    return driver.batch([Op.SET_PROPERTIES, Q, pairs, False, False, annotations, must_exist])[0]


def _kept(driver: Driver) -> dict[str, str]:
    return dict(driver.machine.state.queues[Q].annotations)


def test_a_queue_is_created_with_properties_and_annotations_unless_it_exists() -> None:
    driver = Driver()
    assert driver.do(Op.CREATE, Q, b"me", [[b"retry", 5]], True, [[b"kind", b"fifo"]]) is True
    assert driver.do(Op.CREATE, Q, b"me", [[b"retry", 6]], True, [[b"kind", b"other"]]) is False
    queue = driver.machine.state.queues[Q]
    assert (queue.own, dict(queue.annotations), queue.owner) == ({"retry": 5}, {"kind": "fifo"}, b"me")


def test_annotations_change_together_with_properties() -> None:
    driver = Driver()
    assert _set(driver, [[b"retry", 5]], [[b"a", b"1"], [b"b", b"2"]]) is True
    assert _set(driver, [[b"retry", 6]], [[b"a", None], [b"b", "ü".encode()], [b"none", None]]) is True
    assert (_kept(driver), driver.machine.state.queues[Q].own) == ({"b": "ü"}, {"retry": 6})
    driver.clear(Q)
    assert (_kept(driver), driver.machine.state.queues[Q].own) == ({"b": "ü"}, {})


def test_only_unset_keeps_annotations_that_are_set() -> None:
    driver = Driver()
    _set(driver, [], [[b"a", b"1"]])
    driver.do(Op.SET_PROPERTIES, Q, [], True, False, [[b"a", b"2"], [b"b", b"3"]])
    assert _kept(driver) == {"a": "1", "b": "3"}


def test_a_change_of_a_queue_that_must_exist_creates_none() -> None:
    driver = Driver()
    refused = _set(driver, [[b"retry", 5]], [[b"a", b"1"]], must_exist=True)
    assert (refused.code, list(driver.machine.state.queues)) == ("queue_not_found", [])
    driver.push(Q, b"x")
    assert _set(driver, [[b"retry", 5]], [], must_exist=True) is True


def test_the_times_of_creation_and_of_the_last_change() -> None:
    driver = Driver()
    driver.push(Q, b"x")
    queue, created_us = driver.machine.state.queues[Q], driver.now_us
    driver.wait(1)
    assert (queue.created_us, queue.changed_us) == (created_us, created_us)
    _set(driver, [], [[b"a", b"1"]])
    assert queue.changed_us == created_us + SECOND
    driver.wait(1)
    driver.defaults((b".", {"retry": 9}))
    driver.push(Q, b"y")
    assert (queue.created_us, queue.changed_us) == (created_us, created_us + SECOND)


@pytest.mark.parametrize(
    "annotations",
    [
        [[b"", b"x"]],
        [[b"n" * 256, b"x"]],
        [["text", b"x"]],
        [[b"a", 1]],
        [[b"\xff", b"x"]],
        [[b"a", b"\xff"]],
        [[b"a"]],
    ],
)
def test_malformed_annotations_change_nothing(annotations: list[Any]) -> None:
    driver = Driver()
    _set(driver, [], [[b"a", b"1"]])
    assert isinstance(_set(driver, [[b"retry", 7]], annotations), Fault)
    assert isinstance(driver.batch([Op.CREATE, b"new", b"", [], False, annotations])[0], Fault)
    assert (_kept(driver), driver.machine.state.queues[Q].own, list(driver.machine.state.queues)) == (
        {"a": "1"},
        {},
        [Q],
    )


def test_annotations_are_bounded_however_they_arrive() -> None:
    driver = Driver()
    for place in range(2 * ANNOTATIONS_MAX):
        _set(driver, [[b"retry", place]], [[b"%d" % place, b"x"]])
    assert len(_kept(driver)) == ANNOTATIONS_MAX
    assert driver.machine.state.queues[Q].own == {"retry": ANNOTATIONS_MAX - 1}, "a refused change changes nothing"
    _set(driver, [], [[b"%d" % place, None] for place in range(ANNOTATIONS_MAX)])
    for _ in range(100):
        for place in range(20):
            _set(driver, [], [[b"%d" % place, b"x" * (ANNOTATION_BYTES_MAX // 10)]])
    assert sum(len(name) + len(text) for name, text in _kept(driver).items()) <= ANNOTATION_BYTES_MAX
    refused = driver.batch([Op.CREATE, b"new", b"", [], False, [[b"a", b"x" * ANNOTATION_BYTES_MAX]]])[0]
    assert (refused.code, b"new" in driver.machine.state.queues) == ("too_large", False)


def test_annotations_count_in_the_quota_of_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.PROPERTY_BYTES: 1_000})
    driver = Driver()
    assert driver.batch([Op.CREATE, b"big", b"me", [], False, [[b"a", b"x" * 1_000]]])[0].code == "quota_exceeded"
    assert driver.do(Op.CREATE, Q, b"me", [[b"retry", 5]], False, [[b"a", b"x" * 200]]) is True
    assert _set(driver, [[b"timeout", 5]], [[b"b", b"x" * 1_000]]).code == "quota_exceeded"
    assert (_kept(driver), driver.machine.state.queues[Q].own) == ({"a": "x" * 200}, {"retry": 5})
    used = driver.machine.state.quotas.used(Kind.PROPERTY_BYTES, b"me")
    assert used == driver.machine.state.totals.property_bytes > 200
    assert copied(driver.machine).state.quotas.used(Kind.PROPERTY_BYTES, b"me") == used
    driver.delete(Q)
    assert (driver.machine.state.quotas.owns(b"me"), driver.machine.state.totals.property_bytes) == (False, 0)
    driver.push(Q, b"x")
    assert _kept(driver) == {}, "a new queue has no annotations of the former one"


def test_annotations_are_in_snapshots_and_digests() -> None:
    driver = Driver()
    driver.push(Q, b"x")
    driver.wait(1)
    _set(driver, [[b"retry", 5]], [[b"b", b"1"], [b"a", b"\xc3\xbc"]])
    again = Driver(copied(driver.machine))
    assert (_kept(again), records(again.machine)) == (_kept(driver), records(driver.machine))
    assert again.machine.state.queues[Q].changed_us == driver.machine.state.queues[Q].changed_us
    assert list(part_of_contents(again.machine.state, 7)) == list(part_of_contents(driver.machine.state, 7))
    again.machine.state.annotate(again.machine.state.queues[Q], {"a": "ü", "b": "2"})
    assert list(part_of_contents(again.machine.state, 7)) != list(part_of_contents(driver.machine.state, 7))


def test_a_snapshot_keeps_the_annotations_of_its_moment() -> None:
    driver = Driver()
    _set(driver, [], [[b"a", b"1"]])
    before = records(driver.machine)
    with driver.machine.freeze_view() as view:
        _set(driver, [], [[b"a", b"2"]])
        assert [over_the_wire(record) for record in view.records()][1:] == before[1:]
