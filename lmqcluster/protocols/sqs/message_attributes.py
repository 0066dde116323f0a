"""Attributes of messages: their checks and digests, and the form in which they are stored.

A ``String`` is stored as a text, a ``Binary`` as bytes. Any other type is stored as its text or bytes too, and named in one
more attribute, so that it comes back exactly. Attributes that other protocols gave a message show their own types.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Mapping
from hashlib import md5
from typing import Any, Final, NamedTuple

from ...wire.attributes import NAME_BYTES_MAX, Value
from ...wire.xml_text import is_xml_text
from .errors import INVALID_CONTENTS, INVALID_VALUE, ErrorKind, SqsError, invalid_value
from .shapes import RawAttribute

__all__ = [
    "DEDUPLICATION", "HIDDEN", "TRACE_HEADER", "Attribute", "check_text", "checked", "checked_trace", "md5_of",
    "of_stored", "selected", "shown", "size_of", "stored",
]  # fmt: skip

TYPES: Final = "sqs.types"
"""Attribute with the types that do not follow from the values: JSON, types by name."""
TRACE_HEADER: Final = "AWSTraceHeader"
DEDUPLICATION: Final = "sqs.deduplication_id"
"""Attribute of a message of a FIFO queue with its deduplication id; empty if that is the hash of the body."""
HIDDEN: Final = frozenset((TYPES, TRACE_HEADER, DEDUPLICATION))
_COUNT_MAX: Final = 10
_TYPE_CHARACTERS_MAX: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_RESERVED: Final = re.compile(r"(?i:aws\.|amazon\.)|\.")
_TYPE: Final = re.compile(r"(String|Number|Binary)(?:\..*)?", re.DOTALL)
_EVERYTHING: Final = frozenset(("All", ".*", "*"))
_LENGTH: Final = struct.Struct(">I")


class Attribute(NamedTuple):
    """One attribute, with its type as clients of SQS know it."""

    data_type: str
    value: str | bytes

    def shown(self) -> dict[str, str]:
        """Return the attribute as an answer has it."""
        if isinstance(self.value, bytes):
            return {"DataType": self.data_type, "BinaryValue": base64.b64encode(self.value).decode("ascii")}
        return {"DataType": self.data_type, "StringValue": self.value}


def check_text(text: str, kind: ErrorKind = INVALID_CONTENTS) -> None:
    """Refuse characters that XML cannot carry.

    Raises:
        SqsError: of a kind, by default ``InvalidMessageContents``.
    """
    if not is_xml_text(text):
        raise SqsError(
            kind,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD"
            " | #x10000 to #x10FFFF",
        )


def size_of(given: Mapping[str, RawAttribute]) -> int:
    """Return the bytes that attributes count towards the size of their message."""
    size = 0
    for name, one in given.items():
        size += len(name.encode("utf-8", "surrogatepass")) + len((one.data_type or "").encode("utf-8", "surrogatepass"))
        size += len((one.text or "").encode("utf-8", "surrogatepass")) if one.data is None else len(one.data)
    return size


def checked(given: Mapping[str, RawAttribute]) -> dict[str, Attribute]:
    """Return the attributes of a message that a client sends.

    Raises:
        SqsError: ``InvalidParameterValue``.
    """
    if len(given) > _COUNT_MAX:
        raise invalid_value(f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{_COUNT_MAX}].")
    return {name: _checked(name, one) for name, one in given.items()}


def _checked(name: str, given: RawAttribute) -> Attribute:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise invalid_value(f"A message attribute name must have 1 to {NAME_BYTES_MAX} characters.")
    if _NAME.fullmatch(name) is None:
        raise invalid_value(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods, hyphens and"
            " underscores. "
        )
    if _RESERVED.match(name) or name.endswith(".") or name in (TYPES, DEDUPLICATION):
        raise invalid_value(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )
    data_type = given.data_type
    if not data_type:
        raise invalid_value(f"The message attribute '{name}' must contain a non-empty attribute type.")
    match = _TYPE.fullmatch(data_type)
    if match is None or len(data_type) > _TYPE_CHARACTERS_MAX:
        raise invalid_value(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported type"
            " prefixes: Binary, Number, String."
        )
    check_text(data_type, INVALID_VALUE)
    if given.has_list:
        raise invalid_value("Message attribute list values in SendMessage operation are not supported.")
    value = given.data if match[1] == "Binary" else given.text
    if not value:
        raise invalid_value(f"Message (user) attribute '{name}' must contain a non-empty value of type '{match[1]}'.")
    if isinstance(value, str):
        check_text(value, INVALID_VALUE)
    return Attribute(data_type, value)


def checked_trace(given: Mapping[str, RawAttribute]) -> str | None:
    """Return the trace header among system attributes that a client sends; None if there is none.

    Raises:
        SqsError: ``InvalidParameterValue``: another attribute, another type, or a character that XML cannot carry.
    """
    for name, one in given.items():
        if name != TRACE_HEADER:
            raise invalid_value(f"Message system attribute name '{name[:100]}' is invalid.")
        if one.data_type != "String" or not one.text:
            raise invalid_value(f"Message system attribute '{TRACE_HEADER}' must be a non-empty String.")
        check_text(one.text, INVALID_VALUE)
        return one.text
    return None


def md5_of(attributes: Mapping[str, Attribute]) -> str:
    """Return the digest by which SDKs compare what they sent and received."""
    digest = md5(usedforsecurity=False)
    for name, (data_type, value) in sorted(attributes.items()):
        is_binary = isinstance(value, bytes)
        for part in (name.encode(), data_type.encode()):
            digest.update(_LENGTH.pack(len(part)) + part)
        data = value if isinstance(value, bytes) else value.encode()
        digest.update(b"\2" if is_binary else b"\1")
        digest.update(_LENGTH.pack(len(data)) + data)
    return digest.hexdigest()


def stored(attributes: Mapping[str, Attribute], trace: str | None, deduplication: str | None) -> dict[str, Value]:
    """Return the attributes of a message in their stored form; the last two are None if it has none."""
    values: dict[str, Value] = {name: one.value for name, one in attributes.items()}
    types = {name: one.data_type for name, one in attributes.items() if one.data_type not in ("String", "Binary")}
    if TRACE_HEADER in attributes:
        types[TRACE_HEADER] = attributes[TRACE_HEADER].data_type
    elif trace is not None:
        values[TRACE_HEADER] = trace
    if types:
        values[TYPES] = json.dumps(types, separators=(",", ":"), sort_keys=True)
    if deduplication is not None:
        values[DEDUPLICATION] = deduplication
    return values


def of_stored(values: Mapping[str, Value]) -> tuple[dict[str, Attribute], dict[str, Value]]:
    """Return the attributes of a stored message that clients see, and its hidden ones."""
    types = _types_of(values.get(TYPES))
    seen: dict[str, Attribute] = {}
    hidden: dict[str, Value] = {}
    for name, value in values.items():
        if name in HIDDEN and not (name == TRACE_HEADER and name in types):
            hidden[name] = value
        elif isinstance(value, (str, bytes)):
            usual = "Binary" if isinstance(value, bytes) else "String"
            kind = types.get(name, usual)
            is_right = kind.startswith("Binary") is isinstance(value, bytes)
            seen[name] = Attribute(kind if is_right else usual, value)
        else:
            seen[name] = Attribute("Number", repr(value))
    return seen, hidden


def _types_of(text: Value | None) -> Mapping[str, str]:
    """Return the stored types; those that another client may have written are ignored if they are malformed."""
    if not isinstance(text, str):
        return {}
    try:
        types: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(types, dict):
        return {}
    return {name: kind for name, kind in types.items() if isinstance(kind, str)}


def selected(attributes: Mapping[str, Attribute], names: Iterable[str]) -> dict[str, Attribute]:
    """Return the attributes that a receive asks for: by name, ``prefix.*``, or all."""
    wanted = set(names)
    if not wanted:
        return {}
    if wanted & _EVERYTHING:
        return dict(attributes)
    prefixes = tuple(name[:-2] for name in wanted if name.endswith(".*"))
    return {name: one for name, one in attributes.items() if name in wanted or name.startswith(prefixes)}


def shown(attributes: Mapping[str, Attribute]) -> dict[str, dict[str, str]]:
    """Return attributes as an answer has them."""
    return {name: one.shown() for name, one in attributes.items()}
