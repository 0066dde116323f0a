"""The whole node, driven also by clients that use the queue features beyond push, pull and ack."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from tests.simulation.attempt_clients import AttemptClient
from tests.simulation.batch_clients import BatchClient
from tests.simulation.leaving_clients import LeavingClient, LeavingJudge
from tests.simulation.model_judge import MODELLED, ModelJudge
from tests.simulation.moving_clients import MovingClient, MovingJudge
from tests.simulation.node_clients import Ledger, body_of
from tests.simulation.node_stack import NodeReplica, NodeSubject, lacks_pages
from tests.simulation.operator_clients import OperatorClient
from tests.simulation.producer_clients import NUMBERED, ProducerClient, ProducerJudge
from tests.simulation.queue_clients import QUEUES, QueueClient, Requests
from tests.simulation.queue_judge import QueueJudge, number_of
from tests.simulation.schedule_clients import ScheduleClient
from tests.simulation.schedule_judge import ScheduleJudge
from tests.simulation.session_clients import SessionClient
from tests.simulation.session_judge import SESSION_QUEUES, SessionJudge

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

    from lmqcluster.core import Applied, Machine
    from tests.simulation.host import Host
    from tests.simulation.run import Simulation

__all__ = ["QueueSubject"]


class _Ledger(Ledger):
    """Shows the log to the judges."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation.checkers, simulation.is_at_rest)
        self.judge = QueueJudge(simulation.checkers, frozenset(QUEUES))
        self.session_judge = SessionJudge(simulation.checkers)
        self.leaving_judge = LeavingJudge(simulation.checkers)
        self.schedule_judge = ScheduleJudge(simulation.checkers)
        self.moving_judge = MovingJudge(simulation.checkers)
        self.producer_judge = ProducerJudge(simulation.checkers)
        self.model_judge = ModelJudge(simulation.checkers)

    def begin_again(self) -> None:
        super().begin_again()
        self.judge.begin_again()
        self.session_judge.begin_again()
        self.leaving_judge.begin_again()
        self.schedule_judge.begin_again()
        self.moving_judge.begin_again()
        self.producer_judge.begin_again()
        self.model_judge.begin_again()

    def entry_applied(self, index: int, now_us: int, commands: list[Any], applied: Applied) -> None:
        super().entry_applied(index, now_us, commands, applied)
        self.judge.applied(index, now_us, commands, applied.results)
        self.session_judge.applied(index, now_us, commands, applied)
        self.leaving_judge.applied(commands)
        self.schedule_judge.applied(index, now_us, commands, applied)
        self.moving_judge.applied(index, now_us, commands, applied)
        self.model_judge.applied(index, now_us, commands, applied)

    def own_applied(self, host: Host, commands: list[Any], applied: Applied) -> None:
        self.leaving_judge.own_applied((host.id, host.life), commands, applied.results)


class QueueSubject(NodeSubject):
    """A `NodeSubject` with nine more clients at each node."""

    name = "queues"

    def _new_ledger(self, simulation: Simulation) -> Ledger:
        ledger = _Ledger(simulation)
        self._judge, self._session_judge = ledger.judge, ledger.session_judge
        self._leaving_judge, self._producer_judge = ledger.leaving_judge, ledger.producer_judge
        self._schedule_judge, self._moving_judge = ledger.schedule_judge, ledger.moving_judge
        self._model_judge = ledger.model_judge
        self._seed = simulation.seed
        self._requests = Requests(ledger.judge, simulation.is_at_rest)
        return ledger

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> NodeReplica:
        replica = super().start(host, peers, rng, joining=joining)
        QueueClient(host, replica, self._requests)
        SessionClient(host, replica, self._requests, self._session_judge, self._seed)
        LeavingClient(host, replica, self._requests, self._leaving_judge, self._seed)
        ScheduleClient(host, replica, self._requests, self._seed)
        MovingClient(host, replica, self._requests, self._seed)
        ProducerClient(host, replica, self._requests, self._producer_judge, self._seed)
        AttemptClient(host, replica, self._requests, self._model_judge, self._seed)
        BatchClient(host, replica, self._requests, self._model_judge, self._seed)
        OperatorClient(host, replica, self._requests, self._seed)
        return replica

    def check_end(self, simulation: Simulation) -> None:
        super().check_end(simulation)
        replicas = {host.id: host.replica for host in simulation.voters() if host.replica and not lacks_pages(host)}
        machines = {name: replica.node.replica.machine for name, replica in replicas.items()}  # type: ignore[attr-defined]
        self._judge.check({name: _contents(machine, QUEUES) for name, machine in machines.items()})
        contents = {name: _contents(machine, SESSION_QUEUES) for name, machine in machines.items()}
        self._session_judge.check(machines, contents)
        self._schedule_judge.check(machines)
        self._moving_judge.check(machines)
        self._leaving_judge.check([(host.id, host.life) for host in simulation.voters() if host.running])
        self._producer_judge.check({name: _held(machine, NUMBERED) for name, machine in machines.items()})
        self._model_judge.check({name: _contents(machine, MODELLED) for name, machine in machines.items()})


def _contents(machine: Machine, names: Iterable[bytes]) -> dict[bytes, collections.Counter[bytes]]:
    """Return the numbers of the messages by queue."""
    found: dict[bytes, collections.Counter[bytes]] = {}
    for name in names:
        if name in machine.state.queues:
            found[name] = collections.Counter(number_of(body_of(content)) for content in _bodies(machine, name))
    return found


def _held(machine: Machine, name: bytes) -> list[bytes]:
    """Return the messages of a queue, none if it does not exist."""
    return [body_of(content) for content in (_bodies(machine, name) if name in machine.state.queues else ())]


def _bodies(machine: Machine, name: bytes) -> Iterator[Any]:
    queue = machine.state.queues[name]
    yield from (message.content for message in queue.store.ready)
    yield from (message.content for message in (() if queue.store.backlog is None else queue.store.backlog.messages()))
    yield from (message.content for _due, _sequence, message in queue.store.delayed)
    yield from (message.content for message in queue.store.leases.messages.values())
    for _, line in [] if queue.store.rich is None else queue.store.rich.lines():
        yield from (entry[-1].content for block in line.frozen() for entry in block)
