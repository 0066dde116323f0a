"""`python -m tests.simulation.recording`: show that a change of the code preserves behaviour, byte for byte.

A recording has one line for each run: the SHA-256 of every change of each member's Raft log, in order, the digest of
the state that each member ends with, and the number of events. A comparison repeats the runs of a recording.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.checkers import Checkers
from tests.simulation.node_stack import lacks_pages
from tests.simulation.profiles import PROFILES, profile_for
from tests.simulation.run import Simulation
from tests.simulation.subjects import subject
from tests.simulation.tasks import silence_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.host import Host

__all__ = ["Recording", "Run", "differences", "main"]

SUBJECTS = ("core", "node", "queues")
SEEDS = 20
DURATION = 1 / 3
"""Fraction of a profile's duration: 20 seeds of all profiles then take about 15 minutes of one core."""

Recording = dict[str, Any]
"""One line of a file: the run, its number of events, its kinds of violations, and its members by name."""


class _Log:
    """The changes of one member's log over all its lives."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self.changes = 0

    def changed(self, line: bytes) -> None:
        self.sha256.update(b"%d %b" % (len(line), line))
        self.changes += 1


class _RecordingCheckers(Checkers):
    """Checkers that record every change of every log."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logs: defaultdict[str, _Log] = defaultdict(_Log)

    def appended(self, host: Host, command: bytes, index: int, term: int, previous_term: int | None) -> None:
        self._changed(host, b"append %d %d %b" % (index, term, command))
        super().appended(host, command, index, term, previous_term)

    def truncated(self, host: Host, first_index: int, terms: Sequence[int]) -> None:
        self._changed(host, b"truncate %d %d" % (first_index, len(terms)))
        super().truncated(host, first_index, terms)

    def _changed(self, host: Host, line: bytes) -> None:
        self.logs[host.id].changed(line)
        self.note("log", f"{host.id} {line!r}")


@dataclass(frozen=True)
class Run:
    """The name of a run."""

    subject: str
    profile: str
    seed: int

    @classmethod
    def of(cls, recording: Recording) -> Run:
        return cls(recording["subject"], recording["profile"], recording["seed"])

    def record(self, *, trace: bool = False) -> Recording:
        """Run the simulation to its end, violations or not."""
        profile = profile_for(self.subject, self.profile)
        profile = replace(profile, duration_s=profile.duration_s * DURATION)
        simulation = Simulation(
            subject(self.subject, profile), profile, self.seed, trace=trace, checkers=_RecordingCheckers
        )
        checkers = simulation.checkers
        assert isinstance(checkers, _RecordingCheckers)
        with simulation.world():
            simulation.run(until_violation=False)
            members = {name: _member(host, checkers.logs[name]) for name, host in simulation.hosts.items() if host.life}
        for line in checkers.trace or ():
            print(line)
        return {
            "subject": self.subject,
            "profile": self.profile,
            "seed": self.seed,
            "events": simulation.clock.events_run,
            "violations": sorted({violation.kind for violation in checkers.violations}),
            "members": members,
        }

    def __str__(self) -> str:
        return f"{self.subject} {self.profile} seed {self.seed}"


def _member(host: Host, log: _Log) -> dict[str, Any]:
    """Record a member; its state is None if it is dead at the end or lacks pages."""
    replica = host.replica
    return {
        "log": log.sha256.hexdigest(),
        "log_changes": log.changes,
        "applied": host.application.index,
        "state": None if replica is None or lacks_pages(host) else replica.digest().hex(),
    }


def differences(before: Recording, after: Recording) -> list[str]:
    """Name the parts in which two recordings of one run differ."""
    found = [part for part in before.keys() | after.keys() if part != "members" and before.get(part) != after.get(part)]
    for name in before["members"].keys() | after["members"].keys():
        old, new = before["members"].get(name, {}), after["members"].get(name, {})
        found += [f"{name} {part}" for part in old.keys() | new.keys() if old.get(part) != new.get(part)]
    return sorted(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a run differs from its recording."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.recording", description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--record", metavar="FILE", type=Path, help="write a recording")
    mode.add_argument("--compare", metavar="FILE", type=Path, help="repeat the runs of a recording; 1 if one differs")
    parser.add_argument("--subject", default=",".join(SUBJECTS), help="with commas (default %(default)s)")
    parser.add_argument("--profile", default=",".join(PROFILES), help="with commas (default all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds 1 to N of each profile (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default 1)")
    parser.add_argument("--trace", action="store_true", help="print what happens and every change of a log")
    options = parser.parse_args(arguments)
    names, profiles, seeds = options.subject.split(","), options.profile.split(","), range(1, options.seeds + 1)
    runs = [Run(name, profile, seed) for seed in seeds for name in names for profile in profiles]
    if options.record is not None:
        return _record(options.record, runs, options.jobs, trace=options.trace)
    return _compare(options.compare, set(runs), options.jobs, trace=options.trace)


def _record(path: Path, runs: Sequence[Run], jobs: int, *, trace: bool) -> int:
    started_s = time.monotonic()
    with path.open("w") as file:
        for recording in _record_all(runs, jobs, trace=trace):
            file.write(json.dumps(recording) + "\n")
    print(f"{len(runs)} runs recorded in {time.monotonic() - started_s:.0f} s")
    return 0


def _compare(path: Path, wanted: set[Run], jobs: int, *, trace: bool) -> int:
    started_s = time.monotonic()
    recordings = [json.loads(line) for line in path.read_text().splitlines()]
    before = {run: recording for recording in recordings if (run := Run.of(recording)) in wanted}
    different = 0
    for run, after in zip(before, _record_all(list(before), jobs, trace=trace), strict=True):
        if parts := differences(before[run], after):
            different += 1
            print(f"{run}: {', '.join(parts)}", flush=True)
    print(f"{len(before)} runs compared in {time.monotonic() - started_s:.0f} s, {different} differ")
    return 1 if different or not before else 0


def _record_all(runs: Sequence[Run], jobs: int, *, trace: bool) -> Iterator[Recording]:
    """Yield the recordings in the order of the runs."""
    record = functools.partial(Run.record, trace=trace)
    if jobs == 1:
        silence_nodes()
        yield from map(record, runs)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, silence_nodes) as pool:
        yield from pool.imap(record, runs)


if __name__ == "__main__":
    sys.exit(main())
