"""Results for monitoring systems: one line with figures, and the exit status that Nagios and its kin understand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NoReturn

import click

from lmqcluster.wire.errors import LmqError

from ..shared.errors import CliError, ExitCode, exit_code_of

__all__ = ["Finding", "Limits", "MonitoringCommand", "State", "graded", "line_of", "worst"]

_SERVICE: Final = "LMQ"


Limits = tuple[float | None, float | None]
"""From where on a figure is a warning, and from where on it is critical; None for never."""


class State(IntEnum):
    """How things are; also the exit status."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: how it is.
        text: what was seen, for people.
        name: name of the figure; none if there is no figure.
        value: the figure.
        unit: ``B`` for bytes, ``s`` for seconds, ``%``, nothing for counts.
        warning: from where on it is a warning; None for never.
        critical: from where on it is critical; None for never.
    """

    state: State
    text: str
    name: str = ""
    value: float = 0
    unit: str = ""
    warning: float | None = None
    critical: float | None = None

    def performance_data(self) -> str:
        """The figure as plugins write it: ``name=value[unit];warning;critical``."""
        limits = ";".join("" if limit is None else f"{limit:g}" for limit in (self.warning, self.critical))
        value = f"{self.value:.3f}".rstrip("0").rstrip(".")
        return f"{self.name}={value}{self.unit};{limits}".rstrip(";")


def graded(name: str, value: float, text: str, limits: Limits = (None, None), *, unit: str = "") -> Finding:
    """A figure that is bad when it is high, against its thresholds."""
    warning, critical = limits
    state = State.OK
    if critical is not None and value >= critical:
        state = State.CRITICAL
    elif warning is not None and value >= warning:
        state = State.WARNING
    return Finding(state, text, name, value, unit, warning, critical)


def worst(findings: Sequence[Finding]) -> State:
    """The state of the whole: critical before warning before unknown."""
    order = (State.CRITICAL, State.WARNING, State.UNKNOWN)
    return next((state for state in order if any(one.state is state for one in findings)), State.OK)


def line_of(findings: Sequence[Finding]) -> str:
    """All findings in one line: the state, what is not well (or all, if all is), and the figures."""
    state = worst(findings)
    told = [one.text for one in findings if one.state is not State.OK] or [one.text for one in findings]
    figures = " ".join(one.performance_data() for one in findings if one.name)
    # A bar separates text and figures, so it cannot stand in the text.
    text = "; ".join(told).replace("|", "/")
    return f"{_SERVICE} {state.name} - {text}" + (f" | {figures}" if figures else "")


class MonitoringCommand(click.Command):
    """A command whose exit status is a `State`, whatever goes wrong, and whose one line goes to standard output."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; wrong ones are UNKNOWN, because 2 would be CRITICAL."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as exc:
            _end(State.UNKNOWN, exc.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A node that cannot serve is CRITICAL, anything else that fails UNKNOWN."""
        try:
            return super().invoke(ctx)
        except click.UsageError as exc:
            _end(State.UNKNOWN, exc.format_message())
        except LmqError as exc:
            _end(_state_of(exit_code_of(exc)), exc.message)
        except CliError as exc:
            _end(_state_of(exc.exit_code), str(exc))


def _state_of(exit_code: int) -> State:
    return State.CRITICAL if exit_code in (ExitCode.UNAVAILABLE, ExitCode.UNKNOWN) else State.UNKNOWN


def _end(state: State, text: str) -> NoReturn:
    print(line_of([Finding(state, " ".join(text.split()))]))
    sys.stdout.flush()
    raise click.exceptions.Exit(state)
