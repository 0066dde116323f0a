"""The reasons of refused pushes: the queue that refuses, and the limit that is reached."""

from __future__ import annotations

from lmqcluster.core import Op, PushFlag
from tests.property.driver import Driver

Q = b"q"


def test_a_refusal_names_the_queue_and_the_limit_that_is_reached() -> None:
    driver = Driver()
    driver.set(Q, max_items=2, max_size=100, max_item_size=60)
    driver.push(Q, b"x" * 60)

    def reasons(body: bytes) -> set[str]:
        """Return the reasons of a plain push, of an attempt, of a push with options and of a numbered one."""
        (plain,) = driver.do(Op.PUSH, Q, None, [body])
        ((attempt, _sequence),) = driver.do(Op.PUSH_ATTEMPTS, Q, [[body, None, b"", None, []]], b"")
        rows = driver.batch([Op.PUSH_ROWS, Q, [[body, None, b"", None, []]]])[0]
        ((numbered, _sequence),) = driver.do(Op.PUSH_ROWS, Q, [[body, None, b"", None, []]], b"", b"producer", 1)
        return {plain.reason, attempt.reason, rows.reason, numbered.reason}

    assert reasons(b"x" * 61) == {"the body of 61 bytes is too large for the queue 'q': max_item_size is 60"}
    driver.push(Q, b"x" * 10)
    assert reasons(b"") == {"the queue 'q' is full: max_items is 2; pull messages, or push later"}
    driver.set(Q, max_items=3, max_size=70)
    assert reasons(b"") == {"the queue 'q' is full: max_size is 70; pull messages, or push later"}
    driver.set(Q, max_size=0, discard_old_when_full=True)
    assert reasons(b"") == {"the queue 'q' is full: max_size is 0; pull messages, or push later"}


def test_a_refusal_through_an_alias_names_the_queue_that_is_full() -> None:
    driver = Driver()
    driver.set(Q, destination_queues=["a", "b"])
    driver.set(b"b", max_items=0)
    (flag,) = driver.do(Op.PUSH, Q, None, [b"x"])
    assert (flag, flag.reason) == (PushFlag.FULL, "the queue 'b' is full: max_items is 0; pull messages, or push later")
