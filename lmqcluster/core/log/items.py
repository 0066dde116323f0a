"""The part of a command that describes a message to store, without delivery options."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..messages.message import Headers

__all__ = ["Item", "checked_item"]


class Item(NamedTuple):
    """One message to store."""

    content: bytes
    content_type: bytes | None
    headers: Headers
    key: bytes | None


def checked_item(item: list[Any]) -> Item:
    """Return a message of a command as an `Item`.

    Raises:
        ValueError: it is malformed.
    """
    content, content_type, headers, key = item
    if type(content) is not bytes or not isinstance(content_type, (bytes, type(None))):
        raise ValueError("a body must be bytes and a content type bytes or None")
    if not isinstance(key, (bytes, type(None))):
        raise ValueError("an idempotency key must be bytes or None")
    return Item(content, content_type, _checked_headers(headers), key)


def _checked_headers(headers: Any) -> Headers:
    if headers == []:
        return ()
    checked: Headers = tuple((name, value) for name, value in headers)
    if any(type(text) is not bytes for header in checked for text in header):
        raise ValueError("header names and values must be bytes")
    return checked
