"""The protocol document suffices: a client that was written from it in another language works with a real cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ..integration.cluster import Cluster
from ..integration.raw_rpc import Rpc
from .nodejs import nodejs

FOLDER = Path(__file__).parent
LINES_MAX = 130
DEADLINE_S = 300.0
SCENARIOS = ("push_pull_done", "release", "wait", "errors", "pipelining")


def run(scenario: str, cluster: Cluster, queue_name: str) -> subprocess.CompletedProcess[str]:
    command = [nodejs(), str(FOLDER / "scenarios.mjs"), scenario, ",".join(cluster.rpc_addresses), queue_name]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_works(shared_cluster: Cluster, queue_name: str, scenario: str) -> None:
    for node in shared_cluster:
        node.wait_upgraded()
    done = run(scenario, shared_cluster, queue_name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    queue = shared_cluster[0].get_json(f"/v1/queues/{queue_name}")
    assert queue["size"] == 0
    assert queue["pushed_total"] == queue["acked_total"] > 0


def test_a_scenario_can_fail(shared_cluster: Cluster, queue_name: str) -> None:
    with Rpc(shared_cluster[0].rpc) as rpc:
        rpc.call("push", queue_name, "what the scenario does not expect")
    done = run("wait", shared_cluster, queue_name)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_every_scenario_is_run() -> None:
    names = re.findall(r"^  async (\w+)\(", (FOLDER / "scenarios.mjs").read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(names) == SCENARIOS


def test_the_client_is_as_short_as_the_document_says() -> None:
    lines = [line for line in (FOLDER / "client.mjs").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX
