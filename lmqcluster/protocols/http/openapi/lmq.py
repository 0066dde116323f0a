"""LMQ's routes in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["LMQ_PATHS"]

Json = dict[str, Any]

_NAME: Final[Json] = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
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
    "schema": {"enum": ["multipart", "msgpack"]},
}
_SEQUENCE: Final[Json] = {
    "name": "sequence",
    "in": "query",
    "description": "Whether the header x-lmq-message-sequence of the answer tells the number of the message.",
    "schema": {"type": "boolean", "default": False},
}
_BODY: Final[Json] = {"content": {"*/*": {"schema": {}}}}


def _operation(name: str, summary: str, answers: dict[str, str], **more: Any) -> Json:
    responses: dict[str, Json] = {status: {"description": meaning} for status, meaning in answers.items()}
    responses["default"] = {"description": "Refused or failed; empty body, the reason in the header x-lmq-error"}
    return {"operationId": name, "summary": summary, "tags": ["LMQ"], "responses": responses, **more}


_PULLED: Final = {"200": "The message; its id and queue in x-lmq headers", "204": "The wait ended without a message"}
_PUSHED: Final = {"200": 'Stored: {"accum":"no"}, or "new" or "yes" with accumulation'}
_JSON_BODY: Final[Json] = {"required": True, "content": {"application/json": {"schema": {}}}}

LMQ_PATHS: Final[Json] = {
    "/messages/{name}": {
        "parameters": [_NAME],
        "post": _operation(
            "lmqPush", "Push the body as one message", _PUSHED, parameters=[_SEQUENCE], requestBody=_BODY
        ),
        "get": _operation("lmqPull", "Pull a message", _PULLED, parameters=[_WAIT, _FORMAT]),
    },
    "/messages/{name}/{id}": {
        "post": _operation(
            "lmqReply",
            "Acknowledge a message, give it back, or extend its lease",
            {"204": "Done", "404": "No message is under lease with this id"},
            parameters=[
                _NAME,
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "reply", "in": "query", "required": True, "schema": {"enum": ["ack", "nack", "ext"]}},
            ],
        )
    },
    "/messages": {
        "parameters": [_PATTERN],
        "post": _operation(
            "lmqPushAll",
            "Push a copy into every matching queue",
            {"200": "An object from queue name to result"},
            requestBody=_BODY,
        ),
        "get": _operation("lmqPullAny", "Pull a message from any matching queue", _PULLED, parameters=[_WAIT, _FORMAT]),
    },
    "/queues/{name}": {
        "parameters": [_NAME],
        "delete": _operation("lmqDelete", "Delete a queue", {"204": "Done", "404": "There is no such queue"}),
    },
    "/properties/{name}": {
        "parameters": [_NAME],
        "get": _operation("lmqGetProperties", "Effective properties of a queue", {"200": "An object"}),
        "patch": _operation("lmqSetProperties", "Set some properties", {"204": "Done"}, requestBody=_JSON_BODY),
        "delete": _operation("lmqClearProperties", "Remove the queue's own properties", {"204": "Done"}),
    },
    "/properties": {
        "get": _operation("lmqGetRules", "The default rules", {"200": "[[regular expression, properties], ...]"}),
        "put": _operation("lmqSetRules", "Replace the default rules", {"204": "Done"}, requestBody=_JSON_BODY),
        "delete": _operation("lmqClearRules", "Remove the default rules", {"204": "Done"}),
    },
    "/stats": {"get": _operation("lmqStats", "Rates, retention times and sizes of all queues", {"200": "An object"})},
}
