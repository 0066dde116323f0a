"""Validation and conversion of method arguments."""

from __future__ import annotations

import math
from typing import Any

from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, UnsupportedExtensionError, pack, pack_raw

__all__ = [
    "arity",
    "body_of",
    "content_types_of",
    "count",
    "key_of",
    "plain_item",
    "pushes_of",
    "text",
    "texts",
    "wait",
]

TYPE_BYTES_MAX = 4096
_WAIT_S_MAX = 10.0 * 365 * 86400


def arity(arguments: list[Any], least: int, most: int) -> None:
    """Refuse a wrong number of arguments, like an unknown method.

    Raises:
        LmqError: ``unknown_method``.
    """
    if not least <= len(arguments) <= most:
        raise LmqError("unknown_method", f"the method does not take {len(arguments)} arguments")


def text(value: object) -> bytes:
    """Return a string argument.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if type(value) is not bytes:
        raise LmqError("bad_arguments", "the argument must be a string")
    return value


def texts(value: object, count_max: int) -> list[bytes]:
    """Return a list of strings.

    Raises:
        LmqError: ``bad_arguments``, ``too_large``.
    """
    if type(value) is not list or any(type(item) is not bytes for item in value):
        raise LmqError("bad_arguments", "the argument must be a list of strings")
    if len(value) > count_max:
        raise LmqError("too_large", f"the list may have at most {count_max} entries, this has {len(value)}")
    return value


def count(value: object, most: int) -> int:
    """Return a number of messages from 1 to `most`.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if type(value) is not int or not 0 < value <= most:
        raise LmqError("bad_arguments", f"the argument must be an integer from 1 to {most}")
    return value


def wait(value: object) -> float:
    """Return a time to wait in seconds. A negative value means no wait.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if type(value) is not int and (type(value) is not float or math.isnan(value)):
        raise LmqError("bad_arguments", "the timeout must be a number of seconds")
    if value <= 0:
        return 0.0
    return value if value < _WAIT_S_MAX else _WAIT_S_MAX  # noqa: FURB136 - on the path of every pull


def body_of(content: object) -> bytes:
    """Return a pushed value in the stored form: old-specification MessagePack.

    Raises:
        UnsupportedExtensionError: the value contains a timestamp.
    """
    return pack_raw(content) if type(content) is bytes else _encoded(content)


def _encoded(content: object) -> bytes:
    try:
        return pack(content)
    except LmqError as exc:
        # Every decoded value can be encoded again, except this extension.
        raise UnsupportedExtensionError("a MessagePack timestamp is not supported") from exc


def plain_item(content: object) -> list[Any]:
    """Return a value of ``push_all`` for storage. Strings are stored unchanged, without a content type."""
    if type(content) is bytes:
        return [content, None, b"", None]
    return [_encoded(content), CONTENT_TYPE, b"", None]


def content_types_of(value: Any, contents: list[Any]) -> list[bytes | None] | None:
    """Return the content types of contents, each a string or nil. A content with a type must be a string: the unchanged body.

    An empty type means that the body has no type.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if value is None:
        return None
    if type(value) is not list or len(value) != len(contents):
        raise LmqError("bad_arguments", "content_types must be a list with a type or nil for each content")
    for content_type, content in zip(value, contents, strict=True):
        if content_type is not None and (type(content_type) is not bytes or len(content_type) > TYPE_BYTES_MAX):
            raise LmqError("bad_arguments", f"a content type must be a string of at most {TYPE_BYTES_MAX} bytes")
        if content_type is not None and type(content) is not bytes:
            raise LmqError("bad_arguments", "a content with a type must be a string: the body as it is")
    return value


def typed_body(content: Any, content_type: bytes | None) -> tuple[bytes, bytes | None]:
    """Return a content's stored body and content type for a type from `content_types_of`."""
    return (body_of(content), CONTENT_TYPE) if content_type is None else (content, content_type or None)


def key_of(value: object) -> bytes | None:
    """Return an idempotency key of 1 to 255 bytes, or None.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if value is None:
        return None
    if type(value) is not bytes or not 0 < len(value) <= 255:
        raise LmqError("bad_arguments", "an idempotency key must be a string of 1 to 255 bytes")
    return value


def pushes_of(method: bytes, arguments: list[Any]) -> int:
    """Return how many producer sequence numbers a push uses, counted like in its method."""
    if method == b"push_each":
        return len(arguments[1]) if len(arguments) == 2 and type(arguments[1]) is list else 0
    if method not in (b"push", b"push_many") or not 2 <= len(arguments) <= 3:
        return 0
    options = arguments[2] if len(arguments) == 3 else {}
    if type(options) is not dict:
        return 0
    if method == b"push":
        # A push with a key is identified by the key. A push that waits for room is not stored in the order of pushes.
        return 0 if options.get(b"key") is not None or options.get(b"wait") else 1
    contents = arguments[1]
    return len(contents) if type(contents) is list and options.get(b"keys") is None else 0
