"""Schemas of the OpenAPI document, JSON Schema 2020-12."""

from __future__ import annotations

from typing import Any, Final

from ....core.queue.counters import COUNTERS
from ....node.config.config import LOG_LEVELS
from ....node.queues.kinds import KINDS
from ....wire.limits import PULL_COUNT_MAX, PUSH_COUNT_MAX
from ....wire.properties import ANNOTATIONS_MAX
from .options import ATTRIBUTES, DELIVERED, OPTION_SCHEMAS, PROPERTIES, PUSH_MEMBERS, SEQUENCES, TRAITS
from .sessions import SESSION_ID, WAIT

__all__ = ["SCHEMAS"]

Json = dict[str, Any]


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Json, *optional: str, is_open: bool = False) -> Json:
    """Return an object schema. All properties are required except the optional ones."""
    required = [name for name in properties if name not in optional]
    closed = {} if is_open else {"additionalProperties": False}
    return {"type": "object", "required": required, "properties": properties, **closed}


def _list(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


_STRING: Final[Json] = {"type": "string"}
_STALE: Final[Json] = {
    "type": "boolean",
    "description": "Whether the node is cut off, so that this may be old; then the header `x-lmq-stale` says so too.",
}
_BOOLEAN: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Json] = {"type": "number"}
_RATE: Final[Json] = {"type": "number", "minimum": 0}
_ID: Final[Json] = {"type": "string", "format": "uuid", "description": "Id of one delivery; changes with each."}
_ADDRESS: Final[Json] = {"type": ["string", "null"], "description": "HOST:PORT, or null where it is off or unknown."}
_CHECK_FIGURES: Final[Json] = {
    "type": "object",
    "additionalProperties": _COUNT,
    "description": "Figures behind the finding, such as entries of lag, or free_bytes and total_bytes of the disk.",
}
_HOOKS: Final[Json] = {
    "type": "object",
    "description": 'Hook point to modules: {"pre_http_push": [["lmq_hook_preserve_header", ["user-agent"]]]}.',
    "additionalProperties": _list(_list({"oneOf": [_ref("Text"), _list(_STRING)]}, minItems=2, maxItems=2)),
}
_PROPERTIES: Final[Json] = {
    "accum": {**_NUMBER, "description": "Accumulation window in seconds; 0 is off. `pack` is an alias."},
    "pack": {**_NUMBER, "deprecated": True},
    "hooks": _HOOKS,
    "retry": {"type": "integer", "description": "How often a message is delivered again."},
    "timeout": {**_NUMBER, "description": "Seconds until a delivered message is delivered again."},
    **PROPERTIES,
}
_QUEUE: Final[Json] = {
    "name": _ref("Content"),
    "suspended": {**_BOOLEAN, "description": "Whether it hands out nothing until it is resumed."},
    "ready": {**_COUNT, "description": "Messages that can be pulled now."},
    "delayed": {**_COUNT, "description": "Messages that become due later, an open accumulation window among them."},
    "leased": {**_COUNT, "description": "Messages that were delivered and not settled."},
    "accumulating": {**_COUNT, "description": "Parts in the open accumulation window."},
    "pushes_waiting": {**_COUNT, "description": "Pushes that wait for room in the full queue."},
    "dead_letters": {
        **_COUNT,
        "description": "Messages that the cluster has put here, dead letters and expired ones, that are not under lease.",
    },
    "size": {**_COUNT, "description": "All messages; an open window counts as one."},
    "bytes": {**_COUNT, "description": "Bytes of all bodies."},
    "oldest_age_s": {
        "type": ["number", "null"],
        "minimum": 0,
        "description": "For how many seconds the message that is next to be delivered has been due; null if none is.",
    },
    "push_rate": {**_RATE, "description": "Messages pushed a second, over the last five seconds, as this node saw it."},
    "pull_rate": {**_RATE, "description": "Deliveries a second, likewise."},
    **{counter: {**_COUNT, "description": what} for counter, what in COUNTERS.items()},
}
_PEEKED: Final[Json] = {
    "sequence": {**_COUNT, "description": "Number of the message in the cluster, in the order of pushes."},
    "id": {
        "type": ["string", "null"],
        "format": "uuid",
        "description": "Id of the delivery whose lease lives, or null.",
    },
    "state": {"type": "string", "enum": ["ready", "delayed", "accumulating", "held", "leased"]},
    "type": {"type": "string", "enum": ["normal", "compound"]},
    "content": _ref("MessageContent"),
    "content_type": _STRING,
    "attributes": ATTRIBUTES,
    "size": {**_COUNT, "description": "Bytes of the whole body."},
    "truncated": {**_BOOLEAN, "description": "Whether the content is only a part of the body."},
    "age_s": {
        "type": "number",
        "minimum": 0,
        "description": "Seconds since it could be pulled first, or again after a nack; 0 if it cannot yet.",
    },
    "due_in_s": {
        "type": ["number", "null"],
        "minimum": 0,
        "description": "Seconds until it can be pulled, or again; 0 if it can now, null as long as a session holds it.",
    },
    "deliveries": {**_COUNT, "description": "How many deliveries there were, except those put back."},
    "deliveries_left": {**_COUNT, "description": "How many more deliveries there may be."},
    "pushed_at": {"type": "number", "description": "When it was pushed, in seconds since 1970."},
}

SCHEMAS: Final[dict[str, Json]] = {
    "Binary": _object({"base64": {"type": "string", "contentEncoding": "base64"}}),
    "Text": _STRING,
    "Number": _NUMBER,
    "Parts": _list(_ref("Part")),
    "Content": {
        "description": "Bytes: a string where they are UTF-8, else Base64. MessagePack has bin instead.",
        "oneOf": [_ref("Text"), _ref("Binary")],
    },
    "MessageContent": {
        "description": "The body, or its beginning; for a compound message the list of its parts, in push order.",
        "oneOf": [_ref("Text"), _ref("Binary"), _ref("Parts")],
    },
    "PushMessage": _object(
        {
            "content": _ref("Content"),
            "content_type": {**_STRING, "minLength": 1, "maxLength": 4096},
            "key": {
                **_STRING,
                "minLength": 1,
                "maxLength": 255,
                "description": "Idempotency key; a message whose key is known is not stored again.",
            },
            **PUSH_MEMBERS,
        },
        "content_type",
        "key",
        *PUSH_MEMBERS,
    ),
    "Push": _object(
        {
            "messages": _list(_ref("PushMessage"), maxItems=PUSH_COUNT_MAX),
            "wait": {**WAIT, "exclusiveMinimum": 0, "description": "Seconds to wait for room in a full queue."},
        },
        "wait",
    ),
    "PushResult": _object(
        {
            "accum": {
                "type": "string",
                "enum": ["no", "new", "yes"],
                "description": "Stored as it is; opened an accumulation window; joined an open one.",
            },
            "replayed": {
                "type": "boolean",
                "const": True,
                "description": "The idempotency key was used before; this is the first push's result.",
            },
            "sequence": {
                **_COUNT,
                "description": "Number of the message, the same with every delivery; not of one that joined a window.",
            },
        },
        "replayed",
        "sequence",
    ),
    "PushResults": _object({"results": _list(_ref("PushResult"))}),
    "Pull": _object(
        {
            "max": {"type": "integer", "minimum": 1, "maximum": PULL_COUNT_MAX, "default": 1},
            "timeout": {
                "type": ["number", "null"],
                "minimum": 0,
                "default": 0,
                "description": "Seconds to wait for a first message; null waits without limit.",
            },
            "lease": {**_NUMBER, "exclusiveMinimum": 0, "description": "Seconds; without it the queue's timeout."},
            "auto_ack": {
                **_BOOLEAN,
                "default": False,
                "description": "Acknowledge the messages before they are sent: a client that does not get them loses them.",
            },
            "session": SESSION_ID,
            "after": {
                **_STRING,
                "description": "Id of the last message of this queue that arrived in the session, empty if none did. While the "
                "session holds later ones, which were lost on the way, the pull returns these again.",
            },
        },
        "max",
        "timeout",
        "lease",
        "auto_ack",
        "session",
        "after",
    ),
    "Part": _object({"content": _ref("Content"), "content_type": _STRING, "attributes": ATTRIBUTES}),
    "Message": _object(
        {
            "id": _ID,
            "queue": _ref("Content"),
            "type": {"type": "string", "enum": ["normal", "compound"]},
            "retry": {"type": "integer", "description": "How many more deliveries remain after this one."},
            "content": _ref("MessageContent"),
            "content_type": _STRING,
            "attributes": ATTRIBUTES,
            **DELIVERED,
            **TRAITS,
        },
        *TRAITS,
    ),
    "Messages": _object({"messages": _list(_ref("Message"))}),
    "Ids": _object({"ids": _list({"type": "string", "minLength": 1}, maxItems=PULL_COUNT_MAX)}),
    "Results": _object(
        {"results": _list({**_BOOLEAN, "description": "Whether the id was that of a message under lease."})}
    ),
    "Properties": _object(_PROPERTIES, *_PROPERTIES),
    "PropertyChanges": _object(
        {
            **_PROPERTIES,
            "annotations": {
                "type": "object",
                "description": "Annotations to set, all or nothing with the properties; null removes one.",
                "additionalProperties": {"type": ["string", "null"]},
            },
        },
        *_PROPERTIES,
        "annotations",
    ),
    "Creation": _object(
        {
            "kind": {"type": "string", "enum": list(KINDS), "default": "plain"},
            "content_deduplication": {
                **_BOOLEAN,
                "description": "For a FIFO queue: whether the hash of a body is the deduplication id of a message of SQS "
                "without one.",
            },
            "properties": {**_ref("Properties"), "description": "Those that replace properties of the kind."},
            "annotations": {"type": "object", "maxProperties": ANNOTATIONS_MAX, "additionalProperties": _STRING},
        },
        "kind",
        "content_deduplication",
        "properties",
        "annotations",
    ),
    "Created": _object({"new": {**_BOOLEAN, "description": "False if the queue existed. It was not changed."}}),
    "Queue": _object(_QUEUE),
    "QueueDetail": _object(
        {
            **_QUEUE,
            "exclusive_holder": {
                "type": ["string", "null"],
                "description": "Id of the session that has the exclusive queue; null if none has.",
            },
            "standing_by": {**_COUNT, "description": "Sessions that wait for their turn at the exclusive queue."},
            "waiting_pulls": {**_COUNT, "description": "Pulls that wait at this node for messages of this queue."},
            "groups": {**_COUNT, "description": "Groups one of whose messages is in line or leased."},
            "held": {**_COUNT, "description": "Messages that wait for the one before them of their group."},
            "held_back": {
                "type": "object",
                "description": "Messages that each limit of deliveries holds back, by the name of its property.",
                "additionalProperties": _COUNT,
            },
            "properties": _ref("Properties"),
            "own_properties": {**_ref("Properties"), "description": "Those set on the queue itself."},
            "annotations": {
                "type": "object",
                "maxProperties": ANNOTATIONS_MAX,
                "description": "Texts that clients keep with the queue.",
                "additionalProperties": _STRING,
            },
            "created_at": {**_NUMBER, "description": "When the queue was created, in seconds since 1970."},
            "changed_at": {
                **_NUMBER,
                "description": "When its own properties or annotations were last set, in seconds since 1970.",
            },
            "stale": _STALE,
        }
    ),
    "QueueRow": _object(_QUEUE, *(name for name in _QUEUE if name != "name")),
    "Queues": _object(
        {
            "queues": _list(_ref("QueueRow")),
            "total": {**_COUNT, "description": "How many queues match, on this page or not."},
            "next": {
                "anyOf": [_ref("Text"), _ref("Binary"), {"type": "null"}],
                "description": "Ask with it as `after` to go on; null at the end, and where the list is not sorted by name.",
            },
            "stale": _STALE,
        }
    ),
    "PeekedMessage": _object({**_PEEKED, **TRAITS}, *TRAITS),
    "PeekedMessages": _object(
        {
            "messages": _list(_ref("PeekedMessage")),
            "next": {"type": ["integer", "null"], "description": "Ask with it as `after` to go on; null at the end."},
            "stale": _STALE,
        }
    ),
    "Purge": _object(
        {
            "max": {
                "type": "integer",
                "minimum": 1,
                "description": "Most messages to remove, those first that would be delivered first; without it all.",
            },
            "sequences": SEQUENCES,
        },
        "max",
        "sequences",
    ),
    "Purged": _object({"purged": {**_COUNT, "description": "How many messages were removed."}}),
    "Move": _object(
        {
            "to": {**_ref("Content"), "description": "Name of the other queue, which is made if it does not exist."},
            "max": {"type": "integer", "minimum": 1, "description": "Most messages to move; without it all."},
        },
        "max",
    ),
    "Moved": _object({"moved": {**_COUNT, "description": "How many messages were moved."}}),
    "Suspended": _object({"suspended": _BOOLEAN}),
    "Nothing": {**_object({}), "description": "An empty object, or no body at all."},
    "Batch": _object(
        {
            "epoch": _COUNT,
            "state": {"type": "string", "enum": ["live", "expired"]},
            "count": {**_COUNT, "description": "Messages."},
            "expires_in_s": {"type": "number", "minimum": 0},
        }
    ),
    "Subscription": _object(
        {
            "name": _ref("Content"),
            "owner": {**_ref("Content"), "description": "Principal that it belongs to; empty without a token."},
            "session": {"type": ["integer", "null"], "description": "The one that may use it; null if never claimed."},
            "settled": {**_COUNT, "description": "The highest settled epoch."},
            "batches": _list(_ref("Batch")),
        }
    ),
    "Job": _object(
        {
            "owner": {**_ref("Content"), "description": "Principal that it belongs to; empty without a token."},
            "name": _ref("Content"),
            "streams": _COUNT,
            "messages": {**_COUNT, "description": "Stored in its streams, or in its open or last finished epoch."},
            "note_bytes": _COUNT,
            "idle_s": {"type": "number", "minimum": 0, "description": "Seconds since the last use."},
            "finished_epoch": {"type": ["integer", "null"], "description": "The last one; null if there is none."},
            "open_epoch": {"type": ["integer", "null"], "description": "The one being written; null if there is none."},
            "unclaimed": {**_COUNT, "description": "Stored by earlier runs, and not come to by the present one."},
        }
    ),
    "Jobs": _object({"jobs": _list(_ref("Job"))}),
    "Subscriptions": _object({"subscriptions": _list(_ref("Subscription"))}),
    "Node": _object(
        {
            "id": _STRING,
            "name": {"type": ["string", "null"], "description": "Null until the node has been heard of."},
            "http": _ADDRESS,
            "rpc": _ADDRESS,
            "raft": _ADDRESS,
            "machine_version": {
                "type": ["integer", "null"],
                "description": "Newest behaviour that this node understands; null until it has been heard of.",
            },
            "state": {
                "type": "string",
                "enum": [
                    "leader",
                    "follower",
                    "candidate",
                    "recovering",
                    "installing",
                    "left",
                    "removed",
                    "unreachable",
                ],
            },
            "match_index": {"type": ["integer", "null"], "description": "Last log entry known to be on that node."},
            "connected": _BOOLEAN,
        },
        is_open=True,
    ),
    "Cluster": _object(
        {
            "self": _STRING,
            "leader": {"type": ["string", "null"], "description": "Id of the leader, or null while there is none."},
            "term": _COUNT,
            "commit_index": _COUNT,
            "applied_index": _COUNT,
            "quorum": {"type": "integer", "minimum": 1, "description": "Votes needed."},
            "has_quorum": _BOOLEAN,
            "durability": _STRING,
            "version": _STRING,
            "machine_version": {
                **_COUNT,
                "description": "Behaviour in use: the newest that all members understand, once they have moved to it.",
            },
            "problem": {
                "type": ["string", "null"],
                "description": "Why the node is in no cluster, or what keeps its cluster from electing a leader, if known.",
            },
            "nodes": _list(_ref("Node"), minItems=1),
        },
        is_open=True,
    ),
    "Join": _object(
        {
            "peer": {**_STRING, "description": "HTTP or Raft address of a member, HOST:PORT."},
            "discard_data": {**_BOOLEAN, "description": "Whether messages that this node holds may be thrown away."},
        },
        "discard_data",
    ),
    "Remove": _object(
        {
            "node": {**_STRING, "description": "Name or id of the member."},
            "force": {**_BOOLEAN, "description": "Whether to remove it though it is alive."},
        },
        "force",
    ),
    "Transfer": _object(
        {"to": {**_STRING, "description": "Name or id; without it the member that is most up to date."}}, "to"
    ),
    "LogLevel": _object({"level": {"type": "string", "enum": list(LOG_LEVELS)}}),
    "Check": _object({"name": _STRING, "ok": _BOOLEAN, "detail": _STRING, "figures": _CHECK_FIGURES}),
    "CheckUp": _object(
        {
            "checks": _list(_ref("Check")),
            "safe_to_stop": {**_BOOLEAN, "description": "Whether the other members could go on without this node."},
            "attention": _ref("Attention"),
        }
    ),
    "TakeSnapshot": _object(
        {
            "portable": {
                **_BOOLEAN,
                "default": True,
                "description": "Whether to copy all messages into one file as well, of which a backup can be made.",
            },
            "stale_ok": {
                **_BOOLEAN,
                "default": False,
                "description": "Whether a cut-off node may copy what it knew last.",
            },
        },
        "portable",
        "stale_ok",
    ),
    "Snapshot": _object(
        {
            "index": {**_COUNT, "description": "Last log entry that it holds."},
            "term": _COUNT,
            "members": {"type": "object", "additionalProperties": _STRING, "description": "Raft address by id."},
            "blocks": _COUNT,
            "size_bytes": _COUNT,
            "stale": _STALE,
        }
    ),
    **OPTION_SCHEMAS,
}
