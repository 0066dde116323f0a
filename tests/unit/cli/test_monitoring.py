"""Lines and states for monitoring systems."""

from __future__ import annotations

import click
import pytest
from lmqcluster_cli.admin.cluster.monitoring import Finding, MonitoringCommand, State, grade, line_of, worst
from lmqcluster_cli.shared.errors import CliError, ExitCode

from lmqcluster.wire.errors import LmqError


@pytest.mark.parametrize(
    ("value", "limits", "state"),
    [
        (5, (None, None), State.OK),
        (5, (6, 7), State.OK),
        (6, (6, 7), State.WARNING),
        (7, (6, 7), State.CRITICAL),
        (9, (None, 7), State.CRITICAL),
        (9, (6, None), State.WARNING),
        (0, (0, None), State.WARNING),
    ],
)
def test_a_figure_against_its_thresholds(value: float, limits: tuple[float | None, float | None], state: State) -> None:
    assert grade("x", value, "text", limits).state is state


def test_the_worst_counts() -> None:
    def findings(*states: State) -> list[Finding]:
        return [Finding(state, "text") for state in states]

    assert worst(findings(State.OK, State.OK)) is State.OK
    assert worst(findings(State.OK, State.UNKNOWN)) is State.UNKNOWN
    assert worst(findings(State.UNKNOWN, State.WARNING)) is State.WARNING
    assert worst(findings(State.CRITICAL, State.WARNING, State.UNKNOWN)) is State.CRITICAL


def test_a_line_has_the_problem_and_all_figures() -> None:
    findings = [
        grade("lag", 3, "n2 is 3 behind", (10, 20)),
        grade("memory", 81.25, "messages | 81 %", (80, None), unit="%"),
    ]
    assert line_of(findings) == "LMQ WARNING - messages / 81 % | lag=3;10;20 memory=81.25%;80"
    assert line_of([Finding(State.OK, "all"), Finding(State.OK, "well")]) == "LMQ OK - all; well"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (CliError("cannot reach it", ExitCode.UNAVAILABLE), State.CRITICAL),
        (LmqError("no_leader", "no leader"), State.CRITICAL),
        (LmqError("unauthorized", "no token"), State.UNKNOWN),
        (LmqError("queue_not_found", "no queue"), State.UNKNOWN),
        (click.UsageError("wrong"), State.UNKNOWN),
    ],
    ids=repr,
)
def test_a_failure_is_a_state_and_a_line(error: Exception, state: State, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise error

    assert MonitoringCommand("check", callback=fails).main([], standalone_mode=False) == state
    assert capsys.readouterr().out.startswith(f"LMQ {state.name} - ")
