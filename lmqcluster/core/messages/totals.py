"""Running totals over all queues, updated on every change so that reading them is O(1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Totals", "property_bytes"]

_VALUE_BYTES = 64
"""Approximate bytes of a value beside its text."""


class Totals:
    """The totals.

    Attributes:
        messages: messages, each part of a compound message counting as one.
        body_bytes: bytes of their bodies.
        property_bytes: bytes of the queues' own properties, see `property_bytes`.
        trait_bytes: approximate memory of messages with traits beside body and headers.
    """

    __slots__ = ("body_bytes", "messages", "property_bytes", "trait_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.property_bytes = 0
        self.trait_bytes = 0


def property_bytes(properties: Mapping[str, Any]) -> int:
    """Return the approximate memory of properties in the form in which a queue keeps them."""
    return sum(_VALUE_BYTES + len(name) + _bytes_of(value) for name, value in properties.items())


def _bytes_of(value: Any) -> int:
    if isinstance(value, str):
        return _VALUE_BYTES + len(value)
    if isinstance(value, tuple):
        return _VALUE_BYTES + sum(map(_bytes_of, value))
    return 0
