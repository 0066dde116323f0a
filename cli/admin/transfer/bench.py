"""``lmq-admin bench``: measures the speed of a cluster from this machine."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterable
from typing import Final

import click

from ...shared.connection.reads import Report, print_report, view_of, view_options
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.interrupt import run_until_interrupted
from ...shared.output import Column, View
from .bulk import clients_of, nodes_option, patience_option, rpc_addresses
from .load import Bench, Phase

__all__ = ["bench"]

BYTES_MAX: Final = 64 * 1024 * 1024
MESSAGES_MAX: Final = 500_000
_COLUMNS: Final = [
    Column("Phase", "phase"),
    Column("In flight", "in_flight", right=True, rank=1),
    Column("Messages", "messages", right=True),
    Column("A second", "per_second", right=True, digits=0),
    Column("p50 (ms)", "p50_ms", right=True, digits=2),
    Column("p99 (ms)", "p99_ms", right=True, digits=2),
    Column("p99.9 (ms)", "p999_ms", right=True, digits=2, rank=2),
    Column("Max (ms)", "max_ms", right=True, digits=2, rank=1),
    Column("Refused", "refused", right=True, rank=2),
]


@click.command(short_help="Measure the speed of the cluster.")
@click.option(
    "--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1, 600), help="Maximum duration of a phase."
)
@click.option("--size", default=100, show_default=True, type=click.IntRange(0, 1024 * 1024), help="Bytes of a message.")
@click.option("--in-flight", default=256, show_default=True, type=click.IntRange(1, 4096), help="Concurrent requests.")
@click.option(
    "--messages",
    type=click.IntRange(1, MESSAGES_MAX),
    help="Maximum number of messages; never more than 64 MiB of them. [default: 500,000]",
)
@nodes_option
@patience_option
@view_options(_COLUMNS)
@target_options
def bench(
    target: Target,
    view: View,
    seconds: float,
    size: int,
    in_flight: int,
    messages: int | None,
    nodes: str | None,
    patience: float,
) -> int:
    """Push, pull and acknowledge messages through all nodes at once; show rates and latencies.

    It uses a queue named lmq-bench-..., which it deletes at the end. A cluster in production feels the load. The
    command runs in one process, whose processor may be the bottleneck. Ctrl-C ends it early and prints the results so
    far.

    \b
    Example:
      lmq-admin bench --seconds 10
    """
    most = min(messages or MESSAGES_MAX, max(1, BYTES_MAX // max(1, size)))
    addresses = rpc_addresses(target, nodes)
    queue = f"lmq-bench-{uuid.uuid4().hex[:12]}"
    phases: list[Phase] = []

    async def measure(stop: asyncio.Event) -> None:
        nonlocal phases
        async with clients_of(addresses, patience) as clients:
            work = Bench(
                clients,
                queue,
                size=size,
                in_flight=in_flight,
                seconds=seconds,
                messages_max=most,
                stop=stop,
                on_phase=_print_phase,
            )
            phases = work.phases
            await work.run()

    run_until_interrupted(measure)
    print_report(_report(queue, addresses, phases), view_of(target, view))
    if not phases:
        raise CliError("interrupted before the first result", ExitCode.INTERRUPTED)
    return ExitCode.DONE


def _print_phase(phase: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{phase} ...", err=True)


def _report(queue: str, addresses: list[str], phases: Iterable[Phase]) -> Report:
    found = [
        {column.key: phase.name if column.key == "phase" else getattr(phase, column.key) for column in _COLUMNS}
        for phase in phases
    ]
    rows = [list(one.values()) for one in found]
    through = f"Through {len(addresses)} nodes." if len(addresses) > 1 else "Through one node."
    return Report({"queue": queue, "nodes": addresses, "phases": found}, _COLUMNS, rows, remark=through)
