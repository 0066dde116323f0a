"""Schemas of the OpenAPI document for options of messages and queues beyond LMQ."""

from __future__ import annotations

from typing import Any, Final

from ....core.handlers.transactions import OPERATIONS_MAX
from ....core.routing.move_tasks import RATE_MAX as MOVE_RATE_MAX
from ....core.routing.move_tasks import TaskStatus
from ....wire.attributes import ATTRIBUTES_MAX, NAME_BYTES_MAX
from ....wire.queue_options import GROUP_MODES, KEY_SCOPES, QUEUE_OPTIONS, RATE_MAX, RATE_MIN
from ....wire.reasons import REASON_ATTRIBUTE, REASON_BYTES_MAX

__all__ = [
    "ATTRIBUTES", "ATTRIBUTE_FILTER", "DELIVERED", "OPTION_SCHEMAS", "PROPERTIES", "PUSH_MEMBERS", "SEQUENCES", "SETTLED_AT_NACK",
    "TRAITS",
]  # fmt: skip

Json = dict[str, Any]

_NAME: Final[Json] = {"$ref": "#/components/schemas/Content"}
_SECONDS: Final[Json] = {"type": "number", "minimum": 0}
_TEXT: Final[Json] = {"$ref": "#/components/schemas/Content"}
_PRIORITY: Final[Json] = {
    "type": "integer",
    "format": "int32",
    "minimum": -(1 << 31),
    "maximum": (1 << 31) - 1,
    "description": "Lower comes first; 0 by default.",
}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_TYPES: Final[dict[str, Json]] = {
    "messages": {"type": ["integer", "null"], "minimum": 0},
    "bytes": {"type": ["integer", "null"], "minimum": 0},
    "seconds": {"type": ["number", "null"], "minimum": 0},
    "factor": {"type": ["number", "null"], "minimum": 1, "maximum": 100},
    "per second": {"type": ["number", "null"], "minimum": RATE_MIN, "maximum": RATE_MAX},
    "mode": {"type": ["string", "null"], "enum": [*GROUP_MODES, None]},
    "flag": {"type": ["boolean", "null"]},
    "queue": {"type": ["string", "null"], "minLength": 1},
    "queues": {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}},
    "scope": {"type": ["string", "null"], "enum": [*KEY_SCOPES, None]},
}

PROPERTIES: Final[Json] = {
    name: {**_TYPES[option.unit], "description": option.text} for name, option in QUEUE_OPTIONS.items()
}
"""Properties of a queue; null removes the value set on the queue."""

ATTRIBUTES: Final[Json] = {
    "type": "object",
    "maxProperties": ATTRIBUTES_MAX,
    "propertyNames": {"minLength": 1, "maxLength": NAME_BYTES_MAX},
    "additionalProperties": {"$ref": "#/components/schemas/AttributeValue"},
    "description": "Attributes of the message: strings, numbers, or binary values as Base64. MessagePack has bin instead.",
}

PUSH_MEMBERS: Final[Json] = {
    "delay": {**_SECONDS, "description": "How much later the message becomes due."},
    "due": {**_SECONDS, "description": "Unix time at which it becomes due; instead of a delay."},
    "ttl": {**_SECONDS, "description": "For how many seconds it may be delivered."},
    "priority": _PRIORITY,
    "label": {**_TEXT, "description": "The producer's own name for it, by which it is found while it waits."},
    "group": {**_TEXT, "description": "Its group: delivered one at a time and in order, or in turn, see group_mode."},
    "attributes": ATTRIBUTES,
}
"""Options of a message in a push."""

TRAITS: Final[Json] = {
    "priority": _PRIORITY,
    "label": _TEXT,
    "group": _TEXT,
    "origin": {"$ref": "#/components/schemas/Origin"},
}
"""Options that a message was pushed with; each is present only if it was set."""

DELIVERED: Final[Json] = {
    "delivery": {"type": "integer", "minimum": 1, "description": "Which delivery of the message this is."},
    "sequence": {**_COUNT, "description": "Number of the message in the cluster, in the order of pushes."},
    "pushed_at": {"type": "number", "description": "Unix time of the push."},
}
"""Members of every delivery."""

SETTLED_AT_NACK: Final[Json] = {
    "place": {
        "type": "string",
        "enum": ["tail", "keep", "head"],
        "default": "tail",
        "description": "Behind what waits, at its old place, or before what waits.",
    },
    "delay": {**_SECONDS, "description": "How much later the messages become due; without it what the queue says."},
    "reason": {
        "type": "string",
        "description": f"Becomes the attribute {REASON_ATTRIBUTE} of the messages, cut to {REASON_BYTES_MAX} bytes.",
    },
}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _operation(verb: str, members: Json, *required: str) -> Json:
    return _object({"op": {"type": "string", "const": verb}, "queue": _NAME, **members}, "op", "queue", *required)


SEQUENCES: Final[Json] = {
    "type": "array",
    "maxItems": 100,
    "items": {"type": "integer", "minimum": 0},
    "description": "Only the dead letters and expired messages with these sequences; not beside `max`.",
}
_ID: Final[Json] = {"type": "string", "minLength": 1, "description": "Id of a delivery."}
_LEASE: Final[Json] = {"lease": {**_SECONDS, "description": "Seconds; without it the queue's timeout."}}
_MAX: Final[Json] = {"max": {"type": "integer", "minimum": 1, "description": "Most messages; without it all."}}

_MOVE_RATE: Final[Json] = {"type": ["integer", "null"], "minimum": 1, "maximum": MOVE_RATE_MAX}
_MOVE_TASK: Final[dict[str, Json]] = {
    "number": _COUNT,
    "status": {"type": "string", "enum": [status.name.lower() for status in TaskStatus]},
    "to": {
        "anyOf": [_NAME, {"type": "null"}],
        "description": "Destination; null for the queues of origin, missing if the token does not cover it.",
    },
    "rate": {**_MOVE_RATE, "description": "Maximum number of messages a second; null for no limit."},
    "moved": {**_COUNT, "description": "Messages moved so far."},
    "to_move": {**_COUNT, "description": "Messages that the queue had for the task at the start."},
    "started_at": {"type": "number", "description": "When it was started, in seconds since 1970."},
    "failure": {"type": ["string", "null"], "description": "Error code of a failed task."},
}

ATTRIBUTE_FILTER: Final[Json] = {
    "type": "string",
    "pattern": "^[^=]+=",
    "description": "Only messages with this attribute, NAME=VALUE; a number is its decimal text, a binary value its Base64.",
}

_OPERATIONS: Final[Json] = {
    "PushOperation": _operation(
        "push",
        {
            "content": _NAME,
            "content_type": {"type": "string", "minLength": 1},
            "key": {"type": "string", "minLength": 1, "maxLength": 255},
            **PUSH_MEMBERS,
        },
        "content",
    ),
    "AckOperation": _operation("ack", {"id": _ID}, "id"),
    "NackOperation": _operation("nack", {"id": _ID, **SETTLED_AT_NACK}, "id"),
    "ExtendOperation": _operation("extend", {"id": _ID, **_LEASE}, "id"),
}

OPTION_SCHEMAS: Final[Json] = {
    "AttributeValue": {
        "oneOf": [
            {"$ref": "#/components/schemas/Text"},
            {"$ref": "#/components/schemas/Number"},
            {"$ref": "#/components/schemas/Binary"},
        ]
    },
    "Origin": _object(
        {
            "queue": _NAME,
            "reason": {"type": "string", "enum": ["exhausted", "expired"]},
            "deliveries": {**_COUNT, "description": "How often it had been delivered there."},
            "sequence": {**_COUNT, "description": "Its number there."},
        },
        "queue",
        "reason",
        "deliveries",
        "sequence",
    )
    | {"description": "Where the message was before the cluster moved it."},
    **_OPERATIONS,
    "Operation": {
        "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in _OPERATIONS],
        "discriminator": {
            "propertyName": "op",
            "mapping": {
                schema["properties"]["op"]["const"]: f"#/components/schemas/{name}"
                for name, schema in _OPERATIONS.items()
            },
        },
    },
    "OperationDone": _object({"done": {"type": "boolean", "const": True}}, "done"),
    "OperationResult": {
        "oneOf": [{"$ref": "#/components/schemas/PushResult"}, {"$ref": "#/components/schemas/OperationDone"}]
    },
    "Nack": _object(
        {"ids": {"type": "array", "items": _ID}, **SETTLED_AT_NACK},
        "ids",
    ),
    "Extend": _object({"ids": {"type": "array", "items": _ID}, **_LEASE}, "ids"),
    "Withdraw": _object({"label": _TEXT, "attribute": ATTRIBUTE_FILTER, **_MAX}, "label"),
    "Withdrawn": _object({"withdrawn": {**_COUNT, "description": "How many messages were removed."}}, "withdrawn"),
    "Redrive": _object(
        {
            "to": {**_NAME, "description": "Where to send them; without it where they came from."},
            "label": {**_TEXT, "description": "Only those with this label."},
            "sequences": SEQUENCES,
            **_MAX,
        }
    ),
    "Redriven": _object({"redriven": {**_COUNT, "description": "How many messages were sent back."}}, "redriven"),
    "MoveTaskStart": _object(
        {
            "to": {**_NAME, "description": "Where to move them; without it each message goes back where it came from."},
            "rate": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOVE_RATE_MAX,
                "description": "Most messages a second.",
            },
        }
    ),
    "MoveTaskStarted": _object({"number": {**_COUNT, "description": "The number of the task."}}, "number"),
    "MoveTaskCancelled": _object({"moved": {**_COUNT, "description": "How many messages it has moved."}}, "moved"),
    "MoveTask": _object(_MOVE_TASK, *(member for member in _MOVE_TASK if member != "to")),
    "MoveTasks": _object(
        {"tasks": {"type": "array", "items": {"$ref": "#/components/schemas/MoveTask"}}, "stale": {"type": "boolean"}},
        "tasks",
        "stale",
    ),
    "Binding": _object({"target": {**_NAME, "description": "The queue that gets copies."}}, "target"),
    "Bound": _object({"new": {"type": "boolean", "description": "False if it was so before."}}, "new"),
    "Unbound": _object({"ended": {"type": "boolean", "description": "False if there was no such binding."}}, "ended"),
    "Bindings": _object(
        {"targets": {"type": "array", "items": _NAME}, "stale": {"type": "boolean"}}, "targets", "stale"
    ),
    "LabelCount": _object(
        {
            "label": _TEXT,
            "count": {**_COUNT, "description": "Messages with the label that are not under lease."},
            "stale": {"type": "boolean"},
        },
        "label",
        "count",
        "stale",
    ),
    "Transaction": _object(
        {
            "operations": {
                "type": "array",
                "maxItems": OPERATIONS_MAX,
                "items": {"$ref": "#/components/schemas/Operation"},
            }
        },
        "operations",
    ),
    "TransactionResults": _object(
        {
            "results": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/OperationResult"},
            }
        },
        "results",
    ),
}
