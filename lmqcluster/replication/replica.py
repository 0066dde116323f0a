"""One member of the cluster: the Raft core, the state machine and the peers' network, driven by the event loop.

Received messages go to an inbox, and a step (see `steps`) feeds them to the core. The core and the machine change in
steps only, except for routine answers of followers, which have no further consequences.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Protocol

import msgpack
import structlog

from ..core import Applied, Machine
from ..core.log.commands import Command, Compile, Encoded
from .base.batch_entry import decode_batch
from .base.histogram import Histogram
from .base.log_clock import LogClock
from .base.membership import PeerNode
from .base.node_info import NodeInfo
from .base.settings import RaftSettings
from .base.status import ReplicaStatus
from .member_addresses import MemberAddresses
from .peer_proposals import PeerProposals
from .peer_requests import PeerRequests
from .peers.handshake import Identity
from .peers.security import PeerSecurity
from .peers.transport import PeerTransport
from .raft.commit_notifier import PATIENCE_S
from .raft.core import RaftCore
from .raft.read_index import ReadIndex, fingerprint
from .raft.sync_heartbeats import SIGNS, SyncHeartbeats
from .recovery.page_exchange import PageExchange
from .recovery.page_supply import PAGE_MESSAGES, PageSupply
from .recovery.snapshot_keeper import SnapshotKeeper
from .recovery.stale_receipts import StaleReceipts
from .recovery.throttle import Throttle
from .role_log import RoleLog
from .steps import Steps
from .storage.io.worker import ThreadWorker, Worker
from .storage.node_storage import NodeStorage
from .storage.page_files import PageFiles
from .storage.snapshots.snapshot_store import SnapshotInfo
from .taken_batches import TakenBatches

__all__ = ["Replica", "ReplicaListener"]

log = structlog.get_logger("lmq.replica")

PAGES_PER_BATCH = 2
"""Most pages made after one batch, or in one step, to bound its duration."""


class ReplicaListener(Protocol):
    """Callbacks for events on this replica. Called within a step; they must not block or raise."""

    def batch_applied(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Encoded], applied: Applied
    ) -> None:
        """Handle a batch, of any node, that was applied."""

    def batch_refused(self, sequence: int) -> None:
        """Handle a batch of this node that reached a node that does not lead."""

    def leader_changed(self, leader_id: str | None) -> None:
        """Send unresolved batches again: there is another leader, another term, or a new link to the leader."""

    def state_replaced(self) -> None:
        """Use the new machine: a snapshot was installed, and the machine is another object now."""

    def standing_changed(self) -> None:
        """Refuse clients or serve them again: this replica was removed from its cluster, or belongs to it again."""

    def failed(self, error: BaseException) -> None:
        """Stop the process, as the replica has stopped."""


@dataclass(slots=True)
class _Seen:
    leader: str | None = None
    term: int = -1
    was_removed: bool = False


class _Applied(NamedTuple):
    """The entries applied since the start: their bytes, and the time in seconds that they took."""

    size_bytes: int = 0
    seconds: float = 0.0


class Replica:
    """A running member.

    Args:
        storage: identity, log and snapshots, opened.
        about: description of this node for its peers; its address is where they can dial this node.
        security: credentials required of peers.
        settings: timing and sizes.
        compile_pattern: regular expressions for the machine.
        listener: callbacks for events.

    Attributes:
        applied_batches, applied_bytes, skipped_total: counters; the last one counts entries that could not be decoded.
        steps: runs the core, and counts the time it waits for the disk.
        page_supply: fetches the pages that are needed.
        throttle: whether nothing is applied until the disk has caught up.
        obstacle: why the founding members cannot be found, for people; set by the search for them.
    """

    def __init__(
        self,
        storage: NodeStorage,
        about: NodeInfo,
        security: PeerSecurity,
        settings: RaftSettings,
        compile_pattern: Compile,
        listener: ReplicaListener,
    ) -> None:
        meta = self.meta = storage.meta
        self.storage = storage
        self.machine: Machine
        self.clock = LogClock()
        self.lost_receipts = StaleReceipts(meta, recovering=storage.recovering)
        self.peers: dict[str, NodeInfo] = {}
        self.obstacle = ""
        self.applied_batches = self.applied_bytes = self.skipped_total = 0
        # What the latest snapshot holds, and what the pending one does.
        self._saved = self._to_save = _Applied()
        self._about = about
        self._listener = listener
        self._settings = settings
        self._seen = _Seen()
        self._roles = RoleLog(self.name_of)
        self._inbox: list[tuple[PeerNode, dict[str, Any]]] = []
        self._actions: list[Callable[[], None]] = []
        # Members that wait for the commit of the entries in the log.
        self._hurried: set[PeerNode] = set()
        self._news_timer: asyncio.TimerHandle | None = None
        self._failed = False
        self._told_address = False
        self._loop = asyncio.get_running_loop()
        self._file_worker: Worker = ThreadWorker("files")
        identity = Identity(meta.node_id, meta.incarnation, about.raft)
        self.peer_requests = PeerRequests(self, settings)
        self.transport = PeerTransport(identity, security, self._received, self.peer_requests.answer)
        self.journal = storage.journal
        # With any other durability, writes do not wait for the disk.
        journal_worker = ThreadWorker("journal") if storage.durability == "disk" else None
        self.steps = Steps(self, self.journal, self.transport, journal_worker)
        self._page_worker: Worker = ThreadWorker("pages")
        self._page_reader: Worker = ThreadWorker("page reads")
        self.pages = PageFiles(storage.pages(), self._page_worker, sync=storage.durable, reader=self._page_reader)
        self.throttle = Throttle(self.pages)
        self.page_exchange = PageExchange(self.pages, lambda: self.machine.state.pager, self._send_at_once)
        self.snapshots = SnapshotKeeper(
            self,
            storage.snapshots,
            self.pages,
            self.page_exchange,
            self._file_worker,
            compile_pattern,
            backlog_bytes=settings.backlog_bytes,
        )
        self.machine, lacking = self.snapshots.restore(storage.latest)
        members = meta.members if storage.latest is None else dict(storage.latest.members)
        self.clock.guess(self._latest_stamp_us())
        self.core = RaftCore(
            meta.node_id,
            members,
            self.transport,
            self.journal,
            apply=self._apply,
            snapshots=self.snapshots,
            settings=settings,
            rng=random.Random(),
            durable=storage.durable,
            recovering=storage.recovering,
            forgetful=storage.forgetful,
        )
        self.core.link_changed = self._link_changed
        self._addresses = MemberAddresses(self.core, self.transport, self.peers)
        self.core.begins_to_lead = lambda: self.clock.lead(self._latest_stamp_us())
        self._taken_batches = TakenBatches(self.core)
        self._peer_proposals = PeerProposals(
            self.core, self.clock, self.lost_receipts, self._taken_batches, self._propose, self._answer
        )
        self._signs_of_life = SyncHeartbeats(self.core, self.transport)
        self.pages.on_written = self.wake
        self.page_supply = PageSupply(self, lacking, self._send_at_once)
        self._fresh_reads = ReadIndex(meta.node_id, self.core, lambda: self.journal.last_index, self._send_at_once)

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int, *, listening: bool = True) -> int:
        """Listen for peers if `listening`, dial them and begin to tick; return the bound port, 0 if there is none.

        Raises:
            OSError: the address cannot be bound.
        """
        bound = await self.transport.listen(host, port) if listening else 0
        for node_id, address in self.core.members().items():
            self.transport.addNode(PeerNode(node_id, address))
        self.steps.tick()
        return bound

    async def stop(self) -> None:
        """Leave the network; nothing is applied after that."""
        self._failed = True
        self.steps.stop()
        if self._news_timer is not None:
            self._news_timer.cancel()
        self.snapshots.close()
        self.page_supply.close()
        self._peer_proposals.close()
        await self.transport.close()
        self.steps.close()
        self._file_worker.close()
        self._page_worker.close()
        self._page_reader.close()
        self.storage.close()

    def wake(self) -> None:
        """Run a step in this turn of the event loop."""
        self.steps.wake()

    def in_step(self, action: Callable[[], None]) -> None:
        """Run `action` at the beginning of the next step, when nothing else uses the core."""
        self._actions.append(action)
        self.wake()

    def found(self, members: Mapping[str, str]) -> None:
        """Make these founding members, id to Raft address, durable; they found the cluster once all know of all."""
        self.meta.found(members)
        self.in_step(lambda: self.core.members_from_log(members))

    # --- the parts of a step --------------------------------------------------------------------------------------

    def take_input(self) -> None:
        """Pass received messages and pending actions to the core."""
        actions, self._actions = self._actions, []
        for action in actions:
            action()
        inbox, self._inbox = self._inbox, []
        for node, message in inbox:
            self.core.receive(node, message)

    def advance(self) -> None:
        """Run a tick of the core: commit, apply, append and send."""
        core = self.core
        core.is_throttled = self.throttle.update(self.machine.state.pager) or self.page_supply.is_waiting()
        core.doTick(0)
        hurried, self._hurried = self._hurried, set()
        if core.flush(hurried) and self._news_timer is None:
            self._news_timer = self._loop.call_later(PATIENCE_S, self._tell_news)

    def on_event_loop_stall(self, seconds: float) -> None:
        """Extend the timeouts after a stall, in which this member did not listen."""
        self.core.on_event_loop_stall(seconds)
        log.info("event loop stalled", seconds=round(seconds, 3))

    def keep_alive(self) -> None:
        """Send heartbeats while a sync blocks the core."""
        self._signs_of_life.send()

    def _tell_news(self) -> None:
        self._news_timer = None
        self.wake()

    def finish(self) -> bool:
        """Carry out the consequences of a step; return whether there is more to do immediately."""
        core = self.core
        core.compact()
        self._fresh_reads.applied()
        self._note_changes()
        self._tend_files()
        # Messages that could not be paged out while batches came are paged out now, as fast as the disk permits.
        paging = self.machine.state.pager.page_out(PAGES_PER_BATCH) > 0
        held = core.is_installing() or core.is_throttled
        unapplied = core.applied_index() < core.commit_index() and not held
        alone = core.is_leader() and len(core.members()) == 1 and core.commit_index() < self.journal.last_index
        return bool(self._inbox or self._actions or unapplied or alone or paging)

    def _tend_files(self) -> None:
        """Prepare the log's next file, and take a snapshot if the log or the unneeded pages have grown enough."""
        if not self.storage.durable:
            return
        spare = self.journal.prepare_spare()
        if spare is not None:
            self._file_worker.run(spare, self._spare_made)
        latest, applied, saved = self.snapshots.latest(), self._applied(), self._saved
        log_bytes, apply_s = applied.size_bytes - saved.size_bytes, applied.seconds - saved.seconds
        if self._settings.is_snapshot_due(log_bytes, apply_s, 0 if latest is None else latest.size_bytes):
            self.snapshots.request()
        else:
            self.snapshots.request_for_space()

    def _applied(self) -> _Applied:
        return _Applied(self.applied_bytes, self.core.applying_s)

    def _spare_made(self, error: Exception | None) -> None:
        if error is not None:
            # The roll makes the file itself, and if it cannot, its error stops the node.
            log.warning("next log file could not be prepared", reason=str(error))

    def failed(self, error: Exception) -> None:
        """Stop: continuing could break a promise."""
        if not self._failed:
            self._failed = True
            self.steps.stop()
            self.pages.set_aside()
            log.critical("replication stopped", reason=str(error), exc_info=error)
            self._listener.failed(error)

    # --- owner of the snapshots -----------------------------------------------------------------------------------

    def position(self) -> tuple[int, int, dict[str, str]]:
        """Return index and term of the last applied entry, and the members at that index."""
        self._to_save = self._applied()
        return self.core.applied_position()

    def peers_now(self) -> list[PeerNode]:
        """Return the members that can be asked now."""
        return [PeerNode(node_id) for node_id in sorted(self.transport.connected_ids())]

    def others_count(self) -> int:
        """Return the number of members besides this one."""
        return len(self.core.members().keys() - {self.id})

    def hold_back(self, held: bool) -> None:
        """Stop applying entries, or continue."""
        self.core.is_held_back = held
        self.wake()

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Return the snapshots that are being sent."""
        return self.core.snapshots_in_use()

    def acknowledge_blocks(self) -> None:
        """Acknowledge blocks of the incoming snapshot after the disk has caught up with them."""
        self.core.acknowledge_blocks()

    def snapshot_taken(self, info: SnapshotInfo) -> None:  # noqa: ARG002 - the core asks for the latest
        """Compact the log, as a snapshot is complete."""
        self._saved = self._to_save
        self.core.compact()

    def replace_machine(self, machine: Machine) -> None:
        """Replace the machine by that of an installed snapshot."""
        if machine.state.salt != self.machine.state.salt:
            self.lost_receipts.renewed(self.core.applied_index())
        self.machine = machine
        self.page_supply.installed()
        self.core.is_held_back = False
        self._saved = self._applied()
        self.clock.follow(machine.state.now_us)
        self._listener.state_replaced()

    def _note_changes(self) -> None:
        core, seen = self.core, self._seen
        self._roles.note(core, forgetful=not self.meta.founding)
        leader, term = core.leader_id(), core.term()
        if (leader, term) != (seen.leader, seen.term):
            seen.leader, seen.term = leader, term
            self._listener.leader_changed(leader)
        if core.was_removed() != seen.was_removed:
            seen.was_removed = core.was_removed()
            self._listener.standing_changed()
        if core.is_leader() and not self._told_address and core.applied_index() == core.commit_index():
            # This node may have moved while it was down.
            self._told_address = True
            self._addresses.tell(self.meta.node_id, self._about.raft)
        if not self.storage.durable:
            # A durable log holds the members itself.
            self.meta.save_members(core.members_at(core.commit_index()))
        about, recovering = self._about, core.is_recovering()
        told = core.is_empty(), recovering, b"" if self.machine.state.salt else fingerprint(core.members())
        if told != (about.empty, about.recovering, about.members):
            about.empty, about.recovering, about.members = told
            for node_id in sorted(self.transport.connected_ids()):
                self.transport.send(PeerNode(node_id), self._about_message())
            self.transport.flush()
        if recovering:
            self._end_recovery_if_nobody_knows_more()
        else:
            self.lost_receipts.recovered(core.members())
            self.meta.mark_trusted()

    def _end_recovery_if_nobody_knows_more(self) -> None:
        """End recovery if every member is connected and each is empty or has lost entries too."""
        members, me = self.core.members(), self.meta.node_id
        here = self.transport.connected_ids() & self.peers.keys()
        others = [self.peers[node_id] for node_id in members if node_id != me and node_id in here]
        if me not in members or len(others) < len(members) - 1:
            return
        if not all(about.empty or about.recovering for about in others):
            return
        if not self.meta.founding:
            log.warning("all members have restarted without all of their data; the cluster goes on with what is left")
        elif any(about.members != self._about.members for about in others):
            # Two clusters that share a node must never be founded.
            return
        self.core.end_recovery()

    # --- links and messages ---------------------------------------------------------------------------------------

    def _link_changed(self, node: PeerNode, is_connected: bool) -> None:
        self.page_exchange.link_changed(node)
        if not is_connected:
            self.core.leader_link_lost(node)
        else:
            self.transport.send(node, self._about_message())
            if node.id == self.core.leader_id():
                self._listener.leader_changed(node.id)
        self.wake()

    def _received(self, node: PeerNode, message: dict[str, Any]) -> None:
        kind = message["type"]
        if self.meta.awaits_founders and kind != "about":
            return
        if (
            kind == "append_reply"
            and not (self.steps.is_syncing or self._inbox)
            and self.core.is_routine(node, message)
        ):
            # It has no consequences, so it needs no step.
            self.core.receive(node, message)
            return
        if self.steps.is_syncing or kind in SIGNS:
            self._signs_of_life.take(node, message)
        if kind == "propose":
            self._peer_proposals.take(node, message["sequence"], message["batch"])
        elif kind == "not_leader":
            self._listener.batch_refused(message["sequence"])
        elif kind == "where":
            self._hurried.add(node)
            self._fresh_reads.asked(node, message["round"])
        elif kind == "here":
            self._fresh_reads.answered(node.id, message["round"], message["last"], message["members"])
        elif kind in PAGE_MESSAGES:
            self.page_supply.take(node, message)
        elif kind == "about":
            self.peers[node.id] = NodeInfo(**{field.name: message[field.name] for field in fields(NodeInfo)})
            # The peer may have answered before it could reach this node.
            self.page_exchange.link_changed(node)
            if message["recovering"]:
                self.lost_receipts.heard_forgetful(node.id)
            self.in_step(lambda: self._addresses.follow(node.id))
        elif kind not in SIGNS:
            self._inbox.append((node, message))
        self.wake()

    def _about_message(self) -> dict[str, Any]:
        return {"type": "about", **asdict(self._about)}

    # --- proposing and applying -----------------------------------------------------------------------------------

    def submit(self, sequence: int, batch: bytes) -> bool:
        """Send a batch of this node to the leader; False if none can be reached. Repeat it until it is applied here."""
        if self.core.is_leader():
            accepted = self._propose(batch)
            self.wake()
            return accepted
        leader = self.core.leader_id()
        if leader is None or leader == self.meta.node_id:
            return False
        sent = self.transport.send(PeerNode(leader), {"type": "propose", "sequence": sequence, "batch": batch})
        self.wake()
        return sent

    def copies_of(self, command: Command) -> int:
        """Return approximately how many copies of its messages a command stores beyond those that its bytes show."""
        return self.machine.copies_of(command)

    async def fresh(self) -> bool:
        """Wait until this replica shows all entries acknowledged before the call; False if that fails."""
        return await self._fresh_reads.fresh()

    def _send_at_once(self, node: PeerNode, message: dict[str, Any]) -> bool:
        sent = self.transport.send(node, message)
        self.wake()
        return sent

    def _answer(self, node: PeerNode, sequence: int, taken: bool) -> None:
        self._hurried.add(node)
        if not taken:
            self.transport.send(node, {"type": "not_leader", "sequence": sequence})
        self.wake()

    def _latest_stamp_us(self) -> int:
        """Return the latest log time in the state or the log, 0 if there is none; entries may not be applied yet."""
        return max(self.machine.state.now_us, self.journal.stamped_us)

    def _propose(self, batch: bytes) -> bool:
        return self._taken_batches.take(batch, lambda: self.core.propose(self.clock.now_us().to_bytes(8, "big"), batch))

    def _apply(self, index: int, command: bytes | memoryview) -> bool:
        """Apply an entry; False if it has to wait."""
        now_us = int.from_bytes(command[:8], "big")
        try:
            origin, incarnation, sequence, commands = decode_batch(command[8:])
        except (ValueError, TypeError, msgpack.UnpackException) as exc:
            # The same bytes fail on every replica, so skipping them keeps replicas equal.
            self.skipped_total += 1
            log.critical("undecodable entry skipped", index=index, reason=str(exc))
            return True
        if not self.page_supply.may_apply(self.machine, now_us, commands):
            self.core.is_throttled = True
            return False
        if not self.core.is_leader():
            self.clock.follow(now_us)
        salt = self.machine.state.salt
        applied = self.machine.apply(now_us, origin, incarnation, sequence, commands)
        if self.machine.state.salt is not salt:
            self.lost_receipts.renewed(index)
        self.applied_batches += 1
        self.applied_bytes += len(command)
        self.machine.state.pager.page_out(PAGES_PER_BATCH)
        self.core.is_throttled = self.throttle.update(self.machine.state.pager)
        self._listener.batch_applied(now_us, origin, incarnation, sequence, commands, applied)
        return True

    # --- state and members ----------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return this member's id."""
        return self.meta.node_id

    def is_leader(self) -> bool:
        """Return whether this member leads, as far as it knows; for calls too frequent for a whole `status`."""
        return self.core.is_leader()

    def has_leader(self) -> bool:
        """Return whether a leader is known and can be reached; the proposer asks before each batch."""
        leader = self.core.leader_id()
        return leader is not None and (leader == self.id or leader in self.transport.connected_ids())

    def status(self) -> ReplicaStatus:
        """Return the current status of this member and its view of the cluster."""
        core, latest = self.core, self.snapshots.latest()
        return ReplicaStatus(
            id=self.id,
            address=self._about.raft,
            role=core.role(),
            leader=core.leader_id(),
            term=core.term(),
            commit_index=core.commit_index(),
            applied_index=core.applied_index(),
            missing_entries=core.missing_entries(),
            has_caught_up=core.has_caught_up(),
            members=core.members(),
            match_indexes=core.match_indexes(),
            connected=frozenset(self.transport.connected_ids()),
            about={**self.peers, self.id: replace(self._about)},
            has_left=self.meta.left,
            was_removed=core.was_removed(),
            is_installing=core.is_installing(),
            is_recovering=core.is_recovering(),
            durability=self.storage.durability,
            snapshot_index=0 if latest is None else latest.index,
            log_entries=len(self.journal),
            log_bytes=self.journal.size_bytes,
            machine_version=self.machine.state.version,
            is_founded=bool(self.machine.state.salt),
            obstacle=self.obstacle if self.meta.awaits_founders else None,
        )

    def kept_bytes(self) -> int:
        """Return the size of the newest snapshot and of the pages; the log bounds itself."""
        latest = self.snapshots.latest()
        return (0 if latest is None else latest.size_bytes) + self.pages.size_bytes

    def round_trips(self) -> Mapping[str, Histogram]:
        """Return by peer the seconds from a message to it until its answer, measured while this member led."""
        return self.core.round_trips()

    def common_machine_version(self) -> int | None:
        """Return the newest machine version that all members understand; None while one of them is unknown."""
        others = [self.peers.get(one) for one in self.core.members() if one != self.meta.node_id]
        versions = [about.machine_version for about in others if about is not None]
        return min([self._about.machine_version, *versions]) if len(versions) == len(others) else None

    def name_of(self, node_id: str) -> str:
        """Return the name of a member for people; its id if it has not announced one."""
        about = self._about if node_id == self.meta.node_id else self.peers.get(node_id)
        return (about.name if about else "") or node_id

    def is_able(self, node_id: str) -> bool:
        """Return whether a member can be reached from here and counts for the quorum."""
        if node_id == self.meta.node_id:
            return not self.core.is_recovering()
        about = self.peers.get(node_id)
        return node_id in self.transport.connected_ids() and about is not None and not about.recovering
