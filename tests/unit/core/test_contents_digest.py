"""The comparison of replicas covers contents, not only their amount."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.core.messages.message import Message
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.state.contents_digest import MESSAGES, QUEUES
from tests.property.driver import SECOND, Driver, copied, records
from tests.property.work import counted

Q, TOKEN = b"q", b"a token."


def _driver() -> Driver:
    driver = Driver()
    driver.push(Q, b"first", b"second", b"third")
    driver.pull(Q, 1)
    driver.do(Op.PUSH_ROWS, Q, [[b"rich", None, b"", None, [SECOND, 0, 0, 7, b"label", b""]]])
    return driver


def _digest(machine: Machine, token: bytes = TOKEN) -> bytes:
    return Driver(machine).do(Op.DIGEST, token)


def _ready(queue: Queue) -> Message:
    return queue.store.ready[0]


def _leased(queue: Queue) -> Message:
    return next(iter(queue.store.leases.messages.values()))


def _scheduled(queue: Queue) -> Message:
    assert queue.store.rich is not None
    message = queue.store.rich.scheduled.first()
    assert message is not None
    return message


def _set(name: str, value: object, message: Callable[[Queue], Message]) -> Callable[[Queue], None]:
    return lambda queue: setattr(message(queue), name, value)


@pytest.mark.parametrize(
    "differ",
    [
        _set("content", b"SECOND", _ready),
        _set("remaining", 7, _ready),
        _set("due_us", 7, _leased),
        _set("content", b"FIRST", _leased),
        _set("content", b"RICH", _scheduled),
        lambda queue: queue.store.ready.rotate(1),
        lambda queue: setattr(queue, "settings", queue.settings._replace(timeout_us=7)),
        lambda queue: setattr(queue, "suspended", True),
        lambda queue: setattr(queue.counters, "acked_total", 7),
    ],
)
def test_a_difference_in_contents_alone_is_seen(differ: Callable[[Queue], None]) -> None:
    machine = _driver().machine
    other = copied(machine)
    assert _digest(machine) == _digest(other)
    machine, other = copied(machine), copied(machine)
    differ(other.state.queues[Q])
    assert len(other.state.queues[Q]) == len(machine.state.queues[Q])
    assert _digest(machine) != _digest(other)


def test_comparisons_with_other_tokens_reach_every_message() -> None:
    driver = Driver()
    for number in range(3 * QUEUES):
        driver.push(b"%03d" % number, *[b"x"] * 20)
    for name in (b"007", b"250"):
        machine, other = copied(driver.machine), copied(driver.machine)
        other.state.queues[name].store.ready[-1].content = b"y"
        random = Random(7)
        tokens = [random.randbytes(8) for _ in range(60)]
        assert any(_digest(machine, token) != _digest(other, token) for token in tokens)


def _work(queues: int, messages: int) -> int:
    driver = Driver()
    for number in range(queues):
        driver.push(b"%05d" % number, *[b"x"] * messages)
        driver.pull(b"%05d" % number, messages // 2)
    with counted() as work:
        driver.do(Op.DIGEST, TOKEN)
    return work.lines


def test_a_digest_costs_the_same_whatever_is_stored() -> None:
    assert _work(3_000, 4) < 1.2 * _work(2 * QUEUES, 4)
    assert _work(1, 20_000) < 40 * MESSAGES


def test_a_digest_changes_nothing() -> None:
    machine = _driver().machine
    before = records(machine)
    _digest(machine)
    after = records(machine)
    assert [row for row in after if row[0] != "sessions"] == [row for row in before if row[0] != "sessions"]
