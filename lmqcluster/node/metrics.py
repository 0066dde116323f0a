"""Prometheus metrics of one node, read from the live objects at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from .node import Node

__all__ = ["Metrics"]

_COUNTERS = {
    "pushed_total": ("lmq_messages_pushed", "Messages stored, cluster-wide."),
    "pulled_total": ("lmq_messages_pulled", "Deliveries, cluster-wide."),
    "acked_total": ("lmq_messages_acked", "Messages settled, cluster-wide."),
    "nacked_total": ("lmq_messages_nacked", "Messages given back, cluster-wide."),
    "redelivered_total": ("lmq_messages_redelivered", "Leases that ended without an answer and were delivered again."),
    "dropped_total": ("lmq_messages_dropped", "Messages dropped after their last delivery."),
}


class Metrics:
    """The registry of one node."""

    def __init__(self, node: Node) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_NodeCollector(node))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """The text format, version 0.0.4."""
        return generate_latest(self._registry)


class _NodeCollector(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._raft()
        yield from self._requests()
        yield from self._events()

    def _queues(self) -> Iterator[Metric]:
        machine = self._node.replica.machine
        queues = machine.queues.values()
        yield GaugeMetricFamily("lmq_queues", "Queues that exist.", len(machine.queues))
        messages = GaugeMetricFamily("lmq_messages", "Messages by state.", labels=["state"])
        messages.add_metric(["ready"], sum(len(queue.ready) for queue in queues))
        messages.add_metric(["delayed"], sum(len(queue.delayed) for queue in queues))
        messages.add_metric(["leased"], sum(len(queue.leases) for queue in queues))
        yield messages
        yield GaugeMetricFamily("lmq_message_bytes", "Bytes of all bodies.", sum(queue.body_bytes for queue in queues))
        totals = machine.totals()
        for attribute, (name, text) in _COUNTERS.items():
            yield CounterMetricFamily(name, text, totals[attribute])

    def _raft(self) -> Iterator[Metric]:
        replica = self._node.replica
        core = replica.core
        leader = core.leader_id()
        yield GaugeMetricFamily("lmq_raft_has_leader", "1 if a leader is known.", float(leader is not None))
        yield GaugeMetricFamily("lmq_raft_is_leader", "1 if this node leads.", float(core.is_leader()))
        yield GaugeMetricFamily("lmq_raft_term", "Current term.", core.term())
        yield GaugeMetricFamily("lmq_raft_commit_index", "Highest committed log index known.", core.commit_index())
        yield GaugeMetricFamily("lmq_raft_applied_index", "Highest applied log index.", core.applied_index())
        yield GaugeMetricFamily("lmq_raft_log_bytes", "Bytes of log entries kept.", replica.journal.size_bytes)
        yield GaugeMetricFamily("lmq_raft_log_entries", "Entries in the log.", len(replica.journal))
        yield CounterMetricFamily("lmq_raft_log_syncs", "Syncs of the log to disk.", replica.syncs_total)
        yield CounterMetricFamily("lmq_raft_snapshots_taken", "Snapshots written.", replica.snapshots.taken_total)
        yield CounterMetricFamily(
            "lmq_raft_snapshots_installed", "Snapshots received and installed.", replica.snapshots.installed_total
        )
        latest = replica.snapshots.latest()
        yield GaugeMetricFamily(
            "lmq_raft_snapshot_index", "Log index of the newest snapshot.", 0 if latest is None else latest.index
        )
        yield CounterMetricFamily("lmq_raft_leader_changes", "Leaders seen.", self._node.leader_changes)
        connected = GaugeMetricFamily(
            "lmq_raft_peer_connected", "1 if this node can send to the peer.", labels=["peer"]
        )
        up = replica.transport.connected_ids()
        for node_id in sorted(core.members()):
            if node_id != self._node.id:
                connected.add_metric([node_id], float(node_id in up))
        yield connected

    def _requests(self) -> Iterator[Metric]:
        node = self._node
        proposer = node.service.proposer
        yield CounterMetricFamily("lmq_operations", "Operations proposed by this node.", proposer.items_total)
        yield CounterMetricFamily("lmq_batches", "Batches proposed by this node.", proposer.batches_total)
        yield CounterMetricFamily("lmq_batches_resent", "Batches sent again.", proposer.resends_total)
        yield GaugeMetricFamily("lmq_proposals_pending", "Groups and batches not applied yet.", proposer.pending())
        yield GaugeMetricFamily("lmq_waiters", "Pulls that wait at this node.", node.service.pulls.waiting())
        yield InfoMetricFamily(
            "lmq_build", "Version and settings.", {"version": node.version, "durability": node.config.durability}
        )

    def _events(self) -> Iterator[Metric]:
        events = self._node.events
        if events is None:
            return
        writer = events.writer
        yield CounterMetricFamily("lmq_events_written", "Events in the event journal.", writer.written_total)
        yield CounterMetricFamily("lmq_events_dropped", "Events that the journal has lost.", writer.dropped_total)
        yield CounterMetricFamily(
            "lmq_event_journal_errors", "Attempts to write the event journal that failed.", writer.errors_total
        )
