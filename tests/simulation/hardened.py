"""lmqcluster's `RaftCore` over its real storage, with as much around it as a node has: forwarding to the leader,
compaction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lmqcluster.replication.base.membership import PeerNode
from lmqcluster.replication.base.settings import RaftSettings
from lmqcluster.replication.peers import messages
from lmqcluster.replication.raft.core import RaftCore
from lmqcluster.replication.storage.node_storage import NodeStorage
from tests.simulation.core_snapshots import InlineSnapshots
from tests.simulation.host import SimTransport
from tests.simulation.journal import WatchedJournal
from tests.simulation.node_loop import storage_world
from tests.simulation.raft_state import RaftState

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tests.simulation.host import Host
    from tests.simulation.interfaces import Replica
    from tests.simulation.run import Simulation

__all__ = ["CoreReplica", "CoreSubject", "PeerTransport", "core_settings", "open_storage"]

FORWARD = "forward"
ENTRY_BYTES = 400
"""Approximate size of a workload entry in the journal."""
COMMAND_BYTES = 250
SEGMENT_BYTES = 4096
ADMISSION_LAG = 20


class PeerTransport(SimTransport):
    """Behaves as the real transport: sends on its own connections, receives from every authenticated peer, passes each
    message through the wire codec, and withholds promises until the journal is synced.
    """

    def __init__(self, host: Host, peers: Sequence[PeerNode]) -> None:
        super().__init__(host, peers)
        self._outbox: list[tuple[str, Any]] = []
        self._held: list[tuple[str, Any]] = []

    def accepts(self, peer: str) -> bool:
        return True

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802 - the library's name
        known = node.id in self._nodes
        super().dropNode(node)
        if known:
            self._forget(node.id)
            self._onNodeDisconnected(node)

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        if node.id not in self._nodes:
            # A leader that is not a known member yet announced its address when it connected.
            self.addNode(PeerNode(node.id, node.id))
        if self._host.session(node.id) is None:
            return False
        queue = self._held if message["type"] in messages.AFTER_SYNC else self._outbox
        queue.append((node.id, message if message["type"] == FORWARD else messages.encode(message)))
        return True

    def flush(self, *, synced: bool = True) -> None:
        if synced:
            self._outbox += self._held
            self._held = []
        leaving, self._outbox = self._outbox, []
        for peer, message in leaving:
            self._host.send(peer, message)

    def connection_made(self, peer: str) -> None:
        self._forget(peer)
        super().connection_made(peer)

    def connection_lost(self, peer: str) -> None:
        self._forget(peer)
        super().connection_lost(peer)

    def _forget(self, peer: str) -> None:
        """Discard the messages of the old connection; a new one carries none of them."""
        self._outbox = [each for each in self._outbox if each[0] != peer]
        self._held = [each for each in self._held if each[0] != peer]

    def deliver(self, peer: str, message: Any) -> None:
        replica = self._host.replica
        assert isinstance(replica, CoreReplica)
        if isinstance(message, dict):
            replica.core.propose(message["command"])
        else:
            self._onMessageReceived(PeerNode(peer, peer), messages.decode(message))


def open_storage(host: Host, peers: Sequence[str], durability: str, *, joining: bool) -> NodeStorage:
    """Open the node's files on the host's disk, for a member of the list `peers`, or one that is to join them."""
    members = {peer: peer for peer in peers}
    founders = {host.id: host.id} if joining else members
    storage = NodeStorage.open(host.disk, host.id, founders, durability, segment_bytes=SEGMENT_BYTES)
    if joining and not storage.meta.joining:
        storage.begin_again(host.id, members, joining=True)
    return storage


class CoreReplica(RaftState):
    """One life of a `RaftCore`. A snapshot is the application's index and digest."""

    def __init__(self, host: Host, storage: NodeStorage, settings: RaftSettings, rng: random.Random) -> None:
        self._host = host
        self._storage = storage
        self._settings = settings
        meta = storage.meta
        if meta.founding and not host.untrusted:
            # Only a whole node can tell founders from members that have lost their disk.
            storage.recovering = storage.forgetful = False
        self._meta = meta
        members = meta.members if storage.latest is None else dict(storage.latest.members)
        nodes = [PeerNode(peer, peer) for peer in members if peer != host.id]
        self._transport = host.transport = PeerTransport(host, nodes)
        self.journal = WatchedJournal(storage.journal, host, durable=storage.durable)
        self._snapshots = InlineSnapshots(host, storage.snapshots, self._position)
        self.core = RaftCore(
            host.id,
            members,
            self._transport,
            self.journal,
            apply=self._apply,
            snapshots=self._snapshots,
            settings=settings,
            rng=rng,
            durable=storage.durable,
            recovering=storage.recovering,
            forgetful=storage.forgetful,
        )
        self._snapshots.in_use = self.core.snapshots_in_use
        self._unsaved_bytes = 0

    def _position(self) -> tuple[int, int, dict[str, str]]:
        self._unsaved_bytes = 0
        return self.core.applied_position()

    def _apply(self, index: int, command: bytes | memoryview) -> bool:
        self._unsaved_bytes += len(command)
        self._host.apply(index, bytes(command))
        return True

    def kept(self) -> tuple[int, int] | None:
        latest = self._snapshots.latest()
        index = 0 if latest is None else latest.index
        return (index, self.core.applied_index()) if self._storage.durable else None

    @property
    def recovering(self) -> bool:
        return self.core.is_recovering()

    def tick(self) -> None:
        self.step()

    def step(self) -> None:
        core = self.core
        core.doTick(0)
        core.flush()
        self._transport.flush(synced=False)
        self.journal.sync()
        self._transport.flush()
        core.compact()
        if not core.is_recovering():
            self._meta.mark_trusted()
        if not self._storage.durable:
            self._meta.save_members(core.members_at(core.commit_index()))
        elif self._unsaved_bytes > self._settings.snapshot_log_bytes:
            self.take_snapshot()

    def propose(self, command: bytes) -> None:
        leader = self.core.leader_id()
        if self.core.is_leader():
            self.core.propose(command)
        elif leader is not None:
            self._transport.send(PeerNode(leader, leader), {"type": FORWARD, "command": command})

    def change_members(self, add: bool, member: str) -> None:
        self.core.propose_change("add" if add else "rem", member, member, lambda _done: None)

    def admit(self, member: str) -> None:
        lag = self.core.learn(member, member)
        if lag is not None and lag <= self._settings.learner_lag_max:
            self.change_members(True, member)

    def learn_only(self, member: str) -> None:
        self.core.learn(member, member)

    def transfer(self, member: str | None) -> None:
        self.core.transfer_leadership(member)

    def take_snapshot(self) -> None:
        self._snapshots.request()
        self.core.compact()

    def stop(self) -> None:
        self.core.destroy()


def core_settings(log_entries: int | None, quorum_lost_s: float | None = None) -> RaftSettings:
    """Return the production settings with sizes scaled down, as the commands are."""
    soft = ENTRY_BYTES * log_entries if log_entries else 1 << 40
    settings = RaftSettings(
        append_bytes_max=1024,
        log_bytes_soft=soft,
        log_bytes_hard=3 * soft,
        snapshot_log_bytes=COMMAND_BYTES * log_entries if log_entries else 1 << 40,
        learner_lag_max=ADMISSION_LAG,
        backlog_bytes=0,
    )
    return replace(settings, quorum_lost_s=quorum_lost_s) if quorum_lost_s else settings


class CoreSubject:
    """A `RaftCore` without the rest of a node."""

    name = "core"
    tick_s = 0.05
    shared_connections = False
    fail_stop = True
    retries = False
    wants_steps = True

    def __init__(
        self, *, log_entries: int | None = None, durability: str = "memory", quorum_lost_s: float | None = None
    ) -> None:
        self._settings = core_settings(log_entries, quorum_lost_s)
        self._durability = durability

    def forgets(self, *, power: bool) -> bool:
        return self._durability == "memory" or (power and self._durability == "process")

    def world(self, simulation: Simulation) -> AbstractContextManager[None]:
        return storage_world(simulation.clock)

    def begin_again(self) -> None:
        """Do nothing: this subject keeps no data itself."""

    def check_end(self, simulation: Simulation) -> None:
        """Do nothing: the checkers have seen everything."""

    def start(self, host: Host, peers: Sequence[str], rng: random.Random, *, joining: bool) -> Replica:
        storage = open_storage(host, peers, self._durability, joining=joining)
        return CoreReplica(host, storage, self._settings, rng)
