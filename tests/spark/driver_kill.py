"""Queries whose driver is killed abruptly, with a node of the cluster: the table holds every message once.

`python -m tests.spark.driver_kill --runs 20 --seed 1` does it at random moments.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lmqcluster import Client
from tests.integration.cluster import Cluster, clean_environment, reaper, wait_for

from .queues import numbered, push

__all__ = ["Kill", "drill"]

MESSAGES = 3000
WAIT_S = 600

DRIVER = """
import sys
from pyspark.sql import SparkSession
from lmqcluster.spark import register, start_query

servers, queue, folder, trigger = sys.argv[1:]
builder = SparkSession.Builder().master("local[2]").config("spark.driver.memory", "1g").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", folder + "/local").getOrCreate()
register(spark)
rows = spark.readStream.format("lmq").option("lmq.servers", servers).option("subscribe", queue)
rows = rows.option("lmq.subscription", queue).option("maxOffsetsPerTrigger", "500").option("minPartitions", "2").load()
sink = rows.writeStream.format("parquet").option("path", folder + "/table").option("checkpointLocation", folder + "/checkpoint")
sink = sink.trigger(availableNow=True) if trigger == "now" else sink.trigger(processingTime="0 seconds")
start_query(sink).awaitTermination()
if trigger == "now":
    for row in spark.read.parquet(folder + "/table").select("value").collect():
        print("value", bytes(row["value"]).decode())
"""


def start(servers: str, queue: str, folder: Path, trigger: str) -> subprocess.Popen[str]:
    """Start a driver in a new process group."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    driver = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", DRIVER, servers, queue, str(folder), trigger],
        # With byte code Python starts within the time that Spark allows.
        env=clean_environment({"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": ""}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    reaper.tell("+", driver.pid)
    return driver


@dataclass(frozen=True)
class Kill:
    """The death of a driver.

    Attributes:
        planned: number of the micro-batch after whose planning it dies.
        delay_s: further delay in seconds.
        node: the node that is killed with it: ``leader``, ``follower`` or ``none``.
    """

    planned: int
    delay_s: float = 0.0
    node: str = "none"


def drill(folder: Path, queue: str, kills: Sequence[Kill]) -> None:
    """Run a query to its end while its drivers are killed, and check the table.

    Raises:
        AssertionError: a message is missing, or duplicated.
    """

    def feed() -> None:
        with Client(servers) as client:
            for position in range(0, MESSAGES, 100):
                push(client, queue, numbered(MESSAGES)[position : position + 100])

    offsets = folder / "checkpoint" / "offsets"
    with Cluster(3) as cluster, ThreadPoolExecutor(1) as threads:
        servers = ",".join(cluster.rpc_addresses)
        feeding = threads.submit(feed)
        for kill in kills:
            driver = start(servers, queue, folder, "always")
            wait_for((offsets / str(kill.planned)).exists, "a planned micro-batch", WAIT_S)
            time.sleep(kill.delay_s)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
            reaper.tell("-", driver.pid)
            if kill.node != "none":
                (cluster.leader() if kill.node == "leader" else cluster.followers()[0]).kill()
        feeding.result()
        driver = start(servers, queue, folder, "now")
        out, _ = driver.communicate(timeout=WAIT_S)
        reaper.tell("-", driver.pid)
        assert driver.returncode == 0
        found = sorted(line.removeprefix("value ").encode() for line in out.splitlines() if line.startswith("value "))
        assert found == numbered(MESSAGES), f"{len(found)} rows, {len(set(found))} different ones, of {MESSAGES}"
        with Client(servers) as client:
            assert (client.subscription(queue) or {})["batches"] == []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with random kills."""
    options = argparse.ArgumentParser(prog="python -m tests.spark.driver_kill", description=__doc__)
    options.add_argument("--runs", type=int, default=20, metavar="N")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the first run")
    chosen = options.parse_args(arguments)
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        rng = random.Random(seed)
        kill = Kill(rng.randint(0, 4), rng.uniform(0, 3), rng.choice(["leader", "follower"]))
        with tempfile.TemporaryDirectory(prefix="lmq-driver-kill-") as name:
            drill(Path(name), "q", [kill])
        print(f"seed {seed}: {kill}: {MESSAGES} messages, each once", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
