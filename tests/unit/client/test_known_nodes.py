"""The list of nodes: what an answer contributes, and that no answer makes the list grow."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster import AsyncClient
from lmqcluster.client.transport.addresses import NodeAddress, parse_addresses
from lmqcluster.client.transport.known_nodes import NAMED_MAX, KnownNodes

from .client_cluster import ModelCluster, ScriptedNode, async_test
from .scripts import QUICK, client_of

FAR, NEAR = NodeAddress("10.0.0.1", 18800), NodeAddress("127.0.0.1", 18800)


def named(nodes: KnownNodes) -> list[str]:
    return list(map(str, nodes.named))


def test_an_answer_replaces_the_one_before_it_and_given_addresses_stay() -> None:
    nodes = KnownNodes("10.0.0.1,10.0.0.2")
    nodes.learn([b"10.0.0.2:18800", b"10.0.0.3:18800", b"n4.example:7", b"[fd00::5]:8"], FAR)
    assert named(nodes) == ["10.0.0.3:18800", "n4.example:7", "[fd00::5]:8"]
    nodes.learn([b"10.0.0.6:18800"], FAR)
    assert list(map(str, nodes.all)) == ["10.0.0.1:18800", "10.0.0.2:18800", "10.0.0.6:18800"]
    nodes.learn([], FAR)
    assert named(nodes) == ["10.0.0.6:18800"], "a node that names none knows none"


def test_each_address_has_its_turn_also_after_the_list_has_changed() -> None:
    nodes = KnownNodes("10.0.0.1")
    nodes.learn([b"10.0.0.2:1", b"10.0.0.3:1"], FAR)
    first = nodes.after(None)
    second = nodes.after(first)
    third = nodes.after(second)
    assert [address.host for address in (first, second, third)] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert nodes.after(third) == first
    nodes.learn([b"10.0.0.4:1"], FAR)
    assert nodes.after(third) == first
    assert str(nodes.after(first)) == "10.0.0.4:1"


@pytest.mark.parametrize(
    "answer",
    [
        None, 7, b"10.0.0.2:1", {b"10.0.0.2:1": 1}, [None, 1, [], {}, 1.5],
        [b"", b" ", b"host name:1", b"a@b:1", b"h:port", b"h:99999999", b"\xff:1", b"a:1,b:2", b"//x", b"h/p:1"],
        [b"x" * 400 + b":1"], [b"in-memory:1"],
        # These addresses lead each machine to itself.
        [b"127.0.0.1:18800", b"localhost:18800", b"LOCALHOST.:1", b"a.localhost:1", b"[::1]:1", b"0.0.0.0:1", b"[::]:1"],
    ],
)  # fmt: skip
def test_unusable_addresses_are_left_out(answer: Any) -> None:
    nodes = KnownNodes("10.0.0.1")
    nodes.learn(answer, FAR)
    assert nodes.all == nodes.given


def test_loopback_addresses_are_kept_if_the_client_reaches_a_node_there() -> None:
    nodes = KnownNodes("127.0.0.1")
    nodes.learn([b"127.0.0.1:18800", b"127.0.0.1:18810"], NEAR)
    assert named(nodes) == ["127.0.0.1:18810"]


def test_no_answer_makes_the_list_grow() -> None:
    nodes = KnownNodes("10.0.0.1")
    for number in range(20):
        nodes.learn([b"h%d-%d:1" % (number, index) for index in range(10_000)], FAR)
        assert len(nodes) == 1 + NAMED_MAX


def test_a_client_without_discovery_learns_nothing() -> None:
    nodes = KnownNodes("10.0.0.1", discovers=False)
    nodes.learn([b"10.0.0.2:1"], FAR)
    assert nodes.all == nodes.given


@async_test
async def test_many_addresses_of_a_hostile_node_do_not_hide_the_given_ones() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as hostile, ScriptedNode(cluster) as other:
        hostile.named = [f"127.0.0.1:{port}" for port in range(1, 5000)]
        other.named = [other.address]
        client = client_of(hostile, other)
        assert await client.push("q", 1) == "ok"
        assert len(client.nodes) == 2 + NAMED_MAX
        await hostile.stop()
        assert await client.push("q", 2) == "ok"
        assert list(map(str, client.nodes)) == [hostile.address, other.address]
        await client.close()


@async_test
async def test_clients_that_share_a_list_share_what_they_learn() -> None:
    cluster = ModelCluster()
    async with ScriptedNode(cluster) as first, ScriptedNode(cluster) as second:
        first.named = [first.address, second.address]
        nodes = KnownNodes(first.address)
        async with AsyncClient(nodes) as client:
            await client.push("q", 1)
        await first.stop()
        async with AsyncClient(nodes, backoff=QUICK) as client:
            assert await client.push("q", 2) == "ok"
            assert client.address == parse_addresses(second.address)[0]
