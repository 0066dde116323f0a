"""LMQ's routes in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from .parts import KEY, NAME, TRACE, Json

__all__ = ["LMQ_PATHS", "LMQ_SCHEMAS"]

_PATTERN: Final[Json] = {
    "name": "qre",
    "in": "query",
    "required": True,
    "description": "Regular expression that is searched for in queue names.",
    "schema": {"type": "string"},
}
_WAIT: Final[Json] = {
    "name": "t",
    "in": "query",
    "description": "Seconds to wait; without it there is no limit, 0 answers at once.",
    "schema": {"type": "number", "minimum": 0},
}
_FORMAT: Final[Json] = {
    "name": "cf",
    "in": "query",
    "description": "Layout of compound messages.",
    "schema": {"type": "string", "enum": ["multipart", "msgpack"]},
}
_SEQUENCE: Final[Json] = {
    "name": "sequence",
    "in": "query",
    "description": "Whether the header x-lmq-message-sequence of the answer tells the number of the message.",
    "schema": {"type": "boolean", "default": False},
}
_OCTETS: Final[Json] = {"type": "string", "format": "binary"}
_BODY: Final[Json] = {"content": {"*/*": {"schema": _OCTETS}}}
_TEXT: Final[Json] = {"schema": {"type": "string"}}
_COUNT: Final[Json] = {"schema": {"type": "integer", "minimum": 0}}
_ERROR: Final[Json] = {"x-lmq-error": {"description": "Code, colon, blank, and the reason.", **_TEXT}}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Json) -> Json:
    return {"content": {"application/json": {"schema": schema}}}


def _operation(name: str, summary: str, answers: dict[str, Json], **more: Any) -> Json:
    responses = {
        **answers,
        "404": {"description": "Not found; the body is empty", "headers": _ERROR},
        "503": {
            "description": "The node cannot serve the request now, and nothing was applied; the body is empty",
            "headers": {**_ERROR, "retry-after": {"description": "Seconds.", **_COUNT}},
        },
        "default": {"description": "Refused or failed; the body is empty", "headers": _ERROR},
    }
    return {"operationId": name, "summary": summary, "tags": ["LMQ"], "responses": responses, **more}


_DONE: Final[Json] = {"204": {"description": "Done"}}
_PULLED: Final[Json] = {
    "200": {
        "description": "The message",
        "headers": {
            "x-lmq-queue-name": {"description": "Name of the queue.", **_TEXT},
            "x-lmq-message-id": {"description": "Id of this delivery.", **_TEXT},
            "x-lmq-message-sequence": {"description": "Number of the message, the same for each delivery.", **_COUNT},
            "x-lmq-message-type": {"schema": {"type": "string", "enum": ["normal", "compound"]}},
            "x-lmq-retry-remaining": {"description": "Deliveries that may follow.", **_COUNT},
        },
        "content": {"*/*": {"schema": _OCTETS}},
    },
    "204": {"description": "The wait ended without a message"},
}
_PUSHED: Final[Json] = {
    "200": {
        "description": "Stored",
        "headers": {
            "x-lmq-message-sequence": {"description": "Number of the message, if it was asked for.", **_COUNT},
            "idempotency-replayed": {"description": "The idempotency key was used before.", **_TEXT},
        },
        **_json(_ref("Accumulation")),
    }
}
_PROPERTIES: Final[Json] = _ref("Properties")

LMQ_SCHEMAS: Final[Json] = {
    "Accumulation": {
        "type": "object",
        "required": ["accum"],
        "properties": {
            "accum": {
                "type": "string",
                "enum": ["no", "new", "yes"],
                "description": "Stored as it is; opened an accumulation window; joined an open one.",
            }
        },
    },
    "Copy": {
        "type": "object",
        "description": "Result of a push for one of several queues.",
        "properties": {
            "accum": {"type": "string", "enum": ["no", "new", "yes"]},
            "error": {"type": "string", "enum": ["too_large", "full"], "description": "Why it was not stored."},
        },
    },
    "Rule": {
        "type": "array",
        "description": "A regular expression, and the properties of the queues whose names it matches.",
        "minItems": 2,
        "maxItems": 2,
        "items": {"oneOf": [_ref("Text"), _PROPERTIES]},
    },
    "Rules": {"type": "array", "maxItems": 100, "items": _ref("Rule")},
    "LmqStats": {
        "type": "object",
        "required": ["active_nodes", "all_nodes", "queues"],
        "properties": {
            "active_nodes": {"type": "array", "items": {"type": "string"}},
            "all_nodes": {"type": "array", "items": {"type": "string"}},
            "queues": {"type": "object", "additionalProperties": {"type": "object"}},
        },
    },
}

LMQ_PATHS: Final[Json] = {
    "/messages/{name}": {
        "parameters": [NAME],
        "post": _operation(
            "lmqPush",
            "Push the body as one message",
            _PUSHED,
            parameters=[_SEQUENCE, KEY, *TRACE],
            requestBody=_BODY,
        ),
        "get": _operation("lmqPull", "Pull a message", _PULLED, parameters=[_WAIT, _FORMAT]),
    },
    "/messages/{name}/{id}": {
        "post": _operation(
            "lmqReply",
            "Acknowledge a message, return it, or extend its lease",
            _DONE,
            parameters=[
                NAME,
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                {
                    "name": "reply",
                    "in": "query",
                    "required": True,
                    "schema": {"type": "string", "enum": ["ack", "nack", "ext"]},
                },
            ],
        )
    },
    "/messages": {
        "parameters": [_PATTERN],
        "post": _operation(
            "lmqPushAll",
            "Push a copy to every matching queue",
            {
                "200": {
                    "description": "The result for each queue",
                    **_json({"type": "object", "additionalProperties": _ref("Copy")}),
                }
            },
            parameters=TRACE,
            requestBody=_BODY,
        ),
        "get": _operation("lmqPullAny", "Pull a message of any matching queue", _PULLED, parameters=[_WAIT, _FORMAT]),
    },
    "/queues/{name}": {
        "parameters": [NAME],
        "delete": _operation("lmqDelete", "Delete a queue", _DONE),
    },
    "/properties/{name}": {
        "parameters": [NAME],
        "get": _operation(
            "lmqGetProperties",
            "Effective properties of a queue",
            {"200": {"description": "The properties", **_json(_PROPERTIES)}},
        ),
        "patch": _operation(
            "lmqSetProperties",
            "Set some properties and keep the others",
            _DONE,
            requestBody={"required": True, **_json(_PROPERTIES)},
        ),
        "delete": _operation("lmqClearProperties", "Remove the properties of the queue itself", _DONE),
    },
    "/properties": {
        "get": _operation(
            "lmqGetRules", "The default rules", {"200": {"description": "The rules", **_json(_ref("Rules"))}}
        ),
        "put": _operation(
            "lmqSetRules",
            "Replace the default rules",
            _DONE,
            requestBody={"required": True, **_json(_ref("Rules"))},
        ),
        "delete": _operation("lmqClearRules", "Remove the default rules", _DONE),
    },
    "/stats": {
        "get": _operation(
            "lmqStats",
            "Rates, retention times and sizes of all queues",
            {"200": {"description": "The statistics", **_json(_ref("LmqStats"))}},
        )
    },
}
