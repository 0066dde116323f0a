"""``python -m tests.benchmarks.transactions``: the cost of moving messages in transactions, beside separate requests.

Three nodes in durability mode ``disk`` run on this machine, with one connection to the leader and 64 messages in
flight. Each message is acknowledged in one queue and pushed to another: in one transaction, or with a push and then,
when that is stored, a done. Both take turns. The ratio of processor time, of nodes and client together, depends least
on other work of the machine. The messages are counted at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from lmqcluster import AsyncClient, Message
from tests.integration.cluster import Cluster

from .load import timed

IN_FLIGHT: Final = 64
BATCH: Final = 500
TARGET: Final = "made"

_Move = Callable[[AsyncClient, Message], Awaitable[None]]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.transactions", description=__doc__)
    options.add_argument("--messages", type=int, default=20_000, metavar="N", help="moved in each turn (%(default)s)")
    options.add_argument("--turns", type=int, default=3, metavar="N", help="of each way (%(default)s)")
    return options


async def in_one_step(client: AsyncClient, message: Message) -> None:
    """Apply both, or neither."""
    async with client.transaction() as transaction:
        transaction.done(message)
        transaction.push(TARGET, message.content)


async def one_by_one(client: AsyncClient, message: Message) -> None:
    """Apply one after the other: a crash in between leaves a duplicate."""
    await client.push(TARGET, message.content)
    await message.ack()


WAYS: Final[dict[str, _Move]] = {"transaction": in_one_step, "push, then done": one_by_one}


@dataclass(frozen=True)
class Turn:
    """Messages per second, and processor time of nodes and client for one of them, in microseconds."""

    rate: float
    cpu_us: float


def _nodes_cpu_s(cluster: Cluster) -> float:
    ticks = 0
    for node in cluster:
        fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def turn(cluster: Cluster, client: AsyncClient, move: _Move, messages: int) -> Turn:
    """Move `messages` messages; pulling does not count."""
    pulled: deque[Message] = deque()
    for first in range(0, messages, BATCH):
        count = min(BATCH, messages - first)
        await client.push_many("taken", [b"x" * 100] * count)
        while count:
            got = await client.pull_many("taken", count, timeout=10, lease=600.0)
            pulled += got
            count -= len(got)

    async def work() -> None:
        while pulled:
            await move(client, pulled.popleft())

    before_s = _nodes_cpu_s(cluster)
    with timed() as watch:
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    cpu_s = _nodes_cpu_s(cluster) - before_s + watch.client_cpu_s
    return Turn(messages / watch.elapsed_s, 1e6 * cpu_s / messages)


async def measure(options: argparse.Namespace, cluster: Cluster) -> tuple[Table, bool]:
    """Return the table, and whether every message arrived once."""
    table = Table(title=f"{options.messages:,} messages of 100 bytes a turn, {IN_FLIGHT} in flight on one connection")
    for heading in ("Way", "messages/s", "CPU us/message", "turns, messages/s"):
        table.add_column(heading)
    turns: dict[str, list[Turn]] = {name: [] for name in WAYS}
    async with AsyncClient(cluster.leader().rpc) as client:
        for _ in range(options.turns):
            for name, move in WAYS.items():
                turns[name].append(await turn(cluster, client, move, options.messages))
    for name, found in turns.items():
        rates = [one.rate for one in found]
        cpu_us = median(one.cpu_us for one in found)
        table.add_row(name, f"{median(rates):,.0f}", f"{cpu_us:,.0f}", ", ".join(f"{rate:,.0f}" for rate in rates))
    pairs = list(zip(*turns.values(), strict=True))
    rate, cpu = median(a.rate / b.rate for a, b in pairs), median(a.cpu_us / b.cpu_us for a, b in pairs)
    table.add_row("ratio", f"{rate:.2f}", f"{cpu:.2f}", "")
    held = {name: cluster.leader().get_json(f"/v1/queues/{name}")["size"] for name in ("taken", TARGET)}
    return table, held == {"taken": 0, TARGET: options.messages * options.turns * len(WAYS)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return the exit status: 0, or 1 if messages are missing or too many."""
    options = parser().parse_args(arguments)
    with Cluster(3) as cluster:
        table, complete = uvloop.run(measure(options, cluster))
    Console().print(table)
    if not complete:
        print("error: the queues do not hold the moved messages", file=sys.stderr)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
