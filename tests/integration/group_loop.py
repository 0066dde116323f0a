"""Messages of many groups, many consumers, and nodes that are killed: strict order in each group, one message at a
time.

``python -m tests.integration.group_loop`` runs 1,000 groups of 100 messages with 50 consumers over three nodes, and
kills a node every 5 seconds. ``--fairness`` measures instead how a group of 100,000 messages slows the others.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lmqcluster import AsyncClient, LmqError, Message

from .cluster import Cluster

__all__ = ["Book", "group_loop"]

QUEUE = "groups"
LEASE_S = 20.0
LEASE_MARGIN_S = 10.0
"""A delivery reaches its consumer after its lease begins: by one pause at most."""
AT_ONCE = 20
FLOOD = 100_000
OTHERS = 100
PROBES = 1_500
PROBE_EVERY_S = 0.01


@dataclass
class Book:
    """The deliveries of each group as consumers saw them."""

    groups: int
    size: int
    last: Counter[str] = field(default_factory=Counter)
    """Number of the message that was delivered last, from 1."""
    held: dict[str, float] = field(default_factory=dict)
    done: set[tuple[str, int]] = field(default_factory=set)
    redelivered: int = 0
    kills: int = 0
    elapsed_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def delivered(self, group: str, number: int) -> None:
        now = time.monotonic()
        last, since = self.last[group], self.held.get(group)
        if since is not None and now - since < LEASE_S - LEASE_MARGIN_S:
            self.violations.append(f"{group}: {number} was delivered while {last} was held, after {now - since:.1f} s")
        if number not in (last, last + 1):
            self.violations.append(f"{group}: {number} was delivered after {last}")
        if (group, number) in self.done:
            self.violations.append(f"{group}: {number} was delivered after it was done")
        self.redelivered += number == last
        self.last[group], self.held[group] = number, now

    def settling(self, group: str) -> None:
        """Note that a message is being settled, after which the next one may be delivered."""
        self.held.pop(group, None)

    def is_complete(self) -> bool:
        return len(self.last) == self.groups and all(last == self.size for last in self.last.values())

    def __str__(self) -> str:
        return (
            f"{self.groups} groups of {self.size} messages in {self.elapsed_s:.1f} s over {self.kills} kills: "
            f"{sum(self.last.values())} messages in order, {self.redelivered} deliveries repeated, "
            f"{len(self.violations)} violations"
        )


async def group_loop(
    cluster: Cluster,
    *,
    groups: int,
    size: int,
    consumers: int,
    hold_s: float,
    kill_every_s: float,
    kills_min: int,
    seed: int,
) -> Book:
    """Push everything, then consume and kill until all is done and at least `kills_min` nodes were killed."""
    book, rng = Book(groups, size), random.Random(seed)
    await _fill(cluster, groups, size)
    begun_s = time.monotonic()
    empty = asyncio.Event()
    addresses = cluster.rpc_addresses
    orders = [addresses[turn:] + addresses[:turn] for turn in range(len(addresses))]
    async with asyncio.TaskGroup() as tasks:
        for number in range(consumers):
            tasks.create_task(_consume(book, orders[number % len(orders)], hold_s, empty))
        while not (book.is_complete() and book.kills >= kills_min):
            await asyncio.sleep(kill_every_s)
            await asyncio.to_thread(rng.choice(cluster.nodes).restart)
            book.kills += 1
        empty.set()
    book.elapsed_s = time.monotonic() - begun_s
    await _check_empty(cluster, book)
    return book


async def _fill(cluster: Cluster, groups: int, size: int) -> None:
    """Store the messages of each group in order, with the groups interleaved."""
    async with AsyncClient(cluster.rpc_addresses) as client:
        await client.update_props(QUEUE, {"timeout": LEASE_S, "retry": 1_000_000})
        names = [f"g{group}" for group in range(groups)]
        for number in range(1, size + 1):
            contents = [f"{name}:{number}" for name in names]
            await client.push_many(QUEUE, contents, options=[{"group": name} for name in names])


async def _consume(book: Book, addresses: list[str], hold_s: float, empty: asyncio.Event) -> None:
    async with AsyncClient(addresses) as client:

        async def settle(message: Message) -> None:
            group, _, number = message.content.decode().partition(":")
            book.settling(group)
            try:
                if await message.ack():
                    book.done.add((group, int(number)))
            except LmqError as exc:
                # A message that was not settled is redelivered.
                print(f"done: {exc}", file=sys.stderr)

        while not empty.is_set():
            try:
                pulled = await client.pull_many(QUEUE, AT_ONCE, timeout=1.0)
            except LmqError as exc:
                print(f"pull: {exc}", file=sys.stderr)
                continue
            for message in pulled:
                group, _, number = message.content.decode().partition(":")
                book.delivered(group, int(number))
            # While a consumer works on a message, the next one of its group must not be delivered.
            await asyncio.sleep(hold_s)
            await asyncio.gather(*map(settle, pulled))


async def _check_empty(cluster: Cluster, book: Book) -> None:
    """Check that nothing is left except messages whose ack lost its answer; their leases expire."""
    async with AsyncClient(cluster.rpc_addresses) as client:
        while pulled := await client.pull_many(QUEUE, AT_ONCE, timeout=2 * LEASE_S if _size(cluster) else 0):
            for message in pulled:
                group, _, number = message.content.decode().partition(":")
                book.delivered(group, int(number))
                book.settling(group)
                await message.ack()


def _size(cluster: Cluster) -> int:
    return int(cluster.leader().get_json(f"/v1/queues/{QUEUE}")["size"])


# --- fairness -----------------------------------------------------------------------------------------------------


async def fairness(cluster: Cluster, turns: int) -> list[tuple[float, float]]:
    """Return the p99 of the time from push to delivery in seconds, without and with the flood, of each turn."""
    found = []
    async with AsyncClient(cluster.leader().rpc) as client:
        for turn in range(turns):
            calm = await _probe(client, f"calm{turn}")
            await client.push_many(f"flood{turn}", ["flood"] * FLOOD, options=[{"group": "flood"}] * FLOOD)
            found.append((calm, await _probe(client, f"flood{turn}")))
            await client.delete(f"flood{turn}")
    return found


async def _probe(client: AsyncClient, queue: str) -> float:
    """Push messages of other groups at a fixed pace, while ten consumers pull everything."""
    waits: list[float] = []

    async def consume() -> None:
        while len(waits) < PROBES:
            message = await client.pull(queue, 1.0)
            if message is None:
                continue
            if message.content != b"flood":
                waits.append(time.monotonic() - float(message.content))
            await message.ack()

    async def produce() -> None:
        begun_s = time.monotonic()
        for number in range(PROBES):
            await asyncio.sleep(max(0.0, begun_s + number * PROBE_EVERY_S - time.monotonic()))
            await client.push(queue, repr(time.monotonic()), group=f"other{number % OTHERS}")

    await asyncio.gather(produce(), *(consume() for _ in range(10)))
    return sorted(waits)[len(waits) * 99 // 100]


def main() -> int:
    """Run the program; return 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.group_loop", description=__doc__)
    parser.add_argument("--groups", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--size", type=int, default=100, help="messages of each (default 100)")
    parser.add_argument("--consumers", type=int, default=50, help="over all nodes (default 50)")
    parser.add_argument("--hold", type=float, default=0.5, metavar="S", help="how long work takes (default 0.5)")
    parser.add_argument("--kill-every", type=float, default=5.0, metavar="S", help="seconds between kills (default 5)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the victims (default: the clock)")
    parser.add_argument("--fairness", action="store_true", help="measure how a large group slows the others")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(3, directory=Path(folder)) as cluster:
        if options.fairness:
            for calm_s, flood_s in asyncio.run(fairness(cluster, 3)):
                print(
                    f"p99 from push to delivery: {1e3 * calm_s:.1f} ms, beside {FLOOD:,} of one group {1e3 * flood_s:.1f} ms"
                )
            return 0
        book = asyncio.run(
            group_loop(
                cluster,
                groups=options.groups,
                size=options.size,
                consumers=options.consumers,
                hold_s=options.hold,
                kill_every_s=options.kill_every,
                kills_min=1,
                seed=options.seed,
            )
        )
        print(f"seed {options.seed}: {book}")
        print("\n".join(book.violations[:20]))
        return 1 if book.violations else 0


if __name__ == "__main__":
    sys.exit(main())
