"""50 ms of added delay on every link between nodes, where stock PySyncObj does not recover."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from .cluster import Cluster, NodeProcess, ports
from .delay_proxy import DelayProxy
from .elections import assert_no_election
from .load import Load
from .raw_rpc import Rpc, open_rpc

DELAY_S = 0.05


@pytest.fixture(scope="module")
def slow_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that know each other by the addresses of a proxy, which delays every link."""
    directory = tmp_path_factory.mktemp("slow")
    listening = [f"127.0.0.1:{ports.take()}" for _ in range(3)]
    with DelayProxy(listening, DELAY_S) as proxy:
        cluster = Cluster(0, directory=directory)
        cluster.nodes = [
            NodeProcess(
                directory,
                f"n{number}",
                raft=address,
                peers=proxy.addresses,
                arguments=["--advertise-raft", advertised],
            )
            for number, (address, advertised) in enumerate(zip(listening, proxy.addresses, strict=True), 1)
        ]
        with cluster:
            yield cluster


def test_the_delay_is_in_effect(slow_cluster: Cluster, queue_name: str) -> None:
    """A push needs at least one round trip to a follower, and a follower needs another one to the leader first."""
    for node, trips in ((slow_cluster.leader(), 1), (slow_cluster.followers()[0], 2)):
        with Rpc(node.rpc) as rpc:
            rpc.call("push", queue_name, 1)
            started_s = time.monotonic()
            rpc.call("push", queue_name, 1)
            took_s = time.monotonic() - started_s
        print(f"one push through the {node.name}: {took_s * 1000:.0f} ms")
        assert took_s > trips * 2 * DELAY_S - 0.01


def test_waits_and_windows_under_delay(slow_cluster: Cluster, queue_name: str) -> None:
    """Blocked pulls on slow followers are served by pushes elsewhere, each once and in order of arrival."""
    nodes = slow_cluster.followers()
    with open_rpc(nodes[0].rpc, 5) as pullers, Rpc(nodes[1].rpc) as pusher:
        for puller in pullers:
            puller.ask("pull", queue_name)
            puller.ask("get_default_props")
            puller.read()
        for number in range(5):
            pusher.call("push", queue_name, number)
        assert [(p.read().result[b"content"]) for p in pullers] == list(range(5))
        pusher.call("update_props", queue_name, {"pack": 2})
        threads = [threading.Thread(target=p.ask, args=("push", queue_name, 1)) for p in pullers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flags = sorted(p.read().result for p in pullers)
        assert flags == [b"packed"] * 4 + [b"packing started"]
        assert pusher.call("pull", queue_name)[b"content"] == [1] * 5


def test_progress_through_every_node_and_loss_of_the_leader(slow_cluster: Cluster, queue_name: str) -> None:
    """The cluster elects a leader and works under 50 ms of delay, survives the loss of the leader, and readmits it."""

    def work() -> None:
        with Load(slow_cluster.nodes, queue_name) as load:
            load.progress(1000)
        load.check_exactly_once()

    assert_no_election(slow_cluster, work)
    victim = slow_cluster.leader()
    survivors = [node for node in slow_cluster if node is not victim]
    with Load(survivors, queue_name) as load:
        load.progress(300)
        victim.kill()
        load.progress(300)
        victim.start(wait=False)
        victim.wait_ready()
        load.progress(300)
    load.check_exactly_once()
    print(f"kill -9 of the leader under delay: pause {load.pause_s:.2f} s")
    with Rpc(victim.rpc) as rpc:
        assert rpc.call("push", queue_name, "through the restarted node") == b"ok"
