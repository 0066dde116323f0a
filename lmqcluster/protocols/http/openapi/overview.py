"""Schemas of ``/v1/overview`` and of a queue's statistics."""

from __future__ import annotations

from typing import Any, Final

from ....core.queue.counters import COUNTERS
from ....node.metrics.attention import LISTED_MAX, Reason
from ....node.metrics.history import HISTORY_FIELDS, QUEUES_MAX, SAMPLES_MAX
from .parts import NAME_VALUE
from .schemas import SCHEMAS

__all__ = ["OVERVIEW_SCHEMAS"]

Json = dict[str, Any]

_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Json] = {"type": "number"}
_SECONDS: Final[Json] = {"type": ["number", "null"], "minimum": 0}


def _object(properties: Json, *, optional: tuple[str, ...] = (), **more: Any) -> Json:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties, **more}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> Json:
    return {"type": "array", "items": _ref(name)}


def _extended(schema: Json, properties: Json) -> Json:
    """Return the schema of an object with more required properties, or other ones."""
    required = dict.fromkeys((*schema["required"], *properties))
    return {**schema, "required": list(required), "properties": {**schema["properties"], **properties}}


_NODE: Final[Json] = {"type": "string", "description": "Name of the node; only in lists of all nodes."}
_UNREACHABLE: Final[Json] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Names of the nodes that did not answer, so that their clients are missing.",
}
_SUMS: Final = _object(
    {
        "at_s": {**_NUMBER, "description": "When they were counted, in seconds since the node was started."},
        **dict.fromkeys(("queues", "ready", "delayed", "leased", "bytes", *COUNTERS), _COUNT),
    },
    description="Sums over all queues of this node's replica. Counters include deleted queues and never fall.",
)
_VITALS: Final = _object(
    {
        "version": {"type": "string"},
        "uptime_s": _NUMBER,
        "term": _COUNT,
        "commit_index": _COUNT,
        "applied_index": _COUNT,
        "stored_bytes": {**_COUNT, "description": "Memory that the messages take, as counted against the limit."},
        "stored_bytes_max": _COUNT,
        "process_bytes": {"type": ["integer", "null"], "description": "Memory of the process, where it is known."},
        "processor_s": {**_NUMBER, "description": "Processor time that the process has used since its start."},
        "connections": {**_COUNT, "description": "Connections of clients, on all ports."},
        "disk_free_bytes": _COUNT,
        "disk_total_bytes": _COUNT,
        "kept_bytes": {**_COUNT, "description": "Snapshots and pages on the disk, as counted against the limit."},
        "kept_bytes_max": {**_COUNT, "description": "`disk_bytes_max`, or what may be kept now where that is 0."},
        "log_bytes": {**_COUNT, "description": "Log entries that no snapshot replaces yet."},
        "snapshot_index": _COUNT,
        "waiting_pulls": _COUNT,
        "match": {
            "type": "object",
            "additionalProperties": _COUNT,
            "description": "The leader's: last log entry known to be on each member.",
        },
    },
    description="How a member is, in its own words.",
)
_CONTACT: Final[Json] = {
    "last_contact_s": {**_SECONDS, "description": "Since it last answered this node; null if it has not yet."},
    "round_trip_s": {**_SECONDS, "description": "How long that answer took, connecting included."},
    "lag": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "Committed log entries that it had not applied when it last answered.",
    },
    "vitals": {"anyOf": [_ref("Vitals"), {"type": "null"}]},
}
_SAMPLE: Final = _object(
    {
        "at_s": {**_NUMBER, "description": "When it was taken, in seconds since the node was started."},
        **dict.fromkeys(HISTORY_FIELDS, _COUNT),
    },
    additionalProperties=False,
)
_RATES: Final = _object(
    {
        "count": _COUNT,
        **dict.fromkeys(("one", "five", "fifteen", "day", "mean"), _NUMBER),
    },
    description="A total, and its rate a second over the last 1, 5 and 15 minutes and the last day.",
)
_RETENTION: Final = _object(
    {
        **dict.fromkeys(("min", "max", "median", "arithmetic_mean"), _NUMBER),
        "percentile": {"type": "object", "additionalProperties": _NUMBER},
        "n": {
            **_COUNT,
            "description": "Pulls looked at, each by its first message; everything is 0 for fewer than five.",
        },
    },
    description="Seconds from when a message could have been delivered until it was, over the last minute.",
)

OVERVIEW_SCHEMAS: Final[dict[str, Json]] = {
    "AttentionRow": _object(
        {
            "queue": NAME_VALUE,
            "reason": {"type": "string", "enum": [str(reason) for reason in Reason]},
            "count": {**_COUNT, "description": "Dead letters, returned deliveries or ready messages."},
            "oldest_age_s": {**_SECONDS, "description": "For the reason waiting; else null."},
            "detail": {"type": "string", "description": "A sentence for people."},
        },
        additionalProperties=False,
    ),
    "AttentionTotals": _object(
        {str(reason): _COUNT for reason in Reason},
        description="Queues for each reason, listed or not.",
        additionalProperties=False,
    ),
    "Attention": _object(
        {
            "queues": {
                **_list("AttentionRow"),
                "maxItems": LISTED_MAX,
                "description": "For each reason, the worst first.",
            },
            "totals": _ref("AttentionTotals"),
            "window_s": {**_NUMBER, "description": "Seconds that the counts of dead letters and returns cover."},
            "age_s": {**_SECONDS, "description": "Since the node looked at its queues; null if it has not yet."},
        },
        description="Queues that need attention, as far as the client may see them.",
        additionalProperties=False,
    ),
    "Totals": _SUMS,
    "Vitals": _VITALS,
    "Sample": _SAMPLE,
    "Rates": _RATES,
    "Retention": _RETENTION,
    "OverviewNode": _extended(SCHEMAS["Node"], _CONTACT),
    "OverviewCluster": _extended(SCHEMAS["Cluster"], {"nodes": _list("OverviewNode")}),
    "Overview": _object(
        {
            "cluster": _ref("OverviewCluster"),
            "totals": _ref("Totals"),
            "checks": _list("Check"),
            "attention": _ref("Attention"),
            "history": _list("Totals"),
        },
        optional=("history",),
        additionalProperties=False,
    ),
    "Connection": _object(
        {
            "node": _NODE,
            "port": {"type": "string", "description": "The name of the port, such as http or msgpack_rpc."},
            "address": {"type": "string"},
            "user": {"type": "string", "description": "The token; empty while none has been shown."},
            "age_s": _NUMBER,
            "held_bytes": _COUNT,
        },
        optional=("node",),
        additionalProperties=False,
    ),
    "Connections": _object(
        {
            "connections": _list("Connection"),
            "total": _COUNT,
            "unreachable": _UNREACHABLE,
        },
        optional=("unreachable",),
        additionalProperties=False,
    ),
    "CloseConnections": _object(
        {
            "node": {"type": "string", "description": "Name or id of the node; missing: the node that answers."},
            "address": {"type": "string", "description": "Host and port of the client, as in the list of connections."},
        },
        optional=("node",),
        additionalProperties=False,
    ),
    "Closed": _object({"closed": {**_COUNT, "description": "Number of closed connections."}}),
    "Consumer": _object(
        {"node": _NODE, **dict.fromkeys(("queue", "pattern"), NAME_VALUE), "pulls": _COUNT, "messages": _COUNT},
        optional=("node", "queue", "pattern"),
        additionalProperties=False,
    ),
    "Consumers": _object(
        {
            "consumers": _list("Consumer"),
            "total": _COUNT,
            "unreachable": _UNREACHABLE,
        },
        optional=("unreachable",),
        additionalProperties=False,
    ),
    "LeaseHolder": _object(
        {
            "node": _NODE,
            "queue": NAME_VALUE,
            "port": {"type": "string"},
            "address": {"type": "string"},
            "user": {"type": "string"},
            "connected": {"type": "boolean", "description": "Whether the connection is still open."},
            "leased": _COUNT,
            "ends_in_s": {
                "type": ["number", "null"],
                "description": "When the first of the leases ends; null if they end with a session.",
            },
        },
        optional=("node",),
        additionalProperties=False,
    ),
    "Leases": _object(
        {
            "leases": _list("LeaseHolder"),
            "total": _COUNT,
            "complete": {"type": "boolean", "description": "Whether the nodes that answer know all their leases."},
            "unreachable": _UNREACHABLE,
        },
        optional=("unreachable",),
        additionalProperties=False,
    ),
    "NodeConsumers": _object({"node": _NODE, "waiting_pulls": _COUNT, "consumers": _COUNT}),
    "QueueConsumers": _object(
        {
            "consumers": {**_COUNT, "description": "Open connections that wait for its messages or hold some."},
            "waiting_pulls": _COUNT,
            "nodes": _list("NodeConsumers"),
            "unreachable": _UNREACHABLE,
        },
        additionalProperties=False,
    ),
    "QueueHistory": _object(
        {
            "kept": {
                "type": "boolean",
                "description": f"Whether the queue is one of the {QUEUES_MAX} busiest of the last five minutes at this node.",
            },
            "period_s": {**_NUMBER, "description": "Seconds between two samples."},
            "uptime_s": {**_NUMBER, "description": "Now, on the clock of at_s."},
            "history": {"type": "array", "maxItems": SAMPLES_MAX, "items": _ref("Sample")},
        },
        additionalProperties=False,
    ),
    "QueueStats": _object({"push": _ref("Rates"), "pull": _ref("Rates"), "retention": _ref("Retention")}),
}
