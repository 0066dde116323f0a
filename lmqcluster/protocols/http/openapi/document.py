"""The OpenAPI 3.1 document of the HTTP interface. Tests validate every real answer of ``/v1`` against it."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any, Final

from ....node.metrics.queues_page import QUEUES_DEFAULT, QUEUES_MAX
from ....wire.errors import ERRORS, Outcome
from .lmq import LMQ_PATHS, LMQ_SCHEMAS
from .overview import OVERVIEW_SCHEMAS
from .parts import NAME, PAGE, PROBLEM, Json, operation, query
from .queues import job_paths, queue_paths, subscription_paths
from .schedules import SCHEDULE_SCHEMAS, schedule_paths
from .schemas import SCHEMAS
from .sessions import SESSION_SCHEMAS, session_paths
from .tokens import SECURITY_SCHEMES, TOKEN_PATHS, TOKEN_SCHEMAS

__all__ = ["build", "document"]

_EXPOSITION: Final = "Text exposition format 0.0.4"
_FORMATS: Final = {"integer": "int64", "number": "double"}
_REFUSED: Final[Json] = {"description": "The request was refused or failed", "content": PROBLEM}


def document() -> bytes:
    """Return the document as served."""
    return json.dumps(build(), separators=(",", ":")).encode()


def build() -> Json:
    """Return the document as an object."""
    described: Json = _formatted(_document())
    return described


def _formatted(value: Any) -> Any:
    """Add the formats of numbers: generators take a number without one for 32 bits."""
    if isinstance(value, list):
        return [_formatted(item) for item in value]
    if not isinstance(value, dict):
        return value
    types = value.get("type")
    names = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    formats = [_FORMATS[name] for name in names if name in _FORMATS]
    described = {key: _formatted(item) for key, item in value.items()}
    return {"format": formats[0], **described} if formats else described


def _document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lmqcluster",
            "version": importlib.metadata.version("lmqcluster"),
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": (
                "A replicated message queue. The routes under /v1 take and give JSON or MessagePack (Content-Type, Accept); "
                "LMQ's routes take and give bodies unchanged and answer errors with a status and an empty body; the header "
                "x-lmq-error has the reason. Counts of queues are those of the node's replica, which is first brought up to "
                "date if there is a quorum."
            ),
        },
        "security": [{"token": []}],
        "servers": [
            {
                "url": "http://{address}",
                "description": "Any node. With a certificate it serves https only.",
                "variables": {"address": {"default": "127.0.0.1:9980"}},
            }
        ],
        "paths": {path: _tagged(path, item) for path, item in _paths().items()},
        "components": {
            "schemas": SCHEMAS
            | SESSION_SCHEMAS
            | SCHEDULE_SCHEMAS
            | OVERVIEW_SCHEMAS
            | TOKEN_SCHEMAS
            | LMQ_SCHEMAS
            | {"Problem": _problem()},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _paths() -> Json:
    return {
        **queue_paths(),
        **subscription_paths(),
        **job_paths(),
        **session_paths(),
        **schedule_paths(),
        **_cluster_paths(),
        **TOKEN_PATHS,
        **_overview_paths(),
        **_health_paths(),
        **LMQ_PATHS,
    }


def _tagged(path: str, item: Json) -> Json:
    """Return a path whose operations have a tag: generators write one class for each."""
    first, _slash, rest = path.removeprefix("/").partition("/")
    tag = rest.partition("/")[0] if first == "v1" else "node"
    return {key: value if key == "parameters" else {"tags": [tag], **value} for key, value in item.items()}


def _problem() -> Json:
    codes = [*ERRORS, "route_not_found", "method_not_allowed", "unsupported_media_type", "not_implemented"]
    return {
        "type": "object",
        "description": "RFC 9457. `retryable`: the same request may be sent again. `outcome`: whether it took effect.",
        "required": ["type", "title", "status", "detail", "code", "retryable", "outcome"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"type": "string", "enum": codes},
            "retryable": {"type": "boolean"},
            "outcome": {"type": "string", "enum": [outcome.value for outcome in Outcome]},
        },
    }


def _path_number(name: str, description: str) -> Json:
    schema = {"type": "integer", "minimum": 0}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _octets(name: str, summary: str) -> Json:
    described = operation(name, summary, None, not_found=True)
    del described["responses"]["204"]
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    described["responses"]["200"] = {"description": "As it is in the file.", "content": content}
    return described


def _cluster_paths() -> Json:
    return {
        "/v1/cluster": {"get": operation("getCluster", "The cluster as this node sees it", "Cluster")},
        "/v1/cluster/join": {
            "post": operation(
                "joinCluster",
                "Make this node a member of its peer's cluster, once it has that one's data",
                "Cluster",
                body="Join",
            )
        },
        "/v1/cluster/remove": {
            "post": operation("removeMember", "Take another member out of the cluster", "Cluster", body="Remove")
        },
        "/v1/cluster/transfer": {
            "post": operation(
                "transferLeadership", "Have the leader hand over to another member", "Cluster", body="Transfer"
            )
        },
        "/v1/cluster/check": {
            "get": operation("checkCluster", "Whether the cluster is well and this node may be stopped", "CheckUp")
        },
        "/v1/snapshots": {
            "post": operation(
                "takeSnapshot", "Write a snapshot of this node's state now", "Snapshot", body="TakeSnapshot"
            )
        },
        "/v1/snapshots/{index}/blocks/{number}": {
            "parameters": [
                _path_number("index", "Log entry of the snapshot."),
                _path_number("number", "Block, from 0."),
            ],
            "get": _octets("getSnapshotBlock", "A block of a snapshot that was taken in the last ten minutes"),
        },
        "/v1/log-level": {
            "get": operation("getLogLevel", "Least severe level that this node logs", "LogLevel"),
            "put": operation("setLogLevel", "Change it until the node is stopped", "LogLevel", body="LogLevel"),
        },
        "/v1/cluster/leave": {
            "post": operation("leaveCluster", "Take this node out of its cluster; it then serves no clients", "Cluster")
        },
    }


def _overview_paths() -> Json:
    history = _flag("history", "Add the sums of the last hour, ten seconds apart.")
    of_queue = query("queue", "Only messages of this queue.", {"type": "string"})
    all_nodes = "List the clients of all nodes, not only of this one. `offset` and `limit` apply to each node."
    clients = [query("all_nodes", all_nodes, {"type": "string"}), *PAGE]
    close = "Close the connections from an address at one node"
    consumers = "The number of consumers of a queue at each node"
    summary = "Sums over all queues, the members and their figures, as this node knows them"
    hour = "The last hour of one of the busiest queues, in samples"
    stats = "Rates of a queue, and how long the messages delivered in the last minute had waited"
    return {
        "/v1/overview": {"get": operation("getOverview", summary, "Overview", parameters=[history])},
        "/v1/queues/{name}/stats": {
            "parameters": [NAME],
            "get": operation("getQueueStats", stats, "QueueStats", not_found=True),
        },
        "/v1/connections": {
            "get": operation("getConnections", "Connections of clients", "Connections", parameters=clients)
        },
        "/v1/connections/close": {"post": operation("closeConnections", close, "Closed", body="CloseConnections")},
        "/v1/consumers": {"get": operation("getConsumers", "What pulls wait for", "Consumers", parameters=clients)},
        "/v1/leases": {"get": operation("getLeases", "Who holds messages", "Leases", parameters=[of_queue, *clients])},
        "/v1/queues/{name}/consumers": {
            "parameters": [NAME],
            "get": operation("getQueueConsumers", consumers, "QueueConsumers", not_found=True),
        },
        "/v1/queues/{name}/history": {
            "parameters": [NAME],
            "get": operation("getQueueHistory", hour, "QueueHistory", not_found=True),
        },
    }


def _flag(name: str, description: str) -> Json:
    """Return a query parameter that needs no value."""
    return {**query(name, description, {"type": "string"}), "allowEmptyValue": True}


def _open(path: Json) -> Json:
    """Return the path of a route that needs no token."""
    described = {**path["get"], "security": []}
    del described["responses"]["default"]
    return {"get": described}


def _text_route(name: str, summary: str, statuses: dict[str, str], parameters: list[Json] | None = None) -> Json:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    described: Json = {
        "operationId": name,
        "summary": summary,
        "responses": {
            **{status: {"description": meaning, **text} for status, meaning in statuses.items()},
            "default": _REFUSED,
        },
    }
    if parameters:
        described["parameters"] = parameters
    return {"get": described}


def _queue_metrics_parameters() -> list[Json]:
    return [
        query("name", "A regular expression; only queues whose names it finds are shown.", {"type": "string"}),
        query(
            "limit",
            "Most queues on the page; lmq_queue_metrics_omitted says how many are left out.",
            {"type": "integer", "minimum": 1, "maximum": QUEUES_MAX, "default": QUEUES_DEFAULT},
        ),
    ]


def _kestrel_route(name: str, summary: str, media_type: str, schema: Json) -> Json:
    parameters = [
        query(
            "period",
            "Counters as differences over the last full period of so many seconds.",
            {"type": "integer", "minimum": 60},
        ),
        query("namespace", "Counters as differences since the last request with this name.", {"type": "string"}),
    ]
    answer = {"description": "Counters, gauges and labels", "content": {media_type: {"schema": schema}}}
    return {
        "get": {
            "operationId": name,
            "summary": summary,
            "parameters": parameters,
            "responses": {"200": answer, "default": _REFUSED},
        }
    }


def _health_paths() -> Json:
    flags = [
        _flag("verbose", "Show every check."),
        query("exclude", "Checks to leave out, separated by commas.", {"type": "string"}),
    ]
    described = {
        "get": {
            "operationId": "openapi",
            "summary": "This document",
            "responses": {
                "200": {
                    "description": "OpenAPI 3.1",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                },
                "default": _REFUSED,
            },
        }
    }
    return {
        "/livez": _open(
            _text_route("livez", "Whether the process works; never depends on a quorum", {"200": "It does"})
        ),
        "/readyz": _open(
            _text_route(
                "readyz",
                "Whether the node can serve",
                {"200": "All checks passed", "503": "Some check failed; the body shows which"},
                flags,
            )
        ),
        "/metrics": _text_route("metrics", "Figures for Prometheus", {"200": _EXPOSITION}),
        "/metrics/queues": _text_route(
            "queueMetrics", "Figures of single queues for Prometheus", {"200": _EXPOSITION}, _queue_metrics_parameters()
        ),
        "/stats.json": _kestrel_route("kestrelStats", "Kestrel's statistics", "application/json", {"type": "object"}),
        "/stats.txt": _kestrel_route(
            "kestrelStatsText", "Kestrel's statistics, as text", "text/plain", {"type": "string"}
        ),
        "/openapi.json": described,
    }
