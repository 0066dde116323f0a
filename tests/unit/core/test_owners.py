"""The state of one owner is bounded and isolated: attacks of one token on another."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Fault, Op, TokenResult
from lmqcluster.core.handlers.transactions import Conflict
from lmqcluster.core.owners.owner_table import is_random
from lmqcluster.core.owners.quotas import Kind, Quotas
from tests.property.driver import Driver, copied, records

Q = b"q"
VICTIM, THIEF = b"victim", b"thief"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def _produce(driver: Driver, owner: bytes, producer: bytes, first: int, *contents: bytes) -> Any:
    return driver.do(Op.PUSH, Q, None, list(contents), producer, first, owner)


def _keyed(driver: Driver, owner: bytes, key: bytes, content: bytes) -> Any:
    (result,) = driver.batch([Op.PUSH_ROWS, Q, [[content, None, b"", key, []]], owner])
    return result if isinstance(result, Fault) else [flag for flag, _sequence in result]


def test_201_000_producers_of_one_token_evict_no_other_token_s(driver: Driver) -> None:
    """The attack took 12 seconds; afterwards the victim's repeated push was stored twice."""
    _produce(driver, VICTIM, b"worker", 1, b"once")
    for start in range(0, 201_000, 1_000):
        driver.batch(*[[Op.PUSH, b"other", None, [], b"%d" % (start + index), 1, THIEF] for index in range(1_000)])
    _produce(driver, VICTIM, b"worker", 1, b"once")
    assert driver.drain(Q) == [b"once"]
    assert driver.machine.state.quotas.used(Kind.PRODUCERS, THIEF) == 200_000


def test_a_producer_of_the_same_name_is_another_one_for_another_owner(driver: Driver) -> None:
    _produce(driver, THIEF, b"worker", 1_000, b"thief's")
    _produce(driver, VICTIM, b"worker", 1, b"stored")
    assert driver.drain(Q) == [b"thief's", b"stored"]


def test_a_producer_without_an_owner_can_continue_with_one(driver: Driver) -> None:
    """A client that reconnects after a rolling upgrade, or with its first token, repeats its earlier pushes."""
    _produce(driver, b"", b"worker", 1, b"1", b"2")
    _produce(driver, VICTIM, b"worker", 1, b"1", b"2", b"3")
    assert driver.drain(Q) == [b"1", b"2", b"3"]
    assert driver.machine.state.quotas.used(Kind.PRODUCERS, b"") == 0


def test_a_key_of_another_owner_cannot_be_used_up(driver: Driver) -> None:
    """A key that can be guessed must not suppress another owner's push."""
    _keyed(driver, THIEF, b"order-1", b"rubbish")
    assert _keyed(driver, VICTIM, b"order-1", b"order") == [0]
    assert driver.drain(Q) == [b"rubbish", b"order"]


def test_a_key_with_another_body_is_refused_and_nothing_stored(driver: Driver) -> None:
    _keyed(driver, VICTIM, b"k", b"body")
    assert _keyed(driver, VICTIM, b"k", b"body") == [4]
    assert _keyed(driver, VICTIM, b"k", b"other body").code == "key_reused"
    both = [[b"new", None, b"", None, []], [b"other body", None, b"", b"k", []]]
    assert driver.batch([Op.PUSH_ROWS, Q, both, VICTIM])[0].code == "key_reused"
    twice = [[b"one", None, b"", b"fresh", []], [b"two", None, b"", b"fresh", []]]
    assert driver.batch([Op.PUSH_ROWS, Q, twice, VICTIM])[0].code == "key_reused"
    assert driver.drain(Q) == [b"body"]


def test_keys_have_quotas(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota filled by one token affects that token only, and a refused command has stored nothing."""
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 3})
    three = [[b"x", None, b"", b"%d" % index, []] for index in range(3)]
    assert driver.do(Op.PUSH_ROWS, Q, three, THIEF) == [(0, 1), (0, 2), (0, 3)]
    refused = [[b"x", None, b"", None, []], [b"x", None, b"", b"3", []]]
    assert driver.batch([Op.PUSH_ROWS, Q, refused, THIEF])[0].code == "quota_exceeded"
    assert len(driver.machine.state.queues[Q]) == 3
    assert _keyed(driver, VICTIM, b"k", b"x") == [0]
    driver.wait(600)
    driver.tick()
    assert _keyed(driver, THIEF, b"3", b"x") == [0]


def test_a_transaction_may_use_all_remaining_keys_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quotas, "LIMITS", {**Quotas.LIMITS, Kind.KEYS: 5})
    driver = Driver()
    _keyed(driver, THIEF, b"0", b"x")

    def push(*keys: bytes) -> Any:
        operations = [[Op.PUSH_ROWS, Q, [[b"x", None, b"", key, []]]] for key in keys]
        return driver.do(Op.TRANSACTION, operations, THIEF)

    refused = push(b"1", b"2", b"3", b"4", b"5")
    assert isinstance(refused, Conflict)
    assert (refused.failed, refused.code) == (4, "quota_exceeded")
    # A repeated key, and one known from before, use none.
    assert [flag for flag, _sequence in push(b"1", b"0", b"1", b"2", b"3", b"4")] == [0, 4, 4, 0, 0, 0]
    assert driver.machine.state.quotas.used(Kind.KEYS, THIEF) == 5
    assert push(b"5").code == "quota_exceeded"
    assert driver.drain(Q) == [b"x"] * 5


def test_10_010_subscriptions_of_one_token_leave_room_for_others(driver: Driver) -> None:
    """The attack filled the table for 30 days in 4.5 seconds; new jobs failed with a bare ValueError."""
    commands = [[Op.SETTLE_BATCHES, b"s%d" % index, 1, 0, THIEF] for index in range(10_010)]
    results = driver.batch(*commands)
    refused = [one for one in results if isinstance(one, Fault)]
    assert (len(refused), {one.code for one in refused}) == (8_010, {"quota_exceeded"})
    assert driver.do(Op.SETTLE_BATCHES, b"job", 1, 0, VICTIM) == ([], False)


def _token(driver: Driver, name: bytes, principal: bytes = b"", lifetime_us: int = 0) -> Any:
    return driver.do(Op.SET_TOKEN, name, name[:1] * 32, 2, b"", lifetime_us, True, driver.now_us, principal)


def test_the_state_of_a_principal_outlives_its_tokens(driver: Driver) -> None:
    """Tokens are created and end in every order, by command and by time; no lease ends, and no message
    returns to its queue.
    """
    assert _token(driver, b"one", THIEF, 3_600_000_000) == TokenResult.DONE
    driver.push(Q, *[b"%d" % number for number in range(5)])
    session = driver.do(Op.CLAIM, b"s", THIEF)
    driver.do(Op.RESERVE, b"s", 1, Q, True, 5, 86_400_000_000, session, THIEF)
    _keyed(driver, THIEF, b"k", b"x")
    driver.do(Op.PUSH_STREAM, Q, [[b"x", None, b""]], b"job", b"stream", 0, b"note", False, THIEF)
    before = driver.machine.state.quotas.kept(THIEF)
    driver.wait(300)
    assert _token(driver, b"two", THIEF) == TokenResult.DONE
    driver.do(Op.DELETE_TOKEN, b"one", True)
    driver.do(Op.DELETE_TOKEN, b"two", True)
    driver.tick(5)
    assert driver.machine.state.quotas.kept(THIEF) == before
    assert driver.machine.state.expiry.next_us > driver.now_us
    driver.wait(3_600)
    driver.tick(5)
    # Idempotency keys expire after their window.
    assert driver.machine.state.quotas.kept(THIEF) == {Kind.SUBSCRIPTIONS: 1, Kind.MARKS: 1, Kind.NOTE_BYTES: 4}
    assert records(copied(driver.machine)) == records(driver.machine)
    assert _token(driver, b"three", THIEF) == TokenResult.DONE
    assert driver.do(Op.SETTLE_BATCHES, b"s", 1, session, THIEF) == ([], False)
    assert driver.drain(Q) == [b"x", b"x"]


def test_a_name_that_owns_state_is_not_a_new_principal(driver: Driver) -> None:
    """The attack: a token with the name of a former one, or of a principal, would get the state that is left there."""
    assert _token(driver, b"etl") == TokenResult.DONE
    driver.do(Op.CLAIM, b"s", b"etl")
    driver.do(Op.DELETE_TOKEN, b"etl", True)
    assert _token(driver, b"etl") == TokenResult.TAKEN
    assert [token.name for token in driver.machine.state.tokens] == []
    assert _token(driver, b"other", b"etl") == TokenResult.DONE
    driver.do(Op.ABANDON_BATCHES, b"s", 0, b"etl", True)
    # A token owns it now.
    assert _token(driver, b"etl") == TokenResult.TAKEN
    driver.do(Op.DELETE_TOKEN, b"other", True)
    assert _token(driver, b"etl") == TokenResult.DONE
    # The same command again is not a second token.
    assert _token(driver, b"etl") == TokenResult.DONE
    assert _token(driver, b"new", b"etl") == TokenResult.DONE
    assert [(token.name, token.principal) for token in driver.machine.state.tokens] == [
        (b"etl", b"etl"),
        (b"new", b"etl"),
    ]
    assert records(copied(driver.machine)) == records(driver.machine)


def test_principals_that_own_something_are_bounded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: tokens that are created, leave state and are deleted, each with another principal."""
    monkeypatch.setattr("lmqcluster.core.owners.tokens.PRINCIPALS_MAX", 20)
    results = []
    for index in range(25):
        name = b"%d" % index
        results.append(_token(driver, name))
        if results[-1] == TokenResult.DONE:
            driver.do(Op.CLAIM, name, name)
            driver.do(Op.DELETE_TOKEN, name, True)
    assert results == [TokenResult.DONE] * 20 + [TokenResult.CROWDED] * 5
    assert _token(driver, b"more", b"7") == TokenResult.DONE
    driver.do(Op.ABANDON_BATCHES, b"3", 0, b"", True)
    assert _token(driver, b"new") == TokenResult.DONE


def test_a_principal_uses_no_subscription_of_another(driver: Driver) -> None:
    driver.push(Q, b"1", b"2", b"3")
    session = driver.do(Op.CLAIM, b"s", VICTIM)
    driver.do(Op.RESERVE, b"s", 1, Q, True, 2, 60_000_000, session, VICTIM)
    driver.do(Op.SETTLE_BATCHES, b"unclaimed", 1, 0, VICTIM)
    before = records(driver.machine)
    for name, number in ((b"s", session), (b"s", 0), (b"unclaimed", 0)):
        for command in (
            [Op.CLAIM, name, THIEF],
            [Op.RESERVE, name, 2, Q, True, 2, 60_000_000, number, THIEF],
            [Op.RESERVE, name, 2, [Q], True, 2, 60_000_000, number, THIEF],
            [Op.RENEW, name, 1, number, 0, THIEF],
            [Op.SETTLE_BATCHES, name, 9, number, THIEF],
            [Op.ABANDON_BATCHES, name, number, THIEF],
            [Op.ABANDON_BATCHES, name, 0, THIEF, True],
        ):
            (refused,) = driver.batch(command)
            assert isinstance(refused, Fault)
            assert (refused.code, "belongs to principal 'victim', not to 'thief'" in refused.reason) == (
                "forbidden",
                True,
            )
    assert records(driver.machine)[2:] == before[2:]
    # The empty owner, which stands for administrators, may delete it.
    assert driver.do(Op.ABANDON_BATCHES, b"s", 0, b"", True) is False
    assert driver.drain(Q) == [b"1", b"2", b"3"]


def test_a_random_job_of_another_principal_cannot_be_begun_again() -> None:
    """A query that is restarted with a token of another principal would store the same rows again."""
    random, guessable = b"spark/stream/8a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001", b"spark/application/daily"
    driver, seed = Driver(), b"s" * 16
    for job in (random, guessable):
        assert driver.do(Op.BEGIN_EPOCH, job, 3, b"run", seed, VICTIM) == 0
    (refused,) = driver.batch([Op.BEGIN_EPOCH, random, 3, b"another", seed, THIEF])
    assert (refused.code, "belongs to principal 'victim'" in refused.reason) == ("forbidden", True)
    # Every owner has a separate job of a name that can be guessed, so that none can block another.
    assert driver.do(Op.BEGIN_EPOCH, guessable, 3, b"another", seed, THIEF) == 0
    assert records(copied(driver.machine)) == records(driver.machine)
    twin = Driver(machine=copied(driver.machine))
    assert twin.batch([Op.BEGIN_EPOCH, random, 3, b"another", seed, THIEF]) == [refused]
    assert driver.do(Op.BEGIN_EPOCH, random, 3, b"another", seed, VICTIM) == 0
    driver.do(Op.END_JOBS, [random], VICTIM)
    assert driver.do(Op.BEGIN_EPOCH, random, 3, b"another", seed, THIEF) == 0


def test_a_task_under_another_principal_does_not_store_a_stream_again() -> None:
    """The token of a write is replaced by one of another principal between two attempts of a task."""
    driver, job = Driver(), b"spark/batch/8a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001"

    def push(owner: bytes, stream: bytes, first: int = 0, job: bytes = job) -> Any:
        return driver.batch([Op.PUSH_STREAM, Q, [[b"x", None, b""]], job, stream, first, b"", False, owner])[0]

    assert push(VICTIM, b"0") == [0]
    assert [push(THIEF, stream).code for stream in (b"0", b"1")] == ["forbidden"] * 2
    assert (push(VICTIM, b"0"), push(VICTIM, b"1"), push(VICTIM, b"0", 1)) == ([], [0], [0])
    assert push(THIEF, b"0", job=b"spark/application/daily") == [0]
    # A job begun before there were tokens continues with one.
    assert (push(b"", b"0", job=b"x" + job), push(VICTIM, b"0", 1, job=b"x" + job)) == ([0], [0])
    assert push(THIEF, b"0", job=b"x" + job).code == "forbidden"
    assert driver.drain(Q) == [b"x"] * 6


def test_a_subscription_without_an_owner_belongs_to_its_first_user(driver: Driver) -> None:
    session = driver.do(Op.CLAIM, b"s", b"")
    (fenced,) = driver.batch([Op.SETTLE_BATCHES, b"s", 1, session + 1, THIEF])
    assert fenced.code == "fenced"
    assert driver.machine.state.quotas.used(Kind.SUBSCRIPTIONS, b"") == 1
    assert driver.do(Op.SETTLE_BATCHES, b"s", 1, session, VICTIM) == ([], False)
    assert [driver.machine.state.quotas.used(Kind.SUBSCRIPTIONS, owner) for owner in (b"", VICTIM)] == [0, 1]
    assert driver.batch([Op.CLAIM, b"s", THIEF])[0].code == "forbidden"
    # Clients that need no token are not excluded.
    assert driver.do(Op.CLAIM, b"s", b"") == session + 1
    assert driver.machine.state.batches.subscriptions[b"s"].owner == VICTIM


def test_the_use_of_owners_follows_their_state(driver: Driver) -> None:
    quotas = driver.machine.state.quotas
    assert (quotas.owners, quotas.owns(VICTIM)) == (0, False)
    driver.do(Op.CLAIM, b"s", VICTIM)
    _keyed(driver, VICTIM, b"k", b"x")
    assert (quotas.owns(VICTIM), quotas.kept(VICTIM)) == (True, {Kind.SUBSCRIPTIONS: 1, Kind.KEYS: 1})
    twin = copied(driver.machine).state.quotas
    assert (twin.owners, twin.kept(VICTIM)) == (quotas.owners, quotas.kept(VICTIM))
    driver.do(Op.ABANDON_BATCHES, b"s", 0, VICTIM, True)
    assert quotas.owns(VICTIM)
    driver.wait(600)
    driver.tick()
    assert (quotas.owns(VICTIM), quotas.kept(VICTIM)) == (False, {})


def test_a_snapshot_keeps_owners_and_counts(driver: Driver) -> None:
    _produce(driver, VICTIM, b"worker", 1, b"1")
    _keyed(driver, VICTIM, b"k", b"2")
    _keyed(driver, THIEF, b"k", b"3")
    driver.do(Op.CLAIM, b"s", VICTIM)
    driver.do(Op.PUSH_STREAM, Q, [[b"x", None, b""]], b"job", b"stream", 0, b"note", False, THIEF)
    twin = copied(driver.machine)
    for kind in Kind:
        for owner in (b"", VICTIM, THIEF):
            assert twin.state.quotas.used(kind, owner) == driver.machine.state.quotas.used(kind, owner)
    assert records(twin) == records(driver.machine)
    assert twin.state.batches.last_session == 1


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (b"spark-8a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001", True),
        (b"8a5cb1a0-5f5e-4a55-bd7e-0c5b1f6f0001", True),
        (b"8a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001 ", False),
        (b"8a5cb1a0-5f5e-1a55-9d7e-0c5b1f6f0001", False),
        (b"8a5cb1a0-5f5e-4a55-cd7e-0c5b1f6f0001", False),
        (b"8A5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001", False),
        (b"a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f0001", False),
        (b"xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx", False),
        (b"", False),
    ],
)
def test_only_names_with_a_random_uuid_at_their_end_cannot_be_guessed(name: bytes, wanted: bool) -> None:
    assert is_random(name) is wanted
