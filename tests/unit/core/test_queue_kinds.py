"""A queue and its queue for dead letters are of one kind: both are FIFO queues of SQS, or neither is."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.queue.annotations import FIFO, KIND
from tests.property.driver import Driver, bodies, copied, numbers

KINDS = ([], [[KIND.encode(), b"standard"]], [[KIND.encode(), FIFO.encode()]])
Q, DEAD, LETTERS = b"q", b"dead", [[b"dead_letter_queue", b"dead"]]


def made(*, queue: Any = None, dead: Any = None) -> Driver:
    """Return a cluster that has queues with these annotations."""
    driver = Driver()
    for name, kept in ((Q, queue), (DEAD, dead)):
        if kept is not None:
            driver.do(Op.CREATE, name, b"", [], True, kept)
    return driver


def are_alike(queue: Any, dead: Any) -> bool:
    return (queue == KINDS[2]) is (dead == KINDS[2])


@pytest.mark.parametrize("queue", KINDS)
@pytest.mark.parametrize("dead", KINDS)
def test_a_queue_takes_only_a_queue_for_dead_letters_of_its_kind(queue: Any, dead: Any) -> None:
    commands = ([Op.CREATE, Q, b"", LETTERS, True, queue], [Op.SET_PROPERTIES, Q, LETTERS, False, False, queue])
    for command in commands:
        driver = made(dead=dead)
        (result,) = driver.batch(command)
        if are_alike(queue, dead):
            assert result is True
        else:
            assert (result.code, result.reason.split(";")[1:]) == (
                "bad_property",
                [" nothing is changed", " name a queue of the same kind"],
            )
            assert Q not in driver.machine.state.queues
    driver = made(queue=queue, dead=dead)
    (result,) = driver.batch([Op.SET_PROPERTIES, Q, [*LETTERS, [b"retry", 7]]])
    assert isinstance(result, Fault) is not are_alike(queue, dead)
    assert ("retry" in driver.machine.state.queues[Q].own) is are_alike(queue, dead)


@pytest.mark.parametrize("queue", KINDS)
def test_a_queue_for_dead_letters_need_not_exist(queue: Any) -> None:
    assert made(queue=queue).do(Op.SET_PROPERTIES, Q, LETTERS) is True


@pytest.mark.parametrize("queue", KINDS)
@pytest.mark.parametrize("dead", KINDS)
def test_a_rule_moves_no_used_up_message_to_a_queue_of_another_kind(queue: Any, dead: Any) -> None:
    driver = made(queue=queue, dead=dead)
    driver.defaults((b"^q$", {"dead_letter_queue": "dead", "max_deliveries": 1, "retry": 9}))
    driver.push(Q, b"body")
    driver.nack(Q, *numbers(driver.pull(Q)))
    driver.machine = copied(driver.machine)
    assert bodies(driver.pull(Q)) == ([] if are_alike(queue, dead) else [b"body"])
    assert driver.size(DEAD) == are_alike(queue, dead)


def test_the_property_can_be_removed_and_another_one_set_whatever_the_kinds() -> None:
    driver = made(queue=KINDS[1])
    driver.do(Op.SET_PROPERTIES, Q, LETTERS)
    driver.do(Op.CREATE, DEAD, b"", [], True, KINDS[2])
    assert driver.do(Op.SET_PROPERTIES, Q, [[b"retry", 1]]) is True
    assert driver.do(Op.SET_PROPERTIES, Q, [[b"dead_letter_queue", None]]) is True
