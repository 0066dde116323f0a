"""Queue features beyond LMQ's, one guarantee per test."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.handlers.transactions import Conflict
from lmqcluster.core.log.commands import Place
from lmqcluster.core.queue.options import QueueOptions
from lmqcluster.core.queue.queue import PASSES_MAX
from lmqcluster.core.routing.admission import COPIES_MAX, COPY_BYTES_MAX, TARGETS_MAX
from lmqcluster.core.routing.bindings import BOUND_MAX, SOURCES_MAX
from tests.property.driver import Driver, bodies, copied, numbers

Q, DEAD = b"q", b"dead"
SECOND = 1_000_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def push(
    driver: Driver,
    body: bytes,
    *,
    queue: bytes = Q,
    delay: float = -1,
    due_us: int = 0,
    ttl: float = 0,
    priority: int = 0,
    label: bytes = b"",
    group: bytes = b"",
    key: bytes | None = None,
) -> tuple[int, int]:
    delay_us = -1 if delay < 0 else round(delay * SECOND)
    traits = [delay_us, due_us, round(ttl * SECOND), priority, label, group]
    result: tuple[int, int] = driver.do(Op.PUSH_ROWS, queue, [[body, None, b"", key, traits]])[0]
    return result


def refusal(driver: Driver, *command: Any) -> str:
    result = driver.batch(list(command))[0]
    assert isinstance(result, Fault), result
    return result.code


# --- order ------------------------------------------------------------------------------------------------------------


def test_lower_priorities_are_first_and_equal_ones_in_order_of_arrival(driver: Driver) -> None:
    random.seed(1)
    priorities = [random.choice([-(1 << 31), -5, 0, 0, 7, (1 << 31) - 1]) for _ in range(200)]
    for index, priority in enumerate(priorities):
        push(driver, b"%d" % index, priority=priority)
    expected = sorted(range(200), key=lambda index: (priorities[index], index))
    assert driver.drain(Q) == [b"%d" % index for index in expected]


def test_an_urgent_message_overtakes_plain_ones_that_wait(driver: Driver) -> None:
    driver.push(Q, b"plain")
    push(driver, b"urgent", priority=-1)
    push(driver, b"later", priority=1)
    assert driver.drain(Q) == [b"urgent", b"plain", b"later"]


def test_a_delayed_message_is_never_delivered_early(driver: Driver) -> None:
    push(driver, b"delayed", delay=2)
    push(driver, b"due", due_us=driver.now_us + SECOND)
    driver.wait(0.999999)
    assert driver.drain(Q) == []
    driver.wait(0.000001)
    assert driver.drain(Q) == [b"due"]
    driver.wait(1)
    assert driver.drain(Q) == [b"delayed"]


def test_delayed_messages_are_ordered_by_priority_once_they_are_due(driver: Driver) -> None:
    push(driver, b"second", delay=1)
    push(driver, b"first", delay=2, priority=-1)
    driver.wait(3)
    assert driver.drain(Q) == [b"second", b"first"][::-1]


@pytest.mark.parametrize(
    ("place", "expected"),
    [(Place.TAIL, [b"c", b"a", b"b"]), (Place.KEEP, [b"a", b"b", b"c"]), (Place.HEAD, [b"a", b"b", b"c"])],
)
def test_returned_messages_go_to_the_given_position(driver: Driver, place: Place, expected: list[bytes]) -> None:
    driver.push(Q, b"a", b"b", b"c")
    driver.do(Op.NACK, Q, numbers(driver.pull(Q, 2)), place, -1)
    assert driver.drain(Q) == expected


def test_the_head_precedes_messages_that_are_due_longer(driver: Driver) -> None:
    driver.push(Q, b"a")
    driver.wait(1)
    driver.push(Q, b"b")
    first = driver.pull_one(Q)
    driver.nack(Q, first[1])
    assert bodies(driver.pull(Q)) == [b"b"]
    driver.push(Q, b"c")
    again = driver.pull_one(Q)
    driver.do(Op.NACK, Q, [again[1]], Place.HEAD, -1)
    assert driver.drain(Q) == [b"a", b"c"]


# --- groups -----------------------------------------------------------------------------------------------------------


def test_a_group_is_delivered_one_at_a_time_and_in_order(driver: Driver) -> None:
    for body in (b"1", b"2", b"3"):
        push(driver, body, group=b"g")
    (first,) = driver.pull(Q, 10)
    assert bodies([first]) == [b"1"]
    driver.nack(Q, first[1])
    (again,) = driver.pull(Q, 10)
    assert bodies([again]) == [b"1"]
    driver.ack(Q, again[1])
    assert bodies(driver.pull(Q, 10)) == [b"2"]


def test_groups_take_turns(driver: Driver) -> None:
    """A thousand messages of one tenant do not delay the only one of another by more than one delivery."""
    for index in range(1000):
        push(driver, b"flood %d" % index, group=b"flood")
    push(driver, b"alone", group=b"small")
    first = driver.pull_one(Q)
    driver.wait(0.001)
    driver.ack(Q, first[1])
    assert bodies(driver.pull(Q, 2)) == [b"alone", b"flood 1"]


def test_a_group_continues_when_its_message_expires_is_dropped_or_withdrawn(driver: Driver) -> None:
    driver.set(Q, retry=0, timeout=1)
    push(driver, b"dropped", group=b"g")
    push(driver, b"expired", group=b"g", ttl=2)
    push(driver, b"withdrawn", group=b"g", label=b"x")
    push(driver, b"last", group=b"g")
    driver.pull(Q)
    driver.wait(3)
    driver.do(Op.PURGE, Q, 10, b"x")
    assert driver.drain(Q) == [b"last"]


# --- time to live -----------------------------------------------------------------------------------------------------


def test_settling_a_batch_makes_the_next_messages_of_its_groups_ready(driver: Driver) -> None:
    for body in (b"1", b"2"):
        push(driver, body, group=b"g")
    driver.do(Op.RESERVE, b"subscription", 1, Q, True, 1, 60 * SECOND)
    driver.do(Op.SETTLE_BATCHES, b"subscription", 1)
    assert Q in driver.ready, "pulls that wait for the queue are woken"
    assert driver.drain(Q) == [b"2"]


def test_leases_that_expire_within_a_pull_wake_waiting_pulls(driver: Driver) -> None:
    driver.set(Q, timeout=1, delay=0)
    driver.push(Q, *[b"%d" % index for index in range(1_500)])
    driver.pull(Q, 1_500)
    driver.wait(2)
    # More than one batch returns by itself; the rest returns within the pull.
    driver.do(Op.PULL, Q, 1, 60 * SECOND, False)
    assert Q in driver.ready


def test_an_expired_message_is_never_delivered_and_goes_to_the_queue_for_it(driver: Driver) -> None:
    driver.set(Q, expire_to_queue="late")
    push(driver, b"short", ttl=1, label=b"l")
    push(driver, b"long", ttl=10)
    driver.wait(1)
    assert driver.drain(Q) == [b"long"]
    (late,) = driver.pull(b"late", 10)
    origin = late[3].traits.origin
    assert (late[3].content, late[3].traits.label, late[3].traits.expires_us) == (b"short", b"l", 0)
    assert (origin.queue, origin.reason, origin.deliveries, origin.at_us) == (Q, b"expired", 0, driver.now_us)


def test_a_shorter_age_applies_to_waiting_messages(driver: Driver) -> None:
    driver.push(Q, b"old")
    driver.wait(5)
    driver.set(Q, max_age=3)
    assert driver.drain(Q) == []
    assert driver.machine.state.queues[Q].counters.expired_total == 1


@pytest.mark.parametrize("step", [0.5, 8])
def test_messages_of_one_age_are_plain_until_their_delivery_and_expire_in_order(driver: Driver, step: float) -> None:
    driver.set(Q, max_age=10, timeout=60, expire_to_queue="late")
    for number in range(4):
        driver.push(Q, b"%d" % number)
        push(driver, b"%d short" % number, ttl=9.5)
        driver.wait(1)
    queue = driver.machine.state.queues[Q]
    assert (len(queue.store.ready), len(queue.store.enriched())) == (4, 4)
    driver = Driver(copied(driver.machine))
    queue = driver.machine.state.queues[Q]
    first, second = numbers(driver.pull(Q, 2))
    driver.nack(Q, first)
    assert len(queue.store.ready) == 3
    driver.nack(Q, second)
    driver.wait(6)
    while left := driver.size(Q):
        driver.wait(step)
        assert driver.machine.state.expiry.next_us <= driver.now_us, "the leader proposes a batch then"
        driver.tick()
        assert driver.size(Q) == max(0, left - round(step / 0.5))
    late = [b"0 short", b"0", b"1 short", b"1", b"2 short", b"2", b"3 short", b"3"]
    assert driver.drain(b"late") == late
    assert driver.machine.state.expiry.next_us > driver.now_us + SECOND


def test_a_longer_age_applies_to_messages_that_were_not_delivered(driver: Driver) -> None:
    driver.set(Q, max_age=3)
    driver.push(Q, b"x")
    driver.set(Q, max_age=30)
    driver.wait(29)
    driver.tick()
    assert driver.size(Q) == 1
    driver.wait(1)
    driver.tick()
    assert driver.size(Q) == 0


def test_very_many_messages_that_expire_at_once_are_removed_in_steps(driver: Driver) -> None:
    """A batch expires a thousand of them; the remaining ones are not delivered either."""
    rows = [[b"x", None, b"", None, [-1, 0, SECOND, 0, b"", b""]] for _ in range(5_000)]
    driver.do(Op.PUSH_ROWS, Q, rows)
    driver.wait(1)
    driver.tick()
    assert driver.size(Q) == 4_000
    driver.tick(4)
    assert driver.size(Q) == 0
    assert driver.machine.state.expiry.next_us > driver.now_us


def test_a_pull_skips_a_bounded_number_of_expired_messages(driver: Driver) -> None:
    timed = 1_000
    driver.push(Q, *[b"x"] * (timed + PASSES_MAX + 10))
    driver.set(Q, max_age=1)
    driver.wait(2)
    assert driver.do(Op.PULL, Q, 1) is None, "it has to be repeated"
    assert driver.size(Q) == 10
    assert driver.do(Op.PULL, Q, 1) == []


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_bound_is_exact_and_counts_waiting_messages(driver: Driver) -> None:
    driver.set(Q, max_items=2)
    assert driver.push(Q, b"1", b"2", b"3") == [0, 0, PushFlag.FULL]
    driver.pull(Q)
    assert driver.push(Q, b"4", b"5") == [0, PushFlag.FULL]
    assert refusal(driver, Op.PUSH_ROWS, Q, [[b"6", None, b"", None, []]]) == "full"
    assert driver.machine.state.queues[Q].counters.refused_total == 3


def test_several_messages_are_stored_all_or_none(driver: Driver) -> None:
    driver.set(Q, max_items=2)
    rows = [[b"%d" % index, None, b"", None, []] for index in range(3)]
    assert refusal(driver, Op.PUSH_ROWS, Q, rows) == "full"
    assert driver.size(Q) == 0


def test_a_refused_push_that_is_resent_does_not_count_as_stored(driver: Driver) -> None:
    """Its answer was lost, and later pushes of the same client have been stored."""
    driver.set(Q, max_items=1)
    assert driver.produce(Q, b"producer", 1, b"1", b"2", b"3") == [0, PushFlag.FULL, PushFlag.FULL]
    driver.produce(b"other", b"producer", 4, b"4")
    driver = Driver(copied(driver.machine))
    assert driver.produce(Q, b"producer", 1, b"1", b"2", b"3") == [0, PushFlag.FULL, PushFlag.FULL]
    assert driver.drain(Q) == [b"1"]
    assert driver.produce(Q, b"producer", 1, b"1", b"2", b"3") == [0, 0, PushFlag.FULL]
    assert driver.produce(Q, b"producer", 1, b"1", b"2", b"3") == [0, 0, PushFlag.FULL]
    assert driver.drain(Q) == [b"2"], "stored messages are stored once"


def test_a_refused_push_leaves_its_key_free(driver: Driver) -> None:
    driver.set(Q, max_items=1)
    driver.push(Q, b"first")
    assert refusal(driver, Op.PUSH_ROWS, Q, [[b"second", None, b"", b"k", []]]) == "full"
    driver.drain(Q)
    assert driver.push_item(Q, b"second", key=b"k") == 0
    assert driver.drain(Q) == [b"second"]


def test_a_writer_stores_all_or_none(driver: Driver) -> None:
    driver.set(Q, max_items=2)
    rows = [[b"%d" % index, None, b""] for index in range(3)]
    assert refusal(driver, Op.PUSH_STREAM, Q, rows, b"job", b"stream", 0, b"", False, b"") == "full"
    assert driver.size(Q) == 0
    assert driver.do(Op.PUSH_STREAM, Q, rows[:2], b"job", b"stream", 0, b"", False, b"") == [0, 0]
    assert refusal(driver, Op.PUSH_STREAM, Q, rows[2:], b"job", b"stream", 2, b"", False, b"") == "full"


def test_a_rule_has_no_property_without_a_value(driver: Driver) -> None:
    result = driver.batch([Op.SET_DEFAULTS, [[b"q", [[b"delay", None]]]]])[0]
    assert isinstance(result, Fault)
    driver.push(Q, b"x")
    assert driver.drain(Q) == [b"x"]


def test_a_full_queue_may_discard_its_oldest_messages(driver: Driver) -> None:
    driver.set(Q, max_items=2, discard_old_when_full=True)
    driver.push(Q, b"1", b"2", b"3")
    assert driver.drain(Q) == [b"2", b"3"]
    assert driver.machine.state.queues[Q].counters.discarded_total == 1


def test_nothing_is_discarded_for_a_message_that_is_refused_elsewhere(driver: Driver) -> None:
    driver.set(Q, destination_queues=["a", "b"])
    driver.set(b"a", max_items=1, discard_old_when_full=True)
    driver.push(Q, b"old")
    driver.set(b"b", max_items=1)
    assert driver.push(Q, b"new") == [PushFlag.FULL]
    assert (driver.drain(b"a"), driver.drain(b"b")) == ([b"old"], [b"old"])


def test_bytes_are_bounded_by_what_waits_before(driver: Driver) -> None:
    driver.set(Q, max_size=510, max_item_size=256)
    assert driver.push(Q, b"x" * 256, b"x" * 256, b"x" * 256) == [0, 0, PushFlag.FULL]
    assert driver.push(Q, b"x" * 257) == [PushFlag.OVERSIZED]
    assert refusal(driver, Op.PUSH_ROWS, Q, [[b"x" * 257, None, b"", None, []]]) == "too_large"
    driver.set(Q, max_size=512)
    assert driver.push(Q, b"") == [PushFlag.FULL], "it is exactly full"


# --- dead letters -----------------------------------------------------------------------------------------------------


def test_an_exhausted_message_becomes_a_dead_letter_and_can_be_redriven(driver: Driver) -> None:
    driver.set(Q, retry=0, dead_letter_queue="dead")
    push(driver, b"poison", label=b"l", group=b"g", priority=3)
    driver.nack(Q, driver.pull_one(Q)[1])
    assert driver.size(Q) == 0
    assert (
        driver.machine.state.queues[Q].counters.dead_lettered_total,
        driver.machine.state.queues[Q].counters.dropped_total,
    ) == (1, 0)
    letter = driver.pull_one(DEAD)[3]
    assert (letter.content, letter.traits[:4]) == (b"poison", (3, 0, b"l", b"g"))
    assert letter.traits.origin[:2] == (Q, b"exhausted")
    assert letter.traits.origin.deliveries == 1
    driver.wait(31)
    assert driver.do(Op.REDRIVE, DEAD, b"", b"", 10) == 1
    again = driver.pull_one(Q)
    assert (again[3].content, again[3].traits) == (b"poison", (3, 0, b"l", b"g", None))


def test_a_message_of_another_source_ends_a_step_that_names_its_sources(driver: Driver) -> None:
    for queue in (Q, Q, b"other", Q):
        driver.set(queue, retry=0, dead_letter_queue="dead")
        push(driver, b"letter", queue=queue)
        driver.nack(queue, driver.pull_one(queue)[1])
    assert driver.do(Op.REDRIVE, DEAD, [], b"", 10) == 0
    assert driver.do(Op.REDRIVE, DEAD, [Q, b"unknown"], b"", 10) == 2
    assert (driver.size(Q), driver.size(b"other"), driver.size(DEAD)) == (2, 0, 2)
    assert b"unknown" not in driver.machine.state.queues
    assert driver.do(Op.REDRIVE, DEAD, [Q, b"other"], b"", 10) == 2
    (refused,) = driver.batch([Op.REDRIVE, DEAD, [[]], b"", 10])
    assert isinstance(refused, Fault)


def test_only_messages_moved_by_the_cluster_are_redriven(driver: Driver) -> None:
    driver.set(Q, retry=0, dead_letter_queue="dead")
    driver.push(Q, b"letter")
    driver.nack(Q, driver.pull_one(Q)[1])
    driver.push(DEAD, b"pushed by hand")
    assert driver.do(Op.REDRIVE, DEAD, b"elsewhere", b"", 10) == 1
    assert driver.drain(b"elsewhere") == [b"letter"]
    assert driver.drain(DEAD) == [b"pushed by hand"]


def test_messages_of_a_label_are_redriven_among_many_others(driver: Driver) -> None:
    driver.set(Q, retry=0, dead_letter_queue="dead")
    for index in range(20):
        push(driver, b"%d" % index, queue=DEAD, label=b"x")
    push(driver, b"moved", label=b"x")
    driver.nack(Q, driver.pull_one(Q)[1])
    assert driver.do(Op.REDRIVE, DEAD, b"", b"x", 10) == 1
    assert driver.drain(Q) == [b"moved"]


def test_a_delay_that_grows_slowly_costs_a_bounded_number_of_steps() -> None:
    options = QueueOptions(retry_delay_us=SECOND, retry_backoff=1.0000001)
    assert options.retry_delay_after(1_001) == options.retry_delay_after(1 << 40) > SECOND


def test_retry_delays_grow(driver: Driver) -> None:
    driver.set(Q, retry=9, timeout=30, retry_delay=1, retry_backoff=3, retry_delay_max=5)
    driver.push(Q, b"x")
    for seconds in (1, 3, 5, 5):
        driver.nack(Q, driver.pull_one(Q)[1])
        driver.wait(seconds - 0.000001)
        assert driver.pull(Q) == []
        driver.wait(0.000001)
    assert driver.pull_one(Q)[3].delivered == 5


def test_an_explicit_delay_counts_more_than_that_of_the_queue(driver: Driver) -> None:
    driver.set(Q, retry_delay=60)
    driver.push(Q, b"x")
    driver.do(Op.NACK, Q, [driver.pull_one(Q)[1]], Place.TAIL, 0)
    assert driver.drain(Q) == [b"x"]


# --- labels, fanout, age ----------------------------------------------------------------------------------------------


def test_labels_find_count_and_withdraw_waiting_messages(driver: Driver) -> None:
    for index in range(5):
        push(driver, b"%d" % index, label=b"even" if index % 2 == 0 else b"odd", delay=10 * (index == 4))
    leased = driver.pull_one(Q)
    rich = driver.machine.state.queues[Q].store.rich
    assert rich is not None
    assert rich.count_labelled(b"even") == 2
    assert driver.do(Op.PURGE, Q, 10, b"even") == 2
    assert driver.ack(Q, leased[1]) == [True], "leased messages are unchanged"
    assert driver.drain(Q) == [b"1", b"3"]


def test_bound_queues_get_copies_in_the_same_step(driver: Driver) -> None:
    assert driver.do(Op.BIND, Q, b"copy") is True
    driver.set(b"copy", max_items=1)
    assert driver.push(Q, b"1", b"2") == [0, 0], "a copy that is refused does not change the answer"
    assert (driver.drain(Q), driver.drain(b"copy")) == ([b"1", b"2"], [b"1"])
    driver.delete(b"copy")
    driver.push(Q, b"3")
    assert b"copy" not in driver.machine.state.queues, "a binding ends with its target"


def test_bindings_are_bounded_on_both_sides(driver: Driver) -> None:
    """A binding outlives its source: a client that creates and deletes queues would fill the memory of all nodes."""
    for index in range(SOURCES_MAX):
        assert driver.do(Op.BIND, b"source %d" % index, Q) is True
        driver.delete(b"source %d" % index)
    assert refusal(driver, Op.BIND, b"another", Q) == "quota_exceeded"
    assert driver.do(Op.BIND, b"source 0", Q) is False, "there is no more of it than before"
    for index in range(BOUND_MAX):
        driver.do(Op.BIND, b"popular", b"target %d" % index)
    assert refusal(driver, Op.BIND, b"popular", b"another") == "quota_exceeded"
    assert driver.do(Op.BIND, b"popular", b"target 0") is False


def test_copies_are_bounded(driver: Driver) -> None:
    """An attack: one push reaches very many queues, and a batch has the maximum size."""
    for place in range(11):
        driver.set(b"alias %d" % place, destination_queues=[f"{place}.{index}" for index in range(90)])
    driver.set(Q, destination_queues=[f"alias {place}" for place in range(11)])
    most = COPIES_MAX // TARGETS_MAX
    flags = driver.push(Q, *[b"x"] * (most + 3))
    assert flags == [0] * most + [PushFlag.OVERSIZED] * 3
    assert refusal(driver, Op.PUSH_ROWS, Q, [[b"x", None, b"", None, []]] * (most + 1)) == "too_large"
    assert driver.do(Op.PUSH_EACH, [Q] * 5, [b"x", None, b"", None]) == [(Q, 0)]
    assert driver.push(Q, bytes(COPY_BYTES_MAX // TARGETS_MAX + 1)) == [PushFlag.OVERSIZED]
    assert driver.size(b"9.89") == most + 1
    assert sum(driver.size(queue) for queue in driver.machine.state.queues if b"." in queue) < TARGETS_MAX * (most + 1)


def test_aliases_that_lead_nowhere_cost_as_much_as_others(driver: Driver) -> None:
    """An attack: aliases that name each other store nothing, at any number of steps."""
    names = [f"alias {place}" for place in range(100)]
    for name in names:
        driver.set(name.encode(), destination_queues=names)
    rows = [[b"x", None, b"", None, []]] * (COPIES_MAX // TARGETS_MAX + 1)
    assert refusal(driver, Op.PUSH_ROWS, b"alias 0", rows) == "too_large"
    assert driver.machine.state.admission.reach(driver.machine.state.queue(b"alias 0")) == TARGETS_MAX


def test_dead_letters_are_not_multiplied(driver: Driver) -> None:
    driver.do(Op.BIND, DEAD, b"copy")
    driver.set(Q, retry=0, dead_letter_queue="dead")
    driver.push(Q, b"x")
    driver.nack(Q, driver.pull_one(Q)[1])
    assert (driver.size(DEAD), driver.size(b"copy")) == (1, 0)


def test_an_alias_forwards_and_holds_nothing(driver: Driver) -> None:
    driver.set(Q, destination_queues=["a", "b"])
    driver.push(Q, b"x")
    assert [driver.drain(name) for name in (Q, b"a", b"b")] == [[], [b"x"], [b"x"]]
    driver.set(b"b", max_items=0)
    assert driver.push(Q, b"y") == [PushFlag.FULL]
    assert driver.drain(b"a") == [], "it is stored in all destinations or in none"


def test_a_queue_gets_one_copy_over_any_number_of_bindings(driver: Driver) -> None:
    driver.set(Q, destination_queues=["a", "b", "copy"])
    for source in (b"a", b"b"):
        driver.do(Op.BIND, source, b"copy")
        driver.do(Op.BIND, source, b"other")
    driver.push(Q, b"x")
    assert [driver.drain(name) for name in (b"a", b"b", b"copy", b"other")] == [[b"x"]] * 4


def test_aliases_that_name_each_other_terminate(driver: Driver) -> None:
    driver.set(b"a", destination_queues=["b"])
    driver.set(b"b", destination_queues=["a"])
    assert driver.push(b"a", b"x") == [0]


def test_an_empty_queue_is_deleted_at_its_age(driver: Driver) -> None:
    driver.set(Q, max_queue_age=10)
    driver.push(Q, b"x")
    number = driver.pull_one(Q)[1]
    driver.wait(11)
    driver.tick()
    assert Q in driver.machine.state.queues, "a message is leased"
    driver.ack(Q, number)
    driver.tick()
    assert Q not in driver.machine.state.queues


def test_settling_a_batch_can_end_an_old_queue(driver: Driver) -> None:
    driver.set(Q, max_queue_age=10)
    driver.push(Q, b"x")
    driver.do(Op.RESERVE, b"subscription", 1, Q, True, 10, 60 * SECOND)
    driver.wait(11)
    driver.do(Op.SETTLE_BATCHES, b"subscription", 1)
    driver.tick()
    assert Q not in driver.machine.state.queues


def test_a_pull_that_settles_at_once_leaves_no_lease(driver: Driver) -> None:
    driver.push(Q, b"1", b"2")
    assert bodies(driver.do(Op.PULL, Q, 1, 0, True)) == [b"1"]
    assert driver.size(Q) == 1
    assert driver.machine.state.queues[Q].counters.acked_total == 1


# --- transactions -----------------------------------------------------------------------------------------------------


def test_consume_and_produce_in_one_step(driver: Driver) -> None:
    driver.push(Q, b"in")
    number = driver.pull_one(Q)[1]
    operations = [[Op.ACK, Q, [number]], [Op.PUSH_ROWS, b"out", [[b"made of it", None, b"", None, []]]]]
    result = driver.do(Op.TRANSACTION, operations)
    assert result[0] is True
    assert driver.drain(b"out") == [b"made of it"]
    assert driver.do(Op.TRANSACTION, operations).failed == 0, "the lease is gone"
    assert driver.drain(b"out") == []


def test_a_transaction_that_cannot_be_applied_entirely_does_nothing(driver: Driver) -> None:
    driver.set(b"out", max_items=1)
    driver.push(Q, b"in")
    number = driver.pull_one(Q)[1]
    row = [b"x", None, b"", None, []]
    operations = [[Op.ACK, Q, [number]], [Op.PUSH_ROWS, b"out", [row]], [Op.PUSH_ROWS, b"out", [row]]]
    result = driver.do(Op.TRANSACTION, operations)
    assert isinstance(result, Conflict)
    assert (result.failed, result.code) == (2, "full")
    assert driver.ack(Q, number) == [True]
    assert driver.drain(b"out") == []


def test_a_dead_letter_of_a_transaction_takes_the_room_that_it_needs(driver: Driver) -> None:
    """A nacked message may leave for a queue to which the transaction also pushes."""
    driver.set(Q, retry=0, dead_letter_queue="dead")
    driver.set(DEAD, max_items=1)
    driver.push(Q, b"in")
    number = driver.pull_one(Q)[1]
    row = [b"x", None, b"", None, []]
    result = driver.do(Op.TRANSACTION, [[Op.NACK, Q, [number], Place.TAIL, -1], [Op.PUSH_ROWS, DEAD, [row]]])
    assert isinstance(result, Conflict)
    assert result.failed == 1
    assert driver.ack(Q, number) == [True]


# --- information in messages
# -------------------------------------------------------------------------------------------


def test_a_delivery_has_its_number_and_the_push_time(driver: Driver) -> None:
    driver.push(Q, b"x")
    pushed_us = driver.now_us
    driver.wait(1)
    driver.nack(Q, driver.pull_one(Q)[1])
    driver.put_back(Q, driver.pull_one(Q)[1])
    message = driver.pull_one(Q)[3]
    assert (message.delivered, message.pushed_us) == (2, pushed_us)


def test_a_push_returns_the_sequence_also_when_it_is_repeated(driver: Driver) -> None:
    flag, sequence = push(driver, b"x", key=b"k")
    assert (flag, sequence) == (0, driver.machine.state.last_sequence)
    driver.push(Q, b"another")
    assert push(driver, b"x", key=b"k") == (PushFlag.REPLAYED, sequence)
    assert driver.push_item(Q, b"x", key=b"k") == PushFlag.REPLAYED
    restored = Driver(copied(driver.machine))
    assert push(restored, b"x", key=b"k") == (PushFlag.REPLAYED, sequence)
