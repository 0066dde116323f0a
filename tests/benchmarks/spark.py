"""``python -m tests.benchmarks.spark``: messages a second into queues and out of them into Parquet, through Spark.

A three-node cluster and a Spark session run on this machine together. Every number of partitions is measured after a
warm-up with the same plan; the time is that of the whole job or query.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from lmqcluster.spark import register
from tests.integration.cluster import Cluster

WARM_UP = 5_000


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark", description=__doc__)
    options.add_argument("--messages", type=int, default=200_000, metavar="N", help="messages of a job (%(default)s)")
    options.add_argument("--size", type=int, default=1_000, metavar="BYTES", help="of a message (%(default)s)")
    options.add_argument("--partitions", default="1,2,4", metavar="N,...", help="of a job (%(default)s)")
    options.add_argument("--master", default="local[2]", help="where Spark runs (%(default)s)")
    return options


class Bench:
    """Jobs against one cluster."""

    def __init__(self, session: SparkSession, servers: str, folder: Path, size: int) -> None:
        self._session = session
        self._servers = servers
        self._folder = folder
        self._size = size
        self._jobs = 0

    def run(self, messages: int, partitions: int) -> tuple[float, float]:
        """Write so many messages and read them back; returns messages a second of both.

        Raises:
            RuntimeError: the table does not hold every message once.
        """
        self._jobs += 1
        queue = f"bench-{self._jobs}"
        begun_s = time.monotonic()
        self._write(queue, messages, partitions)
        written_s = time.monotonic()
        table = self._read(queue, partitions)
        read_s = time.monotonic()
        rows = self._session.read.parquet(str(table))
        found, distinct = rows.count(), rows.select("offset").distinct().count()
        if (found, distinct) != (messages, messages):
            raise RuntimeError(
                f"{messages} messages were written, {found} rows with {distinct} offsets are in the table"
            )
        return messages / (written_s - begun_s), messages / (read_s - written_s)

    def _write(self, queue: str, messages: int, partitions: int) -> None:
        value = f"encode(lpad(cast(id AS string), {self._size}, 'x'), 'UTF-8') AS value"
        frame = self._session.range(0, messages, 1, partitions).selectExpr(value)
        writer = frame.write.format("lmq").mode("append")
        writer.option("lmq.servers", self._servers).option("queue", queue).save()

    def _read(self, queue: str, partitions: int) -> Path:
        table = self._folder / queue / "table"
        reader = self._session.readStream.format("lmq").option("lmq.servers", self._servers)
        rows = reader.option("subscribe", queue).option("minPartitions", str(partitions)).load()
        stream = rows.writeStream.format("parquet").trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(self._folder / queue / "checkpoint")).start(str(table))
        query.awaitTermination()
        return table


def session_of(master: str, folder: Path) -> SparkSession:
    """A Spark session with the data source."""
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
    partitions = [int(text) for text in options.partitions.split(",")]
    table = Table(title=f"Spark {options.master}, 3 nodes on the same machine, {options.size} bytes a message")
    for title in ("Partitions", "Written a second", "Read into Parquet a second"):
        table.add_column(title, justify="right")
    with tempfile.TemporaryDirectory(prefix="lmq-bench-") as name, Cluster(3, directory=Path(name)) as cluster:
        session = session_of(options.master, Path(name))
        bench = Bench(session, ",".join(cluster.rpc_addresses), Path(name), options.size)
        for count in partitions:
            bench.run(WARM_UP, count)
            written, read = bench.run(options.messages, count)
            table.add_row(str(count), f"{written:,.0f}", f"{read:,.0f}")
        session.stop()
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
