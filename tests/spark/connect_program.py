"""What a program does over Spark Connect that has never called `register`: ``... REMOTE SERVERS QUEUE FOLDER`` prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

WAIT_S = 240


def main(remote: str, servers: str, queue: str, folder: Path) -> None:
    """Read the queue as a table and as streams, and write to queues, in all ways that there are."""
    options = {"lmq.servers": servers}
    spark = SparkSession.builder.remote(remote).getOrCreate()
    found: dict[str, object] = {"session": type(spark).__module__}

    table = spark.read.format("lmq").options(**options).option("subscribe", queue).load()
    found["table"] = sorted(row["value"] for row in table.select(f.col("value").cast("string")).collect())
    spark.sql(
        f"CREATE TEMPORARY VIEW jobs USING lmq OPTIONS ('lmq.servers' '{servers}', 'subscribe' '{queue}')"
    ).collect()
    found["sql"] = spark.sql("SELECT count(*) AS n, min(offset) > 0 AS numbered FROM jobs").collect()[0].asDict()
    spark.range(3).select(f.concat(f.lit("w"), "id").alias("value")).write.format("lmq").options(**options).option(
        "queue", f"{queue}-written"
    ).mode("append").save()

    def stream() -> DataFrame:
        return spark.readStream.format("lmq").options(**options).option("subscribe", f"{queue}-written").load()

    sink = stream().select("value").writeStream.format("lmq").options(**options).option("queue", f"{queue}-moved")
    query = sink.option("checkpointLocation", str(folder / "moved")).trigger(availableNow=True).start()
    found["moved"] = query.awaitTermination(WAIT_S)

    def store(rows: DataFrame, epoch: int) -> None:
        writer = rows.select("value").write.format("lmq").options(**options).option("queue", f"{queue}-stored")
        writer.option("lmq.application", queue).option("lmq.epoch", epoch).mode("append").save()

    moved = spark.readStream.format("lmq").options(**options).option("subscribe", f"{queue}-moved").load()
    query = (
        moved.writeStream.foreachBatch(store)
        .option("checkpointLocation", str(folder / "stored"))
        .trigger(availableNow=True)
        .start()
    )
    found["stored"] = query.awaitTermination(WAIT_S)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
