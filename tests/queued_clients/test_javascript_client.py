"""queued's published JavaScript client on a cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..integration.cluster import Cluster
from ..other_language.nodejs import nodejs
from .npm import DEADLINE_S, installed_client

FOLDER = Path(__file__).parent


def test_every_call_of_the_client(shared_cluster: Cluster, queue_name: str) -> None:
    addresses = ",".join(node.queued for node in shared_cluster)
    command = [nodejs(), str(FOLDER / "scenario.mjs"), f"{installed_client()}/", addresses, queue_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
