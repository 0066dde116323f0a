"""Curator's reasons not to use ZooKeeper for queues, measured here: ``python -m tests.benchmarks.curator_note [--messages N]``.

Three nodes in durability mode ``disk``. A queue is filled with a million messages. Its speed is compared with that of a queue of
a thousand, in turns; then come a count, a thousand waiting consumers, the largest message beside small ones, ten thousand
queues, the loss of the leader, restarts and a purge. How exact priorities and delays are at that depth says
``tests.benchmarks.delivery``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterable

import uvloop

from lmqcluster import AsyncClient, LmqError
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, fetch

BODY = b"x" * 100
BATCH = 500
IN_FLIGHT = 256
PER_TURN = 10_000
TURNS = 3
SHALLOW = 1_000
CONSUMERS = 1_000
CONSUMER_CLIENTS = 20
PUSHES = 300
QUEUES = 10_000
LARGE = 32 * 1024 * 1024
MILLI = 1e3


def row(what: str, value: str) -> None:
    """Print a line of the table."""
    print(f"| {what} | {value} |", flush=True)


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which this share of them is."""
    found = sorted(values)
    return found[min(int(len(found) * share), len(found) - 1)]


async def rate(count: int, call: Callable[[int], Awaitable[object]]) -> float:
    """Calls a second, so many in flight."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - began)


async def fill(client: AsyncClient, queue: str, messages: int) -> None:
    """Store so many messages."""
    starts = iter(range(0, messages, BATCH))

    async def work() -> None:
        for start in starts:
            await client.push_many(queue, [BODY] * min(BATCH, messages - start))

    await asyncio.gather(*(work() for _ in range(8)))


async def depth(client: AsyncClient) -> None:
    """Pushes and pulls of a deep queue and of a shallow one, in turns."""
    rates: dict[tuple[str, str], list[float]] = {}

    async def take(queue: str) -> None:
        message = await client.pull(queue, 60)
        assert message is not None
        await message.ack()

    for _ in range(TURNS):
        for queue in ("deep", "shallow"):
            pushed = await rate(PER_TURN, lambda _, queue=queue: client.push(queue, BODY))  # type: ignore[misc]
            taken = await rate(PER_TURN, lambda _, queue=queue: take(queue))  # type: ignore[misc]
            rates.setdefault((queue, "push"), []).append(pushed)
            rates.setdefault((queue, "pull + ack"), []).append(taken)
    for what in ("push", "pull + ack"):
        deep, shallow = (statistics.median(rates[queue, what]) for queue in ("deep", "shallow"))
        row(
            f"{what} at that depth, beside a queue of {SHALLOW:,}",
            f"{deep:,.0f}/s, {shallow:,.0f}/s: {deep / shallow:.2f}",
        )
    counts = []
    for _ in range(50):
        began = time.perf_counter()
        await client.backlog(queue="deep")
        counts.append(time.perf_counter() - began)
    row("its count, p99", f"{percentile(counts, 0.99) * MILLI:.1f} ms")


async def waiting_consumers(cluster: Cluster) -> None:
    """One push wakes one of many consumers."""
    addresses = cluster.rpc_addresses
    delivered: asyncio.Queue[float] = asyncio.Queue()
    clients = [AsyncClient(addresses[n % 3 :] + addresses[: n % 3]) for n in range(CONSUMER_CLIENTS)]

    async def consume(client: AsyncClient) -> None:
        while True:
            message = await client.pull("watched", None)
            assert message is not None
            delivered.put_nowait(time.perf_counter())
            await message.ack()

    consumers = [
        asyncio.create_task(consume(client)) for client in clients for _ in range(CONSUMERS // CONSUMER_CLIENTS)
    ]
    took: list[float] = []
    async with AsyncClient(addresses) as producer:
        await producer.push("watched", BODY)
        await delivered.get()
        for _ in range(PUSHES):
            began = time.perf_counter()
            await producer.push("watched", BODY)
            took.append(await delivered.get() - began)
    assert delivered.empty()
    for consumer in consumers:
        consumer.cancel()
    await asyncio.wait(consumers)
    for client in clients:
        await client.close()
    row(
        f"from a push to its delivery to one of {CONSUMERS:,} waiting consumers, p99",
        f"{percentile(took, 0.99) * MILLI:.0f} ms",
    )


def elections(cluster: Cluster) -> int:
    """How many the nodes count."""
    pages = (fetch(node.http, "/metrics")[1].decode() for node in cluster)
    return sum(
        int(float(value)) for page in pages for value in re.findall(r"^lmq_raft_term (\S+)$", page, re.MULTILINE)
    )


async def large(cluster: Cluster, client: AsyncClient) -> None:
    """The largest message, while small ones flow."""
    waits: list[float] = []
    terms, stop = elections(cluster), asyncio.Event()

    async def small() -> None:
        async with AsyncClient(cluster.rpc_addresses) as other:
            while not stop.is_set():
                began = time.perf_counter()
                await other.push("small", BODY)
                message = await other.pull("small", 60)
                assert message is not None
                await message.ack()
                waits.append(time.perf_counter() - began)

    flow = asyncio.create_task(small())
    body = random.Random(1).randbytes(LARGE - 1024)
    for _ in range(3):
        await client.push("large", body)
        for settle in ("nack", "ack"):
            message = await client.pull("large", 60)
            assert message is not None
            assert message.content == body
            await getattr(message, settle)()
    stop.set()
    await flow
    row(
        "32 MiB pushed, delivered, given back and delivered three times; a small push, pull and ack meanwhile, p99",
        f"unchanged; {percentile(waits, 0.99) * MILLI:.0f} ms; {elections(cluster) - terms} elections",
    )
    try:
        await client.push("large", b"x" * (LARGE + 1))
    except LmqError as error:
        row("one byte more", f"refused with `{error.code}`")
    else:
        raise RuntimeError("a message above the limit was stored")


async def many_queues(client: AsyncClient) -> None:
    """Ten thousand queues."""
    await rate(QUEUES, lambda number: client.push_many(f"many-{number}", [BODY] * 10))
    chance, took = random.Random(2), []
    for _ in range(500):
        began = time.perf_counter()
        message = await client.pull(f"many-{chance.randrange(QUEUES)}", 60, auto_ack=True)
        took.append(time.perf_counter() - began)
        assert message is not None
    row(f"a pull from any of {QUEUES:,} queues, p50", f"{statistics.median(took) * MILLI:.1f} ms")


def syncs(cluster: Cluster) -> int:
    """Syncs of the leader's log."""
    page = fetch(cluster.leader().http, "/metrics")[1].decode()
    (value,) = re.findall(r"^lmq_raft_log_syncs_total (\S+)$", page, re.MULTILINE)
    return int(float(value))


async def safe_messages(cluster: Cluster) -> None:
    """Push, lease and ack of each message, by 64 clients."""
    clients = [AsyncClient(cluster.rpc_addresses) for _ in range(64)]

    async def work(number: int, client: AsyncClient, count: int) -> None:
        for _ in range(count):
            await client.push(f"safe-{number}", BODY)
            message = await client.pull(f"safe-{number}", 60)
            assert message is not None
            await message.ack()

    await asyncio.gather(*(work(number, client, 2) for number, client in enumerate(clients)))
    before, began = syncs(cluster), time.perf_counter()
    await asyncio.gather(*(work(number, client, 150) for number, client in enumerate(clients)))
    took_s, count = time.perf_counter() - began, 64 * 150
    synced = syncs(cluster) - before
    for client in clients:
        await client.close()
    row(
        "64 clients, each with one message at a time pushed, leased and acknowledged",
        f"{count / took_s:,.0f} messages/s, {count / synced:.0f} messages for each sync of the log",
    )


async def failures(cluster: Cluster) -> None:
    """The leader is killed; then a follower, and all, are started again."""
    async with AsyncClient(cluster.rpc_addresses) as client:
        await client.push("after", BODY)
        leader = cluster.leader()
        leader.kill()
        began = time.perf_counter()
        await client.push("after", BODY)
        row("leader killed: first push acknowledged after", f"{time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        await asyncio.to_thread(leader.start)
        row("a node with all that is ready after", f"{time.perf_counter() - began:.1f} s")
    for node in cluster:
        node.kill()
    began = time.perf_counter()
    await asyncio.to_thread(cluster.start)
    row("all three nodes, after", f"{time.perf_counter() - began:.1f} s")


async def run(cluster: Cluster, messages: int) -> None:
    """Everything."""
    async with AsyncClient(cluster.rpc_addresses) as client:
        empty = max(rss_bytes(node) for node in cluster)
        await fill(client, "deep", messages)
        await fill(client, "shallow", SHALLOW)
        grown = max(rss_bytes(node) for node in cluster) - empty
        row(f"memory of a node for {messages:,} messages of 100 bytes", f"{grown / messages:.0f} bytes each")
        await depth(client)
        await waiting_consumers(cluster)
        await large(cluster, client)
        await many_queues(client)
        await safe_messages(cluster)
    await failures(cluster)
    async with AsyncClient(cluster.rpc_addresses) as client:
        assert (await client.backlog(queue="deep")).messages == messages
        began = time.perf_counter()
        await client.purge("deep")
        row(f"a purge of {messages:,} messages", f"{(time.perf_counter() - began) * MILLI:.0f} ms")


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.curator_note", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of the deep queue (default 1,000,000)")
    given = parser.parse_args()
    print("| | |\n|---|---|")
    with Cluster(3) as cluster:
        uvloop.run(run(cluster, given.messages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
