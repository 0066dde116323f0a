"""Work with a fixed result whatever faults occur: dead letters that are redriven, and messages moved in transactions.

Each kind moves a fixed set of messages back and forth between two queues, in a thread, during the whole drill.
Afterwards, each message must exist exactly once, whatever faults the scenario injects.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from lmqcluster import Client, LmqError

from ..errors import BrokenPromiseError, DrillError
from ..faults.base import Fault
from ..stage import Stage

__all__ = ["Redrive", "Transactions", "describe_miscount"]

_CLIENT_S = 60.0
_LEASE_S = 3.0
"""A message taken by a pull with a lost answer is redelivered after this time."""
_SETTLED_S = 120.0
"""How long the last messages may take to appear."""
_TAKEN_S = 600.0
_PULL = 100


@dataclass
class _Work(Fault):
    """Work on a fixed set of messages.

    Attributes:
        messages: number of messages.
    """

    messages: int = 1000
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _errors: Counter[str] = field(default_factory=Counter, init=False)
    _crash: BaseException | None = field(default=None, init=False)
    steps: int = field(default=0, init=False)
    """Number of changes that the cluster has confirmed."""

    @property
    def queues(self) -> tuple[str, str]:
        """Return the initial queue of the messages, and the other one."""
        return f"drill.{self.kind}.one", f"drill.{self.kind}.other"

    def begin(self, stage: Stage) -> None:
        """Store the messages, and start to work in the background.

        Raises:
            DrillError: they could not be stored.
        """
        addresses = stage.cluster.rpc_addresses(stage.cluster.sites[0])
        try:
            with Client(addresses, timeout_s=_CLIENT_S, discover=False) as client:
                self.prepare(client)
                client.push_many(self.queues[0], self._values())
        except LmqError as exc:
            raise DrillError(f"{self.kind} could not be prepared: {exc}") from exc
        self._thread = threading.Thread(target=self._run, args=(addresses,), name=self.kind)
        self._thread.start()

    def end(self, stage: Stage) -> None:
        """Stop, and count the messages.

        Raises:
            BrokenPromiseError: a message is lost or duplicated.
            DrillError: the work never started, or the messages could not be counted.
        """
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join()
        if self._crash is not None:
            raise DrillError(f"{self.kind} ended: {self._crash!r}") from self._crash
        errors = ", ".join(f"{count} {code}" for code, count in self._errors.most_common()) or "no error"
        stage.notes.append(f"{self.kind}: {self.steps:,} messages moved back and forth, {errors}")
        try:
            with Client(
                stage.cluster.rpc_addresses(stage.cluster.sites[0]), timeout_s=_CLIENT_S, discover=False
            ) as client:
                found = Counter(self._take_out(client, stage))
        except LmqError as exc:
            raise DrillError(f"{self.kind} could not be counted: {exc}") from exc
        problem = describe_miscount(set(self._values()), found)
        if problem is not None:
            raise BrokenPromiseError(f"{self.kind}: {problem}")
        if not self.steps:
            raise DrillError(f"{self.kind} did nothing: {errors}")

    def prepare(self, client: Client) -> None:
        """Set properties of the queues."""
        for queue in self.queues:
            client.update_props(queue, {"timeout": _LEASE_S})

    @abstractmethod
    def work(self, client: Client) -> int:
        """Move some messages; return how many."""

    def _values(self) -> list[bytes]:
        return [b"%s-%06d" % (self.kind.encode(), number) for number in range(self.messages)]

    def _run(self, addresses: list[str]) -> None:
        try:
            with Client(addresses, timeout_s=_CLIENT_S, discover=False) as client:
                while not self._stop.is_set():
                    try:
                        self.steps += self.work(client)
                    except LmqError as exc:
                        self._errors[exc.code] += 1
        except BaseException as exc:
            self._crash = exc
            raise

    def _take_out(self, client: Client, stage: Stage) -> Iterator[bytes]:
        """Yield everything in both queues, including leased messages when their leases expire.

        Raises:
            DrillError: the queues do not become empty.
        """
        deadline_s = time.monotonic() + _SETTLED_S
        while left := self._held(stage):
            if time.monotonic() > deadline_s:
                raise DrillError(f"{self.kind}: the queues still hold {left} messages after {_SETTLED_S:g} s")
            for queue in self.queues:
                pulled = client.pull_many(queue, _PULL, _LEASE_S / 10, lease=_TAKEN_S)
                client.done_many(queue, [message.id for message in pulled])
                yield from (bytes(message.content) for message in pulled)

    def _held(self, stage: Stage) -> int:
        """Return the number of messages that the leader has in both queues, including leased ones."""
        leader = stage.cluster.leader()
        try:
            return sum(int(leader.get_json(f"/v1/queues/{queue}")["size"]) for queue in self.queues)
        except OSError as exc:
            raise DrillError(f"{self.kind}: the leader does not answer: {exc}") from exc


@dataclass
class Redrive(_Work):
    """Messages fail, become dead letters, are redriven a few at a time, and fail again.

    Attributes:
        step: number of messages redriven by one command.
    """

    kind: ClassVar[str] = "redrive"
    step: int = 20

    def prepare(self, client: Client) -> None:
        """Allow one delivery of each message, then dead-letter it to the other queue."""
        one, other = self.queues
        client.update_props(one, {"timeout": _LEASE_S, "retry": 0, "dead_letter_queue": other})
        client.update_props(other, {"timeout": _LEASE_S})

    def work(self, client: Client) -> int:
        """Fail some messages, redrive some."""
        one, other = self.queues
        pulled = client.pull_many(one, _PULL, 0)
        client.release_many(one, [message.id for message in pulled])
        return client.redrive(other, max=self.step)


@dataclass
class Transactions(_Work):
    """Messages are acked in one queue and pushed to the other in one transaction."""

    kind: ClassVar[str] = "transactions"
    step: int = 10
    _there: bool = field(default=True, init=False)

    def work(self, client: Client) -> int:
        """Move some messages; change direction when there are no more."""
        source, target = self.queues if self._there else self.queues[::-1]
        pulled = client.pull_many(source, self.step, 0)
        if not pulled:
            self._there = not self._there
            return 0
        with client.transaction() as transaction:
            for message in pulled:
                transaction.done(message)
                transaction.push(target, message.content)
        return len(pulled)


def describe_miscount(wanted: set[bytes], found: Counter[bytes]) -> str | None:
    """Return a description of the messages that do not exist exactly once; None if all do."""
    lost, odd = sorted(wanted - set(found)), sorted(set(found) - wanted)
    doubled = sorted(value for value, count in found.items() if count > 1)
    kinds = {"lost": lost, "duplicated": doubled, "never pushed": odd}
    return "; ".join(f"{len(values)} {kind}, such as {values[:3]}" for kind, values in kinds.items() if values) or None
