"""``python -m tests.benchmarks.observed``: what it costs to be watched.

Three nodes in durability mode ``disk`` on this machine, and a client that pushes, pulls and acknowledges with 256 requests in
flight. Short phases take turns: in every other one, every second, all nodes are asked for ``/metrics``, and the leader for what
else Prometheus and an open console ask. Each watched phase is compared with those before and after it; the median is told.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from lmqcluster import AsyncClient
from tests.integration.cluster import Cluster, NodeProcess

IN_FLIGHT: Final = 256
OF_ALL: Final = "/metrics"
OF_THE_LEADER: Final = ("/metrics/queues", "/v1/overview", "/v1/queues?sort=size&order=desc&limit=10")
EVERY_S: Final = 1.0
_TICKS_PER_S: Final = 100


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.observed", description=__doc__)
    options.add_argument(
        "--phases", type=int, default=9, metavar="N", help="odd; the first is not watched (%(default)s)"
    )
    options.add_argument("--seconds", type=float, default=3.0, metavar="S", help="of one phase (%(default)s)")
    options.add_argument("--queues", type=int, default=1_000, metavar="N", help="that exist beside (%(default)s)")
    return options


async def fill(client: AsyncClient, queues: int) -> None:
    """Make queues with a message each."""
    await asyncio.gather(*(client.push(f"beside-{number:06}", "x" * 100) for number in range(queues)))


async def work(client: AsyncClient, seconds: float) -> float:
    """Push, pull and acknowledge one message after the other in `IN_FLIGHT` coroutines; returns messages a second."""
    done = 0
    begun_s = time.perf_counter()

    async def lane() -> None:
        nonlocal done
        while time.perf_counter() - begun_s < seconds:
            await client.push("load", "x" * 100)
            message = await client.pull("load")
            assert message is not None
            await message.ack()
            done += 1

    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return done / (time.perf_counter() - begun_s)


async def watch(cluster: Cluster, leader: NodeProcess) -> None:
    """Ask for the pages once a second, until cancelled; the answers are thrown away."""

    async def ask(address: str, page: str) -> None:
        host, port = address.split(":")
        while True:
            next_s = asyncio.get_running_loop().time() + EVERY_S
            reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
            writer.write(f"GET {page} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n".encode())
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:100]
            writer.close()
            await asyncio.sleep(max(0.0, next_s - asyncio.get_running_loop().time()))

    async with asyncio.TaskGroup() as group:
        for node in cluster:
            group.create_task(ask(node.http, OF_ALL))
        for page in OF_THE_LEADER:
            group.create_task(ask(leader.http, page))


def cpu_s(cluster: Cluster) -> float:
    """Processor time that the nodes have used."""
    used = 0
    for node in cluster:
        fields = Path(f"/proc/{node.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / _TICKS_PER_S


async def measure(options: argparse.Namespace, console: Console) -> float:
    """The median ratio of throughput, watched to not watched."""
    rates: list[float] = []
    costs: list[float] = []
    with Cluster(3) as cluster:
        leader = cluster.leader()
        async with AsyncClient(leader.rpc) as client:
            await fill(client, options.queues)
            await work(client, 1.0)
            for phase in range(options.phases):
                watched = phase % 2 == 1
                watcher = asyncio.create_task(watch(cluster, leader)) if watched else None
                before_s = cpu_s(cluster)
                rates.append(await work(client, options.seconds))
                costs.append((cpu_s(cluster) - before_s) / (rates[-1] * options.seconds) * 1e6)
                if watcher is not None:
                    watcher.cancel()
                    await asyncio.wait([watcher])
                name = "watched" if watched else "alone"
                console.print(f"{name:8} {rates[-1]:9,.0f} messages/s {costs[-1]:6.1f} us of processor time each")
    console.print(f"processor time of the nodes, watched to alone: {_ratio(costs):.3f}")
    return _ratio(rates)


def _ratio(values: Sequence[float]) -> float:
    ratios = [2 * values[at] / (values[at - 1] + values[at + 1]) for at in range(1, len(values) - 1, 2)]
    return statistics.median(ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parser().parse_args(arguments)
    console = Console(highlight=False)
    ratio = uvloop.run(measure(options, console))
    console.print(f"throughput, watched to alone: {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
