"""``python -m tests.benchmarks.delivery``: priorities, delays and expiry in a queue of a million messages.

Three nodes in durability mode ``disk`` run on this machine. The program prints

- the time until a new urgent message is delivered from a full priority queue, and its rate of pulls beside that of a plain queue;
- how early or late delayed messages are delivered that become due at random times;
- the slowest push and pull of another queue while all messages of a queue expire within one second.

It counts every message.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from lmqcluster import AsyncClient
from lmqcluster.client import PushOptions
from tests.integration.cluster import Cluster

BATCH: Final = 1_000
AT_ONCE: Final = 4
PULL: Final = 32
PROBE_EVERY_S: Final = 0.01
HOUR_S: Final = 3_600.0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.delivery", description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="in each queue (%(default)s)")
    options.add_argument(
        "--seconds", type=float, default=120.0, metavar="S", help="seconds within which delays end (%(default)s)"
    )
    options.add_argument("--pulls", type=int, default=1_000, metavar="N", help=f"of {PULL} messages (%(default)s)")
    return options


async def fill(
    client: AsyncClient, queue: str, batches: Iterator[tuple[list[bytes], list[PushOptions | None]]]
) -> None:
    """Push batches, a few at a time."""

    async def push() -> None:
        for contents, options in batches:
            await client.push_many(queue, contents, options=options if any(options) else None)

    await asyncio.gather(*(push() for _ in range(AT_ONCE)))


def counts(messages: int) -> Iterator[int]:
    """Return the sizes of batches."""
    for first in range(0, messages, BATCH):
        yield min(BATCH, messages - first)


async def drain(client: AsyncClient, queue: str, count: int) -> float:
    """Pull and ack `count` messages, `PULL` at a time; return messages per second."""
    began_s = time.perf_counter()
    for _ in range(count):
        found = await client.pull_many(queue, PULL)
        await client.done_many(queue, [one.id for one in found])
    return count * PULL / (time.perf_counter() - began_s)


async def priorities(client: AsyncClient, messages: int, pulls: int, rng: random.Random) -> tuple[float, float, float]:
    """Return the milliseconds until an urgent message is delivered, and the rates of the priority queue and
    of a plain one.
    """
    await fill(client, "plain", (([b"x" * 100] * count, [None] * count) for count in counts(messages)))
    await fill(
        client,
        "priority",
        (([b"x" * 100] * count, [{"priority": rng.randrange(10)} for _ in range(count)]) for count in counts(messages)),
    )
    began_s = time.perf_counter()
    await client.push("priority", b"urgent", priority=-1)
    urgent = await client.pull("priority", 0)
    urgent_ms = 1e3 * (time.perf_counter() - began_s)
    if urgent is None or urgent.content != b"urgent":
        raise AssertionError(f"the next message was not the urgent one, but {urgent}")
    await urgent.ack()
    rates: dict[str, float] = {}
    for _ in range(2):
        # Both queues take turns, and the second turn counts.
        for queue in ("priority", "plain"):
            rates[queue] = await drain(client, queue, pulls)
    left = dict.fromkeys(rates, messages - 2 * pulls * PULL)
    for name, count in left.items():
        if (held := (await client.backlog(queue=name)).messages) != count:
            raise AssertionError(f"{name} holds {held} messages instead of {count}")
        await client.delete(name)
    return urgent_ms, rates["priority"], rates["plain"]


async def delays(client: AsyncClient, messages: int, seconds: float, rng: random.Random) -> tuple[float, float]:
    """Return the maximum milliseconds by which messages arrived before, and after, they were due."""
    base = time.time() + messages / 15_000 + 10

    def batch(count: int) -> tuple[list[bytes], list[PushOptions | None]]:
        dues = [base + rng.uniform(0, seconds) for _ in range(count)]
        return [b"%.6f" % due for due in dues], [{"due": due} for due in dues]

    await fill(client, "delayed", map(batch, counts(messages)))
    if time.time() > base:
        raise AssertionError("storing the messages took longer than their shortest delay: increase --seconds")
    early_s, late_s, got = 0.0, 0.0, 0
    while got < messages:
        asked = time.time()
        found = await client.pull_many("delayed", BATCH, timeout=60, lease=HOUR_S)
        now = time.time()
        for one in found:
            due = float(one.content)
            early_s = max(early_s, due - now)
            # A message that was due before the request has waited for this program.
            late_s = max(late_s, now - max(due, asked))
        await client.done_many("delayed", [one.id for one in found])
        got += len(found)
    return 1e3 * early_s, 1e3 * late_s


async def expiry(client: AsyncClient, messages: int) -> tuple[float, float]:
    """Return the slowest push and pull of another queue in milliseconds: before, and while everything expires."""
    ends = time.time() + messages / 15_000 + 15

    def batch(count: int) -> tuple[list[bytes], list[PushOptions | None]]:
        return [b"x" * 100] * count, [{"ttl": max(0.001, ends - time.time())}] * count

    await fill(client, "mortal", map(batch, counts(messages)))
    if time.time() > ends - 5:
        raise AssertionError("storing the messages took too long")
    calm_ms = await probe(client, until=ends - 1)
    return calm_ms, await probe(client, until=ends + 20)


async def probe(client: AsyncClient, until: float) -> float:
    """Push and pull one message after the other; return the slowest request in milliseconds."""
    longest_s = 0.0
    while time.time() < until:
        for request in (client.push("probe", b"p"), client.pull("probe", 0, auto_ack=True)):
            began_s = time.perf_counter()
            await request
            longest_s = max(longest_s, time.perf_counter() - began_s)
        await asyncio.sleep(PROBE_EVERY_S)
    return 1e3 * longest_s


async def measure(options: argparse.Namespace, cluster: Cluster) -> Table:
    """Run everything; return the table."""
    rng = random.Random(7)
    table = Table(title=f"{options.messages:,} messages")
    for heading in ("What", "Figure"):
        table.add_column(heading)
    async with AsyncClient(cluster.leader().rpc) as client:
        urgent_ms, priority_rate, plain_rate = await priorities(client, options.messages, options.pulls, rng)
        table.add_row("a new urgent message is next after", f"{urgent_ms:.1f} ms")
        table.add_row("pulled and acked by priority, plain", f"{priority_rate:,.0f}/s, {plain_rate:,.0f}/s")
        table.add_row("ratio", f"{priority_rate / plain_rate:.2f}")
        early_ms, late_ms = await delays(client, options.messages, options.seconds, rng)
        table.add_row("delayed messages: earliest, latest", f"-{early_ms:.0f} ms, +{late_ms:.0f} ms")
        calm_ms, expiring_ms = await expiry(client, options.messages)
        table.add_row("longest request: before, while all expire", f"{calm_ms:.0f} ms, {expiring_ms:.0f} ms")
        queue = cluster.leader().get_json("/v1/queues/mortal")
        table.add_row("expired, of those left", f"{queue['expired_total']:,}, {queue['size']:,}")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    options = parser().parse_args(arguments)
    with Cluster(3) as cluster:
        Console().print(uvloop.run(measure(options, cluster)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
