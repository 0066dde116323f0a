"""Ordered groups: what can be delivered of a group is its messages up to the first that is in flight or delayed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product, takewhile
from typing import Any, NamedTuple

import pytest

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Place
from lmqcluster.core.log.results import TagState, Updated
from lmqcluster.core.queue.message_index import tag_of
from tests.property.driver import SECOND, UNDO, Driver, bodies, copied, numbers, over_the_wire, records

Q = b"q"


@pytest.fixture
def driver() -> Driver:
    """Return a queue that delivers up to three messages of a group together."""
    driver = Driver()
    driver.set(Q, group_max_in_flight=3)
    return driver


def push(driver: Driver, *contents: bytes, group: bytes = b"g", delay_us: int = -1) -> None:
    """Push messages of a group, in one command."""
    rows = [[one, None, b"", None, [delay_us, 0, 0, 0, b"", group]] for one in contents]
    driver.do(Op.PUSH_ROWS, Q, rows)


def polled(driver: Driver, count: int = 10, hide_us: int = 30 * SECOND) -> list[tuple[bytes, tuple[int, int]]]:
    """Poll; return each body with id and tag."""
    found = driver.do(Op.POLL, Q, count, hide_us, False, False)
    return [(body, (one[3].sequence, tag_of(one[1]))) for body, one in zip(bodies(found), found, strict=True)]


def test_a_pull_takes_several_messages_of_a_group_and_goes_on_with_the_next(driver: Driver) -> None:
    push(driver, *[b"g%d" % number for number in range(5)])
    push(driver, b"h0", b"h1", group=b"h")
    assert bodies(driver.pull(Q, 4)) == [b"g0", b"g1", b"g2", b"h0"]
    assert driver.pull(Q, 10) == [], "the first of each group is in flight"


def test_messages_that_are_settled_free_nothing_while_an_earlier_one_is_in_flight(driver: Driver) -> None:
    push(driver, *[b"%d" % number for number in range(5)])
    first, second, third = numbers(driver.pull(Q, 10))
    driver.ack(Q, second, third)
    assert driver.pull(Q, 10) == []
    driver.ack(Q, first)
    assert driver.ready == [Q]
    assert bodies(driver.pull(Q, 10)) == [b"3", b"4"]


def test_the_first_message_alone_is_delivered_if_the_second_is_in_flight(driver: Driver) -> None:
    push(driver, *[b"%d" % number for number in range(4)])
    first, second, third = numbers(driver.pull(Q, 10))
    driver.nack(Q, first)
    driver.machine = copied(driver.machine)
    assert bodies(driver.pull(Q, 10)) == [b"0"]
    driver.nack(Q, third)
    assert driver.pull(Q, 10) == []
    driver.nack(Q, second)
    assert driver.pull(Q, 10) == [], "0 is in flight again"


def test_messages_that_come_back_keep_their_order(driver: Driver) -> None:
    push(driver, *[b"%d" % number for number in range(5)])
    first, second, third = driver.pull(Q, 10)
    assert [one[2] for one in (first, second, third)] == [2, 2, 2], "each delivery is charged"
    driver.nack(Q, third[1])
    driver.nack(Q, second[1])
    driver.do(Op.NACK, Q, [first[1]], *UNDO)
    driver.machine = copied(driver.machine)
    assert bodies(driver.pull(Q, 10)) == [b"0", b"1", b"2"]


def test_a_lease_that_ends_frees_its_message_up_to_the_next_one_in_flight(driver: Driver) -> None:
    push(driver, b"0", b"1", b"2")
    second = driver.pull(Q, 10)[1][1]
    driver.do(Op.EXTEND, Q, [second], 60 * SECOND)
    driver.wait(30)
    assert bodies(driver.pull(Q, 10)) == [b"0"]
    assert driver.pull(Q, 10) == [], "2 is visible, but behind 1"
    driver.wait(30)
    assert bodies(driver.pull(Q, 10)) == [b"0", b"1", b"2"]


def test_a_message_that_comes_back_later_holds_those_behind_it(driver: Driver) -> None:
    push(driver, b"0", b"1", b"2")
    first, second, third = numbers(driver.pull(Q, 10))
    driver.do(Op.NACK, Q, [second], Place.TAIL, SECOND)
    driver.nack(Q, first, third)
    delivered = driver.pull(Q, 10)
    assert bodies(delivered) == [b"0"]
    driver.ack(Q, *numbers(delivered))
    driver.machine = copied(driver.machine)
    assert driver.pull(Q, 10) == []
    driver.wait(1)
    assert bodies(driver.pull(Q, 10)) == [b"1", b"2"]


def test_a_group_that_comes_back_is_available_from_that_moment(driver: Driver) -> None:
    push(driver, b"g0")
    driver.wait(1)
    push(driver, b"h0", group=b"h")
    (number,) = numbers(driver.pull(Q, 1))
    driver.wait(1)
    driver.nack(Q, number)
    assert bodies(driver.pull(Q, 10)) == [b"h0", b"g0"]


def test_undeliverable_messages_of_a_group_are_passed_over(driver: Driver) -> None:
    driver.set(Q, retry=0)
    push(driver, b"0")
    driver.set(Q, retry=1)
    push(driver, b"1", b"2", b"3")
    driver.nack(Q, *numbers(driver.pull(Q, 3)))
    assert bodies(driver.pull(Q, 10)) == [b"1", b"2", b"3"]


def test_a_view_does_not_see_heads_that_change_later(driver: Driver) -> None:
    push(driver, *[b"%d" % number for number in range(5)])
    first, second, third = numbers(driver.pull(Q, 10))
    expected = records(driver.machine)
    view = driver.machine.freeze_view()
    driver.wait(1)
    driver.ack(Q, first, second, third)
    driver.pull(Q, 1)
    assert [over_the_wire(record) for record in view.records()] == expected
    view.close()


# --- polls ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fifo(driver: Driver) -> Driver:
    """Return a queue whose messages are polled by id and tag."""
    driver.delete(Q)
    driver.do(Op.CREATE, Q, b"", [[b"group_max_in_flight", 3], [b"retry", 1000]], True)
    return driver


def test_a_delayed_message_of_a_polled_queue_holds_those_behind_it(fifo: Driver) -> None:
    push(fifo, b"0", delay_us=10 * SECOND)
    push(fifo, b"1")
    push(fifo, b"other", group=b"h")
    fifo.machine = copied(fifo.machine)
    assert [one for one, _ in polled(fifo)] == [b"other"]
    fifo.wait(10)
    assert [one for one, _ in polled(fifo)] == [b"0", b"1"]


def test_a_delayed_message_of_another_queue_holds_nothing_before_it_is_due(driver: Driver) -> None:
    push(driver, b"0", delay_us=10 * SECOND)
    push(driver, b"1")
    assert bodies(driver.pull(Q, 10)) == [b"1"]
    driver.wait(10)
    assert driver.pull(Q, 10) == []


def test_a_message_that_is_visible_at_once_has_its_place_in_its_group(fifo: Driver) -> None:
    push(fifo, b"0", b"1", b"2")
    (_, first), (_, second), _ = polled(fifo)
    assert fifo.do(Op.UPDATE, Q, *second, 0).state is TagState.VALID
    assert polled(fifo) == []
    assert fifo.do(Op.UPDATE, Q, *first, 0).state is TagState.VALID
    assert fifo.ready == [Q]
    assert [one for one, _ in polled(fifo)] == [b"0", b"1"]
    assert polled(fifo) == []


def test_a_message_that_is_hidden_for_longer_holds_its_group(fifo: Driver) -> None:
    push(fifo, b"0", b"1", b"2", b"3")
    (_, first), *others = polled(fifo)
    assert fifo.do(Op.UPDATE, Q, *first, 60 * SECOND).state is TagState.VALID
    assert fifo.do(Op.DELETE_POLLED, Q, [named for _, named in others]) == [TagState.VALID] * 2
    fifo.wait(59)
    assert polled(fifo) == []
    fifo.wait(1)
    assert [one for one, _ in polled(fifo)] == [b"0", b"3"]


@pytest.mark.parametrize("hide_us", [0, SECOND])
def test_a_late_consumer_of_an_ordered_group_is_refused(fifo: Driver, hide_us: int) -> None:
    push(fifo, b"0", b"1")
    (_, first), (_, second) = polled(fifo, hide_us=hide_us)
    fifo.wait(1)
    assert fifo.do(Op.UPDATE, Q, *first, SECOND) == Updated(TagState.EXPIRED)
    assert fifo.do(Op.DELETE_POLLED, Q, [first, second]) == [TagState.EXPIRED] * 2
    (_, again), _ = polled(fifo)
    assert fifo.do(Op.DELETE_POLLED, Q, [first, again]) == [TagState.OUTDATED, TagState.VALID]
    assert fifo.do(Op.DELETE_POLLED, Q, [first, again]) == [TagState.GONE, TagState.GONE]


@pytest.mark.parametrize("mode", ["ordered", "fair"])
@pytest.mark.parametrize("group", [b"", b"g"])
def test_a_late_consumer_of_other_messages_may_delete_them(fifo: Driver, mode: str, group: bytes) -> None:
    if mode == "ordered" and group:
        return
    fifo.set(Q, group_mode=mode)
    push(fifo, b"0", b"1", group=group)
    (_, first), (_, second) = polled(fifo, hide_us=SECOND)
    fifo.wait(5)
    assert fifo.do(Op.UPDATE, Q, *first, SECOND).state is TagState.VALID
    assert [one for one, _ in polled(fifo)] == [b"1"], "the other one is in flight again"
    assert fifo.do(Op.DELETE_POLLED, Q, [second, second]) == [TagState.OUTDATED, TagState.OUTDATED]


def poll_hidden(driver: Driver, count: int) -> list[Any]:
    return bodies(driver.do(Op.POLL, Q, count, 30 * SECOND, True, False))


def test_a_poll_keeps_the_limits_of_deliveries_also_if_it_takes_hidden_messages(fifo: Driver) -> None:
    fifo.set(Q, max_in_flight=2)
    push(fifo, b"0", b"1", group=b"")
    push(fifo, b"2", b"3", group=b"", delay_us=60 * SECOND)
    assert [one for one, _ in polled(fifo, 1)] == [b"0"]
    assert poll_hidden(fifo, 10) == [b"1", b"0"], "one that is in flight may be taken again"
    assert poll_hidden(fifo, 1) == [b"1"]
    fifo.set(Q, max_in_flight=None, rate=1, rate_burst=2)
    assert len(poll_hidden(fifo, 10)) == 2
    assert poll_hidden(fifo, 10) == []
    fifo.wait(1)
    assert len(poll_hidden(fifo, 10)) == 1


def test_a_fair_group_does_not_pay_for_a_message_that_is_hidden_for_longer(fifo: Driver) -> None:
    fifo.set(Q, group_mode="fair", group_rate=1, group_rate_burst=2)
    push(fifo, b"0", b"1", b"2")
    ((_, first),) = polled(fifo, 1)
    assert fifo.do(Op.UPDATE, Q, *first, 60 * SECOND).state is TagState.VALID
    assert [one for one, _ in polled(fifo)] == [b"1"]


# --- one message at a time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", list(Place))
def test_a_group_waits_for_a_message_that_is_put_back_with_a_delay(place: Place) -> None:
    driver = Driver()
    for body in (b"1", b"2", b"3"):
        driver.do(Op.PUSH_ROWS, Q, [[body, None, b"", None, [-1, 0, 0, 0, b"", b"g"]]])
    driver.do(Op.NACK, Q, [driver.pull_one(Q)[1]], place, SECOND)
    assert driver.pull(Q, 10) == []
    driver.wait(1)
    for body in (b"1", b"2", b"3"):
        (delivery,) = driver.pull(Q, 10)
        assert bodies([delivery]) == [body]
        driver.ack(Q, delivery[1])


# --- every way back ---------------------------------------------------------------------------------------------------


class Way(NamedTuple):
    """A way to settle a delivery: the command after the numbers, None for none, and the state of the message after it.

    The states are those of the model: ``flight``, ``due``, ``delayed``, ``gone``.
    """

    op: Op | None
    fields: tuple[Any, ...]
    after: str
    is_last_delivery: bool = False


_TAIL = (Place.TAIL, 0)
WAYS = (
    Way(None, (), "flight"),
    Way(Op.ACK, (), "gone"),
    Way(Op.NACK, UNDO, "due"),
    Way(Op.NACK, _TAIL, "due"),
    Way(Op.NACK, _TAIL, "gone", is_last_delivery=True),
    Way(Op.NACK, (Place.KEEP, 0), "due"),
    Way(Op.NACK, (Place.HEAD, 0), "due"),
    Way(Op.NACK, (Place.TAIL, SECOND), "delayed"),
    Way(Op.NACK, (Place.HEAD, SECOND), "delayed"),
)


def commands_of(ways: Sequence[Way], order: Sequence[int], *, together: bool) -> list[tuple[Way, list[int]]]:
    """Return the settlements in this order; adjacent ones that can share a command do so if they are `together`."""
    commands: list[tuple[Way, list[int]]] = []
    for index in order:
        way = ways[index]
        if together and commands and commands[-1][0][:2] == way[:2]:
            commands[-1][1].append(index)
        elif way.op is not None:
            commands.append((way, [index]))
    return commands


def deliverable(states: Sequence[str]) -> list[bytes]:
    """Return the bodies that the naive model delivers: those that are due, up to the first that holds the others."""
    left = [(b"%d" % index, state) for index, state in enumerate(states) if state != "gone"]
    return [body for body, _ in takewhile(lambda one: one[1] == "due", left)]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("first", WAYS)
def test_a_group_keeps_its_order_however_its_messages_are_settled(first: Way, together: bool) -> None:
    for ways in product([first], WAYS, WAYS):
        for order in permutations(range(3)):
            commands = commands_of(ways, order, together=together)
            if together and len(commands) == len(commands_of(ways, order, together=False)):
                continue
            driver = Driver()
            driver.set(Q, group_max_in_flight=3)
            for index, way in enumerate(ways):
                if way.is_last_delivery:
                    driver.set(Q, retry=0)
                push(driver, b"%d" % index)
                if way.is_last_delivery:
                    driver.set(Q, retry=2)
            leased = numbers(driver.pull(Q, 3))
            for way, indexes in commands:
                assert driver.do(way.op, Q, [leased[index] for index in indexes], *way.fields) == [True] * len(indexes)
            states = [way.after for way in ways]
            found = driver.pull(Q, 3)
            assert bodies(found) == deliverable(states), commands
            driver.put_back(Q, *numbers(found))
            driver.wait(1)
            states = ["due" if state == "delayed" else state for state in states]
            assert bodies(driver.pull(Q, 3)) == deliverable(states), commands
