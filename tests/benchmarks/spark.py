"""``python -m tests.benchmarks.spark``: rows per second and processor seconds of reads and writes through Spark.

A three-node cluster and a Spark session run on this machine together. Each round writes rows into a queue, reads the
queue as a table, and moves it into Parquet by a stream; the first round warms up and does not count. The figures are
the medians of the others. Processor seconds are those of the nodes, the JVM and all Python processes, for a million
rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from lmqcluster.spark import register
from tests.integration.cluster import Cluster

from .processor import Spent, Usage

WARM_UP = 5_000
BYTES = 300_000_000
"""Maximum bytes of a round."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark", description=__doc__)
    options.add_argument(
        "--messages", type=int, default=200_000, metavar="N", help="messages of a round, at most (%(default)s)"
    )
    options.add_argument("--sizes", default="100,1000,20000", metavar="BYTES,...", help="of a message (%(default)s)")
    options.add_argument("--partitions", type=int, default=2, metavar="N", help="of a written frame (%(default)s)")
    options.add_argument("--rounds", type=int, default=3, metavar="N", help="that are counted (%(default)s)")
    options.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s)")
    return options


@dataclass(frozen=True)
class Timed:
    """One measurement.

    Attributes:
        elapsed_s: elapsed time.
        spent: processor time.
    """

    elapsed_s: float
    spent: Spent


class Bench:
    """Jobs against one cluster."""

    def __init__(self, session: SparkSession, cluster: Cluster, folder: Path) -> None:
        self._session = session
        self._servers = ",".join(cluster.rpc_addresses)
        self._usage = Usage(node.pid for node in cluster if node.pid is not None)
        self._folder = folder
        self._jobs = 0

    def run(self, messages: int, size: int, partitions: int) -> dict[str, Timed]:
        """Write messages and read them back, in both ways.

        Raises:
            RuntimeError: the table does not hold every message once.
        """
        self._jobs += 1
        queue = f"bench-{self._jobs}"
        table = self._folder / queue / "table"
        found = {
            "write": self._timed(lambda: self._write(queue, messages, size, partitions)),
            "table": self._timed(lambda: self._read(queue).write.format("noop").mode("overwrite").save()),
            "count": self._timed(lambda: self._read(queue).count()),
            "stream": self._timed(lambda: self._stream(queue, partitions, table)),
        }
        rows = self._session.read.parquet(str(table))
        counts = rows.count(), rows.select("offset").distinct().count()
        if counts != (messages, messages):
            raise RuntimeError(
                f"{messages} messages were written, {counts[0]} rows with {counts[1]} offsets are in the table"
            )
        return found

    def _timed(self, job: Callable[[], object]) -> Timed:
        before, begun_s = self._usage.now(), time.monotonic()
        job()
        return Timed(time.monotonic() - begun_s, self._usage.now() - before)

    def _write(self, queue: str, messages: int, size: int, partitions: int) -> None:
        value = f"encode(lpad(cast(id AS string), {size}, 'x'), 'UTF-8') AS value"
        frame = self._session.range(0, messages, 1, partitions).selectExpr(value)
        writer = frame.write.format("lmq").mode("append")
        writer.option("lmq.servers", self._servers).option("queue", queue).save()

    def _read(self, queue: str) -> DataFrame:
        return self._session.read.format("lmq").option("lmq.servers", self._servers).option("subscribe", queue).load()

    def _stream(self, queue: str, partitions: int, table: Path) -> None:
        reader = self._session.readStream.format("lmq").option("lmq.servers", self._servers)
        rows = reader.option("subscribe", queue).option("minPartitions", str(partitions)).load()
        stream = rows.writeStream.format("parquet").trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(self._folder / queue / "checkpoint")).start(str(table))
        query.awaitTermination()


def session_of(master: str, folder: Path) -> SparkSession:
    """Return a Spark session with the data source."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master(master).appName("lmq-bench")
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    return session


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print one table."""
    options = parser().parse_args(arguments)
    table = Table(title=f"Spark {options.master}, 3 nodes on the same machine, {options.rounds} rounds")
    for title in ("Bytes", "Rows", "", "Rows/s", "from", "to", "CPU s/M", "Nodes", "JVM", "Python"):
        table.add_column(title, justify="right")
    with tempfile.TemporaryDirectory(prefix="lmq-bench-") as name, Cluster(3, directory=Path(name)) as cluster:
        session = session_of(options.master, Path(name))
        bench = Bench(session, cluster, Path(name))
        for size in map(int, options.sizes.split(",")):
            count = min(options.messages, BYTES // size)
            bench.run(min(count, WARM_UP), size, options.partitions)
            found: dict[str, list[Timed]] = defaultdict(list)
            for _ in range(options.rounds):
                for kind, timed in bench.run(count, size, options.partitions).items():
                    found[kind].append(timed)
            for kind, repeats in found.items():
                table.add_row(f"{size:,}", f"{count:,}", kind, *_figures(repeats, count))
        session.stop()
    Console().print(table)
    return 0


def _figures(repeats: Sequence[Timed], count: int) -> list[str]:
    rates = [count / one.elapsed_s for one in repeats]
    parts = [
        statistics.median(values) * 1e6 / count
        for values in (
            [one.spent.total for one in repeats],
            [one.spent.nodes for one in repeats],
            [one.spent.jvm for one in repeats],
            [one.spent.python for one in repeats],
        )
    ]
    return [f"{rate:,.0f}" for rate in (statistics.median(rates), min(rates), max(rates))] + [
        f"{part:.1f}" for part in parts
    ]


if __name__ == "__main__":
    sys.exit(main())
