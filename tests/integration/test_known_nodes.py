"""Clients with one given address: they learn the other nodes, so that they outlive that node, and all initial nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import AsyncClient, Client, LmqError
from lmqcluster.client.transport import failover as session
from lmqcluster.client.transport.known_nodes import KnownNodes

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, wait_for
from .test_access_tls import SECRET, TlsNode
from .test_membership_changes import agree, join, leave


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes; tests kill them."""
    with Cluster(3, directory=tmp_path) as nodes:
        yield nodes


def learn(client: Client, cluster: Cluster) -> None:
    """Wait until a client knows the running nodes."""
    wanted = {node.rpc for node in cluster.alive}
    wait_for(lambda: wanted <= set(map(str, client.nodes)), "the client knows the nodes")


@async_test
async def test_a_client_outlives_the_only_node_it_was_given(cluster: Cluster) -> None:
    named = cluster[0]
    async with AsyncClient(named.rpc) as client:
        waiting = client.pull("q")
        for number in range(100):
            await client.push("numbers", number)
        named.kill()
        for number in range(100, 200):
            await client.push("numbers", number)
        assert str(client.address) in {node.rpc for node in cluster.alive}
        assert [message.content for message in await client.pull_many("numbers", 1000)] == list(range(200))
        await client.push("q", "late")
        message = await waiting
        assert message is not None
        assert message.text == "late"


def test_a_push_in_doubt_continues_at_a_learned_node_unless_the_client_keeps_to_the_given_ones(
    cluster: Cluster,
) -> None:
    named = cluster[0]
    with Client(named.rpc) as client, Client(named.rpc, timeout_s=1, discover=False) as bound:
        learn(client, cluster)
        for number in range(300):
            # From the fifth push on over a connection of the calling thread.
            if number == 150:
                named.kill()
            assert client.push("numbers", number) == "ok"
        assert [message.content for message in client.pull_many("numbers", 1000)] == list(range(300))
        with pytest.raises(LmqError, match=named.rpc) as caught:
            bound.pull("numbers", timeout=0)
        assert caught.value.code == "unreachable"
        assert list(map(str, bound.nodes)) == [named.rpc]


def test_a_client_follows_a_cluster_whose_nodes_are_replaced_one_by_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ASK_S", 0.1)
    with Client(cluster[0].rpc) as client:
        assert client.push("q", "before") == "ok"
        for old in tuple(cluster):
            new = cluster.add_node()
            assert join(new, next(node for node in cluster.alive if node is not new).http).status == 200
            agree(cluster.alive)
            learn(client, cluster)
            assert leave(old).status == 200
            old.kill()
            agree(cluster.alive)
            assert client.push("q", old.name) == "ok"
        assert str(client.address) not in {node.rpc for node in cluster.nodes[:3]}
        contents = [message.text for message in client.pull_many("q", 10)]
        assert contents == ["before", *(node.name for node in cluster.nodes[:3])]
        wait_for(
            lambda: set(map(str, client.nodes)) == {cluster[0].rpc, *(node.rpc for node in cluster.alive)},
            "the client has forgotten the nodes that left",
        )


def test_a_learned_node_needs_a_certificate_for_its_name(tmp_path: Path) -> None:
    node = TlsNode(tmp_path)
    port = node.process.rpc.rpartition(":")[2]
    node.process.rpc = f"0.0.0.0:{port}"
    with node:
        # The certificate is valid for 127.0.0.1 only, and nothing listens at the address that the client is given.
        for host, is_reached in (("127.0.0.1", True), ("127.0.0.2", False)):
            nodes = KnownNodes("127.0.0.3:1")
            nodes.learn([f"{host}:{port}".encode()], nodes.given[0])
            lmq = Client(nodes, token=SECRET, tls_ca=node.ca, timeout_s=20 if is_reached else 1.5)
            try:
                if is_reached:
                    assert lmq.ping() == "pong"
                else:
                    with pytest.raises(LmqError) as caught:
                        lmq.ping()
                    assert caught.value.code == "unreachable"
            finally:
                lmq.close(0)
