"""Disks whose sync takes longer than an election timeout: members that wait for theirs are not considered dead."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.tools import interposer

from lmqcluster import Client
from lmqcluster.wire.limits import MESSAGE_BYTES_MAX

from .cluster import Cluster, NodeProcess, wait_for
from .elections import assert_no_election
from .test_durability_restart import CUT_BYTES, snapshot
from .test_metrics import value

TIMEOUT_S = 120.0
SLOW_S = 1.5
"""For one sync: above the election timeout, below a leader's patience."""
PIECE_S = 0.25
"""For one sync; a large entry takes so many that their sum exceeds a leader's patience."""
VOTE_S = 1.0
"""For one sync, of which a vote takes several."""
RESENT_BYTES = 5 * 1024 * 1024
"""A node sends such a batch again while a sync takes `SLOW_S`; it is large enough to travel in pieces."""
HUNG_S = 15.0
LINE_BODY_BYTES = 200_000
BATCH = 20


class Disks:
    """A running cluster, and switches that slow its nodes' disks."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.controls = {node.name: Control(folder / f"{node.name}.control") for node in cluster.nodes}
        for node in cluster.nodes:
            undo = folder / f"{node.name}.undo"
            undo.mkdir()
            node.environment |= {
                "LD_PRELOAD": str(interposer()),
                "LMQ_DRILL_CONTROL": str(self.controls[node.name].path),
                "LMQ_DRILL_DATA": str(node.data_dir),
                "LMQ_DRILL_UNDO": str(undo),
            }

    def slow(self, seconds: float, *nodes: NodeProcess) -> None:
        """Delay every sync of these nodes' disks, or of all, by `seconds`."""
        for node in nodes or self.cluster.nodes:
            self.controls[node.name].slow_syncs(seconds)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    cluster = Cluster(3, directory=tmp_path)
    disks = Disks(cluster, tmp_path)
    with cluster:
        yield disks
        disks.slow(0.0)


def test_syncs_longer_than_an_election_timeout_cause_no_election(disks: Disks) -> None:
    def push() -> None:
        with Client(disks.cluster.followers()[0].rpc, timeout_s=TIMEOUT_S) as client:
            disks.slow(SLOW_S)
            for number in range(3):
                client.push("q", b"%d" % number)
            disks.slow(0.0)
            assert [message.content for message in client.pull_many("q", 3)] == [b"0", b"1", b"2"]

    assert_no_election(disks.cluster, push)


def test_a_slow_write_of_a_large_entry_causes_no_election(disks: Disks) -> None:
    body = random.Random(1).randbytes(MESSAGE_BYTES_MAX)

    def push() -> None:
        with Client(disks.cluster.leader().rpc, timeout_s=TIMEOUT_S) as client:
            disks.slow(PIECE_S)
            client.push("q", body)
            disks.slow(0.0)
            message = client.pull("q", timeout=TIMEOUT_S)
            assert message is not None
            assert message.content == body

    assert_no_election(disks.cluster, push)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_batch_that_is_sent_again_is_in_the_log_once(disks: Disks, role: str) -> None:
    """Otherwise slow disks would write copies of large batches faster than they can, and no push would end."""
    grown_bytes = resent = 0.0

    def push() -> None:
        nonlocal grown_bytes, resent
        leader = disks.cluster.leader()
        node = leader if role == "leader" else disks.cluster.followers()[0]
        before_bytes = value(leader.http, "lmq_raft_log_bytes")
        with Client(node.rpc, timeout_s=TIMEOUT_S) as client:
            disks.slow(SLOW_S)
            client.push("q", bytes(RESENT_BYTES))
            disks.slow(0.0)
            # Behind all copies.
            client.push("q", b"after")
        grown_bytes = value(leader.http, "lmq_raft_log_bytes") - before_bytes
        resent = value(node.http, "lmq_batches_resent_total")

    assert_no_election(disks.cluster, push)
    assert resent
    assert RESENT_BYTES <= grown_bytes < 2 * RESENT_BYTES


def test_a_leader_whose_disk_hangs_is_replaced(disks: Disks) -> None:
    """It sends heartbeats only while its disk makes progress."""
    leader = disks.cluster.leader()
    others = [node for node in disks.cluster.nodes if node is not leader]
    disks.slow(HUNG_S, leader)
    with Client([node.rpc for node in others], timeout_s=TIMEOUT_S) as client:
        client.push("q", b"before")

        disks.cluster.leader(among=others)
        client.push("q", b"after")
        assert [message.content for message in client.pull_many("q", 2)] == [b"before", b"after"]


def test_a_leader_is_elected_although_a_vote_takes_longer_than_an_election_timeout(tmp_path: Path) -> None:
    """With five members a candidate needs two votes, each of which takes a few syncs to save."""
    cluster = Cluster(5, directory=tmp_path)
    disks = Disks(cluster, tmp_path)
    with cluster:
        leader = cluster.leader()
        with Client([node.rpc for node in cluster.followers()], timeout_s=TIMEOUT_S) as client:
            client.push("q", b"before")
            disks.slow(VOTE_S)
            leader.kill()

            client.push("q", b"after")
            assert [message.content for message in client.pull_many("q", 2)] == [b"before", b"after"]
        disks.slow(0.0)


def test_a_hanging_read_for_another_member_blocks_nothing(disks: Disks) -> None:
    """A member that was away gets blocks of the leader's snapshot, and then the pages that it names."""

    def step() -> None:
        leader, late = disks.cluster.leader(), disks.cluster.followers()[0]
        control = disks.controls[leader.name]
        late.kill()
        with Client(leader.rpc, timeout_s=TIMEOUT_S) as client:
            for _ in range(CUT_BYTES // (BATCH * LINE_BODY_BYTES)):
                client.push_many("line", [bytes(LINE_BODY_BYTES)] * BATCH)
            for node in disks.cluster:
                if node is not late:
                    snapshot(node)
            control.hang_reads("snapshots")
            late.start(wait=False)
            for next_kind in ("pages", None):
                wait_for(lambda: control.reads_hung, "a read that hangs")
                client.push("q", b"during")
                control.hang_reads(next_kind)
        late.wait_ready()

    assert_no_election(disks.cluster, step)
