"""The part of a command that describes a message to store, without delivery options."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..messages.message import Headers

__all__ = ["Item", "checked_item"]


class Item(NamedTuple):
    """One message to store.

    Attributes:
        content: the body.
        content_type: None if the push had none.
        attributes: packed, empty for none.
        key: the idempotency key, None for none.
        headers: request headers; those that the hooks of the queue name become attributes.
    """

    content: bytes
    content_type: bytes | None = None
    attributes: bytes = b""
    key: bytes | None = None
    headers: Headers = ()

    def is_bare(self) -> bool:
        """Return whether it has neither content type nor attributes nor headers nor key."""
        return self.content_type is None and self.key is None and not self.attributes and not self.headers


def checked_item(content: Any, content_type: Any, attributes: Any, key: Any, headers: Any = ()) -> Item:
    """Return a message of a command, given by its fields, as an `Item`.

    Raises:
        ValueError: it is malformed.
    """
    if type(content) is not bytes or (content_type is not None and type(content_type) is not bytes):
        raise ValueError("a body must be bytes and a content type bytes or None")
    if key is not None and type(key) is not bytes:
        raise ValueError("an idempotency key must be bytes or None")
    if type(attributes) is not bytes:
        raise ValueError("attributes must be bytes")
    return Item(content, content_type, attributes, key, _checked_headers(headers) if headers else ())


def _checked_headers(headers: Any) -> Headers:
    checked: Headers = tuple((name, value) for name, value in headers)
    if any(type(text) is not bytes for header in checked for text in header):
        raise ValueError("header names and values must be bytes")
    return checked
