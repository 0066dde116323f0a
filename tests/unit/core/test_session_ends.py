"""Sessions that end in several batches because they hold much: ended for their clients from the first batch on."""

from __future__ import annotations

import pytest

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.notices import Ended
from lmqcluster.core.sessions import sessions
from lmqcluster.core.state import state
from tests.property.driver import Driver, bodies, copied, records

Q = b"q"
HELD = 9
STEPS = 2


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine that releases two things per batch, with a session that holds nine messages and a lock."""
    for module in (sessions, state):
        monkeypatch.setattr(module, "END_STEPS", STEPS)
    driver = Driver()
    driver.push(Q, *[b"%d" % number for number in range(HELD)])
    assert driver.do(Op.OPEN_SESSION, 1_000_000) == 1
    assert len(driver.do(Op.PULL_IN_SESSION, Q, HELD, 0, 1, 1, -1)) == HELD
    assert driver.do(Op.LOCK, b"l", 1, True) == 1
    return driver


@pytest.mark.parametrize("end", ["time", "command"])
def test_a_session_that_ends_in_several_batches_stays_ended(driver: Driver, end: str) -> None:
    assert driver.do(Op.OPEN_SESSION, 60_000_000) == 2
    if end == "time":
        driver.wait(1.5)
    else:
        assert driver.do(Op.END_SESSION, 1) is True
    batches = 0
    while driver.machine.state.sessions.knows(1):
        batches += 1
        assert driver.do(Op.RENEW_SESSION, 1) is False
        assert driver.do(Op.END_SESSION, 1) is False
        for command in ([Op.PULL_IN_SESSION, Q, 1, 0, 1, 1, -1], [Op.LOCK, b"m", 1, True], [Op.UNLOCK, b"l", 1]):
            (refused,) = driver.batch(command)
            if not driver.machine.state.sessions.knows(1):
                break
            assert isinstance(refused, Fault)
            assert refused.code == "session_lost"
        assert records(copied(driver.machine)) == records(driver.machine)
        assert batches < HELD
    assert batches > 0
    assert bodies(driver.pull(Q, HELD)) == [b"%d" % number for number in range(HELD)]
    assert driver.do(Op.LOCK, b"l", 2, False) == 2


def test_a_session_has_released_everything_when_its_end_is_reported(driver: Driver) -> None:
    driver.wait(1.5)
    ended = False
    while not ended:
        driver.sequence += 1
        applied = driver.machine.apply(driver.now_us, driver.origin, driver.incarnation, driver.sequence, [])
        ended = Ended(1) in applied.notices
        assert ended == (not driver.machine.state.sessions.knows(1))
        assert not ended or len(driver.machine.state.queues[Q].store.leases.messages) == 0


@pytest.mark.parametrize("end", ["time", "command"])
def test_a_session_keeps_its_locks_until_its_messages_are_back(driver: Driver, end: str) -> None:
    """The next holder of the lock finds every message."""
    driver.do(Op.OPEN_SESSION, 60_000_000)
    assert driver.do(Op.LOCK, b"l", 2, True) == 0
    if end == "time":
        driver.wait(1.5)
    else:
        driver.do(Op.END_SESSION, 1)
    batches = 0
    while driver.machine.state.queues[Q].store.leases.messages:
        assert driver.machine.state.locks.token(b"l") == 1
        driver.tick()
        batches += 1
        assert batches < HELD
    assert batches > 1
    driver.tick()
    assert driver.do(Op.LOCK, b"l", 2, False) == 2


def test_the_next_in_line_for_a_lock_gets_a_larger_token() -> None:
    driver = Driver()
    for session in (1, 2):
        driver.do(Op.OPEN_SESSION, 60_000_000)
        driver.do(Op.LOCK, b"l", session, True)
    assert driver.machine.state.locks.token(b"l") == 1
    assert driver.do(Op.UNLOCK, b"l", 1) is True
    assert driver.machine.state.locks.token(b"l") == driver.do(Op.LOCK, b"l", 2, False) == 2


def test_a_session_lives_for_its_ttl_from_its_last_renewal() -> None:
    driver = Driver()
    driver.do(Op.OPEN_SESSION, 1_000_000)
    driver.wait(0.5)
    assert driver.do(Op.RENEW_SESSION, 1) is True
    driver.wait(0.999999)
    assert driver.do(Op.RENEW_SESSION, 1) is True
    driver.wait(1)
    assert driver.do(Op.RENEW_SESSION, 1) is False


def test_messages_of_a_session_return_before_later_ones() -> None:
    driver = Driver()
    driver.do(Op.OPEN_SESSION, 60_000_000)
    driver.push(Q, b"1")
    driver.wait(1)
    driver.push(Q, b"2")
    assert bodies(driver.do(Op.PULL_IN_SESSION, Q, 1, 0, 1, 1, -1)) == [b"1"]
    driver.wait(1)
    driver.do(Op.END_SESSION, 1)
    assert driver.drain(Q) == [b"1", b"2"]


def test_exhausted_messages_of_a_session_become_dead_letters_in_order() -> None:
    driver = Driver()
    driver.set(Q, retry=0, dead_letter_queue="dead")
    driver.do(Op.OPEN_SESSION, 60_000_000)
    expected = [b"%d" % number for number in range(HELD)]
    driver.push(Q, *expected)
    assert len(driver.do(Op.PULL_IN_SESSION, Q, HELD, 0, 1, 1, -1)) == HELD
    driver.do(Op.END_SESSION, 1)
    assert driver.drain(b"dead") == expected
