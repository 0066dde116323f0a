"""Nodes and clients whose names have dead addresses, slow or silent name servers, and addresses that change."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster import NodeProcess
from .name_trials import HANG_S, SLOW_S, fail_over, run_client
from .named_cluster import NamedCluster, push, silent

HOSTS = ("n1.drill", "n2.drill", "n3.drill")


def test_a_cluster_starts_with_slow_names_and_dead_addresses_and_stops_while_lookups_hang(tmp_path: Path) -> None:
    with NamedCluster(tmp_path) as cluster, silent(cluster.port) as host:
        for name in HOSTS:
            cluster.names.set(name, host, *cluster.names.addresses(name))
        cluster.names.delay(SLOW_S)
        cluster.start_all()
        cluster.names.delay(HANG_S)
        # From now on the others look up the name of the lost node.
        fail_over(cluster)
        assert [node.stop() for node in cluster.alive] == [0, 0]
        assert cluster.complaints() == []


def test_a_lost_node_whose_name_hangs_blocks_no_other_and_returns_elsewhere(tmp_path: Path) -> None:
    with NamedCluster(tmp_path) as cluster:
        cluster.start_all()
        first, second, third = cluster.nodes
        third.kill()
        cluster.names.delay(HANG_S, "n3.drill")
        first.restart()
        push(second, "q")
        # As a pod does: under its name, at another address, which the others learn late.
        cluster.names.delay(SLOW_S)
        cluster.move(third)
        third.start()
        cluster.names.delay(HANG_S)
        fail_over(cluster)
        assert cluster.complaints() == []


@pytest.mark.parametrize("kind", ["blocking", "asyncio", "lmq-admin"])
def test_clients_reach_a_node_whose_name_is_slow_and_has_a_dead_address(kind: str, tmp_path: Path) -> None:
    with NamedCluster(tmp_path, 1) as cluster:
        [node] = cluster.nodes
        node.start()
        rpc, http = (address.rpartition(":")[2] for address in (node.rpc, node.http))
        with silent(int(rpc)) as host, silent(int(http)):
            cluster.names.set("n1.drill", host, *cluster.names.addresses("n1.drill"))
            cluster.names.set("hangs.drill", host)
            cluster.names.delay(SLOW_S, "n1.drill")
            cluster.names.delay(HANG_S, "hangs.drill")
            run_client(
                cluster, kind, f"n1.drill:{http}" if kind == "lmq-admin" else f"hangs.drill:{rpc},n1.drill:{rpc}"
            )


def members_of(node: NodeProcess) -> list[str]:
    return sorted(one["id"] for one in node.get_json("/v1/cluster")["nodes"])


def test_nodes_with_different_spellings_of_addresses_are_one_cluster(tmp_path: Path) -> None:
    with NamedCluster(tmp_path) as cluster:
        first, second, third = cluster.nodes
        port = cluster.port
        digits = [node.raft for node in cluster.nodes]
        # One advertises digits although the lists have its name, and others spell names in other ways.
        first.arguments = ("--advertise-raft", digits[0])
        second.peers = (f"N1.Drill.:{port}", f"n2.drill.:{port}", digits[2])
        third.peers = (f"n1.drill:{port}", f"N2.drill:{port}")
        cluster.start_all()
        expected = sorted([digits[0], f"n2.drill:{port}", f"n3.drill:{port}"])
        assert [members_of(node) for node in cluster.nodes] == [expected] * 3
        assert [node.get_json("/v1/cluster")["quorum"] for node in cluster.nodes] == [2] * 3
        fail_over(cluster)
        dead = next(node for node in cluster.nodes if not node.running)
        dead.start()
        assert members_of(dead) == expected


def test_a_node_listens_on_a_name_once_it_resolves(tmp_path: Path) -> None:
    with NamedCluster(tmp_path, 1) as cluster:
        [node] = cluster.nodes
        node.raft = f"n1.drill:{cluster.port}"
        cluster.names.delay(1)
        node.start()
        assert node.stop() == 0
        cluster.names.set("n1.drill")
        node.start(wait=False)
        assert node.wait_exit() == 69
        said = " ".join(node.log().split())
        assert f"cannot listen on {node.raft} (raft): cannot look up n1.drill: Name or service not known" in said
