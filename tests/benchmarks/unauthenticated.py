"""The cost of unauthenticated clients for others: ``python -m tests.benchmarks.unauthenticated``.

A cluster of three nodes requires tokens. One client per client port pushes one message after another through one node.
Then thousands of unauthenticated connections are opened on each of this node's three ports, and reopened when the node
closes them: a third sends nothing, a third sends a request byte by byte, a third the most that an unauthenticated client
may leave unfinished. Rounds without and with them alternate, so that a slow period of the machine affects both.

The program prints the latencies, and for the node: resident memory above idle, descriptors, elections.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop

from tests.integration.canary import peak_rss_bytes, reset_peak_rss
from tests.integration.cluster import Cluster, NodeProcess
from tests.integration.raw_http import call
from tests.integration.raw_rpc import request

from .http_connection import HttpConnection

PORTS = ("http", "rpc", "raft")
STRANGERS = 4000
BYTE_S = 1.0
"""Interval of a dripping client's bytes: short enough for a limit on silence alone."""
AGAIN_S = 10.0
"""Pause of a client whose connection was closed."""
TOKEN = "the token of the legitimate clients"
SECRET = "the secret of the cluster under load"
MIB = 1 << 20
SAMPLES_MIN = 200
"""Minimum number of requests of a round, on a slow machine."""
_HTTP_PUSH = (
    b"POST /messages/q HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %s\r\ncontent-length: 100\r\n\r\n"
    % TOKEN.encode()
) + b"x" * 100
_UNFINISHED = {
    # An unfinished head, a request of more values than are read, and a frame as large as a greeting may be.
    "http": b"POST /messages/q HTTP/1.1\r\nhost: localhost\r\n" + b"x-more: " + b"x" * 4000,
    "rpc": b"\x94\x00\x01\xa4push\x92\xa1q" + b"\x91" * 20 + b"\xda\x03\x00" + b"x" * 600,
    "raft": (4096).to_bytes(4, "big") + b"\x96\xaflmqcluster-raft" + b"\x90" * 4000,
}


class _Stranger(asyncio.Protocol):
    """One connection after another."""

    def __init__(self, address: str, data: bytes, *, drips: bool) -> None:
        self._address = address
        self._data = data
        self._drips = drips
        self._sent = 0
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Connect."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        host, port = self._address.rsplit(":", 1)
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        except OSError:
            self._begin_again()

    def _begin_again(self) -> None:
        asyncio.get_running_loop().call_later(AGAIN_S, self.begin)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._sent = 0
        if not self._drips:
            self._transport.write(self._data)

    def drip(self) -> None:
        """Send one more byte."""
        if self._drips and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._data[self._sent : self._sent + 1])
            self._sent += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._begin_again()


async def _run_strangers(addresses: list[str], count: int) -> None:
    """Keep all connections open until the process is killed; print ``ready`` when all were opened once."""
    strangers: list[_Stranger] = []
    for number, (port, address) in itertools.product(range(count), zip(PORTS, addresses, strict=True)):
        data = _UNFINISHED[port] if number % 3 else b""
        strangers.append(_Stranger(address, data, drips=number % 3 == 1))
        strangers[-1].begin()
        # A node has to accept them first.
        await asyncio.sleep(0.001)
    print("ready", flush=True)
    while True:
        for stranger in strangers:
            stranger.drip()
        await asyncio.sleep(BYTE_S)


async def latencies_ms(node: NodeProcess, port: str, seconds: float) -> list[float]:
    """Return the durations of consecutive pushes, on connections that are reopened from time to time."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    if port == "http":
        connection = await HttpConnection.open(node.http)
        while (began := time.perf_counter()) < end or len(found) < SAMPLES_MIN:
            await connection.request(_HTTP_PUSH)
            found.append(1000 * (time.perf_counter() - began))
            # Slower than the node can work: this measures waiting, not throughput.
            await asyncio.sleep(0.002)
        connection.close()
        return found
    host, number = node.rpc.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(number))
    writer.write(request(0, "auth", TOKEN))
    await reader.read(4096)
    push = request(1, "push", "q", "x" * 100)
    while (began := time.perf_counter()) < end or len(found) < SAMPLES_MIN:
        writer.write(push)
        await reader.read(4096)
        found.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(0.002)
    writer.close()
    await writer.wait_closed()
    return found


async def _measure(node: NodeProcess, seconds: float) -> dict[str, list[float]]:
    http, rpc = await asyncio.gather(*(latencies_ms(node, port, seconds) for port in ("http", "rpc")))
    return {"http": http, "rpc": rpc}


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def files_of(node: NodeProcess) -> int:
    """Return the number of open descriptors of the node."""
    return sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())


def _term(node: NodeProcess) -> int:
    answer = call(node.http, "GET", "/v1/cluster", headers={"Authorization": f"Bearer {TOKEN}"})
    return int(answer.json["term"])


def _flood(node: NodeProcess, count: int) -> subprocess.Popen[str]:
    addresses = [node.http, node.rpc, node.raft]
    command = [sys.executable, "-m", "tests.benchmarks.unauthenticated", "--count", str(count), "--flood", *addresses]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _print(quiet: dict[str, list[float]], loud: dict[str, list[float]]) -> None:
    print("port  p50 ms  p99 ms  p50 with strangers  p99 with strangers  ratio of p99")
    for port, before in quiet.items():
        after = loud[port]
        figures = (statistics.median(before), p99(before), statistics.median(after), p99(after))
        print(f"{port:<4}", *(f"{one:>{width}.2f}" for one, width in zip(figures, (7, 7, 19, 19), strict=True)), end="")
        print(f"{figures[3] / figures[1]:>14.2f}")


def _run(cluster: Cluster, count: int, rounds: int, seconds: float) -> None:
    node = cluster[0]
    quiet: dict[str, list[float]] = {"http": [], "rpc": []}
    loud: dict[str, list[float]] = {"http": [], "rpc": []}
    uvloop.run(_measure(node, 1.0))
    term, idle_bytes, idle_files, files = _term(node), reset_peak_rss(node), files_of(node), 0
    for _ in range(rounds):
        for port, values in uvloop.run(_measure(node, seconds)).items():
            quiet[port] += values
        with _flood(node, count) as flood:
            assert flood.stdout is not None
            assert flood.stdout.readline() == "ready\n"
            for port, values in uvloop.run(_measure(node, seconds)).items():
                loud[port] += values
            files = max(files, files_of(node))
            flood.terminate()
    _print(quiet, loud)
    grown = (peak_rss_bytes(node) - idle_bytes) / MIB
    print(
        f"resident memory above idle at most: {grown:.0f} MiB; descriptors: {idle_files} idle, {files} with strangers"
    )
    events = [json.loads(line)["event"] for line in node.log().splitlines() if line.startswith("{")]
    shortages = events.count("accepting connections failed")
    print(f"elections: {_term(node) - term}; times that no connection could be accepted: {shortages}")
    print(f"log lines about ended connections: {events.count('connections ended')}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--count", type=int, default=STRANGERS, help="strangers on each port")
    parser.add_argument("--flood", nargs=3, metavar="ADDRESS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.flood:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        uvloop.run(_run_strangers(arguments.flood, arguments.count))
        return
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        environment = {"LMQ_CLUSTER_SECRET": SECRET, "LMQ_ADMIN_TOKEN_FILE": str(token)}
        options = ["--durability=memory"]
        with Cluster(3, directory=Path(folder), arguments=options, environment=environment) as cluster:
            _run(cluster, arguments.count, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
