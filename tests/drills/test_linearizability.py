"""Short histories that a queue can, and cannot, explain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations, product

import pytest
from lmqcluster_chaos.judges.linearizability import is_linearizable
from lmqcluster_chaos.load.history import Event

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


def test_the_order_of_sequential_operations_must_be_kept() -> None:
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


def test_a_search_that_is_too_long_is_reported() -> None:
    w = Writer("q")
    for number in range(12):
        w.push(f"v{number}", 1, takes_s=60)
    w.pull("v99", "r1", 100)
    assert is_linearizable(w.events, steps_max=1000) is None


def sequential_history(seed: int) -> list[Event]:
    """Return the operations of a real sequential queue, recorded as if they had overlapped."""
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


def any_history(seed: int) -> list[Event]:
    """Return half a dozen operations that a queue may or may not have done; no pull ends unknown."""
    rng = random.Random(seed)
    w = Writer("q")
    receipts: list[str] = []
    for number in range(6):
        at_s, takes_s = rng.randrange(8), rng.randrange(5)
        kind = rng.choice(("push", "push", "pull", "pull", "ack"))
        outcome = rng.choices(("ok", "unknown"), (4, 1))[0]
        if kind == "push":
            w.push(f"v{number}", at_s, takes_s=takes_s, outcome=outcome)
        elif kind == "ack" and receipts:
            reported = rng.choice((outcome, "failed"))
            w.ack(rng.choice(receipts), at_s, takes_s=takes_s, outcome=reported)
        else:
            values = [event.value for event in w.events if event.op == "push"]
            if values and rng.random() < 0.8:
                receipts.append(f"r{number}")
                w.pull(rng.choice(values) or "", receipts[-1], at_s, takes_s=takes_s)
            else:
                w.add("pull", at_s, takes_s=takes_s)
    return w.events


def fits(order: Sequence[Event], values: dict[str, str]) -> bool:
    """Return whether a sequential queue can do this."""
    waiting: list[str] = []
    leased: set[str] = set()
    for event in order:
        if event.op == "push":
            waiting.append(event.value or "")
        elif event.op == "pull":
            if (waiting[0] if waiting else None) != event.value:
                return False
            leased.update(waiting[:1])
            del waiting[:1]
        elif (values[event.receipt or ""] in leased) != (event.outcome != "failed"):
            return False
        else:
            leased.discard(values[event.receipt or ""])
    return True


def tried_in_every_order(events: Sequence[Event]) -> bool:
    """Return the verdict by exhaustive search."""
    values = {event.receipt: event.value or "" for event in events if event.op == "pull" and event.receipt}
    unknown = [event for event in events if event.outcome == "unknown"]
    for took_effect in product((True, False), repeat=len(unknown)):
        never = {id(event) for event, took in zip(unknown, took_effect, strict=True) if not took}
        for order in permutations([event for event in events if id(event) not in never]):
            in_time = all(
                later.outcome == "unknown" or later.end_us >= earlier.time_us
                for position, earlier in enumerate(order)
                for later in order[position + 1 :]
            )
            if in_time and fits(order, values):
                return True
    return False


def test_the_search_equals_an_exhaustive_search() -> None:
    answers = []
    for seed in range(150):
        events = any_history(seed)
        answers.append(is_linearizable(events))
        assert answers[-1] is tried_in_every_order(events), seed
    assert 30 < sum(answer is True for answer in answers) < 120
