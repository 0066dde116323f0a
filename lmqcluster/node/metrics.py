"""Prometheus metrics of one node, read from the live objects at each scrape. What they mean stands in `metrics_table`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from ..core import Op
from ..replication.histogram import Histogram
from .metrics_table import BY_NAME
from .queue_totals import QueueTotals, age_s, sum_queues

if TYPE_CHECKING:
    from .node import Node

__all__ = ["Metrics"]

_WAITING_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_LAG_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """What a node observes of itself, and the page that shows it.

    Attributes:
        connections: open connections by protocol; front ends add themselves.
        in_flight: requests under way by protocol; likewise.
        requests: durations of requests by (protocol, operation, code).
        time_in_queue: seconds that delivered messages had been due.
        loop_lag: seconds that a timer was late.
        apply_faults: committed commands that could not be carried out.
    """

    def __init__(self, node: Node) -> None:
        self.connections: dict[str, Callable[[], int]] = {}
        self.in_flight: dict[str, Callable[[], int]] = {}
        self.requests: dict[tuple[str, str, str], Histogram] = {}
        self.time_in_queue = Histogram(_WAITING_S)
        self.loop_lag = Histogram(_LAG_S)
        self.apply_faults = 0
        self._node = node
        self._standard = CollectorRegistry()
        ProcessCollector(registry=self._standard)
        PlatformCollector(registry=self._standard)
        GCCollector(registry=self._standard)

    def request_done(self, protocol: str, operation: str, code: str, seconds: float) -> None:
        """Count a request that was answered."""
        key = (protocol, operation, code)
        durations = self.requests.get(key)
        if durations is None:
            durations = self.requests[key] = Histogram()
        durations.observe(seconds)

    async def page(self) -> bytes:
        """The text format, version 0.0.4."""
        totals = await sum_queues(self._node.replica.machine)
        registry = CollectorRegistry()
        registry.register(_NodeCollector(self._node, totals))
        return generate_latest(registry) + generate_latest(self._standard)


def _family(name: str) -> Metric:
    """An empty family after its definition."""
    one = BY_NAME[name]
    if one.kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), one.help, labels=one.labels)
    if one.kind == "histogram":
        return HistogramMetricFamily(name, one.help, labels=one.labels)
    return GaugeMetricFamily(name, one.help, labels=one.labels)


def _value(name: str, value: float) -> Metric:
    """A family without labels."""
    family: Any = _family(name)
    family.add_metric((), value)
    return family  # type: ignore[no-any-return]


def _values(name: str, values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """A family with a value for each combination of labels."""
    family: Any = _family(name)
    for labels, value in values:
        family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]


def _histograms(name: str, histograms: Iterable[tuple[tuple[str, ...], Histogram]]) -> Metric:
    """A family with a histogram for each combination of labels."""
    family: Any = _family(name)
    for labels, histogram in histograms:
        bounds = [*map(str, histogram.bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, histogram.cumulative(), strict=True)), histogram.sum)
    return family  # type: ignore[no-any-return]


def _histogram(name: str, histogram: Histogram) -> Metric:
    return _histograms(name, [((), histogram)])


class _NodeCollector(Collector):
    """What one scrape sees."""

    def __init__(self, node: Node, totals: QueueTotals) -> None:
        self._node = node
        self._totals = totals

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._requests()
        yield from self._raft()
        yield from self._peers()
        yield from self._process()
        yield from self._events()
        yield from self._statsd()
        yield from self._tls()

    def _queues(self) -> Iterator[Metric]:
        totals, replica = self._totals, self._node.replica
        machine = replica.machine
        yield _value("lmq_queues", totals.queues)
        states = {"ready": totals.ready, "delayed": totals.delayed, "leased": totals.leased}
        yield _values("lmq_messages", (((state,), count) for state, count in states.items()))
        yield _value("lmq_message_bytes", totals.body_bytes)
        for counter, count in totals.counters.items():
            yield _value(f"lmq_messages_{counter}", count)
        yield _value("lmq_oldest_message_age_seconds", age_s(totals.oldest_us, replica.clock.now_us()))
        yield _histogram("lmq_time_in_queue_seconds", self._node.metrics.time_in_queue)
        yield _value("lmq_idempotency_keys", len(machine.keys) + len(machine.key_scopes))
        yield _value("lmq_subscriptions", len(machine.batches.subscriptions))

    def _requests(self) -> Iterator[Metric]:
        metrics, service = self._node.metrics, self._node.service
        proposer, pulls = service.proposer, service.pulls
        yield _histograms("lmq_request_duration_seconds", list(metrics.requests.items()))
        in_flight = (((protocol,), count()) for protocol, count in metrics.in_flight.items())
        yield _values("lmq_requests_in_flight", in_flight)
        durations = (((Op(op).name.lower(),), one) for op, one in proposer.durations.items())
        yield _histograms("lmq_operation_duration_seconds", durations)
        yield _value("lmq_operations_total", proposer.items_total)
        yield _value("lmq_empty_pulls_total", pulls.empty_total)
        yield _value("lmq_waiters", pulls.waiting())
        connections = (((protocol,), count()) for protocol, count in metrics.connections.items())
        yield _values("lmq_connections", connections)

    def _raft(self) -> Iterator[Metric]:
        node, replica = self._node, self._node.replica
        core, snapshots, proposer = replica.core, replica.snapshots, node.service.proposer
        latest = snapshots.latest()
        yield _value("lmq_raft_members", len(core.members()))
        yield _value("lmq_raft_has_leader", node.has_leader())
        yield _value("lmq_raft_is_leader", core.is_leader())
        yield _value("lmq_raft_leader_changes_total", node.leader_changes)
        yield _value("lmq_raft_term", core.term())
        yield _value("lmq_raft_commit_index", core.commit_index())
        yield _value("lmq_raft_applied_index", core.applied_index())
        yield _value("lmq_raft_snapshot_index", 0 if latest is None else latest.index)
        yield _value("lmq_raft_log_entries", len(replica.journal))
        yield _value("lmq_raft_log_bytes", replica.journal.size_bytes)
        yield _value("lmq_batches_total", proposer.batches_total)
        yield _value("lmq_batches_resent_total", proposer.resends_total)
        yield _value("lmq_raft_proposals_committed_total", replica.applied_batches)
        yield _value("lmq_raft_proposals_pending", proposer.pending())
        failed = (((code,), count) for code, count in proposer.failed_total.items())
        yield _values("lmq_raft_proposals_failed_total", failed)
        yield _histogram("lmq_raft_commit_duration_seconds", proposer.commit_durations)
        yield _histogram("lmq_raft_journal_sync_duration_seconds", replica.sync_durations)
        yield _value("lmq_raft_log_syncs_total", replica.syncs_total)
        yield _histogram("lmq_raft_snapshot_duration_seconds", snapshots.durations)
        yield _value("lmq_raft_snapshots_taken_total", snapshots.taken_total)
        yield _value("lmq_raft_snapshots_failed_total", snapshots.failed_total)
        yield _value("lmq_raft_snapshots_installed_total", snapshots.installed_total)
        yield _value("lmq_raft_apply_faults_total", node.metrics.apply_faults + replica.skipped_total)

    def _peers(self) -> Iterator[Metric]:
        node, replica = self._node, self._node.replica
        core = replica.core
        peers = {one: (one, node.name_of(one)) for one in sorted(core.members()) if one != node.id}
        up = replica.transport.connected_ids()
        yield _values("lmq_raft_peer_connected", ((labels, one in up) for one, labels in peers.items()))
        indexes = {one: core.match_index(one) for one in peers} if core.is_leader() else {}
        matched = ((peers[one], index) for one, index in indexes.items() if index is not None)
        yield _values("lmq_raft_peer_match_index", matched)
        trips = ((labels, core.round_trips[one]) for one, labels in peers.items() if one in core.round_trips)
        yield _histograms("lmq_raft_peer_round_trip_seconds", trips)

    def _process(self) -> Iterator[Metric]:
        node = self._node
        build = {"version": node.version, "durability": node.config.durability}
        yield InfoMetricFamily("lmq_build", BY_NAME["lmq_build_info"].help, build)
        yield _value("lmq_ready", all(passed for _name, passed, _detail in node.health()))
        yield _value("lmq_memory_used_bytes", node.service.stored_bytes)
        yield _value("lmq_memory_limit_bytes", node.config.memory_bytes_max)
        disk = shutil.disk_usage(node.config.data_dir)
        yield _value("lmq_disk_free_bytes", disk.free)
        yield _value("lmq_disk_size_bytes", disk.total)
        yield _histogram("lmq_event_loop_lag_seconds", node.metrics.loop_lag)

    def _events(self) -> Iterator[Metric]:
        events = self._node.events
        if events is None:
            return
        yield _value("lmq_events_written_total", events.writer.written_total)
        yield _value("lmq_events_dropped_total", events.writer.dropped_total)
        yield _value("lmq_event_journal_errors_total", events.writer.errors_total)

    def _statsd(self) -> Iterator[Metric]:
        statsd = self._node.statsd
        if statsd is None:
            return
        yield _value("lmq_statsd_datagrams_sent_total", statsd.sent_total)
        yield _value("lmq_statsd_datagrams_dropped_total", statsd.dropped_total)

    def _tls(self) -> Iterator[Metric]:
        if self._node.tls is not None:
            yield _value("lmq_tls_certificate_expiry_seconds", self._node.tls.expires_s)
