"""Attributes of messages: names with strings, numbers or binary values, as a packed MessagePack map.

A message without attributes has empty bytes instead of an empty map. The names are in alphabetical order, so that equal
attributes have equal bytes; only the reason of a nack comes first, where the state machine replaces it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from .errors import LmqError
from .reasons import REASON_ATTRIBUTE

__all__ = [
    "ATTRIBUTES_MAX", "ATTRIBUTE_BYTES_MAX", "NAME_BYTES_MAX", "TRACE_ATTRIBUTES", "Attributes", "Value",
    "checked_attributes", "has_attribute", "pack_attributes", "unpack_attributes", "value_text",
]  # fmt: skip

Value = str | int | float | bytes
Attributes = Mapping[str, Value]

ATTRIBUTES_MAX: Final = 64
"""Most attributes of a message."""
ATTRIBUTE_BYTES_MAX: Final = 10 * 1024
"""Most bytes of a message's packed attributes, unless the node has another limit."""
NAME_BYTES_MAX: Final = 255
"""Most bytes of the name of an attribute."""
_INTEGERS: Final = range(-(1 << 63), 1 << 63)
TRACE_ATTRIBUTES: Final = ("traceparent", "tracestate")
"""Attributes that carry the trace of a message (W3C Trace Context); over HTTP they are headers of these names."""


def pack_attributes(attributes: Attributes | None, bytes_max: int | None = None) -> bytes:
    """Return packed attributes, empty for none.

    Args:
        attributes: names with strings, integers of 64 bits, finite floats or bytes.
        bytes_max: most bytes of the result; None for no limit.

    Raises:
        LmqError: ``bad_request``, ``too_large``.
    """
    if not attributes:
        return b""
    if len(attributes) > ATTRIBUTES_MAX:
        raise LmqError("too_large", f"a message has at most {ATTRIBUTES_MAX} attributes, not {len(attributes)}")
    for name, value in attributes.items():
        _check(name, value)
    try:
        packed: bytes = msgpack.packb(dict(sorted(attributes.items(), key=_place)), use_bin_type=True)
    except UnicodeEncodeError as exc:
        raise LmqError("bad_request", "the attributes hold half of a surrogate pair, which has no UTF-8 form") from exc
    if bytes_max is not None and len(packed) > bytes_max:
        raise LmqError("too_large", f"the attributes of a message have at most {bytes_max} bytes, not {len(packed)}")
    return packed


def _place(attribute: tuple[str, Value]) -> tuple[bool, str]:
    return attribute[0] != REASON_ATTRIBUTE, attribute[0]


def _check(name: Any, value: Any) -> None:
    if not isinstance(name, str):
        raise LmqError("bad_request", f"the name of an attribute must be a string, not {type(name).__name__}")
    if not 0 < len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX:
        raise LmqError("bad_request", f"the name of an attribute has 1 to {NAME_BYTES_MAX} bytes: {name[:80]!r}")
    kind = type(value)
    if kind is int:
        if value not in _INTEGERS:
            raise LmqError("bad_request", f"the attribute {name!r} is an integer of more than 64 bits")
    elif kind is float:
        if value * 0 != 0:
            raise LmqError("bad_request", f"the attribute {name!r} is not a finite number")
    elif kind is not str and kind is not bytes:
        raise LmqError(
            "bad_request", f"the attribute {name!r} must be a string, a number or bytes, not {kind.__name__}"
        )


def unpack_attributes(packed: bytes) -> dict[str, Value]:
    """Return the attributes that a node stores or delivers."""
    return msgpack.unpackb(packed, raw=False) if packed else {}


def value_text(value: Value) -> str:
    """Return a value as text: a string as it is, a number in decimal, a binary value in Base64."""
    if isinstance(value, str):
        return value
    return b64encode(value).decode("ascii") if isinstance(value, bytes) else repr(value)


def has_attribute(packed: bytes, name: str, text: str) -> bool:
    """Return whether packed attributes have one of this name whose text is `text`."""
    # Most attributes lack the name, which is found faster than they are unpacked.
    if name.encode() not in packed:
        return False
    attributes = unpack_attributes(packed)
    return name in attributes and value_text(attributes[name]) == text


def checked_attributes(packed: bytes, bytes_max: int) -> bytes:
    """Return attributes that a client packed, in the form in which messages have them.

    Raises:
        LmqError: ``bad_request`` if they are no map of names to values, ``too_large``.
    """
    if len(packed) > bytes_max:
        raise LmqError("too_large", f"the attributes of a message have at most {bytes_max} bytes, not {len(packed)}")
    try:
        # The sizes of containers are limited because a header of a few bytes can announce millions of elements.
        attributes = msgpack.unpackb(packed, raw=False, max_map_len=ATTRIBUTES_MAX, max_array_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as exc:
        reason = f"attributes must be a packed MessagePack map of at most {ATTRIBUTES_MAX} names and values"
        raise LmqError("bad_request", reason) from exc
    if not isinstance(attributes, dict):
        raise LmqError("bad_request", "attributes must be a packed MessagePack map")
    return pack_attributes(attributes, bytes_max)
