"""An archive of the classes that Spark loads: a JVM that maps it starts, and runs its first query, in half the processor time.

`python -m tests.spark.shared_classes` makes it, unless it is there. Without it the tests run all the same.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

__all__ = ["ARCHIVE", "java_options"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_WAIT_S = 600
# These JVMs do not live long enough for what the optimizing compiler does to pay.
_SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# Another Java ignores the archive, and must not say so between the lines of a program's output.
_SILENT = "-Xlog:cds*=off -Xlog:class+path*=off"


def java_options() -> str:
    """Options for the JVM of a driver, and of all that it starts in tests."""
    return f"{_SHORT_LIFE} {_SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else _SHORT_LIFE


def make(folder: Path) -> None:
    """Run a query, and let the JVM write the classes that it took into the archive when it ends.

    Raises:
        OSError: the archive was not written.
        subprocess.TimeoutExpired: the JVM does not end.
    """
    written = folder / "classes.jsa"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_SHORT_LIFE} {_SILENT} -XX:ArchiveClassesAtExit={written}"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.Builder().master("local[2]").config("spark.driver.memory", "1g")
    for option in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(option, "false")
    spark = builder.getOrCreate()
    table = str(folder / "table")
    spark.range(100).selectExpr("id", "id % 7 as part").write.parquet(table)
    spark.read.parquet(table).groupBy("part").count().collect()
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        raise OSError("Spark runs in no JVM of its own")
    gateway.shutdown()
    # The JVM ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait(_WAIT_S)
    # In the archive's own folder, so that it is there as a whole or not at all.
    partial = ARCHIVE.with_suffix(".partial")
    partial.write_bytes(written.read_bytes())
    partial.replace(ARCHIVE)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        with tempfile.TemporaryDirectory(prefix="lmq-classes-") as name:
            make(Path(name))
