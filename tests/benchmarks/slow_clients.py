"""What slow and idle clients cost the others: ``python -m tests.benchmarks.slow_clients``.

One client for each port pushes one message after another. Then 1,000 connections that say nothing and 200 that send a request a
byte at a time are opened on each port, and opened anew whenever the node ends one; the clients go on meanwhile. Rounds without
and with them take turns, so that a machine that is slow for a while is slow for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from tests.integration.cluster import NodeProcess
from tests.integration.raw_rpc import request

from .http_connection import HttpConnection

IDLE = 1000
SLOW = 200
BYTE_S = 1.0
"""A slow client sends a byte so often: often enough for a limit on silence alone."""
_HTTP_HEAD = b"POST /messages/slow HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
_HTTP_PUSH = b"POST /messages/q HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n" + b"x" * 100


class Flood:
    """The connections that nobody needs, held by a process of their own."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self.opened = 0

    async def run(self) -> None:
        """Keep all connections open until cancelled; says ``ready`` when all were open once."""
        async with asyncio.TaskGroup() as tasks:
            for address, (kind, count) in itertools.product(self._addresses, (("idle", IDLE), ("slow", SLOW))):
                for number in range(count):
                    tasks.create_task(self._keep(address, kind, number))
                    # A node has to take them first.
                    await asyncio.sleep(0.001)
            print("ready", flush=True)

    async def _keep(self, address: str, kind: str, number: int) -> None:
        host, port = address.rsplit(":", 1)
        is_http = address == self._addresses[0]
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port))
                self.opened += 1
                ended = asyncio.ensure_future(reader.read())
                if kind == "slow":
                    await self._trickle(writer, ended, _slow_request(is_http, number))
                await ended
                writer.close()
            await asyncio.sleep(1.0)

    @staticmethod
    async def _trickle(writer: asyncio.StreamWriter, ended: asyncio.Future[bytes], data: bytes) -> None:
        for position in range(len(data)):
            if ended.done():
                return
            writer.write(data[position : position + 1])
            await asyncio.wait((ended,), timeout=BYTE_S)


def _slow_request(is_http: bool, number: int) -> bytes:
    if not is_http:
        return request(1, "push", "slow", "x" * 1000)
    # Half of them are slow in the head, half in the body.
    return _HTTP_HEAD + b"x" * 1000 if number % 2 else _HTTP_HEAD[:-2] + b"x-more: " + b"x" * 1000


async def latencies_ms(address: str, *, is_http: bool, seconds: float) -> list[float]:
    """How long pushes take that follow one another."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    connection = await HttpConnection.open(address) if is_http else None
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    push = request(1, "push", "q", "x" * 100)
    while (began := time.perf_counter()) < end:
        if connection is not None:
            await connection.request(_HTTP_PUSH)
        else:
            writer.write(push)
            await reader.read(4096)
        found.append(1000 * (time.perf_counter() - began))
        # Not faster than the node can work: this is about waiting, not about throughput.
        await asyncio.sleep(0.002)
    if connection is not None:
        connection.close()
    writer.close()
    await writer.wait_closed()
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


async def _measure(node: NodeProcess, seconds: float) -> tuple[list[float], list[float]]:
    both = (
        latencies_ms(node.http, is_http=True, seconds=seconds),
        latencies_ms(node.rpc, is_http=False, seconds=seconds),
    )
    http, rpc = await asyncio.gather(*both)
    return http, rpc


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--flood", nargs=2, metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        uvloop.run(Flood(arguments.flood).run())
        return
    ports = ("http", "rpc")
    quiet: dict[str, list[float]] = {port: [] for port in ports}
    flooded: dict[str, list[float]] = {port: [] for port in ports}
    with tempfile.TemporaryDirectory() as folder, NodeProcess(Path(folder), arguments=["--durability=memory"]) as node:
        uvloop.run(_measure(node, 1.0))
        for _ in range(arguments.rounds):
            for port, values in zip(ports, uvloop.run(_measure(node, arguments.seconds)), strict=True):
                quiet[port] += values
            command = [sys.executable, "-m", "tests.benchmarks.slow_clients", "--flood", node.http, node.rpc]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
                assert flood.stdout is not None
                assert flood.stdout.readline() == "ready\n"
                for port, values in zip(ports, uvloop.run(_measure(node, arguments.seconds)), strict=True):
                    flooded[port] += values
                flood.terminate()
    print("port  p50 ms  p99 ms  flooded p50  flooded p99  ratio of p99")
    for port in ports:
        before, after = quiet[port], flooded[port]
        figures = (statistics.median(before), p99(before), statistics.median(after), p99(after))
        print(
            f"{port:<4}",
            *(f"{figure:>{width}.2f}" for figure, width in zip(figures, (7, 7, 12, 12), strict=True)),
            end="",
        )
        print(f"{figures[3] / figures[1]:>14.2f}")


if __name__ == "__main__":
    main()
