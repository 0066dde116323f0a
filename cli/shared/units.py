"""Durations and sizes with units on command lines."""

from __future__ import annotations

import re
from typing import Final

import click

__all__ = ["duration", "size"]

_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_QUANTITY: Final = re.compile(r"(-?[0-9]+(?:\.[0-9]*)?|-?\.[0-9]+)\s*([a-z]*)")


def duration(text: str) -> float:
    """Return seconds: a number, or a number with the unit ms, s, m, h or d.

    Raises:
        click.BadParameter: the text is not a duration.
    """
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None or found[2] not in _SECONDS:
        raise click.BadParameter(
            f"{text!r} is not a duration: use seconds, or a number with ms, s, m, h or d, such as 90 or 5m"
        )
    return float(found[1]) * _SECONDS[found[2]]


def size(text: str) -> int:
    """Return bytes: a number, or a number with the unit K, M or G, powers of 1,024.

    Raises:
        click.BadParameter: the text is not a size.
    """
    found = _QUANTITY.fullmatch(text.strip().lower())
    unit = "" if found is None else found[2].removesuffix("ib")
    if found is None or unit not in _BYTES:
        raise click.BadParameter(f"{text!r} is not a size: use bytes, or a number with K, M or G, such as 500 or 64M")
    return round(float(found[1]) * _BYTES[unit])
