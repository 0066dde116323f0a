"""Random tokens, and the state of their principals, against a simple model: permissions and ends."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lmqcluster.core import Fault, Op, TokenResult

from .driver import SECOND, Driver, copied, records

NAMES = (b"a", b"b", b"c")
HOUR_US = 3_600 * SECOND
DAY_S = 86_400
JOB = b"spark/stream/8a5cb1a0-5f5e-4a55-9d7e-0c5b1f6f000%d"


class Model:
    """The rows that exist, their owners, and their ends.

    Attributes:
        tokens: the principal of each token.
        subscriptions, sessions, jobs: owner and end of each.
    """

    def __init__(self) -> None:
        self.tokens: dict[bytes, bytes] = {}
        self.subscriptions: dict[bytes, tuple[bytes, int]] = {}
        self.sessions: dict[int, tuple[bytes, int]] = {}
        self.jobs: dict[bytes, tuple[bytes, int]] = {}

    def expire(self, now_us: int) -> None:
        """End expired rows."""
        self.subscriptions = {name: row for name, row in self.subscriptions.items() if row[1] > now_us}
        self.sessions = {number: row for number, row in self.sessions.items() if row[1] > now_us}
        self.jobs = {name: row for name, row in self.jobs.items() if row[1] > now_us}

    def owners(self) -> set[bytes]:
        """Return all owners."""
        rows = [*self.subscriptions.values(), *self.sessions.values(), *self.jobs.values()]
        return {owner for owner, _ in rows}

    def set_token(self, name: bytes, principal: bytes) -> TokenResult:
        """Return the result for a new token; its secret is different each time."""
        if name in self.tokens:
            return TokenResult.EXISTS
        if not principal and name in {*self.tokens.values(), *self.owners()}:
            return TokenResult.TAKEN
        self.tokens[name] = principal or name
        return TokenResult.DONE


def _code(result: Any) -> str:
    return result.code if isinstance(result, Fault) else ""


class Run:
    """A machine and a model that get the same commands."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = Driver()
        self.model = Model()
        self.digests = 0

    def step(self) -> None:
        """Perform one action, and compare."""
        if self.random.random() < 0.1:
            self.driver.wait(self.random.choice((60, 3_599, 3_601, 10 * DAY_S, 31 * DAY_S)))
        # A batch ends a bounded number of sessions.
        self.driver.tick(3)
        self.model.expire(self.driver.now_us)
        action = self.random.choice(
            (
                self.set_token,
                self.set_token,
                self.delete_token,
                self.claim,
                self.claim,
                self.forget,
                self.open,
                self.renew,
                self.write,
            )
        )
        action(self.random.choice(NAMES), self.random.choice(NAMES))
        quotas = self.driver.machine.state.quotas
        owners = self.model.owners()
        assert (quotas.owners, {name for name in NAMES if quotas.owns(name)}) == (len(owners), owners)
        assert {one.name: one.principal for one in self.driver.machine.state.tokens} == self.model.tokens
        assert set(self.driver.machine.state.batches.subscriptions) == set(self.model.subscriptions)

    def set_token(self, name: bytes, principal: bytes) -> None:
        self.digests += 1
        asked = self.random.choice((b"", principal))
        lifetime_us = self.random.choice((0, SECOND))
        digest = self.digests.to_bytes(32, "big")
        result = self.driver.do(Op.SET_TOKEN, name, digest, 2, b".*", lifetime_us, True, self.driver.now_us, asked)
        assert result == self.model.set_token(name, asked)

    def delete_token(self, name: bytes, _: bytes) -> None:
        wanted = TokenResult.DONE if self.model.tokens.pop(name, None) else TokenResult.UNKNOWN
        assert self.driver.do(Op.DELETE_TOKEN, name, True) == wanted

    def claim(self, owner: bytes, name: bytes) -> None:
        known = self.model.subscriptions.get(name)
        (result,) = self.driver.batch([Op.CLAIM, name, owner])
        if known is not None and known[0] != owner:
            assert _code(result) == "forbidden"
        else:
            assert isinstance(result, int)
            self.model.subscriptions[name] = (owner, self.driver.now_us + 30 * DAY_S * SECOND)

    def forget(self, owner: bytes, name: bytes) -> None:
        asked = self.random.choice((b"", owner))
        known = self.model.subscriptions.get(name)
        (result,) = self.driver.batch([Op.ABANDON_BATCHES, name, 0, asked, True])
        if known is not None and asked not in (b"", known[0]):
            assert _code(result) == "forbidden"
        else:
            assert result is (None if known is None else False)
            self.model.subscriptions.pop(name, None)

    def open(self, owner: bytes, _: bytes) -> None:
        number = self.driver.do(Op.OPEN_SESSION, HOUR_US, owner)
        self.model.sessions[number] = (owner, self.driver.now_us + HOUR_US)

    def renew(self, owner: bytes, _: bytes) -> None:
        number = self.random.choice(list(self.model.sessions) or [1 << 40])
        mine = self.model.sessions.get(number, (b"", 0))[0] == owner
        assert self.driver.do(Op.RENEW_SESSION, number, owner) is mine
        if mine:
            self.model.sessions[number] = (owner, self.driver.now_us + HOUR_US)

    def write(self, owner: bytes, name: bytes) -> None:
        job = JOB % NAMES.index(name)
        known = self.model.jobs.get(job)
        (result,) = self.driver.batch([Op.BEGIN_EPOCH, job, 1, b"run", b"s" * 16, owner])
        if known is not None and known[0] != owner:
            assert _code(result) == "forbidden"
        else:
            assert result == 0
            # A run that has begun begins no more, so its job is not used either.
            self.model.jobs.setdefault(job, (owner, self.driver.now_us + 30 * DAY_S * SECOND))

    def restore(self) -> None:
        """Continue from a snapshot."""
        twin = copied(self.driver.machine)
        assert records(twin) == records(self.driver.machine)
        self.driver.machine = twin


@pytest.mark.parametrize("seed", range(20))
def test_principals_keep_their_state(seed: int) -> None:
    run = Run(seed)
    for number in range(150):
        run.step()
        if number % 30 == 0:
            run.restore()
