"""Validated members of request bodies and query parameters of the ``/v1`` routes. All functions raise ``bad_request``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .....core import Role
from .....core.log.commands import Place
from .....wire.errors import LmqError
from .....wire.reasons import cut_reason
from ...server.requests.target import Query, check_name
from .media import content_of

if TYPE_CHECKING:
    from ...server.requests.request import Request

__all__ = [
    "after_of", "choice", "flag_of", "list_of", "number_of", "object_of", "other_queue", "page_of", "place_of", "reason_of",
    "seconds", "session_of", "text_of", "whole", "whole_member",
]  # fmt: skip

_SESSION_BYTES_MAX = 64
_PAGE_DEFAULT = 100
_OFFSET_MAX = 1_000_000_000
_PLACES = {"tail": Place.TAIL, "keep": Place.KEEP, "head": Place.HEAD}


def object_of(value: Any, known: set[str], where: str = "the body") -> dict[str, Any]:
    """Return an object with known members only. A body may be missing."""
    if value is None and where == "the body":
        return {}
    if not isinstance(value, dict):
        raise LmqError("bad_request", f"{where} must be an object, not {type(value).__name__}")
    unknown = value.keys() - known
    if unknown:
        raise LmqError(
            "bad_request", f"{where} has no member {min(map(str, unknown))[:80]!r}; it takes {', '.join(sorted(known))}"
        )
    return value


def list_of(body: dict[str, Any], name: str, count_max: int) -> list[Any]:
    """Return a member that is a list. Raise ``too_large`` if it is too long."""
    value = body.get(name)
    if not isinstance(value, list):
        raise LmqError("bad_request", f"{name} must be a list")
    if len(value) > count_max:
        raise LmqError("too_large", f"{name} has {len(value)} entries, more than {count_max}; send them in parts")
    return value


def text_of(value: Any, what: str, bytes_max: int) -> bytes | None:
    """Return a string of 1 to `bytes_max` bytes, or None."""
    if value is None:
        return None
    if not isinstance(value, (str, bytes)):
        raise LmqError("bad_request", f"{what} must be a string, not {type(value).__name__}")
    data = content_of(value, what)
    if not 0 < len(data) <= bytes_max:
        raise LmqError("bad_request", f"{what} has 1 to {bytes_max} bytes, not {len(data)}")
    return data


def attribute_filter(given: bytes | None) -> tuple[str, str] | None:
    """Return the name and the text of the attribute that messages must have, from ``NAME=VALUE``; None for none."""
    if given is None:
        return None
    name, equals, value = given.partition(b"=")
    if not name or not equals:
        raise LmqError("bad_request", "attribute must be NAME=VALUE")
    try:
        return name.decode(), value.decode()
    except UnicodeDecodeError as exc:
        raise LmqError("bad_request", "attribute must be UTF-8") from exc


def seconds(value: Any) -> float | None:
    """Return a time to wait in seconds, None for no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise LmqError("bad_request", "timeout must be a number of seconds, 0 or more, or null to wait without limit")
    return min(float(value), 1e9)


def number_of(value: Any, what: str) -> float | None:
    """Return a finite number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
        raise LmqError("bad_request", f"{what} must be a number")
    return float(min(value, 1e18)) if value > 0 else float(max(value, -1e18))


def place_of(body: dict[str, Any], where: str = "the body") -> Place:
    """Return the place of a message that is returned to its queue; by default ``tail``."""
    value = body.get("place", "tail")
    if value not in _PLACES:
        raise LmqError("bad_request", f"place of {where} must be one of {', '.join(_PLACES)}")
    return _PLACES[value]


def reason_of(body: dict[str, Any], where: str = "the body") -> bytes:
    """Return why messages are returned to their queue, cut to its most bytes; empty if the body has no reason."""
    value = body.get("reason")
    if value is None:
        return b""
    if not isinstance(value, (str, bytes)):
        raise LmqError("bad_request", f"reason of {where} must be a string, not {type(value).__name__}")
    return cut_reason(value)


def other_queue(request: Request, body: dict[str, Any], member: str) -> bytes:
    """Return another queue that a request names. Raise ``forbidden`` if the client may not write to it."""
    if member not in body:
        raise LmqError("bad_request", f"{member} must hold the name of a queue")
    name = check_name(content_of(body[member], member))
    request.principal.require(Role.WRITE, name)
    return name


def after_of(body: dict[str, Any]) -> bytes | None:
    """Return the id of the last message that has arrived, None if the body does not name it."""
    after = body.get("after")
    return b"" if after in ("", b"") else text_of(after, "after", _SESSION_BYTES_MAX)


def session_of(body: dict[str, Any]) -> bytes:
    """Return the session that a body names."""
    session = text_of(body.get("session"), "session", _SESSION_BYTES_MAX)
    if session is None:
        raise LmqError("bad_request", "the body names no session")
    return session


def flag_of(value: Any, what: str) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise LmqError("bad_request", f"{what} must be true or false")
    return value


def whole_member(value: Any, name: str, least: int, most: int) -> int:
    """Return a member that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise LmqError("bad_request", f"{name} must be a whole number from {least} to {most}")
    return value


def whole(query: Query, name: str, least: int, most: int, default: int) -> int:
    """Return a query parameter that is a whole number."""
    text = query.get(name.encode())
    if text is None:
        return default
    if not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise LmqError("bad_request", f"{name} must be a whole number from {least} to {most}")
    return int(text)


def page_of(query: Query, most: int) -> tuple[int, int]:
    """Return the offset and the limit of the requested part of a list."""
    return whole(query, "offset", 0, _OFFSET_MAX, 0), whole(query, "limit", 1, most, _PAGE_DEFAULT)


def choice(query: Query, name: str, choices: tuple[str, ...], default: str) -> str:
    """Return a query parameter that is one of several words."""
    text = query.get(name.encode())
    if text is None:
        return default
    word = text.decode(errors="replace")
    if word not in choices:
        raise LmqError("bad_request", f"{name} must be one of {', '.join(choices)}, not {word[:40]!r}")
    return word
