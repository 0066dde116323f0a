"""Clients of sessions, exclusive queues, locks and waiting pushes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from tests.simulation.node_clients import Silent
from tests.simulation.session_judge import HELD, LOCKS, NARROW, SESSION_QUEUES, TURN

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmqcluster.node.commit.proposer import PendingCommand
    from lmqcluster.wire.errors import LmqError
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests
    from tests.simulation.session_judge import SessionJudge

__all__ = ["SessionClient"]

SECOND_US = 1_000_000
PAUSE_S = 0.2
STALL_S = 3.0
KEEP = 1
AT_ONCE = -1


class SessionClient:
    """Opens one session after the other at its node. Some stalls outlast the session, and the client continues to use
    it.
    """

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: SessionJudge, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        self._judge = judge
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{host.id}:{host.life}:sessions")
        self._session = 0
        self._held: list[tuple[bytes, int]] = []
        self._last = 0
        self._tickets: list[int] = []
        self._later(self._begin)

    def _later(self, callback: Callable[[], None], mean_s: float = PAUSE_S) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / mean_s), callback)

    def _begin(self) -> None:
        for queue, pairs in SESSION_QUEUES.items():
            self._send([Op.SET_PROPERTIES, queue, pairs])
        self._act()

    def _send(self, command: list[Any], then: Callable[[Any], None] | None = None) -> None:
        self._replica.submit(command, Silent() if then is None else _Answer(then))

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        if not self._session:
            self._send([Op.OPEN_SESSION, self._rng.choice([1, 2, 2, 4]) * SECOND_US], self._opened)
            self._later(self._act)
            return
        actions = [self._push, self._wait, self._pull, self._settle, self._lock, self._unlock, self._renew, self._leave]
        self._rng.choices([*actions, self._end], [3, 6, 4, 4, 3, 1, 4, 0.5, 0.3])[0]()
        self._later(self._act, STALL_S if self._rng.random() < 0.02 else PAUSE_S)

    def _opened(self, number: int) -> None:
        self._session = number

    def _push(self) -> None:
        row = [self._requests.content(), None, b"", None, []]
        self._send([Op.PUSH_ROWS, self._rng.choice([HELD, TURN]), [row]])

    # --- the session ----------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._send([Op.RENEW_SESSION, self._session], self._renewed)

    def _renewed(self, lives: bool) -> None:
        if not lives:
            self._session = 0

    def _end(self) -> None:
        self._send([Op.END_SESSION, self._session])

    def _pull(self) -> None:
        queue, count = self._rng.choice([HELD, TURN]), self._rng.choice([1, 1, 3])
        # Simulates the loss of some of the latest deliveries.
        known = self._rng.choice([-1, -1, -1, self._last, max(0, self._last - 1)])
        self._send([Op.PULL_IN_SESSION, queue, count, 0, self._session, self._rng.choice([0, 1]), known], self._pulled)

    def _pulled(self, delivered: list[Any] | None) -> None:
        self._last = max([self._last, *(number for _queue, number, _remaining, _message in delivered or [])])
        self._held += [(queue, number) for queue, number, _remaining, _message in delivered or []]

    def _settle(self) -> None:
        """Ack or nack a message, perhaps one that its session has lost."""
        if not self._held:
            return
        queue, number = self._held.pop(self._rng.randrange(len(self._held)))
        if self._rng.random() < 0.7:
            self._send([Op.ACK, queue, [number]])
        else:
            self._send([Op.NACK, queue, [number], KEEP, AT_ONCE])

    def _leave(self) -> None:
        self._send([Op.LEAVE_QUEUE, TURN, self._session])

    def _lock(self) -> None:
        self._send([Op.LOCK, self._rng.choice(LOCKS), self._session, self._rng.random() < 0.7])

    def _unlock(self) -> None:
        self._send([Op.UNLOCK, self._rng.choice(LOCKS), self._session])

    # --- pushes that wait -----------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Push into the full queue, make room there, or cancel a waiting push."""
        chance = self._rng.random()
        if chance < 0.5:
            rows = [[self._requests.content(), None, b"", None, []] for _ in range(self._rng.choice([1, 1, 2]))]
            sink = _Asked(self._judge, rows[0][0], self._tickets)  # type: ignore[arg-type]
            self._replica.submit(
                [Op.PUSH_ROWS, NARROW, rows, b"", None, 0, False, self._rng.choice([1, 3, 6]) * SECOND_US], sink
            )
        elif chance < 0.9 or not self._tickets:
            self._send([Op.PULL, NARROW, self._rng.choice([1, 2]), 0, True])
        else:
            self._send([Op.CANCEL_PUSH, self._tickets.pop()])


class _Answer(Silent):
    """Passes the answer to a callback; ignores a missing answer."""

    def __init__(self, then: Callable[[Any], None]) -> None:
        self._then = then

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._then(result)


class _Asked:
    """Waits for the first answer to a push that may wait."""

    def __init__(self, judge: SessionJudge, content: bytes, tickets: list[int]) -> None:
        self._judge = judge
        self._content = content
        self._tickets = tickets

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._judge.answered(self._content, result)
        if hasattr(result, "ticket"):
            self._tickets.append(result.ticket)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        if error.outcome == "not_applied":
            self._judge.refused(self._content)
