"""Dead letters are redriven while leaders are killed: none is lost, none is duplicated."""

from __future__ import annotations

import asyncio
from collections import Counter

from lmqcluster import AsyncClient, LmqError

from .cluster import Cluster

MESSAGES = 4000
JOBS, DEAD = "jobs", "dead"
KILLS = 2


def test_redrive_over_kills_of_the_leader(cluster: Cluster) -> None:
    asyncio.run(_redrive_over_kills(cluster))


async def _redrive_over_kills(cluster: Cluster) -> None:
    wanted = Counter(b"%d" % number for number in range(MESSAGES))
    async with AsyncClient(cluster.rpc_addresses) as client:
        await client.update_props(JOBS, {"retry": 0, "timeout": 600, "dead_letter_queue": DEAD})
        for turn in range(KILLS):
            if not turn:
                await client.push_many(JOBS, list(wanted))
            assert await _fail_all(client) == wanted
            kill = asyncio.create_task(asyncio.to_thread(lambda: cluster.leader().restart()))
            sent = 0
            while not (kill.done() and await _is_empty(client, DEAD)):
                # Few at a time, so that there are many commands while the leader dies.
                try:
                    sent += await client.redrive(DEAD, max=50)
                except LmqError as exc:
                    # A part may have been applied; the messages show it.
                    print(f"redrive: {exc}")
            await kill
            assert sent <= MESSAGES
        arrived: Counter[bytes] = Counter()
        while pulled := await client.pull_many(JOBS, 500):
            arrived.update(message.content for message in pulled)
    assert arrived == wanted


async def _fail_all(client: AsyncClient) -> Counter[bytes]:
    """Nack all messages until they have no deliveries left."""
    seen: Counter[bytes] = Counter()
    while pulled := await client.pull_many(JOBS, 500):
        seen.update(message.content for message in pulled)
        assert all(await client.release_many(JOBS, [message.id for message in pulled]))
    return seen


async def _is_empty(client: AsyncClient, queue: str) -> bool:
    """Check by a pull, which the log orders after everything else."""
    pulled = await client.pull_many(queue, 1)
    await asyncio.gather(*(client.put_back(queue, message.id) for message in pulled))
    return not pulled
