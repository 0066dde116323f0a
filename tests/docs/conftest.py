"""A cluster for the examples of the pages, and substitutes for the addresses that pages show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lmqcluster import Client
from tests.integration.cluster import Cluster

ROOT = Path(__file__).parents[2]
SHOWN = (
    ("127.0.0.1:9980", "127.0.0.1:18800", "127.0.0.1:3333", "127.0.0.1:9324"),
    ("127.0.0.1:9990", "127.0.0.1:18810", "127.0.0.1:3343", "127.0.0.1:9334"),
    ("127.0.0.1:10000", "127.0.0.1:18820", "127.0.0.1:3353", "127.0.0.1:9344"),
)
"""Addresses of the nodes of ``lmq dev`` for HTTP, MessagePack-RPC, and clients of queued and SQS, which pages show."""


def addresses_of(cluster: Cluster) -> Mapping[str, str]:
    """Return the addresses of a cluster by those of the pages."""
    return {
        shown: real
        for addresses, node in zip(SHOWN, cluster.nodes, strict=True)
        for shown, real in zip(addresses, (node.http, node.rpc, node.queued, node.sqs), strict=True)
    }


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test, with a secret, as ``lmq dev`` has it."""
    directory = tmp_path / "nodes"
    directory.mkdir()
    with Cluster(3, directory=directory, environment={"LMQ_CLUSTER_SECRET": "the secret of three nodes"}) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for the whole session."""
    with Cluster(3, directory=tmp_path_factory.mktemp("shared")) as nodes:
        yield nodes


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The shared nodes without queues and default rules."""
    with Client(shared_cluster.rpc_addresses) as client:
        client.set_default_props([])
        for queue in shared_cluster[0].get_json("/v1/queues?fields=name")["queues"]:
            client.delete(queue["name"])
    return shared_cluster


@pytest.fixture
def addresses(cluster: Cluster) -> Mapping[str, str]:
    """The addresses of the cluster by those of the pages."""
    return addresses_of(cluster)
