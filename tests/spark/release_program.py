"""Try the operations of the installed PySpark on queues: ``... SERVERS FOLDER`` prints JSON, by operation "works" or
the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import __version__
from pyspark.sql import DataFrame, SparkSession

WAIT_S = 240


class Operations:
    """One method for each; all use separate queues."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._folder = folder

    def _values(self, count: int) -> DataFrame:
        return self._spark.range(count).selectExpr("cast(id as string) as value")

    def _run(self, sink: object, name: str) -> None:
        query = (
            sink.option("checkpointLocation", str(self._folder / name))  # type: ignore[attr-defined]
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    def _count(self, queue: str) -> int:
        table = self._spark.read.format("lmq").option("lmq.servers", self._servers).option("subscribe", queue)
        return table.load().count()

    def _text(self) -> DataFrame:
        folder = self._folder / "text"
        if not folder.exists():
            self._values(7).write.text(str(folder))
        return self._spark.readStream.text(str(folder))

    def write(self) -> None:
        """Write with ``df.write``."""
        self._values(5).write.format("lmq").option("lmq.servers", self._servers).option("queue", "a").mode(
            "append"
        ).save()
        assert self._count("a") == 5

    def sql(self) -> None:
        """Use a view of a data source that was not registered."""
        self._spark.sql(f"CREATE TEMPORARY VIEW v USING lmq OPTIONS ('lmq.servers' '{self._servers}', 'subscribe' 'a')")
        assert self._spark.sql("SELECT count(*) AS n FROM v").collect()[0]["n"] == 5

    def foreach_batch(self) -> None:
        """Use ``foreachBatch`` with a batch write, which stores each row once."""

        def store(rows: DataFrame, epoch: int) -> None:
            writer = rows.write.format("lmq").option("lmq.servers", self._servers).option("queue", "b").mode("append")
            writer = writer.option("lmq.application", "release").option("lmq.epoch", str(epoch))
            for _ in range(2):
                writer.save()

        self._run(self._text().writeStream.foreachBatch(store), "foreach")
        assert self._count("b") == 7

    def stream_write(self) -> None:
        """Write with ``writeStream.format("lmq")``."""
        self._run(
            self._text().writeStream.format("lmq").option("lmq.servers", self._servers).option("queue", "c"), "write"
        )
        assert self._count("c") == 7

    def stream_read(self) -> None:
        """Read with ``readStream.format("lmq")``."""
        rows = self._spark.readStream.format("lmq").option("lmq.servers", self._servers).option("subscribe", "a").load()
        target = str(self._folder / "rows")
        self._run(rows.select("value").writeStream.format("parquet").option("path", target), "read")
        assert self._spark.read.parquet(target).count() == 5


def outcome(operation: Callable[[], None]) -> str:
    """Return "works", or the line of the error that names lmq, else its beginning."""
    try:
        operation()
    except Exception as exc:  # noqa: BLE001 - it is what is to be shown
        lines = [line for line in str(exc).splitlines() if "lmq: " in line]
        return (lines[-1] if lines else f"{type(exc).__name__}: {exc}")[:400]
    return "works"


def main(servers: str, folder: Path) -> None:
    """Try everything."""
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "1g")
    spark = builder.config("spark.python.authenticate.socketTimeout", "300s").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    tried = Operations(spark, servers, folder)
    names = ("write", "sql", "foreach_batch", "stream_write", "stream_read")
    print(json.dumps({"pyspark": __version__, **{name: outcome(getattr(tried, name)) for name in names}}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
