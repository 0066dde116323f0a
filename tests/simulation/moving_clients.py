"""Clients that start and cancel tasks that move messages, and the judge of what becomes of the messages."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmqcluster.core import Op
from lmqcluster.core.log.results import Fault
from lmqcluster.core.messages.message import loaded
from tests.simulation.node_clients import Silent

if TYPE_CHECKING:
    from lmqcluster.core import Applied, Machine
    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host
    from tests.simulation.queue_clients import Requests

__all__ = ["MovingClient", "MovingJudge"]

SOURCES, TARGET = (b"moving.1", b"moving.2"), b"moving.target"
PAUSE_S = 1.5
SECOND_US = 1_000_000
OVERDUE_US = 5 * SECOND_US
MESSAGES_MAX = 400


class MovingJudge:
    """Follows the log: which messages were pushed, and how many a task may have moved when it is cancelled."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.begin_again()

    def begin_again(self) -> None:
        """Start over after the cluster has lost everything."""
        self.pushed: Counter[bytes] = Counter()
        self._started: dict[int, tuple[int, int]] = {}
        self._index = -1
        self._now_us = 0

    def applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        """Follow an entry of the log, once."""
        if index <= self._index:
            return
        self._index, self._now_us = index, max(now_us, self._now_us)
        for command, result in zip(commands, applied.results, strict=False):
            op, *fields = command
            if isinstance(result, Fault):
                continue
            if op == Op.PUSH and fields[0] in (*SOURCES, TARGET):
                self.pushed.update(fields[2])
            elif op == Op.START_MOVE_TASK:
                self._started[result] = (self._now_us, fields[2])
            elif op == Op.CANCEL_MOVE_TASK:
                self._cancelled(fields[1], result)

    def _cancelled(self, number: int, moved: int) -> None:
        started_us, rate = self._started[number]
        most = rate * (self._now_us - started_us) // SECOND_US
        if rate and moved > most:
            self._checkers.report("task too fast", f"task {number} has moved {moved} messages, allowed were {most}")

    def check(self, machines: Mapping[str, Machine]) -> None:
        """Compare the messages of each replica with those pushed, at the end of the log."""
        for replica, machine in machines.items():
            found = Counter(body for name in (*SOURCES, TARGET) for body in _bodies(machine, name))
            if lost := self.pushed - found:
                self._checkers.report("lost by a task", f"{replica}: {lost.total()}, such as {[*lost][:3]}")
            if more := found - self.pushed:
                self._checkers.report("doubled by a task", f"{replica}: {more.total()}, such as {[*more][:3]}")
            for source in SOURCES:
                running = machine.state.move_tasks.running(source)
                if running is not None and running.due_us() < machine.state.now_us - OVERDUE_US:
                    self._checkers.report("task overdue", f"{replica}: {running} at {machine.state.now_us}")


def _bodies(machine: Machine, name: bytes) -> list[bytes]:
    queue = machine.state.queues.get(name)
    if queue is None:
        return []
    backlog = () if queue.store.backlog is None else queue.store.backlog.messages()
    messages = [*queue.store.ready, *backlog, *(message for _due, _sequence, message in queue.store.delayed)]
    for _, line in [] if queue.store.rich is None else queue.store.rich.lines():
        messages += [entry[-1] for block in line.frozen() for entry in block]
    return [body for message in messages if isinstance(body := loaded(message.content), bytes)]


class MovingClient:
    """Pushes messages and sends random commands about tasks at one node."""

    def __init__(self, host: Host, replica: Any, requests: Requests, seed: int) -> None:
        self._replica = replica
        self._requests = requests
        self._name = f"{host.id}:{host.life}"
        # A separate generator, so that the numbers of the node's other clients do not change.
        self._rng = random.Random(f"{seed}:{self._name}:moving")
        self._pushed = 0
        self._later()

    def _later(self) -> None:
        self._replica.loop.call_later(self._rng.expovariate(1.0 / PAUSE_S), self._act)

    def _act(self) -> None:
        if self._requests.is_at_rest():
            return
        self._replica.submit(self._command(), Silent())
        self._later()

    def _command(self) -> list[Any]:
        rng, source = self._rng, self._rng.choice(SOURCES)
        running = self._replica.node.replica.machine.state.move_tasks.running(source)
        kind = rng.choices(["push", "start", "cancel"], [3, 3, 2])[0]
        if kind == "push" and self._pushed < MESSAGES_MAX:
            bodies = [f"{self._name}:{self._pushed + place}".encode() for place in range(rng.randint(1, 20))]
            self._pushed += len(bodies)
            return [Op.PUSH, rng.choice([source, source, TARGET]), None, bodies, None, 0]
        if kind == "cancel" and running is not None:
            return [Op.CANCEL_MOVE_TASK, source, running.number]
        return [Op.START_MOVE_TASK, source, TARGET, 0 if source == SOURCES[0] else rng.choice([1, 3, 5])]
