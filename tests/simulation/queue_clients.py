"""Clients that use the queue features beyond push, pull and ack, and the queues they use."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Fault, Op
from lmqcluster.core.log.commands import Pull
from lmqcluster.core.queue.message_index import tag_of
from lmqcluster.node.commit.proposer import UNKNOWN_AFTER_S
from lmqcluster.node.queues.pulls.pull_options import PullOptions
from tests.simulation.node_clients import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmqcluster.node.commit.proposer import PendingCommand
    from lmqcluster.wire.errors import LmqError
    from tests.simulation.host import Host
    from tests.simulation.queue_judge import QueueJudge

__all__ = ["QUEUES", "QueueClient", "Requests"]

SECOND_US = 1_000_000
PAUSE_S = 0.35
PULL_PAUSE_S = 0.3
ANSWERED_AFTER_S = UNKNOWN_AFTER_S + 1.0
RETRIES = 1_000_000
ALL = 1_000
LABELS = (b"", b"", b"red", b"blue")
GROUPS = (b"one", b"two", b"three")
KEY_WINDOW_S, PUSHES_OF_KEY = 3, 6
REASON_ROOM = 1_000
PUSHES_REPEATED_MAX, POLLS_REPEATED_MAX = 40, 6
RUN_MAX = 3
"""Messages of a group of the queue `FIFO` that may be in flight together."""

TRAITS, GROUPED, BOUNDED, JOBS, DEAD = b"traits", b"grouped", b"bounded", b"jobs", b"dead"
TENANTS, FIFO, LIMITED = b"tenants", b"fifo", b"limited"
SOURCE, COPY, TAKEN, MADE, ONCE = b"source", b"copy", b"taken", b"made", b"once"
QUEUES: dict[bytes, list[list[Any]]] = {
    TRAITS: [[b"expire_to_queue", DEAD], [b"retry", RETRIES], [b"timeout", 3]],
    GROUPED: [[b"retry", RETRIES], [b"timeout", 2]],
    TENANTS: [
        *(
            [b"group_mode", b"fair"],
            [b"max_in_flight", 4],
            [b"group_max_in_flight", 2],
            [b"rate", 10],
            [b"rate_burst", 4],
        ),
        *([b"retry", RETRIES], [b"timeout", 2]),
    ],
    FIFO: [[b"group_max_in_flight", RUN_MAX], [b"retry", RETRIES], [b"timeout", 2]],
    LIMITED: [[b"dead_letter_queue", DEAD], [b"max_deliveries", 2], [b"retry", RETRIES], [b"timeout", 1]],
    BOUNDED: [[b"max_items", 4], [b"retry", RETRIES], [b"timeout", 3]],
    JOBS: [[b"dead_letter_queue", DEAD], [b"retry", 1], [b"timeout", 1]],
    DEAD: [[b"retry", RETRIES], [b"timeout", 3]],
    SOURCE: [[b"retry", RETRIES], [b"timeout", 3]],
    COPY: [[b"retry", RETRIES], [b"timeout", 3]],
    TAKEN: [[b"retry", RETRIES], [b"timeout", 3]],
    MADE: [[b"retry", RETRIES], [b"timeout", 3]],
    ONCE: [[b"key_window", KEY_WINDOW_S], [b"key_scope", b"group"], [b"retry", RETRIES], [b"timeout", 3]],
}
"""By name, the properties."""
PULLED = tuple(name for name in QUEUES if name != FIFO)
IDLE, IDLE_PARENT, IDLE_CHILD = (b"idle-1", b"idle-2", b"idle-3"), b"idle", b"idle+child"
"""Queues that expire when idle, and one that inherits this: their end must not depend on snapshots."""


class Requests:
    """Numbers the messages of all clients of a run.

    Attributes:
        pushes, polls: the latest attempts of all clients, some of which they repeat.
    """

    def __init__(self, judge: QueueJudge, is_at_rest: Callable[[], bool]) -> None:
        self.judge = judge
        self.is_at_rest = is_at_rest
        self.pushes: deque[bytes] = deque(maxlen=PUSHES_REPEATED_MAX)
        self.polls: deque[bytes] = deque(maxlen=POLLS_REPEATED_MAX)
        self._pushed = self._keyed = 0

    def content(self) -> bytes:
        """Return the next message."""
        self._pushed += 1
        return b"#%07d#" % self._pushed

    def key(self) -> bytes:
        """Return a key, the same for some pushes of all clients."""
        self._keyed += 1
        return b"%d" % (self._keyed // PUSHES_OF_KEY)


class QueueClient:
    """Performs a random action from time to time at one node, and pulls and polls all the time.

    It is a `DeliverySink` of the node's pulls, and a sink of its polls.
    """

    closed = False
    place = None

    def __init__(self, host: Host, replica: Any, requests: Requests) -> None:
        self._replica = replica
        self._requests = requests
        self._rng = host.rng
        self.waiting: set[Any] = set()
        self._stale = 0
        self._later(PAUSE_S, self._begin)

    def _later(self, mean_s: float, callback: Callable[[], None]) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / mean_s), callback)

    def _begin(self) -> None:
        self._send([Op.CREATE, FIFO, b"", QUEUES[FIFO], True])
        for queue, pairs in QUEUES.items():
            self._send([Op.SET_PROPERTIES, queue, pairs])
        self._act()
        self._pull()
        self._poll()

    def _send(self, command: list[Any], sink: Any = None) -> None:
        self._replica.submit(command, sink or Silent())

    # --- occasional actions -------------------------------------------------------------------------------------------

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        actions = [self._push, self._push_to_source, self._withdraw, self._redrive, self._bind, self._let_age]
        self._rng.choices([*actions, self._push_once, self._purge_once], [10, 2, 1, 1, 1, 2, 5, 1])[0]()
        self._later(PAUSE_S, self._act)

    def _push(self) -> None:
        queue = self._rng.choice(
            [TRAITS, TRAITS, GROUPED, GROUPED, FIFO, FIFO, TENANTS, TENANTS, BOUNDED, JOBS, TAKEN, LIMITED]
        )
        rows = [self._row(self._traits(queue)) for _ in range(self._rng.choice([1, 1, 3]))]
        self._send([Op.PUSH_ROWS, queue, rows], _Asked(self._replica, self._requests.judge, rows[0][0]))

    def _row(self, traits: list[Any]) -> list[Any]:
        return [self._requests.content(), None, b"", None, traits]

    def _traits(self, queue: bytes) -> list[Any]:
        """Return the delay, due time, ttl, priority, label and group."""
        rng = self._rng
        if queue == GROUPED:
            return [-1, 0, 0, 0, b"", rng.choice(GROUPS)]
        if queue == FIFO:
            return [rng.choice([-1, -1, -1, SECOND_US]), 0, 0, 0, b"", rng.choice(GROUPS[:2])]
        if queue == TENANTS:
            # One tenant has most of the messages, so that only its limit keeps it from filling the queue's slots.
            return [-1, 0, 0, 0, b"", rng.choice([GROUPS[0], GROUPS[0], GROUPS[0], *GROUPS[1:]])]
        if queue != TRAITS:
            return rng.choice([[], [-1, 0, 0, 0, rng.choice(LABELS), b""]])
        delay_us = rng.choice([-1, -1, 0, SECOND_US, 3 * SECOND_US])
        return [delay_us, 0, rng.choice([0, 0, 2 * SECOND_US]), rng.choice([0, 0, -1, 1]), rng.choice(LABELS), b""]

    def _push_to_source(self) -> None:
        rows = [self._row([])]
        self._send([Op.PUSH_ROWS, SOURCE, rows], _Asked(self._replica, self._requests.judge, rows[0][0]))

    def _push_once(self) -> None:
        if not self._has_exact_keys():
            return
        rows = [self._row_once() for _ in range(self._rng.choice([1, 1, 2]))]
        self._send([Op.PUSH_ROWS, ONCE, rows], _Asked(self._replica, self._requests.judge, rows[0][0]))

    def _has_exact_keys(self) -> bool:
        """Return whether the properties of the queue have been set, as they may have been lost before the first election."""
        queue = self._replica.node.replica.machine.state.queues.get(ONCE)
        return queue is not None and queue.settings.options is not None and bool(queue.settings.options.key_window_us)

    def _row_once(self) -> list[Any]:
        traits = [-1, 0, 0, 0, b"", self._rng.choice(GROUPS[:2])]
        return [self._requests.content(), None, b"", self._requests.key(), traits]

    def _purge_once(self) -> None:
        self._send([Op.PURGE, ONCE, 0])

    def _withdraw(self) -> None:
        self._send([Op.PURGE, TRAITS, ALL, self._rng.choice(LABELS[2:])])

    def _redrive(self) -> None:
        self._send([Op.REDRIVE, DEAD, b"", b"", ALL])

    def _bind(self) -> None:
        self._send([Op.BIND, SOURCE, COPY, self._rng.choice([True, True, False])])

    def _let_age(self) -> None:
        rng = self._rng
        age = [b"max_queue_age", rng.choice([1, 2, 4, 8])]
        queue = rng.choice(IDLE)
        steps: list[list[list[Any]]] = [
            [[Op.PUSH, queue, None, [b"x"], None, 0], [Op.PURGE, queue, 0]],
            [[Op.PUSH, IDLE_PARENT, None, [b"x"], None, 0], [Op.BIND, IDLE_PARENT, IDLE_CHILD]],
            [[Op.SET_PROPERTIES, IDLE_PARENT, [age]]],
            [[Op.SET_DEFAULTS, [[b"^idle-", [age]]]]],
            [[Op.SET_DEFAULTS, []]],
        ]
        for command in rng.choice(steps):
            self._send(command)

    # --- pulling ----------------------------------------------------------------------------------------------------

    def _pull(self) -> None:
        if self._requests.is_at_rest():
            return
        rng = self._rng
        queue, count = rng.choice(PULLED), rng.choice([1, 1, 5])
        if queue == LIMITED:
            # So that the pull moves all messages that were delivered often enough.
            count = ALL
        ticket = (self, queue, count, rng.choice([0.0, 0.0, 0.5]))
        way = rng.choice(["timeout", "timeout", "lease", "settled"])
        if way == "settled" and queue != TAKEN:
            self._send([Op.PULL, queue, count, 0, True])
            self._later(PULL_PAUSE_S, self._pull)
        elif way == "lease":
            self._replica.pull(queue, ticket, PullOptions(Pull, (2 * SECOND_US, False)))
        else:
            self._replica.pull(queue, ticket)

    # --- polling ----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        if self._requests.is_at_rest():
            return
        count, hide_us = self._rng.choice([1, 3, 5]), self._rng.choice([0, SECOND_US, 2 * SECOND_US])
        self._send([Op.POLL, FIFO, count, hide_us, False, True], self)
        self._later(PULL_PAUSE_S, self._poll)

    def completed(self, _pending: PendingCommand, result: Any) -> None:
        """Answer the messages of a poll, some of them too late."""
        for _queue, number, _remaining, message in [] if isinstance(result, Fault) else result or []:
            self._later(1.0, partial(self._answer, message.sequence, tag_of(number)))

    def failed(self, _pending: PendingCommand, _error: LmqError) -> None:
        """Do nothing; the next poll follows anyway."""

    def _answer(self, sequence: int, tag: int) -> None:
        if self._rng.random() < 0.6:
            self._send([Op.DELETE_POLLED, FIFO, [(sequence, tag)]])
        else:
            self._send([Op.UPDATE, FIFO, sequence, tag, self._rng.choice([0, SECOND_US, 2 * SECOND_US])])

    def may_wait(self) -> bool:
        return True

    def pulled(self, token: bytes, delivered: list[Any]) -> None:
        for _queue, number, _remaining, _message in delivered:
            if token == TAKEN:
                self._replace(number)
            else:
                self._settle(token, number)
        self._later(PULL_PAUSE_S, self._pull)

    def pull_failed(self, token: bytes, error: LmqError) -> None:
        self._later(PULL_PAUSE_S, self._pull)

    def _settle(self, queue: bytes, number: int) -> None:
        rng = self._rng
        op = rng.choices([Op.ACK, Op.NACK, Op.EXTEND, None], [0.6, 0.2, 0.05, 0.15])[0]
        if op == Op.ACK:
            self._send([Op.ACK, queue, [number]])
        elif op == Op.NACK:
            nack = [Op.NACK, queue, [number], rng.choice([0, 1, 2]), rng.choice([-1, -1, SECOND_US])]
            self._send([*nack, False, b"reason %d" % number, REASON_ROOM] if number % 2 else nack)
        elif op == Op.EXTEND:
            self._send([Op.EXTEND, queue, [number], 4 * SECOND_US])

    def _replace(self, number: int) -> None:
        """Ack a message and push another one elsewhere in one transaction; some of these transactions cannot
        be applied.
        """
        is_once = self._rng.random() < 0.2 and self._has_exact_keys()
        row, target = (self._row_once(), ONCE) if is_once else (self._row([]), MADE)
        operations: list[list[Any]] = [[Op.PUSH_ROWS, target, [row]], [Op.ACK, TAKEN, [number]]]
        flaw = self._rng.random()
        if flaw < 0.1:
            operations.append([Op.ACK, TAKEN, [self._stale]])
        elif flaw < 0.4:
            operations.append([Op.PUSH_ROWS, BOUNDED, [self._row([])]])
        self._stale = number
        self._send([Op.TRANSACTION, operations], _Asked(self._replica, self._requests.judge, row[0]))


class _Asked:
    """Waits for the answer to a push or a transaction, which arrives within the deadline while the process lives."""

    def __init__(self, replica: Any, judge: QueueJudge, tag: bytes) -> None:
        self._judge = judge
        self._tag = tag
        self._answered = False
        replica.loop.call_later(ANSWERED_AFTER_S, self._check)

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._answered = True
        self._judge.answered(self._tag, result)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._answered = True
        if error.outcome == "not_applied":
            self._judge.refused(self._tag)

    def _check(self) -> None:
        if not self._answered:
            self._judge.unanswered(self._tag)
