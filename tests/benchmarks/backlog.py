"""``python -m tests.benchmarks.backlog``: the cost of operating a cluster with a backlog of a million messages.

Three nodes in durability mode ``disk`` run on this machine. The benchmark measures the memory of a node, the slowest
request while a node writes a snapshot, the time from start to ready of one node and of all after SIGKILL, the time
until a new fourth node is in step under continuous pushes, the rates of pushes and pulls with and without the backlog,
and the time to count and to purge it. It counts the messages at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from lmqcluster import AsyncClient
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster, NodeProcess, wait_for

BATCH: Final = 500
ADMIN_S: Final = 300.0
TICK_S: Final = 0.01
TAKEN: Final = 200_000


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.backlog", description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="stored at first (%(default)s)")
    options.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a message (%(default)s)")
    options.add_argument("--queues", type=int, default=10, metavar="N", help="that hold them (%(default)s)")
    options.add_argument(
        "--rate", type=int, default=10_000, metavar="N", help="pushes a second at the join (%(default)s)"
    )
    return options


@dataclass
class Backlog:
    """A cluster full of messages.

    Attributes:
        pushed: number of acknowledged messages.
    """

    cluster: Cluster
    queues: list[str]
    body: bytes
    pushed: int = 0

    async def fill(self, messages: int) -> float:
        """Store `messages` messages; return seconds."""
        begun_s = time.monotonic()
        async with AsyncClient(self.cluster[0].rpc) as client:
            waiting: set[asyncio.Future[list[str]]] = set()
            for start in range(0, messages, BATCH):
                count = min(BATCH, messages - start)
                queue = self.queues[start // BATCH % len(self.queues)]
                waiting.add(asyncio.ensure_future(client.push_many(queue, _bodies(count, len(self.body)))))
                if len(waiting) >= 8:
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*waiting)
        self.pushed += messages
        return time.monotonic() - begun_s

    async def taking(self, queue: str, messages: int) -> tuple[float, float]:
        """Push messages to a queue and pull as many from it; return messages per second of both."""
        async with AsyncClient(self.cluster[0].rpc) as client:
            begun_s = time.monotonic()
            for _ in range(0, messages, BATCH):
                await client.push_many(queue, _bodies(BATCH, len(self.body)))
            pushed_s = time.monotonic() - begun_s
            begun_s = time.monotonic()
            for _ in range(0, messages, BATCH):
                found = await client.pull_many(queue, BATCH)
                await client.done_many(queue, [one.id for one in found])
            return messages / pushed_s, messages / (time.monotonic() - begun_s)

    async def count_and_purge(self) -> tuple[float, float]:
        """Return the seconds to read a queue's size, and to purge the queue."""
        begun_s = time.monotonic()
        await asyncio.to_thread(self.cluster[0].get_json, f"/v1/queues/{self.queues[0]}")
        counted_s = time.monotonic() - begun_s
        begun_s = time.monotonic()
        await asyncio.to_thread(post, self.cluster[0], f"/v1/queues/{self.queues[0]}/purge", {})
        return counted_s, time.monotonic() - begun_s

    async def snapshots(self) -> list[tuple[str, float, float]]:
        """Make every node write a snapshot while requests go through each node one after the other.

        Returns:
            (node, seconds of the snapshot, slowest request during it), a row for each node.
        """
        rows = []
        async with asyncio.TaskGroup() as probes:
            stop = asyncio.Event()
            waits: list[float] = []
            for node in self.cluster:
                probes.create_task(self._probe(node, waits, stop))
            for node in self.cluster:
                waits.clear()
                begun_s = time.monotonic()
                await asyncio.to_thread(post, node, "/v1/snapshots", {"portable": False})
                rows.append((node.name, time.monotonic() - begun_s, max(waits)))
            stop.set()
        return rows

    @staticmethod
    async def _probe(node: NodeProcess, waits: list[float], stop: asyncio.Event) -> None:
        queue = f"probe.{node.name}"
        async with AsyncClient(node.rpc) as client:
            while not stop.is_set():
                begun_s = time.monotonic()
                await client.push(queue, b"probe")
                message = await client.pull(queue, 30)
                assert message is not None
                await message.ack()
                waits.append(time.monotonic() - begun_s)

    def restart_one(self) -> float:
        """Kill a follower with SIGKILL; return seconds from its start to ready."""
        node = self.cluster.followers()[0]
        node.kill()
        begun_s = time.monotonic()
        node.start()
        return time.monotonic() - begun_s

    def restart_all(self) -> float:
        """Kill all nodes with SIGKILL; return seconds from their start until each is ready."""
        for node in self.cluster:
            node.kill()
        begun_s = time.monotonic()
        self.cluster.start()
        return time.monotonic() - begun_s

    async def join(self, rate: int, calm: Callable[[], Awaitable[object]] | None = None) -> tuple[float, float]:
        """Join a new node under pushes at a fixed rate.

        Args:
            rate: pushes per second.
            calm: action under these pushes before the node is started.

        Returns:
            Seconds until it is in step, and the pushes per second.
        """
        stop = asyncio.Event()
        producer = asyncio.create_task(self._push_at(rate, stop))
        if calm is not None:
            await calm()
        fresh = await asyncio.to_thread(self.cluster.add_node)
        begun_s = time.monotonic()
        await asyncio.to_thread(post, fresh, "/v1/cluster/join", {"peer": self.cluster[0].http})
        await asyncio.to_thread(wait_for, lambda: self._in_step(fresh), "the new node in step", ADMIN_S)
        seconds = time.monotonic() - begun_s
        stop.set()
        return seconds, await producer

    async def _push_at(self, rate: int, stop: asyncio.Event) -> float:
        begun_s = time.monotonic()
        pushed = 0
        async with AsyncClient(self.cluster[0].rpc) as client, asyncio.TaskGroup() as pushes:

            async def push(queue: str) -> None:
                await client.push(queue, self.body)

            while not stop.is_set():
                for _ in range(round((time.monotonic() - begun_s) * rate) - pushed):
                    pushes.create_task(push(self.queues[pushed % len(self.queues)]))
                    pushed += 1
                await asyncio.sleep(TICK_S)
        self.pushed += pushed
        return pushed / (time.monotonic() - begun_s)

    def _in_step(self, fresh: NodeProcess) -> bool:
        """Check that it counts for the quorum and has applied what was committed a moment before."""
        committed = self.cluster[0].get_json("/v1/cluster")["commit_index"]
        cluster = fresh.get_json("/v1/cluster")
        mine = next(node for node in cluster["nodes"] if node["id"] == cluster["self"])
        return bool(mine["state"] != "learner" and cluster["applied_index"] >= committed)

    def held(self) -> dict[str, int]:
        """Return the number of messages on each node."""
        return {
            node.name: sum(node.get_json(f"/v1/queues/{name}")["size"] for name in self.queues) for node in self.cluster
        }


def _bodies(count: int, size: int) -> list[bytes]:
    """Return bodies that cannot be compressed."""
    noise = os.urandom(count * size)
    return [noise[start : start + size] for start in range(0, count * size, size)]


def post(node: NodeProcess, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://{node.http}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=ADMIN_S) as response:
        return json.loads(response.read())


async def measure(options: argparse.Namespace, cluster: Cluster) -> tuple[Table, bool]:
    """Run everything; return the table, and whether every message was on every node at the end."""
    backlog = Backlog(cluster, [f"backlog.{number}" for number in range(options.queues)], b"x" * options.size)
    table = Table(title=f"{options.messages:,} messages of {options.size} bytes in {options.queues} queues")
    table.add_column("What")
    table.add_column("Figure", justify="right")
    idle = _most_memory(cluster)
    seconds = await backlog.fill(options.messages)
    table.add_row("stored by push_many", f"{options.messages / seconds:,.0f} messages/s")
    table.add_row("memory of a node, before and after", f"{idle >> 20} MiB, {_most_memory(cluster) >> 20} MiB")
    for name, took_s, longest_s in await backlog.snapshots():
        table.add_row(f"snapshot of {name}: took", f"{took_s:.2f} s")
        table.add_row(f"snapshot of {name}: longest push + pull + done", f"{1e3 * longest_s:.0f} ms")
    table.add_row("one node, SIGKILL, start to ready", f"{await asyncio.to_thread(backlog.restart_one):.1f} s")
    table.add_row("all nodes, SIGKILL, start to ready", f"{await asyncio.to_thread(backlog.restart_all):.1f} s")
    joined_s, rate = await backlog.join(options.rate)
    table.add_row(f"fourth node in step under {rate:,.0f} pushes/s", f"{joined_s:.1f} s")
    held = await asyncio.to_thread(backlog.held)
    complete = set(held.values()) == {backlog.pushed}
    table.add_row(
        "acknowledged / held by each node", f"{backlog.pushed:,} / {', '.join(f'{n:,}' for n in held.values())}"
    )
    for what, queue in (
        ("an empty queue", "empty"),
        ("the backlog", backlog.queues[0]),
        ("an empty queue, again", "empty"),
    ):
        pushes, takes = await backlog.taking(queue, min(options.messages // 2, TAKEN))
        table.add_row(f"pushes to, pulls from {what}, in batches", f"{pushes:,.0f}, {takes:,.0f} messages/s")
    counted_s, purged_s = await backlog.count_and_purge()
    table.add_row("size of a queue; purge of it", f"{1e3 * counted_s:.1f} ms; {1e3 * purged_s:.0f} ms")
    return table, complete


def _most_memory(cluster: Cluster) -> int:
    return max(rss_bytes(node) for node in cluster)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Return the exit status: 0, or 1 if messages are missing or too many."""
    options = parser().parse_args(arguments)
    with Cluster(3) as cluster:
        table, complete = uvloop.run(measure(options, cluster))
    Console().print(table)
    if not complete:
        print("error: the nodes do not hold all acknowledged messages", file=sys.stderr)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
