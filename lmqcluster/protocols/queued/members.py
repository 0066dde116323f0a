"""Validated members of request bodies."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from ...wire.errors import LmqError

__all__ = ["contents_of", "count_of", "flag_of", "list_of", "number_of", "object_of", "text_of"]

_MISSING: Final = object()


def number_of(given: dict[str, Any], name: str, low: int, high: int, default: Any = _MISSING) -> int:
    """Return an integer member from `low` to `high`. It is required unless there is a default.

    Raises:
        LmqError: ``bad_request``.
    """
    value = given.get(name)
    if value is None and default is not _MISSING:
        return int(default)
    if type(value) is not int or not low <= value <= high:
        raise LmqError("bad_request", f"{name} must be an integer from {low} to {high}")
    return value


def count_of(given: dict[str, Any], name: str, default: Any = _MISSING) -> int:
    """Return a member that is a count."""
    return number_of(given, name, 0, (1 << 64) - 1, default)


def flag_of(given: dict[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a boolean member, or the default if it is absent or null."""
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise LmqError("bad_request", f"{name} must be true or false")
    return value


def list_of(given: dict[str, Any], name: str) -> list[Any]:
    """Return a member that is a list."""
    value = given.get(name)
    if not isinstance(value, list):
        raise LmqError("bad_request", f"{name} must be a list")
    return value


def object_of(value: Any, what: str) -> dict[str, Any]:
    """Return a value that is an object."""
    if not isinstance(value, dict):
        raise LmqError("bad_request", f"{what} must be an object")
    return value


def text_of(given: dict[str, Any], name: str) -> bytes:
    """Return a text member as UTF-8."""
    value = given.get(name)
    if isinstance(value, str):
        return _encoded(value, name)
    raise LmqError("bad_request", f"{name} must be a string")


def contents_of(message: dict[str, Any]) -> bytes:
    """Return the contents of a message to store: bytes, a string, or Base64 as ``contents_base64``.

    Raises:
        LmqError: ``bad_request``.
    """
    value = message.get("contents", _MISSING)
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _encoded(value, "contents")
    coded = message.get("contents_base64")
    if value is _MISSING and isinstance(coded, str):
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise LmqError("bad_request", f"contents_base64 is not Base64: {exc}") from exc
    raise LmqError("bad_request", "contents of a message must be a string or bytes")


def _encoded(value: str, name: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise LmqError("bad_request", f"{name} holds half of a surrogate pair, which has no UTF-8 form") from exc
