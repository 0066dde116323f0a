"""Alerts on nodes and Raft: each fires on real nodes with its fault, and ends after the commands of the page of alerts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lmqcluster import Client

from .alert_timeline import Timeline
from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import call
from .runbook import Operator
from .test_metrics import value
from .test_slow_disks import Disks

TIMEOUT_S = 120.0
MINUTES = 20
SLOW_S = 1.2
"""For one sync: above the limits of the alerts."""
HELD_S = 10.0
"""For one sync of a member that is behind, so that it is for as long as the scrapes take."""
FAILED = 12
CHANGES = 7
BEHIND = 1100


class Watched:
    """A cluster, its alerts, and an operator."""

    def __init__(self, cluster: Cluster, disks: Disks, folder: Path) -> None:
        self.cluster = cluster
        self.disks = disks
        self.timeline = Timeline(cluster.nodes, folder)
        self.operator = Operator(cluster.nodes, folder)

    def push(self, *nodes: NodeProcess, count: int = 1) -> None:
        """Push messages one after the other through some nodes at the same time."""

        def push(node: NodeProcess) -> None:
            with Client(node.rpc, timeout_s=TIMEOUT_S) as client:
                for _ in range(count):
                    client.push("q", b"content")

        threads = [threading.Thread(target=push, args=(node,)) for node in nodes or self.cluster.alive]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()

    def assert_fire(self, *alerts: str) -> None:
        """Alerts fire after `MINUTES` with the fault."""
        self.timeline.scrape(MINUTES)
        assert self.timeline.firing() >= set(alerts)

    def assert_end(self, *alerts: str, nodes: Sequence[NodeProcess] = ()) -> None:
        """Alerts end when the cluster, or these nodes of it, have worked for a while without the fault."""
        self.timeline.scrape(MINUTES)

        def ended() -> bool:
            self.push(*nodes, count=20)
            self.timeline.scrape(2 * MINUTES)
            return not self.timeline.firing() & set(alerts)

        wait_for(ended, f"the end of {', '.join(alerts)}")
        self.timeline.begin()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("alerts")
    cluster = Cluster(3, directory=folder)
    disks = Disks(cluster, folder)
    with cluster:
        watched = Watched(cluster, disks, folder)
        watched.push()
        watched.timeline.scrape()
        yield watched
        disks.slow(0.0)


def test_a_member_is_down(watched: Watched) -> None:
    lost = watched.cluster.followers()[0]
    lost.kill()
    watched.assert_fire("LmqMemberDown")
    watched.operator.act("LmqMemberDown", lost)
    watched.operator.confirm("LmqMemberDown", lost)
    watched.assert_end("LmqMemberDown")


def test_a_majority_is_down(watched: Watched) -> None:
    survivor = watched.cluster[0]
    for lost in watched.cluster.nodes[1:]:
        lost.kill()
    wait_for(lambda: not value(survivor.http, "lmq_raft_has_leader"), "the loss of the leader")

    def fail() -> None:
        with contextlib.suppress(OSError):
            assert call(survivor.http, "POST", "/messages/q", b"content").status == 503

    threads = [threading.Thread(target=fail) for _ in range(FAILED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    alerts = ("LmqInsufficientMembers", "LmqNotReady", "LmqFailedProposals", "LmqNoLeader")
    watched.assert_fire(*alerts)
    # The first one only looks, the second one starts the nodes.
    watched.operator.act("LmqNotReady", survivor)
    for alert in alerts:
        if alert != "LmqNotReady":
            watched.operator.act(alert, survivor)
    for alert in alerts:
        watched.operator.confirm(alert, survivor)
    watched.assert_end(*alerts)


def test_the_disk_of_a_leader_is_slow(watched: Watched) -> None:
    slow = watched.cluster.leader()
    others = [node for node in watched.cluster.nodes if node is not slow]
    watched.disks.slow(SLOW_S, slow)
    watched.push(slow)
    watched.assert_fire("LmqSlowSync", "LmqSlowCommits")
    watched.operator.act("LmqSlowCommits", slow)
    # A slow follower delays no client of the others.
    watched.assert_end("LmqSlowCommits", nodes=others)
    leader = watched.cluster.leader()

    def late_answers() -> float:
        name = "lmq_raft_peer_round_trip_seconds"
        all_of_them = value(leader.http, f"{name}_count", peer_name=slow.name)
        return all_of_them - value(leader.http, f"{name}_bucket", peer_name=slow.name, le="0.25")

    def await_late_answer() -> None:
        before = late_answers()

        def answered_late() -> bool:
            watched.push(*others)
            return late_answers() > before

        wait_for(answered_late, "a late answer of the slow member")

    await_late_answer()
    # For Prometheus the first value of a series is no increase.
    watched.timeline.scrape(1)
    await_late_answer()
    watched.assert_fire("LmqSlowPeer", "LmqSlowSync")
    watched.operator.act("LmqSlowPeer", slow)
    watched.operator.act("LmqSlowSync", slow)
    watched.disks.slow(0.0)
    watched.assert_end("LmqSlowPeer", "LmqSlowSync")


def test_a_member_is_behind_and_lacks_processor_time(watched: Watched) -> None:
    alerts = ("LmqMemberLag", "LmqEventLoopLag")
    late = watched.cluster.followers()[0]
    others = [node for node in watched.cluster.nodes if node is not late]
    late.pause()
    watched.push(*others, count=BEHIND // 2)
    watched.disks.slow(HELD_S, late)
    late.resume()
    watched.assert_fire(*alerts)
    for alert in alerts:
        watched.operator.act(alert, late)
    watched.disks.slow(0.0)
    watched.operator.confirm("LmqMemberLag", late)
    watched.assert_end(*alerts)


def test_the_leader_changes_often(watched: Watched) -> None:
    for _ in range(CHANGES):
        leader = watched.cluster.leader()
        assert call(leader.http, "POST", "/v1/cluster/transfer").status == 200
        wait_for(lambda leader=leader: not value(leader.http, "lmq_raft_is_leader"), "another leader")  # type: ignore[misc]
    watched.assert_fire("LmqLeaderChanges")
    watched.operator.act("LmqLeaderChanges", watched.cluster.leader())
    watched.assert_end("LmqLeaderChanges")
