"""``lmq-drill``: injects faults into a cluster, and judges what happened to its messages."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from .drill import Result, run_drill
from .errors import DrillError, HistoryError, MissingToolError, ScenarioError
from .judges.checker import judge
from .load.history import read_history
from .nodes.running import RunningCluster
from .reports.json_report import as_table, summary
from .reports.page import page
from .reports.table import print_results, print_rows
from .scenario import Scenario, find, library, read
from .verify_command import GRACE_S, verify_histories

__all__ = ["ExitCode", "main"]

F = TypeVar("F", bound=Callable[..., Any])
_SUITES: Final = ("short", "full", "soak")


class ExitCode(IntEnum):
    """Exit statuses of ``lmq-drill``."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    UNKNOWN = 3
    BAD_DATA = 65
    UNAVAILABLE = 69
    CONFIG = 78


_EXIT_CODES = """
\b
Exit codes: 0 all passed, 1 one failed, 2 usage, 3 none failed but one is undecided,
65 unreadable history, 69 a drill could not be started, 78 invalid scenario or missing program.
"""


def _run_options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            help="New folder for histories, logs and reports.  [default: var/drills/TIME]",
        ),
        click.option(
            "--time-factor",
            type=click.FloatRange(min=1.0),
            default=1.0,
            show_default=True,
            help="Factor for time limits, on a busy machine. Safety has no time limits.",
        ),
        click.option(
            "--old-program",
            metavar="COMMAND|git:REVISION",
            help="An older lmq that the nodes run first; also a revision of this working copy.   "
            "[default: for rolling_upgrade the last release in git's history]",
        ),
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
def main() -> None:
    """Inject faults into a cluster, and judge what happened to its messages.

    Each drill starts a cluster on this machine, loads it, injects the faults of its scenario, ends them, drains the
    queues, and judges the history that the clients recorded.
    """


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_command(as_json: bool) -> None:
    """Show the scenarios that come with lmq-drill."""
    with _errors():
        scenarios = [read(path) for path in library().values()]
    if as_json:
        print(json.dumps([{"name": s.name, "title": s.title, "why": s.why, "suites": s.suites} for s in scenarios]))
        return
    rows = [[scenario.name, ", ".join(scenario.suites), scenario.title] for scenario in scenarios]
    print_rows(Console(), ("Scenario", "Suites", "What happens"), rows)


@main.command(epilog=_EXIT_CODES)
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of every choice of a drill.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Number of seeds, from SEED on."
)
@click.option("--nodes", metavar="HTTP,...", help="HTTP addresses of a running cluster, instead of starting one.")
@click.option("--data-dirs", metavar="DIR,...", help="Data directories of these nodes, to kill and pause them.")
@_run_options
def run(
    scenarios: tuple[str, ...],
    seed: int,
    seeds: int,
    as_json: bool,
    out: Path | None,
    time_factor: float,
    old_program: str | None,
    nodes: str | None,
    data_dirs: str | None,
) -> None:
    """Run scenarios, by name or file.

    With --nodes, they run against an existing cluster on this machine. Then only the links of clients can be broken,
    and with --data-dirs the processes; their supervisor must restart them. The drill's queues are deleted at the end.
    """
    if data_dirs and not nodes:
        raise click.UsageError("--data-dirs needs --nodes")
    attached = (nodes.split(","), [Path(path) for path in (data_dirs or "").split(",") if path]) if nodes else None
    with _errors():
        chosen = [(find(name), seed + number) for name in scenarios for number in range(seeds)]
        _finish(_carry_out(iter(chosen), out, time_factor, old_program, attached, quiet=as_json), as_json)


@main.command(epilog=_EXIT_CODES)
@click.argument("name", type=click.Choice(_SUITES), metavar="short|full|soak")
@click.option("--seed", type=int, help="The first seed.  [default: 1, for soak the clock]")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="short, full: number of seeds for each scenario.",
)
@click.option(
    "--hours", type=click.FloatRange(min=0.0, min_open=True), default=1.0, show_default=True, help="soak: duration."
)
@_run_options
def suite(
    name: str,
    seed: int | None,
    seeds: int,
    hours: float,
    as_json: bool,
    out: Path | None,
    time_factor: float,
    old_program: str | None,
) -> None:
    """Run the scenarios of a suite: short, full, or soak, which continues with new seeds for some hours."""
    with _errors():
        members = [scenario for path in library().values() if name in (scenario := read(path)).suites]
        if name == "soak":
            chosen = _soak(members, int(time.time()) if seed is None else seed, hours)
        else:
            first = 1 if seed is None else seed
            chosen = iter([(scenario, first + number) for number in range(seeds) for scenario in members])
        _finish(_carry_out(chosen, out, time_factor, old_program, None, quiet=as_json), as_json)


@main.command("check", epilog=_EXIT_CODES)
@click.argument("histories", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=GRACE_S,
    show_default=True,
    help="Seconds for which a lost pull may hold a message.",
)
def check_command(histories: tuple[Path, ...], grace: float) -> None:
    """Judge existing histories, in memory. ``verify`` judges larger ones."""
    with _errors(ExitCode.BAD_DATA):
        judgement = judge(read_history(histories), grace_s=grace)
    undecided = judgement.undecided or not judgement.totals.acknowledged or not judgement.totals.delivered
    code = ExitCode.FAIL if judgement.convicted else ExitCode.UNKNOWN if undecided else ExitCode.PASS
    faults = {fault: count for fault, count in judgement.faults.items() if count}
    print(json.dumps({"verdict": code.name.lower(), "faults": faults, "examples": judgement.examples}))
    sys.exit(code)


@main.command("verify", epilog=_EXIT_CODES)
@click.argument("histories", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--examples",
    default=5,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Maximum number of cases to show of a finding.",
)
@click.option(
    "--grace",
    default=GRACE_S,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds for which an operation of unknown outcome may take effect after its client gave up.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
@click.option(
    "--memory", metavar="SIZE", help="Memory of the driver, and so of a local master, like 4g.  [default: 1g]"
)
def verify_command(
    histories: tuple[str, ...], examples: int, grace: float, as_json: bool, master: str | None, memory: str | None
) -> None:
    """Judge histories of any size on Spark.

    Reports messages that were lost, invented, duplicated or reordered, by the records of a drill's clients. PATHs are
    JSON lines: files, directories or globs. chaos/DESIGN.md describes the format.

    \b
    Example:
      lmq-drill verify var/drills/*/*/history.jsonl
    """
    with _errors():
        sys.exit(
            verify_histories(histories, examples=examples, grace_s=grace, as_json=as_json, master=master, memory=memory)
        )


def _soak(members: list[Scenario], seed: int, hours: float) -> Iterator[tuple[Scenario, int]]:
    end_s = time.monotonic() + hours * 3600
    while True:
        for scenario in members:
            if time.monotonic() > end_s:
                return
            yield scenario, seed
        seed += 1


def _carry_out(
    chosen: Iterator[tuple[Scenario, int]],
    out: Path | None,
    time_factor: float,
    old_program: str | None,
    attached: tuple[list[str], list[Path]] | None,
    *,
    quiet: bool,
) -> list[Result]:
    """Run drills one after another, and write the reports after each, so that they are available during a soak."""
    folder = out or Path("var") / "drills" / time.strftime("%Y%m%d-%H%M%S")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"--out {folder} is not empty")
    console = Console(stderr=True, quiet=quiet)
    results: list[Result] = []
    for scenario, seed in chosen:
        console.print(f"{scenario.name} (seed {seed}): {scenario.title} ...", markup=False)
        own = folder / f"{scenario.name}-{seed}"
        running = RunningCluster(own.resolve(), *attached) if attached else None
        result = run_drill(
            scenario, seed=seed, folder=own, old_program=old_program, time_factor=time_factor, running=running
        )
        results.append(result)
        (own / "report.json").write_text(json.dumps(as_table(result), indent=1) + os.linesep, encoding="utf-8")
        (own / "report.html").write_text(page([result]), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(summary(results), indent=1) + os.linesep, encoding="utf-8")
    (folder / "report.html").write_text(page(results), encoding="utf-8")
    console.print(f"reports: {folder / 'report.html'}", markup=False, soft_wrap=True)
    return results


def _finish(results: list[Result], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary(results)))
    else:
        print_results(Console(), results)
    verdicts = {result.verdict for result in results}
    sys.exit(ExitCode.FAIL if "fail" in verdicts else ExitCode.UNKNOWN if "unknown" in verdicts else ExitCode.PASS)


@contextlib.contextmanager
def _errors(drill_error: ExitCode = ExitCode.UNAVAILABLE) -> Iterator[None]:
    """Print errors as one line on standard error."""
    try:
        yield
    except HistoryError as exc:
        print(f"lmq-drill: {exc}", file=sys.stderr)
        sys.exit(ExitCode.BAD_DATA)
    except (ScenarioError, MissingToolError) as exc:
        print(f"lmq-drill: {exc}", file=sys.stderr)
        sys.exit(ExitCode.CONFIG)
    except DrillError as exc:
        print(f"lmq-drill: {exc}", file=sys.stderr)
        sys.exit(drill_error)


if __name__ == "__main__":
    main()
