"""Generate the Grafana dashboard.

Usage: ``python deploy/monitoring/make_dashboard.py > deploy/monitoring/dashboards/lmqcluster.json``

The order is that of RabbitMQ's overview: waiting messages, nodes, traffic, queues, and then Raft. The script needs only
Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

WIDTH: Final = 24
HEIGHT: Final = 7
STAT_HEIGHT: Final = 4
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HERE: Final = 'cluster=~"$cluster"'
_NODE: Final = 'cluster=~"$cluster",instance=~"$node"'

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its title, queries as (expression, legend), the unit of the values, and a description."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


def cluster_value(metric: str) -> str:
    """Return the median of a gauge that every node has, so that a partitioned node does not count."""
    labels = f"{{{_HERE}}}"
    return f"quantile by (cluster) (0.5, {metric}{labels})"


def cluster_rate(counter: str) -> str:
    """Return the median rate of a counter that every node has; a node counts up again while it replays its log."""
    return f"quantile by (cluster) (0.5, rate({counter}{{{_HERE}}}[$__rate_interval]))"


def rate(counter: str, *by: str) -> str:
    """Return the rate of a node's own counter, summed over the nodes of a cluster and grouped by the labels `by`."""
    return f"sum by ({', '.join(('cluster', *by))}) (rate({counter}{{{_NODE}}}[$__rate_interval]))"


def p99(histogram: str, *by: str) -> str:
    """Return the 99th percentile of a node's own histogram."""
    return f"histogram_quantile(0.99, {rate(f'{histogram}_bucket', *by, 'le')})"


def of_queues(metric: str, more: str = "") -> str:
    """Return the twenty largest values of a metric of single queues, from any scraped nodes."""
    return f'topk(20, quantile by (cluster, queue) (0.5, {metric}{{{_HERE},queue=~"$queue"{more}}}))'


def rate_of_queues(counter: str) -> str:
    """Return the twenty largest rates of a counter of single queues."""
    inner = f'rate({counter}{{{_HERE},queue=~"$queue"}}[$__rate_interval])'
    return f"topk(20, quantile by (cluster, queue) (0.5, {inner}))"


def of_nodes(metric: str) -> str:
    """Return a metric of the selected nodes."""
    return f"{metric}{{{_NODE}}}"


def messages(state: str) -> str:
    """Messages in one state."""
    return f'quantile by (cluster) (0.5, lmq_messages{{{_HERE},state="{state}"}})'


def stat(title: str, expression: str, unit: str = "short") -> Panel:
    """Return a panel with one large number."""
    return Panel(title, [(expression, "")], unit, kind="stat", width=3)


SNAPSHOTS: Final = (
    f"rate({of_nodes('lmq_raft_snapshot_duration_seconds_sum')}[$__rate_interval]) / "
    f"rate({of_nodes('lmq_raft_snapshot_duration_seconds_count')}[$__rate_interval])"
)

BEHIND: Final = (
    f"max by (cluster) (lmq_raft_commit_index{{{_HERE}}}) - "
    f"on (cluster) group_right () {of_nodes('lmq_raft_applied_index')}"
)
TIME_IN_QUEUE: Final = f"sum by (cluster, le) (rate(lmq_time_in_queue_seconds_bucket{{{_HERE}}}[$__rate_interval]))"

_OPTIONS: Final[Json] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "state-timeline": {"mergeValues": True, "showValue": "never"},
}

ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Overview",
        (
            stat("Ready messages", messages("ready")),
            stat("Leased messages", messages("leased")),
            stat("Incoming a second", cluster_rate("lmq_messages_pushed_total"), "ops"),
            stat("Outgoing a second", cluster_rate("lmq_messages_pulled_total"), "ops"),
            stat("Queues", cluster_value("lmq_queues")),
            stat("Oldest message", cluster_value("lmq_oldest_message_age_seconds"), "s"),
            stat("Nodes ready", f"sum by (cluster) (lmq_ready{{{_HERE}}})"),
            stat("Connections", f"sum by (cluster) (lmq_connections{{{_NODE}}})"),
        ),
    ),
    (
        "Nodes",
        (
            Panel(
                "Nodes",
                [(f"lmq_build_info{{{_NODE}}} * on (cluster, instance) group_left () lmq_ready{{{_NODE}}}", "")],
                kind="table",
                width=24,
                text="Version and durability of each node; the value is 1 if it is ready.",
            ),
            Panel(
                "Memory of messages",
                [(f"{of_nodes('lmq_memory_used_bytes')} / {of_nodes('lmq_memory_limit_bytes')}", "{{instance}}")],
                "percentunit",
                "At 100 % the node refuses pushes.",
            ),
            Panel("Memory of the process", [(of_nodes("process_resident_memory_bytes"), "{{instance}}")], "bytes"),
            Panel("Free disk", [(of_nodes("lmq_disk_free_bytes"), "{{instance}}")], "bytes"),
            Panel("Processor", [(rate("process_cpu_seconds_total", "instance"), "{{instance}}")], "percentunit"),
            Panel(
                "Lateness of the event loop",
                [(p99("lmq_event_loop_lag_seconds", "instance"), "{{instance}}")],
                "s",
                "99th percentile. A late event loop means that the node lacks processor time.",
            ),
            Panel("Open files", [(of_nodes("process_open_fds"), "{{instance}}")]),
        ),
    ),
    (
        "Queued messages",
        (
            Panel("Ready", [(messages("ready"), "ready"), (messages("delayed"), "delayed")], width=8, stacked=True),
            Panel("Leased to consumers", [(messages("leased"), "leased")]),
            Panel("Bytes of bodies", [(cluster_value("lmq_message_bytes"), "bytes")], "bytes"),
            Panel("Age of the oldest message", [(cluster_value("lmq_oldest_message_age_seconds"), "oldest")], "s"),
            Panel(
                "Time in queue",
                [
                    (
                        f"histogram_quantile({share}, {TIME_IN_QUEUE})",
                        legend,
                    )
                    for share, legend in ((0.5, "median"), (0.99, "99 %"))
                ],
                "s",
                "Time from ready to pulled; the first message of each pull command counts.",
            ),
            Panel("Waiting pulls", [(of_nodes("lmq_waiters"), "{{instance}}")], stacked=True),
        ),
    ),
    (
        "Incoming messages",
        (
            Panel(
                "Pushed a second",
                [
                    (cluster_rate("lmq_messages_pushed_total"), "pushed"),
                    (cluster_rate("lmq_messages_refused_total"), "refused"),
                ],
                "ops",
                "Pushes to full queues are refused.",
            ),
            Panel(
                "Operations a second",
                [(rate("lmq_operation_duration_seconds_count", "operation"), "{{operation}}")],
                "ops",
                "Of all protocols.",
                stacked=True,
            ),
            Panel(
                "Duration of operations",
                [(p99("lmq_operation_duration_seconds", "operation"), "{{operation}}")],
                "s",
                "99th percentile, from acceptance to application.",
            ),
            Panel(
                "HTTP requests a second",
                [(rate("lmq_request_duration_seconds_count", "operation", "code"), "{{operation}} {{code}}")],
                "reqps",
            ),
            Panel(
                "Duration of HTTP requests",
                [(p99("lmq_request_duration_seconds", "operation"), "{{operation}}")],
                "s",
                "99th percentile, including the waits of pulls.",
            ),
            Panel(
                "Connections",
                [(f"sum by (cluster, protocol) ({of_nodes('lmq_connections')})", "{{protocol}}")],
                stacked=True,
            ),
        ),
    ),
    (
        "Outgoing messages",
        (
            Panel("Delivered a second", [(cluster_rate("lmq_messages_pulled_total"), "delivered")], "ops"),
            Panel("Acknowledged a second", [(cluster_rate("lmq_messages_acked_total"), "acknowledged")], "ops"),
            Panel("Empty pulls a second", [(rate("lmq_empty_pulls_total"), "empty")], "ops"),
            Panel("Returned a second", [(cluster_rate("lmq_messages_nacked_total"), "nacked")], "ops"),
            Panel(
                "Timed out a second",
                [(cluster_rate("lmq_messages_redelivered_total"), "timed out")],
                "ops",
                "Leases that expired without an answer.",
            ),
            Panel(
                "Dropped a second",
                [
                    (cluster_rate("lmq_messages_dropped_total"), "dropped"),
                    (cluster_rate("lmq_messages_dead_lettered_total"), "dead letters"),
                ],
                "ops",
                "After their last delivery: dropped, or moved to the dead-letter queue.",
            ),
            Panel(
                "Expired a second",
                [
                    (cluster_rate("lmq_messages_expired_total"), "expired"),
                    (cluster_rate("lmq_messages_discarded_total"), "discarded"),
                ],
                "ops",
                "Not delivered in time, or discarded to make room for new ones.",
            ),
            Panel(
                "Held behind their groups",
                [
                    (cluster_value("lmq_messages_held"), "messages"),
                    (cluster_value("lmq_groups_busy"), "busy groups"),
                ],
                text="A group delivers one message at a time; the others are held.",
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel(
                "Ready by queue",
                [(of_queues("lmq_queue_messages", ',state="ready"'), "{{queue}}")],
                text="The twenty longest. These panels need /metrics/queues.",
            ),
            Panel(
                "Age of the oldest message by queue",
                [(of_queues("lmq_queue_oldest_message_age_seconds"), "{{queue}}")],
                "s",
            ),
            Panel("Bytes by queue", [(of_queues("lmq_queue_message_bytes"), "{{queue}}")], "bytes"),
            Panel(
                "Pushed a second by queue", [(rate_of_queues("lmq_queue_messages_pushed_total"), "{{queue}}")], "ops"
            ),
            Panel(
                "Pulled a second by queue", [(rate_of_queues("lmq_queue_messages_pulled_total"), "{{queue}}")], "ops"
            ),
            Panel(
                "Dead letters a second by queue",
                [(rate_of_queues("lmq_queue_messages_dead_lettered_total"), "{{queue}}")],
                "ops",
            ),
            Panel(
                "Refused a second by queue", [(rate_of_queues("lmq_queue_messages_refused_total"), "{{queue}}")], "ops"
            ),
            Panel("Held by queue", [(of_queues("lmq_queue_messages_held"), "{{queue}}")]),
            Panel(
                "Waiting pulls by queue",
                [(f'topk(20, sum by (cluster, queue) (lmq_queue_waiters{{{_HERE},queue=~"$queue"}}))', "{{queue}}")],
            ),
        ),
    ),
    (
        "Raft",
        (
            Panel(
                "Batches committed a second", [(cluster_rate("lmq_raft_proposals_committed_total"), "committed")], "ops"
            ),
            Panel(
                "Time to commit",
                [(p99("lmq_raft_commit_duration_seconds", "instance"), "{{instance}}")],
                "s",
                "99th percentile, by the node that accepted the requests.",
            ),
            Panel("Commands and batches not applied", [(of_nodes("lmq_raft_proposals_pending"), "{{instance}}")]),
            Panel(
                "Leader changes",
                [(f"increase({of_nodes('lmq_raft_leader_changes_total')}[$__rate_interval])", "{{instance}}")],
            ),
            Panel("Entries in the log", [(of_nodes("lmq_raft_log_entries"), "{{instance}}")]),
            Panel(
                "Entries behind",
                [
                    (
                        BEHIND,
                        "{{instance}}",
                    )
                ],
                text="Distance from the highest commit index that any node knows.",
            ),
            Panel(
                "Sync of the log",
                [(p99("lmq_raft_journal_sync_duration_seconds", "instance"), "{{instance}}")],
                "s",
                "99th percentile.",
            ),
            Panel(
                "Round trip to members",
                [(p99("lmq_raft_peer_round_trip_seconds", "instance", "peer_name"), "{{instance}} to {{peer_name}}")],
                "s",
                "99th percentile, measured by the leader, including the member's sync.",
            ),
            Panel("Duration of snapshots", [(SNAPSHOTS, "{{instance}}")], "s"),
            Panel("Leader", [(of_nodes("lmq_raft_is_leader"), "{{instance}}")], kind="state-timeline", width=12),
            Panel(
                "Failed operations a second",
                [(rate("lmq_raft_proposals_failed_total", "reason"), "{{reason}}")],
                "ops",
                width=12,
            ),
        ),
    ),
)


def dashboard() -> Json:
    """Return the dashboard in Grafana's format."""
    return {
        "title": "lmqcluster",
        "uid": "lmqcluster-overview",
        "tags": ["lmqcluster"],
        "description": "Messages, traffic, nodes and Raft of a cluster; see docs/metrics.md and docs/alerts.md.",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def _variables() -> list[Json]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    chosen = (
        ("cluster", "Cluster", "label_values(lmq_build_info, cluster)"),
        ("node", "Node", 'label_values(lmq_build_info{cluster=~"$cluster"}, instance)'),
        ("queue", "Queue", 'label_values(lmq_queue_message_bytes{cluster=~"$cluster"}, queue)'),
    )
    return [
        source,
        *(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": query, "refId": name},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                # Also matches series without this label.
                "allValue": ".*",
                "current": {"text": ["All"], "value": ["$__all"]},
            }
            for name, label, query in chosen
        ),
    ]


def _panels() -> Iterator[Json]:
    """Yield the panels, row by row and from left to right."""
    number, y = 1, 0
    for title, panels in ROWS:
        yield _placed({"type": "row", "title": title, "collapsed": False, "panels": []}, number, 0, y, WIDTH, 1)
        number, y, x = number + 1, y + 1, 0
        height = STAT_HEIGHT if panels[0].kind == "stat" else HEIGHT
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y = 0, y + height
            yield _placed(_panel(panel), number, x, y, panel.width, height)
            number, x = number + 1, x + panel.width
        y += height


def _placed(panel: Json, number: int, x: int, y: int, width: int, height: int) -> Json:
    return {"id": number, "gridPos": {"x": x, "y": y, "w": width, "h": height}, **panel}


def _panel(panel: Panel) -> Json:
    instant = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": expression,
            "legendFormat": _legend(expression, legend),
            "instant": instant,
            "range": not instant,
            "format": "table" if instant else "time_series",
        }
        for place, (expression, legend) in enumerate(panel.queries)
    ]
    defaults: Json = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults |= {
            "min": 0,
            "custom": {"fillOpacity": 10, "showPoints": "never", "stacking": {"mode": _stacking(panel)}},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS.get(panel.kind, {}),
    }


def _legend(expression: str, legend: str) -> str:
    """Return the legend, with the cluster unless the legend has the instance."""
    if not legend:
        return "__auto"
    return legend if "{{instance}}" in legend or "by (cluster" not in expression else f"{legend} {{{{cluster}}}}"


def _stacking(panel: Panel) -> str:
    return "normal" if panel.stacked else "none"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dashboard(), indent=1) + "\n")
