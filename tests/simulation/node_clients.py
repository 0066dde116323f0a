"""Clients of the simulated nodes, and the ledger of the answers that they received."""

from __future__ import annotations

import collections
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from lmqcluster.core.messages.message import Content, Message, loaded
from lmqcluster.core.messages.pages import PageError
from lmqcluster.node.commit.proposer import UNKNOWN_AFTER_S
from tests.simulation.interfaces import JudgeNeedsPageError
from tests.simulation.log_time import LogTimeJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmqcluster.core import Applied
    from lmqcluster.node.commit.proposer import PendingCommand
    from lmqcluster.wire.errors import LmqError
    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host
    from tests.simulation.node_loop import HostLoop

__all__ = ["Consumer", "Ledger", "Push", "Raising", "Silent", "body_of", "look_at_bodies"]

NUMBER_BYTES = 8
ANSWERED_AFTER_S = UNKNOWN_AFTER_S + 1.0
LEASE_S = 5
RETRIES = 1_000_000
PAUSE_S = 0.3
"""Mean time between two pulls of a consumer."""


class Ledger:
    """Records pushes and deliveries by message number; reports contradictions at the end."""

    def __init__(self, checkers: Checkers, is_at_rest: Callable[[], bool]) -> None:
        """Create a ledger; when `is_at_rest()` is true, consumers start nothing more."""
        self._checkers = checkers
        self.is_at_rest = is_at_rest
        self._stored: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._settling: collections.Counter[bytes] = collections.Counter()
        self._consumed: dict[bytes, int] = {}
        self._met: set[bytes] = set()
        self._deliveries: dict[int, str] = {}
        self._leases: dict[bytes, list[_Lease]] = collections.defaultdict(list)
        self._leased_us: dict[int, int] = {}
        self._batches: dict[str, dict[bytes, tuple[int, int]]] = collections.defaultdict(dict)
        # By entry, the names of the queues that it created and deleted.
        self._came_and_went: dict[int, tuple[list[bytes], list[bytes]]] = {}
        # By queue, the first entry that sets its properties. Earlier pushes have few deliveries.
        self._set_at: dict[bytes, int] = {}
        self._mortal: set[bytes] = set()
        self.log_time = LogTimeJudge(checkers)

    def begin_again(self) -> None:
        """Forget all messages because the cluster has lost them."""
        self.log_time.begin_again()
        for book in (
            self._stored,
            self._refused,
            self._settling,
            self._consumed,
            self._met,
            self._deliveries,
            self._leases,
            self._leased_us,
            self._set_at,
            self._mortal,
            self._came_and_went,
        ):
            book.clear()

    # Batches

    def batch_applied(self, host: Host, origin: bytes, incarnation: int, sequence: int) -> None:
        """Check that each node's batches are applied once and in order on every replica."""
        batches = self._batches[f"{host.id}.{host.life}"]
        known, last = batches.get(origin, (0, 0))
        if incarnation < known or sequence != (last + 1 if incarnation == known else 1):
            detail = f"{host.id}: batch {sequence} of {origin.decode()} life {incarnation} after {last} of {known}"
            self._checkers.report("batches out of order", detail)
        batches[origin] = (incarnation, sequence)

    def state_replaced(self, host: Host, sessions: Iterable[list[Any]]) -> None:
        self._batches[f"{host.id}.{host.life}"] = {row[0]: (row[1], row[2]) for row in sessions}

    def entry_applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        """Note that a replica has applied an entry at this log time."""
        changed = [queue.name for queue in applied.created], [queue.name for queue in applied.deleted]
        known = self._came_and_went.setdefault(index, changed)
        if known != changed:
            self._checkers.report("queues differ", f"entry {index} made and deleted {changed}, elsewhere {known}")
        for command in commands:
            if command[0] == Op.SET_PROPERTIES:
                self._set_at[command[1]] = min(index, self._set_at.get(command[1], index))
            elif command[0] == Op.PUSH and index < self._set_at.get(command[1], index + 1):
                self._mortal.update(content[:NUMBER_BYTES] for content in command[3])

    def own_applied(self, host: Host, commands: list[Any], applied: Applied) -> None:
        """Note that a node has applied a batch that it proposed, whose clients will be answered next."""

    def leased(self, stamp_us: int, deliveries: list[int]) -> None:
        """Note that a replica has applied a pull at this log time."""
        for delivery in deliveries:
            self._leased_us.setdefault(delivery, stamp_us)

    # Answers to clients

    def push_stored(self, host: Host, command: bytes) -> None:
        number = command[:NUMBER_BYTES]
        if number in self._refused:
            self._checkers.report("answered twice", f"push {number.decode()} was refused, then stored")
        if number in self._stored:
            self._checkers.report("answered twice", f"push {number.decode()} was stored twice")
        self._stored.add(number)
        self._checkers.acknowledged[command] = host.application.index

    def unanswered(self, host: Host, command: bytes) -> None:
        self._checkers.report(
            "not answered", f"{host.id}: push {command[:NUMBER_BYTES].decode()} after {ANSWERED_AFTER_S} s"
        )

    def push_failed(self, command: bytes, error: LmqError) -> None:
        if error.outcome == "not_applied":
            self._refused.add(command[:NUMBER_BYTES])

    def delivered(self, host: Host, delivery: int, content: bytes) -> None:
        number = content[:NUMBER_BYTES]
        where = f"{host.id} message {number.decode()}"
        if delivery in self._deliveries:
            self._checkers.report("delivered twice", f"delivery {delivery}: {self._deliveries[delivery]}, {where}")
        # A lagging node learns late what happened before the ack; the order of the log counts.
        if self._consumed.get(number, host.application.index) < host.application.index:
            self._checkers.report("delivered after ack", where)
        self._deliveries[delivery] = where
        self._met.add(number)
        self._leases[number].append(_Lease(self._leased_us[delivery], delivery))

    def nacking(self, number: bytes, delivery: int) -> None:
        """Note that a client nacks a message, which may be redelivered at once."""
        for lease in self._leases[number]:
            if lease.delivery == delivery:
                lease.given_back = True

    def settling(self, number: bytes) -> None:
        """Note that a client acks a message; it may never learn the result."""
        self._settling[number] += 1

    def not_consumed(self, number: bytes) -> None:
        """Note that the ack came too late and changed nothing."""
        self._settling[number] -= 1

    def consumed(self, host: Host, number: bytes) -> None:
        if number in self._consumed:
            self._checkers.report("acked twice", f"message {number.decode()}")
        self._consumed[number] = host.application.index

    # The end

    def check(self, contents: dict[str, list[bytes]]) -> None:
        """Check `contents`, the numbers that each replica holds."""
        report = self._checkers.report
        self._check_leases()
        for name, numbers in contents.items():
            counts = collections.Counter(numbers)
            held = set(counts)
            twice = [number for number, count in counts.items() if count > 1]
            for kind, wrong in (
                ("acknowledged lost", self._stored - held - set(+self._settling) - self._mortal),
                ("stored twice", set(twice)),
                ("held after ack", held & self._consumed.keys()),
                ("refused but stored", self._refused & (held | self._met)),
            ):
                if wrong:
                    report(kind, f"{name}: messages {sorted(each.decode() for each in wrong)[:5]}")
        if len({tuple(numbers) for numbers in contents.values()}) > 1:
            report("replicas differ", f"{ {name: len(numbers) for name, numbers in contents.items()} } messages")

    def _check_leases(self) -> None:
        """Check that a message is not delivered while another consumer holds its lease."""
        for number, leases in self._leases.items():
            leases.sort(key=lambda lease: lease.stamp_us)
            for lease, following in itertools.pairwise(leases):
                if not lease.given_back and following.stamp_us - lease.stamp_us < LEASE_S * 1_000_000:
                    detail = f"message {number.decode()}: {lease} {following}"
                    self._checkers.report("delivered within a lease", detail)


@dataclass
class _Lease:
    stamp_us: int
    delivery: int
    given_back: bool = False


class Push:
    """A client that waits for its push; a sink of the proposer.

    While the process lives, the client gets an answer within the deadline, whatever happens to the other nodes.
    """

    def __init__(self, host: Host, ledger: Ledger, command: bytes, loop: HostLoop) -> None:
        self._host = host
        self._ledger = ledger
        self._command = command
        self._answered = False
        loop.call_later(ANSWERED_AFTER_S, self._check)

    def completed(self, pending: PendingCommand, result: Any) -> None:
        self._answered = True
        self._ledger.push_stored(self._host, self._command)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._answered = True
        self._ledger.push_failed(self._command, error)

    def _check(self) -> None:
        if not self._answered:
            self._ledger.unanswered(self._host, self._command)


def body_of(content: Content) -> bytes:
    """Return the body of a message, wherever it is stored; no client here pushes compound messages."""
    body = loaded(content)
    assert isinstance(body, bytes)
    return body


def look_at_bodies(results: Iterable[Any]) -> None:
    """Read all bodies that the results of a batch deliver.

    Raises:
        JudgeNeedsPageError: a page is damaged; another machine has to show the batch.
    """
    for result in results:
        for one in result if type(result) is list else ():
            if type(one) is tuple and len(one) == 4 and isinstance(one[3], Message):
                try:
                    loaded(one[3].content)
                except PageError as exc:
                    raise JudgeNeedsPageError(str(exc)) from exc


class Silent:
    """A client that ignores its results."""

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Ignore the result."""

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Ignore the error."""


class Raising(Silent):
    """A client that has disconnected when its answer arrives."""

    def completed(self, pending: PendingCommand, result: Any) -> None:
        raise ConnectionError("the client is gone")


class Consumer:
    """Pulls messages one by one at one node, waiting if the queue is empty; acks most, nacks some, forgets some.

    It is a `DeliverySink` of the node's pulls, and a sink for its acks and nacks.
    """

    closed = False
    place = None

    def __init__(self, host: Host, replica: Any, queue: bytes, ledger: Ledger) -> None:
        self._host = host
        self._replica = replica
        self._queue = queue
        self._ledger = ledger
        self._rng = host.rng
        self.waiting: set[Any] = set()
        # The node's first command. It precedes every push through this node, unless it fails.
        self._set_properties()

    def _set_properties(self) -> None:
        self._replica.submit([Op.SET_PROPERTIES, self._queue, [["timeout", LEASE_S], ["retry", RETRIES]]], self)

    def next(self) -> None:
        if self._ledger.is_at_rest():
            return
        count = self._rng.choice([1, 1, 5])
        self._replica.pull(self._queue, (self, None, count, self._rng.choice([0.0, 0.5, 3.0])))

    def may_wait(self) -> bool:
        return True

    def pulled(self, token: Any, delivered: list[Any]) -> None:
        for _queue, number, _remaining, message in delivered:
            content = body_of(message.content)
            self._ledger.delivered(self._host, number, content)
            op = self._rng.choices([Op.ACK, Op.NACK, None], [0.7, 0.2, 0.1])[0]
            if op is not None:
                if op == Op.NACK:
                    self._ledger.nacking(content[:NUMBER_BYTES], number)
                sink = _Settled(self._host, self._ledger, content[:NUMBER_BYTES], acked=op == Op.ACK)
                self._replica.submit([op, self._queue, [number]], sink)
        self._replica.loop.call_later(self._rng.expovariate(1.0 / PAUSE_S), self.next)

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self._replica.loop.call_later(0.2, self.next)

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Continue after the queue's properties are set."""

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Continue although they may not be set, because the cluster had no leader for long."""
        self._replica.loop.call_later(PAUSE_S, self._set_properties)


class _Settled:
    """Waits for an ack or nack to be confirmed."""

    def __init__(self, host: Host, ledger: Ledger, number: bytes, *, acked: bool) -> None:
        self._host = host
        self._ledger = ledger
        self._number = number
        self._acked = acked
        if acked:
            ledger.settling(number)

    def completed(self, pending: PendingCommand, result: Any) -> None:
        if not self._acked:
            return
        if result == [True]:
            self._ledger.consumed(self._host, self._number)
        else:
            self._ledger.not_consumed(self._number)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Treat the outcome as unknown: the message may be redelivered."""
