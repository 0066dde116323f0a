"""queued's JavaScript client, as it is published, on a cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..installing import one_at_a_time
from ..integration.cluster import Cluster
from ..other_language.nodejs import nodejs

CLIENT = "queued-client-js@0.2.3"
FOLDER = Path(__file__).parent
INSTALLED = FOLDER.parents[1] / "build" / "queued-client-js"
DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def client() -> Path:
    """The folder in which the client is installed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    with one_at_a_time():
        if not (INSTALLED / "node_modules" / "queued-client-js").exists():
            INSTALLED.mkdir(parents=True, exist_ok=True)
            (INSTALLED / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CLIENT]
            subprocess.run(command, cwd=INSTALLED, timeout=DEADLINE_S, check=True, capture_output=True)
    return INSTALLED


def test_every_call_of_the_client(client: Path, shared_cluster: Cluster, queue_name: str) -> None:
    for node in shared_cluster:
        node.wait_upgraded()
    addresses = ",".join(node.queued for node in shared_cluster)
    command = [nodejs(), str(FOLDER / "scenario.mjs"), f"{client}/", addresses, queue_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
