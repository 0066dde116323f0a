"""Tokens that are replaced, deleted or expire under a running query with a long trigger: every row reaches the table
once.

`python -m tests.spark.token_rotation --trigger 30` does it in every order, with files of tokens replaced under a
running query, and by restarting the query. A query that fails because its token has ended is restarted and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmqcluster import Client
from lmqcluster.spark import register, start_query
from tests.integration.cluster import NodeProcess, wait_for

from .queues import numbered, push
from .rotation import Tokens

__all__ = ["Case", "main"]

BATCH = 1000
STARTS_MAX = 5


class Case:
    """One query over 3,000 messages, a thousand in each micro-batch, whose token changes after the first.

    Attributes:
        restarts: how often the query was restarted because its token had ended.
    """

    def __init__(self, spark: SparkSession, node: NodeProcess, tokens: Tokens, folder: Path, trigger_s: int) -> None:
        self._spark, self._node, self._tokens, self._trigger_s = spark, node, tokens, trigger_s
        self._folder = folder
        folder.mkdir()
        self._queue = folder.name
        self._file = folder / "token"
        self._query: StreamingQuery | None = None
        self.restarts = 0

    def run(self, order: str, *, restart: bool, rows: int) -> dict[str, object]:
        """Run the case; return its result.

        Args:
            order: ``delete, replace``, ``replace, delete`` or ``replace, expire``.
            restart: restart the query when its token was replaced.
            rows: number of messages.
        """
        with Client(self._node.rpc, token=self._tokens.root) as client:
            push(client, self._queue, numbered(rows))
        lifetime_s = 1.5 * self._trigger_s if order.endswith("expire") else None
        old = self._give("one", lifetime_s)
        begun_s = time.monotonic()
        self._start()
        self._wait_for(BATCH)
        if order.startswith("delete"):
            self._tokens.delete(f"{self._queue}-one")
        self._give("two", None)
        if restart:
            self._stop()
            self._start()
        if order == "replace, delete":
            self._tokens.delete(f"{self._queue}-one")
        elif order == "replace, expire":
            wait_for(lambda: self._tokens.has_ended(old), "the end of the token")
        self._wait_for(rows)
        self._stop()
        # The last batch of the sink is settled only at the start of the next micro-batch.
        self._start()
        wait_for(lambda: self._left() == 0, "an empty queue", self._trigger_s + 600)
        self._stop()
        found = self._table()
        return {
            "order": order,
            "restarted": restart,
            "rows": len(found),
            "distinct": len(set(found)),
            "failures": self.restarts,
            "seconds": round(time.monotonic() - begun_s),
        }

    def _give(self, name: str, lifetime_s: float | None) -> str:
        secret = self._tokens.create(f"{self._queue}-{name}", f"{self._queue}-etl", lifetime_s=lifetime_s)
        new = self._file.with_suffix(".new")
        new.write_text(secret)
        new.replace(self._file)
        return secret

    def _start(self) -> None:
        rows = self._spark.readStream.format("lmq").option("lmq.servers", self._node.rpc)
        rows = rows.option("lmq.token.file", str(self._file)).option("subscribe", self._queue)
        rows = rows.option("maxOffsetsPerTrigger", str(BATCH)).option("lmq.timeout", "60")
        sink = rows.load().select("value").writeStream.format("parquet").option("path", str(self._folder / "table"))
        sink = sink.option("checkpointLocation", str(self._folder / "checkpoint"))
        self._query = start_query(sink.trigger(processingTime=f"{self._trigger_s} seconds"))

    def _stop(self) -> None:
        assert self._query is not None
        self._query.stop()

    def _wait_for(self, rows: int) -> None:
        """Wait until the table has `rows` rows; restart a query whose token has ended, as an operator would."""

        def arrived() -> bool:
            assert self._query is not None
            if self._query.isActive:
                return len(self._table()) >= rows
            error = str(self._query.exception())
            if "unauthorized" not in error or self.restarts >= STARTS_MAX:
                raise RuntimeError(f"the query ended: {error}")
            self.restarts += 1
            self._start()
            return False

        wait_for(arrived, f"{rows} rows", 10 * self._trigger_s + 600)

    def _table(self) -> list[bytes]:
        log = self._folder / "table" / "_spark_metadata"
        if not any(log.glob("[0-9]*")):
            return []
        return [bytes(row.value) for row in self._spark.read.parquet(str(self._folder / "table")).collect()]

    def _left(self) -> int:
        with Client(self._node.rpc, token=self._tokens.root) as client:
            mine = [one for one in client.subscriptions() if str(one["owner"]) == f"{self._queue}-etl"]
            assert mine
            waiting = client.backlog(queue=self._queue).messages
        return waiting + sum(batch["count"] for one in mine for batch in one["batches"])


def main(arguments: list[str] | None = None) -> int:
    """Run all cases; return 1 if a row is missing or duplicated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trigger", type=int, default=30, help="seconds between micro-batches")
    parser.add_argument("--rows", type=int, default=3000)
    given = parser.parse_args(arguments)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lmq-rotation-") as name, NodeProcess(Path(name)) as node:
        tokens = Tokens(node)
        builder = SparkSession.Builder().master("local[2]").config("spark.driver.memory", "1g")
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": f"{name}/local",
            "spark.python.authenticate.socketTimeout": "300s",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        register(spark)
        number = 0
        for order in ("delete, replace", "replace, delete", "replace, expire"):
            for restart in (True, False):
                number += 1
                case = Case(spark, node, tokens, Path(name) / f"case-{number}", given.trigger)
                found = case.run(order, restart=restart, rows=given.rows)
                print(json.dumps(found), flush=True)
                failed += (found["rows"], found["distinct"]) != (given.rows, given.rows)
        spark.stop()
    print("failed" if failed else "passed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
