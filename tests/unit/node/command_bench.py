"""A proposer with a log that the test drives by hand: the test decides when batches are seen, lost, refused
and applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgpack

from lmqcluster.core import Machine
from lmqcluster.core.log.commands import Command
from lmqcluster.node.commit.proposer import PendingCommand, Proposer
from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.node.queues.patterns.views import PatternViews
from lmqcluster.node.queues.pulls.pulls import Pulls
from lmqcluster.wire.errors import LmqError

ORIGIN, INCARNATION = b"n1", 7
DEADLINE_S = 60.0


class Clock:
    """Log time as the test sets it."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def now_us(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += int(seconds * 1_000_000)


class Recorder:
    """A sink that records its results."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Any, ...]] = []

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self.outcomes.append(("ok", list(pending.requests), result))

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self.outcomes.append((error.code, list(pending.requests), str(error.outcome)))

    @property
    def codes(self) -> list[str]:
        return [outcome[0] for outcome in self.outcomes]


class Bench:
    """The carrier, the log and the machine around a proposer and its pulls. Must be made inside a running loop.

    Attributes:
        sent: every batch that was passed to the carrier, as (sequence, payload).
        leader: True if there is a leader to send to.
    """

    def __init__(self) -> None:
        self.leader = True
        self.sent: list[tuple[int, bytes]] = []
        self.machine = Machine(compile_pattern)
        self.machine.state.salt = b"s" * 10
        self.clock = Clock()
        self.proposer = Proposer(self, ORIGIN, INCARNATION)
        self.turns = FairSlices()
        self.views = PatternViews(lambda: self.machine.state, self.turns)
        self.pulls = Pulls(self.proposer, lambda: self.machine.state, self.clock, self.views)  # type: ignore[arg-type]
        self._taken = 0

    def submit(self, sequence: int, batch: bytes) -> bool:
        self.sent.append((sequence, batch))
        return self.leader

    def has_leader(self) -> bool:
        return self.leader

    def copies_of(self, command: Command) -> int:
        return self.machine.copies_of(command)

    @property
    def sequences(self) -> list[int]:
        """Return the numbers of the sent batches, in order."""
        return [sequence for sequence, _payload in self.sent]

    async def turn(self) -> None:
        """Run everything that is scheduled for now."""
        for _ in range(10):
            await asyncio.sleep(0)

    def apply(self, position: int) -> str:
        """Append one of the sent batches to the log, as if it had arrived; return its status."""
        origin, incarnation, sequence, commands = msgpack.unpackb(self.sent[position][1], strict_map_key=False)
        applied = self.machine.apply(self.clock.us, origin, incarnation, sequence, commands)
        self.views.applied(applied)
        self.proposer.applied(sequence, applied)
        if applied.ready:
            self.pulls.notice(applied.ready)
        return applied.status

    def skip(self, count: int) -> None:
        """Skip the next batches in `settle`, because the test has applied them."""
        self._taken += count

    async def settle(self) -> None:
        """Apply all sent batches that are not applied yet, until no more is sent."""
        await self.turn()
        while self._taken < len(self.sent):
            self._taken += 1
            self.apply(self._taken - 1)
            await self.turn()

    def foreign(self, *commands: list[Any]) -> list[Any]:
        """Apply a batch of another node; return its results."""
        sequence = self.machine.state.node_sequences.last_sequence(b"other", 1) + 1
        applied = self.machine.apply(self.clock.us, b"other", 1, sequence, commands)
        self.views.applied(applied)
        self.pulls.notice(applied.ready)
        return applied.results


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that a timer brings about.

    Raises:
        TimeoutError: it does not come about.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for is seen by asking only
            await asyncio.sleep(0.001)
