"""Small pushes that are copied to many queues cause no election, and delay no other client for long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .canary import Canary
from .cluster import Cluster
from .elections import assert_no_election
from .raw_rpc import Rpc, request

CHILDREN, BODIES, CALLS = 100, 240, 40
"""About 20 kB, of which 960,000 copies are made."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as nodes:
        yield nodes


def test_no_election(cluster: Cluster) -> None:
    with Rpc(cluster.leader().rpc) as rpc:
        for number in range(CHILDREN):
            rpc.call("bind", "m", f"m+c{number}")

    def push() -> None:
        with Canary(list(cluster)) as canary, Rpc(cluster.leader().rpc, 120) as rpc:
            canary.check()
            rpc.send(b"".join(request(number, "push_many", "m", [b"x"] * BODIES) for number in range(CALLS)))
            canary.check()
            errors = [error for _ in range(CALLS) if (error := rpc.read().error) is not None]
        print(f"slowest request of another client: {canary.slowest_s:.2f} s")
        assert not errors

    assert_no_election(cluster, push)
