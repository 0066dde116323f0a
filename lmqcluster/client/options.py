"""Options of pushes and settlements, as callers give them and as they go over the wire."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from lmqcluster.wire.attributes import Attributes, pack_attributes
from lmqcluster.wire.reasons import cut_reason

from .transport.requests import Name, name_bytes

__all__ = [
    "BatchOptions",
    "Place",
    "PushOptions",
    "give_back_options",
    "packed_push_options",
    "random_key",
]

Place = Literal["tail", "keep", "head"]
"""Where a returned message goes in its queue."""
_PLACES = ("tail", "keep", "head")
_NAMES = frozenset(("key", "label", "group"))
_NUMBERS = frozenset(("delay", "due", "ttl", "priority", "wait"))


class PushOptions(TypedDict, total=False):
    """Options that control how the cluster stores and delivers a message. None means without the option.

    Attributes:
        key: an idempotency key chosen by the application. For 5 minutes, another push to the queue with the same key stores
            nothing, whichever client sends it; for exactly `key_window` seconds and for any content if the queue has this
            property.
        delay: seconds after which the message can be pulled.
        due: the same as a Unix time in seconds, such as ``time.time() + 60``.
        ttl: seconds after which the message expires.
        priority: an integer of 32 bits. Lower values are delivered first; messages without one have 0.
        label: the producer's name for the message, by which waiting messages can be counted and withdrawn; 1 to 255 bytes.
        attributes: names with strings, numbers or bytes, which consumers get with the message and which stay with it; at most
            64, together 10 KiB.
        group: messages of a group are delivered one at a time, in their order, or in turn with other groups if the queue has
            the property ``group_mode`` fair; 1 to 255 bytes.
        wait: seconds for which the push waits for room if the queue is full, first come, first served; only for `push`.
    """

    key: Name | None
    delay: float | None
    due: float | None
    ttl: float | None
    priority: int | None
    label: Name | None
    group: Name | None
    attributes: Attributes | None
    wait: float | None


def random_key() -> bytes:
    """Return a unique key of 16 random bytes."""
    return os.urandom(16)


def packed_push_options(options: PushOptions) -> dict[str, Any]:
    """Return the options that differ from their defaults, as a request has them.

    Raises:
        TypeError: an option is unknown.
    """
    packed: dict[str, Any] = {}
    for name, value in options.items():
        if name == "attributes":
            if value:
                packed[name] = pack_attributes(value)  # type: ignore[arg-type]
            continue
        if name not in _NAMES and name not in _NUMBERS:
            raise TypeError(f"a push has no option {name!r}")
        if value is None or (name == "priority" and value == 0):
            continue
        packed[name] = name_bytes(value) if name in _NAMES else value  # type: ignore[arg-type]
    return packed


def give_back_options(delay: float | None, place: Place, reason: str | None) -> dict[str, Any]:
    """Return the options of a returned message as a request has them.

    Raises:
        ValueError: the place is unknown.
    """
    if place not in _PLACES:
        raise ValueError(f"a place is one of {', '.join(_PLACES)}, not {place!r}")
    options: dict[str, Any] = {} if place == "tail" else {"place": place}
    if delay is not None:
        options["delay"] = delay
    if reason:
        options["reason"] = cut_reason(reason)
    return options


class BatchOptions:
    """Options of a push of several messages.

    Args:
        count: number of messages. The other arguments are those of `AsyncClient.push_many`.

    Raises:
        ValueError, TypeError: the options conflict, or their number differs from `count`.
    """

    def __init__(
        self,
        count: int,
        keys: Sequence[Name] | None,
        types: Sequence[Name | None] | None,
        options: Sequence[PushOptions | None] | None,
    ) -> None:
        each = (("keys", keys), ("content types", types), ("options", options))
        for name, values in each:
            if values is not None and len(values) != count:
                raise ValueError(f"{count} contents need as many {name}, not {len(values)}")
        if keys is None and options is None and types is not None:
            raise ValueError("content types need keys or options")
        self._each: dict[str, list[Any]] = {}
        if options is not None:
            self._each["options"] = [None if one is None else _without_key(one) for one in options]
        if keys is not None:
            self._each["keys"] = [name_bytes(key) for key in keys]
        if types is not None:
            self._each["content_types"] = [None if kind is None else name_bytes(kind) for kind in types]

    def of(self, start: int, end: int) -> dict[str, Any] | None:
        """Return the options of the messages from `start` to `end`, None if no message has any."""
        if not self._each:
            return None
        return {name: values[start:end] for name, values in self._each.items()}


def _without_key(options: PushOptions) -> dict[str, Any]:
    packed = packed_push_options(options)
    if "key" in packed:
        raise ValueError("the keys of a batch are given by keys")
    if "wait" in packed:
        raise ValueError("a batch does not wait for room")
    return packed
