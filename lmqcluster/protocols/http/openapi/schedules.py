"""Schedules in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from ....core.log.commands import ScheduleResult
from ....core.schedules.definition import BODY_BYTES_MAX, JITTER_US_MAX
from ....node.queues.schedules.cron import CRON_BYTES_MAX, ZONE_BYTES_MAX
from ....node.queues.schedules.request import INTERVAL_S_MAX, MISSED
from ....node.queues.schedules.schedules import PAGE_MAX
from .options import ATTRIBUTES, PUSH_MEMBERS
from .parts import NAME_VALUE, Json, operation, query

__all__ = ["SCHEDULE_SCHEMAS", "schedule_paths"]

_BOOLEAN: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_CONTENT: Final[Json] = {"$ref": "#/components/schemas/Content"}
_ATTRIBUTES: Final[Json] = ATTRIBUTES
_MESSAGE: Final[Json] = {
    "content": {**_CONTENT, "description": f"The body, at most {BODY_BYTES_MAX} bytes."},
    "content_type": {"type": "string", "minLength": 1},
    "attributes": {**_ATTRIBUTES, "description": "The cluster adds schedule and scheduled_at to each message."},
    **{name: PUSH_MEMBERS[name] for name in ("delay", "ttl", "priority", "label", "group")},
}
_RULE: Final[Json] = {
    "queue": {"type": "string", "minLength": 1, "description": "Where the messages are pushed."},
    "interval": {"type": ["number", "null"], "minimum": 1, "maximum": INTERVAL_S_MAX, "description": "Seconds."},
    "cron": {
        "type": ["string", "null"],
        "maxLength": CRON_BYTES_MAX,
        "description": "A cron expression of five fields, or of six with seconds first; instead of an interval.",
    },
    "zone": {
        "type": ["string", "null"],
        "maxLength": ZONE_BYTES_MAX,
        "description": "The IANA time zone of the cron expression; UTC by default.",
    },
    "start": {"type": ["number", "null"], "description": "Unix time; no due time is earlier."},
    "end": {"type": ["number", "null"], "description": "Unix time; no due time is later."},
    "jitter": {
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": JITTER_US_MAX / 1e6,
        "description": "Each message is pushed up to this many seconds after its due time; at most the interval.",
    },
    "missed": {
        "type": ["string", "null"],
        "enum": [*MISSED, None],
        "description": "Drop due times that were missed, or push once for all of them.",
    },
}
_TIME: Final[Json] = {"type": ["number", "null"]}
_SHOWN: Final[Json] = {
    "name": NAME_VALUE,
    "queue": NAME_VALUE,
    "owner": NAME_VALUE,
    "interval_s": _TIME,
    "cron": {"type": ["string", "null"]},
    "zone": {"type": ["string", "null"]},
    "start_s": _TIME,
    "end_s": _TIME,
    "jitter_s": {"type": "number", "minimum": 0},
    "missed": {"type": "string", "enum": [*MISSED]},
    "paused": _BOOLEAN,
    "ended": {**_BOOLEAN, "description": "Whether no due time follows."},
    "next_s": {**_TIME, "description": "The next due time."},
    "last_s": {**_TIME, "description": "Due time of the last message that was pushed."},
    "pushed": _COUNT,
    "missed_total": _COUNT,
    "refused": {**_COUNT, "description": "Messages that the queue or the cluster had no room for."},
    "created_s": {"type": "number"},
    "content_type": {"type": ["string", "null"]},
    "attributes": _ATTRIBUTES,
    "options": {"type": "object", "description": "The options that are set: delay, ttl, priority, label, group."},
    "size": {**_COUNT, "description": "Bytes of the body."},
}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


_RESULTS: Final[list[str]] = [one.name.lower() for one in ScheduleResult]
_ONE: Final[Json] = {**_SHOWN, "content": _CONTENT, "stale": _BOOLEAN}
_PAGE: Final[Json] = {
    "schedules": {"type": "array", "items": {"$ref": "#/components/schemas/ScheduleRow"}},
    "next": {
        "anyOf": [
            {"$ref": "#/components/schemas/Text"},
            {"$ref": "#/components/schemas/Binary"},
            {"type": "null"},
        ],
        "description": "The name after which the next page begins; null on the last page.",
    },
    "total": {**_COUNT, "description": "Schedules of all clients."},
    "stale": _BOOLEAN,
}

SCHEDULE_SCHEMAS: Final[Json] = {
    "SetSchedule": _object({**_RULE, **_MESSAGE}, "queue", "content"),
    "ScheduleSet": _object({"result": {"type": "string", "enum": _RESULTS}}, "result"),
    "Schedule": _object(_ONE, *_ONE),
    "ScheduleRow": _object(_SHOWN, *_SHOWN),
    "Schedules": _object(_PAGE, *_PAGE),
}

_NAME: Final[Json] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Name of the schedule: UTF-8 text of 1 to 255 bytes, percent-encoded.",
    "schema": {"type": "string", "minLength": 1},
}


def schedule_paths() -> Json:
    """Return the paths of schedules."""
    page = [
        query("after", "Only schedules behind this name.", {"type": "string"}),
        query("limit", "Most rows.", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100}),
    ]
    one = "/v1/schedules/{name}"
    verbs: dict[str, tuple[str, str]] = {
        "pause": ("pauseSchedule", "Stop a schedule until it is resumed"),
        "resume": ("resumeSchedule", "Continue a paused schedule; what passed in between was missed"),
        "run": ("runSchedule", "Push the message of a schedule now, in addition to its due times"),
    }
    paths: dict[str, Any] = {
        "/v1/schedules": {
            "get": operation("listSchedules", "A page of schedules by name", "Schedules", parameters=page)
        },
        one: {
            "parameters": [_NAME],
            "get": operation("getSchedule", "A schedule with its message", "Schedule"),
            "put": operation("setSchedule", "Create a schedule, or replace it", "ScheduleSet", body="SetSchedule"),
            "delete": operation("deleteSchedule", "Delete a schedule", None),
        },
    }
    for verb, (name, summary) in verbs.items():
        paths[f"{one}/{verb}"] = {"parameters": [_NAME], "post": operation(name, summary, None)}
    return paths
