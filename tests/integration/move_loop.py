"""Moves messages between queues in transactions while nodes and consumers are killed: each arrives exactly once.

``python -m tests.integration.move_loop --messages 100000`` moves the given number of messages. The consumers are
processes, so that SIGKILL ends them between any two instructions.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from lmqcluster import AsyncClient, LmqError, Message

from .cluster import Cluster, wait_for

__all__ = ["Outcome", "move_loop"]

SOURCE, TARGET = "source", "target"
LEASE_S = 5.0
"""Time after which messages of a killed consumer are redelivered."""
BATCH = 500
AT_ONCE = 64
KILL_EVERY_S = (1.0, 3.0)


@dataclass
class Outcome:
    """The fate of the messages."""

    messages: int
    elapsed_s: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    left: int = 0
    arrived: Counter[bytes] = field(default_factory=Counter)

    def violations(self) -> list[str]:
        """Return the violations."""
        wanted = Counter(_content(number) for number in range(self.messages))
        lost, more = wanted - self.arrived, self.arrived - wanted
        found = [f"{len(lost)} messages are lost, such as {sorted(lost)[:5]}"] if lost else []
        found += [f"{sum(more.values())} messages are too many, such as {sorted(more)[:5]}"] if more else []
        return found + ([f"{self.left} messages are left in the source"] if self.left else [])

    def __str__(self) -> str:
        kills = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return (
            f"{self.messages} messages moved in {self.elapsed_s:.1f} s over {sum(self.kills.values())} kills ({kills}): "
            f"{sum(self.arrived.values())} arrived, {len(self.arrived)} of them different, {self.left} left"
        )


def _content(number: int) -> bytes:
    return b"%08d" % number


async def move_loop(cluster: Cluster, messages: int, seed: int, *, kills_min: int = 0) -> Outcome:
    """Move `messages` messages and kill until that is done and at least `kills_min` kills happened; then count."""
    outcome, rng = Outcome(messages), random.Random(seed)
    async with AsyncClient(cluster.rpc_addresses) as client:
        await client.update_props(SOURCE, {"timeout": LEASE_S, "retry": 1_000_000})
        for first in range(0, messages, BATCH):
            await client.push_many(SOURCE, [_content(number) for number in range(first, min(first + BATCH, messages))])
    addresses = cluster.rpc_addresses
    begun_s = time.monotonic()
    with _Consumer(addresses) as one, _Consumer(addresses[1:] + addresses[:1]) as other:
        while sum(outcome.kills.values()) < kills_min or await asyncio.to_thread(_size, cluster) > 0:
            await asyncio.sleep(rng.uniform(*KILL_EVERY_S))
            kind = rng.choice(["consumer", "consumer", "leader", "follower"])
            outcome.kills[kind] += 1
            if kind == "consumer":
                rng.choice([one, other]).restart()
            else:
                victim = cluster.leader() if kind == "leader" else rng.choice(cluster.followers())
                await asyncio.to_thread(victim.restart)
        outcome.elapsed_s = time.monotonic() - begun_s
    await _count(cluster, outcome)
    return outcome


def _size(cluster: Cluster) -> int:
    """Return the number of messages in the source, leased ones included, from a node that does not lag."""

    def seen() -> tuple[int] | None:
        for node in cluster:
            queue = node.get_json(f"/v1/queues/{SOURCE}")
            if not queue["stale"]:
                return (int(queue["size"]),)
        return None

    return wait_for(seen, "a node that is not behind")[0]


async def _count(cluster: Cluster, outcome: Outcome) -> None:
    """Drain both queues."""
    async with AsyncClient(cluster.rpc_addresses) as client:
        while pulled := await client.pull_many(TARGET, BATCH, lease=600.0):
            outcome.arrived.update(message.content for message in pulled)
    outcome.left = await asyncio.to_thread(_size, cluster)


class _Consumer:
    """A process that moves messages until it is killed."""

    def __init__(self, addresses: list[str]) -> None:
        self._command = [sys.executable, "-m", "tests.integration.move_loop", "--consume", ",".join(addresses)]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=Path(__file__).parents[2])

    def restart(self) -> None:
        """Kill the process and start a new one."""
        self._kill()
        self._process = self._start()

    def _kill(self) -> None:
        assert self._process.poll() is None, "a consumer has ended unexpectedly"
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._kill()


async def _consume(addresses: str) -> None:
    """Acknowledge each message and push it to the other queue in one transaction."""
    async with AsyncClient(addresses) as client:

        async def move(message: Message) -> None:
            try:
                async with client.transaction() as transaction:
                    transaction.done(message)
                    transaction.push(TARGET, message.content)
            except LmqError as exc:
                # A message that was not moved is redelivered.
                print(f"transaction: {exc}", file=sys.stderr)

        while os.getppid() != 1:
            try:
                pulled = await client.pull_many(SOURCE, AT_ONCE, timeout=1.0)
            except LmqError as exc:
                print(f"pull: {exc}", file=sys.stderr)
                continue
            await asyncio.gather(*map(move, pulled))


def main() -> int:
    """Run the program; return 1 if a message was lost or duplicated."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.move_loop", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="how many are moved (default 100,000)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="chooses the victims (default: the clock)")
    parser.add_argument("--consume", metavar="ADDRESSES", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consume:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(_consume(options.consume))
        return 0
    with tempfile.TemporaryDirectory() as folder, Cluster(3, directory=Path(folder)) as cluster:
        outcome = asyncio.run(move_loop(cluster, options.messages, options.seed))
        print(f"seed {options.seed}: {outcome}")
        print("\n".join(outcome.violations()))
        return 1 if outcome.violations() else 0


if __name__ == "__main__":
    sys.exit(main())
