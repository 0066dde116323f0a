"""Simulated clusters: ours keep every guarantee under every profile, and the same checkers find violations in stock
PySyncObj.

For more and other seeds: `python -m tests.simulation --seed N --seeds M --jobs 2`.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.pool import Pool
from pathlib import Path

import pytest

from tests.simulation.profiles import PROFILES, profile_for
from tests.simulation.run import Report, simulate
from tests.simulation.subjects import subject
from tests.simulation.tasks import Task, silence_nodes

SEEDS = {"core": 4, "node": 2, "queues": 2}
PROCESSES = 2
ROOT = Path(__file__).parents[2]


def run(name: str, profile: str, seed: int, *, until_violation: bool = True) -> Report:
    settings = profile_for(name, profile)
    return simulate(subject(name, settings), settings, seed, until_violation=until_violation)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with multiprocessing.get_context("spawn").Pool(PROCESSES, silence_nodes) as processes:
        yield processes


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SEEDS)
def test_every_guarantee_holds(name: str, profile: str, pool: Pool) -> None:
    tasks = [Task(name, profile, seed) for seed in range(1, SEEDS[name] + 1)]
    reports = [report for report, _seconds in pool.imap(Task.run, tasks)]
    violations = [str(report) for report in reports if report.violations]
    assert not violations, "\n" + "\n".join(violations)
    assert all(report.acknowledged for report in reports)


def test_a_member_killed_before_it_recovers_does_not_count_as_a_founder() -> None:
    """Check that the harness remembers a lost disk for longer than one life."""
    assert not run("core", "lostdisk", 7001).violations


def test_there_are_240_runs() -> None:
    assert len(PROFILES) * sum(SEEDS.values()) >= 240


@pytest.mark.parametrize("name", SEEDS)
def test_a_cluster_with_50_ms_on_every_link_elects_a_leader_and_works(name: str) -> None:
    report = run(name, "delay50", 1)
    assert 1 <= report.elections <= 3
    assert report.acknowledged >= 0.9 * report.proposed


@pytest.mark.parametrize(
    ("profile", "seed", "kinds"),
    [
        ("calm", 2, {"promise broken", "committed entry removed", "commit without majority"}),
        ("calm", 9, {"commit without majority", "stuck"}),
        ("net", 10, {"commits differ", "applied differs", "leader lacks committed entry"}),
        ("net5", 4, {"commit without majority", "stuck"}),
        ("delay50", 3, {"promise broken", "committed entry removed", "commit without majority"}),
        ("snapshot", 1, {"committed entry removed"}),
        ("restart", 1, {"committed entry removed", "term went back"}),
        ("member", 1, {"promise broken", "applied differs"}),
    ],
)
def test_stock_breaks_promises(profile: str, seed: int, kinds: set[str]) -> None:
    assert run("stock", profile, seed, until_violation=False).kinds >= kinds


REPEATED = [("stock", "churn"), *((name, profile) for name in SEEDS for profile in ("churn", "five"))]


def print_fingerprints() -> None:
    for name, profile in REPEATED:
        print(name, profile, run(name, profile, 7, until_violation=False).fingerprint)


@pytest.fixture(scope="module")
def outputs() -> list[list[str]]:
    """The same runs in two processes, where strings hash differently."""
    program = f"from {__name__} import print_fingerprints; print_fingerprints()"
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for hash_seed in ("1", "2")
    ]


@pytest.mark.parametrize(("name", "profile"), REPEATED)
def test_a_run_is_a_function_of_its_seed(name: str, profile: str, outputs: list[list[str]]) -> None:
    # The nodes' log output stands between the fingerprints.
    first, second = ([line for line in lines if line.startswith(f"{name} {profile} ")] for lines in outputs)
    assert len(first) == 1
    assert first == second
