"""The whole node above the sockets: service, pulls, proposer, replica, core and Raft, driven by simulated clients."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgpack

import lmqcluster.node.node
import lmqcluster.replication.replica
from lmqcluster.core import Machine, Op, Restoration, State
from lmqcluster.core.log.commands import Command, decode
from lmqcluster.core.messages.pages import PageError
from lmqcluster.node.commit.proposer import PendingCommand, Proposer
from lmqcluster.node.config.config import NodeConfig
from lmqcluster.node.node import Node
from lmqcluster.node.periodic import EXPIRY_PERIOD_S, LEADER_PERIOD_S
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.node.queues.pulls.pull_options import PLAIN_PULL, PullOptions
from lmqcluster.node.queues.pulls.pulls import Pulls
from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.peers import messages
from lmqcluster.replication.replica import Replica
from lmqcluster.wire.errors import LmqError
from tests.simulation.hardened import PeerTransport, core_settings, open_storage
from tests.simulation.journal import WatchedJournal
from tests.simulation.node_clients import Consumer, Ledger, Push, Raising, Silent
from tests.simulation.node_loop import HostLoop, SimWorker, node_world
from tests.simulation.raft_state import RaftState

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from lmqcluster.core import Applied
    from lmqcluster.node.queues.pulls.wait_lists import PullRequest
    from lmqcluster.replication.storage.node_storage import NodeStorage
    from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo
    from tests.simulation.clock import Clock
    from tests.simulation.host import Host
    from tests.simulation.run import Simulation

__all__ = ["NodeReplica", "NodeSubject", "lacks_pages"]

QUEUE = b"q"
LOG_TIME_ERROR_US = 100_000
REFUSED_AFTER_S = 0.05
"""Seconds until a client reads that a node which was removed from its cluster takes no commands."""
NUMBER = re.compile(rb"(\d{8}):")


class _UnknownCommand:
    """A command of a program that this one does not know."""

    op = 250

    def encode(self) -> list[Any]:
        return [self.op, b"poison"]

    def touches(self) -> tuple[()]:
        return ()


class _Transport(PeerTransport):
    """`PeerTransport` of the replication package without sockets."""

    def __init__(self, host: Host, node_id: str, on_frame: Any) -> None:
        super().__init__(host, [])
        self.me = mock.NonCallableMock(address=node_id)
        self._on_frame = on_frame

    def addNode(self, node: PeerNode) -> None:  # noqa: N802 - the library's name
        if node.id != self._host.id:
            super().addNode(node)

    def deliver(self, peer: str, message: bytes) -> None:
        self._on_frame(PeerNode(peer, peer), messages.decode(message))

    def connected_ids(self) -> set[str]:
        return {node_id for node_id in self._nodes if self._host.session(node_id) is not None}


class _Failure:
    """The future that a node resolves when its replication has stopped; here the process ends."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._result: Exception | None = None

    def done(self) -> bool:
        return self._result is not None

    def set_result(self, error: Exception) -> None:
        self._result = error
        self._host.fail(error)


class _SimNode(Node):
    """A node whose files and event loop are simulated."""

    def __init__(self, host: Host, storage: NodeStorage, ledger: Ledger, loop: HostLoop) -> None:
        super().__init__(NodeConfig(name=host.id))
        self._loop = loop
        self._host = host
        self.ledger = ledger
        self._storage = storage
        self._about.raft = host.id
        self.failure = _Failure(host)  # type: ignore[assignment]
        self._assemble()
        self._upgrade()
        self._expire()

    def _begin_membership(self) -> tuple[Proposer, Pulls]:
        made = super()._begin_membership()
        if self._host.program is not None:
            self._about.machine_version = self._host.program
        return made

    def _check_version(self) -> None:
        """Stop the node if its older program cannot continue."""
        version = self.replica.machine.state.version
        if version > self._about.machine_version:
            self._host.checkers.report(
                "upgraded too soon", f"{self._host.id} must continue as machine version {version}"
            )

    def _upgrade(self) -> None:
        """Do the work of `PeriodicWork.tend_cluster` on the simulated loop, from the start."""
        self._leader_commands.propose_due(self.replica, self.service.sender.proposer)
        self._schedules.tend_clock(self.replica, self.service.sender.proposer, is_full=False)
        self._schedules.supply(self.replica, self.service.sender.proposer)
        self.digests.compare_when_due(self.replica, self.service.sender.proposer)
        self._loop.call_later(LEADER_PERIOD_S, self._upgrade)

    def _expire(self) -> None:
        """Do the work of `PeriodicWork.let_time_pass` on the simulated loop."""
        self._leader_commands.let_time_pass(self.replica, self.service.sender.proposer)
        self._loop.call_later(EXPIRY_PERIOD_S, self._expire)

    def batch_applied(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Any], applied: Applied
    ) -> None:
        assert isinstance(self.replica, _WatchedReplica)
        self.replica.show_applied()
        self._check_version()
        if applied.status == "applied":
            self.ledger.batch_applied(self._host, origin, incarnation, sequence)
            if (origin, incarnation) == (self.service.sender.proposer.origin, self.service.sender.proposer.incarnation):
                self.ledger.own_applied(self._host, commands, applied)
        index, log_us = self._host.application.index, self.replica.machine.state.now_us
        self.ledger.log_time.applied(self._host, index, now_us)
        self.ledger.entry_applied(index, log_us, commands, applied)
        for command, result in zip(commands, applied.results, strict=False):
            if command[0] == Op.PULL and type(result) is list:
                self.ledger.leased(log_us, [number for _queue, number, _remaining, _message in result])
        super().batch_applied(now_us, origin, incarnation, sequence, commands, applied)

    def state_replaced(self) -> None:
        self._check_version()
        self.ledger.state_replaced(self._host, self.replica.machine.state.node_sequences.records())
        super().state_replaced()


class _WatchedReplica(Replica):
    """Shows the checkers the entries that it applies and the states of its snapshots."""

    def __init__(self, storage: NodeStorage, *arguments: Any) -> None:
        super().__init__(storage, *arguments)
        self.host: Host = self.transport._host
        self.loop = self._loop
        self._ahead = (-1, 0)
        self._entry = (0, b"")
        if storage.latest is not None:
            self._show_restored(storage.latest.index)

    def _apply(self, index: int, command: bytes | memoryview) -> bool:
        self._entry = index, bytes(command)
        applied = super()._apply(index, command)
        if applied and self.host.application.index < index:
            # The command is not a batch.
            self.show_applied()
        return applied

    def show_applied(self) -> None:
        """Report the application of the entry that was tried last."""
        self.host.apply(*self._entry)

    def _propose(self, batch: bytes) -> bool:
        if self.core.is_leader():
            self._check_log_time()
            listener = self._listener
            assert isinstance(listener, _SimNode)
            listener.ledger.log_time.stamped(self.clock.now_us(), int(self.loop.time() * 1e6))
        return super()._propose(batch)

    def _check_log_time(self) -> None:
        """Check that log time runs at least as fast as virtual time while one node leads."""
        ahead_us = self.clock.now_us() - int(self.loop.time() * 1e6)
        term, furthest_us = self._ahead
        if term != self.core.term():
            furthest_us = ahead_us
        elif furthest_us - ahead_us > LOG_TIME_ERROR_US:
            self.host.checkers.report("log time runs slow", f"{self.host.id} has lost {furthest_us - ahead_us} us")
        self._ahead = (self.core.term(), max(furthest_us, ahead_us))

    def position(self) -> tuple[int, int, dict[str, str]]:
        self._show_state()
        return super().position()

    def snapshot_taken(self, info: SnapshotInfo) -> None:
        """Check that the file holds the state and the members of its index."""
        restoration = Restoration(State(compile_pattern))
        for record in self.storage.snapshots.records(info):
            restoration.take(record)
        machine = Machine(compile_pattern, restoration.finish())
        machine.state.pager.store = self.pages
        self._check_state(info.index, machine)
        if info.index >= self.journal.first_index and info.members != self.core.members_at(info.index):
            detail = f"{self.host.id} names {sorted(info.members)} as the members of index {info.index}"
            self.host.checkers.report("members of a snapshot", detail)
        super().snapshot_taken(info)

    def replace_machine(self, machine: Machine) -> None:
        super().replace_machine(machine)
        self._show_restored(self.core.applied_index())

    def _show_restored(self, index: int) -> None:
        self.host.checkers.restored_up_to(self.host, index)
        self._show_state()

    def _show_state(self) -> None:
        self._check_state(self.core.applied_index(), self.machine)

    def _check_state(self, index: int, machine: Machine) -> None:
        try:
            digest = _digest(machine)
        except PageError:
            # The state is damaged, and may still arrive from another node.
            if not self.host.harmed:
                raise
        else:
            self.host.checkers.state(self.host, index, digest)


def _digest(machine: Machine) -> bytes:
    packer = msgpack.Packer()
    digest = hashlib.blake2b(digest_size=8)
    for record in machine.snapshot():
        digest.update(packer.pack(record))
    return digest.digest()


class NodeReplica(RaftState):
    """One life of a node's process."""

    def __init__(
        self, host: Host, storage: NodeStorage, ledger: Ledger, loop: HostLoop, settings: RaftSettings
    ) -> None:
        self._host = host
        self._ledger = ledger
        self._settings = settings
        self.loop = loop
        self.journal = storage.journal = WatchedJournal(storage.journal, host, durable=storage.durable)
        self._build(storage)
        replica = self.node.replica
        if storage.latest is not None:
            ledger.state_replaced(host, replica.machine.state.node_sequences.records())
        for node_id, address in replica.core.members().items():
            replica.transport.addNode(PeerNode(node_id, address))
        replica.steps.tick()
        self._consumer = Consumer(host, self, QUEUE, ledger)
        loop.call_later(1.0, self._consumer.next)

    def _build(self, storage: NodeStorage) -> None:
        """Build the node with the simulated loop, transport and workers, and an apply that the checkers see."""
        host = self._host

        def transport(_me: Any, _secret: bytes, on_frame: Any, _on_ask: Any) -> _Transport:
            host.transport = _Transport(host, storage.meta.node_id, on_frame)
            return host.transport

        def worker(_name: str) -> SimWorker:
            return SimWorker(host, self.loop)

        module = lmqcluster.replication.replica
        with (
            mock.patch("asyncio.get_running_loop", return_value=self.loop),
            mock.patch.object(module, "PeerTransport", transport),
            mock.patch.object(module, "ThreadWorker", worker),
            mock.patch.object(lmqcluster.node.node, "Replica", _WatchedReplica),
            mock.patch.object(lmqcluster.node.node, "RaftSettings", return_value=self._settings),
        ):
            self.node = _SimNode(host, storage, self._ledger, self.loop)
        self.core = self.node.replica.core

    def kept(self) -> tuple[int, int] | None:
        replica = self.node.replica
        latest = replica.snapshots.latest()
        index = 0 if latest is None else latest.index
        return (index, self.core.applied_index()) if replica.storage.durable else None

    @property
    def recovering(self) -> bool:
        # A node that lacks pages may have to discard its whole state.
        return self.core.is_recovering() or lacks_pages(self._host)

    def tick(self) -> None:
        """Do nothing: the node sets its own timers."""

    def step(self) -> None:
        """Do nothing: the node schedules its own steps."""

    def propose(self, command: bytes) -> None:
        """Push `command` as a client."""
        push = Push(self._host, self._ledger, command, self.loop)
        self.submit([Op.PUSH, QUEUE, None, [command], None, 0], push)

    def propose_poison(self) -> None:
        """Propose an entry that is not a batch, and a batch with an unknown command."""
        self.node.replica._propose(b"\xc1poison")
        self._add(_UnknownCommand(), Silent())  # type: ignore[arg-type]

    def propose_with_raising_callback(self, command: bytes) -> None:
        self.submit([Op.PUSH, QUEUE, None, [command], None, 0], Raising())

    def submit(self, command: list[Any], sink: Any) -> None:
        self._add(decode(command), sink)

    def _add(self, command: Command, sink: Any) -> None:
        pending = PendingCommand(command, [sink], sink)
        try:
            self.node.service.sender.proposer.add(pending, 64)
        except LmqError as exc:
            self.loop.call_later(REFUSED_AFTER_S, sink.failed, pending, exc)

    def pull(self, queue: bytes, request: PullRequest, options: PullOptions = PLAIN_PULL) -> None:
        try:
            self.node.service.pulls.start(queue, request, options)
        except LmqError as exc:
            self.loop.call_later(REFUSED_AFTER_S, request[0].pull_failed, request[1], exc)

    def change_members(self, add: bool, member: str) -> None:
        self.core.propose_change("add" if add else "rem", member, member, lambda _done: None)
        self.node.replica.wake()

    def admit(self, member: str) -> None:
        """Admit a node as `Replica.answer` does for a joining node, without waiting."""
        lag = self.core.learn(member, member)
        if lag is not None and lag <= self._settings.learner_lag_max:
            self.change_members(True, member)
        self.node.replica.wake()

    def learn_only(self, member: str) -> None:
        self.core.learn(member, member)
        self.node.replica.wake()

    def transfer(self, member: str | None) -> None:
        self.core.transfer_leadership(member)
        self.node.replica.wake()

    def take_snapshot(self) -> None:
        self.node.replica.in_step(self.node.replica.snapshots.request)

    def contents(self) -> list[bytes]:
        """Return the numbers of the messages that this replica's queues hold, read from its snapshot."""
        packed = b"".join(msgpack.packb(record) for record in self.node.replica.machine.snapshot())
        return NUMBER.findall(packed)

    def digest(self) -> bytes:
        """Return the digest of the whole state."""
        return _digest(self.node.replica.machine)

    def stop(self) -> None:
        self.node.replica._failed = True


def lacks_pages(host: Host) -> bool:
    """Return whether a machine with damaged files still waits for pages from another one."""
    if not host.harmed or not isinstance(host.replica, NodeReplica):
        return False
    try:
        host.replica.contents()
    except PageError:
        return True
    return False


class NodeSubject:
    """Nodes with production settings, except for sizes."""

    name = "node"
    tick_s = 1.0
    shared_connections = False
    fail_stop = True
    retries = True
    wants_steps = False

    def __init__(
        self, *, log_entries: int | None = None, durability: str = "memory", quorum_lost_s: float | None = None
    ) -> None:
        self._settings = core_settings(log_entries, quorum_lost_s)
        self._durability = durability
        self._ledger: Ledger | None = None

    def forgets(self, *, power: bool) -> bool:
        return self._durability == "memory" or (power and self._durability == "process")

    def world(self, simulation: Simulation) -> AbstractContextManager[None]:
        self._ledger = self._new_ledger(simulation)
        self._clock: Clock = simulation.clock
        self._simulation = simulation
        return node_world(simulation.clock, simulation.library_rng)

    def _new_ledger(self, simulation: Simulation) -> Ledger:
        return Ledger(simulation.checkers, simulation.is_at_rest)

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> NodeReplica:
        assert self._ledger is not None
        self._ledger.log_time.starts(int(self._clock.now * 1e6))
        storage = open_storage(host, peers, self._durability, joining=joining)
        meta = storage.meta
        if meta.founding and not (joining or meta.restarted or meta.joining) and (members := self._cluster_of(host)):
            # `Founding` does this after a node there has answered.
            storage.begin_again(host.id, members, joining=True, founding=True)
        return NodeReplica(host, storage, self._ledger, HostLoop(host, self._clock), self._settings)

    def _cluster_of(self, host: Host) -> dict[str, str]:
        """Return the members of the cluster to which a node already belongs, as the others report; empty if unknown."""
        for other in self._simulation.hosts.values():
            replica = other.replica
            if other is not host and isinstance(replica, NodeReplica) and not replica.node.replica.meta.founding:
                members = replica.core.members()
                if host.id in members:
                    return members
        return {}

    def begin_again(self) -> None:
        assert self._ledger is not None
        self._ledger.begin_again()

    def check_end(self, simulation: Simulation) -> None:
        assert self._ledger is not None
        # A page that was damaged recently has not arrived from another node yet.
        replicas = {host.id: host.replica for host in simulation.voters() if host.replica and not lacks_pages(host)}
        self._ledger.check({name: replica.contents() for name, replica in replicas.items()})  # type: ignore[attr-defined]
        digests = {name: replica.digest().hex() for name, replica in replicas.items()}
        if len(set(digests.values())) > 1:
            simulation.checkers.report("states differ", f"{digests}")
