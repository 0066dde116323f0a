"""Sessions that end in several batches, because they hold much: dead for their clients from the first one on."""

from __future__ import annotations

import pytest

from lmqcluster.core import Fault, Op, sessions, state
from lmqcluster.core.notices import Ended
from tests.property.driver import Driver, bodies, copied, records

Q = b"q"
HELD = 9
STEPS = 2


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A machine that lets go of two things in a batch, with a session that holds nine messages and a lock."""
    for module in (sessions, state):
        monkeypatch.setattr(module, "END_STEPS", STEPS)
    driver = Driver(version=3)
    driver.push(Q, *[b"%d" % number for number in range(HELD)])
    assert driver.do(Op.OPEN_SESSION, 1_000_000) == 1
    assert len(driver.do(Op.PULL_IN_SESSION, Q, HELD, 0, 1, 1, -1)) == HELD
    assert driver.do(Op.LOCK, b"l", 1, True) == 1
    return driver


@pytest.mark.parametrize("end", ["time", "command"])
def test_a_session_that_is_let_go_in_several_batches_does_not_come_back(driver: Driver, end: str) -> None:
    assert driver.do(Op.OPEN_SESSION, 60_000_000) == 2
    if end == "time":
        driver.wait(1.5)
    else:
        assert driver.do(Op.END_SESSION, 1) is True
    batches = 0
    while driver.machine.sessions.knows(1):
        batches += 1
        assert driver.do(Op.RENEW_SESSION, 1) is False
        assert driver.do(Op.END_SESSION, 1) is False
        for command in ([Op.PULL_IN_SESSION, Q, 1, 0, 1, 1, -1], [Op.LOCK, b"m", 1, True], [Op.UNLOCK, b"l", 1]):
            (refused,) = driver.batch(command)
            if not driver.machine.sessions.knows(1):
                break
            assert isinstance(refused, Fault)
            assert refused.code == "session_lost"
        assert records(copied(driver.machine)) == records(driver.machine)
        assert batches < HELD
    assert batches > 0
    assert bodies(driver.pull(Q, HELD)) == [b"%d" % number for number in range(HELD)]
    assert driver.do(Op.LOCK, b"l", 2, False) == 2


def test_a_session_has_let_go_of_everything_when_its_end_is_told(driver: Driver) -> None:
    driver.wait(1.5)
    ended = False
    while not ended:
        driver.sequence += 1
        applied = driver.machine.apply(driver.now_us, driver.origin, driver.incarnation, driver.sequence, [])
        ended = Ended(1) in applied.notices
        assert ended == (not driver.machine.sessions.knows(1))
        assert not ended or len(driver.machine.queues[Q].leases.messages) == 0
