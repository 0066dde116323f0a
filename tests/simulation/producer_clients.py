"""Producers, which number their pushes and resend refused ones, and their judge."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmqcluster.node.commit.proposer import PendingCommand
    from lmqcluster.wire.errors import LmqError
    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["NUMBERED", "ProducerClient", "ProducerJudge"]

NUMBERED = b"numbered"
PAUSE_S = 0.5
AGAIN_S = 0.2


class ProducerJudge:
    """Checks that a producer's pushes are stored once and in order, and that confirmed pushes are stored."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self._stored: set[bytes] = set()

    def stored(self, content: bytes) -> None:
        """Note that a client received the confirmation of its message."""
        self._stored.add(content)

    def check(self, contents: dict[str, Iterable[bytes]]) -> None:
        """Check `contents`, the messages that each replica holds, in order; no client consumes them."""
        for host, bodies in contents.items():
            last: dict[bytes, int] = {}
            held: set[bytes] = set()
            for body in bodies:
                producer, _, number = body.partition(b" ")
                if int(number) <= last.get(producer, 0):
                    self._checkers.report("pushes of a producer", f"{host}: {body!r} behind {last[producer]}")
                last[producer] = int(number)
                held.add(body)
            if lost := self._stored - held:
                self._checkers.report("push of a producer lost", f"{host}: {sorted(lost)[:5]}")


class ProducerClient:
    """Pushes at one node with increasing numbers. Once all others are answered, it resends those that failed."""

    def __init__(self, host: Host, replica: Any, requests: Requests, judge: ProducerJudge, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        self._judge = judge
        self._producer = b"%s.%d" % (host.id.encode(), host.life)
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{host.id}:{host.life}:producer")
        self._last = 0
        self._unanswered: set[int] = set()
        self._failed: set[int] = set()
        self._later(PAUSE_S, self._act)

    def _later(self, mean_s: float, callback: Callable[[], None]) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / mean_s), callback)

    def _act(self) -> None:
        if not self._failed:
            if self._requests.is_at_rest():
                return
            self._last += 1
            self._push(self._last)
        self._later(PAUSE_S, self._act)

    def _push(self, number: int) -> None:
        self._unanswered.add(number)
        content = b"%s %d" % (self._producer, number)
        self._replica.submit([Op.PUSH, NUMBERED, None, [content], self._producer, number], _Asked(self, number))

    def answered(self, number: int) -> None:
        """Note that a push is stored, now or before."""
        self._judge.stored(b"%s %d" % (self._producer, number))
        # After an unknown outcome the answer may arrive late.
        self._failed.discard(number)
        self._unanswered.discard(number)
        self._go_on()

    def failed(self, number: int) -> None:
        """Note that a push was refused, or that its outcome is unknown."""
        self._unanswered.discard(number)
        self._failed.add(number)
        self._go_on()

    def _go_on(self) -> None:
        if self._failed and not self._unanswered:
            self._later(AGAIN_S, self._push_again)

    def _push_again(self) -> None:
        if not self._unanswered:
            failed, self._failed = self._failed, set()
            for number in sorted(failed):
                self._push(number)


class _Asked:
    """Waits for the answers to one push."""

    def __init__(self, client: ProducerClient, number: int) -> None:
        self._client = client
        self._number = number

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._client.answered(self._number)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._client.failed(self._number)
