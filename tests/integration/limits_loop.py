"""Fair groups and limits of deliveries on a real cluster, with consumers at all nodes.

``python -m tests.integration.limits_loop CHECK`` runs one of the checks at full size: ``turns`` (one tenant with a million
messages, a thousand tenants with one each), ``shares`` (Jain's index of a hundred tenants), ``slots`` (a limit in flight,
first undisturbed, then while nodes are killed) or ``rate``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from lmqcluster import AsyncClient
from lmqcluster.client import Message
from lmqcluster.wire.errors import LmqError
from tests.event_reader import read_events

from .cluster import Cluster

__all__ = ["Slots", "jain_index", "rated", "shares", "slots", "slots_under_kills", "turns"]

PUSH_COUNT: Final = 5_000
WAIT_S: Final = 5.0


@contextlib.asynccontextmanager
async def clients(cluster: Cluster, count: int) -> AsyncIterator[list[AsyncClient]]:
    """Yield clients that are spread over the nodes."""
    addresses = cluster.rpc_addresses
    async with contextlib.AsyncExitStack() as stack:
        orders = [
            addresses[number % len(addresses) :] + addresses[: number % len(addresses)] for number in range(count)
        ]
        opened = [AsyncClient(order, timeout_s=60.0) for order in orders]
        for client in opened:
            stack.push_async_callback(client.close, 5.0)
        yield opened


async def push_all(client: AsyncClient, queue: str, groups: list[str]) -> None:
    """Push a message of each of these groups, in order."""
    for start in range(0, len(groups), PUSH_COUNT):
        part = groups[start : start + PUSH_COUNT]
        await client.push_many(queue, [b"x" * 100] * len(part), options=[{"group": group} for group in part])


# --- turns ------------------------------------------------------------------------------------------------------------


async def turns(cluster: Cluster, *, backlog: int, tenants: int, consumers: int) -> int:
    """Return within how many deliveries all quiet tenants were served beside one with a backlog."""
    queue, quiet = "turns", {f"quiet-{number}" for number in range(tenants)}
    async with clients(cluster, consumers) as opened:
        await opened[0].update_props(queue, {"group_mode": "fair", "timeout": 600})
        await push_all(opened[0], queue, ["busy"] * backlog)
        await push_all(opened[0], queue, sorted(quiet))
        delivered: dict[int, str] = {}

        async def consume(client: AsyncClient) -> None:
            while not quiet <= set(delivered.values()):
                message = await client.pull(queue, WAIT_S)
                assert message is not None
                delivered[int(message.id[-12:], 16)] = message.group or ""
                await message.ack()

        await asyncio.gather(*map(consume, opened))
    order = [group for _, group in sorted(delivered.items())]
    return 1 + max(order.index(group) for group in quiet)


def jain_index(shares: list[int]) -> float:
    """Return how equal shares are, from 1 / n to 1 (Jain, Chiu and Hawe 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


async def shares(cluster: Cluster, *, tenants: int, deliveries: int, consumers: int, seed: int) -> list[int]:
    """Return the deliveries of each tenant while all have messages waiting, whatever their load and the work of each message."""
    queue, choice = "shares", random.Random(seed)
    groups = [f"tenant-{number}" for number in range(tenants)]
    load = [group for group in groups for _ in range(choice.randint(2, 20) * deliveries // tenants)]
    choice.shuffle(load)
    counts: Counter[str] = Counter()
    async with clients(cluster, consumers) as opened:
        await opened[0].update_props(queue, {"group_mode": "fair", "timeout": 600})
        await push_all(opened[0], queue, load)

        async def consume(client: AsyncClient) -> None:
            while counts.total() < deliveries:
                message = await client.pull(queue, WAIT_S)
                assert message is not None
                counts[message.group or ""] += 1
                await asyncio.sleep(choice.expovariate(200.0))  # the work of a consumer
                await message.ack()

        await asyncio.gather(*map(consume, opened))
    return [counts[group] for group in groups]


# --- slots ------------------------------------------------------------------------------------------------------------


@dataclass
class Slots:
    """How a limit of messages in flight was used.

    Attributes:
        deliveries: number of deliveries.
        most: most messages in flight at one time, by the log.
        idle_s: longest log time for which a slot was free beside a ready message.
    """

    deliveries: int
    most: int
    idle_s: float


async def slots(cluster: Cluster, folder: Path, *, limit: int, consumers: int, messages: int) -> Slots:
    """Consume a queue with a limit in flight, and read from the journals of events how it was used."""
    queue = "slots"
    async with clients(cluster, consumers) as opened:
        await opened[0].update_props(queue, {"max_in_flight": limit, "timeout": 600})
        left = messages

        async def consume(client: AsyncClient, choice: random.Random) -> None:
            nonlocal left
            while left > 0:
                message = await client.pull(queue, 0.5)
                if message is not None:
                    left -= 1
                    await asyncio.sleep(choice.expovariate(50.0))  # the work of a consumer
                    await message.ack()

        waiting = [asyncio.ensure_future(consume(one, random.Random(number))) for number, one in enumerate(opened)]
        await opened[0].push_many(queue, [b"x"] * messages)
        await asyncio.gather(*waiting)
    for node in cluster.alive:
        node.stop()
    return _used(_events(folder, queue), limit, messages)


def _events(folder: Path, queue: str) -> list[dict[str, Any]]:
    found = [event for event in read_events(folder) if event["queue"] == queue and event.get("ok", True)]
    # Of one time, settlements come before the deliveries that they allow.
    return sorted(found, key=lambda event: (event["time"], event["event"] == "pull"))


def _used(events: list[dict[str, Any]], limit: int, messages: int) -> Slots:
    used = Slots(0, 0, 0.0)
    in_flight, free_since = 0, None
    for event in events:
        at_s = datetime.fromisoformat(event["time"]).timestamp()
        if event["event"] == "pull":
            in_flight += 1
            used.deliveries += 1
            used.most = max(used.most, in_flight)
            if free_since is not None and used.deliveries > limit:
                used.idle_s = max(used.idle_s, at_s - free_since)
        elif event["event"] in ("ack", "put_back"):
            in_flight -= 1
            used.deliveries -= event["event"] == "put_back"
        has_ready = used.deliveries < messages
        free_since = at_s if in_flight < limit and has_ready and free_since is None else free_since
        if in_flight >= limit or not has_ready:
            free_since = None
    return used


async def slots_under_kills(
    cluster: Cluster, *, limit: int, consumers: int, seconds: float, seed: int
) -> tuple[int, int, int]:
    """Kill and restart nodes while consumers share a limit in flight.

    Returns:
        The most messages in flight that any node has shown, the number of kills, and the number of messages settled.
    """
    queue, choice = "kills", random.Random(seed)
    done = asyncio.Event()
    most = settled = kills = 0

    async def consume(client: AsyncClient) -> None:
        nonlocal settled
        while not done.is_set():
            with contextlib.suppress(LmqError):
                message: Message | None = await client.pull(queue, 0.5)
                if message is not None:
                    await asyncio.sleep(choice.expovariate(50.0))  # the work of a consumer
                    settled += await message.ack()

    async def watch() -> None:
        nonlocal most
        while not done.is_set():
            for node in cluster.alive:
                with contextlib.suppress(OSError, AssertionError, ValueError, KeyError):
                    shown = await asyncio.to_thread(node.get_json, f"/v1/queues/{queue}")
                    most = max(most, shown["leased"])
            await asyncio.sleep(0.01)  # the interval of the samples

    async def kill() -> None:
        nonlocal kills
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(5.0)  # the time between two kills
            node = choice.choice(list(cluster))
            await asyncio.to_thread(node.kill)
            kills += 1
            await asyncio.to_thread(node.restart)
        done.set()

    async with clients(cluster, consumers) as opened:
        await opened[0].update_props(queue, {"max_in_flight": limit, "timeout": 2})
        await opened[0].push_many(queue, [b"x"] * 100_000)
        await asyncio.gather(kill(), watch(), *map(consume, opened))
    return most, kills, settled


# --- rate -------------------------------------------------------------------------------------------------------------


async def rated(cluster: Cluster, *, rate: int, consumers: int, seconds: float) -> int:
    """Return the number of deliveries of a queue with a rate in this time, its burst included."""
    queue, count = "rated", 0
    loop = asyncio.get_running_loop()
    async with clients(cluster, consumers) as opened:
        await opened[0].update_props(queue, {"rate": rate, "timeout": 600})
        await opened[0].push_many(queue, [b"x"] * int(rate * (seconds + 10)))
        until = loop.time() + seconds

        async def consume(client: AsyncClient) -> None:
            nonlocal count
            while (left_s := until - loop.time()) > 0:
                message = await client.pull(queue, left_s)
                if message is not None:
                    count += loop.time() < until
                    await message.ack()

        await asyncio.gather(*map(consume, opened))
    return count


# --- the program ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _cluster(*arguments: str) -> Iterator[tuple[Cluster, Path]]:
    with tempfile.TemporaryDirectory() as folder:
        journals = Path(folder) / "events"
        with Cluster(directory=Path(folder), arguments=["--event-journal", str(journals), *arguments]) as cluster:
            yield cluster, journals


def main() -> int:
    """Run one check; return 1 if it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=("turns", "shares", "slots", "rate"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with _cluster() as (cluster, journals):
        if given.check == "turns":
            within = asyncio.run(turns(cluster, backlog=1_000_000, tenants=1_000, consumers=50))
            print(f"1,000 quiet tenants were served within the first {within} deliveries")
            return int(within > 1_100)
        if given.check == "shares":
            found = asyncio.run(shares(cluster, tenants=100, deliveries=20_000, consumers=50, seed=given.seed))
            print(f"Jain's index {jain_index(found):.4f}; {min(found)} to {max(found)} deliveries a tenant")
            return int(jain_index(found) < 0.95)
        if given.check == "rate":
            count = asyncio.run(rated(cluster, rate=100, consumers=20, seconds=given.seconds))
            print(f"{count} deliveries in {given.seconds} s at a rate of 100, burst 100")
            return int(count > 100 * given.seconds + 100)
        used = asyncio.run(slots(cluster, journals, limit=7, consumers=100, messages=20_000))
        print(
            f"{used.deliveries} deliveries, at most {used.most} in flight, idle slot at most {used.idle_s * 1e3:.0f} ms"
        )
    with _cluster() as (cluster, _journals):
        most, kills, settled = asyncio.run(
            slots_under_kills(cluster, limit=7, consumers=100, seconds=given.seconds, seed=given.seed)
        )
        print(f"{kills} kills, {settled} settled, at most {most} in flight")
    return int(used.most > 7 or most > 7 or used.idle_s > 0.05)


if __name__ == "__main__":
    sys.exit(main())
