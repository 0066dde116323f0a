"""A master with two workers in separate processes, like a Spark cluster on several machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet  # type: ignore[import-untyped]

from lmqcluster import Client
from tests.integration.cluster import clean_environment

from .queues import numbered, push

DEADLINE_S = 600.0
MESSAGES = 5_000


def test_archive_runs_on_two_workers(
    client: Client, servers: str, queue: str, applications: Callable[[], list[Path]], tmp_path: Path
) -> None:
    push(client, queue, numbered(MESSAGES))
    table = tmp_path / "table"
    command = [sys.executable, "-m", "lmqcluster_cli.pipeline", "--master", "local-cluster[2,1,768]"]
    command += ["--spark", "spark.executor.memory=768m", "archive", queue, "--servers", servers]
    command += ["--output", str(table), "--once", "--batch", "2500", "--json"]
    environment = clean_environment({"SPARK_LOCAL_IP": "127.0.0.1"})
    done = subprocess.run(command, capture_output=True, env=environment, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["messages"] == MESSAGES
    assert client.backlog(queue=queue).messages == 0
    values = pyarrow.parquet.read_table(table, columns=["value"]).column("value").to_pylist()
    assert sorted(values) == sorted(numbered(MESSAGES))
    (application,) = applications()
    assert {path.name for path in application.iterdir()} == {"0", "1"}
