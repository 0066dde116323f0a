"""Options of pushes, pulls and settlements in maps among the arguments of methods."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from ....core.log.commands import Place
from ....node.queues.sending.push_items import TEXT_BYTES_MAX, PushOptions
from ....wire.attributes import checked_attributes
from ....wire.errors import LmqError
from ....wire.reasons import cut_reason

__all__ = [
    "MESSAGE_OPTIONS", "PUSH_OPTIONS", "attribute_of", "attributes_of", "flag_of", "given", "integer_of", "label_of", "place_of",
    "push_options", "reason_of", "seconds_of",
]  # fmt: skip

PUSH_OPTIONS: Final = frozenset((b"delay", b"due", b"ttl", b"priority", b"label", b"group"))
"""Options that control the delivery of a message."""
MESSAGE_OPTIONS: Final = PUSH_OPTIONS | {b"attributes"}
"""Options of a message in a batch."""
_PLACES: Final = {b"tail": Place.TAIL, b"keep": Place.KEEP, b"head": Place.HEAD}


def given(value: object, known: AbstractSet[bytes]) -> dict[bytes, Any]:
    """Return a map of options without those that are nil.

    Raises:
        LmqError: ``bad_arguments`` if it is not a map, or has an unknown option.
    """
    if type(value) is not dict:
        raise LmqError("bad_arguments", "options must be a map")
    unknown = value.keys() - known
    if unknown:
        raise LmqError("bad_arguments", f"unknown option {min(map(str, unknown))}")
    return {name: option for name, option in value.items() if option is not None}


def push_options(options: dict[bytes, Any]) -> PushOptions | None:
    """Return the delivery options of a message, None if there are none.

    Raises:
        LmqError: ``bad_arguments`` if a value has the wrong type, ``bad_request`` if it is out of range.
    """
    if PUSH_OPTIONS.isdisjoint(options):
        return None
    wanted = PushOptions(
        delay_s=seconds_of(options, b"delay"),
        due_s=seconds_of(options, b"due"),
        ttl_s=seconds_of(options, b"ttl"),
        priority=integer_of(options, b"priority") or 0,
        label=label_of(options, b"label"),
        group=label_of(options, b"group"),
    )
    wanted.check()
    return wanted


def attributes_of(options: dict[bytes, Any], bytes_max: int) -> bytes:
    """Return packed attributes in the form in which messages have them, empty if the option is absent.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``, ``too_large``.
    """
    value = options.get(b"attributes")
    if value is None:
        return b""
    if type(value) is not bytes:
        raise LmqError("bad_arguments", "attributes must be a string: a packed MessagePack map of names to values")
    return checked_attributes(value, bytes_max)


def attribute_of(value: Any) -> tuple[str, str] | None:
    """Return name and text of the attribute that messages must have, or None.

    Raises:
        LmqError: ``bad_arguments``.
    """
    if value is None:
        return None
    if type(value) is not list or len(value) != 2 or not all(type(one) is bytes for one in value):
        raise LmqError("bad_arguments", "attribute must be an array of two strings: the name and the value as text")
    try:
        return value[0].decode(), value[1].decode()
    except UnicodeDecodeError as exc:
        raise LmqError("bad_arguments", "the name and the value of an attribute must be UTF-8") from exc


def seconds_of(options: dict[bytes, Any], name: bytes) -> float | None:
    """Return a number of seconds, or None. The caller checks the range, which excludes NaN.

    Raises:
        LmqError: ``bad_arguments``.
    """
    value = options.get(name)
    if value is None:
        return None
    if type(value) is not int and type(value) is not float:
        raise LmqError("bad_arguments", f"{name.decode()} must be a number of seconds")
    return float(value)


def integer_of(options: dict[bytes, Any], name: bytes) -> int | None:
    """Return an integer, or None.

    Raises:
        LmqError: ``bad_arguments``.
    """
    value = options.get(name)
    if value is not None and type(value) is not int:
        raise LmqError("bad_arguments", f"{name.decode()} must be an integer")
    return value


def label_of(options: dict[bytes, Any], name: bytes) -> bytes:
    """Return a label or a group of 1 to 255 bytes; empty if it is absent.

    Raises:
        LmqError: ``bad_arguments``.
    """
    value = options.get(name)
    if value is None:
        return b""
    if type(value) is not bytes or not 0 < len(value) <= TEXT_BYTES_MAX:
        raise LmqError("bad_arguments", f"{name.decode()} must be a string of 1 to {TEXT_BYTES_MAX} bytes")
    return value


def flag_of(options: dict[bytes, Any], name: bytes, *, default: bool = False) -> bool:
    """Return a boolean, or the default if it is absent.

    Raises:
        LmqError: ``bad_arguments``.
    """
    value = options.get(name, default)
    if type(value) is not bool:
        raise LmqError("bad_arguments", f"{name.decode()} must be true or false")
    return value


def place_of(options: dict[bytes, Any]) -> Place:
    """Return the place of a message that is returned to its queue, by default the tail.

    Raises:
        LmqError: ``bad_arguments`` if it is not a string, ``bad_request`` if the place is unknown.
    """
    value = options.get(b"place", b"tail")
    if type(value) is not bytes:
        raise LmqError("bad_arguments", "place must be a string")
    if value not in _PLACES:
        raise LmqError("bad_request", "a place is tail, keep or head")
    return _PLACES[value]


def reason_of(options: dict[bytes, Any]) -> bytes:
    """Return why a message is returned to its queue, cut to its most bytes; empty if it is absent.

    Raises:
        LmqError: ``bad_arguments`` if it is not a string.
    """
    value = options.get(b"reason", b"")
    if type(value) is not bytes:
        raise LmqError("bad_arguments", "reason must be a string")
    return cut_reason(value)
