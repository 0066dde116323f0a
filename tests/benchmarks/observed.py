"""``python -m tests.benchmarks.observed``: the cost of monitoring.

Three nodes in durability mode ``disk`` run on this machine, with a client that pushes, pulls and acknowledges with 256
requests in flight. Short phases alternate: in every other one, all nodes are scraped for ``/metrics`` every second, and
the leader for the other requests of Prometheus and an open console. Each monitored phase is compared with those before
and after it; the program prints the median.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
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
IDLE_S: Final = 5.0
_TICKS_PER_S: Final = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.observed", description=__doc__)
    options.add_argument(
        "--phases",
        type=int,
        default=9,
        metavar="N",
        help="phases, an odd number; the first is not monitored (%(default)s)",
    )
    options.add_argument("--seconds", type=float, default=3.0, metavar="S", help="seconds of one phase (%(default)s)")
    options.add_argument("--queues", type=int, default=1_000, metavar="N", help="other queues (%(default)s)")
    return options


async def fill(client: AsyncClient, queues: int) -> None:
    """Create queues with a message each."""
    await asyncio.gather(*(client.push(f"beside-{number:06}", "x" * 100) for number in range(queues)))


async def work(client: AsyncClient, seconds: float) -> float:
    """Push, pull and acknowledge one message after the other in `IN_FLIGHT` coroutines; return messages per second."""
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


def watch(pages: Sequence[tuple[str, str]], watching: Event) -> None:
    """Request pages, given as (address, path), once a second while `watching` is set; runs in a separate process."""
    connections = {address: http.client.HTTPConnection(address, timeout=60) for address, _path in pages}
    while True:
        if not watching.is_set():
            # A node closes idle connections.
            for connection in connections.values():
                connection.close()
            watching.wait()
        begun_s = time.monotonic()
        for address, path in pages:
            connections[address].request("GET", path)
            answer = connections[address].getresponse()
            answer.read()
            assert answer.status == 200, (path, answer.status)
        time.sleep(max(0.0, begun_s + EVERY_S - time.monotonic()))


@contextmanager
def watcher(cluster: Cluster, leader: NodeProcess) -> Iterator[Event]:
    """Start the monitoring process, which runs while the event is set."""
    pages = [*((node.http, OF_ALL) for node in cluster), *((leader.http, path) for path in OF_THE_LEADER)]
    context = get_context("spawn")
    watching = context.Event()
    process = context.Process(target=watch, args=(pages, watching), daemon=True)
    process.start()
    try:
        yield watching
        assert process.is_alive(), "the monitoring process has failed"
    finally:
        process.kill()
        process.join()


def cpu_s(node: NodeProcess) -> float:
    """Return the processor time that a node has used."""
    fields = Path(f"/proc/{node.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


async def cost_of_watching(node: NodeProcess, watching: Event) -> float:
    """Return the share of one processor that answering costs an otherwise idle node."""
    shares: list[float] = []
    for watched in (False, True):
        if watched:
            watching.set()
        before_s = cpu_s(node)
        await asyncio.sleep(IDLE_S)
        watching.clear()
        shares.append((cpu_s(node) - before_s) / IDLE_S)
    return shares[1] - shares[0]


async def measure(options: argparse.Namespace, console: Console) -> float:
    """Return the median ratio of throughput, monitored to not monitored."""
    rates: list[float] = []
    with Cluster(3) as cluster, watcher(cluster, leader := cluster.leader()) as watching:
        async with AsyncClient(leader.rpc) as client:
            await fill(client, options.queues)
            await work(client, 1.0)
            for phase in range(options.phases):
                watched = phase % 2 == 1
                if watched:
                    watching.set()
                rates.append(await work(client, options.seconds))
                watching.clear()
                name = "watched" if watched else "alone"
                console.print(f"{name:8} {rates[-1]:9,.0f} messages/s")
            share = await cost_of_watching(leader, watching)
    console.print(f"answering takes {share:.1%} of the leader's processor")
    return _ratio(rates)


def _ratio(values: Sequence[float]) -> float:
    ratios = [2 * values[at] / (values[at - 1] + values[at + 1]) for at in range(1, len(values) - 1, 2)]
    return statistics.median(ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parser().parse_args(arguments)
    console = Console(highlight=False)
    ratio = uvloop.run(measure(options, console))
    console.print(f"throughput, monitored to not monitored: {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
