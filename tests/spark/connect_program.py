"""Use queues over Spark Connect, mostly without `register`: ``... REMOTE SERVERS QUEUE FOLDER`` prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lmqcluster.spark import register, start_query

WAIT_S = 240


def main(remote: str, servers: str, queue: str, folder: Path) -> None:
    """Read the queue as a table and as streams, and write to queues, in every possible way."""
    options = {"lmq.servers": servers}
    spark = SparkSession.builder.remote(remote).getOrCreate()
    found: dict[str, object] = {"session": type(spark).__module__}

    def stream(name: str) -> DataFrame:
        return spark.readStream.format("lmq").options(**options).option("subscribe", name).load().select("value")

    table = spark.read.format("lmq").options(**options).option("subscribe", queue).load()
    found["table"] = sorted(row["value"] for row in table.select(f.col("value").cast("string")).collect())
    view = f"CREATE TEMPORARY VIEW jobs USING lmq OPTIONS ('lmq.servers' '{servers}', 'subscribe' '{queue}')"
    spark.sql(view).collect()
    found["sql"] = spark.sql("SELECT count(*) AS n, min(offset) > 0 AS numbered FROM jobs").collect()[0].asDict()
    written = spark.range(3).select(f.concat(f.lit("w"), "id").alias("value")).write.format("lmq").mode("append")
    written.options(**options).option("queue", f"{queue}-written").save()

    sink = stream(f"{queue}-written").writeStream.format("lmq").options(**options).option("queue", f"{queue}-moved")
    query = sink.option("checkpointLocation", str(folder / "moved")).trigger(availableNow=True).start()
    found["moved"] = query.awaitTermination(WAIT_S)

    def store(rows: DataFrame, epoch: int) -> None:
        writer = rows.write.format("lmq").options(**options).option("queue", f"{queue}-stored").mode("append")
        writer.option("lmq.application", queue).option("lmq.epoch", epoch).save()

    # Programs do this if the package is not installed.
    register(spark)
    each = stream(f"{queue}-moved").writeStream.foreachBatch(store)
    query = start_query(each.option("checkpointLocation", str(folder / "stored")).trigger(availableNow=True))
    found["stored"] = query.awaitTermination(WAIT_S)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
