"""All metrics of a node: name, kind, labels, meaning. The metrics pages, their documentation and its test follow this table.

``python -m lmqcluster.node.metrics.table`` prints the tables of ``docs/metrics.md``.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from ...core.queue.counters import COUNTERS

__all__ = ["BY_NAME", "QUEUE_SECTION", "SECTIONS", "STANDARD", "Definition", "Section", "markdown"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric.

    Attributes:
        name: the scraped name; for a histogram without ``_bucket``, ``_sum`` and ``_count``.
        labels: the label names, in order.
        when: the condition under which a node shows the metric; empty for always.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    when: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A group of metrics with a common note."""

    title: str
    note: str
    metrics: tuple[Definition, ...]


MARKDOWN_COLUMNS: Final = 100
_ONCE_PUSHED: Final = "after the first push"
_FRONT_ENDS: Final = "with `front_ends`"

SECTIONS: Final = (
    Section(
        "Queues",
        "State of the cluster. Every replica has the same values: take the median over the nodes, "
        "`quantile(0.5, ...)`, not the sum. Counters survive restarts, because a node counts again while"
        " it replays its log. They do not fall when a queue is deleted.",
        (
            Definition("lmq_queues", "gauge", "Existing queues."),
            Definition(
                "lmq_messages",
                "gauge",
                "Messages by state: ready to be pulled; delayed (not due, accumulating, or held); leased to a "
                "consumer.",
                ("state",),
            ),
            Definition(
                "lmq_messages_held",
                "gauge",
                "Delayed messages that are due but wait for an earlier message of their group.",
            ),
            Definition(
                "lmq_groups_busy",
                "gauge",
                "Groups with a ready or leased message, which holds their other messages.",
            ),
            Definition("lmq_message_bytes", "gauge", "Bytes of all bodies."),
            *(Definition(f"lmq_messages_{counter}", "counter", what) for counter, what in COUNTERS.items()),
            Definition(
                "lmq_oldest_message_age_seconds",
                "gauge",
                "Time for which the oldest ready message of any queue has been ready; 0 if there is none.",
            ),
            Definition(
                "lmq_time_in_queue_seconds",
                "histogram",
                "Time from ready to pulled, for the first message of each pull command that this node has "
                "applied since its start.",
            ),
            Definition(
                "lmq_queues_needing_attention",
                "gauge",
                "Queues that need attention, by reason: dead_letters (new ones), returns (many deliveries were returned or not "
                "answered) or waiting (messages have been ready for long). It changes every ten seconds; the options "
                "attention_* set the thresholds.",
                ("reason",),
            ),
            Definition("lmq_idempotency_keys", "gauge", "Remembered idempotency keys."),
            Definition("lmq_subscriptions", "gauge", "Subscriptions."),
            Definition("lmq_attempts", "gauge", "Remembered attempts of sends and receives over the SQS port."),
            Definition("lmq_sessions", "gauge", "Open sessions, including those of nodes."),
            Definition("lmq_locks", "gauge", "Locks that sessions hold."),
            Definition("lmq_schedules", "gauge", "Schedules."),
            Definition("lmq_schedules_pushed_total", "counter", "Messages that schedules have pushed."),
            Definition("lmq_schedules_missed_total", "counter", "Due times of schedules that were missed and dropped."),
            Definition(
                "lmq_schedules_refused_total", "counter", "Messages of schedules that the queue or the cluster refused."
            ),
            Definition("lmq_pushes_waiting", "gauge", "Pushes that wait for room in a full queue."),
            Definition("lmq_pushes_waiting_bytes", "gauge", "Approximate memory of the pushes that wait."),
        ),
    ),
    Section(
        "Requests",
        "Requests of clients to this node: take the sum over the nodes.",
        (
            Definition(
                "lmq_request_duration_seconds",
                "histogram",
                "HTTP requests from their head to the complete answer, including waiting pulls; operation is "
                "method and route, code the status. On the SQS port they are the action and the code of its error.",
                ("protocol", "operation", "code"),
                "after the first HTTP request",
            ),
            Definition("lmq_requests_in_flight", "gauge", "HTTP requests without a complete answer.", ("protocol",)),
            Definition(
                "lmq_operation_duration_seconds",
                "histogram",
                "Operations of all protocols from acceptance to application. Operations replicated in one "
                "command count with the time of the first.",
                ("operation",),
                _ONCE_PUSHED,
            ),
            Definition("lmq_operations_total", "counter", "Proposed operations."),
            Definition("lmq_empty_pulls_total", "counter", "Pulls that returned no message."),
            Definition("lmq_waiters", "gauge", "Pulls that wait for a message."),
            Definition("lmq_connections", "gauge", "Open connections of clients.", ("protocol",)),
            Definition("lmq_front_ends", "gauge", "Running front-end processes.", (), _FRONT_ENDS),
            Definition(
                "lmq_front_end_failures_total",
                "counter",
                "Front-end processes that have ended by themselves; the connections of each were closed.",
                (),
                _FRONT_ENDS,
            ),
            Definition(
                "lmq_unauthenticated_connections",
                "gauge",
                "Accepted connections that have not authenticated yet, including those in their TLS handshake.",
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
                "Memory of unfinished requests, decoded values and unread answers: of authenticated clients and of "
                "unauthenticated ones.",
                ("of",),
            ),
        ),
    ),
    Section(
        "Raft",
        "",
        (
            Definition("lmq_raft_members", "gauge", "Members of the cluster."),
            Definition("lmq_raft_has_leader", "gauge", "1 if a leader is known and reachable."),
            Definition("lmq_raft_is_leader", "gauge", "1 if this node is the leader."),
            Definition("lmq_raft_leader_changes_total", "counter", "Changes of leader, as seen by this node."),
            Definition("lmq_raft_term", "gauge", "Current term."),
            Definition("lmq_raft_commit_index", "gauge", "Highest log index known to be committed."),
            Definition("lmq_raft_applied_index", "gauge", "Highest log index applied here."),
            Definition("lmq_raft_snapshot_index", "gauge", "Log index of the newest snapshot; 0 without one."),
            Definition("lmq_raft_log_entries", "gauge", "Entries in the log."),
            Definition("lmq_raft_log_bytes", "gauge", "Bytes of the entries in the log."),
            Definition("lmq_batches_total", "counter", "Batches of operations that this node proposed."),
            Definition(
                "lmq_batches_resent_total",
                "counter",
                "Batches that this node sent again, for example after a change of leader.",
            ),
            Definition(
                "lmq_raft_proposals_committed_total",
                "counter",
                "Committed batches of any node that were applied here.",
            ),
            Definition(
                "lmq_raft_proposals_pending", "gauge", "Commands and batches of this node that are not applied."
            ),
            Definition(
                "lmq_raft_proposals_failed_total",
                "counter",
                "Accepted operations that failed, by error code; those with unknown_outcome may have been applied.",
                ("reason",),
            ),
            Definition(
                "lmq_raft_commit_duration_seconds",
                "histogram",
                "Time from the creation of a batch of this node to its application here.",
            ),
            Definition(
                "lmq_raft_journal_sync_duration_seconds",
                "histogram",
                "Writes of the log to disk, including the sync. Empty unless durability is disk.",
            ),
            Definition("lmq_raft_log_syncs_total", "counter", "Syncs of the log to disk."),
            Definition(
                "lmq_raft_snapshot_duration_seconds", "histogram", "Snapshots, from the decision to the durable file."
            ),
            Definition("lmq_raft_snapshots_taken_total", "counter", "Snapshots written."),
            Definition("lmq_raft_snapshots_failed_total", "counter", "Snapshots that failed."),
            Definition(
                "lmq_raft_snapshots_installed_total", "counter", "Snapshots received from a leader and installed."
            ),
            Definition(
                "lmq_raft_apply_faults_total",
                "counter",
                "Committed commands that failed to apply, on every node alike. This is a bug: please report it.",
            ),
            Definition(
                "lmq_raft_peer_connected",
                "gauge",
                "1 if this node can send to the member.",
                ("peer", "peer_name"),
                "if there are other members",
            ),
            Definition(
                "lmq_raft_peer_match_index",
                "gauge",
                "Highest log index that the member is known to have.",
                ("peer", "peer_name"),
                "on a leader with other members",
            ),
            Definition(
                "lmq_raft_peer_round_trip_seconds",
                "histogram",
                "Time from a message to a member until its answer, including the member's sync, while this node led.",
                ("peer", "peer_name"),
                "after this node has led, if there are other members",
            ),
        ),
    ),
    Section(
        "The node",
        "In addition a node has the standard metrics of Prometheus' Python client: `process_*` and `python_*`.",
        (
            Definition("lmq_build_info", "info", "Version and settings; the value is 1.", ("version", "durability")),
            Definition("lmq_ready", "gauge", "1 if the node can serve, as /readyz reports."),
            Definition(
                "lmq_memory_used_bytes",
                "gauge",
                "Memory of the messages and keys stored here, as counted for the limit.",
            ),
            Definition(
                "lmq_memory_limit_bytes",
                "gauge",
                "The option memory_bytes_max; at the limit the node refuses pushes as overloaded.",
            ),
            Definition(
                "lmq_attempts_forgotten_total",
                "counter",
                "Attempts of sends and receives that made room for newer ones before their time.",
            ),
            Definition(
                "lmq_throttled_seconds_total",
                "counter",
                "Seconds without progress because messages filled memory faster than the disk accepted pages.",
            ),
            Definition(
                "lmq_page_wait_seconds_total",
                "counter",
                "Seconds without progress because the next operations needed pages that were not in memory.",
            ),
            Definition("lmq_paged_messages", "gauge", "Messages that are paged out."),
            Definition(
                "lmq_paged_body_bytes",
                "gauge",
                "Bytes of paged-out bodies whose messages are in memory.",
            ),
            Definition("lmq_page_files_bytes", "gauge", "Size of the page files."),
            Definition("lmq_pages_written_total", "counter", "Pages written."),
            Definition("lmq_pages_read_total", "counter", "Pages prefetched from disk."),
            Definition(
                "lmq_pages_read_late_total",
                "counter",
                "Pages read from disk on demand, because they were not prefetched.",
            ),
            Definition("lmq_pages_fetched_total", "counter", "Pages received from other nodes."),
            Definition(
                "lmq_disk_used_bytes",
                "gauge",
                "Snapshots and pages on the disk, as counted for the limit.",
            ),
            Definition(
                "lmq_disk_limit_bytes",
                "gauge",
                "The option disk_bytes_max, or the space available now if that is 0; at the limit the node "
                "refuses pushes as overloaded.",
            ),
            Definition("lmq_disk_free_bytes", "gauge", "Free bytes in the file system of the data directory."),
            Definition("lmq_disk_size_bytes", "gauge", "Size of the file system of the data directory."),
            Definition(
                "lmq_tls_certificate_expiry_seconds",
                "gauge",
                "Time at which the certificate of the client ports expires, in seconds since 1970.",
                when="with TLS",
            ),
            Definition(
                "lmq_credentials_outdated",
                "gauge",
                "1 after a change of certificates or of the administrator's token that the node could not load: it keeps the "
                "old ones, and its log has the reason; 0 once it has loaded them.",
            ),
            Definition(
                "lmq_event_loop_lag_seconds",
                "histogram",
                "Delay of a timer that fires four times a second.",
            ),
            Definition(
                "lmq_event_loop_slices_total",
                "counter",
                "Slices of long work, such as a list of all queues. A slice takes about a millisecond; the event"
                " loop runs one per turn.",
            ),
            Definition(
                "lmq_log_lines_dropped_total",
                "counter",
                "Log lines that the node dropped because their reader was too slow.",
            ),
            Definition(
                "lmq_events_written_total", "counter", "Events in the event journal.", when="with an event journal"
            ),
            Definition(
                "lmq_events_dropped_total",
                "counter",
                "Events that the event journal lost.",
                when="with an event journal",
            ),
            Definition(
                "lmq_event_journal_errors_total",
                "counter",
                "Failed attempts to write the event journal.",
                when="with an event journal",
            ),
            Definition("lmq_statsd_datagrams_sent_total", "counter", "Datagrams sent to StatsD.", when="with StatsD"),
            Definition(
                "lmq_statsd_datagrams_dropped_total",
                "counter",
                "Datagrams for StatsD that could not be sent.",
                when="with StatsD",
            ),
            Definition(
                "lmq_trace_spans_exported_total",
                "counter",
                "Spans that the collector has accepted.",
                when="with traces",
            ),
            Definition(
                "lmq_trace_spans_dropped_total",
                "counter",
                "Spans that were dropped, because too many waited or because the collector did not accept them.",
                when="with traces",
            ),
        ),
    ),
)

QUEUE_SECTION: Final = Section(
    "One queue",
    "State of the cluster, except `lmq_queue_waiters`: scrape one node, or take the median. The "
    "names differ from those of `/metrics`, so that a job that scrapes both pages counts nothing "
    "twice.",
    (
        Definition("lmq_queue_messages", "gauge", "Messages by state, as for lmq_messages.", ("queue", "state")),
        Definition("lmq_queue_messages_held", "gauge", "As for lmq_messages_held.", ("queue",)),
        Definition("lmq_queue_groups_busy", "gauge", "As for lmq_groups_busy.", ("queue",)),
        Definition(
            "lmq_queue_messages_held_back",
            "gauge",
            "Ready messages that a limit of deliveries holds back, by the name of its property. Only where one does.",
            ("queue", "limit"),
        ),
        Definition("lmq_queue_message_bytes", "gauge", "Bytes of its bodies.", ("queue",)),
        Definition(
            "lmq_queue_oldest_message_age_seconds",
            "gauge",
            "Time for which its oldest ready message has been ready; 0 if there is none.",
            ("queue",),
        ),
        Definition("lmq_queue_suspended", "gauge", "1 if the queue is suspended.", ("queue",)),
        Definition("lmq_queue_pushes_waiting", "gauge", "Pushes that wait for room in it.", ("queue",)),
        Definition("lmq_queue_waiters", "gauge", "Pulls that wait for it by name at this node.", ("queue",)),
        *(
            Definition(f"lmq_queue_messages_{counter}", "counter", what, ("queue",))
            for counter, what in COUNTERS.items()
        ),
        Definition(
            "lmq_queue_metrics_omitted",
            "gauge",
            "Selected queues that are missing on the page because of its limit: select fewer, or raise the limit.",
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
"""Metrics of the process from Prometheus' client."""

BY_NAME: Final = {one.name: one for section in (*SECTIONS, QUEUE_SECTION) for one in section.metrics}


def markdown() -> str:
    """Return the tables of the documentation."""
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
        yield from textwrap.wrap(section.note, MARKDOWN_COLUMNS, break_on_hyphens=False)
        yield ""
    yield "| Metric | Kind | Meaning |"
    yield "|---|---|---|"
    for one in section.metrics:
        labels = f" {{{', '.join(one.labels)}}}" if one.labels else ""
        condition = f" Shown {one.when}." if one.when else ""
        yield f"| `{one.name}`{labels} | {one.kind} | {one.help}{condition} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
