"""Makes the archive of classes from which the JVMs of tests start: ``python -m tests.spark.class_archive``.

A JVM loads more than ten thousand classes before Spark runs its first query. From an archive it maps them, which takes a
third less processor time. It refuses the archive of another JVM or of other JAR files, and then loads the classes as usual.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "submit_options"]

ARCHIVE: Final = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
# These JVMs are too short-lived for the optimizing compiler to pay off, and Spark's own classes need no verification.
_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_STOP_S: Final = 300.0


def submit_options() -> str:
    """Return the value of ``SPARK_SUBMIT_OPTS`` for the JVMs of tests."""
    # A JVM reports on its standard output that it refuses an archive.
    return f"{_OPTIONS} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else _OPTIONS


def _unchanged(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _use(spark: SparkSession, folder: Path) -> None:
    """Load the classes of a batch query, of a streaming query, and of Python functions in them."""
    rows, copies = str(folder / "rows"), str(folder / "copies")
    spark.range(100).selectExpr("id", "cast(id as string) as text").write.parquet(rows)

    def copy(batch: DataFrame, _number: int) -> None:
        batch.mapInArrow(_unchanged, batch.schema).write.mode("append").parquet(copies)

    stream = spark.readStream.schema("id long, text string").parquet(rows).writeStream.foreachBatch(copy)
    stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    found = spark.read.parquet(copies).groupBy("text").count().where("count = 1").orderBy("text").collect()
    assert len(found) == 100


def main() -> None:
    """Write the archive when the JVM of a session ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        made = Path(name) / ARCHIVE.name
        # Without an activated virtual environment, Spark would start a Python that lacks pyarrow.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        builder = SparkSession.Builder().master("local[1]").config("spark.ui.enabled", "false")
        for setting, value in (("codegen.wholeStage", "false"), ("codegen.factoryMode", "NO_CODEGEN")):
            builder = builder.config(f"spark.sql.{setting}", value)
        spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
        _use(spark, Path(name))
        spark.stop()
        jvm = SparkContext._gateway.proc
        # It ends with its standard input.
        jvm.communicate(timeout=_STOP_S)
        made.replace(ARCHIVE)


if __name__ == "__main__":
    main()
