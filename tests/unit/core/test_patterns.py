"""LMQ specification 4, 8.4 and 8.5: push to all queues and pull from any queue, of those that a node has named."""

from __future__ import annotations

from tests.property.driver import Driver, bodies

NO, NEW, YES = 0, 1, 2


def _names(deliveries: list[tuple[bytes, int, int, object]]) -> list[bytes]:
    return [delivery[0] for delivery in deliveries]


def test_push_each_copies_into_every_matching_queue_sorted_by_name() -> None:
    """Spec 8.4: unanchored match on existing queues; the result is sorted by name."""
    driver = Driver()
    for name in (b"multi/b", b"multi/a", b"other"):
        driver.push(name)
    driver.set(b"multi/b", accum=1000)
    assert driver.push_each(b"ulti", b"x") == [(b"multi/a", NO), (b"multi/b", NEW)]
    assert driver.drain(b"multi/a") == [b"x"]
    assert driver.drain(b"other") == []


def test_push_each_with_an_empty_pattern_reaches_every_queue() -> None:
    """Spec 8.5: empty `qre` matches every queue."""
    driver = Driver()
    for name in (b"b", b"a", b"\xff"):
        driver.push(name)
    assert [name for name, _ in driver.push_each(b"", b"x")] == [b"a", b"b", b"\xff"]


def test_copies_are_independent_messages() -> None:
    """Spec 8.4: each queue gets a copy; acking one leaves the others."""
    driver = Driver()
    driver.push(b"a")
    driver.push(b"b")
    driver.push_each(b"", b"x")
    assert driver.ack(b"a", driver.pull_one(b"a")[1]) == [True]
    assert driver.drain(b"b") == [b"x"]


def test_push_each_uses_each_queues_properties() -> None:
    """Spec 8.4 and 3: like a push to each."""
    driver = Driver()
    driver.set(b"a", retry=7)
    driver.defaults((b"b", {"retry": 0}))
    driver.push(b"b")
    driver.push_each(b"", b"x")
    assert [retry for _, _, retry, _ in driver.pull_first(b"", 2)] == [7, 0]


def test_pull_first_takes_one_message_and_leaves_the_others_untouched() -> None:
    """Spec 4: exactly one message is consumed; the others keep their position and their retry count."""
    driver = Driver()
    driver.push(b"a", b"1")
    driver.push(b"b", b"2")
    assert _names(driver.pull_first(b"a|b")) == [b"a"]
    assert driver.pull_one(b"b")[2] == 2


def test_pull_first_is_fair_by_time() -> None:
    """Spec 14 and 15.11: no queue starves behind the backlog of another; the earliest message is delivered first."""
    driver = Driver()
    for queue, body in ((b"z", b"1"), (b"a", b"2"), (b"z", b"3"), (b"a", b"4")):
        driver.push(queue, body)
        driver.wait(1)
    assert bodies(driver.pull_first(b"", 4)) == [b"1", b"2", b"3", b"4"]


def test_pull_first_breaks_ties_by_name() -> None:
    driver = Driver()
    driver.push(b"b", b"1", b"2")
    driver.push(b"a", b"3", b"4")
    assert _names(driver.pull_first(b"", 4)) == [b"a", b"a", b"b", b"b"]


def test_pull_first_follows_nacks_timeouts_and_windows() -> None:
    """Spec 2.2 and 4: pull-any sees every message at its due time."""
    driver = Driver()
    driver.push(b"nacked", b"1")
    driver.push(b"timed-out", b"2")
    driver.set(b"window", accum=20_000)
    driver.push(b"window", b"3")
    nacked = driver.pull_one(b"nacked")[1]
    driver.pull(b"timed-out")
    assert driver.pull_first(b"", 9) == []
    driver.wait(10)
    driver.nack(b"nacked", nacked)
    driver.wait(20)
    assert _names(driver.pull_first(b"", 9)) == [b"nacked", b"window", b"timed-out"]


def test_pull_first_follows_a_lease_that_was_shortened() -> None:
    """Spec 3.2: an extension may let a lease end earlier; pull-any must not miss it."""
    driver = Driver()
    driver.push(b"q", b"x")
    taken = driver.pull_first(b"q")[0][1]
    assert driver.pull_first(b"q") == []
    driver.set(b"q", timeout=1)
    driver.extend(b"q", taken)
    driver.wait(1)
    assert bodies(driver.pull_first(b"q")) == [b"x"]


def test_pull_first_follows_a_delivery_that_ended_before_it_began() -> None:
    """Spec 3: with a negative timeout a delivery lowers the queue's earliest due time."""
    driver = Driver()
    driver.push(b"a", b"1")
    driver.wait(2)
    driver.set(b"b", timeout=-5)
    driver.push(b"b", b"2")
    assert driver.pull_first(b"", 0) == []
    driver.pull(b"b")
    assert bodies(driver.pull_first(b"")) == [b"2"]


def test_pull_first_passes_over_exhausted_messages() -> None:
    """Spec 2.2: they are dropped, and the next queue is tried."""
    driver = Driver()
    driver.set(b"a", retry=0)
    driver.push(b"a", b"once", b"once")
    driver.pull(b"a", 2)
    driver.wait(31)
    driver.push(b"b", b"x")
    assert bodies(driver.pull_first(b"")) == [b"x"]
    assert driver.size(b"a") == 0


def test_pull_first_finds_queues_created_after_the_pattern_was_first_used() -> None:
    """Spec 4: including queues created after the request was received."""
    driver = Driver()
    assert driver.pull_first(b"^new") == []
    driver.push(b"new/1", b"x")
    driver.push(b"not/new", b"y")
    assert bodies(driver.pull_first(b"^new", 5)) == [b"x"]


def test_patterns_match_bytes() -> None:
    """Spec 7.1: names are byte strings, UTF-8 is not enforced."""
    driver = Driver()
    driver.push(b"\xfe\xff", b"x")
    assert bodies(driver.pull_first(b"\xff$")) == [b"x"]
