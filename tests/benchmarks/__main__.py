"""``python -m tests.benchmarks``: measure lmqcluster and the installed peers, and print one table."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from .cases import SIZES, matrix, parse_size, select
from .jetstream import JetStream
from .lmq import LmqCluster, LmqInMemory
from .machine import Machine, event_loop_version
from .rabbitmq import RabbitMQ
from .report import WIDTH_OF_A_FILE, Report
from .suite import Outcome, Plan, run
from .system import LostMessagesError, System

SYSTEMS: Final[tuple[type[System], ...]] = (LmqCluster, JetStream, RabbitMQ)
VARIANTS: Final[tuple[type[System], ...]] = (LmqInMemory,)
"""Systems that are measured only if they are named."""
REPEATS: Final = 3
PHASE_S: Final = 0.3
QUICK_REPEATS: Final = 1
QUICK_PHASE_S: Final = 0.1


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    names = ", ".join(system.name for system in (*SYSTEMS, *VARIANTS))
    options = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Measure a cluster of three local nodes, and peers beside it."
    )
    options.add_argument("--quick", action="store_true", help="one short repeat, for a rough impression")
    options.add_argument("--full", action="store_true", help="all routes for all sizes; otherwise only for 100B")
    options.add_argument("--only", metavar="PATTERN", help="only cases with a row that matches this regular expression")
    options.add_argument("--sizes", default=",".join(SIZES), metavar="SIZE,...", help="content sizes (%(default)s)")
    options.add_argument(
        "--repeat", type=int, metavar="N", help=f"rounds of every case ({REPEATS}; quick {QUICK_REPEATS})"
    )
    options.add_argument(
        "--seconds", type=float, metavar="S", help=f"seconds of one timed operation ({PHASE_S}; quick {QUICK_PHASE_S})"
    )
    options.add_argument("--systems", metavar="NAME,...", help=f"only these systems: {names}")
    options.add_argument("--json", type=Path, metavar="FILE", help="file for the JSON (bench-<date>.json)")
    options.add_argument("--list", action="store_true", help="list the rows that would be measured, and exit")
    return options


def chosen_systems(names: str | None) -> list[type[System]]:
    """Return the systems of a comma-separated list, ignoring case; all without a list.

    Raises:
        ValueError: a name is unknown.
    """
    if names is None:
        return list(SYSTEMS)
    known = {system.name.lower(): system for system in (*SYSTEMS, *VARIANTS)}
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise ValueError(f"no system {name!r}; there are {', '.join(known)}")
    return [system for system in (*SYSTEMS, *VARIANTS) if system.name.lower() in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks. Return the exit status: 0, 1 when messages were lost, 2 for wrong usage, 130 when
    interrupted.
    """
    options = parser().parse_args(arguments)
    try:
        sizes = [parse_size(text) for text in options.sizes.split(",")]
        cases = select(matrix(sizes, full=options.full), options.only)
        kinds = chosen_systems(options.systems)
    except ValueError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(str(row) for case in cases for row in case.rows()))
        return 0
    repeats = options.repeat or (QUICK_REPEATS if options.quick else REPEATS)
    phase_s = options.seconds or (QUICK_PHASE_S if options.quick else PHASE_S)
    plan = Plan(cases=cases, repeats=repeats, phase_s=phase_s, warm_ups=1 if options.quick else 2)
    try:
        report = measure(plan, kinds)
    except LostMessagesError as exc:
        print(f"error: messages were lost: {exc}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; all servers are stopped and their data is removed", file=sys.stderr)
        return 130
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_OF_A_FILE)
    report.print(console)
    path = options.json or Path(f"bench-{datetime.now(UTC):%Y-%m-%d-%H%M%S}.json")
    path.write_text(json.dumps(report.document(), indent=1) + "\n", encoding="utf-8")
    console.print(f"JSON: {path}", markup=False, highlight=False)
    return 0


def measure(plan: Plan, kinds: Sequence[type[System]]) -> Report:
    """Run the plan on the installed systems."""
    left_out = {kind: reason for kind in kinds if (reason := kind.missing())}
    systems = [kind() for kind in kinds if kind not in left_out]
    machine = Machine.here(event_loop_version())
    errors = Console(stderr=True)
    started, clock = datetime.now(UTC), time.monotonic()
    with errors.status("starting") as status:
        outcome: Outcome = uvloop.run(_run_until_terminated(plan, systems, status.update))
    return Report(
        plan=plan,
        machine=machine,
        outcome=outcome,
        reference=LmqCluster.name,
        notes=[*(system.note for system in systems), *left_out.values()],
        started=started.isoformat(timespec="seconds"),
        elapsed_s=time.monotonic() - clock,
    )


async def _run_until_terminated(plan: Plan, systems: Sequence[System], progress: Callable[[str], None]) -> Outcome:
    """Run the plan; SIGTERM ends it as orderly as Ctrl-C does."""
    task = asyncio.ensure_future(run(plan, systems, progress))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


if __name__ == "__main__":
    sys.exit(main())
