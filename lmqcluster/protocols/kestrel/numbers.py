"""Integers of 32 bits as Kestrel reads them."""

from __future__ import annotations

import re

__all__ = ["int32", "to_int32"]

_INTEGER = re.compile(rb"[+-]?[0-9]{1,32}\Z")


def int32(text: bytes) -> int | None:
    """The number; None if the text is none, or has more than 32 bits."""
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -(1 << 31) <= number < 1 << 31 else None


def to_int32(text: bytes) -> int:
    """As `int32`.

    Raises:
        ValueError: it is none.
    """
    number = int32(text)
    if number is None:
        raise ValueError("not an integer of 32 bits")
    return number
