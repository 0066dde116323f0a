"""Headers of task libraries as attributes of messages, so that other consumers see them.

The libraries' own envelope keeps all headers. Those that a message can have as attributes are attributes too, as far as
there is room: strings, numbers and bytes. In the other direction, attributes become headers, and replace headers of the
same name: a program that forwards a message changes its attributes and does not know the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lmqcluster.client import PushOptions
from lmqcluster.wire.attributes import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX, NAME_BYTES_MAX, TRACE_ATTRIBUTES, Value
from lmqcluster.wire.errors import LmqError

__all__ = ["as_attributes", "push_with_attributes"]

_ENTRY_BYTES: Final = 10
"""Bytes that an attribute takes beside its name and its value."""
_NUMBER_BYTES: Final = 8
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


def as_attributes(headers: Mapping[str, Any], first: tuple[str, ...] = ()) -> dict[str, Value]:
    """Return the headers that are attributes: first those of the trace, then `first`, then the others while there is room."""
    ahead = (*TRACE_ATTRIBUTES, *first)
    names = [*(name for name in ahead if name in headers), *(name for name in headers if name not in ahead)]
    attributes: dict[str, Value] = {}
    left = ATTRIBUTE_BYTES_MAX
    for name in names:
        size = _size(name, headers[name])
        if size is not None and size <= left and len(attributes) < ATTRIBUTES_MAX:
            attributes[name] = headers[name]
            left -= size
    return attributes


def _size(name: Any, value: Any) -> int | None:
    """Return the bytes that a header takes as an attribute; None if it cannot be one."""
    kind = type(value)
    try:
        name_bytes = len(name.encode()) if type(name) is str else 0
        if kind is str:
            size = len(value.encode())
        elif kind is bytes:
            size = len(value)
        elif (kind is int and value in _INTEGERS) or (kind is float and value * 0 == 0):
            size = _NUMBER_BYTES
        else:
            return None
    except UnicodeEncodeError:
        return None
    return name_bytes + size + _ENTRY_BYTES if 0 < name_bytes <= NAME_BYTES_MAX else None


def push_with_attributes(push: Callable[[PushOptions], object], options: PushOptions) -> None:
    """Push a message; without its attributes if the nodes allow fewer bytes of them, see the option ``attribute_bytes_max``.

    Raises:
        LmqError: as a push.
    """
    try:
        push(options)
    except LmqError as error:
        if error.code != "too_large" or not options.pop("attributes", None):
            raise
    else:
        return
    push(options)
