"""The state that many micro-batches through ``foreachBatch`` leave in the cluster, which must not grow with their
number.

`python -m tests.spark.many_batches --batches 20000` stores one row with each micro-batch, as an epoch of one
application, and prints from time to time what the cluster keeps of the job. At the end every row must be stored once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lmqcluster import Client
from lmqcluster.spark import register, start_query
from tests.integration.cluster import NodeProcess, fetch, wait_for

from .queues import pulled

__all__ = ["main"]

APPLICATION = "many-batches"
QUEUE = "stored"


def session(folder: Path) -> SparkSession:
    """Return a session of two threads that knows ``lmq``."""
    builder = SparkSession.Builder().master("local[2]").config("spark.driver.memory", "1g")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.python.authenticate.socketTimeout": "300s",
        # Each micro-batch is one row: compiling code for it takes longer than interpreting it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def kept(node: NodeProcess) -> dict[str, Any]:
    """Return what the cluster keeps of all jobs, and the memory of its whole state."""
    with Client(node.rpc) as client:
        jobs = client.jobs()
    page = fetch(node.http, "/metrics")[1].decode()
    used = next(line.split()[1] for line in page.splitlines() if line.startswith("lmq_memory_used_bytes"))
    return {"jobs": [{k: v for k, v in job.items() if k != "idle_s"} for job in jobs], "state_bytes": int(float(used))}


def drained(node: NodeProcess) -> list[bytes]:
    """Pull all stored messages from the queue and return them."""
    with Client(node.rpc) as client:
        return pulled(client, QUEUE)


def main(arguments: list[str] | None = None) -> int:
    """Run the query; return 1 if a row is missing or stored twice, or if the cluster keeps more than one mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=500, help="number of micro-batches between reports")
    given = parser.parse_args(arguments)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="lmq-batches-") as name, NodeProcess(Path(name)) as node:
        spark = session(Path(name))
        begun_s = time.monotonic()
        values: list[bytes] = []

        def store(rows: DataFrame, epoch: int) -> None:
            writer = rows.write.format("lmq").mode("append").option("lmq.servers", node.rpc).option("queue", QUEUE)
            writer.option("lmq.application", APPLICATION).option("lmq.epoch", str(epoch)).save()
            if (epoch + 1) % given.every == 0:
                values.extend(drained(node))
                seconds = round(time.monotonic() - begun_s)
                print(json.dumps({"batches": epoch + 1, "seconds": seconds, **kept(node)}), flush=True)

        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").option("numPartitions", "1")
        sink = rows.load().selectExpr("cast(cast(value as string) as binary) as value").writeStream.foreachBatch(store)
        sink = sink.option("checkpointLocation", f"{name}/checkpoint").trigger(processingTime="0 seconds")
        query = start_query(sink)

        def is_done() -> bool:
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
            progress = query.lastProgress
            return progress is not None and progress["batchId"] + 1 >= given.batches

        wait_for(is_done, f"{given.batches} micro-batches", given.batches * 30.0)
        query.stop()
        spark.stop()
        found = kept(node)
        values += drained(node)
        numbers = sorted(int(value) for value in values)
        passed = numbers == list(range(len(numbers))) and len(numbers) >= given.batches
        passed = passed and len(found["jobs"]) == 1 and found["jobs"][0]["streams"] <= 1
        print(json.dumps({"rows": len(numbers), "distinct": len(set(numbers)), **found}), flush=True)
    print("passed" if passed else "failed", flush=True)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
