"""Clients that disconnect while their pulls are answered, and the judge of what happens to the messages."""

from __future__ import annotations

import collections
import random
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Nack
from tests.simulation.node_clients import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmqcluster.node.commit.proposer import PendingCommand
    from lmqcluster.wire.errors import LmqError
    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["LEFT", "LeavingClient", "LeavingJudge"]

LEFT = b"left"
PAUSE_S = 0.8
AWAY_AFTER_S = 0.02

Life = tuple[str, int]
"""Name and number of a process."""


class LeavingJudge:
    """Checks that a node that applies its own pull delivers each message to a connected client or returns it.

    A node need not do so if its process ends, or if the cluster accepts nothing from it for long.
    """

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._owed: dict[Life, set[int]] = collections.defaultdict(set)

    def own_applied(self, life: Life, commands: list[Any], results: list[Any]) -> None:
        """Note that a node has applied a batch that it proposed, whose results it has not seen yet."""
        for command, result in zip(commands, results, strict=True):
            if command[0] == Op.PULL and command[1] == LEFT:
                self._owed[life].update(number for _queue, number, _remaining, _message in result or ())

    def applied(self, commands: list[Any]) -> None:
        """Note that a replica has applied an entry."""
        for command in commands:
            if command[0] == Op.NACK and command[1] == LEFT and command[5:] == [True]:
                for owed in self._owed.values():
                    owed.difference_update(command[2])

    def settled(self, life: Life, numbers: list[int]) -> None:
        """Note deliveries that reached their client, or that their node could not return."""
        self._owed[life].difference_update(numbers)

    def check(self, lives: list[Life]) -> None:
        """Check the processes `lives`, which run at the end, when all pulls have been answered."""
        for life in lives:
            if owed := self._owed[life]:
                self._checkers.report("not put back", f"{life[0]}: deliveries {sorted(owed)[:5]}")


class _Leaver:
    """One pull of a client that may disconnect before its messages arrive; a `DeliverySink` of the node's pulls."""

    place = None

    def __init__(self, taken: Callable[[list[int]], None]) -> None:
        self._taken = taken
        self.closed = False
        self.waiting: set[Any] = set()

    def may_wait(self) -> bool:
        return True

    def pulled(self, token: Any, delivered: list[Any]) -> None:
        self._taken([number for _queue, number, _remaining, _message in delivered])

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Do not pull again."""


class _Returns(Silent):
    """Receives the outcomes of the messages that the node returns."""

    def __init__(self, given_up: Callable[[list[int]], None]) -> None:
        self._given_up = given_up

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        assert isinstance(pending.command, Nack)
        self._given_up(pending.command.numbers)


class LeavingClient:
    """Pushes and pulls at one node; acknowledges what it receives, and often disconnects before that."""

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: LeavingJudge, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        self._judge = judge
        self._life = host.id, host.life
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{host.id}:{host.life}:leaving")
        replica.node.service.pulls._returns = _Returns(lambda numbers: judge.settled(self._life, numbers))
        self._later(PAUSE_S, self._act)

    def _later(self, mean_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / mean_s), callback, *arguments)

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        rng = self._rng
        self._replica.submit([Op.PUSH, LEFT, None, [self._requests.content()], None, 0], Silent())
        leaver = _Leaver(self._taken)
        ticket = (leaver, None, rng.choice([1, 1, 3]), rng.choice([0.0, 0.5, 3.0]))
        self._replica.pull(LEFT, ticket)
        if rng.random() < 0.7:
            self._later(AWAY_AFTER_S, self._leave, leaver)
        self._later(PAUSE_S, self._act)

    def _leave(self, leaver: _Leaver) -> None:
        leaver.closed = True
        self._replica.node.service.pulls.abandon(leaver)

    def _taken(self, numbers: list[int]) -> None:
        self._judge.settled(self._life, numbers)
        if numbers:
            self._replica.submit([Op.ACK, LEFT, numbers], Silent())
