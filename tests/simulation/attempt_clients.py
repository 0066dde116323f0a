"""Clients that repeat pushes under their attempts, also at other nodes, and the judge of what is stored."""

from __future__ import annotations

import random
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Fault, Op, PushFlag
from lmqcluster.core.state.state import ATTEMPT_US
from lmqcluster.node.commit.proposer import UNKNOWN_AFTER_S
from lmqcluster.node.queues.sending.push_items import PushItem
from lmqcluster.wire.errors import LmqError
from tests.simulation.node_clients import Silent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["ATTEMPTED", "AttemptClient", "AttemptJudge"]

ATTEMPTED = b"attempted"
ITEMS_MAX = 12
PROPERTIES = [[b"max_items", ITEMS_MAX]]
PAUSE_S = 0.8
CLIENTS = (1, 2, 4)
"""How many clients push at one moment, so that they share a command."""
REPEATED_MAX = 40
ANSWERED_AFTER_S = UNKNOWN_AFTER_S + 1.0

Result = tuple[int, int]
"""Flag and sequence."""


class AttemptJudge:
    """Follows the queue in log order: each attempt is stored at most once, and once if any repetition is acknowledged.

    The body of a message is its attempt.

    Attributes:
        recent: the latest attempts of all clients. Any of them may be repeated at any node, whether its outcome is unknown,
            its node is gone, or its acknowledgement was lost on the way to the client.
    """

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.recent: deque[bytes] = deque(maxlen=REPEATED_MAX)
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._index = -1
        self._now_us = 0
        # By attempt, the sequence of its message, and the log time from which it is new again.
        self._known: dict[bytes, tuple[int, int]] = {}
        self._held: list[bytes] = []

    # --- the log --------------------------------------------------------------------------------------------------

    def applied(self, index: int, now_us: int, commands: list[Any], results: list[Any]) -> None:
        """Judge an entry that a replica has applied; only the first replica counts."""
        if index <= self._index:
            return
        self._index, self._now_us = index, max(now_us, self._now_us)
        for command, result in zip(commands, results, strict=False):
            if isinstance(result, Fault) or command[1:2] != [ATTEMPTED]:
                continue
            if command[0] == Op.PURGE:
                self._held.clear()
            elif command[0] == Op.PUSH_ATTEMPTS:
                for row, one in zip(command[2], result, strict=True):
                    self._judge(row[0], one)

    def _judge(self, attempt: bytes, result: Result) -> None:
        flag, sequence = result
        first, ends_us = self._known.get(attempt, (0, 0))
        if flag & PushFlag.REPLAYED:
            if not (self._now_us < ends_us and sequence == first):
                self._report("attempt not stored", f"{attempt!r}: {result}, first {first} until {ends_us}")
        elif self._now_us < ends_us:
            self._report("attempt stored twice", f"{attempt!r}: {result}, first {first} until {ends_us}")
        elif (flag >= PushFlag.FULL) != (len(self._held) >= ITEMS_MAX):
            self._report("attempt refused wrongly", f"{attempt!r}: {result} while {len(self._held)} are held")
        elif flag < PushFlag.FULL:
            self._known[attempt] = sequence, self._now_us + ATTEMPT_US
            self._held.append(attempt)

    def _report(self, kind: str, detail: str) -> None:
        self._checkers.report(kind, f"{detail}, log time {self._now_us}")

    # --- clients and the end --------------------------------------------------------------------------------------

    def acknowledged(self, attempt: bytes, result: Result) -> None:
        """Compare the result that a client has received with the message that the log has stored."""
        flag, sequence = result
        first, _ends_us = self._known.get(attempt, (0, 0))
        if flag < PushFlag.FULL and sequence != first:
            self._report("acknowledged attempt not stored", f"{attempt!r}: {result}, first {first}")

    def unanswered(self, attempt: bytes) -> None:
        """Report a push that has no outcome although its node has run all the time."""
        self._report("not answered", repr(attempt))

    def check(self, contents: dict[str, Iterable[bytes]]) -> None:
        """Compare the messages of each replica with those of the log, at its end."""
        expected = Counter(self._held)
        for host, bodies in contents.items():
            found = Counter(bodies)
            for kind, which in (("attempt lost", expected - found), ("attempt stored twice", found - expected)):
                if which:
                    self._report(kind, f"{host}: {sorted(which)[:5]}")


class AttemptClient:
    """Pushes new messages and repeats earlier pushes of all nodes at one node; sometimes purges the queue."""

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: AttemptJudge, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        self._judge = judge
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{host.id}:{host.life}:attempts")
        self._name = f"{host.id}.{host.life}"
        self._pushed = 0
        self._later()

    def _later(self) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / PAUSE_S), self._act)

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        if ATTEMPTED not in self._replica.node.replica.machine.state.queues:
            self._replica.submit([Op.CREATE, ATTEMPTED, b"", PROPERTIES], Silent())
        elif self._rng.random() < 0.1:
            self._replica.submit([Op.PURGE, ATTEMPTED], Silent())
        for _ in range(self._rng.choice(CLIENTS)):
            self._push(self._attempt())
        self._later()

    def _attempt(self) -> bytes:
        recent = self._judge.recent
        if recent and self._rng.random() < 0.6:
            return self._rng.choice(recent)
        self._pushed += 1
        recent.append(f"{self._name}.{self._pushed}".encode())
        return recent[-1]

    def _push(self, attempt: bytes) -> None:
        try:
            outcome = self._replica.node.service.attempts.push(ATTEMPTED, [PushItem(attempt, key=attempt)])
        except LmqError:
            # The node takes nothing at present. The attempt stays among those to repeat.
            return
        outcome.add_done_callback(partial(self._answered, attempt))
        self._replica.loop.call_later(ANSWERED_AFTER_S, self._check, attempt, outcome)

    def _answered(self, attempt: bytes, outcome: asyncio.Future[list[Result]]) -> None:
        if outcome.exception() is None:
            (result,) = outcome.result()
            self._judge.acknowledged(attempt, result)

    def _check(self, attempt: bytes, outcome: asyncio.Future[list[Result]]) -> None:
        if not outcome.done():
            self._judge.unanswered(attempt)
