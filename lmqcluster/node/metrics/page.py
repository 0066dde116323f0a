"""Prometheus metrics of a node, read from the live objects at each scrape. `metrics.table` describes their meaning."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from ...core import Op
from ..process.standard_output import dropped_lines
from ..queues.views.info import age_s
from .exposition import Exposition
from .totals import QueueTotals, sum_queues

if TYPE_CHECKING:
    from ..node import Node

__all__ = ["MetricsPage"]


class MetricsPage:
    """The metrics page of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._standard = CollectorRegistry()
        ProcessCollector(registry=self._standard)
        PlatformCollector(registry=self._standard)
        GCCollector(registry=self._standard)

    async def text(self) -> bytes:
        """Return the page in the text format, version 0.0.4."""
        totals = await sum_queues(self._node.replica.machine.state, self._node.turns)
        return _Scrape(self._node, totals).text() + generate_latest(self._standard)


class _Scrape:
    """One scrape."""

    def __init__(self, node: Node, totals: QueueTotals) -> None:
        self._node = node
        self._totals = totals
        self._status = node.replica.status()
        self._page = Exposition()

    def text(self) -> bytes:
        """Return the metrics of the table."""
        self._queues()
        self._requests()
        self._raft()
        self._peers()
        self._process()
        self._events()
        self._statsd()
        self._traces()
        self._tls()
        return self._page.text()

    def _queues(self) -> None:
        page = self._page
        totals, replica = self._totals, self._node.replica
        machine = replica.machine
        page.value("lmq_queues", totals.queues)
        states = {"ready": totals.ready, "delayed": totals.delayed, "leased": totals.leased}
        page.values("lmq_messages", (((state,), count) for state, count in states.items()))
        page.value("lmq_messages_held", totals.held)
        page.value("lmq_groups_busy", totals.busy_groups)
        page.value("lmq_message_bytes", totals.body_bytes)
        for counter, count in totals.counters.items():
            page.value(f"lmq_messages_{counter}", count)
        page.value("lmq_oldest_message_age_seconds", age_s(totals.oldest_us, replica.clock.now_us()) or 0.0)
        page.histogram("lmq_time_in_queue_seconds", self._node.observed.time_in_queue)
        needing = self._node.attention.totals()
        page.values("lmq_queues_needing_attention", (((reason,), count) for reason, count in needing.items()))
        page.value("lmq_idempotency_keys", len(machine.state.keys))
        attempts = (machine.state.sent, machine.state.received)
        page.value("lmq_attempts", sum(map(len, attempts)))
        page.value("lmq_attempts_forgotten_total", sum(table.forgotten_total for table in attempts))
        page.value("lmq_subscriptions", len(machine.state.batches.subscriptions))
        page.value("lmq_sessions", len(machine.state.sessions))
        page.value("lmq_locks", len(machine.state.locks))
        schedules = machine.state.schedules
        page.value("lmq_schedules", len(schedules))
        for name, count in zip(("pushed", "missed", "refused"), schedules.totals, strict=True):
            page.value(f"lmq_schedules_{name}_total", count)
        page.value("lmq_pushes_waiting", len(machine.state.waiting_pushes))
        page.value("lmq_pushes_waiting_bytes", machine.state.waiting_pushes.size_bytes)

    def _requests(self) -> None:
        page = self._page
        observed, service = self._node.observed, self._node.service
        proposer, pulls = service.sender.proposer, service.pulls
        page.histograms("lmq_request_duration_seconds", list(observed.requests.items()))
        in_flight = (((protocol,), count()) for protocol, count in observed.in_flight.items())
        page.values("lmq_requests_in_flight", in_flight)
        durations = (((Op(op).name.lower(),), one) for op, one in proposer.durations.items())
        page.histograms("lmq_operation_duration_seconds", durations)
        page.value("lmq_operations_total", proposer.items_total)
        page.value("lmq_empty_pulls_total", pulls.empty_total)
        page.value("lmq_waiters", pulls.waiting())
        connections = (((protocol,), count()) for protocol, count in observed.connections.items())
        page.values("lmq_connections", connections)
        gates, front_ends = self._node.gates, self._node.front_ends
        if front_ends is not None:
            page.value("lmq_front_ends", front_ends.running)
            page.value("lmq_front_end_failures_total", front_ends.failures)
        page.values(
            "lmq_unauthenticated_connections", (((gate.port,), len(gate.unauthenticated)) for gate in gates.all)
        )
        ended = (((gate.port, why.value), count) for gate in gates.all for why, count in gate.endings.items())
        page.values("lmq_connections_ended_total", ended)
        held = {"clients": gates.memory.clients_bytes, "unauthenticated": gates.memory.unauthenticated_bytes}
        page.values("lmq_client_memory_bytes", (((of,), size) for of, size in held.items()))

    def _raft(self) -> None:
        page = self._page
        node, replica, status = self._node, self._node.replica, self._status
        snapshots, proposer = replica.snapshots, node.service.sender.proposer
        page.value("lmq_raft_members", len(status.members))
        page.value("lmq_raft_has_leader", status.has_leader)
        page.value("lmq_raft_is_leader", status.is_leader)
        page.value("lmq_raft_leader_changes_total", node.observed.leader_changes)
        page.value("lmq_raft_term", status.term)
        page.value("lmq_raft_commit_index", status.commit_index)
        page.value("lmq_raft_applied_index", status.applied_index)
        page.value("lmq_raft_snapshot_index", status.snapshot_index)
        page.value("lmq_raft_log_entries", status.log_entries)
        page.value("lmq_raft_log_bytes", status.log_bytes)
        page.value("lmq_batches_total", proposer.batches_total)
        page.value("lmq_batches_resent_total", proposer.resends_total)
        page.value("lmq_raft_proposals_committed_total", replica.applied_batches)
        page.value("lmq_raft_proposals_pending", proposer.pending())
        failed = (((code,), count) for code, count in proposer.failed_total.items())
        page.values("lmq_raft_proposals_failed_total", failed)
        page.histogram("lmq_raft_commit_duration_seconds", proposer.commit_durations)
        page.histogram("lmq_raft_journal_sync_duration_seconds", replica.steps.sync_durations)
        page.value("lmq_raft_log_syncs_total", replica.steps.syncs_total)
        page.histogram("lmq_raft_snapshot_duration_seconds", snapshots.durations)
        page.value("lmq_raft_snapshots_taken_total", snapshots.taken_total)
        page.value("lmq_raft_snapshots_failed_total", snapshots.failed_total)
        page.value("lmq_raft_snapshots_installed_total", snapshots.installed_total)
        page.value("lmq_raft_apply_faults_total", node.observed.apply_faults + replica.skipped_total)

    def _peers(self) -> None:
        page, status = self._page, self._status
        peers = {one: (one, status.name_of(one)) for one in sorted(status.members) if one != status.id}
        page.values("lmq_raft_peer_connected", ((labels, one in status.connected) for one, labels in peers.items()))
        indexes = status.match_indexes
        page.values(
            "lmq_raft_peer_match_index", ((labels, indexes[one]) for one, labels in peers.items() if one in indexes)
        )
        times = self._node.replica.round_trips()
        trips = ((labels, times[one]) for one, labels in peers.items() if one in times)
        page.histograms("lmq_raft_peer_round_trip_seconds", trips)

    def _process(self) -> None:
        page = self._page
        node = self._node
        build = (node.version, node.config.durability)
        page.values("lmq_build_info", [(build, 1)])
        page.value("lmq_ready", all(passed for _name, passed, _detail in node.health()))
        page.value("lmq_memory_used_bytes", node.service.sender.stored_bytes)
        page.value("lmq_memory_limit_bytes", node.config.memory_bytes_max)
        replica = node.replica
        page.value("lmq_throttled_seconds_total", replica.throttle.seconds_total)
        page.value("lmq_page_wait_seconds_total", replica.page_supply.waited_s())
        page.value("lmq_paged_messages", replica.machine.state.pager.paged_messages)
        page.value("lmq_paged_body_bytes", replica.machine.state.pager.paged_body_bytes)
        page.value("lmq_page_files_bytes", replica.pages.size_bytes)
        page.value("lmq_pages_written_total", replica.pages.written_total)
        page.value("lmq_pages_read_total", replica.pages.read_total)
        page.value("lmq_pages_read_late_total", replica.pages.late_total)
        page.value("lmq_pages_fetched_total", replica.page_exchange.fetched_total)
        page.value("lmq_disk_used_bytes", node.disk.used_bytes)
        page.value("lmq_disk_limit_bytes", node.disk.limit_bytes)
        disk = shutil.disk_usage(node.config.data_dir)
        page.value("lmq_disk_free_bytes", disk.free)
        page.value("lmq_disk_size_bytes", disk.total)
        page.histogram("lmq_event_loop_lag_seconds", node.observed.loop_lag)
        page.value("lmq_event_loop_slices_total", node.turns.given_total)
        page.value("lmq_log_lines_dropped_total", dropped_lines())

    def _events(self) -> None:
        page = self._page
        events = self._node.events
        if events is None:
            return
        page.value("lmq_events_written_total", events.writer.written_total)
        page.value("lmq_events_dropped_total", events.writer.dropped_total)
        page.value("lmq_event_journal_errors_total", events.writer.errors_total)

    def _statsd(self) -> None:
        page = self._page
        servers = self._node.statsd_servers
        if servers:
            page.value("lmq_statsd_datagrams_sent_total", sum(one.sent_total for one in servers))
            page.value("lmq_statsd_datagrams_dropped_total", sum(one.dropped_total for one in servers))

    def _traces(self) -> None:
        traces = self._node.traces
        if traces is not None:
            self._page.value("lmq_trace_spans_exported_total", traces.export.exported_total)
            self._page.value("lmq_trace_spans_dropped_total", traces.export.dropped_total)

    def _tls(self) -> None:
        if self._node.tls is not None:
            self._page.value("lmq_tls_certificate_expiry_seconds", self._node.tls.expires_s)
        self._page.value("lmq_credentials_outdated", self._node.credentials.outdated)
