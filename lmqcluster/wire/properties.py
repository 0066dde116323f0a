"""Queue properties: validation of the client's form, and the canonical form that is replicated.

A property set is a list of ``(name, value)`` pairs in the given order, because default rules are shown exactly as set.
LMQ's properties are ``accum`` (whole milliseconds), ``retry`` (integer), ``timeout`` (seconds) and ``hooks`` (hook point to
list of modules). The others are in `queue_options`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from .errors import LmqError
from .headers import is_header_name, is_reserved
from .queue_options import QUEUE_OPTIONS, parse_option

__all__ = [
    "ANNOTATIONS_MAX",
    "HOOK_MODULES",
    "AnnotationChanges",
    "Hooks",
    "Properties",
    "Rules",
    "annotations_bytes",
    "parse_annotations",
    "parse_properties",
    "parse_rules",
    "properties_bytes",
    "rules_bytes",
]

Hooks = list[tuple[str, list[tuple[str, list[str]]]]]
Properties = list[tuple[str, object]]
"""Pairs in the given order. Values: int (accum in ms, retry), int or float (timeout in s), `Hooks`, or those of an option."""
Rules = list[tuple[str, Properties]]
AnnotationChanges = Mapping[str, str | None]
"""Annotations of a queue to set; None removes one."""

HOOK_MODULES = ("lmq_hook_preserve_header",)
RULES_MAX = 100
HOOK_ARGUMENTS_MAX = 64
HOOKS_BYTES_MAX = 16 * 1024
RULES_BYTES_MAX = 1024 * 1024
ANNOTATIONS_MAX = 100
ANNOTATION_BYTES_MAX = 16 * 1024
ANNOTATION_NAME_BYTES_MAX = 255
_INT_MAX = (1 << 63) - 1
_COMPARED_MAX = 64


def _invalid(reason: str) -> LmqError:
    return LmqError("bad_property", reason)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _invalid(f"property {name!r} must be a number, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid(f"property {name!r} must be finite")
    if isinstance(value, int) and abs(value) > _INT_MAX:
        raise _invalid(f"property {name!r} is out of range")
    return value


def _accum(value: object) -> int:
    seconds = _number("accum", value)
    # Rounded half away from zero. An integer beyond 2**63 ms cannot be encoded.
    milliseconds = math.copysign(math.floor(abs(seconds) * 1000 + 0.5), seconds)
    if abs(milliseconds) > _INT_MAX // 1000:
        raise _invalid("property 'accum' is out of range")
    return int(milliseconds)


def _retry(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _INT_MAX // 2:
        raise _invalid(f"property 'retry' must be an integer, not {value!r}")
    if value < 0:
        raise _invalid(f"property 'retry' is {value}: every message would be dropped undelivered; it must be 0 or more")
    return value


def _timeout(value: object) -> int | float:
    seconds = _number("timeout", value)
    if seconds < 0:
        raise _invalid(f"property 'timeout' is {seconds}: no message could be acknowledged; it must be 0 or more")
    return seconds


def _text(value: object, what: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as exc:
            raise _invalid(f"{what} is not UTF-8") from exc
    if not isinstance(value, str):
        raise _invalid(f"{what} must be a string, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise _invalid(f"{what} is not UTF-8, or contains an unpaired surrogate") from exc
    return value


def _hook_module(entry: object, point: str) -> tuple[str, list[str]]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:
        raise _invalid(f"hook point {point!r}: each entry must be [module, [argument, ...]]")
    module = _text(entry[0], "a hook module name")
    if module not in HOOK_MODULES:
        raise _invalid(f"hook module {module!r} is unknown; there is {', '.join(HOOK_MODULES)}")
    arguments = entry[1]
    if not isinstance(arguments, (list, tuple)) or len(arguments) > HOOK_ARGUMENTS_MAX:
        raise _invalid(f"arguments of hook module {module!r} must be a list of at most {HOOK_ARGUMENTS_MAX} names")
    names = [_text(argument, "a hook argument") for argument in arguments]
    for name in names:
        if not is_header_name(name):
            raise _invalid(
                f"{name!r} is not the name of a header: letters, digits and some signs, no spaces or line ends"
            )
        if is_reserved(name):
            raise _invalid(
                f"header {name!r} cannot be preserved: it is not a message's to set, or shows who its producer is"
            )
    return module, names


def _hooks(value: object) -> Hooks:
    if not isinstance(value, Mapping):
        raise _invalid("property 'hooks' must be an object from hook point to a list of modules")
    hooks: Hooks = []
    for key, modules in value.items():
        point = _text(key, "a hook point")
        if not isinstance(modules, (list, tuple)):
            raise _invalid(f"hook point {point!r} must hold a list")
        hooks.append((point, [_hook_module(entry, point) for entry in modules]))
    if _hooks_bytes(hooks) > HOOKS_BYTES_MAX:
        raise _invalid(f"property 'hooks' is larger than {HOOKS_BYTES_MAX} bytes")
    return hooks


def _hooks_bytes(hooks: Hooks) -> int:
    size = 0
    for point, modules in hooks:
        size += len(point.encode()) + 8
        for module, arguments in modules:
            size += len(module) + 8 + sum(len(argument.encode()) + 8 for argument in arguments)
    return size


def properties_bytes(properties: Iterable[tuple[str, object]]) -> int:
    """Return the approximate size of a property set in the log, in bytes."""
    return sum(24 + _value_bytes(name, value) for name, value in properties)


def _value_bytes(name: str, value: object) -> int:
    if name == "hooks":
        return _hooks_bytes(value)  # type: ignore[arg-type]
    if isinstance(value, str):
        return len(value.encode())
    return sum(len(one.encode()) + 8 for one in value) if isinstance(value, list) else 0


def parse_properties(value: object) -> Properties:
    """Validate an object of properties decoded from JSON or MessagePack.

    ``pack`` is an alias of ``accum``; if both are given, the last one wins. The order is kept.

    Raises:
        LmqError: ``bad_property`` if any property is invalid.
    """
    if not isinstance(value, Mapping):
        raise _invalid("properties must be an object")
    result: dict[str, object] = {}
    for key, item in value.items():
        name = _text(key, "a property name")
        if name in ("accum", "pack"):
            result.pop("accum", None)
            result["accum"] = _accum(item)
        elif name == "retry":
            result[name] = _retry(item)
        elif name == "timeout":
            result[name] = _timeout(item)
        elif name == "hooks":
            result[name] = _hooks(item)
        elif name in QUEUE_OPTIONS:
            result[name] = parse_option(name, item)
        else:
            known = ("accum", "retry", "timeout", "hooks", *QUEUE_OPTIONS)
            # A name may have any length.
            close = get_close_matches(name[:_COMPARED_MAX], known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
            raise _invalid(f"property {name!r} is unknown; {hint}")
    return list(result.items())


def parse_annotations(value: object) -> AnnotationChanges:
    """Validate changes of a queue's annotations decoded from JSON or MessagePack. The cluster checks their sum.

    Raises:
        LmqError: ``bad_property``, ``too_large``.
    """
    if not isinstance(value, Mapping):
        raise _invalid("annotations must be an object")
    if len(value) > 2 * ANNOTATIONS_MAX:
        raise LmqError("too_large", f"a queue has at most {ANNOTATIONS_MAX} annotations; {len(value)} are to change")
    changes: dict[str, str | None] = {}
    for key, item in value.items():
        name = _text(key, "the name of an annotation")
        if not 0 < len(name.encode()) <= ANNOTATION_NAME_BYTES_MAX:
            raise _invalid(f"the name of an annotation has 1 to {ANNOTATION_NAME_BYTES_MAX} bytes: {name[:80]!r}")
        changes[name] = None if item is None else _text(item, f"annotation {name!r}")
        if len((changes[name] or "").encode()) > ANNOTATION_BYTES_MAX:
            raise LmqError("too_large", f"the annotations of a queue have at most {ANNOTATION_BYTES_MAX} bytes")
    return changes


def annotations_bytes(changes: AnnotationChanges) -> int:
    """Return the approximate size of annotations in the log, in bytes."""
    return sum(16 + len(name.encode()) + len((value or "").encode()) for name, value in changes.items())


def parse_rules(value: object) -> Rules:
    """Validate a list of default rules: ``[[regular expression, properties], ...]``.

    The node compiles the regular expressions, because only it has the engine.

    Raises:
        LmqError: ``bad_property``.
    """
    if not isinstance(value, (list, tuple)):
        raise _invalid("default rules must be a list of [regular expression, properties]")
    if len(value) > RULES_MAX:
        raise _invalid(f"there may be at most {RULES_MAX} default rules")
    rules = [_rule(entry) for entry in value]
    if rules_bytes(rules) > RULES_BYTES_MAX:
        raise _invalid(f"the default rules are larger than {RULES_BYTES_MAX} bytes")
    return rules


def rules_bytes(rules: Rules) -> int:
    """Return the approximate size of default rules in the log, in bytes."""
    return sum(16 + len(pattern.encode()) + properties_bytes(properties) for pattern, properties in rules)


def _rule(entry: object) -> tuple[str, Properties]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:
        raise _invalid("each default rule must be [regular expression, properties]")
    properties = parse_properties(entry[1])
    if empty := [name for name, value in properties if value is None]:
        raise _invalid(f"a default rule cannot remove property {empty[0]!r}: leave it out")
    return _text(entry[0], "a regular expression"), properties
