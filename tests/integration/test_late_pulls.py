"""Pulls of a session that a paused node executes late, after the client has repeated them through another node."""

from __future__ import annotations

import asyncio

import pytest

from lmqcluster import AsyncClient, Client, Message

from .cluster import Cluster
from .raw_rpc import Rpc

COUNT = 5
LARGE = 7 * 1024 * 1024
"""Three of these exceed one answer."""


@pytest.mark.parametrize("hangs_up", [False, True], ids=["waits", "hangs up"])
def test_a_late_pull_returns_nothing_to_the_queue(cluster: Cluster, hangs_up: bool) -> None:
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


def test_messages_beyond_one_answer_stay_with_the_session(shared_cluster: Cluster, queue_name: str) -> None:
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


def test_an_answer_to_a_cancelled_call_returns_nothing_that_is_in_use(cluster: Cluster) -> None:
    """The client returns messages that arrive too late, except those that its session's next pull has returned too."""

    async def main() -> None:
        follower = cluster.followers()[0]
        async with AsyncClient(follower.rpc) as client, client.session(600) as session:
            await client.push_many("q", [b"%d" % number for number in range(COUNT)])
            follower.pause()
            given_up = asyncio.create_task(session.pull_many("q", COUNT, 60))
            await asyncio.sleep(0)
            repeated = asyncio.create_task(session.pull_many("q", COUNT, 60))
            await asyncio.sleep(0)
            given_up.cancel()
            follower.resume()
            received = await repeated
            assert [one.content for one in received] == [b"%d" % number for number in range(COUNT)]
            with Client(cluster.leader().rpc) as other:
                assert await client.backlog(queue="q") == other.backlog(queue="q")
                assert other.pull("q", 0) is None
            assert await asyncio.gather(*(one.ack() for one in received)) == [True] * COUNT

    asyncio.run(main())


def test_messages_of_a_cancelled_pull_return_to_their_queue(cluster: Cluster) -> None:
    """This holds even if the session stays open and pulls no more from the queue."""

    async def main() -> None:
        follower = cluster.followers()[0]
        async with AsyncClient(follower.rpc) as client, client.session(600) as session:
            await client.push_many("q", [b"%d" % number for number in range(COUNT)])
            follower.pause()
            cancelled = asyncio.create_task(session.pull_many("q", COUNT, 60))
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            follower.resume()
            async with AsyncClient(cluster.leader().rpc) as other:
                received: list[Message] = []
                while len(received) < COUNT:
                    received += await other.pull_many("q", COUNT, 60)
                assert sorted(one.content for one in received) == [b"%d" % number for number in range(COUNT)]
                assert await asyncio.gather(*(one.ack() for one in received)) == [True] * COUNT

    asyncio.run(asyncio.wait_for(main(), 60))
