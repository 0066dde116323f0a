"""The time for which each listing blocks a node with very many queues.

``python -m tests.integration.listing_blocks --queues 100000 --nodes 3`` creates the queues on real nodes, and calls
every listing on every port of the leader while a second connection sends pings, one after the other. The longest ping
is the delay that the listing causes for others. Other work of the machine delays pings, too; so the processor time of
the node during the ping is shown beside it, and the best of several rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from lmqcluster import AsyncClient, Client
from lmqcluster.client import BatchColumns
from lmqcluster.node.process.fair_slices import SLICE_ITEMS

from .cluster import Cluster, NodeProcess, ports
from .kestrel_ports import Lines, with_kestrel_ports
from .raw_rpc import Rpc

__all__ = ["LISTINGS", "Listing", "Measured", "fill", "measure", "with_all_ports"]

BLOCK_S_MAX = 0.020
BODY = b"x" * 100
NAMES_IN_A_LINE = 21_000
PEEKED = 10_000
_PUSHES_AT_ONCE = 500


@dataclass(frozen=True)
class Listing:
    """A request with a long answer.

    Attributes:
        call: sends it, and returns the size of the answer in bytes.
        passes: minimum number of passes over all queues.
        rows: number of further rows of the answer.
    """

    name: str
    call: Callable[[NodeProcess], int]
    passes: int = 0
    rows: int = 0

    def slices_min(self, queues: int) -> int:
        """Return the minimum number of slices, independent of the speed of the machine."""
        return (self.passes * queues + self.rows) // SLICE_ITEMS


@dataclass(frozen=True)
class Measured:
    """The cost of a listing.

    Attributes:
        longest_s: the duration of the slowest ping.
        busy_s: the most processor time that the node's main thread used during one ping.
        memory_bytes: growth of the node's resident memory.
    """

    name: str
    answer_bytes: int
    seconds: float
    longest_s: float
    busy_s: float
    memory_bytes: int

    def __str__(self) -> str:
        what = f"{self.name:<60} {self.answer_bytes / 1e6:9.3f} MB {self.seconds:7.2f} s"
        waits = f"longest ping {self.longest_s * 1e3:7.1f} ms   processor {self.busy_s * 1e3:7.1f} ms"
        return f"{what}   {waits}   memory +{self.memory_bytes / 1e6:6.1f} MB"


class Pings:
    """Sends pings to a node, one after the other, in a thread."""

    def __init__(self, node: NodeProcess) -> None:
        assert node.pid is not None
        self._process = Path(f"/proc/{node.pid}")
        self._rpc = Rpc(node.rpc)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._memory_before = self._memory()
        self.longest_s = self.busy_s = 0.0
        self.memory_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._rpc.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            since_s, before_s = time.perf_counter(), self._processor()
            self._rpc.call("ping")
            self.longest_s = max(self.longest_s, time.perf_counter() - since_s)
            self.busy_s = max(self.busy_s, self._processor() - before_s)
            self.memory_bytes = max(self.memory_bytes, self._memory() - self._memory_before)

    def _processor(self) -> float:
        return int((self._process / "schedstat").read_text().split()[0]) / 1e9

    def _memory(self) -> int:
        return int((self._process / "statm").read_text().split()[1]) * 4096


def measure(node: NodeProcess, listing: Listing, rounds: int) -> Measured:
    """Call a listing; return the figures of the round with the lowest cost."""
    best: Measured | None = None
    for _ in range(rounds):
        with Pings(node) as pings:
            since_s = time.perf_counter()
            size = listing.call(node)
            seconds = time.perf_counter() - since_s
        one = Measured(listing.name, size, seconds, pings.longest_s, pings.busy_s, pings.memory_bytes)
        best = one if best is None or one.busy_s < best.busy_s else best
    assert best is not None
    return best


# --- listings -------------------------------------------------------------------------------------------------------


def _get(path: str, node: NodeProcess, port: str = "", accept: str = "application/json") -> int:
    address = port or node.http
    host, number = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(number), timeout=600)
    try:
        connection.request("GET", path, headers={"accept": accept})
        answer = connection.getresponse()
        assert answer.status == 200, (path, answer.status)
        size = 0
        while more := answer.read(1 << 18):
            size += len(more)
        return size
    finally:
        connection.close()


def _http(path: str, passes: int = 0, accept: str = "application/json") -> Listing:
    name = f"http {path}{' (MessagePack)' if 'msgpack' in accept else ''}"
    return Listing(name, partial(_get, path, accept=accept), passes)


def _queued(path: str, passes: int = 0, accept: str = "application/json") -> Listing:
    def call(node: NodeProcess) -> int:
        return _get(path, node, node.arguments[node.arguments.index("--queued") + 1], accept)

    return Listing(f"queued {path}{' (MessagePack)' if 'msgpack' in accept else ''}", call, passes)


def _line(protocol: str, request: bytes, ending: bytes, passes: int = 0, rows: int = 0) -> Listing:
    def call(node: NodeProcess) -> int:
        with Lines(node, protocol) as lines:
            lines.sock.settimeout(600)
            lines.send(request)
            size, tail = 0, b""
            while not tail.endswith(ending):
                more = lines.sock.recv(1 << 18)
                assert more, "the node has closed the connection"
                size += len(more)
                tail = (tail + more)[-len(ending) :]
            return size

    shown = request[:40].decode().strip()
    return Listing(f"{protocol} {shown}{' ...' if len(request) > 40 else ''}", call, passes, rows)


def _rpc(method: str, *arguments: object, passes: int = 0) -> Listing:
    def call(node: NodeProcess) -> int:
        rpc = Rpc(node.rpc)
        try:
            return len(repr(rpc.call(method, *arguments)))
        finally:
            rpc.close()

    return Listing(f"rpc {method}", call, passes)


def _peek(node: NodeProcess) -> int:
    size, start = 0, 0
    with Client(node.rpc) as client:
        while start is not None:
            page: BatchColumns = client.peek("peeked", PEEKED, start)
            size += sum(len(body) for body in page.bodies)
            start = page.next  # type: ignore[assignment]
    return size


MSGPACK = "application/x-msgpack"
LISTINGS = [
    _http("/stats", 1),
    *(_http(path, 3) for path in ("/stats.json", "/stats.json?namespace=a", "/stats.txt")),
    *(_http(path, 1) for path in ("/v1/queues", "/v1/queues?offset=90000", "/v1/queues?offset=90000&sort=size")),
    _http("/v1/queues", 1, MSGPACK),
    *(_http(f"/v1/queues?{query}", 1) for query in ("sort=bytes&limit=100", "order=desc&limit=100")),
    *(_http(f"/v1/queues?{query}", 1) for query in ("name=7&fields=ready", "pattern=7%24")),
    *(_http(path, 1) for path in ("/metrics", "/metrics/queues", "/metrics/queues?name=9%24&limit=100000")),
    _http("/metrics/queues?limit=100000", 20),
    *map(_http, ("/v1/overview", "/v1/cluster/check", "/v1/subscriptions", "/v1/sessions", "/v1/locks", "/v1/leases")),
    *map(_http, ("/v1/connections", "/v1/consumers", "/v1/queues/peeked/messages?limit=1000")),
    _queued("/queues", 2),
    _queued("/queues", 2, "application/msgpack"),
    _queued("/metrics", 1, "text/plain"),
    _line("memcache", b"stats\r\n", b"\r\nEND\r\n", 2),
    _line("memcache", b"dump_stats\r\n", b"\r\nEND\r\n", 1),
    _line("memcache", b"dump_stats" + b" a0" * NAMES_IN_A_LINE + b"\r\n", b"\r\nEND\r\n", rows=NAMES_IN_A_LINE),
    _line("text", b"status\n", b"\n"),
    _rpc("subscriptions"),
    _rpc("jobs"),
    _rpc("bindings", "a0"),
    _rpc("backlog", ".", True, passes=1),
    _rpc("backlog", ".", True, None, 100, passes=1),
    _rpc("peek_ranges", "peeked", 1, 1_000),
    _rpc("peek", "peeked", 10_000, 0, {"due_from": 1 << 60}),
    _rpc("get_default_props"),
    Listing("rpc peek", _peek),
    _line("memcache", b"flush_all\r\n", b"Flushed all queues.\r\n", 1),
]
"""All requests that answer with more than a few rows; those that empty the queues are last."""


# --- nodes ----------------------------------------------------------------------------------------------------------


def with_all_ports(count: int, directory: Path) -> Cluster:
    """Return a cluster that has not been started yet."""
    cluster = with_kestrel_ports(Cluster(count, directory=directory))
    for node in cluster.nodes:
        node.arguments += ("--queued", f"127.0.0.1:{ports.take()}")
    return cluster


def fill(node: NodeProcess, queues: int, peeked: int = PEEKED) -> None:
    """Create `queues` queues with one message each, and one with many."""

    async def pushed() -> None:
        async with AsyncClient(node.rpc) as client:
            for start in range(0, queues, _PUSHES_AT_ONCE):
                numbers = range(start, min(start + _PUSHES_AT_ONCE, queues))
                await asyncio.gather(*(client.push(f"a{number}", BODY) for number in numbers))
            await client.push_many("peeked", [BODY] * peeked)

    asyncio.run(pushed())


def main() -> int:
    """Print a line for each listing; return 1 if one of them blocks a node for too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only listings whose names begin so")
    given = parser.parse_args()
    too_long: list[Measured] = []
    with tempfile.TemporaryDirectory() as directory, with_all_ports(given.nodes, Path(directory)) as cluster:
        node = cluster.leader()
        fill(node, given.queues)
        print(measure(node, Listing("nothing, for five seconds", _wait), 1), flush=True)
        for listing in LISTINGS:
            if listing.name.startswith(given.only):
                found = measure(node, listing, given.rounds)
                print(found, flush=True)
                too_long += [found] if found.busy_s > BLOCK_S_MAX else []
    print(f"{len(too_long)} of {len(LISTINGS)} listings block for more than {BLOCK_S_MAX * 1e3:.0f} ms")
    return 1 if too_long else 0


def _wait(_node: NodeProcess) -> int:
    time.sleep(5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
