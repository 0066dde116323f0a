"""LMQ specification 5: messages pushed within a window become one compound message."""

from __future__ import annotations

import pytest

from lmqcluster.core import Op
from lmqcluster.core.messages.message import COMPOUND_BYTES_MAX, Part, part_bytes
from tests.property.driver import Driver, bodies, copied

Q = b"q"
NO, NEW, YES = 0, 1, 2


@pytest.fixture
def driver() -> Driver:
    """A queue with a window of 10 seconds."""
    driver = Driver()
    driver.set(Q, accum=10_000)
    return driver


def test_the_first_push_opens_a_window_and_the_next_ones_join(driver: Driver) -> None:
    """Spec 5: flags `new` and `yes`."""
    assert driver.push(Q, b"1") == [NEW]
    assert driver.push(Q, b"2") == [YES]
    assert driver.size(Q) == 1


def test_without_accumulation_the_flag_is_no() -> None:
    """Spec 5."""
    assert Driver().push(Q, b"1", b"2") == [NO, NO]


def test_parts_keep_push_order_and_metadata(driver: Driver) -> None:
    """Spec 5: body and metadata are appended; parts keep push order."""
    driver.push(Q, b"1", content_type=b"text/plain")
    driver.push(Q, b"2")
    driver.wait(10)
    parts = driver.pull_one(Q)[3].content
    assert [(part.content, part.content_type, part.attributes) for part in parts] == [
        (b"1", b"text/plain", b""),
        (b"2", None, b""),
    ]


def test_nothing_can_be_pulled_before_the_window_ends_and_everything_at_its_end(driver: Driver) -> None:
    """Spec 5: a blocked puller gets it at the end."""
    driver.push(Q, b"1", b"2")
    assert driver.machine.state.queues[Q].head_us() == driver.now_us + 10_000_000
    driver.wait(9.999999)
    assert driver.pull(Q) == []
    driver.wait(0.000001)
    assert bodies(driver.pull(Q)) == [[b"1", b"2"]]


def test_the_window_is_fixed_when_it_opens(driver: Driver) -> None:
    """Spec 5: later pushes do not extend it, and changing `accum` while it is open does not move its end."""
    driver.push(Q, b"1")
    driver.wait(5)
    driver.set(Q, accum=60_000)
    assert driver.push(Q, b"2") == [YES]
    driver.wait(5)
    assert bodies(driver.pull(Q)) == [[b"1", b"2"]]


def test_a_push_at_the_very_end_opens_a_new_window(driver: Driver) -> None:
    """Spec 5: it joins only a window whose due time is not yet past."""
    driver.push(Q, b"1")
    driver.wait(10)
    assert driver.push(Q, b"2") == [NEW]
    assert driver.drain(Q) == [[b"1"]]


def test_without_accumulation_a_message_is_stored_beside_an_open_window(driver: Driver) -> None:
    """Spec 5: with `accum` = 0 an ordinary message is stored, even if a window is still open."""
    driver.push(Q, b"part")
    driver.set(Q, accum=0)
    assert driver.push(Q, b"plain") == [NO]
    assert driver.drain(Q) == [b"plain"]
    driver.set(Q, accum=1)
    assert driver.push(Q, b"joins") == [YES]
    driver.wait(10)
    assert driver.drain(Q) == [[b"part", b"joins"]]


def test_a_negative_window_has_already_ended() -> None:
    """Spec 3: a negative `accum` behaves like a window that has already ended: one compound message each."""
    driver = Driver()
    driver.set(Q, accum=-5000)
    assert driver.push(Q, b"1", b"2") == [NEW, NEW]
    assert driver.drain(Q) == [[b"1"], [b"2"]]


def test_a_push_with_a_negative_window_joins_an_open_one(driver: Driver) -> None:
    """Spec 5: pushes join an open window as long as the queue's current `accum` is non-zero."""
    driver.push(Q, b"1")
    driver.set(Q, accum=-5000)
    assert driver.push(Q, b"2") == [YES]


def test_once_delivered_a_compound_message_takes_no_more(driver: Driver) -> None:
    """Spec 5: delivered, nacked or put back, the next push opens a new window."""
    driver.push(Q, b"1")
    driver.wait(10)
    taken = driver.pull_one(Q)[1]
    assert driver.push(Q, b"2") == [NEW]
    driver.nack(Q, taken)
    assert driver.push(Q, b"3") == [YES]
    taken = driver.pull_one(Q)[1]
    driver.put_back(Q, taken)
    assert driver.push(Q, b"4") == [YES]
    assert driver.drain(Q) == [[b"1"]]


def test_a_window_with_one_message_is_still_a_compound_message(driver: Driver) -> None:
    """Spec 5."""
    driver.push(Q, b"1")
    driver.wait(10)
    assert driver.drain(Q) == [[b"1"]]


def test_the_compound_message_is_handled_as_a_whole(driver: Driver) -> None:
    """Spec 5: delivery, redelivery, retry count, ack, nack, ext all work on the whole."""
    driver.push(Q, b"1", b"2")
    driver.wait(10)
    _, number, retry, _ = driver.pull_one(Q)
    assert retry == 2
    assert driver.extend(Q, number) == [True]
    assert driver.nack(Q, number) == [True]
    _, number, retry, message = driver.pull_one(Q)
    assert (retry, [part.content for part in message.content]) == (1, [b"1", b"2"])
    driver.wait(30)
    _, number, retry, _ = driver.pull_one(Q)
    assert retry == 0
    assert driver.ack(Q, number) == [True]
    assert driver.size(Q) == 0


def test_the_retry_count_is_that_of_the_push_that_opened_it(driver: Driver) -> None:
    """Spec 5."""
    driver.set(Q, retry=5)
    driver.push(Q, b"1")
    driver.set(Q, retry=0)
    driver.push(Q, b"2")
    driver.wait(10)
    assert driver.pull_one(Q)[2] == 5


def test_racing_pushes_open_one_window(driver: Driver) -> None:
    """Spec 5: two pushes racing on an idle queue must yield one `new` and one `yes`."""
    push = [Op.PUSH, Q, None, [b"x"], None, 0]
    assert driver.batch(push, push, push) == [[NEW], [YES], [YES]]


def test_all_kinds_of_push_share_a_window(driver: Driver) -> None:
    """Spec 5 and 11: a window may be opened by one API and joined by the other."""
    assert driver.push_item(Q, b"1", b"text/plain") == NEW
    assert driver.push(Q, b"2", b"3") == [YES, YES]
    assert driver.push_each(b"q", b"4") == [(Q, YES)]
    driver.wait(10)
    assert driver.drain(Q) == [[b"1", b"2", b"3", b"4"]]


def test_an_open_window_counts_as_one_and_is_left_out_by_pulls(driver: Driver) -> None:
    """Spec 9.3: `size` counts an open window as 1."""
    driver.push(Q, b"1", b"2", b"3")
    driver.set(Q, accum=0)
    driver.push(Q, b"plain")
    assert driver.size(Q) == 2


def test_an_open_window_survives_a_snapshot(driver: Driver) -> None:
    """Pushes after the restore join the window that was open before it."""
    driver.push(Q, b"1")
    restored = Driver(copied(driver.machine))
    assert restored.push(Q, b"2") == [YES]
    restored.wait(10)
    assert restored.drain(Q) == [[b"1", b"2"]]


def test_a_delivered_window_stays_closed_after_a_snapshot(driver: Driver) -> None:
    driver.push(Q, b"1")
    driver.wait(10)
    driver.put_back(Q, driver.pull_one(Q)[1])
    restored = Driver(copied(driver.machine))
    restored.now_us = driver.now_us
    assert restored.push(Q, b"2") == [NEW]


def test_a_window_costs_time_proportional_to_its_parts(driver: Driver) -> None:
    """Spec 15.16: the original copies all parts on each append; here the same list grows."""
    driver.push(Q, b"1")
    parts = driver.machine.state.queues[Q].store.delayed[0][2].content
    driver.push(Q, *[b"x"] * 1000)
    assert driver.machine.state.queues[Q].store.delayed[0][2].content is parts
    assert isinstance(parts, list)
    assert len(parts) == 1001


def test_a_compound_message_is_bounded(driver: Driver) -> None:
    """A window without room for another body takes no more, and the next one opens: everything can be delivered."""
    body = bytes(COMPOUND_BYTES_MAX // 4)
    flags = [driver.push(Q, body)[0] for _ in range(9)]
    assert flags == [NEW, YES, YES, NEW, YES, YES, NEW, YES, YES]
    driver.wait(10)
    pulled = [driver.pull_one(Q)[3] for _ in range(3)]
    assert [len(message.content) for message in pulled] == [3, 3, 3]
    assert all(sum(map(part_bytes, message.content)) <= COMPOUND_BYTES_MAX for message in pulled)


def test_a_compound_message_of_many_empty_bodies_is_bounded_too(driver: Driver) -> None:
    parts_max = COMPOUND_BYTES_MAX // part_bytes(Part(None, b"", b""))
    flags = driver.push(Q, *[b""] * (parts_max + 1))
    assert (flags.count(NEW), flags[-1]) == (2, NEW)


def test_one_body_of_the_largest_size_makes_a_message(driver: Driver) -> None:
    assert driver.push(Q, bytes(COMPOUND_BYTES_MAX)) == [NEW]
    assert driver.push(Q, b"x") == [NEW]


def test_a_window_keeps_its_size_after_a_snapshot(driver: Driver) -> None:
    half = bytes(COMPOUND_BYTES_MAX // 2 - 1000)
    assert [driver.push(Q, half)[0] for _ in range(2)] == [NEW, YES]
    driver.machine = copied(driver.machine)
    assert driver.push(Q, bytes(10_000)) == [NEW]
