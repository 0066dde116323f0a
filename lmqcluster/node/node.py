"""One running server: replica, proposer, pulls and service, and the life cycle that binds them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog

from ..core import Applied, Fault, Machine, Op
from ..core.commands import PULLS, Command
from ..replication.leader_transfer import transfer_leadership
from ..replication.meta import NodeMeta
from ..replication.node_storage import NodeStorage
from ..replication.peer_tls import PeerTls
from ..replication.replica import About, Replica
from ..replication.security import PeerSecurity
from ..replication.settings import RaftSettings
from ..replication.storage.disk import Disk, Folder
from ..replication.storage.snapshot_store import SnapshotInfo
from ..wire.address import is_loopback
from ..wire.errors import LmqError
from .access import raft_port
from .access.access import Access, read_admin_token, time_of_day_us
from .access.tls import ServerTls
from .config import NodeConfig
from .events.journal import EventJournal
from .gates import Gates
from .membership import changes as joining
from .membership import incarnation as incarnation_of_node
from .membership import standing
from .membership.identity import fresh_id
from .membership.replica_digests import ReplicaDigests
from .memory import stored_bytes
from .metrics.page import Metrics
from .metrics.stats import Stats
from .metrics.statsd import StatsdSender
from .metrics.totals import Totals
from .node_figures import PeerFigures, own_figures
from .own_commands import OwnCommands
from .queues.pattern_views import PatternViews
from .queues.patterns import check_engine, compile_pattern
from .queues.pulls import Pulls
from .queues.service import QueueService
from .state_log import StateLog
from .turns import Turns

__all__ = ["Node"]

log = structlog.get_logger("lmq.node")

STATS_PERIOD_S = 5.0
LAG_PERIOD_S = 0.25
UPGRADE_PERIOD_S = 0.25
EXPIRY_PERIOD_S = 0.05
"""A lease that nobody touches ends at most about this much late, unless very many end at once."""
OVERDUE_PERIOD_S = 0.01
ACCESS_PERIOD_S = 0.5
MEMORY_PERIOD_S = 0.5
SNAPSHOT_HOLD_S = 600.0


class Node:
    """One member of a cluster, without front ends.

    Attributes:
        service: the queue operations; the same object for the node's whole life.
        replica: the current membership; another object after `join` or `leave`.
        failure: set with the error if replication stops; the process must then end.
        events: the event journal, None if it is off.
        access: who may do what on the client ports.
        gates: what the ports take.
        tls: what the client ports speak; None for plain TCP.
        security: what peers have to show.
        statsd: what sends metrics to StatsD, None if that is off.
        totals: sums over all queues.
        turns: slices of the event loop for long work.
        digests: how this replica compares with the others.
        views: what the patterns of clients find.
        peer_figures: how the other members are.
        on_leave: called to end the connections of clients when the node belongs to their cluster no more.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.version = version("lmqcluster")
        self.stats = Stats()
        self.metrics = Metrics(self)
        self.totals = Totals(self._machine)
        self.peer_figures: PeerFigures
        self.leader_changes = 0
        self._state_log = StateLog()
        self._leadership: tuple[str, int] | None = None
        self.events: EventJournal | None = None
        self.statsd: StatsdSender | None = None
        self._statsd_task: asyncio.Task[None] | None = None
        self.on_leave: list[Callable[[], None]] = []
        self.access = Access(config.admin_token)
        self.gates = Gates(config, self._must_authenticate)
        self.tls: ServerTls | None = None
        secret = (config.cluster_secret or "").encode()
        self.security = PeerSecurity(secret, tls_required=config.raft_tls == "required", gate=self.gates.raft)
        self._settling: asyncio.Task[None] | None = None
        self.replica: Replica
        self.turns: Turns
        self.views: PatternViews
        self.service: QueueService
        self.failure: asyncio.Future[BaseException]
        self._storage: NodeStorage
        self._about = About(config.name, "", "")
        self._salt = b""
        self._own_commands = OwnCommands()
        self.digests = ReplicaDigests()
        self._stopping = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._history: asyncio.Task[None]
        self._changing = asyncio.Lock()

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start replication. Front ends may then be started; requests wait for a leader.

        Raises:
            OSError: an address or the data folder cannot be used.
            DamagedFileError: the data folder is damaged.
            DurabilityError: the configured durability would forget what the folder holds.
            ValueError: certificate and key cannot be used, tokens could be got round through the Raft port, or the engine of
                regular expressions is another one.
        """
        config = self.config
        check_engine()
        if config.tls_cert is not None and config.tls_key is not None:
            self.tls = ServerTls(config.tls_cert, config.tls_key, config.tls_client_ca)
        files = config.raft_tls_files()
        if files is not None:
            self.security.tls = PeerTls(*files)
        self.failure = asyncio.get_running_loop().create_future()
        self._about.http = str(config.advertised(config.http)) if config.http else ""
        self._about.rpc = str(config.advertised(config.rpc)) if config.rpc else ""
        if config.peers:
            founders = {str(address): str(address) for address in config.members()}
            new_id = self._address()
        else:
            new_id = fresh_id()
            founders = {} if config.await_join == "on" else {new_id: self._address()}
        self._about.raft = self._address()
        self._storage = NodeStorage.open(self._disk, new_id, founders, config.durability)
        self.access.open(self._disk(""))
        if config.event_journal is not None:
            self.events = EventJournal(
                config.event_journal,
                config.name,
                bytes_max=config.event_journal_bytes_max,
                files_max=config.event_journal_files_max,
            )
        self.turns = Turns()
        self.views = PatternViews(self._machine, self.turns)
        self._build()
        self._tell_opened()
        self.gates.tell()
        raft_port.check(self)
        self.access.on_change.append(partial(raft_port.follow, self))
        await self._listen()
        if config.statsd is not None:
            self.statsd = StatsdSender(config.statsd, config.statsd_prefix, config.statsd_interval, self._machine)
            self._statsd_task = asyncio.create_task(self.statsd.run())
        self._sample_memory()
        self._sample_lag(time.monotonic())
        self._tick_stats()
        self._tick_upgrade()
        self._tick_expiry()
        self._tick_access()
        self.peer_figures = PeerFigures(self)
        self._history = asyncio.create_task(self.totals.keep_history())

    def _must_authenticate(self, address: object) -> bool:
        return self.access.anonymous is None or not is_loopback(address)

    def _disk(self, folder: str) -> Disk:
        return Folder(self.config.data_dir / folder)

    @property
    def _meta(self) -> NodeMeta:
        return self._storage.meta

    def _address(self) -> str:
        """Where peers dial this node; a node without a Raft address stays alone."""
        return str(self.config.advertise_raft or self.config.raft or "127.0.0.1:0")

    def _build(self) -> None:
        """Make replica, proposer and pulls for the current identity."""
        config = self.config
        self._about.machine_version = Machine.VERSION_MAX
        self.replica = Replica(self._storage, self._about, self.security, RaftSettings(), compile_pattern, self)
        self.replica.peer_requests.node_figures = partial(own_figures, self)
        if self.events is not None:
            self.events.begin(self.replica.machine)
        self._follow_tokens()
        self.access.exclude(None)
        proposer = incarnation_of_node.begin(self, self._meta, self.replica.machine.sessions)
        self.views.replaced()
        pulls = Pulls(proposer, self._machine, self.replica.clock, self.views)
        if hasattr(self, "service"):
            self.service.proposer, self.service.pulls = proposer, pulls
        else:
            self.service = QueueService(
                proposer,
                pulls,
                self._machine,
                self.views,
                self.turns,
                message_bytes_max=config.message_bytes_max,
                memory_bytes_max=config.memory_bytes_max,
            )
        # A snapshot that was loaded may hold it; the log may bring nothing more.
        self._take_salt()
        self._tend_membership()

    def _tend_membership(self) -> None:
        """Refuse clients as long as the node belongs to no cluster, because it left or was removed."""
        reason, refused = joining.outside(self), self.access.outside
        if reason != (None if refused is None else refused.message):
            joining.exclude(self, reason)

    def _tell_opened(self) -> None:
        replica = self.replica
        latest = replica.snapshots.latest()
        log.info(
            "data folder opened",
            folder=str(self.config.data_dir),
            durability=self.config.durability,
            snapshot_index=0 if latest is None else latest.index,
            log_entries=len(replica.journal),
            term=replica.core.term(),
            version=self.version,
        )

    def _machine(self) -> Machine:
        return self.replica.machine

    def _follow_tokens(self) -> None:
        machine = self.replica.machine
        self.access.follow(machine.tokens, time_of_day_us())

    async def _settle_access(self) -> None:
        """Find out whether the cluster has tokens that have not come here yet."""
        try:
            await self.service.barrier()
        except LmqError as exc:
            log.debug("tokens not known yet", reason=exc.message)
        else:
            self.access.settle()

    def _tick_access(self) -> None:
        self.access.expire(self.replica.machine.tokens, time_of_day_us())
        if self.access.is_uncertain and (self._settling is None or self._settling.done()):
            self._settling = asyncio.get_running_loop().create_task(self._settle_access())
        self._timers["access"] = asyncio.get_running_loop().call_later(ACCESS_PERIOD_S, self._tick_access)

    def _take_salt(self) -> None:
        self._salt = self.replica.machine.salt
        self.service.founded(self._salt)

    async def _listen(self) -> None:
        raft = self.config.raft
        host, port = (raft.host, raft.port) if raft is not None else ("127.0.0.1", 0)
        await self.replica.start(host, port, listening=raft_port.may_be_open(self))

    def reload(self) -> None:
        """Reload certificate, key and ``admin_token_file``; one that cannot be used is logged, and the old one stays."""
        path = self.config.admin_token_file
        try:
            if self.tls is not None:
                self.tls.reload()
            if self.security.tls is not None:
                self.security.tls.reload()
            if path is not None:
                self.access.set_admin_token(read_admin_token(path))
        except (OSError, ValueError) as exc:
            log.error("cannot reload certificate and admin token, keeping the old ones", reason=str(exc))  # noqa: TRY400  no bug of ours
        else:
            log.info("certificate and admin token reloaded")

    async def stop(self) -> None:
        """Hand over leadership, answer what is in flight, leave the network. Front ends must have stopped reading."""
        self.retire()
        for timer in self._timers.values():
            timer.cancel()
        if self._settling is not None:
            self._settling.cancel()
        if self._statsd_task is not None:
            self._statsd_task.cancel()
            await asyncio.wait([self._statsd_task])
        self._history.cancel()
        self.gates.close()
        self.peer_figures.close()
        self.views.close()
        if not self.failure.done():
            await transfer_leadership(self.replica)
        self.service.proposer.close(LmqError("shutting_down", "the node is shutting down; use another node"))
        await self.replica.stop()
        if self.events is not None:
            await asyncio.to_thread(self.events.close)

    def retire(self) -> None:
        """From now on the node is not ready, and refuses clients, waiting pulls included; what it took goes on to its outcome."""
        self._stopping = True
        error = LmqError("shutting_down", "the node is shutting down; use another node")
        self.service.proposer.retire(error)
        self.service.pulls.close(error)

    def _sample_memory(self) -> None:
        self.service.stored_bytes = stored_bytes(self.replica.machine)
        self._state_log.note_memory(self.service.stored_bytes, self.config.memory_bytes_max)
        if not self._stopping:
            self._tend_membership()
            self._state_log.note_health(self.health())
            self._state_log.note_problem(standing.impasse(self))
        loop = asyncio.get_running_loop()
        self._timers["memory"] = loop.call_later(MEMORY_PERIOD_S, self._sample_memory)

    def _sample_lag(self, due_s: float) -> None:
        now_s = time.monotonic()
        self.metrics.loop_lag.observe(max(0.0, now_s - due_s))
        loop = asyncio.get_running_loop()
        self._timers["lag"] = loop.call_later(LAG_PERIOD_S, self._sample_lag, now_s + LAG_PERIOD_S)

    def _tick_stats(self) -> None:
        queues = self.replica.machine.queues.values()
        self.stats.tick((queue.name, queue.pushed_total, queue.pulled_total) for queue in queues)
        self._timers["stats"] = asyncio.get_running_loop().call_later(STATS_PERIOD_S, self._tick_stats)

    def _tick_upgrade(self) -> None:
        self._own_commands.tend(self.replica, self.service.proposer)
        self.digests.tend(self.replica, self.service.proposer)
        loop = asyncio.get_running_loop()
        self._timers["upgrade"] = loop.call_later(UPGRADE_PERIOD_S, self._tick_upgrade)

    def _tick_expiry(self) -> None:
        overdue = self._own_commands.let_time_pass(self.replica, self.service.proposer)
        period_s = OVERDUE_PERIOD_S if overdue else EXPIRY_PERIOD_S
        self._timers["expiry"] = asyncio.get_running_loop().call_later(period_s, self._tick_expiry)

    # --- carrier of the proposer ----------------------------------------------------------------------------------

    def submit(self, sequence: int, batch: bytes) -> bool:
        """Bring a batch to the leader."""
        return self.replica.submit(sequence, batch)

    def has_leader(self) -> bool:
        """Whether a leader is known and can be reached."""
        replica = self.replica
        leader = replica.core.leader_id()
        return leader is not None and (leader == self.id or leader in replica.transport.connected_ids())

    # --- listener of the replica ----------------------------------------------------------------------------------

    def batch_applied(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Command], applied: Applied
    ) -> None:
        """Keep statistics, answer those who wait, wake waiting pulls."""
        proposer, pulls = self.service.proposer, self.service.pulls
        if self._salt is not self.replica.machine.salt:
            self._take_salt()
        if self.access.revision != self.replica.machine.tokens.revision:
            self._follow_tokens()
        for command, result in zip(commands, applied.results, strict=False):
            op = command[0]
            if op in (Op.DIGEST, Op.REPORT_DIGEST):
                self.digests.applied(command, result, self.id, self.replica.core.members())
            elif op in PULLS:
                if result and type(result) is list:
                    first = result[0]
                    waited_us = now_us - first[3].ready_us
                    self.stats.on_delivery(first[0], waited_us, now_us)
                    self.metrics.time_in_queue.observe(waited_us / 1e6)
            elif op == Op.DELETE:
                self.stats.forget(command[1])
            if type(result) is Fault and not result.code:
                self.metrics.apply_faults += 1
        self.views.applied(applied)
        own = incarnation == proposer.incarnation and origin == proposer.origin
        if self.events is not None:
            self.events.batch_applied(self.replica.machine, commands, applied, own=own)
        if own and self.statsd is not None:
            self.statsd.batch_applied(now_us, commands, applied.results)
        if own:
            proposer.applied(sequence, applied)
            if applied.status == "duplicate":
                incarnation_of_node.outlive(proposer, self._meta, self.replica.machine.sessions)
        if applied.ready:
            pulls.notice(applied.ready)

    def batch_refused(self, sequence: int) -> None:  # noqa: ARG002 - all unresolved batches are sent again
        """A node that was taken for the leader is not."""
        self.service.proposer.resend_soon()

    def leader_changed(self, leader_id: str | None) -> None:
        """Send unresolved batches to the new leader, behind what it has to propose itself if it is this node."""
        if leader_id is None:
            return
        leadership = (leader_id, self.replica.core.term())
        if leadership != self._leadership:
            # It is told of a new link to the same leader too.
            self._leadership = leadership
            self.leader_changes += 1
        self._own_commands.begin(self.replica, self.service.proposer)
        self.service.proposer.resend()

    def state_replaced(self) -> None:
        """A snapshot was installed."""
        self._take_salt()
        self._follow_tokens()
        machine = self.replica.machine
        if self.events is not None:
            self.events.begin(machine)
        incarnation_of_node.state_replaced(self.service.proposer, self._meta, machine.sessions)
        self.stats.baseline((queue.name, queue.pushed_total, queue.pulled_total) for queue in machine.queues.values())
        self.views.replaced()
        self.service.pulls.notice_all()

    def failed(self, error: BaseException) -> None:
        """Replication has stopped."""
        if not self.failure.done():
            self.failure.set_result(error)

    # --- membership -----------------------------------------------------------------------------------------------

    async def join(self, peer: str, *, discard_data: bool) -> None:
        """Make this node a member of the cluster that `peer` (HTTP or Raft address, or ``lmq@host``) belongs to.

        It gets the cluster's data first and counts for the quorum only then.

        Args:
            discard_data: whether messages that this node holds may be thrown away.

        Raises:
            LmqError: ``conflict`` if it is in a cluster already or holds messages, ``unreachable``, ``bad_request``,
                ``unknown_outcome``.
        """
        async with self._changing:
            await joining.join(self, peer, discard_data=discard_data)

    async def leave(self) -> None:
        """Take this node out of its cluster. Empty and in no cluster, it refuses clients until it joins one.

        What it has taken comes to its outcome first. A node that has left already does nothing.

        Raises:
            LmqError: ``conflict`` if it is alone, ``no_leader`` if the others cannot agree, ``unknown_outcome``.
        """
        async with self._changing:
            await joining.leave(self)

    async def remove(self, member: str, *, force: bool) -> None:
        """Take another member, given by id or name, out of the cluster, most likely because it is dead.

        Args:
            force: remove it though it is alive.

        Raises:
            LmqError: ``bad_request`` if there is no such member, ``conflict`` if the others would have no quorum or it is alive,
                ``no_leader``, ``unknown_outcome``.
        """
        async with self._changing:
            await joining.remove(self, self.member_id(member), force=force)

    async def transfer_leadership(self, member: str | None) -> None:
        """Have the leader hand over to a member, given by id or name, or to the one that is most up to date.

        Raises:
            LmqError: ``bad_request`` if there is no such member, ``conflict`` if it did not take over, ``no_leader``.
        """
        target = [] if member is None else [self.member_id(member)]
        await joining.ask_leader(self, "transfer", target)

    def member_id(self, member: str) -> str:
        """Id of the member with this id or name.

        Raises:
            LmqError: ``bad_request`` if there is none, or several.
        """
        members = self.replica.core.members()
        if member in members:
            return member
        names = {self.id: self.config.name, **{one: about.name for one, about in self.replica.peers.items()}}
        found = [one for one in members if names.get(one) == member]
        if len(found) != 1:
            known = ", ".join(sorted(f"{names[one]} ({one})" if one in names else one for one in members))
            raise LmqError("bad_request", f"there is no one member {member!r}; the members are {known}")
        return found[0]

    def name_of(self, member: str) -> str:
        """The name of a member for people; its id if it has not told one."""
        return self.replica.name_of(member)

    async def take_snapshot(self) -> SnapshotInfo:
        """Write a snapshot of this node's state now, and keep it for ten minutes at least.

        Raises:
            LmqError: ``overloaded`` if it cannot be written.
        """
        try:
            info = await self.replica.snapshots.take()
        except OSError as exc:
            raise LmqError("overloaded", f"the snapshot cannot be written: {exc}") from exc
        self.replica.snapshots.hold(info, SNAPSHOT_HOLD_S)
        return info

    async def become(self, node_id: str, members: dict[str, str]) -> None:
        """Give up the present membership and data, and begin as `node_id` with these members; without any, in no cluster."""
        error = LmqError("shutting_down", "the node is changing its cluster; use another node")
        self.service.pulls.close(error)
        self.service.proposer.close(error)
        if not members or node_id in members:
            # What a client went on to push would be acknowledged by a cluster that it does not mean.
            self.end_connections()
            self.access.forget()
        await self.replica.stop()
        self._storage.begin_anew(node_id, members, joining=node_id not in members)
        self._build()
        await self._listen()

    def end_connections(self) -> None:
        """End what clients have open."""
        for end in self.on_leave:
            end()

    # --- status ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """This node's member id."""
        return self._meta.node_id

    @property
    def has_left(self) -> bool:
        """Whether the node has left its cluster and has joined none since."""
        return self._meta.left

    def health(self) -> list[tuple[str, bool, str]]:
        """Named checks of readiness: (name, passed, detail)."""
        return standing.health(self)

    def cluster_status(self) -> dict[str, Any]:
        """The cluster as this node sees it."""
        return standing.cluster_status(self)

    @property
    def is_stopping(self) -> bool:
        """Whether the node is shutting down."""
        return self._stopping

    @property
    def about(self) -> About:
        """What the node tells its peers of itself."""
        return self._about
