"""Many runs, in several processes."""

from __future__ import annotations

import logging
import multiprocessing
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tests.simulation.profiles import profile_for
from tests.simulation.run import Report, simulate
from tests.simulation.subjects import subject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Task", "run_all", "silence_nodes"]


@dataclass(frozen=True)
class Task:
    """One run."""

    subject: str
    profile: str
    seed: int
    keep_going: bool = False
    trace: bool = False

    def run(self) -> tuple[Report, float]:
        """Return the report, and the processor time in seconds."""
        started = time.process_time()
        profile = profile_for(self.subject, self.profile)
        report = simulate(
            subject(self.subject, profile), profile, self.seed, until_violation=not self.keep_going, trace=self.trace
        )
        return report, time.process_time() - started


def run_all(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Report, float]]:
    """Yield the outcomes in the order of the tasks."""
    if jobs == 1:
        silence_nodes()
        yield from map(Task.run, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, silence_nodes) as pool:
        yield from pool.imap(Task.run, tasks)


def silence_nodes() -> None:
    """Silence the logs of the simulated nodes: they carry the time of day and say less than a trace."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
