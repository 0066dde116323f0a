"""The worked example: real flights go through queues into a table, while a node and the writing query are killed.

``python -m tests.spark.flights_example`` runs it on all 336,776 flights, which takes some minutes, and compares the
table with the published figures. Each step is a command that can be typed as it is printed.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from lmqcluster import Client
from lmqcluster.spark.pipelines.base.session import SessionSettings, open_session
from tests.integration.cluster import Cluster, clean_environment, reaper, wait_for

from .flights import FLIGHTS, PUBLISHED, Figures, figures_of_csv, figures_of_table, flights_csv

__all__ = ["land_flights"]

PATTERN = "^flights[.]"
MICRO_BATCHES = 10
DEADLINE_S = 900.0
_MODULES = {"lmq-admin": "lmqcluster_cli.admin", "lmq-pipeline": "lmqcluster_cli.pipeline"}


def land_flights(cluster: Cluster, flights: Path, rows: int, table: Path, say: Callable[[str], None]) -> None:
    """Send flights to queues, and from there to Parquet, killing first a node and then the query.

    Args:
        cluster: three nodes, whose leader is dead afterwards.
        flights: a CSV file.
        rows: its number of flights.
        table: the target table.
        say: receives progress messages.
    """
    run(say, "lmq-admin", "--node", cluster[0].http, "replay", str(flights), "--queue", "flights.{origin}")
    servers = ",".join(cluster.rpc_addresses)
    reading = ["--match", PATTERN, "--servers", servers, "--output", str(table), "--batch", str(rows // MICRO_BATCHES)]
    with started(say, "lmq-pipeline", "--master", "local[2]", "archive", *reading, "--trigger", "0") as query:
        wait_for(lambda: batches_done(query, table) >= 1, "the first micro-batch", DEADLINE_S)
        leader = cluster.leader()
        leader.kill()
        say(f"SIGKILL of node {leader.name}, the leader, after {batches_done(query, table)} micro-batches")
        count = batches_done(query, table)
        wait_for(lambda: batches_done(query, table) >= count + 2, "micro-batches without the node", DEADLINE_S)
    say(f"SIGKILL of the query after {batches_done(None, table)} micro-batches")
    with Client(servers) as client:
        left = client.backlog(pattern=PATTERN).messages
    if not left:
        raise RuntimeError("the query was killed too late: nothing was left to read")
    say(f"{left:,} flights are still in their queues; the query is restarted")
    run(say, "lmq-pipeline", "--master", "local[2]", "archive", *reading, "--once")


def batches_done(query: subprocess.Popen[bytes] | None, table: Path) -> int:
    """Return the micro-batches in the commit log of the table's query, which must be running unless it is None."""
    if query is not None and query.poll() is not None:
        raise RuntimeError(f"the query ended with {query.returncode}")
    return sum(path.name.isdigit() for path in table.glob("_checkpoint/commits/*"))


def run(say: Callable[[str], None], program: str, *arguments: str) -> None:
    """Run a program to its end.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    say(shlex.join([program, *arguments]))
    subprocess.run(command_line(program, arguments), env=clean_environment(), check=True, timeout=DEADLINE_S)


@contextmanager
def started(say: Callable[[str], None], program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program, and kill it with its descendants at the end, as the failure of a machine would."""
    say(f"{shlex.join([program, *arguments])} &")
    process = subprocess.Popen(command_line(program, arguments), env=clean_environment(), start_new_session=True)
    reaper.tell("+", process.pid)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        reaper.tell("-", process.pid)


def command_line(program: str, arguments: Sequence[str]) -> list[str]:
    """Return the words that run a program of this checkout."""
    return [sys.executable, "-m", _MODULES[program], *arguments]


def show(figures: Figures) -> None:
    """Print figures as a table."""
    print(f"{'origin':8}{'flights':>10}{'mean departure delay':>24}")
    for name, origin in sorted(figures.origins.items()):
        print(f"{name:8}{origin.flights:10,}{origin.delay:20.2f} min")
    total = sum(origin.flights for origin in figures.origins.values())
    print(f"{'all':8}{total:10,}; with known weather: {figures.with_weather:,}")


@click.command()
@click.option(
    "--rows", default=FLIGHTS, show_default=True, type=click.IntRange(1000, FLIGHTS), help="Number of flights."
)
def main(rows: int) -> None:
    """Run the worked example in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="lmqcluster-example-") as name:
        folder = Path(name)
        flights = flights_csv(folder / "flights.csv", rows)
        expected = PUBLISHED if rows == FLIGHTS else figures_of_csv(flights)
        (folder / "cluster").mkdir()
        with Cluster(3, directory=folder / "cluster") as cluster:
            land_flights(cluster, flights, rows, folder / "table", lambda text: print(f"== {text}", flush=True))
        with open_session(SessionSettings(name="flights", log=folder / "spark.log")) as spark:
            found = figures_of_table(spark, folder / "table")
    show(found)
    if found != expected:
        print("The expected figures are different:")
        show(expected)
        sys.exit(1)
    print("These are the published figures." if rows == FLIGHTS else "These are the figures of the file.")


if __name__ == "__main__":
    main()
