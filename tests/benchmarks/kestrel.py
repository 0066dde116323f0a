"""The memcache port for Kestrel's clients: ``python -m tests.benchmarks.kestrel [--memcached PROGRAM]``.

The loads are those of Kestrel's own load tests: ``put_many`` (only puts), ``many_clients`` (reliable gets of existing
items, each closing the previous one), ``leaky_reader`` (one get in ten is aborted), ``flood`` (puts and reliable gets
at the same time). Each runs over 50 connections with items of 1 KiB, one request at a time and pipelined, against three
nodes with synced logs. MessagePack-RPC is measured under the same load, and memcached, if given, as the client's
ceiling: it sets and gets the same bytes, and keeps them only in memory. The program prints operations per second, and
the processor time of the servers and of the client per operation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from tests.integration.cluster import Cluster, ports, wait_for
from tests.integration.kestrel_ports import address_of, with_kestrel_ports

from .kestrel_clients import MemcacheClient, PlainMemcacheClient, RpcClient

CONNECTIONS = 50
PIPELINED = 32


@dataclass
class System:
    """A measured system."""

    name: str
    client: type[MemcacheClient | RpcClient]
    addresses: Sequence[tuple[str, int]]
    pids: Sequence[int]

    def cpu_s(self) -> float:
        """Return the processor time of its processes so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = (Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in self.pids)
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / ticks


Work = Callable[[Any], Awaitable[int]]


async def measure(system: System, title: str, works: Sequence[Work]) -> None:
    """Run one piece of work on each of several connections; print a row."""
    clients = [await system.client.open(system.addresses[n % len(system.addresses)]) for n in range(len(works))]
    before, mine, started = system.cpu_s(), time.process_time(), time.perf_counter()
    done = sum(await asyncio.gather(*(work(client) for work, client in zip(works, clients, strict=True))))
    took_s = time.perf_counter() - started
    server_us = (system.cpu_s() - before) / done * 1e6
    client_us = (time.process_time() - mine) / done * 1e6
    for client in clients:
        client.close()
    print(f"| {system.name} | {title} | {done / took_s:,.0f} | {server_us:.0f} | {client_us:.0f} |", flush=True)


async def run_queues(system: System, each: int) -> None:
    """Run the loads that all protocols support."""
    for depth in (1, PIPELINED):
        await _loads(system, each if depth == 1 else each * 4, depth)


async def run_leaks(system: System, each: int) -> None:
    """Run the load with aborts."""
    await measure(system, "put_many, before leaky_reader", [lambda c: c.put(b"leak", each, PIPELINED)] * CONNECTIONS)
    await measure(system, "leaky_reader, one at a time", [lambda c: c.leak(b"leak", each)] * CONNECTIONS)


async def _loads(system: System, count: int, depth: int) -> None:
    queue, flood, word, half = b"load-%d" % depth, b"flood-%d" % depth, _word(depth), CONNECTIONS // 2
    puts: list[Work] = [lambda c: c.put(flood, count, depth)] * half
    gets: list[Work] = [lambda c: c.get(flood, count, depth)] * half
    await measure(system, f"put_many, {word}", [lambda c: c.put(queue, count, depth)] * CONNECTIONS)
    await measure(system, f"many_clients, {word}", [lambda c: c.get(queue, count, depth)] * CONNECTIONS)
    await measure(system, f"flood, {word}", puts + gets)


async def run_memcached(system: System, each: int) -> None:
    """Run sets and gets."""
    for depth in (1, PIPELINED):
        await _sets_and_gets(system, each if depth == 1 else each * 4, depth)


async def _sets_and_gets(system: System, count: int, depth: int) -> None:
    await measure(system, f"set, {_word(depth)}", [lambda c: c.put(b"key", count, depth)] * CONNECTIONS)
    await measure(system, f"get, {_word(depth)}", [lambda c: c.get(b"key", count, depth)] * CONNECTIONS)


def _word(depth: int) -> str:
    return "one at a time" if depth == 1 else "pipelined"


@contextlib.contextmanager
def memcached(program: str) -> Iterator[System]:
    """Run a memcached on loopback."""
    port = ports.take()
    process = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"])
    try:
        wait_for(lambda: _answers(port), "memcached answers")
        yield System("memcached", PlainMemcacheClient, [("127.0.0.1", port)], [process.pid])
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--each", type=int, default=200, help="requests of each connection, four times as many pipelined"
    )
    parser.add_argument("--memcached", metavar="PROGRAM", help="compare with this memcached")
    given = parser.parse_args()
    print("| system | load | operations/s | server CPU µs/operation | client CPU µs/operation |\n|---|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(with_kestrel_ports(Cluster(3, directory=folder)))
        pids = [node.pid for node in cluster if node.pid is not None]
        memcache = [address_of(node, "memcache") for node in cluster]
        rpc = [(host, int(port)) for host, _, port in (node.rpc.rpartition(":") for node in cluster)]
        systems = [
            System("Kestrel's memcache", MemcacheClient, memcache, pids),
            System("MessagePack-RPC", RpcClient, rpc, pids),
        ]
        for system in systems:
            uvloop.run(run_queues(system, given.each))
        uvloop.run(run_leaks(systems[0], given.each))
        if given.memcached:
            uvloop.run(run_memcached(stack.enter_context(memcached(given.memcached)), given.each))


if __name__ == "__main__":
    main()
