"""Pulls of a session that a paused node carries out late, after the client has repeated them through another node."""

from __future__ import annotations

import pytest

from lmqcluster import Client

from .cluster import Cluster
from .raw_rpc import Rpc

COUNT = 5
LARGE = 7 * 1024 * 1024
"""Three of these are more than one answer holds."""


@pytest.mark.parametrize("hangs_up", [False, True], ids=["waits", "hangs up"])
def test_a_late_pull_takes_nothing_back(cluster: Cluster, hangs_up: bool) -> None:
    follower, leader = cluster.followers()[0], cluster.leader()
    with Client(leader.rpc) as client, Rpc(follower.rpc) as late:
        client.push_many("q", [b"%d" % number for number in range(COUNT)])
        session = client.open_session(600)
        late.call("ping")
        follower.pause()
        late.ask("pull_many", "q", COUNT, 0, {"session": session, "after": ""})
        received = client.pull_many("q", COUNT, session=session, after="")
        assert len(received) == COUNT
        if hangs_up:
            late.close()
        follower.resume()
        if not hangs_up:
            assert [one[b"id"].decode() for one in late.read().result] == [one.id for one in received]
        with Client(follower.rpc) as other:
            other.push("other", b"The follower has read the late pull before this.")
            assert [one.ack() for one in received] == [True] * COUNT
            assert other.pull("q", 0) is None


def test_what_one_answer_does_not_hold_stays_with_the_session(shared_cluster: Cluster, queue_name: str) -> None:
    with Client(shared_cluster[0].rpc) as client:
        session = client.open_session(600)
        for _ in range(COUNT):
            client.push(queue_name, bytes(LARGE))
        found = client.pull_many(queue_name, COUNT, session=session, after="")
        assert 0 < len(found) < COUNT
        assert client.pull(queue_name, 0) is None
        while len(found) < COUNT:
            more = client.pull_many(queue_name, COUNT, session=session, after=found[-1].id)
            assert more
            found += more
        assert [one.ack() for one in found] == [True] * COUNT
        client.end_session(session)
