"""What one owner keeps is bounded, and nothing of it is another's: attacks of one token on another."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.quotas import Kind, Quotas
from lmqcluster.core.transactions import Conflict
from tests.property.driver import Driver, copied, records

Q = b"q"
VICTIM, THIEF = b"victim", b"thief"


@pytest.fixture
def driver() -> Driver:
    """A machine of version 2."""
    return Driver(version=2)


def _produce(driver: Driver, owner: bytes, producer: bytes, first: int, *contents: bytes) -> Any:
    return driver.do(Op.PUSH, Q, None, list(contents), producer, first, owner)


def _keyed(driver: Driver, owner: bytes, key: bytes, content: bytes, scope: bytes = b"") -> Any:
    return driver.batch([Op.PUSH_ITEMS, Q, [[content, None, [], key]], scope, owner])[0]


def test_201_000_producers_of_one_token_evict_no_other_token_s(driver: Driver) -> None:
    """The attack took 12 seconds; then the victim's repeated push was stored twice."""
    _produce(driver, VICTIM, b"worker", 1, b"once")
    for start in range(0, 201_000, 1_000):
        driver.batch(*[[Op.PUSH, b"other", None, [], b"%d" % (start + index), 1, THIEF] for index in range(1_000)])
    _produce(driver, VICTIM, b"worker", 1, b"once")
    assert driver.drain(Q) == [b"once"]
    assert driver.machine.quotas.used(Kind.PRODUCERS, THIEF) == 200_000


def test_a_producer_of_the_same_name_is_another_one_for_another_owner(driver: Driver) -> None:
    _produce(driver, THIEF, b"worker", 1_000, b"thief's")
    _produce(driver, VICTIM, b"worker", 1, b"stored")
    assert driver.drain(Q) == [b"thief's", b"stored"]


def test_a_producer_of_the_time_before_owners_goes_on_with_one(driver: Driver) -> None:
    """A client that connects again after a rolling upgrade, or with its first token, repeats what it has sent before."""
    _produce(driver, b"", b"worker", 1, b"1", b"2")
    _produce(driver, VICTIM, b"worker", 1, b"1", b"2", b"3")
    assert driver.drain(Q) == [b"1", b"2", b"3"]
    assert driver.machine.quotas.used(Kind.PRODUCERS, b"") == 0


def test_nobody_lets_go_of_another_s_scope(driver: Driver) -> None:
    _keyed(driver, VICTIM, b"k", b"once", b"job")
    assert driver.do(Op.FORGET_KEYS, [b"job"], THIEF) == 0
    _keyed(driver, VICTIM, b"k", b"once", b"job")
    assert driver.drain(Q) == [b"once"]
    assert driver.do(Op.FORGET_KEYS, [b"job"], VICTIM) == 1


def test_nobody_uses_up_another_s_key(driver: Driver) -> None:
    """A key that can be guessed must not swallow somebody else's push."""
    _keyed(driver, THIEF, b"order-1", b"rubbish")
    assert _keyed(driver, VICTIM, b"order-1", b"order") == [0]
    assert driver.drain(Q) == [b"rubbish", b"order"]


def test_a_key_with_another_body_is_refused_and_nothing_stored(driver: Driver) -> None:
    _keyed(driver, VICTIM, b"k", b"body")
    assert _keyed(driver, VICTIM, b"k", b"body") == [4]
    assert _keyed(driver, VICTIM, b"k", b"other body").code == "key_reused"
    both = [[b"new", None, [], None], [b"other body", None, [], b"k"]]
    assert driver.batch([Op.PUSH_ITEMS, Q, both, b"", VICTIM])[0].code == "key_reused"
    twice = [[b"one", None, [], b"fresh"], [b"two", None, [], b"fresh"]]
    assert driver.batch([Op.PUSH_ITEMS, Q, twice, b"", VICTIM])[0].code == "key_reused"
    assert driver.drain(Q) == [b"body"]


def test_keys_and_scopes_have_quotas(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one token fills is full for that token only, and a refused command has stored nothing."""
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 3, Kind.SCOPES: 1})
    three = [[b"x", None, [], b"%d" % index] for index in range(3)]
    assert driver.do(Op.PUSH_ITEMS, Q, three, b"", THIEF) == [0, 0, 0]
    refused = [[b"x", None, [], None], [b"x", None, [], b"3"]]
    assert driver.batch([Op.PUSH_ITEMS, Q, refused, b"", THIEF])[0].code == "quota_exceeded"
    assert len(driver.machine.queues[Q]) == 3
    assert _keyed(driver, VICTIM, b"k", b"x", b"job") == [0]
    assert _keyed(driver, VICTIM, b"k", b"x", b"job-2").code == "quota_exceeded"
    driver.wait(600)
    driver.tick()
    assert _keyed(driver, THIEF, b"3", b"x") == [0]


def test_a_transaction_may_use_all_keys_that_are_left_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 5})
    driver = Driver(version=3)
    _keyed(driver, THIEF, b"0", b"x")

    def push(*keys: bytes) -> Any:
        operations = [[Op.PUSH_TRAITS, Q, [b"x", None, [], key, []]] for key in keys]
        return driver.do(Op.TRANSACTION, operations, THIEF)

    refused = push(b"1", b"2", b"3", b"4", b"5")
    assert isinstance(refused, Conflict)
    assert (refused.failed, refused.code) == (4, "quota_exceeded")
    # A repeated key, and one known from before, take nothing.
    assert [flag for flag, _sequence in push(b"1", b"0", b"1", b"2", b"3", b"4")] == [0, 4, 4, 0, 0, 0]
    assert driver.machine.quotas.used(Kind.KEYS, THIEF) == 5
    assert push(b"5").code == "quota_exceeded"
    assert driver.drain(Q) == [b"x"] * 5


def test_10_010_subscriptions_of_one_token_leave_room_for_others(driver: Driver) -> None:
    """The attack filled the table for 30 days in 4.5 seconds; new jobs failed with a bare ValueError."""
    commands = [[Op.SETTLE_BATCHES, b"s%d" % index, 1, 0, THIEF] for index in range(10_010)]
    results = driver.batch(*commands)
    refused = [one for one in results if isinstance(one, Fault)]
    assert (len(refused), {one.code for one in refused}) == (8_010, {"quota_exceeded"})
    assert driver.do(Op.SETTLE_BATCHES, b"job", 1, 0, VICTIM) == ([], False)


def test_what_a_token_has_ends_with_it_in_bounded_steps(driver: Driver) -> None:
    driver.do(Op.SET_TOKEN, THIEF, b"d" * 32, 2, b"", 0, True)
    driver.batch(*[[Op.SETTLE_BATCHES, b"s%d" % index, 1, 0, THIEF] for index in range(95)])
    _keyed(driver, THIEF, b"k", b"x", b"job")
    driver.do(Op.PUSH_MARKED, Q, [[b"x", None, []]], b"job", b"stream", 0, b"", False, THIEF)
    driver.push(Q, *[b"y"] * 3)
    driver.do(Op.RESERVE, b"s0", 2, Q, False, 10, 60_000_000, 0, VICTIM)
    driver.do(Op.SETTLE_BATCHES, b"victim's", 1, 0, VICTIM)
    driver.do(Op.DELETE_TOKEN, THIEF, True)
    used = [driver.machine.quotas.used(Kind.SUBSCRIPTIONS, THIEF)]
    while driver.machine.expiry.next_us <= driver.now_us:
        driver.tick()
        used.append(driver.machine.quotas.used(Kind.SUBSCRIPTIONS, THIEF))
        assert records(copied(driver.machine)) == records(driver.machine)
    assert max(before - after for before, after in pairwise(used)) <= 10
    assert [driver.machine.quotas.used(kind, THIEF) for kind in (Kind.SUBSCRIPTIONS, Kind.SCOPES, Kind.MARKS)] == [
        0,
        0,
        0,
    ]
    assert list(driver.machine.batches.subscriptions) == [b"victim's"]
    assert len(driver.machine.queues[Q].ready) + len(driver.machine.queues[Q].delayed) == 5


def test_sessions_of_a_token_end_with_it_and_what_they_held_goes_back() -> None:
    driver = Driver(version=3)
    driver.do(Op.SET_TOKEN, THIEF, b"d" * 32, 2, b"", 0, True)
    driver.push(Q, *[b"%d" % number for number in range(5)])
    hour_us = 3_600_000_000
    sessions = driver.batch(*[[Op.OPEN_SESSION, hour_us, THIEF] for _ in range(25)])
    mine = driver.do(Op.OPEN_SESSION, hour_us, VICTIM)
    driver.do(Op.PULL_IN_SESSION, Q, 3, 0, sessions[0], 1, -1, THIEF)
    assert driver.do(Op.LOCK, b"lock", sessions[0], False, THIEF) == 1
    assert driver.do(Op.LOCK, b"lock", mine, True, VICTIM) == 0
    driver.do(Op.DELETE_TOKEN, THIEF, True)
    used = [driver.machine.quotas.used(Kind.SESSIONS, THIEF)]
    while driver.machine.expiry.next_us <= driver.now_us:
        driver.tick()
        used.append(driver.machine.quotas.used(Kind.SESSIONS, THIEF))
        assert records(copied(driver.machine)) == records(driver.machine)
    assert used[-1] == 0
    assert max(before - after for before, after in pairwise(used)) <= 10
    assert driver.machine.quotas.used(Kind.PLACES, THIEF) == 0
    assert driver.do(Op.LOCK, b"lock", mine, False, VICTIM) == 2
    assert driver.do(Op.RENEW_SESSION, mine, VICTIM) is True
    assert driver.drain(Q) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_a_token_has_ends_when_it_expires(driver: Driver) -> None:
    driver.do(Op.SET_TOKEN, THIEF, b"d" * 32, 2, b"", 3_600_000_000, True)
    driver.do(Op.CLAIM, b"s", THIEF)
    driver.wait(3_599)
    driver.tick()
    assert list(driver.machine.batches.subscriptions) == [b"s"]
    driver.wait(1)
    driver.tick(2)
    assert not driver.machine.batches.subscriptions


def test_a_new_token_of_the_name_keeps_what_is_left(driver: Driver) -> None:
    driver.do(Op.SET_TOKEN, THIEF, b"d" * 32, 2, b"", 0, True)
    driver.batch(*[[Op.SETTLE_BATCHES, b"s%d" % index, 1, 0, THIEF] for index in range(25)])
    driver.batch([Op.DELETE_TOKEN, THIEF, True], [Op.SET_TOKEN, THIEF, b"e" * 32, 2, b"", 0, True])
    driver.tick(5)
    assert driver.machine.quotas.used(Kind.SUBSCRIPTIONS, THIEF) == 25


def test_a_snapshot_keeps_owners_and_counts(driver: Driver) -> None:
    _produce(driver, VICTIM, b"worker", 1, b"1")
    _keyed(driver, VICTIM, b"k", b"2")
    _keyed(driver, THIEF, b"k", b"3", b"job")
    driver.do(Op.CLAIM, b"s", VICTIM)
    driver.do(Op.PUSH_MARKED, Q, [[b"x", None, []]], b"job", b"stream", 0, b"note", False, THIEF)
    twin = copied(driver.machine)
    for kind in Kind:
        for owner in (b"", VICTIM, THIEF):
            assert twin.quotas.used(kind, owner) == driver.machine.quotas.used(kind, owner)
    assert records(twin) == records(driver.machine)
    assert twin.batches.last_session == 1
