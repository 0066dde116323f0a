"""How much all queues hold together: exact sums, kept with every change, so that nobody has to visit the queues for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Totals", "property_bytes"]

_VALUE_BYTES = 64
"""What a value takes beside its text, about."""


class Totals:
    """The sums.

    Attributes:
        messages: messages, each part of a compound message counting as one.
        body_bytes: bytes of their bodies.
        property_bytes: bytes of the queues' own properties, see `property_bytes`.
        trait_bytes: about what messages with traits take beside body and headers.
    """

    __slots__ = ("body_bytes", "messages", "property_bytes", "trait_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.property_bytes = 0
        self.trait_bytes = 0


def property_bytes(properties: Mapping[str, Any]) -> int:
    """About what properties take in memory, in the form in which a queue keeps them."""
    return sum(_VALUE_BYTES + len(name) + _bytes_of(value) for name, value in properties.items())


def _bytes_of(value: Any) -> int:
    if isinstance(value, str):
        return _VALUE_BYTES + len(value)
    if isinstance(value, tuple):
        return _VALUE_BYTES + sum(map(_bytes_of, value))
    return 0
