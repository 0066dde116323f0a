"""Results for monitoring systems: one line with figures, and the exit status of Nagios plugins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NoReturn

import click

from lmqcluster.wire.errors import LmqError

from ...shared.errors import CliError, ExitCode, exit_code_of

__all__ = ["Finding", "Limits", "MonitoringCommand", "State", "grade", "line_of", "worst"]

_SERVICE: Final = "LMQ"


Limits = tuple[float | None, float | None]
"""The thresholds from which a figure is a warning and critical; None for never."""


class State(IntEnum):
    """The result of a check; also the exit status."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        state: the state.
        text: the observation, for people.
        name: name of the figure; empty if there is none.
        value: the figure.
        unit: ``B`` for bytes, ``s`` for seconds, ``%``, empty for counts.
        warning: threshold of a warning; None for never.
        critical: threshold of a critical state; None for never.
    """

    state: State
    text: str
    name: str = ""
    value: float = 0
    unit: str = ""
    warning: float | None = None
    critical: float | None = None

    def performance_data(self) -> str:
        """Return the figure in the format of plugins: ``name=value[unit];warning;critical``."""
        limits = ";".join("" if limit is None else f"{limit:g}" for limit in (self.warning, self.critical))
        value = f"{self.value:.3f}".rstrip("0").rstrip(".")
        return f"{self.name}={value}{self.unit};{limits}".rstrip(";")


def grade(name: str, value: float, text: str, limits: Limits = (None, None), *, unit: str = "") -> Finding:
    """Return the finding for a figure that is bad when it is high, by its thresholds."""
    warning, critical = limits
    state = State.OK
    if critical is not None and value >= critical:
        state = State.CRITICAL
    elif warning is not None and value >= warning:
        state = State.WARNING
    return Finding(state, text, name, value, unit, warning, critical)


def worst(findings: Sequence[Finding]) -> State:
    """Return the overall state: critical before warning before unknown."""
    order = (State.CRITICAL, State.WARNING, State.UNKNOWN)
    return next((state for state in order if any(one.state is state for one in findings)), State.OK)


def line_of(findings: Sequence[Finding]) -> str:
    """Return all findings in one line: the state, the problems (or everything if there are none), and the figures."""
    state = worst(findings)
    texts = [one.text for one in findings if one.state is not State.OK] or [one.text for one in findings]
    figures = " ".join(one.performance_data() for one in findings if one.name)
    # A bar separates text and figures, so it is replaced in the text.
    text = "; ".join(texts).replace("|", "/")
    return f"{_SERVICE} {state.name} - {text}" + (f" | {figures}" if figures else "")


class MonitoringCommand(click.Command):
    """A command that always exits with a `State`, and prints its one line to standard output."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; wrong ones are UNKNOWN, because click's exit status 2 would be CRITICAL."""
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as exc:
            _end(State.UNKNOWN, exc.format_message())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A node that cannot serve is CRITICAL, any other failure UNKNOWN."""
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
