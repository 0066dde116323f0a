"""``python -m tests.benchmarks.spark_push``: the cost of a row of a Spark write for the nodes and its task, without
Spark.

Three nodes run on this machine; rows go through the pusher of the data source, each round in a new epoch. Figures are
medians of the rounds, in microseconds of processor time per row.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lmqcluster import Client
from lmqcluster.spark.base.options import Write
from lmqcluster.spark.writing.pushing import Pusher, Run
from tests.integration.cluster import Cluster

from .processor import Spent, Usage

ADDED = 500
"""Approximate number of rows that Spark passes at a time."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_push", description=__doc__)
    options.add_argument("--rows", type=int, default=50_000, metavar="N", help="of a round (%(default)s)")
    options.add_argument("--sizes", default="100,1000", metavar="BYTES,...", help="of a row (%(default)s)")
    options.add_argument("--rounds", type=int, default=5, metavar="N", help="for each size (%(default)s)")
    return options


def written(cluster: Cluster, usage: Usage, epoch: int, rows: int, size: int) -> Spent:
    """Write an epoch; return the processor time."""
    options = Write.parse({"lmq.servers": ",".join(cluster.rpc_addresses), "queue": f"epoch-{epoch}"})
    before = usage.now()
    with Pusher(options, "job", 0, Run(epoch, "run")) as pusher:
        for first in range(0, rows, ADDED):
            values = [b"%0*d" % (size, first + place) for place in range(min(ADDED, rows - first))]
            pusher.add(f"epoch-{epoch}", values)
    spent = usage.now() - before
    with Client(cluster.rpc_addresses) as client:
        client.finish_epoch("job", epoch, "run", pusher.rows, pusher.digests.to_bytes(16, "big"))
    return spent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print one table."""
    options = parser().parse_args(arguments)
    table = Table(title=f"{options.rows:,} rows a round, {options.rounds} rounds")
    for name in ("Bytes", "Nodes, us a row", "Task, us a row"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory(prefix="lmq-bench-") as name, Cluster(3, directory=Path(name)) as cluster:
        usage = Usage(node.pid for node in cluster if node.pid is not None)
        epoch = 0
        for size in map(int, options.sizes.split(",")):
            found: list[Spent] = []
            for _ in range(options.rounds):
                found.append(written(cluster, usage, epoch, options.rows, size))
                epoch += 1
            nodes, task = ([getattr(one, part) * 1e6 / options.rows for one in found] for part in ("nodes", "python"))
            table.add_row(f"{size:,}", f"{statistics.median(nodes):.1f}", f"{statistics.median(task):.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
