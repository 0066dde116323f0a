"""Short histories that a queue can, and cannot, explain."""

from __future__ import annotations

import random

import pytest
from lmqcluster_chaos.history import Event
from lmqcluster_chaos.linearizability import is_linearizable

from .planted import Writer


def verdict(writer: Writer) -> bool | None:
    return is_linearizable(writer.events)


def test_overlapping_operations_may_take_effect_in_any_order() -> None:
    w = Writer("q")
    w.push("a", 1, takes_s=5)
    w.push("b", 2, takes_s=5)
    w.pull("b", "r1", 8)
    w.pull("a", "r2", 9)
    w.add("pull", 10)
    assert verdict(w) is True


def test_order_that_time_settles_must_be_kept() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.push("b", 2)
    w.pull("b", "r1", 3)
    w.pull("a", "r2", 4)
    assert verdict(w) is False


def test_a_message_that_was_acknowledged_must_be_seen() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.add("pull", 2)
    assert verdict(w) is False


def test_a_message_goes_to_one_consumer() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.pull("a", "r1", 2)
    w.pull("a", "r2", 3)
    assert verdict(w) is False


def test_one_receipt_is_acked_once() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.pull("a", "r1", 2)
    w.ack("r1", 3)
    w.ack("r1", 4, outcome="failed")
    assert verdict(w) is True
    w.ack("r1", 5)
    assert verdict(w) is False


def test_a_refusal_needs_a_reason() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.pull("a", "r1", 2)
    w.ack("r1", 3, outcome="failed")
    assert verdict(w) is False


def test_an_unknown_push_may_take_effect_late_or_never() -> None:
    w = Writer("q")
    w.push("a", 1, outcome="unknown")
    w.add("pull", 2)
    assert verdict(w) is True
    w.pull("a", "r1", 9)
    assert verdict(w) is True


def test_an_unknown_pull_may_have_held_a_message_for_a_while() -> None:
    w = Writer("q")
    w.push("a", 1)
    w.push("b", 2)
    w.add("pull", 3, outcome="unknown")
    w.pull("b", "r1", 4)
    w.pull("a", "r2", 5)
    assert verdict(w) is True
    w.pull("a", "r3", 6)
    assert verdict(w) is False


def test_a_search_that_is_too_long_says_so() -> None:
    w = Writer("q")
    for number in range(12):
        w.push(f"v{number}", 1, takes_s=60)
    w.pull("v99", "r1", 100)
    assert is_linearizable(w.events, steps_max=1000) is None


def sequential_history(seed: int) -> list[Event]:
    """What a real queue does, one thing at a time, told as if operations had overlapped."""
    rng = random.Random(seed)
    w = Writer("q")
    waiting: list[str] = []
    leased: list[str] = []
    for number in range(14):
        at_s, takes_s = number + rng.uniform(-1.5, 0), rng.uniform(1.5, 4)
        kind = rng.choice(("push", "push", "pull", "ack"))
        if kind == "push":
            waiting.append(f"v{number}")
            w.push(f"v{number}", at_s, takes_s=takes_s)
        elif kind == "pull" and waiting:
            leased.append(f"r-{waiting[0]}")
            w.pull(waiting.pop(0), leased[-1], at_s, takes_s=takes_s)
        elif kind == "pull":
            w.add("pull", at_s, takes_s=takes_s)
        elif leased:
            w.ack(leased.pop(rng.randrange(len(leased))), at_s, takes_s=takes_s)
    return w.events


@pytest.mark.parametrize("seed", range(20))
def test_every_history_of_a_real_queue_is_explained(seed: int) -> None:
    assert is_linearizable(sequential_history(seed)) is True
