"""Thousands of tasks of Celery and dramatiq while the leader and a worker are killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .task_loop import LIBRARIES, task_loop, task_outage


@pytest.mark.skipif("LMQ_CAMPAIGN" not in os.environ, reason="takes minutes; LMQ_CAMPAIGN=1 runs it")
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_task_is_lost(library: str, tmp_path: Path) -> None:
    outcome = task_loop(library, 2000, tmp_path, kills=2, kill_worker=True)
    assert outcome.violations() == [], outcome


def test_tasks_are_settled_after_an_outage(tmp_path: Path) -> None:
    """Workers of both libraries run at once, because they mostly wait."""
    for outcome in task_outage(LIBRARIES, 100, tmp_path, outage_s=10):
        assert outcome.violations() == [], outcome
