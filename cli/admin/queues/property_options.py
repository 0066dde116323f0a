"""Options for the properties of a queue, one option for each property, and for its annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from lmqcluster.wire.queue_options import GROUP_MODES, KEY_SCOPES, QUEUE_OPTIONS, QueueOption

from ...shared.units import duration, size

__all__ = ["annotations_option", "given_annotations", "given_properties", "property_options"]

_Kind = Callable[[str], Any] | type | click.Choice[str]
_LMQ: Final[Mapping[str, tuple[_Kind, str, str]]] = {
    "accum": (duration, "TIME", "Accumulation window; 0 disables accumulation."),
    "retry": (int, "N", "Maximum number of redeliveries, for messages pushed from now on."),
    "timeout": (duration, "TIME", "Duration of a lease."),
}
_TYPES: Final[Mapping[str, tuple[_Kind, str]]] = {
    "messages": (int, "N"),
    "bytes": (size, "SIZE"),
    "seconds": (duration, "TIME"),
    "factor": (float, "FACTOR"),
    "per second": (float, "RATE"),
    "mode": (click.Choice(GROUP_MODES), "MODE"),
    "queue": (str, "QUEUE"),
    "scope": (click.Choice(KEY_SCOPES), "SCOPE"),
}


def property_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options; the function gets them by name, None for those not given."""
    for name, option in reversed(list(QUEUE_OPTIONS.items())):
        function = _option(name, option)(function)
    for name, (kind, metavar, text) in reversed(list(_LMQ.items())):
        function = click.option(_flag(name), name, type=kind, metavar=metavar, help=text)(function)
    return function


def given_properties(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that were given."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None and value != ()
    }


def annotations_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--annotate``, which may be given several times; the function gets the texts as `annotate`."""
    text = "Keep a text with the queue; NAME= removes it."
    return click.option("--annotate", metavar="NAME=TEXT", multiple=True, help=text)(function)


def given_annotations(texts: Sequence[str]) -> dict[str, str | None]:
    """Return the annotations that were given, None for those to remove.

    Raises:
        click.UsageError: one is not ``NAME=TEXT``.
    """
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--annotate: {text!r} is not NAME=TEXT")
        found[name] = value or None
    return found


def _option(name: str, option: QueueOption) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if option.unit == "flag":
        flag = _flag(name)
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=None, help=option.text)
    if option.unit == "queues":
        text = f"{option.text} May be given several times."
        return click.option(_flag(name), name, metavar="QUEUE", multiple=True, help=text)
    kind, metavar = _TYPES[option.unit]
    return click.option(_flag(name), name, type=kind, metavar=metavar, help=option.text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
