"""Queue properties and how they are resolved: own value, else the parent's, else the first matching rule's, else the system's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..log.commands import Match
from .options import OPTION_PROPERTIES, TIME_US_MAX, QueueOptions, checked_option, microseconds, options_of

__all__ = [
    "LMQ_PROPERTIES",
    "SYSTEM_DEFAULTS",
    "Rule",
    "Settings",
    "checked_properties",
    "effective",
    "inheritable",
    "matching",
    "settings_of",
]

SYSTEM_DEFAULTS: Mapping[str, Any] = {"accum": 0, "retry": 2, "timeout": 30}
"""accum in milliseconds, retry in redeliveries, timeout in seconds."""

_INT_MAX = (1 << 63) - 1
_NOTHING: Mapping[str, Any] = {}
_NOT_INHERITED = {"destination_queues", "fanout_only", "hooks"}
LMQ_PROPERTIES = ("accum", "hooks", "retry", "timeout")
"""The properties that LMQ's clients know."""


class Rule(NamedTuple):
    """A default rule: properties for the queues whose name the pattern finds."""

    pattern: bytes
    properties: tuple[tuple[str, Any], ...]
    matches: Match


class Settings(NamedTuple):
    """Effective properties in the queue's working form.

    Attributes:
        accum_us: length of an accumulation window, 0 for none, negative for one that has already ended.
        deliveries: how often a message pushed now may be delivered (retry + 1).
        timeout_us: length of a lease.
        preserved: lower-case names of request headers that become attributes of a message pushed over HTTP, in order.
        options: properties beyond those of LMQ; None if none is set.
    """

    accum_us: int
    deliveries: int
    timeout_us: int
    preserved: tuple[bytes, ...]
    options: QueueOptions | None = None


def checked_properties(pairs: Any) -> list[tuple[str, Any]]:
    """Convert a command's property pairs to the stored form.

    Raises:
        ValueError: a name is unknown or a value has the wrong type; protocols refuse these earlier with a better
            message.
    """
    result: list[tuple[str, Any]] = []
    for name, value in pairs:
        text = name.decode() if isinstance(name, bytes) else name
        if text in OPTION_PROPERTIES:
            result.append((text, checked_option(text, value)))
            continue
        if text not in LMQ_PROPERTIES:
            raise ValueError(f"unknown property {text!r}")
        if text == "hooks":
            value = _checked_hooks(value)  # noqa: PLW2901
        elif isinstance(value, bool) or not isinstance(value, (int, float) if text == "timeout" else int):
            raise ValueError(f"property {text!r} has the wrong type")
        elif isinstance(value, float) and value * 0 != 0:
            raise ValueError(f"property {text!r} is not finite")
        elif abs(value) > _INT_MAX // 2 and text == "retry":
            raise ValueError(f"property {text!r} is out of range")
        result.append((text, value))
    return result


def _checked_hooks(value: Any) -> tuple[Any, ...]:
    return tuple(
        (
            _text(point),
            tuple((_text(module), tuple(_text(argument) for argument in arguments)) for module, arguments in modules),
        )
        for point, modules in value
    )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError("hook points, modules and arguments must be strings")
    return value


def inheritable(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return those own properties of a queue that its children inherit."""
    return {name: value for name, value in own.items() if name not in _NOT_INHERITED}


def matching(rules: Iterable[Rule], name: bytes) -> Mapping[str, Any]:
    """Return the properties of the first rule that matches a queue's name; later rules never add to it."""
    for rule in rules:
        if rule.matches(name):
            return dict(rule.properties)
    return _NOTHING


def effective(
    own: Mapping[str, Any], defaults: Mapping[str, Any], inherited: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """Return the effective properties of a queue, keys in alphabetical order; ``hooks`` only if set.

    A queue's own value takes precedence over the inherited one, then the default, then the system's.
    """
    return dict(sorted({**SYSTEM_DEFAULTS, **defaults, **inherited, **own}.items()))


def settings_of(properties: Mapping[str, Any]) -> Settings:
    """Translate effective properties to the queue's working form."""
    return Settings(
        accum_us=_bounded(properties["accum"] * 1000),
        deliveries=properties["retry"] + 1,
        timeout_us=microseconds(properties["timeout"]),
        preserved=_preserved(properties.get("hooks", ())),
        options=options_of(properties),
    )


def _bounded(time_us: int) -> int:
    return max(-TIME_US_MAX, min(TIME_US_MAX, time_us))


def _preserved(hooks: Sequence[Any]) -> tuple[bytes, ...]:
    names: list[bytes] = []
    for point, modules in hooks:
        if point == "pre_http_push":
            for _module, arguments in modules:
                names.extend(argument.lower().encode() for argument in arguments)
    # The content type is stored with every message; kept as a header too, it would be returned twice.
    return tuple(name for name in dict.fromkeys(names) if name != b"content-type")
