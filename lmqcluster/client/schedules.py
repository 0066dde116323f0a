"""Schedules as callers give them, and as the client returns them."""

from __future__ import annotations

from typing import Any, Literal

from lmqcluster.wire.attributes import unpack_attributes

from .options import PushOptions, packed_push_options
from .transport.replies import mapping, name_text
from .transport.requests import Name, name_bytes

__all__ = ["Missed", "optional_schedule", "schedule_options", "schedule_page"]

Missed = Literal["skip", "once"]
"""The policy for missed due times: they are dropped, or pushed as one message."""
_NAMES = ("name", "queue", "owner")


def schedule_options(
    rule: dict[str, float | str | None], content_type: Name | None, options: PushOptions
) -> dict[str, Any]:
    """Return the options of a schedule that are given, as a request has them.

    Raises:
        TypeError: an option of the message is unknown.
        ValueError: the message has an option that a schedule gives itself.
    """
    packed = packed_push_options(options)
    for name in ("key", "due", "wait"):
        if name in packed:
            raise ValueError(f"the message of a schedule has no {name}")
    if content_type is not None:
        packed["content_type"] = name_bytes(content_type)
    return packed | {name: value for name, value in rule.items() if value is not None}


def schedule_page(result: Any) -> tuple[list[dict[str, Any]], bytes | None]:
    """Decode a page of schedules, and the name after which the next page begins."""
    rows, following = result
    return [_schedule(row) for row in rows], following


def optional_schedule(result: Any) -> dict[str, Any] | None:
    """Decode a schedule or nil."""
    return None if result is None else _schedule(result)


def _schedule(row: dict[bytes, Any]) -> dict[str, Any]:
    content = row.pop(b"content", None)
    attributes = unpack_attributes(row.pop(b"attributes"))
    names = {name: name_text(row.pop(name.encode())) for name in _NAMES}
    shown = {**names, **mapping(row), "attributes": attributes}
    return shown if content is None else {**shown, "content": content}
