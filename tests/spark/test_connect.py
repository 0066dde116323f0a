"""Spark Connect, and the package ``pyspark_lmq``, with which Spark finds the data source automatically."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lmqcluster import Client
from tests.integration.cluster import ports, wait_for

from .queues import numbered, pulled, push

ROOT = Path(__file__).parents[2]
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PROGRAM_S = 300


def install_default_source(folder: Path) -> None:
    """Put ``pyspark_lmq`` where a wheel puts it; an editable installation has no such folder."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "pyspark_lmq" in settings["packages"]
    shutil.copytree(ROOT / settings["package-dir"]["pyspark_lmq"], folder / "pyspark_lmq")


@pytest.fixture(scope="module")
def remote(spark_python: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Connect server in a separate process, in whose Python ``pyspark_lmq`` is installed."""
    tmp_path = tmp_path_factory.mktemp("connect")
    install_default_source(tmp_path / "installed")
    port = ports.take()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path / "installed"), str(ROOT))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--class", _SERVER, "--master", "local[2]"]
    command += [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=tmp_path,
        )  # fmt: skip

    def listens() -> bool:
        assert server.poll() is None, log.read_text()[-4000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, "the Connect server")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_a_program_over_connect_that_registers_nothing(
    servers: str, client: Client, queue: str, tmp_path: Path, remote: str
) -> None:
    push(client, queue, numbered(20))
    program = [sys.executable, "-m", "tests.spark.connect_program", remote, servers, queue, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=_PROGRAM_S, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["table"] == [content.decode() for content in numbered(20)]
    assert found["sql"] == {"n": 20, "numbered": True}
    assert (found["moved"], found["stored"]) == (True, True)
    assert sorted(pulled(client, f"{queue}-stored")) == [b"w0", b"w1", b"w2"]
    for emptied in ("written", "moved"):
        assert client.backlog(queue=f"{queue}-{emptied}").messages == 0
    assert client.backlog(queue=queue).messages == 20


def test_pipelines_over_connect(servers: str, client: Client, queue: str, remote: str, tmp_path: Path) -> None:
    dead = f"{queue}.dead"
    client.update_props(queue, {"retry": 0, "dead_letter_queue": dead})
    push(client, queue, numbered(5))
    for message in client.pull_many(queue, 5, 30):
        assert message.nack()
    pipeline = [sys.executable, "-m", "lmqcluster_cli.pipeline", "--master", remote]

    def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [*pipeline, command, *arguments, "--servers", servers]
        return subprocess.run(line, capture_output=True, text=True, timeout=_PROGRAM_S, check=False, cwd=tmp_path)

    edit = ("--set", "attributes = map('n', 7)")
    done = run("dead-letters", dead, "--redrive", "--where", "text >= 'm-000002'", *edit, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert [one.attributes for one in client.peek(queue, 10)] == [{"n": 7}] * 3
    assert sorted(pulled(client, queue)) == numbered(5)[2:]
    assert client.backlog(queue=dead).messages == 2
    done = run("archive", queue, "--output", str(tmp_path / "archive"), "--once")
    assert done.returncode == 2
    assert "is not accessible over Spark Connect" in done.stderr
