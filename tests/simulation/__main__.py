"""`python -m tests.simulation --seed N [--profile P] [--seeds N]`: run or replay simulated clusters."""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time
from typing import TYPE_CHECKING

from tests.simulation.profiles import PROFILES
from tests.simulation.subjects import SUBJECTS
from tests.simulation.tasks import Task, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.run import Report

OURS = ["core", "node", "queues"]


def main() -> int:
    """Exit code 1 if any run broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds to run (default 1)")
    parser.add_argument("--profile", default="all", help=f"profiles, separated by commas: {', '.join(PROFILES)}, all")
    parser.add_argument(
        "--subject",
        choices=[*sorted(SUBJECTS), "ours"],
        default="ours",
        help="stock PySyncObj, our Raft core, the whole node, that with clients of all queue features, or all ours (default)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default 1)")
    parser.add_argument("--minutes", type=float, default=0.0, help="continue with further seeds for this many seconds")
    parser.add_argument("--trace", action="store_true", help="print the events of each run")
    parser.add_argument("--first", action="store_true", help="stop at the first run with a violation")
    parser.add_argument("--keep-going", action="store_true", help="continue a run after a violation")
    options = parser.parse_args()
    names = OURS if options.subject == "ours" else [options.subject]
    profiles = list(PROFILES) if options.profile == "all" else options.profile.split(",")
    unknown = sorted(set(profiles) - PROFILES.keys())
    if unknown:
        parser.error(f"unknown profile {', '.join(unknown)}; there are {', '.join(PROFILES)}")
    kinds = [(name, profile) for name in names for profile in profiles]
    if options.minutes:
        return 1 if _soak(kinds, options) else 0
    seeds = range(options.seed, options.seed + options.seeds)
    tasks = [Task(*kind, seed, options.keep_going, options.trace) for kind in kinds for seed in seeds]
    results = run_all(tasks, options.jobs)
    return 1 if _print_all(_to_the_first_violation(results) if options.first else results) else 0


def _to_the_first_violation(results: Iterable[tuple[Report, float]]) -> Iterator[tuple[Report, float]]:
    for result in results:
        yield result
        if result[0].violations:
            return


def _soak(kinds: list[tuple[str, str]], options: argparse.Namespace) -> int:
    """Run one seed after the other under all kinds until the time is up; print each violation and their number."""
    deadline_s = time.monotonic() + options.minutes * 60.0
    runs = violating = 0
    for seed in itertools.count(options.seed):
        for report, _ in run_all([Task(*kind, seed, options.keep_going) for kind in kinds], options.jobs):
            runs += 1
            if report.violations:
                violating += 1
                print(report, flush=True)
        if time.monotonic() > deadline_s:
            print(f"{runs} runs of seeds {options.seed} to {seed}, {violating} with violations")
            return violating
    raise AssertionError("there is always another seed")


def _print_all(results: Iterable[tuple[Report, float]]) -> int:
    """Print the results of the runs by profile; return the number of runs with violations."""
    violating = 0
    for _, group in itertools.groupby(results, lambda result: (result[0].subject, result[0].profile)):
        reports: list[Report] = []
        spent_s = 0.0
        for report, seconds in group:
            reports.append(report)
            spent_s += seconds
            if report.trace:
                print("\n".join(report.trace))
            if report.violations:
                print(report, flush=True)
        violating += _print_profile(reports, spent_s)
    return violating


def _print_profile(reports: list[Report], spent_s: float) -> int:
    violating = [report for report in reports if report.violations]
    print(
        f"{reports[0].subject} {reports[0].profile}: {len(reports)} seeds, {len(violating)} with violations, "
        f"{sum(report.elections for report in reports)} elections, "
        f"{sum(report.acknowledged for report in reports)} of {sum(report.proposed for report in reports)} proposals "
        f"acknowledged, {spent_s / len(reports):.2f} s a run",
        flush=True,
    )
    for kind, count in collections.Counter(kind for report in violating for kind in report.kinds).most_common():
        print(f"  {count:4d}  {kind}")
    return len(violating)


if __name__ == "__main__":
    sys.exit(main())
