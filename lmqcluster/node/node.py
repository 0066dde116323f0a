"""A running server: replica, proposer, pulls and service, and their life cycle."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import structlog

from ..core import Applied, Fault, Op, State
from ..core.log.commands import PULLS, Delete, Encoded, decode
from ..replication.base.node_info import NodeInfo
from ..replication.base.settings import BACKLOG_BYTES, RaftSettings
from ..replication.leader_transfer import transfer_leadership
from ..replication.peers.security import PeerSecurity
from ..replication.peers.tls import PeerTls
from ..replication.replica import Replica
from ..replication.storage.io.disk import DamagedFileError, Disk, Folder
from ..replication.storage.meta import NodeMeta
from ..replication.storage.node_storage import NodeStorage
from ..replication.storage.snapshots.snapshot_store import SnapshotInfo
from ..wire.address import Address, is_loopback
from ..wire.errors import LmqError
from .access import raft_port
from .access.access import Access
from .access.client_lists import ClientLists
from .access.credentials import Credentials
from .access.tls import ServerTls
from .access.upkeep import AccessUpkeep
from .commit.proposer import Proposer
from .config.config import NodeConfig
from .events.journal import EventJournal
from .front_ends import front_ends_of
from .gates import Gates
from .health_checks import Check, run_checks
from .leader_commands import LeaderCommands
from .membership import incarnation as incarnation_of_node
from .membership import standing
from .membership.changes import Membership
from .membership.founders import Founding
from .membership.identity import fresh_id
from .membership.replica_digests import ReplicaDigests
from .metrics.attention import Attention, Thresholds
from .metrics.history import History
from .metrics.observed import Observed
from .metrics.queued_statsd import QueuedStatsd
from .metrics.stats import Stats
from .metrics.statsd import StatsdSender
from .metrics.statsd_server import StatsdServer
from .metrics.totals import Totals
from .node_figures import PeerFigures, own_figures
from .periodic import PeriodicWork
from .process.disk_budget import DiskBudget
from .process.fair_slices import FairSlices
from .queues.node_session import NodeSession
from .queues.open_reads.open_reads import OpenReads
from .queues.open_reads.timed import TimedReads
from .queues.patterns.patterns import check_engine, compile_pattern
from .queues.patterns.views import PatternViews
from .queues.pulls.pulls import Pulls
from .queues.service import QueueService
from .schedule_upkeep import ScheduleUpkeep

if TYPE_CHECKING:
    from .traces.traces import NodeTraces

__all__ = ["Node"]

log = structlog.get_logger("lmq.node")

SNAPSHOT_HOLD_S = 600.0
SESSION_END_S = 1.0
"""How long a stopping node waits for its session to end."""


class Node:
    """A member of a cluster, without client ports.

    Attributes:
        service: the queue operations; the same object for the lifetime of the node.
        replica: the current replica; replaced when the node joins or leaves a cluster.
        membership: lets the node join and leave.
        failure: set to the error if replication stops; the process must then exit.
        events: the event journal, None if it is off.
        access: authentication and permissions on the client ports.
        gates: the connection limiters of the ports.
        tls: TLS of the client ports; None for plain TCP.
        credentials: the files of certificates and the administrator's token.
        front_ends: processes that accept the clients; None if the node's process does.
        security: the authentication of peers.
        statsd: the sender of LMQ's metrics to StatsD; None if it is off.
        statsd_servers: the StatsD servers that metrics are sent to.
        traces: makes the spans of requests and deliveries; None if it is off.
        stats: rates and waiting times of the queues.
        disk: disk usage and its limit.
        observed: counters and histograms for the metrics.
        totals: sums over all queues.
        attention: the queues that need attention.
        history: the last hour of all queues together and of the busiest queues.
        turns: fair slices of the event loop for long work.
        digests: comparison of this replica with the others.
        views: the queues that the patterns of clients match.
        peer_figures: figures of the other members.
        clients: lists of the clients of all nodes.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.version = version("lmqcluster")
        self.stats = Stats()
        self.disk = DiskBudget(config.data_dir, config.disk_bytes_max)
        self.observed = Observed()
        self.turns = FairSlices()
        self.totals = Totals(self._state, self.turns)
        thresholds = Thresholds(*config.attention_thresholds())
        self.attention = Attention(thresholds, self.stats, self._now_us, self.health)
        self.history = History(self._state, self.totals, self.stats, self.turns, self.attention)
        self.peer_figures: PeerFigures
        self.clients: ClientLists
        self.events: EventJournal | None = None
        self.statsd: StatsdSender | None = None
        self.statsd_servers: list[StatsdServer] = []
        self.traces: NodeTraces | None = None
        self.access = Access(config.admin_token)
        self.gates = Gates(config, self._must_authenticate)
        self.tls: ServerTls | None = None
        certificates = (config.tls_cert, config.tls_key, *(config.raft_tls_files() or ()))
        self.credentials = Credentials(certificates, config.admin_token_file, self.access, self._reload_certificates)
        self.front_ends = front_ends_of(config)
        secret = (config.cluster_secret or "").encode()
        self.security = PeerSecurity(secret, tls_required=config.raft_tls == "required", gate=self.gates.raft)
        self.replica: Replica
        self.views: PatternViews
        self.service: QueueService
        self.membership: Membership
        self.digests = ReplicaDigests()
        self.failure: asyncio.Future[BaseException]
        self._storage: NodeStorage
        self._about = NodeInfo(config.name, "", "")
        self._salt = b""
        self._leadership: tuple[str, int] | None = None
        self._leader_commands = LeaderCommands()
        self._schedules = ScheduleUpkeep()
        self._access_upkeep = AccessUpkeep(self.access, self._state)
        self._founding: Founding | None = None
        self._is_stopping = False
        self._periodic: PeriodicWork
        self._history_task: asyncio.Task[None]
        self._statsd_tasks: list[asyncio.Task[None]] = []

    # --- life cycle -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start replication. Client ports may start after this returns; requests wait for a leader.

        Raises:
            OSError: an address or the data directory cannot be used.
            DamagedFileError: the data directory is damaged.
            DurabilityError: the configured durability would forget what the data directory holds.
            ValueError: certificate and key cannot be used, the Raft port would bypass tokens, or the engine of regular
                expressions is not the expected one.
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
        self._about.raft = self._address()
        self._storage = NodeStorage.open(self._disk, *self._first_life(), config.durability)
        self.access.open(self._disk(""))
        if config.event_journal is not None:
            self.events = EventJournal(
                config.event_journal,
                config.name,
                bytes_max=config.event_journal_bytes_max,
                files_max=config.event_journal_files_max,
            )
        if config.trace_otlp_endpoint is not None:
            self.traces = _traces(config.trace_otlp_endpoint, config.trace_sample, config.name)
        self._assemble()
        self._tell_opened()
        self.gates.tell()
        raft_port.check(self.security, self.access, self.replica.status().members or [*map(str, config.members())])
        self.access.on_change.append(lambda: raft_port.follow(self.security, self.access, self.replica))
        await self._listen()
        self._look_for_founders()
        self._start_statsd()
        self._periodic = PeriodicWork(
            self._present,
            self.service,
            memory_bytes_max=config.memory_bytes_max,
            disk=self.disk,
            loop_lag=self.observed.loop_lag,
            stats=self.stats,
            access=self._access_upkeep,
            leader_commands=self._leader_commands,
            schedules=self._schedules,
            digests=self.digests,
        )
        self._periodic.start()
        self.peer_figures = PeerFigures(self._present, self._figures)
        self._history_task = asyncio.create_task(self.history.keep())

    def _first_life(self) -> tuple[str, dict[str, str] | None]:
        """Return the id and the founding members of a node with an empty data directory.

        The members are None while they are not known.
        """
        config, address = self.config, self._address()
        if config.peers:
            own = str(Address.parse(address).canonical)
            return own, None if config.others() else {own: address}
        own = fresh_id()
        return own, {} if config.await_join == "on" else {own: address}

    def _look_for_founders(self) -> None:
        if self._meta.awaits_founders:
            others = self.config.others()
            is_listed = len(others) < len(self.config.peers)
            self._founding = Founding(self._present, others, self._copy, self.membership.changing, is_listed=is_listed)

    def _must_authenticate(self, address: object) -> bool:
        return self.access.anonymous is None or not is_loopback(address)

    def _disk(self, folder: str) -> Disk:
        return Folder(self.config.data_dir / folder)

    @property
    def _meta(self) -> NodeMeta:
        return self._storage.meta

    def _address(self) -> str:
        """Return the address where peers connect to this node; a node without a Raft address stays alone."""
        return str(self.config.advertise_raft or self.config.raft or "127.0.0.1:0")

    def _assemble(self) -> None:
        """Create the parts that last for the lifetime of the node, and begin the membership recorded in its files."""
        config = self.config
        self.views = PatternViews(self._state, self.turns)
        proposer, pulls = self._begin_membership()
        self.service = QueueService(
            proposer,
            pulls,
            self._state,
            self.views,
            self.turns,
            message_bytes_max=config.message_bytes_max,
            attribute_bytes_max=config.attribute_bytes_max,
            memory_bytes_max=config.memory_bytes_max,
        )
        self.clients = ClientLists(self._present, self.gates.clients, self.service, self.turns)
        self.session = NodeSession(self.service)
        self.open_reads = OpenReads(self.service, self.session)
        self.timed_reads = TimedReads(self.open_reads)
        self.service.sender.fresh = self._is_fresh
        self.service.rates = self.stats.recent
        self.membership = Membership(
            self._present,
            self.service,
            self.access,
            may_listen=self._may_listen,
            health=self.health,
            become=self._become,
        )
        self._membership_begun()

    def _raft_settings(self) -> RaftSettings:
        # On a node with little memory, a full backlog would take too large a share of it.
        return RaftSettings(backlog_bytes=min(BACKLOG_BYTES, self.config.memory_bytes_max // 8))

    def _begin_membership(self) -> tuple[Proposer, Pulls]:
        """Create replica, proposer and pulls for the current identity."""
        self._about.machine_version = State.VERSION_MAX
        self.replica = Replica(self._storage, self._about, self.security, self._raft_settings(), compile_pattern, self)
        self.replica.peer_requests.node_figures = self._figures
        self.replica.peer_requests.clients = lambda words: self.clients.answer(words)  # noqa: PLW0108  created later
        self.replica.peer_requests.founders = lambda: None if self._founding is None else self._founding.ids()
        if self.events is not None:
            self.events.begin(self.replica.machine)
        self._access_upkeep.follow()
        self.access.exclude(None)
        proposer = incarnation_of_node.begin(self.replica, self._meta, self.replica.machine.state.node_sequences)
        proposer.traces = self.traces
        self.views.replaced()
        return proposer, Pulls(proposer, self._state, self.replica.clock, self.views)

    def _membership_begun(self) -> None:
        """Finish the start of a membership, after the service has got its proposer and pulls."""
        # A loaded snapshot may hold the salt, and the log may contain nothing after it.
        self._take_salt()
        self.membership.refuse_clients_if_outside()

    def _tell_opened(self) -> None:
        status = self.replica.status()
        log.info(
            "data directory opened",
            folder=str(self.config.data_dir),
            durability=status.durability,
            snapshot_index=status.snapshot_index,
            log_entries=status.log_entries,
            term=status.term,
            version=self.version,
        )

    def _state(self) -> State:
        return self.replica.machine.state

    async def _is_fresh(self) -> bool:
        return await self.replica.fresh()

    def _now_us(self) -> int:
        return self.replica.clock.now_us()

    def _present(self) -> Replica:
        return self.replica

    def _take_salt(self) -> None:
        self._salt = self.replica.machine.state.salt
        self.service.founded(self._salt)

    async def _listen(self) -> None:
        raft = self.config.raft
        host, port = (raft.host, raft.port) if raft is not None else ("127.0.0.1", 0)
        await self.replica.start(host, port, listening=self._may_listen())

    def _may_listen(self) -> bool:
        return raft_port.may_be_open(self.security, self.access)

    def _reload_certificates(self) -> None:
        if self.tls is not None:
            self.tls.reload()
            if self.front_ends is not None:
                self.front_ends.reload()
        if self.security.tls is not None:
            self.security.tls.reload()

    def accounted_bytes(self) -> int:
        """Return the approximate memory used by the state and the clients."""
        memory = self.gates.memory
        return self.service.sender.stored_bytes + memory.clients_bytes + memory.unauthenticated_bytes

    async def step_aside(self) -> None:
        """Transfer leadership to another member before this node pauses."""
        await transfer_leadership(self.replica)

    async def stop(self) -> None:
        """Transfer leadership and close all connections. Client ports must have stopped."""
        self.retire()
        self._periodic.close()
        self.timed_reads.close()
        ended = self.session.close()
        if ended is not None and not self.failure.done():
            # The log must contain the release of what connections held before replication stops.
            await asyncio.wait((ended,), timeout=SESSION_END_S)
        self._access_upkeep.close()
        if self._founding is not None:
            await self._founding.close()
        for task in self._statsd_tasks:
            task.cancel()
        await asyncio.gather(*self._statsd_tasks, return_exceptions=True)
        for server in self.statsd_servers:
            server.close()
        self._history_task.cancel()
        self.gates.close()
        self.peer_figures.close()
        self.clients.close()
        self.views.close()
        if not self.failure.done():
            await transfer_leadership(self.replica)
        self.service.sender.proposer.close(_shutting_down())
        await self.replica.stop()
        if self.events is not None:
            await asyncio.to_thread(self.events.close)
        if self.traces is not None:
            await asyncio.to_thread(self.traces.export.close)

    def _start_statsd(self) -> None:
        config = self.config
        if config.statsd is not None:
            server = self._statsd_server(config.statsd)
            self.statsd = StatsdSender(server, config.statsd_prefix, config.statsd_interval, self._state, self.turns)
            self._statsd_tasks.append(asyncio.create_task(self.statsd.run()))
        if config.queued_statsd is not None:
            queued = QueuedStatsd(
                self._statsd_server(config.queued_statsd),
                config.queued_statsd_prefix,
                config.queued_statsd_tags,
                self._state,
                self.service.polled,
                self.replica.is_leader,
                self.turns,
            )
            self._statsd_tasks.append(asyncio.create_task(queued.run()))

    def _statsd_server(self, address: Address) -> StatsdServer:
        server = StatsdServer(address)
        self.statsd_servers.append(server)
        return server

    def retire(self) -> None:
        """Report not ready and refuse clients, including waiting pulls; accepted requests continue to their outcome."""
        self._is_stopping = True
        self._periodic.retire()
        self.service.refuse(_shutting_down())

    async def settle(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for the outcome of accepted requests; then fail the rest, so every client gets a reply."""
        await self.service.sender.proposer.settle(grace_s, _shutting_down())

    # --- listener of the replica ----------------------------------------------------------------------------------

    def batch_applied(
        self, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Encoded], applied: Applied
    ) -> None:
        """Update statistics, answer waiting requests and wake waiting pulls."""
        proposer, pulls = self.service.sender.proposer, self.service.pulls
        if self._salt is not self.replica.machine.state.salt:
            self._take_salt()
        machine = self.replica.machine
        if self.access.revision != (machine.state.tokens.revision, machine.state.api_keys.revision):
            self._access_upkeep.follow()
        for encoded, result in zip(commands, applied.results, strict=False):
            op = encoded[0]
            if type(result) is Fault:
                self.observed.apply_faults += not result.code
            elif op in (Op.DIGEST, Op.REPORT_DIGEST):
                self.digests.applied(decode(encoded), result, self.id, self.replica.status().members)
            elif op in PULLS:
                if result and type(result) is list:
                    first = result[0]
                    waited_us = now_us - first[3].ready_us
                    self.stats.on_delivery(first[0], waited_us, now_us, result[-1][3].ready_us)
                    self.observed.time_in_queue.observe(waited_us / 1e6)
            elif op == Op.DELETE and isinstance(command := decode(encoded), Delete):
                self.stats.forget(command.queue)
        self.views.applied(applied)
        own = incarnation == proposer.incarnation and origin == proposer.origin
        if self.events is not None:
            self.events.batch_applied(self.replica.machine, commands, applied, own=own)
        if own and self.statsd is not None:
            self.statsd.batch_applied(now_us, commands, applied.results, applied.notices)
        if own:
            proposer.applied(sequence, applied)
            if applied.status == "duplicate":
                incarnation_of_node.outlive(proposer, self._meta, self.replica.machine.state.node_sequences)
        if applied.ready:
            pulls.notice(applied.ready)
        self.service.events.applied(applied)
        if applied.notices:
            self.service.board.applied(applied.notices)

    def batch_refused(self, sequence: int) -> None:  # noqa: ARG002 - all unresolved batches are sent again
        """Resend soon: the node that received the batch does not lead."""
        self.service.sender.proposer.resend_soon()

    def leader_changed(self, leader_id: str | None) -> None:
        """Resend unresolved batches to the new leader; if this node leads, its own commands go first."""
        if leader_id is None:
            return
        self.service.sender.due_times.has_had_leader = True
        leadership = (leader_id, self.replica.status().term)
        if leadership != self._leadership:
            # A new link to the same leader calls this too.
            self._leadership = leadership
            self.observed.leader_changes += 1
        self._leader_commands.begin(self.replica, self.service.sender.proposer)
        self._schedules.begin(self.replica, self.service.sender.proposer)
        self.service.sender.proposer.resend()

    def standing_changed(self) -> None:
        """Refuse clients after the node was removed from its cluster, unless it is stopping and refuses them anyway."""
        if not self._is_stopping:
            self.membership.refuse_clients_if_outside()

    def state_replaced(self) -> None:
        """Take over the state of an installed snapshot."""
        self._take_salt()
        self._access_upkeep.follow()
        machine = self.replica.machine
        if self.events is not None:
            self.events.begin(machine)
        incarnation_of_node.state_replaced(self.service.sender.proposer, self._meta, machine.state.node_sequences)
        self.stats.baseline(
            (queue.name, queue.counters.pushed_total, queue.counters.pulled_total)
            for queue in machine.state.queues.values()
        )
        self.views.replaced()
        self.service.pulls.notice_all()
        self.service.board.replaced()
        self.service.events.replaced()

    def failed(self, error: BaseException) -> None:
        """Set `failure`: replication has stopped."""
        if not self.failure.done():
            self.failure.set_result(error)

    # --- membership -----------------------------------------------------------------------------------------------

    async def _copy(self, members: Mapping[str, str]) -> None:
        """Rejoin a cluster with these members under the same id and copy all data, because the data directory was emptied."""
        await self._become(self.id, members, copies=True)

    async def _become(self, node_id: str, members: Mapping[str, str], *, copies: bool = False) -> None:
        """Discard the membership and data, and begin as `node_id` with these members; if there are none, in no cluster."""
        error = LmqError("shutting_down", "the node is changing its cluster; use another node")
        service = self.service
        service.pulls.close(error)
        service.board.close(error)
        service.board.forget()
        service.sender.proposer.close(error)
        if not copies and (not members or node_id in members):
            # On an open connection, the wrong cluster would acknowledge a client's pushes.
            self.membership.end_connections()
            self.access.forget()
        await self.replica.stop()
        joining = copies or node_id not in members
        self._storage.begin_again(node_id, members, joining=joining, founding=copies)
        self.session.forget()
        service.sender.proposer, service.pulls = self._begin_membership()
        self.history.forget()
        self._membership_begun()
        await self._listen()

    # --- status ---------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Return the member id of this node."""
        return self._meta.node_id

    def health(self) -> list[tuple[str, bool, str]]:
        """Return the readiness checks: (name, passed, detail)."""
        return standing.health(self.replica.status(), is_stopping=self._is_stopping)

    def cluster_status(self) -> dict[str, Any]:
        """Return the state of the cluster as this node sees it."""
        return standing.cluster_status(self.replica.status(), self.version)

    def run_checks(self, *, names_owners: bool) -> tuple[list[Check], bool]:
        """Run the health checks; also return whether the cluster keeps its quorum without this node."""
        return run_checks(
            self.replica.status(),
            self.config,
            self.service.sender.stored_bytes,
            self.disk,
            self.replica.machine.state.quotas,
            names_owners=names_owners,
        )

    def _figures(self) -> dict[str, Any]:
        """Return the figures of this node for the overview of the cluster."""
        return own_figures(
            self.replica.status(),
            self.config,
            self.service,
            self.disk,
            version=self.version,
            uptime_s=self.totals.uptime_s(),
            connections=sum(gate.connections for gate in self.gates.clients),
        )

    async def take_snapshot(self, *, portable: bool = True) -> SnapshotInfo:
        """Write a snapshot of this node's state now. A `portable` one holds all messages and is kept for at least ten minutes.

        Raises:
            LmqError: ``overloaded`` if it cannot be written.
        """
        snapshots = self.replica.snapshots
        try:
            return await (snapshots.take_portable(SNAPSHOT_HOLD_S) if portable else snapshots.take())
        except (OSError, ValueError, DamagedFileError) as exc:
            raise LmqError("overloaded", f"the snapshot cannot be written: {exc}") from exc

    async def snapshot_block(self, index: int, number: int) -> bytes | None:
        """Read a block of the snapshot of entry `index` written by `take_snapshot`; None if it is no longer kept."""
        return await self.replica.snapshots.portable_block(index, number)


def _shutting_down() -> LmqError:
    return LmqError("shutting_down", "the node is shutting down; use another node")


def _traces(endpoint: str, sample: float, name: str) -> NodeTraces:
    # OpenTelemetry is installed only where it is wanted.
    from .traces.export import SpanExport  # noqa: PLC0415
    from .traces.traces import NodeTraces  # noqa: PLC0415

    return NodeTraces(SpanExport(endpoint, name), sample)
