"""Sessions and locks in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from ....node.queues.sending.times import SESSION_S_MAX, WAIT_S_MAX
from .parts import NAME, NAME_VALUE, PAGE, Json, operation

__all__ = ["SESSION_ID", "SESSION_SCHEMAS", "WAIT", "session_paths"]

SESSION_ID: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 64, "description": "Id of a session."}
WAIT: Final[Json] = {"type": "number", "maximum": WAIT_S_MAX}
_BOOLEAN: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_SECONDS: Final[Json] = {"type": "number", "minimum": 0}
_TOKEN: Final[Json] = {"type": ["integer", "null"], "minimum": 1}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


def _answer(properties: Json) -> Json:
    return _object(properties, *properties)


def _page(name: str, row: str) -> Json:
    rows = {"type": "array", "items": {"$ref": f"#/components/schemas/{row}"}}
    return _answer({name: rows, "total": _COUNT, "stale": _BOOLEAN})


_TTL: Final[Json] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": SESSION_S_MAX,
    "description": "For how many seconds after its last renewal the session lives.",
}

SESSION_SCHEMAS: Final[Json] = {
    "OpenSession": _object({"ttl": _TTL}, "ttl"),
    "Session": _answer({"session": SESSION_ID}),
    "Renewed": _answer({"alive": {**_BOOLEAN, "description": "False if it has ended."}}),
    "Ended": _answer({"ended": {**_BOOLEAN, "description": "False if it had ended before."}}),
    "InSession": _object({"session": SESSION_ID}, "session"),
    "Left": _answer({"left": {**_BOOLEAN, "description": "False if it stood in no line."}}),
    "Lock": _object(
        {
            "session": SESSION_ID,
            "wait": {**WAIT, "minimum": 0, "description": "Seconds to wait in line; 0 by default."},
        },
        "session",
    ),
    "Locked": _answer({"token": {**_TOKEN, "description": "The fencing token; null if another session has the lock."}}),
    "Freed": _answer({"freed": {**_BOOLEAN, "description": "False if the session did not have it."}}),
    "Sessions": _page("sessions", "SessionRow"),
    "SessionRow": _answer(
        {
            "session": SESSION_ID,
            "owner": {**NAME_VALUE, "description": "The principal that it belongs to; empty without a token."},
            "ttl_s": _SECONDS,
            "ends_in_s": _SECONDS,
            "leased": {**_COUNT, "description": "Deliveries that it holds; of over 100, some may be settled."},
            "locks": {**_COUNT, "description": "Locks that it has, or waits for."},
            "queues": {**_COUNT, "description": "Exclusive queues that it has, or waits for."},
        },
    ),
    "Locks": _page("locks", "LockRow"),
    "LockRow": _answer({"name": NAME_VALUE, "session": SESSION_ID, "token": _TOKEN, "waiting": _COUNT}),
    "LockState": _answer(
        {
            "held": _BOOLEAN,
            "token": {**_TOKEN, "description": "The token of the session that has it."},
            "waiting": {"type": "integer", "minimum": 0, "description": "Sessions that wait for it."},
            "stale": _BOOLEAN,
        }
    ),
}

_ID: Final[Json] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "Session.",
    "schema": {"type": "string"},
}


def session_paths() -> Json:
    """Return the paths of sessions and locks."""
    lock = {**NAME, "description": "Name of the lock: 1 to 255 bytes, percent-encoded."}
    end = "End a session: its leases return to their places, its locks and turns pass on"
    leave = "Give up the turn, or the place in line, at an exclusive queue"
    return {
        "/v1/sessions": {
            "get": operation("listSessions", "A page of all sessions", "Sessions", parameters=PAGE),
            "post": operation("openSession", "Begin a session", "Session", body="OpenSession"),
        },
        "/v1/sessions/{id}": {"parameters": [_ID], "delete": operation("endSession", end, "Ended")},
        "/v1/sessions/{id}/renew": {
            "parameters": [_ID],
            "post": operation("renewSession", "Let a session live its whole time from now", "Renewed"),
        },
        "/v1/queues/{name}/leave": {
            "parameters": [NAME],
            "post": operation("leaveQueue", leave, "Left", body="InSession"),
        },
        "/v1/locks": {"get": operation("listLocks", "A page of the locks that are held", "Locks", parameters=PAGE)},
        "/v1/locks/{name}": {
            "parameters": [lock],
            "get": operation("getLock", "Whether a lock is held", "LockState"),
            "post": operation("acquireLock", "Get a lock, waiting in line for it", "Locked", body="Lock"),
            "delete": operation("freeLock", "Free a lock, or leave its line", "Freed", body="InSession"),
        },
    }
