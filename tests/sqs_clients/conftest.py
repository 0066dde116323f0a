"""Three nodes with tokens for the SQS port; see the integration tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..integration.cluster import Cluster, NodeProcess, clean_environment
from ..integration.conftest import new_queue_name, queue_name
from ..integration.programs import run_here

__all__ = ["Keyed", "keyed", "mortal", "new_queue_name", "queue_name"]


@dataclass(frozen=True)
class Keyed:
    """A cluster with the key of an administrator's token.

    Attributes:
        leader: the leader before there was a token.
        environment: what AWS's clients read, and nothing else that concerns them.
    """

    cluster: Cluster
    leader: NodeProcess
    environment: dict[str, str]

    def url(self, number: int) -> str:
        """Return the URL of the SQS port of a node."""
        return f"http://{self.cluster[number % 3].sqs}"


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """Three nodes for the whole session."""
    with keyed_cluster(tmp_path_factory.mktemp("keyed")) as found:
        yield found


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Keyed]:
    """Three nodes for one test, to be killed at will."""
    with keyed_cluster(tmp_path) as found:
        yield found


@contextmanager
def keyed_cluster(folder: Path) -> Iterator[Keyed]:
    """Run three nodes with a token for the SQS port."""
    nowhere = str(folder / "none")
    secret = {"LMQ_CLUSTER_SECRET": "the secret of three nodes"}
    with Cluster(3, directory=folder, environment=secret) as cluster:
        leader = cluster.leader()
        made = run_here("--node", cluster[0].http, "token", "create", "aws", "--role", "admin", "--sqs", "--json")
        environment = {name: value for name, value in clean_environment().items() if not name.startswith("AWS_")} | {
            "AWS_ACCESS_KEY_ID": "aws",
            "AWS_SECRET_ACCESS_KEY": json.loads(made.out)["secret_access_key"],
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield Keyed(cluster, leader, environment)
