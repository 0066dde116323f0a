"""32-bit integers in Kestrel's notation."""

from __future__ import annotations

import re

__all__ = ["int32", "to_int32"]

_INTEGER = re.compile(rb"[+-]?[0-9]{1,32}\Z")


def int32(text: bytes) -> int | None:
    """Return the number; None if the text is not an integer or exceeds 32 bits."""
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < 1 << 31 else None


def to_int32(text: bytes) -> int:
    """Return the number, like `int32`, but raise on bad input.

    Raises:
        ValueError: the text is not a 32-bit integer.
    """
    number = int32(text)
    if number is None:
        raise ValueError("not an integer of 32 bits")
    return number
