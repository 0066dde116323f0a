"""Kill drivers, executors, Python workers and nodes while rows move from a queue to a table, or from files to a queue.

Each driver divides the rows into another number of tasks than the previous one, and uses the next of the masters.
`python -m tests.spark.kills read --rows 1000000` and `... write ...`; each prints the number of kills by kind, and
fails if a row is missing or duplicated.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet  # type: ignore[import-untyped]

from lmqcluster import Client
from tests.integration.cluster import Cluster, clean_environment, reaper

from .queues import numbered, pulled, push, ready

__all__ = ["Drill", "main"]

FILES = 20
BATCH = 20_000
DEADLINE_S = 1800.0
TASKS = (4, 1, 8, 2)
KINDS = ("driver", "executor", "worker", "node")

DRIVER = """
import sys
from pyspark.sql import SparkSession
from lmqcluster.spark import register, start_query

way, servers, queue, folder, master, batch, tasks = sys.argv[1:]
builder = SparkSession.Builder().master(master).config("spark.ui.enabled", "false").config("spark.local.dir", folder + "/local")
builder = builder.config("spark.driver.memory", "1g").config("spark.executor.memory", "1g").config("spark.speculation", "true")
builder = builder.config("spark.task.maxFailures", "50").config("spark.deploy.maxExecutorRetries", "-1")
spark = builder.getOrCreate()
register(spark)
if way == "read":
    rows = spark.readStream.format("lmq").option("lmq.servers", servers).option("subscribe", queue)
    rows = rows.option("lmq.subscription", queue).option("maxOffsetsPerTrigger", batch).option("minPartitions", tasks).load()
    sink = rows.select("value").writeStream.format("parquet").option("path", folder + "/table")
else:
    rows = spark.readStream.option("maxFilesPerTrigger", "1").text(folder + "/files").repartition(int(tasks))
    sink = rows.writeStream.format("lmq").option("lmq.servers", servers).option("queue", queue)
sink = sink.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
start_query(sink).awaitTermination()
if way == "read":
    # Spark knows which files belong to the table; tasks that were killed have left others.
    spark.read.parquet(folder + "/table").write.mode("overwrite").parquet(folder + "/result")
"""


class Drill:
    """One direction of rows under kills.

    Attributes:
        killed: kills by kind.
        failed: how often the query ended because of them, and was restarted.
    """

    def __init__(
        self,
        way: str,
        rows: int,
        folder: Path,
        rng: random.Random,
        every_s: float,
        masters: Sequence[str],
        kinds: Sequence[str],
    ) -> None:
        self._way, self._rows, self._folder, self._rng = way, rows, folder, rng
        self._every_s, self._kinds, self._masters, self._tasks = (
            every_s,
            kinds,
            itertools.cycle(masters),
            itertools.cycle(TASKS),
        )
        self.killed: Counter[str] = Counter()
        self.failed = 0

    def run(self, kills: int) -> None:
        """Move the rows while `kills` processes die, one after the other.

        Raises:
            AssertionError: a row is missing, or duplicated.
        """
        with Cluster(3) as cluster, Client(",".join(cluster.rpc_addresses)) as client:
            self._prepare(client)
            driver, ends_s = self._start(cluster), time.monotonic() + DEADLINE_S
            while True:
                try:
                    status = driver.wait(self._every_s * self._rng.uniform(0.5, 1.5))
                except subprocess.TimeoutExpired:
                    assert time.monotonic() < ends_s, "the rows have not arrived in time"
                    if sum(self.killed.values()) < kills and self._kill(cluster, driver):
                        driver = self._start(cluster)
                    continue
                reaper.tell("-", driver.pid)
                if status == 0:
                    break
                # A driver's own Python processes are among the workers, and a query does not survive their end.
                self.failed += 1
                assert self.failed <= self.killed["worker"], (self._folder / "driver.log").read_text()[-4000:]
                driver = self._start(cluster)
            found = sorted(self._arrived(client, cluster[0].http))
        expected = numbered(self._rows)
        assert found == expected, f"{len(found)} rows, {len(set(found))} different ones, of {len(expected)}"

    def _prepare(self, client: Client) -> None:
        rows = numbered(self._rows)
        if self._way == "read":
            for start in range(0, len(rows), 10_000):
                push(client, "q", rows[start : start + 10_000])
            return
        (self._folder / "files").mkdir()
        for number in range(FILES):
            (self._folder / "files" / f"{number:02}.txt").write_bytes(b"\n".join(rows[number::FILES]))

    def _start(self, cluster: Cluster) -> subprocess.Popen[bytes]:
        master, tasks = next(self._masters), next(self._tasks)
        print(f"a driver begins on {master}, with {tasks} tasks", flush=True)
        arguments = [self._way, ",".join(cluster.rpc_addresses), "q", str(self._folder), master, str(BATCH), str(tasks)]
        with (self._folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", DRIVER, *arguments],
                env=clean_environment(
                    {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": ""}
                ),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        reaper.tell("+", driver.pid)
        return driver

    def _kill(self, cluster: Cluster, driver: subprocess.Popen[bytes]) -> bool:
        """Kill a process of the next kind; return whether it is the driver."""
        kind = self._kinds[sum(self.killed.values()) % len(self._kinds)]
        if kind == "node":
            cluster[self._rng.randrange(3)].restart()
        elif kind == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            reaper.tell("-", driver.pid)
        else:
            is_one = _is_executor if kind == "executor" else _is_worker
            found = [pid for pid, command in _processes_of(driver.pid) if is_one(command)]
            if not found:
                # Between two drivers there is none; the next turn finds one.
                return False
            os.kill(self._rng.choice(found), signal.SIGKILL)
        self.killed[kind] += 1
        print(f"killed: {kind}", flush=True)
        return kind == "driver"

    def _arrived(self, client: Client, http: str) -> Iterator[bytes]:
        if self._way == "read":
            assert not ready(http, "q")
            yield from pyarrow.parquet.read_table(self._folder / "result").column("value").to_pylist()
            return
        yield from pulled(client, "q")


def _is_executor(command: str) -> bool:
    return "CoarseGrainedExecutorBackend" in command


def _is_worker(command: str) -> bool:
    return "pyspark.daemon" in command or "pyspark/daemon" in command


def _processes_of(session: int) -> Iterator[tuple[int, str]]:
    """Yield process id and command line of the processes of a session."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == session:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (ProcessLookupError, FileNotFoundError):
            # It has ended since the listing.
            continue


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the drill; return the exit status."""
    options = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    options.add_argument("way", choices=["read", "write"])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--kills", type=int, default=16)
    options.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds to kill, in this order, repeatedly"
    )
    options.add_argument("--every", type=float, default=8.0, metavar="SECONDS", help="mean seconds between two kills")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--master", action="append", help="may be repeated; drivers use them in turn")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lmq-kills-") as name:
        rng = random.Random(chosen.seed)
        masters = chosen.master or ["local-cluster[2,1,1024]"]
        drill = Drill(chosen.way, chosen.rows, Path(name), rng, chosen.every, masters, chosen.kinds)
        began = time.monotonic()
        drill.run(chosen.kills)
    took_s = time.monotonic() - began
    print(
        f"{chosen.rows} rows, each once, after {took_s:.0f} s; killed {dict(drill.killed)}, {drill.failed} queries failed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
