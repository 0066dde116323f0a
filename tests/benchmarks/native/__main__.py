"""``python -m tests.benchmarks.native``: lmqcluster and JetStream under the same load from a generator in Go."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from tests.benchmarks.machine import Machine
from tests.benchmarks.native import programs
from tests.benchmarks.native.jetstream_servers import JetStreamServers, SyncedJetStreamServers
from tests.benchmarks.native.lmq_servers import (
    LmqFrontEndServers,
    LmqServers,
    LmqTlsFrontEndServers,
    LmqTlsServers,
)
from tests.benchmarks.native.report import Report
from tests.benchmarks.native.rows import parse_load, select
from tests.benchmarks.native.servers import Servers, Settings
from tests.benchmarks.native.suite import Plan, measure

SYSTEMS: Final[dict[str, type[Servers]]] = {
    "lmqcluster": LmqServers,
    "lmqcluster-tls": LmqTlsServers,
    "lmqcluster-front-ends": LmqFrontEndServers,
    "lmqcluster-tls-front-ends": LmqTlsFrontEndServers,
    "jetstream-synced": SyncedJetStreamServers,
    "jetstream": JetStreamServers,
}
WIDTH_OF_A_FILE: Final = 180


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.native", description=__doc__)
    plan = Plan(rows=())
    options.add_argument("--seconds", type=float, default=plan.seconds, help="measured time of a row (%(default)g)")
    options.add_argument("--warm-up", type=float, default=plan.warm_up, help="seconds before it (%(default)g)")
    options.add_argument("--repeat", type=int, default=plan.repeats, help="rounds of all rows; medians (%(default)s)")
    options.add_argument("--body", type=int, default=plan.body, help="bytes of a message (%(default)s)")
    options.add_argument("--queues", type=int, default=plan.queues, help="queues that connections share (%(default)s)")
    options.add_argument("--messages", type=int, default=plan.messages, help="to consume per second (%(default)s)")
    options.add_argument(
        "--tries", type=int, default=plan.tries, help="measurements of a row if other work disturbs it (%(default)s)"
    )
    options.add_argument(
        "--calm", type=float, default=plan.calm, help="part of one processor that other work may use (%(default)g)"
    )
    options.add_argument("--only", metavar="PATTERN", help="only rows that match this regular expression")
    options.add_argument(
        "--load",
        action="append",
        default=[],
        metavar="OPERATION/PROTOCOL/CONNECTIONS/IN-FLIGHT/leader|all",
        help="a row such as push/own/128/1/all instead of the listed ones; may be repeated",
    )
    options.add_argument("--systems", default=",".join(SYSTEMS), metavar="NAME,...", help="of %(default)s")
    options.add_argument(
        "--node-option", action="append", default=[], metavar="NAME=VALUE", help="option of each node of lmqcluster"
    )
    options.add_argument("--front-ends", metavar="N", help="the same as --node-option front_ends=N")
    options.add_argument(
        "--nats-server", metavar="PROGRAM", help="default: that on the path, or the newest, built by Go"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="file for the result")
    options.add_argument("--list", action="store_true", help="list the rows and exit")
    return options


def node_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the nodes.

    Raises:
        ValueError: one is not NAME=VALUE.
    """
    texts = [*given.node_option, *([f"front_ends={given.front_ends}"] if given.front_ends else [])]
    if wrong := [text for text in texts if "=" not in text]:
        raise ValueError(f"{wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def chosen(names: str, plan: Plan) -> list[type[Servers]]:
    """Return the named systems that have a row in the plan.

    Raises:
        ValueError: a name is unknown.
    """
    if unknown := set(names.split(",")) - set(SYSTEMS):
        raise ValueError(f"no system {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}")
    used = {row.protocol for row in plan.rows}
    return [SYSTEMS[name] for name in SYSTEMS if name in names.split(",") and used & set(SYSTEMS[name].protocols)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Return the exit status: 0, 1 if an operation failed, 2 for wrong usage."""
    given = parser().parse_args(arguments)
    try:
        plan = Plan(
            rows=[parse_load(text) for text in given.load] or select(given.only),
            seconds=given.seconds,
            warm_up=given.warm_up,
            repeats=given.repeat,
            body=given.body,
            queues=given.queues,
            messages=given.messages,
            calm=given.calm,
            tries=given.tries,
        )
        kinds = chosen(given.systems, plan)
        options = node_options(given)
    except ValueError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    if given.list:
        print("\n".join(map(str, plan.rows)))
        return 0
    try:
        report = benchmark(plan, kinds, options, given.nats_server)
    except programs.MissingProgramError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    console = Console()
    report.print(console if console.is_terminal else Console(width=WIDTH_OF_A_FILE))
    if given.json is not None:
        given.json.write_text(json.dumps(report.document(), indent=1) + "\n", encoding="utf-8")
    return 1 if report.failures else 0


def benchmark(plan: Plan, kinds: Sequence[type[Servers]], options: dict[str, str], nats: str | None) -> Report:
    """Build the programs and measure the systems.

    Raises:
        MissingProgramError: a program is missing.
    """
    generator = programs.build_generator()
    with_nats = any(issubclass(kind, JetStreamServers) for kind in kinds)
    nats_server = programs.nats_server(nats) if with_nats else None
    versions = {
        "lmqcluster": programs.commit(),
        **({"nats-server": ".".join(map(str, programs.nats_version(nats_server)))} if nats_server else {}),
        "nats.go": programs.nats_go_version(),
        "Go": programs.go_version(),
        "Python": platform.python_version(),
        "kernel": platform.release(),
    }
    machine = Machine.here("load generator in Go")
    settings = Settings(options, str(nats_server or ""))
    systems = [kind(settings) for kind in kinds]
    started, clock = datetime.now(UTC), time.monotonic()
    result, failures = measure(generator, systems, plan, lambda text: print(text, file=sys.stderr))
    return Report(
        started=started.isoformat(timespec="seconds"),
        elapsed_s=time.monotonic() - clock,
        machine=machine,
        versions=versions,
        systems={system.name: system.description() for system in systems},
        plan=plan,
        result=result,
        failures=failures,
    )


if __name__ == "__main__":
    sys.exit(main())
