"""Tasks that move messages: exactly once, at most at their rate, over snapshots and changes of the queues."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.routing.move_tasks import KEPT_MAX, MOVED_MAX, STEP_US, MoveTask, TaskStatus
from tests.property.driver import SECOND, Driver, copied, records

DEAD, Q, OTHER = b"dead", b"q", b"other"


def dead_letters(driver: Driver, count: int, source: bytes = Q) -> None:
    """Push messages to a queue that dead-letters them at once."""
    driver.set(source, dead_letter_queue=DEAD, retry=0)
    driver.push(source, *[b"%d" % number for number in range(count)])
    for first in range(0, count, 10_000):
        taken = driver.pull(source, min(10_000, count - first))
        driver.do(Op.NACK, source, [number for _, number, _, _ in taken])


def start(driver: Driver, destination: bytes = b"", rate: int = 0, origins: list[bytes] | None = None) -> Any:
    return driver.batch([Op.START_MOVE_TASK, DEAD, destination, rate, origins])[0]


def task(driver: Driver, source: bytes = DEAD) -> MoveTask:
    return driver.machine.state.move_tasks.of(source)[0]


def run(driver: Driver, seconds: float) -> None:
    """Advance log time as the leader does, a batch for each step."""
    for _ in range(round(seconds * SECOND / STEP_US)):
        driver.now_us += STEP_US
        driver.tick()


def test_messages_go_back_where_they_came_from() -> None:
    driver = Driver()
    dead_letters(driver, 3)
    dead_letters(driver, 2, OTHER)
    driver.push(DEAD, b"from nowhere")
    assert start(driver) == 1
    assert (task(driver).to_move, task(driver).status) == (5, TaskStatus.RUNNING)
    run(driver, 0.1)
    assert [driver.size(name) for name in (Q, OTHER, DEAD)] == [3, 2, 1]
    assert (task(driver).moved, task(driver).status) == (5, TaskStatus.COMPLETED)
    assert [loaded(message.content) for _, _, _, message in driver.pull(Q, 9)] == [b"0", b"1", b"2"]
    assert driver.machine.state.expiry.next_us > driver.now_us, "no batch is due for it any more"


def test_messages_go_to_a_destination() -> None:
    driver = Driver()
    dead_letters(driver, 3)
    driver.push(DEAD, b"from nowhere")
    driver.push(OTHER, b"first")
    start(driver, OTHER)
    run(driver, 0.1)
    assert [driver.size(name) for name in (Q, OTHER, DEAD)] == [0, 5, 0]
    assert (task(driver).moved, task(driver).status) == (4, TaskStatus.COMPLETED)


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 45, 500])
@pytest.mark.parametrize("destination", [b"", OTHER])
def test_the_rate_holds_in_every_second_and_is_reached(rate: int, destination: bytes) -> None:
    driver = Driver()
    driver.push(OTHER, b"x")
    driver.drain(OTHER)
    dead_letters(driver, 4 * rate + 1)
    start(driver, destination, rate)
    moved = [0]
    for _ in range(60):
        run(driver, 0.1)
        moved.append(task(driver).moved)
    assert max(later - before for before, later in zip(moved, moved[10:], strict=False)) == rate
    assert moved[40] == 4 * rate
    assert (moved[-1], task(driver).status) == (4 * rate + 1, TaskStatus.COMPLETED)


def test_late_steps_do_not_come_all_at_once() -> None:
    """No batch may come for a while; what the rate allowed in that time is not moved in a burst."""
    driver = Driver()
    dead_letters(driver, 1_000)
    start(driver, rate=100)
    driver.wait(60)
    driver.tick()
    assert 0 < task(driver).moved <= 30


def test_a_task_ends_with_what_was_there_at_its_start() -> None:
    """Otherwise messages that fail again would go round for ever."""
    driver = Driver()
    dead_letters(driver, 20)
    start(driver, rate=10)
    for _ in range(50):
        run(driver, 0.1)
        taken = driver.pull(Q, 100)
        if taken:
            driver.do(Op.NACK, Q, [number for _, number, _, _ in taken])
    assert (task(driver).moved, task(driver).status, driver.size(DEAD)) == (20, TaskStatus.COMPLETED, 20)


def test_a_step_is_bounded() -> None:
    driver = Driver()
    dead_letters(driver, 3 * MOVED_MAX)
    start(driver)
    for step in (1, 2, 3):
        driver.now_us += STEP_US
        driver.tick(3)
        assert task(driver).moved == step * MOVED_MAX
    assert task(driver).status is TaskStatus.COMPLETED


def test_all_tasks_of_a_batch_together_are_bounded() -> None:
    driver = Driver()
    driver.push(OTHER, b"x")
    for place in range(5):
        driver.push(b"%d" % place, *[b"x"] * MOVED_MAX)
        driver.do(Op.START_MOVE_TASK, b"%d" % place, OTHER, 0)
    driver.wait(1)
    before = driver.size(OTHER)
    driver.tick()
    assert driver.size(OTHER) - before <= 2 * MOVED_MAX
    driver.tick(5)
    assert driver.size(OTHER) == 5 * MOVED_MAX + 1


def test_one_task_of_a_source_runs_and_it_can_be_cancelled() -> None:
    driver = Driver()
    dead_letters(driver, 100)
    number = start(driver, rate=10)
    assert start(driver).code == "conflict"
    run(driver, 1)
    assert driver.do(Op.CANCEL_MOVE_TASK, DEAD, number) == 10
    run(driver, 1)
    assert (task(driver).moved, task(driver).status, driver.size(Q)) == (10, TaskStatus.CANCELLED, 10)
    for wrong in ((DEAD, number), (DEAD, number + 1), (Q, number), (b"none", 1)):
        assert driver.batch([Op.CANCEL_MOVE_TASK, *wrong])[0].code == "task_not_found"
    assert start(driver) == number + 1


@pytest.mark.parametrize("destination", [b"", OTHER])
def test_a_task_fails_when_its_destination_is_gone(destination: bytes) -> None:
    driver = Driver()
    driver.push(OTHER, b"x")
    dead_letters(driver, 20)
    start(driver, destination, 10)
    run(driver, 1)
    driver.delete(destination or Q)
    run(driver, 1)
    assert (task(driver).status, task(driver).failure, task(driver).moved) == (
        TaskStatus.FAILED,
        b"queue_not_found",
        10,
    )
    assert (driver.size(DEAD), destination in driver.machine.state.queues) == (10, False)


def test_a_task_returns_messages_only_to_the_origins_that_it_names() -> None:
    driver = Driver()
    dead_letters(driver, 3)
    dead_letters(driver, 3, OTHER)
    start(driver, origins=[Q])
    run(driver, 0.2)
    assert [driver.size(name) for name in (Q, OTHER, DEAD)] == [3, 0, 3]
    assert (task(driver).status, task(driver).failure) == (TaskStatus.FAILED, b"forbidden")


def test_the_tasks_of_a_queue_end_with_it() -> None:
    driver = Driver()
    dead_letters(driver, 20)
    start(driver, rate=1)
    driver.delete(DEAD)
    run(driver, 2)
    assert (len(driver.machine.state.move_tasks), driver.machine.state.move_tasks.size_bytes) == (0, 0)
    driver.push(DEAD, b"x")
    assert driver.machine.state.move_tasks.of(DEAD) == []
    assert start(driver) == 2, "no number comes twice"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ((b"none",), "queue_not_found"),
        ((DEAD, b"none"), "queue_not_found"),
        ((b"",), ""),
        ((DEAD, DEAD), ""),
        ((DEAD, b"", -1), ""),
        ((DEAD, b"", 10_001), ""),
        ((DEAD, b"", 1.5), ""),
        ((DEAD, Q, 0, [Q]), ""),
        ((DEAD, b"", 0, [b"x" * 256]), ""),
        ((DEAD, b"", 0, [b"x"] * 101), ""),
        ((7,), ""),
    ],
)
def test_what_cannot_be_started(fields: tuple[Any, ...], code: str) -> None:
    driver = Driver()
    dead_letters(driver, 2)
    refused = driver.batch([Op.START_MOVE_TASK, *fields])[0]
    assert isinstance(refused, Fault)
    assert (refused.code, len(driver.machine.state.move_tasks), b"none" in driver.machine.state.queues) == (
        code,
        0,
        False,
    )


def test_what_is_kept_of_tasks_is_bounded() -> None:
    driver = Driver()
    dead_letters(driver, 1)
    sizes = set()
    for _ in range(5 * KEPT_MAX):
        driver.do(Op.CANCEL_MOVE_TASK, DEAD, start(driver, origins=[b"x" * 255] * 100))
        sizes.add(driver.machine.state.move_tasks.size_bytes)
    numbers = [one.number for one in driver.machine.state.move_tasks.of(DEAD)]
    assert numbers == list(range(5 * KEPT_MAX, 4 * KEPT_MAX, -1))
    assert (
        max(sizes) == driver.machine.state.move_tasks.size_bytes == copied(driver.machine).state.move_tasks.size_bytes
    )


def test_tasks_are_in_digests() -> None:
    driver = Driver()
    dead_letters(driver, 20)
    start(driver, rate=1, origins=[Q])
    again = Driver(copied(driver.machine))
    assert records(again.machine) == records(driver.machine)
    assert again.do(Op.DIGEST, b"7" * 8) == driver.do(Op.DIGEST, b"7" * 8)
    again.machine.state.move_tasks.cancel(task(again))
    assert again.do(Op.DIGEST, b"7" * 8) != driver.do(Op.DIGEST, b"7" * 8)


@pytest.mark.parametrize("seed", range(25))
def test_every_message_is_somewhere_exactly_once(seed: int) -> None:
    """Random tasks, pushes, deliveries, deletions of destinations and restarts, against the messages that were pushed.

    A second machine gets the same log and restarts from snapshots.
    """
    random, driver = Random(seed), Driver()
    replica = Driver()
    queues, pushed, dropped = (DEAD, Q, OTHER, b"gone"), 0, Counter[bytes]()

    def both(*command: Any) -> Any:
        replica.now_us = driver.now_us
        result = driver.batch(list(command))[0]
        replica.batch(list(command))
        return result

    for name in (Q, OTHER):
        both(Op.SET_PROPERTIES, name, [[b"dead_letter_queue", DEAD], [b"retry", 0]])
    both(Op.PUSH, DEAD, None, [b"first"])
    for _ in range(300):
        driver.now_us += random.choice((0, 1, STEP_US // 3, STEP_US, STEP_US, 7 * STEP_US))
        name = random.choice(queues)
        match random.randrange(8):
            case 0 | 1:
                bodies = [b"%d" % number for number in range(pushed, pushed + random.randint(1, 9))]
                pushed += len(bodies)
                both(Op.PUSH, name, None, bodies)
            case 2 | 3:
                taken = both(Op.PULL, random.choice((Q, OTHER)), random.randint(1, 5))
                for queue in {one[0] for one in taken}:
                    both(Op.NACK, queue, [number for one, number, _, _ in taken if one == queue])
            case 4:
                both(Op.START_MOVE_TASK, name, random.choice([b"", *queues]), random.choice((0, 1, 15, 40)))
            case 5:
                tasks = driver.machine.state.move_tasks.of(name)
                both(Op.CANCEL_MOVE_TASK, name, tasks[0].number if tasks else 1)
            case 6 if random.random() < 0.2:
                # Steps that are due come before the deletion.
                both(Op.BARRIER)
                if b"gone" in driver.machine.state.queues:
                    dropped.update(bodies_of(driver, b"gone"))
                both(Op.DELETE, b"gone")
            case _:
                both(Op.BARRIER)
        if random.random() < 0.1:
            replica = Driver(copied(replica.machine))
        for one in driver.machine.state.move_tasks._tasks.values():
            assert all(0 <= each.moved <= each.to_move for each in one)
            assert all(each.status is not TaskStatus.RUNNING for each in one[:-1])
        assert records(driver.machine) == records(replica.machine)
    found = Counter(body for name in driver.machine.state.queues for body in bodies_of(driver, name))
    expected = Counter([b"first", *(b"%d" % number for number in range(pushed))])
    assert found + dropped == expected


def bodies_of(driver: Driver, name: bytes) -> list[bytes]:
    store = driver.machine.state.queues[name].store
    held = [*store.ready, *(message for _, _, message in store.delayed), *store.leases.messages.values()]
    rich = [] if store.rich is None else [entry for _, line in store.rich.lines() for entry in line]
    return [body for message in [*held, *rich] if isinstance(body := loaded(message.content), bytes)]
