"""LMQ specification 1 and 2.1, 2.2: messages enter, are delivered, return, and leave."""

from __future__ import annotations

from lmqcluster.core import Op
from lmqcluster.wire import limits
from tests.property.driver import Driver, bodies, numbers

Q = b"q"


def test_push_creates_the_queue() -> None:
    """Spec 1: the first push, pull or property change that names a queue creates it."""
    driver = Driver()
    driver.push(b"by-push", b"x")
    driver.pull(b"by-pull")
    driver.set(b"by-property", retry=1)
    driver.clear(b"by-clearing")
    assert sorted(driver.machine.state.queues) == [b"by-clearing", b"by-property", b"by-pull", b"by-push"]


def test_reading_properties_and_settling_do_not_create_a_queue() -> None:
    """Spec 1: reading properties and replying to a message do not create the queue."""
    driver = Driver()
    driver.machine.state.properties(Q)
    for settle in (driver.ack, driver.nack, driver.extend, driver.put_back):
        assert settle(Q, 1) is None
    assert driver.machine.state.queues == {}


def test_patterns_do_not_create_a_queue() -> None:
    """Spec 8.4: no match of push-to-all creates nothing; pull-any waits for a queue to appear."""
    driver = Driver()
    assert driver.push_each(b"q", b"x") == []
    assert driver.pull_first(b"q") == []
    assert driver.machine.state.queues == {}


def test_fresh_messages_are_delivered_in_push_order() -> None:
    """Spec 2.2: FIFO for fresh messages, also for those pushed at the same instant."""
    driver = Driver()
    driver.push(Q, b"1", b"2")
    driver.push(Q, b"3")
    driver.wait(1)
    driver.push(Q, b"4")
    assert [bodies(driver.pull(Q)) for _ in range(5)] == [[b"1"], [b"2"], [b"3"], [b"4"], []]


def test_a_pull_of_many_takes_at_most_all_messages_in_order() -> None:
    """Plan of the batch pull: up to `count` messages under consecutive delivery numbers."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    first = driver.pull(Q, 2)
    rest = driver.pull(Q, 5)
    assert (bodies(first), bodies(rest)) == ([b"1", b"2"], [b"3"])
    assert numbers(first) + numbers(rest) == [1, 2, 3]


def test_a_pull_of_nothing_takes_nothing() -> None:
    driver = Driver()
    driver.push(Q, b"1")
    assert driver.pull(Q, 0) == []
    assert driver.drain(Q) == [b"1"]


def test_a_message_is_delivered_to_one_at_a_time() -> None:
    """Spec 1 and 13: no message is delivered to two clients at a time."""
    driver = Driver()
    driver.push(Q, b"x")
    assert len(driver.pull(Q)) == 1
    assert driver.pull(Q) == []


def test_a_message_keeps_its_content_type_and_body() -> None:
    """Spec 8.1: the content type is stored verbatim; without one nothing is stored."""
    driver = Driver()
    driver.push(Q, b"\x00\xff", content_type=b"text/plain; charset=x")
    driver.push(Q, b"")
    typed, untyped = (message for _, _, _, message in driver.pull(Q, 2))
    assert (typed.content, typed.meta) == (b"\x00\xff", (b"text/plain; charset=x", b""))
    assert (untyped.content, untyped.meta) == (b"", (None, b""))


def test_every_delivery_has_a_unique_number() -> None:
    """Spec 2.1: each delivery has a new id."""
    driver = Driver()
    driver.push(Q, b"x")
    driver.push(b"other", b"y")
    first = driver.pull_one(Q)[1]
    driver.nack(Q, first)
    assert [first, driver.pull_one(b"other")[1], driver.pull_one(Q)[1]] == [1, 2, 3]


def test_a_nacked_message_goes_behind_all_waiting_messages() -> None:
    """Spec 2.2: a nacked message goes behind everything already waiting; later pushes follow it."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    driver.nack(Q, driver.pull_one(Q)[1])
    driver.push(Q, b"4")
    assert driver.drain(Q) == [b"2", b"3", b"1", b"4"]


def test_nacked_messages_keep_the_order_in_which_they_were_nacked() -> None:
    """Spec 2.1: nack makes a message due now."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    first, second, third = numbers(driver.pull(Q, 3))
    driver.nack(Q, third, first)
    driver.wait(1)
    driver.nack(Q, second)
    assert driver.drain(Q) == [b"3", b"1", b"2"]


def test_a_timed_out_message_is_ordered_by_its_deadline() -> None:
    """Spec 2.2: it precedes messages pushed after the deadline, and follows those pushed before it."""
    driver = Driver()
    driver.push(Q, b"late")
    driver.pull(Q)
    driver.wait(29)
    driver.push(Q, b"before")
    driver.wait(2)
    driver.push(Q, b"after")
    assert driver.drain(Q) == [b"before", b"late", b"after"]


def test_a_lease_ends_exactly_at_its_deadline() -> None:
    """Spec 2.2: an entry is delivered again once its due time does not lie in the future."""
    driver = Driver()
    driver.push(Q, b"x")
    driver.pull(Q)
    driver.wait(29.999999)
    assert driver.pull(Q) == []
    driver.wait(0.000001)
    assert bodies(driver.pull(Q)) == [b"x"]


def test_leases_end_in_the_order_of_their_deadlines() -> None:
    """Spec 2.2: the smallest due time first, also if timeouts changed between deliveries."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    for timeout in (50, 10, 30):
        driver.set(Q, timeout=timeout)
        driver.pull(Q)
    driver.wait(60)
    assert driver.drain(Q) == [b"2", b"3", b"1"]


def test_the_head_shows_when_the_next_message_is_due() -> None:
    """Spec 2.2: a blocked puller wakes at the first due time, of a lease or a window, without a background job."""
    driver = Driver()
    driver.pull(Q)
    queue = driver.machine.state.queues[Q]
    assert queue.head_us() is None
    driver.push(Q, b"x")
    assert queue.head_us() == driver.now_us
    driver.pull(Q)
    assert queue.head_us() == driver.now_us + 30_000_000
    driver.set(Q, accum=2000)
    driver.push(Q, b"y")
    assert queue.head_us() == driver.now_us + 2_000_000


def test_a_put_back_message_returns_to_its_old_position_uncharged() -> None:
    """Spec 2.1 and 15.11: put back must not break the order; the retry counter is restored."""
    driver = Driver()
    driver.push(Q, b"1", b"2", b"3")
    driver.wait(1)
    first, second = driver.pull(Q, 2)
    assert driver.put_back(Q, second[1], first[1]) == [True, True]
    driver.push(Q, b"4")
    again = driver.pull(Q, 10)
    assert bodies(again) == [b"1", b"2", b"3", b"4"]
    assert again[0][2] == first[2] == 2


def test_a_put_back_message_that_had_timed_out_keeps_that_position() -> None:
    """Spec 2.2: its position is that of its last deadline, not that of its push."""
    driver = Driver()
    driver.push(Q, b"1")
    driver.pull(Q)
    driver.wait(29)
    driver.push(Q, b"2")
    driver.wait(1)
    earlier, later = driver.pull(Q, 2)
    assert bodies([earlier, later]) == [b"2", b"1"]
    driver.put_back(Q, earlier[1], later[1])
    driver.push(Q, b"3")
    assert driver.drain(Q) == [b"2", b"1", b"3"]


def test_a_put_back_message_is_at_once_reported_as_ready() -> None:
    """Spec 4: clients after one that disconnected are served normally."""
    driver = Driver()
    driver.push(Q, b"x")
    taken = driver.pull_one(Q)[1]
    for settle in (driver.put_back, driver.nack):
        settle(Q, taken)
        assert driver.ready == [Q]
        taken = driver.pull_one(Q)[1]


def test_a_push_reports_its_queues_as_ready() -> None:
    """Spec 2.2 and 4: any kind of push wakes a waiting pull."""
    driver = Driver()
    driver.push(b"a", b"x")
    assert driver.ready == [b"a"]
    driver.push_item(b"b", b"x")
    assert driver.ready == [b"b"]
    driver.push_each(b"", b"x")
    assert driver.ready == [b"a", b"b"]


def test_delete_takes_messages_leases_and_properties() -> None:
    """Spec 8.6: the queue, its messages and its own properties are gone; False if it does not exist."""
    driver = Driver()
    driver.set(Q, retry=9)
    driver.push(Q, b"1", b"2")
    taken = driver.pull_one(Q)[1]
    assert driver.delete(Q) is True
    assert driver.ack(Q, taken) is None
    assert driver.delete(Q) is False
    driver.push(Q, b"3")
    assert driver.ack(Q, taken) == [False]
    assert [(body, retry) for _, _, retry, message in driver.pull(Q, 9) for body in [message.content]] == [(b"3", 2)]


def test_a_queue_deleted_with_messages_is_forgotten_by_patterns() -> None:
    """Spec 8.6 and 4: pull-any does not see the deleted queue's messages, and works when the queue is recreated."""
    driver = Driver()
    driver.push(Q, b"old")
    assert driver.pull_first(b"none") == []
    driver.nack(Q, driver.pull_first(b"q")[0][1])
    driver.delete(Q)
    assert driver.pull_first(b"q") == []
    driver.wait(1)
    driver.push(Q, b"new")
    assert bodies(driver.pull_first(b"q", 5)) == [b"new"]


def test_log_time_never_goes_back() -> None:
    """Design law 1: a new leader's clock may be behind; leases must last neither longer nor shorter."""
    driver = Driver()
    driver.push(Q, b"x")
    driver.wait(10)
    taken = driver.pull_one(Q)[1]
    driver.wait(-3600)
    driver.do(Op.BARRIER)
    assert driver.machine.state.now_us == driver.now_us + 3600_000_000
    assert driver.ack(Q, taken) == [True]


def test_names_are_bytes_of_limited_length() -> None:
    """Spec 7.1: a queue name is a byte string of 1 to 255 bytes, UTF-8 or not."""
    driver = Driver()
    longest = b"\xff" * limits.NAME_BYTES_MAX
    driver.push(longest, b"x")
    faults = driver.batch(
        [Op.PULL, b"", 1], [Op.PUSH, longest + b"x", None, [b""], None, 0], [Op.SET_PROPERTIES, 7, [], False, True]
    )
    assert [type(fault).__name__ for fault in faults] == ["Fault"] * 3
    assert list(driver.machine.state.queues) == [longest]


def test_internal_looking_names_are_ordinary() -> None:
    """Spec 15.7: no queue name is special."""
    driver = Driver()
    for name in (b"schema", b"__lmq_info__", b".", b"..", b"a/b", b"\r\n"):
        driver.push(name, b"x")
        assert driver.drain(name) == [b"x"]
        assert driver.delete(name)
