"""JSON in LMQ's format: no whitespace, and numbers like C's ``%.15g``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

__all__ = ["dumps", "key_text", "number"]


def number(value: float) -> str:
    """Return a number in the format ``%.15g``: ``5.0`` is ``5``, ``1e100`` is ``1e+100``; integers in full."""
    if isinstance(value, int):
        return str(value)
    # JSON has no notation for infinity and not-a-number.
    return f"{value:.15g}" if math.isfinite(value) else "0"


def key_text(name: bytes) -> str:
    r"""Return a queue name for use in JSON; bytes that are not UTF-8 become ``\xNN``, so that the document stays valid."""
    return name.decode("utf-8", "backslashreplace")


def dumps(value: Any) -> str:
    """Encode mappings, sequences, strings, byte strings (like `key_text`), numbers, booleans and None."""
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, bytes):
        return encode_basestring(key_text(value))
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{dumps(key)}:{dumps(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
