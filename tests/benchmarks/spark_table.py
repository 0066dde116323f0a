"""``python -m tests.benchmarks.spark_table``: reads one long queue with ``spark.read`` and shows which processors that
uses.

A three-node cluster and a Spark session run on this machine together. The processor time of each Python worker is more
meaningful than rows per second if the machine has other work.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from lmqcluster import AsyncClient
from tests.integration.cluster import Cluster

from .processor import Spent, Usage
from .spark import session_of

QUEUE = "deep"
PUSHED = 4_000
"""Messages per request."""
IN_FLIGHT = 8
WHOLE = {"all columns", "count()", "count(), offsets only"}
"""Jobs that read all messages."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark_table", description=__doc__)
    options.add_argument("--messages", type=int, default=10_000_000, metavar="N", help="in the queue (%(default)s)")
    options.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a message (%(default)s)")
    options.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s)")
    options.add_argument("--only", metavar="TEXT", default="", help="jobs whose names have this text")
    return options


@dataclass(frozen=True)
class Watched:
    """The cost of a job.

    Attributes:
        elapsed_s: elapsed time.
        spent: processor time.
        workers_s: processor time of each Python worker, the busiest first.
    """

    elapsed_s: float
    spent: Spent
    workers_s: list[float]


async def fill(addresses: Sequence[str], messages: int, size: int) -> None:
    """Push `messages` messages."""
    async with AsyncClient(addresses) as client:
        numbers = iter(range(0, messages, PUSHED))

        async def push() -> None:
            for first in numbers:
                count = min(PUSHED, messages - first)
                await client.push_many(QUEUE, [b"%0*d" % (size, first + place) for place in range(count)])

        await asyncio.gather(*(push() for _ in range(IN_FLIGHT)))


def watched(usage: Usage, job: Callable[[], object]) -> Watched:
    """Run a job and measure it."""
    before, workers, begun_s = usage.now(), usage.workers(), time.monotonic()
    job()
    elapsed_s = time.monotonic() - begun_s
    spent_s = sorted((after - workers.get(pid, 0.0) for pid, after in usage.workers().items()), reverse=True)
    return Watched(elapsed_s, usage.now() - before, spent_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print one table."""
    options = parser().parse_args(arguments)
    title = f"Spark {options.master}, {options.messages:,} messages of {options.size} bytes in one queue"
    table = Table(title=title)
    for name in ("", "Tasks", "Seconds", "Rows/s", "CPU s/M", "Nodes", "JVM", "Python", "Workers' CPU s"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory(prefix="lmq-bench-") as name, Cluster(3, directory=Path(name)) as cluster:
        asyncio.run(fill(cluster.rpc_addresses, options.messages, options.size))
        session = session_of(options.master, Path(name))
        usage = Usage(node.pid for node in cluster if node.pid is not None)
        source = session.read.format("lmq").option("lmq.servers", ",".join(cluster.rpc_addresses))
        whole = source.option("subscribe", QUEUE).load()
        numbered = source.schema("offset BIGINT").load()
        if numbered.count() != options.messages:
            raise RuntimeError("not every message is a row")
        jobs: dict[str, tuple[DataFrame, Callable[[DataFrame], object]]] = {
            "all columns": (whole, lambda rows: rows.write.format("noop").mode("overwrite").save()),
            "count()": (whole, lambda rows: rows.count()),
            "count(), offsets only": (numbered, lambda rows: rows.count()),
            "limit 5": (whole, lambda rows: rows.limit(5).collect()),
            "where offset < 1000": (whole, lambda rows: rows.where("offset < 1000").collect()),
        }
        for kind, (rows, job) in jobs.items():
            if options.only not in kind:
                continue
            found = watched(usage, lambda rows=rows, job=job: job(rows))  # type: ignore[misc]
            spent, count = found.spent, options.messages / 1e6
            # A job that stops early leaves workers that are not awaited yet.
            parts = [spent.total, spent.nodes, spent.jvm, spent.python] if kind in WHOLE else []
            table.add_row(
                kind,
                str(rows.rdd.getNumPartitions()),
                f"{found.elapsed_s:.1f}",
                f"{options.messages / found.elapsed_s:,.0f}" if parts else "",
                *([f"{part / count:.2f}" for part in parts] or [""] * 4),
                ", ".join(f"{one:.1f}" for one in found.workers_s[:3]) if parts else "",
            )
        session.stop()
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
