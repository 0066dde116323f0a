"""Every metric of a node: name, kind, labels, meaning. The pages of metrics, their documentation and its test follow this table.

``python -m lmqcluster.node.metrics.table`` prints the tables of ``docs/metrics.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ...core.queue_counters import COUNTERS

__all__ = ["BY_NAME", "QUEUE_SECTION", "SECTIONS", "STANDARD", "Definition", "Section", "markdown"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric.

    Attributes:
        name: as it is scraped; for a histogram without ``_bucket``, ``_sum`` and ``_count``.
        labels: their names, in order.
        when: the condition under which a node shows it; empty for always.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    when: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics that belong together, and what holds for all of them."""

    title: str
    note: str
    metrics: tuple[Definition, ...]


_ONCE_PUSHED: Final = "once something was pushed"

SECTIONS: Final = (
    Section(
        "Queues",
        "State of the cluster, as this node's replica has it: every node shows the same, so take the median over the nodes, "
        "`quantile(0.5, ...)`, and not the sum. Counters survive restarts: they are counted again while the log is "
        "replayed. They do not fall when a queue is deleted.",
        (
            Definition("lmq_queues", "gauge", "Queues that exist."),
            Definition(
                "lmq_messages",
                "gauge",
                "Messages by state: ready to be pulled, delayed (not due yet, accumulating, or held), leased to a consumer.",
                ("state",),
            ),
            Definition(
                "lmq_messages_held",
                "gauge",
                "Delayed messages that are due and wait for the one before them of their group.",
            ),
            Definition(
                "lmq_groups_busy",
                "gauge",
                "Groups with a message that is ready or leased, so that their other messages are held.",
            ),
            Definition("lmq_message_bytes", "gauge", "Bytes of all bodies."),
            *(Definition(f"lmq_messages_{counter}", "counter", what) for counter, what in COUNTERS.items()),
            Definition(
                "lmq_oldest_message_age_seconds",
                "gauge",
                "For how long the oldest ready message of any queue has been ready; 0 if none is.",
            ),
            Definition(
                "lmq_time_in_queue_seconds",
                "histogram",
                "How long messages were ready before they were pulled: the first message of every pull command that this "
                "node has applied since its start.",
            ),
            Definition("lmq_idempotency_keys", "gauge", "Idempotency keys that are remembered."),
            Definition("lmq_subscriptions", "gauge", "Subscriptions, which hold batch leases."),
            Definition("lmq_sessions", "gauge", "Open sessions, those of nodes included."),
            Definition("lmq_locks", "gauge", "Locks that sessions hold."),
            Definition("lmq_pushes_waiting", "gauge", "Pushes that wait for room in a full queue."),
            Definition("lmq_pushes_waiting_bytes", "gauge", "Approximate memory that they take."),
        ),
    ),
    Section(
        "Requests",
        "What clients asked of this node: sum over the nodes.",
        (
            Definition(
                "lmq_request_duration_seconds",
                "histogram",
                "HTTP requests from their head until the answer was complete, waiting pulls included; operation is method "
                "and route, code the status.",
                ("protocol", "operation", "code"),
                "once HTTP was used",
            ),
            Definition("lmq_requests_in_flight", "gauge", "HTTP requests that are not answered yet.", ("protocol",)),
            Definition(
                "lmq_operation_duration_seconds",
                "histogram",
                "Operations of all protocols from the moment they were taken until they were applied. Operations that were "
                "replicated in one command count with the time of the first.",
                ("operation",),
                _ONCE_PUSHED,
            ),
            Definition("lmq_operations_total", "counter", "Operations proposed."),
            Definition("lmq_empty_pulls_total", "counter", "Pulls whose wait ended without a message."),
            Definition("lmq_waiters", "gauge", "Pulls that wait for a message."),
            Definition("lmq_connections", "gauge", "Open connections of clients.", ("protocol",)),
            Definition(
                "lmq_unauthenticated_connections",
                "gauge",
                "Accepted connections, those in their TLS handshake included, that have not authenticated yet.",
                ("port",),
            ),
            Definition(
                "lmq_connections_ended_total",
                "counter",
                "Connections that the node closed or refused, by reason: a limit (client_full, port_full, unauthenticated_full, "
                "memory), a timeout (not_authenticated, too_slow, idle) or bad input (handshake, bad_request).",
                ("port", "reason"),
            ),
            Definition(
                "lmq_client_memory_bytes",
                "gauge",
                "Unfinished requests, decoded values and unread answers: of authenticated clients and of unauthenticated ones.",
                ("of",),
            ),
        ),
    ),
    Section(
        "Raft",
        "",
        (
            Definition("lmq_raft_members", "gauge", "Members of the cluster."),
            Definition("lmq_raft_has_leader", "gauge", "1 if a leader is known and can be reached."),
            Definition("lmq_raft_is_leader", "gauge", "1 if this node leads."),
            Definition("lmq_raft_leader_changes_total", "counter", "Leaders that took over, as seen by this node."),
            Definition("lmq_raft_term", "gauge", "Current term."),
            Definition("lmq_raft_commit_index", "gauge", "Highest log index known to be committed."),
            Definition("lmq_raft_applied_index", "gauge", "Highest log index applied here."),
            Definition("lmq_raft_snapshot_index", "gauge", "Log index of the newest snapshot, 0 without one."),
            Definition("lmq_raft_log_entries", "gauge", "Entries in the log."),
            Definition("lmq_raft_log_bytes", "gauge", "Bytes of the entries in the log."),
            Definition("lmq_batches_total", "counter", "Batches of operations that this node proposed."),
            Definition(
                "lmq_batches_resent_total", "counter", "Batches sent again, after a change of leader for example."
            ),
            Definition(
                "lmq_raft_proposals_committed_total",
                "counter",
                "Batches of any node that were committed and applied here.",
            ),
            Definition(
                "lmq_raft_proposals_pending", "gauge", "Commands and batches of this node that are not applied."
            ),
            Definition(
                "lmq_raft_proposals_failed_total",
                "counter",
                "Operations that were taken and then failed, by error code; unknown_outcome may have been applied.",
                ("reason",),
                "once one failed",
            ),
            Definition(
                "lmq_raft_commit_duration_seconds",
                "histogram",
                "Batches of this node from when they were made until they were applied here.",
            ),
            Definition(
                "lmq_raft_journal_sync_duration_seconds",
                "histogram",
                "Writes of the log to the disk, with their sync. Stays empty with a durability other than disk.",
            ),
            Definition("lmq_raft_log_syncs_total", "counter", "Syncs of the log to the disk."),
            Definition(
                "lmq_raft_snapshot_duration_seconds", "histogram", "Snapshots, from the decision to the durable file."
            ),
            Definition("lmq_raft_snapshots_taken_total", "counter", "Snapshots written."),
            Definition("lmq_raft_snapshots_failed_total", "counter", "Snapshots that could not be written."),
            Definition(
                "lmq_raft_snapshots_installed_total", "counter", "Snapshots received from a leader and installed."
            ),
            Definition(
                "lmq_raft_apply_faults_total",
                "counter",
                "Committed commands that could not be carried out, on every node alike. It is a bug: please report it.",
            ),
            Definition(
                "lmq_raft_peer_connected",
                "gauge",
                "1 if this node can send to the member.",
                ("peer", "peer_name"),
                "with other members",
            ),
            Definition(
                "lmq_raft_peer_match_index",
                "gauge",
                "Highest log index that the member is known to have.",
                ("peer", "peer_name"),
                "on the leader, with other members",
            ),
            Definition(
                "lmq_raft_peer_round_trip_seconds",
                "histogram",
                "From a message to a member until its answer, the member's sync included, while this node led.",
                ("peer", "peer_name"),
                "once this node has led, with other members",
            ),
        ),
    ),
    Section(
        "The node",
        "Beside these there are the standard metrics of Prometheus' Python client: `process_*` and `python_*`.",
        (
            Definition("lmq_build_info", "info", "Version and settings; the value is 1.", ("version", "durability")),
            Definition("lmq_ready", "gauge", "1 if the node can serve, as /readyz says."),
            Definition(
                "lmq_memory_used_bytes",
                "gauge",
                "Memory that the messages and keys stored here take, as counted for the limit.",
            ),
            Definition(
                "lmq_memory_limit_bytes",
                "gauge",
                "The option memory_bytes_max: beyond it pushes are refused as overloaded.",
            ),
            Definition(
                "lmq_throttled_seconds_total",
                "counter",
                "Seconds in which nothing was applied, because messages filled memory faster than the disk took pages.",
            ),
            Definition(
                "lmq_page_wait_seconds_total",
                "counter",
                "Seconds in which nothing was applied, because the next operations needed pages that were not in memory.",
            ),
            Definition("lmq_paged_messages", "gauge", "Messages of long lines that stand in pages on the disk only."),
            Definition(
                "lmq_paged_body_bytes",
                "gauge",
                "Bodies that stand in pages on the disk only while their messages do not.",
            ),
            Definition("lmq_page_files_bytes", "gauge", "Size of the files of pages."),
            Definition("lmq_pages_written_total", "counter", "Pages written."),
            Definition("lmq_pages_read_total", "counter", "Pages read before they were needed."),
            Definition("lmq_pages_read_late_total", "counter", "Pages that had to be read when they were needed."),
            Definition("lmq_pages_fetched_total", "counter", "Pages that came from other nodes."),
            Definition(
                "lmq_disk_used_bytes",
                "gauge",
                "Snapshots and pages on the disk, as counted for the limit.",
            ),
            Definition(
                "lmq_disk_limit_bytes",
                "gauge",
                "The option disk_bytes_max, or what may be kept now if it is 0: beyond it pushes are refused as overloaded.",
            ),
            Definition("lmq_disk_free_bytes", "gauge", "Free bytes where the data directory is."),
            Definition("lmq_disk_size_bytes", "gauge", "Size of the file system where the data directory is."),
            Definition(
                "lmq_tls_certificate_expiry_seconds",
                "gauge",
                "When the certificate of the client ports expires, in seconds since 1970.",
                when="with TLS",
            ),
            Definition(
                "lmq_event_loop_lag_seconds",
                "histogram",
                "How late a timer fires that runs four times a second.",
            ),
            Definition(
                "lmq_event_loop_slices_total",
                "counter",
                "Slices of long work, such as a list of all queues: about a millisecond each, one a turn.",
            ),
            Definition(
                "lmq_log_lines_dropped_total",
                "counter",
                "Lines of the node's log that were not written, because their reader did not take them in time.",
            ),
            Definition(
                "lmq_events_written_total", "counter", "Events in the event journal.", when="with an event journal"
            ),
            Definition(
                "lmq_events_dropped_total", "counter", "Events that the journal has lost.", when="with an event journal"
            ),
            Definition(
                "lmq_event_journal_errors_total",
                "counter",
                "Attempts to write the event journal that failed.",
                when="with an event journal",
            ),
            Definition("lmq_statsd_datagrams_sent_total", "counter", "Datagrams sent to StatsD.", when="with StatsD"),
            Definition(
                "lmq_statsd_datagrams_dropped_total",
                "counter",
                "Datagrams for StatsD that could not be sent.",
                when="with StatsD",
            ),
        ),
    ),
)

QUEUE_SECTION: Final = Section(
    "One queue",
    "State of the cluster, but for `lmq_queue_waiters`: scrape one node, or take the median. The names differ from those of "
    "`/metrics` so that nothing is counted twice when one job scrapes both.",
    (
        Definition("lmq_queue_messages", "gauge", "Messages by state, as in lmq_messages.", ("queue", "state")),
        Definition("lmq_queue_messages_held", "gauge", "As lmq_messages_held.", ("queue",)),
        Definition("lmq_queue_groups_busy", "gauge", "As lmq_groups_busy.", ("queue",)),
        Definition("lmq_queue_message_bytes", "gauge", "Bytes of its bodies.", ("queue",)),
        Definition(
            "lmq_queue_oldest_message_age_seconds",
            "gauge",
            "For how long the oldest ready message has been ready; 0 if none is.",
            ("queue",),
        ),
        Definition("lmq_queue_suspended", "gauge", "1 if it hands out nothing until it is resumed.", ("queue",)),
        Definition("lmq_queue_pushes_waiting", "gauge", "Pushes that wait for room in it.", ("queue",)),
        Definition("lmq_queue_waiters", "gauge", "Pulls that wait for it by name at this node.", ("queue",)),
        *(
            Definition(f"lmq_queue_messages_{counter}", "counter", what, ("queue",))
            for counter, what in COUNTERS.items()
        ),
        Definition(
            "lmq_queue_metrics_omitted",
            "gauge",
            "Queues that were asked for and are not on the page because of its limit: name fewer of them, or raise it.",
        ),
    ),
)
"""The metrics of ``/metrics/queues``."""

STANDARD: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
"""What Prometheus' client shows of the process."""

BY_NAME: Final = {one.name: one for section in (*SECTIONS, QUEUE_SECTION) for one in section.metrics}


def markdown() -> str:
    """The tables as they stand in the documentation."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for section in SECTIONS:
        yield from _table(f"## {section.title}", section)
        yield ""
    yield from _table("## `/metrics/queues`", QUEUE_SECTION)


def _table(title: str, section: Section) -> Iterator[str]:
    yield title
    yield ""
    if section.note:
        yield section.note
        yield ""
    yield "| Metric | Kind | Meaning |"
    yield "|---|---|---|"
    for one in section.metrics:
        labels = f" {{{', '.join(one.labels)}}}" if one.labels else ""
        condition = f" Shown {one.when}." if one.when else ""
        yield f"| `{one.name}`{labels} | {one.kind} | {one.help}{condition} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
