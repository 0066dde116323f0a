"""The first program and the typed stream of docs/spark.md, with the documented code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lmqcluster import Client
from tests.integration.cluster import wait_for

from .queues import pulled

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
GOOD = b'{"id": 1, "customer": "Ann", "cents": 950, "at": "2026-11-03T10:00:00Z"}'
BAD = [b'{"id": "one"}', b"no JSON", b'{"id": 2', b"\xff\x00"]


def block(heading: str) -> str:
    """Return the Python code under a heading."""
    found = re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_program(spark: SparkSession, servers: str, client: Client, tmp_path: Path) -> None:
    client.push("documented", "pay invoice 7")
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    program = re.sub(r'^servers = ".*"$', f'servers = "{servers}"', found[1], flags=re.MULTILINE)
    program = program.replace('"subscribe", "jobs"', '"subscribe", "documented"')
    program = program.replace('"checkpoint"', repr(str(tmp_path))).replace(
        "awaitTermination()", "processAllAvailable()"
    )
    names: dict[str, Any] = {}
    exec(compile(program, str(PAGE), "exec"), names)
    try:
        assert names["spark"] is spark
        assert names["query"].lastProgress["numInputRows"] == 1
    finally:
        names["query"].stop()
    assert client.backlog(queue="documented").messages == 0


def test_a_typed_stream(spark: SparkSession, servers: str, client: Client, tmp_path: Path) -> None:
    client.push_many("orders", [GOOD, *BAD])
    table = tmp_path / "table"
    names: dict[str, Any] = {"spark": spark, "servers": servers, "table": str(table)}
    names["checkpoint"] = str(tmp_path / "checkpoint")
    exec(compile(block("A typed stream"), str(PAGE), "exec"), names)
    query = names["query"]
    try:
        wait_for(lambda: not query.isActive or client.backlog(queue="orders.bad").messages == len(BAD), "bad rows")
        wait_for(lambda: not query.isActive or (table / "epoch=0" / "_SUCCESS").exists(), "a table")
        query.processAllAvailable()
    finally:
        query.stop()
    (row,) = spark.read.parquet(str(table)).collect()
    assert (row["id"], row["customer"], row["cents"]) == (1, "Ann", 950)
    assert sorted(pulled(client, "orders.bad")) == sorted(BAD)
    assert isinstance(names["sink"], DataStreamWriter)
