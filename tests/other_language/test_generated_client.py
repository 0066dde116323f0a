"""A client that oapi-codegen generates from ``docs/openapi.json`` compiles, and works with a real cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ..docs.openapi import FILE
from ..installing import one_at_a_time
from ..integration.cluster import Cluster

SOURCES = Path(__file__).parent / "generated"
BUILD = Path(__file__).parents[2] / "build" / "generated-client"
DEADLINE_S = 1200.0
"""For compiling the generator, which happens once on a machine."""


def go(*words: str) -> None:
    """Run the compiler in the folder of the client; skip the test if it cannot download modules."""
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    done = subprocess.run(
        ["go", *words], cwd=BUILD, env=environment, timeout=DEADLINE_S, capture_output=True, text=True, check=False
    )
    if done.returncode and "dial tcp" in done.stderr:
        pytest.skip(f"Go cannot download modules: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def program() -> Path:
    """The program, with a client that is generated anew."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    with one_at_a_time():
        shutil.copytree(SOURCES, BUILD, dirs_exist_ok=True)
        (BUILD / "lmq").mkdir(exist_ok=True)
        go("tool", "oapi-codegen", "-config", "client.yaml", str(FILE))
        go("build", "-buildvcs=false", "-o", "program", ".")
    return BUILD / "program"


def test_the_generated_client_pushes_pulls_and_settles(program: Path, shared_cluster: Cluster, queue_name: str) -> None:
    command = [str(program), shared_cluster[1].http, queue_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    queue = shared_cluster[1].get_json(f"/v1/queues/{queue_name}")
    assert (queue["size"], queue["pushed_total"], queue["acked_total"]) == (0, 3, 2)


def test_a_node_serves_the_document_of_the_repository(shared_cluster: Cluster) -> None:
    assert shared_cluster[2].get_json("/openapi.json") == json.loads(FILE.read_text(encoding="utf-8"))
