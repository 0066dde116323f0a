"""The protocol document suffices: clients written from it in other languages work with a real cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ..integration.cluster import Cluster
from ..integration.raw_rpc import Rpc
from .nodejs import nodejs

FOLDER = Path(__file__).parent
GO = FOLDER / "golang"
LINES_MAX = {"client.mjs": 130, "golang/client.go": 130, "golang/codec.go": 110}
DEADLINE_S = 300.0
SCENARIOS = ("push_pull_done", "release", "wait", "errors", "pipelining")
LANGUAGES = ("javascript", "go")


@cache
def golang() -> str:
    """The compiler; tests are skipped without one."""
    found = shutil.which("go")
    if found is None:
        pytest.skip("Go is not installed")
    return found


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Built programs by language."""
    return {}


@pytest.fixture(params=LANGUAGES)
def program(
    request: pytest.FixtureRequest, programs: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The program that runs the scenarios, in one language after the other."""
    if request.param == "javascript":
        return [nodejs(), str(FOLDER / "scenarios.mjs")]
    if "go" not in programs:
        built = tmp_path_factory.mktemp("golang") / "scenarios"
        build = [golang(), "build", "-o", str(built), "."]
        subprocess.run(build, cwd=GO, capture_output=True, timeout=DEADLINE_S, check=True)
        programs["go"] = [str(built)]
    return programs["go"]


def run(program: list[str], scenario: str, cluster: Cluster, queue_name: str) -> subprocess.CompletedProcess[str]:
    command = [*program, scenario, ",".join(cluster.rpc_addresses), queue_name]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_works(shared_cluster: Cluster, queue_name: str, program: list[str], scenario: str) -> None:
    done = run(program, scenario, shared_cluster, queue_name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    queue = shared_cluster[0].get_json(f"/v1/queues/{queue_name}")
    assert queue["size"] == 0
    assert queue["pushed_total"] == queue["acked_total"] > 0


def test_a_scenario_can_fail(shared_cluster: Cluster, queue_name: str, program: list[str]) -> None:
    with Rpc(shared_cluster[0].rpc) as rpc:
        rpc.call("push", queue_name, "what the scenario does not expect")
    done = run(program, "wait", shared_cluster, queue_name)
    assert done.returncode != 0
    assert re.search("AssertionError|instead of empty", done.stderr)


def test_every_scenario_is_run() -> None:
    javascript = (FOLDER / "scenarios.mjs").read_text(encoding="utf-8")
    go = (GO / "scenarios.go").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^  async (\w+)\(", javascript, re.MULTILINE)) == SCENARIOS
    assert tuple(re.findall(r'^\t"(\w+)": +\w+,$', go, re.MULTILINE)) == SCENARIOS


@pytest.mark.parametrize("file", LINES_MAX)
def test_the_client_is_as_short_as_documented(file: str) -> None:
    lines = [line for line in (FOLDER / file).read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= LINES_MAX[file]
