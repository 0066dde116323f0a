"""Clients that push and poll under attempts, which they repeat at other nodes, and limit the requests of their queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from lmqcluster.core.log.commands import Poll
from lmqcluster.core.queue.message_index import tag_of
from lmqcluster.node.commit.proposer import UNKNOWN_AFTER_S
from lmqcluster.node.queues.pulls.pull_options import PullOptions
from lmqcluster.node.queues.sending.push_items import PushItem, PushOptions
from lmqcluster.wire.errors import LmqError
from tests.simulation.clients import SECOND_US, Client
from tests.simulation.model_judge import ATTEMPTED, MODELLED

if TYPE_CHECKING:
    import asyncio
    from collections import deque

    from tests.simulation.host import Host
    from tests.simulation.model_judge import ModelJudge
    from tests.simulation.queue_clients import Requests

__all__ = ["AttemptClient"]

CLIENTS = (1, 2, 4)
"""How many clients push at one moment, so that they share a command."""
ANSWERED_AFTER_S = UNKNOWN_AFTER_S + 1.0
REMEMBER_US = 4 * SECOND_US
NO_LIMITS: list[list[Any]] = [[False] * 4, [None, 1]]


class AttemptClient(Client):
    """Pushes and polls, and repeats what clients of all nodes did before; sometimes purges or limits the queue.

    An attempt may be repeated at any node, whether its outcome is unknown, its node is gone, or its answer was lost on the
    way to the client. The body of a message is its attempt. The client is a `DeliverySink` of the node's pulls.
    """

    pause_s = 0.8
    closed = False
    place = None

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: ModelJudge, seed: int) -> None:
        super().__init__(host, replica, requests, seed)
        self._judge = judge
        self._made = 0
        self.waiting: set[Any] = set()

    def act(self) -> None:
        chance = self.rng.random()
        if ATTEMPTED not in self.replica.node.replica.machine.state.queues:
            self.send([Op.CREATE, ATTEMPTED, b"", MODELLED[ATTEMPTED], True])
        elif chance < 0.04:
            self.send(self.rng.choice([[Op.PURGE, ATTEMPTED], [Op.DELETE, ATTEMPTED]]))
        elif chance < 0.14:
            self.send([Op.SET_POLL_LIMITS, ATTEMPTED, *self._limits()])
        if chance < 0.6:
            for _ in range(self.rng.choice(CLIENTS)):
                self._push(self._attempt(self.requests.pushes))
        else:
            self._poll()

    def _limits(self) -> list[Any]:
        rng = self.rng
        switches = [rng.choice([None, False, True]) for _ in range(4)]
        return rng.choice([NO_LIMITS, NO_LIMITS, [switches, None], [None, [rng.choice([1, 3]), SECOND_US]]])

    def _attempt(self, recent: deque[bytes]) -> bytes:
        if recent and self.rng.random() < 0.6:
            return self.rng.choice(recent)
        self._made += 1
        recent.append(f"{self.name}.{self._made}".encode())
        return recent[-1]

    # --- pushes ---------------------------------------------------------------------------------------------------

    def _push(self, attempt: bytes) -> None:
        options = PushOptions(group=b"odd" if attempt[-1] % 4 == 1 else b"")
        try:
            outcome = self.replica.node.service.attempts.push(
                ATTEMPTED, [PushItem(attempt, key=attempt, options=options)]
            )
        except LmqError:
            # The node takes nothing at present. The attempt stays among those to repeat.
            return
        outcome.add_done_callback(partial(self._answered, attempt))
        self.replica.loop.call_later(ANSWERED_AFTER_S, self._check, attempt, outcome)

    def _answered(self, attempt: bytes, outcome: asyncio.Future[list[tuple[int, int]]]) -> None:
        if outcome.exception() is None:
            ((_flag, sequence),) = outcome.result()
            self._judge.acknowledged(attempt, sequence)

    def _check(self, attempt: bytes, outcome: asyncio.Future[list[tuple[int, int]]]) -> None:
        if not outcome.done():
            self._judge.unanswered(attempt)

    # --- polls ----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        rng = self.rng
        hide_us, count, wait_s = rng.choice([1, 2]) * SECOND_US, rng.choice([2, 4]), rng.choice([0.0, 0.5])
        options = PullOptions(Poll, (hide_us, False, False, b"", self._attempt(self.requests.polls), REMEMBER_US))
        self.replica.pull(ATTEMPTED, (self, None, count, wait_s), options)

    def may_wait(self) -> bool:
        return True

    def pulled(self, _token: None, delivered: list[Any]) -> None:
        for _queue, number, _remaining, message in delivered:
            self.later(1.0, self._settle, message.sequence, tag_of(number))

    def pull_failed(self, _token: None, _error: LmqError) -> None:
        """Do nothing: the attempt stays among those to repeat."""

    def _settle(self, sequence: int, tag: int) -> None:
        chance = self.rng.random()
        if chance < 0.5:
            self.send([Op.DELETE_POLLED, ATTEMPTED, [(sequence, tag)]])
        elif chance < 0.7:
            self.send([Op.UPDATE, ATTEMPTED, sequence, tag, self.rng.choice([0, SECOND_US]), self.rng.random() < 0.5])
