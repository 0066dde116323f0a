"""A node logs each change of its state once."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from lmqcluster.node.state_log import StateLog

FINE = ("running", True, "not shutting down")


def test_readiness_is_logged_when_it_changes() -> None:
    said = StateLog()
    with capture_logs() as lines:
        for leader in (False, True, True, False, False, True):
            said.note_health([FINE, ("leader", leader, "no leader known")])
    assert lines == [
        {"event": "ready", "log_level": "info"},
        {"event": "not ready", "log_level": "warning", "leader": "no leader known"},
        {"event": "ready", "log_level": "info"},
    ]


def test_a_problem_that_lasts_is_logged_once() -> None:
    said = StateLog()
    with capture_logs() as lines:
        for problem in (None, "waits for b", "waits for c", "waits for c", "waits for c", None, "waits for c", None):
            said.note_problem(problem)
    assert lines == [{"event": "no leader can be elected", "log_level": "warning", "reason": "waits for c"}]


def test_full_memory_is_logged_when_it_changes() -> None:
    said = StateLog()
    with capture_logs() as lines:
        for used in (50, 101, 150, 100, 99):
            said.note_memory(used, 100)
    logged: list[tuple[Any, ...]] = [(line["event"], line["log_level"], line["used_bytes"]) for line in lines]
    assert logged == [
        ("memory limit reached, pushes are refused", "warning", 101),
        ("memory below the limit, pushes accepted again", "info", 100),
    ]
