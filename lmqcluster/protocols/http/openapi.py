"""The OpenAPI 3.1 document of the HTTP interface. Tests validate every real answer of ``/v1`` against it."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

from ...node.metrics_queues import QUEUES_DEFAULT, QUEUES_MAX
from ...node.queue_list import SORT_KEYS
from ...wire.errors import ERRORS, Outcome
from ...wire.limits import PULL_COUNT_MAX, PUSH_COUNT_MAX
from .openapi_lmq import LMQ_PATHS
from .openapi_overview import OVERVIEW_SCHEMAS
from .openapi_schemas import SCHEMAS
from .openapi_tokens import SECURITY_SCHEMES, TOKEN_PATHS, TOKEN_SCHEMAS
from .v1_rendering import QUEUE_FIELDS

__all__ = ["build", "document"]

_MEDIA = ("application/json", "application/x-msgpack")
_SUMMARY_SUCCESS = "Done"
_EXPOSITION = "Text exposition format 0.0.4"

Json = dict[str, Any]


def document() -> bytes:
    """The document as served."""
    return json.dumps(build(), separators=(",", ":")).encode()


def build() -> Json:
    """The document as an object."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lmqcluster",
            "version": importlib.metadata.version("lmqcluster"),
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": (
                "A replicated message queue. The routes under /v1 take and give JSON or MessagePack (Content-Type, Accept); "
                "the routes of LMQ are kept byte for byte and answer errors with a status and an empty body; the reason "
                "stands in the header x-lmq-error. Counts of queues are those of the node's replica, brought up to date first "
                "as long as there is a quorum to ask."
            ),
        },
        "security": [{"token": []}],
        "paths": {
            **_queue_paths(),
            **_subscription_paths(),
            **_cluster_paths(),
            **TOKEN_PATHS,
            **_overview_paths(),
            **_health_paths(),
            **LMQ_PATHS,
        },
        "components": {
            "schemas": SCHEMAS | OVERVIEW_SCHEMAS | TOKEN_SCHEMAS | {"Problem": _problem()},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


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
            "code": {"enum": codes},
            "retryable": {"type": "boolean"},
            "outcome": {"enum": [outcome.value for outcome in Outcome]},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: str) -> Json:
    return {media: {"schema": _ref(schema)} for media in _MEDIA}


def _answers(schema: str | None, *, not_found: bool = False) -> Json:
    done: Json = {"description": _SUMMARY_SUCCESS}
    if schema is not None:
        done["content"] = _content(schema)
    problem = {"content": {"application/problem+json": {"schema": _ref("Problem")}}}
    answers: Json = {
        "200" if schema else "204": done,
        "503": {
            "description": "No quorum, or the node is at a limit. Try again after the time in Retry-After.",
            "headers": {"retry-after": {"schema": {"type": "string"}}},
            **problem,
        },
        "default": {"description": "The request was refused or failed", **problem},
    }
    if not_found:
        answers["404"] = {"description": "There is no such queue", **problem}
    return answers


def _operation(
    name: str,
    summary: str,
    answer: str | None,
    *,
    body: str | None = None,
    parameters: list[Json] | None = None,
    not_found: bool = False,
    body_required: bool = True,
) -> Json:
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "responses": _answers(answer, not_found=not_found),
    }
    if body is not None:
        operation["requestBody"] = {"required": body_required, "content": _content(body)}
    if parameters:
        operation["parameters"] = parameters
    return operation


_NAME: Json = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Queue name: 1 to 255 bytes, percent-encoded; + means a space, %2F a slash within the name.",
    "schema": {"type": "string", "minLength": 1},
}
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Makes a retry of this push safe for at least 5 minutes: what is stored already is not stored again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def _query(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _list_parameters() -> list[Json]:
    sort_text = "What to sort by; equal queues stand in the order of their names."
    fields_text = f"Comma-separated fields to show beside the name: {', '.join(QUEUE_FIELDS)}."
    after_text = "Go on behind this name: the answer's `next`. Only where the list is sorted by name."
    return [
        _query("limit", "Most queues in one answer.", {"type": "integer", "minimum": 1, "maximum": 10_000}),
        _query("after", after_text, {"type": "string"}),
        _query("offset", "How many queues to leave out.", {"type": "integer", "minimum": 0, "default": 0}),
        _query("name", "Only queues with this in their names, in upper or lower case.", {"type": "string"}),
        _query("pattern", "Only queues in whose names this regular expression is found.", {"type": "string"}),
        _query("sort", sort_text, {"enum": list(SORT_KEYS), "default": "name"}),
        _query("order", "By default `asc` for names, `desc` for anything else.", {"enum": ["asc", "desc"]}),
        _query("fields", fields_text, {"type": "string"}),
    ]


def _peek_parameters() -> list[Json]:
    bytes_text = "Most bytes of each body to show. An answer also ends with the message that brings it above 8 MiB."
    return [
        _query("limit", "Most messages.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}),
        _query("after", "Go on behind this sequence: the answer's `next`.", {"type": "integer", "minimum": 0}),
        _query("bytes", bytes_text, {"type": "integer", "minimum": 0, "maximum": 1024 * 1024, "default": 64 * 1024}),
    ]


def _queue_paths() -> Json:
    queue = "/v1/queues/{name}"
    push_text = f"Push up to {PUSH_COUNT_MAX} messages: all are stored, or none"
    peek_text = "Look at messages in order of their sequence, leased ones among them, without taking any"
    pull_text = f"Pull up to {PULL_COUNT_MAX} messages as soon as there is one, waiting up to `timeout` seconds for it"
    return {
        "/v1/queues": {
            "get": _operation("listQueues", "Queues that match, sorted", "Queues", parameters=_list_parameters())
        },
        queue: {
            "parameters": [_NAME],
            "get": _operation("getQueue", "Counts and properties of a queue", "QueueDetail", not_found=True),
            "delete": _operation("deleteQueue", "Delete a queue and its messages", None, not_found=True),
        },
        f"{queue}/properties": {
            "parameters": [_NAME],
            "get": _operation("getProperties", "Effective properties; the queue need not exist", "Properties"),
            "patch": _operation("setProperties", "Set some properties, keep the others", None, body="Properties"),
            "delete": _operation("clearProperties", "Remove the queue's own properties", None),
        },
        f"{queue}/messages": {
            "parameters": [_NAME],
            "get": _operation("peek", peek_text, "PeekedMessages", parameters=_peek_parameters(), not_found=True),
            "post": _operation("push", push_text, "PushResults", body="Push", parameters=[_KEY]),
        },
        f"{queue}/pull": {
            "parameters": [_NAME],
            "post": _operation("pull", pull_text, "Messages", body="Pull", body_required=False),
        },
        **{
            f"{queue}/{verb}": {
                "parameters": [_NAME],
                "post": _operation(verb, summary, "Results", body="Ids", not_found=True),
            }
            for verb, summary in (
                ("ack", "Acknowledge messages: they are done"),
                ("nack", "Give messages back at once; each loses a retry"),
                ("extend", "Start the leases of messages anew"),
            )
        },
        **_operation_paths(queue),
    }


def _operation_paths(queue: str) -> Json:
    purge = "Remove all messages that are not leased; may be repeated safely"
    move = (
        "Put messages that can be pulled now at the end of another queue, as fresh messages; not to be repeated blindly"
    )
    suspend = "Let pulls find nothing until the queue is resumed; pushes, acks and the end of leases go on"
    operations = {
        "purge": ("purgeQueue", purge, "Purged", "Nothing"),
        "move": ("moveMessages", move, "Moved", "Move"),
        "suspend": ("suspendQueue", suspend, "Suspended", "Nothing"),
        "resume": ("resumeQueue", "Let the queue hand out messages again", "Suspended", "Nothing"),
    }
    return {
        f"{queue}/{verb}": {
            "parameters": [_NAME],
            "post": _operation(name, text, answer, body=body, not_found=True, body_required=body != "Nothing"),
        }
        for verb, (name, text, answer, body) in operations.items()
    }


def _subscription_paths() -> Json:
    one = "/v1/subscriptions/{name}"
    name = {**_NAME, "description": "Name of a subscription."}
    abandon = "Put the messages of all its batches back in their places, uncharged"
    return {
        "/v1/subscriptions": {"get": _operation("listSubscriptions", "Who holds batch leases", "Subscriptions")},
        one: {
            "parameters": [name],
            "get": _operation("getSubscription", "The batches that are not settled", "Subscription", not_found=True),
        },
        f"{one}/abandon": {
            "parameters": [name],
            "post": _operation("abandonBatches", abandon, None, not_found=True),
        },
    }


def _path_number(name: str, description: str) -> Json:
    schema = {"type": "integer", "minimum": 0}
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def _octets(name: str, summary: str) -> Json:
    operation = _operation(name, summary, None, not_found=True)
    del operation["responses"]["204"]
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    operation["responses"]["200"] = {"description": "As it is in the file.", "content": content}
    return operation


def _cluster_paths() -> Json:
    return {
        "/v1/cluster": {"get": _operation("getCluster", "The cluster as this node sees it", "Cluster")},
        "/v1/cluster/join": {
            "post": _operation(
                "join",
                "Make this node a member of its peer's cluster, once it has that one's data",
                "Cluster",
                body="Join",
            )
        },
        "/v1/cluster/remove": {
            "post": _operation("remove", "Take another member out of the cluster", "Cluster", body="Remove")
        },
        "/v1/cluster/transfer": {
            "post": _operation("transfer", "Have the leader hand over to another member", "Cluster", body="Transfer")
        },
        "/v1/cluster/check": {
            "get": _operation("check", "Whether the cluster is well and this node may be stopped", "CheckUp")
        },
        "/v1/snapshots": {"post": _operation("takeSnapshot", "Write a snapshot of this node's state now", "Snapshot")},
        "/v1/snapshots/{index}/blocks/{number}": {
            "parameters": [
                _path_number("index", "Log entry of the snapshot."),
                _path_number("number", "Block, from 0."),
            ],
            "get": _octets("getSnapshotBlock", "A block of a snapshot that was taken in the last ten minutes"),
        },
        "/v1/log-level": {
            "get": _operation("getLogLevel", "Least severe level that this node logs", "LogLevel"),
            "put": _operation("setLogLevel", "Change it until the node is stopped", "LogLevel", body="LogLevel"),
        },
        "/v1/cluster/leave": {
            "post": _operation("leave", "Take this node out of its cluster; it goes on alone and empty", "Cluster")
        },
    }


def _overview_paths() -> Json:
    history = _query("history", "Add the sums of the last ten minutes, five seconds apart.", {"type": "string"})
    summary = "Sums over all queues, the members and their figures, as this node knows them"
    stats = "Rates of a queue, and how long the messages delivered in the last minute had waited"
    return {
        "/v1/overview": {"get": _operation("getOverview", summary, "Overview", parameters=[history])},
        "/v1/queues/{name}/stats": {
            "parameters": [_NAME],
            "get": _operation("getQueueStats", stats, "QueueStats", not_found=True),
        },
    }


def _text_route(name: str, summary: str, statuses: dict[str, str], parameters: list[Json] | None = None) -> Json:
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    operation: Json = {
        "operationId": name,
        "summary": summary,
        "responses": {status: {"description": meaning, **text} for status, meaning in statuses.items()},
    }
    if parameters:
        operation["parameters"] = parameters
    return {"get": operation}


def _queue_metrics_parameters() -> list[Json]:
    return [
        _query("name", "A regular expression; only queues whose names it finds are shown.", {"type": "string"}),
        _query(
            "limit",
            "Most queues on the page; lmq_queue_metrics_omitted says how many are left out.",
            {"type": "integer", "minimum": 1, "maximum": QUEUES_MAX, "default": QUEUES_DEFAULT},
        ),
    ]


def _health_paths() -> Json:
    flags = [
        _query("verbose", "Show every check.", {"type": "string"}),
        _query("exclude", "Checks to leave out, separated by commas.", {"type": "string"}),
    ]
    described = {
        "get": {
            "operationId": "openapi",
            "summary": "This document",
            "responses": {
                "200": {
                    "description": "OpenAPI 3.1",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
            },
        }
    }
    alias = {"get": {**described["get"], "operationId": "openapiV1"}}
    return {
        "/livez": _text_route("livez", "Whether the process works; never depends on a quorum", {"200": "It does"}),
        "/readyz": _text_route(
            "readyz",
            "Whether the node can serve",
            {"200": "All checks passed", "503": "Some check failed; the body shows which"},
            flags,
        ),
        "/metrics": _text_route("metrics", "Figures for Prometheus", {"200": _EXPOSITION}),
        "/metrics/queues": _text_route(
            "queueMetrics", "Figures of single queues for Prometheus", {"200": _EXPOSITION}, _queue_metrics_parameters()
        ),
        "/openapi.json": described,
        "/v1/openapi.json": alias,
    }
