"""A query whose driver is killed without warning, again and again: the table holds every message once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lmqcluster import Client
from tests.integration.cluster import Cluster, clean_environment, reaper, wait_for

from .queues import numbered, push

MESSAGES = 3000
WAIT_S = 180

DRIVER = """
import sys
from pyspark.sql import SparkSession
from lmqcluster.spark import register

servers, queue, folder, trigger = sys.argv[1:]
builder = SparkSession.Builder().master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", folder + "/local").getOrCreate()
register(spark)
rows = spark.readStream.format("lmq").option("lmq.servers", servers).option("subscribe", queue)
rows = rows.option("lmq.subscription", queue).option("maxOffsetsPerTrigger", "500").option("minPartitions", "2").load()
sink = rows.writeStream.format("parquet").option("path", folder + "/table").option("checkpointLocation", folder + "/checkpoint")
sink = sink.trigger(availableNow=True) if trigger == "now" else sink.trigger(processingTime="0 seconds")
sink.start().awaitTermination()
if trigger == "now":
    for row in spark.read.parquet(folder + "/table").select("value").collect():
        print("value", bytes(row["value"]).decode())
"""


def start(servers: str, queue: str, folder: Path, trigger: str) -> subprocess.Popen[str]:
    """Start a driver in a process group of its own."""
    driver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DRIVER, servers, queue, str(folder), trigger],
        env=clean_environment({"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    reaper.tell("+", driver.pid)
    return driver


def test_every_message_once_though_drivers_and_a_node_are_killed(tmp_path: Path, queue: str) -> None:
    def feed() -> None:
        with Client(servers) as client:
            for position in range(0, MESSAGES, 100):
                push(client, queue, numbered(MESSAGES)[position : position + 100])

    offsets = tmp_path / "checkpoint" / "offsets"
    with Cluster(3) as cluster, ThreadPoolExecutor(1) as threads:
        servers = ",".join(cluster.rpc_addresses)
        feeding = threads.submit(feed)
        for planned in (1, 4):
            driver = start(servers, queue, tmp_path, "always")
            # The micro-batch has just been planned: it is neither read nor written.
            wait_for((offsets / str(planned)).exists, "a planned micro-batch", WAIT_S)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
            reaper.tell("-", driver.pid)
            if planned == 1:
                cluster.leader().kill()
        feeding.result()
        driver = start(servers, queue, tmp_path, "now")
        out, _ = driver.communicate(timeout=WAIT_S)
        reaper.tell("-", driver.pid)
        assert driver.returncode == 0
        found = sorted(line.removeprefix("value ").encode() for line in out.splitlines() if line.startswith("value "))
        assert found == numbered(MESSAGES)
        with Client(servers) as client:
            assert (client.subscription(queue) or {})["batches"] == []
