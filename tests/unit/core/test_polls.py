"""Queues whose messages are named by id and tag: one guarantee per test."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.results import TagState
from lmqcluster.core.queue.message_index import tag_of
from tests.property.driver import SECOND, Driver, copied

from .test_bodies import paged_driver

Q = b"q"


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    assert driver.do(Op.CREATE, Q, b"", [], True) is True
    driver.push(Q, b"x")
    return driver


def _poll(driver: Driver, hide_us: int) -> tuple[int, int]:
    """Return id and tag of the one message that can be polled."""
    ((_, number, _, message),) = driver.do(Op.POLL, Q, 1, hide_us, False, False)
    return message.sequence, tag_of(number)


@pytest.mark.parametrize("hide_us", [0, 60 * SECOND])
def test_a_message_that_is_hidden_again_has_another_tag(driver: Driver, hide_us: int) -> None:
    sequence, before = _poll(driver, 60 * SECOND)
    state, number = driver.do(Op.UPDATE, Q, sequence, before, hide_us)
    tag = tag_of(number)
    assert (state, tag != before) == (TagState.VALID, True)
    assert driver.do(Op.UPDATE, Q, sequence, before, hide_us) == (TagState.OUTDATED, 0)
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, before)]) == [TagState.OUTDATED]
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, tag)]) == [TagState.VALID]
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, tag)]) == [TagState.GONE]


@pytest.mark.parametrize("hide_us", [0, 60 * SECOND])
@pytest.mark.parametrize("late_s", [0, 90])
def test_a_message_that_is_hidden_again_can_keep_its_tag(driver: Driver, hide_us: int, late_s: int) -> None:
    sequence, tag = _poll(driver, 60 * SECOND)
    for _ in range(2):
        driver.wait(late_s)
        state, number = driver.do(Op.UPDATE, Q, sequence, tag, hide_us, True)
        assert (state, tag_of(number)) == (TagState.VALID, tag)
    assert (driver.do(Op.POLL, Q, 1, SECOND, False, False) == []) is (hide_us > 0)
    state = TagState.VALID if hide_us > 0 else TagState.OUTDATED
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, tag)]) == [state]


def test_the_tag_of_an_earlier_delivery_is_invalid(driver: Driver) -> None:
    sequence, before = _poll(driver, 0)
    assert _poll(driver, 0) == (sequence, before + 1)
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, before)]) == [TagState.OUTDATED]
    assert driver.do(Op.DELETE_POLLED, Q, [(sequence, before + 1)]) == [TagState.VALID]


@pytest.mark.parametrize("name", [Q, b""])
@pytest.mark.parametrize("restores", [False, True])
def test_a_throttle_limits_polls_per_window_also_over_a_restore(driver: Driver, name: bytes, restores: bool) -> None:
    driver.do(Op.SET_POLL_LIMITS, name, None, [2, 60 * SECOND])
    _poll(driver, 0)
    _poll(driver, 0)
    if restores:
        driver = Driver(copied(driver.machine))
    for _ in range(2):
        assert _refusal(driver) == "throttled"
    driver.wait(60)
    _poll(driver, 0)


@pytest.mark.parametrize("annotations", [[], [["sqs.kind", "standard"]]], ids=["queued", "sqs"])
def test_messages_that_sqs_cannot_name_yet_are_paged(annotations: list[list[str]]) -> None:
    """A client of queued names those that were never delivered, too, so they are in the index."""
    driver, store = paged_driver()
    named = [[key.encode(), text.encode()] for key, text in annotations]
    driver.do(Op.CREATE, Q, b"", [["max_age", 345_600]], True, named)
    for start in range(0, 20_000, 1_000):
        rows = [[b"%d" % number, b"text/plain", b"", None, []] for number in range(start, start + 1_000)]
        driver.do(Op.PUSH_ATTEMPTS, Q, rows, b"")
    driver.machine.state.pager.page_out(1_000)
    queue = driver.machine.state.queues[Q]
    last = driver.machine.state.last_sequence
    if not annotations:
        assert (len(queue.store.enriched()), store.payloads) == (20_000, {})
        assert driver.do(Op.DELETE_POLLED, Q, [(last, 0)]) == [TagState.VALID]
        return
    assert (len(queue.store.enriched()), len(queue), queue.store.due_count(driver.now_us)) == (0, 20_000, 20_000)
    assert driver.machine.state.pager.paged_messages > 10_000
    assert driver.do(Op.DELETE_POLLED, Q, [(last, 0)]) == [TagState.GONE]
    for number in range(20_000):
        ((_, delivery, _, message),) = driver.do(Op.POLL, Q, 1, 60 * SECOND, False, False)
        assert message.content == b"%d" % number
        assert driver.do(Op.DELETE_POLLED, Q, [(message.sequence, tag_of(delivery))]) == [TagState.VALID]
    assert (len(queue), queue.store.enriched().trait_bytes) == (0, 0)


def _refusal(driver: Driver) -> Any:
    (result,) = driver.batch([Op.POLL, Q, 1, 0, False, False])
    assert isinstance(result, Fault), result
    return result.code
