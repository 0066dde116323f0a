"""SIGKILL in a loop under load, and a record of what clients saw: no acknowledged message is lost, none is delivered
twice.

``python -m tests.integration.kill_loop --seconds 600`` runs it for the given time.
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

from lmqcluster import AsyncClient, LmqError

from .cluster import Cluster, NodeProcess, wait_for

__all__ = ["Book", "kill_loop"]

QUEUE = "kills"
LEASE_S = 30.0
"""Longer than any restart: the client counts an ack whose answer was lost as done if its repetition finds no lease,
which is wrong if the lease has expired.
"""
RETRIES = 1_000_000
LEASE_MARGIN_S = 4.0
"""A delivery reaches its client after its lease begins: by one pause at most."""
PUSHES_AT_ONCE = 20
BACKLOG_MAX = 20_000
"""Pushers pause while the queue is longer than this."""
CALM_S = (0.5, 3.0)
VICTIMS = ("leader", "follower", "majority", "all")


@dataclass
class Book:
    """Attempts of clients and the answers they got, by message number."""

    attempted: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    settled: Counter[bytes] = field(default_factory=Counter)
    delivered_s: dict[bytes, float] = field(default_factory=dict)
    retries: dict[bytes, list[int]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    slowest_start_s: float = 0.0

    def delivered(self, content: bytes, retry: int) -> None:
        """Note the delivery of a message to a consumer, with `retry` retries left."""
        now = time.monotonic()
        self.retries.setdefault(content, []).append(RETRIES - retry)
        if content not in self.attempted:
            self.violations.append(f"{content!r} was delivered, but never pushed")
        if self.settled[content]:
            self.violations.append(
                f"{content!r} was delivered after it had been settled; retries used: {self.retries[content]}"
            )
        before = self.delivered_s.get(content)
        if before is not None and now - before < LEASE_S - LEASE_MARGIN_S:
            self.violations.append(f"{content!r} was delivered again after {now - before:.1f} s, within its lease")
        self.delivered_s[content] = now

    def done(self, content: bytes) -> None:
        """Note that a consumer got the confirmation of an ack."""
        self.settled[content] += 1
        if self.settled[content] > 1:
            self.violations.append(f"{content!r} was settled twice")

    def close(self) -> None:
        """Compare everything after the queue is drained."""
        lost = self.acknowledged - self.delivered_s.keys()
        if lost:
            self.violations.append(f"{len(lost)} acknowledged messages were lost, such as {sorted(lost)[:5]}")

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kills}), slowest restart {self.slowest_start_s:.1f} s; "
            f"{len(self.attempted)} pushes, {len(self.acknowledged)} acknowledged, {len(self.delivered_s)} delivered, "
            f"{sum(self.settled.values())} settled; errors {dict(self.errors)}; {len(self.violations)} violations"
        )


async def kill_loop(cluster: Cluster, seconds: float, seed: int) -> Book:
    """Run load and kills for `seconds`, then drain the queue; return the book."""
    book, rng = Book(), random.Random(seed)
    stop = asyncio.Event()
    addresses = cluster.rpc_addresses
    async with AsyncClient(addresses) as client:
        await client.update_props(QUEUE, {"timeout": LEASE_S, "retry": RETRIES})
    # Each client prefers a different node.
    orders = [addresses[i:] + addresses[:i] for i in range(len(addresses))]
    pushers = [asyncio.create_task(_push(book, order, f"p{i}", stop)) for i, order in enumerate(orders)]
    drained = asyncio.Event()
    pullers = [asyncio.create_task(_pull(book, order, drained)) for order in orders]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(rng.uniform(*CALM_S))
        kind = rng.choice(VICTIMS)
        book.kills[kind] += 1
        started = time.monotonic()
        await asyncio.to_thread(_kill_and_restart, cluster, kind, rng)
        book.slowest_start_s = max(book.slowest_start_s, time.monotonic() - started)
    stop.set()
    await asyncio.gather(*pushers)
    await asyncio.to_thread(_wait_until_drained, cluster)
    drained.set()
    await asyncio.gather(*pullers)
    book.close()
    return book


def _wait_until_drained(cluster: Cluster) -> None:
    """Wait while the queue gets shorter."""
    size = _size(cluster)
    while size:
        wait_for(lambda: _size(cluster) < size, f"less than {size} messages in the queue")  # noqa: B023 - called at once
        size = _size(cluster)


def _kill_and_restart(cluster: Cluster, kind: str, rng: random.Random) -> None:
    leader, followers = cluster.leader(), cluster.followers()
    victims = {
        "leader": [leader],
        "follower": [rng.choice(followers)],
        "majority": [leader, rng.choice(followers)],
        "all": [leader, *followers],
    }[kind]
    for victim in victims:
        victim.kill()
    for victim in victims:
        victim.start(wait=False)
    for node in cluster:
        node.wait_ready()


def _size(cluster: Cluster) -> int:
    node: NodeProcess = cluster[0]
    return int(node.get_json(f"/v1/queues/{QUEUE}")["size"])


async def _push(book: Book, addresses: list[str], name: str, stop: asyncio.Event) -> None:
    number = 0

    async def one(content: bytes, index: int) -> None:
        book.attempted.add(content)
        try:
            # Some pushes have options, which use another command.
            await client.push(QUEUE, content, label="third" if index % 3 == 2 else None)
        except LmqError as exc:
            # The outcome is unknown, or the push was refused: the message may be delivered or not, but only once.
            book.errors[f"push {exc.code}"] += 1
        else:
            book.acknowledged.add(content)

    async with AsyncClient(addresses) as client:
        while not stop.is_set():
            if len(book.attempted) - len(book.delivered_s) > BACKLOG_MAX:
                await asyncio.sleep(0.1)
                continue
            await asyncio.gather(*(one(f"{name}-{number + i}".encode(), i) for i in range(PUSHES_AT_ONCE)))
            number += PUSHES_AT_ONCE


async def _pull(book: Book, addresses: list[str], drained: asyncio.Event) -> None:
    async with AsyncClient(addresses) as client:
        while not drained.is_set():
            try:
                messages = await client.pull_many(QUEUE, PUSHES_AT_ONCE, timeout=0.5)
            except LmqError as exc:
                book.errors[f"pull {exc.code}"] += 1
                continue
            for message in messages:
                book.delivered(message.content, message.retry)
            await asyncio.gather(*(_settle(book, message) for message in messages))


async def _settle(book: Book, message: object) -> None:
    try:
        settled = await message.ack()  # type: ignore[attr-defined]
    except LmqError as exc:
        book.errors[f"done {exc.code}"] += 1
    else:
        if settled:
            book.done(message.content)  # type: ignore[attr-defined]


def main() -> int:
    """Run the program; return 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.kill_loop", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the load (default 60)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the victims (default: the clock)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(3, directory=Path(folder)) as cluster:
        book = asyncio.run(kill_loop(cluster, options.seconds, options.seed))
        print(f"seed {options.seed}: {book}")
        print("\n".join(book.violations[:20]))
        for node in cluster:
            assert "Traceback" not in node.log(), node.log_tail()
    return 1 if book.violations else 0


if __name__ == "__main__":
    sys.exit(main())
