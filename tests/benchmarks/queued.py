"""The port for queued's clients beside the real queued: ``python -m tests.benchmarks.queued [--queued PROGRAM]``.

The same client drives both, in turns on the same machine: several connections push, poll and delete messages of 100
bytes, in batches and one at a time. Ours are three nodes, whose every answer waits for two synced logs; queued is one
process, whose answers wait for its own log. The program prints messages per second, and the processor time per message
of the servers and of the client. The client is one process, which limits the result if its time nears 1,000,000 divided
by the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import uvloop

from tests.integration.cluster import Cluster, wait_for
from tests.integration.queued_http import QueuedHttp

BODY = b"x" * 100
HIDDEN_S = 3600
CASES = ((64, 64, 60), (64, 1, 100), (1, 1, 150))
"""Connections, messages in a batch, and requests of each connection."""


class Connection:
    """One keep-alive connection that sends MessagePack."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> Connection:
        host, _, port = address.partition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 22))

    async def post(self, path: str, value: Any) -> Any:
        body = msgpack.packb(value)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/msgpack\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        data = await self._reader.readexactly(size)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path}: {answer[:40]!r} {data[:200]!r}")
        return msgpack.unpackb(data)

    def close(self) -> None:
        self._writer.close()


@dataclass
class System:
    """A measured system."""

    name: str
    addresses: list[str]
    pids: list[int]
    rates: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)
    processor_us: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)
    client_us: dict[tuple[int, int, str], list[float]] = field(default_factory=dict)

    def processor_s(self) -> float:
        return sum(_processor_s(pid) for pid in self.pids)


def _processor_s(pid: int) -> float:
    """Return the processor time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(system: System, case: tuple[int, int, int], queue: str) -> None:
    """Push, poll and delete in one queue."""
    clients, batch, rounds = case
    connections = [await Connection.open(system.addresses[n % len(system.addresses)]) for n in range(clients)]
    polled: list[list[dict[str, int]]] = [[] for _ in connections]
    total = clients * batch * rounds

    async def push(_: int, connection: Connection) -> None:
        messages = [{"contents": BODY, "visibility_timeout_secs": 0}] * batch
        for _round in range(rounds):
            await connection.post(f"/queue/{queue}/messages/push", {"messages": messages})

    async def poll(number: int, connection: Connection) -> None:
        wanted = {"count": batch, "visibility_timeout_secs": HIDDEN_S}
        for _round in range(rounds):
            found = await connection.post(f"/queue/{queue}/messages/poll", wanted)
            polled[number] += [{"id": one["id"], "poll_tag": one["poll_tag"]} for one in found["messages"]]

    async def delete(number: int, connection: Connection) -> None:
        mine = polled[number]
        for start in range(0, len(mine), batch):
            await connection.post(f"/queue/{queue}/messages/delete", {"messages": mine[start : start + batch]})

    phases: list[tuple[str, Callable[[int, Connection], Awaitable[None]]]] = [
        ("push", push),
        ("poll", poll),
        ("delete", delete),
    ]
    try:
        for name, phase in phases:
            used_s, own_s, began_s = system.processor_s(), time.process_time(), time.perf_counter()
            await asyncio.gather(*(phase(number, one) for number, one in enumerate(connections)))
            took_s, used_s = time.perf_counter() - began_s, system.processor_s() - used_s
            own_s = time.process_time() - own_s
            if name == "poll":
                got = sum(map(len, polled))
                if got != total:
                    raise RuntimeError(f"{system.name}: {got} of {total} messages were polled")
            key = (clients, batch, name)
            system.rates.setdefault(key, []).append(total / took_s)
            system.processor_us.setdefault(key, []).append(used_s / total * 1e6)
            system.client_us.setdefault(key, []).append(own_s / total * 1e6)
    finally:
        for connection in connections:
            connection.close()


@contextlib.contextmanager
def real_queued(program: Path, folder: Path, address: str = "") -> Iterator[System]:
    """Run the real queued with its defaults; at a free address unless one is given."""
    if not address:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
    folder.mkdir(exist_ok=True)
    command = [str(program), "--data-dir", str(folder), "--port", address.rpartition(":")[2]]
    with (folder.parent / "queued.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(address), "queued answers")
        yield System("queued", [address], [process.pid])
    finally:
        process.kill()
        process.wait()


def _answers(address: str) -> bool:
    try:
        return QueuedHttp(address, "msgpack")("GET", "/healthz").status == 200
    except OSError:
        return False


def report(systems: list[System]) -> Iterator[str]:
    """Print a table of medians."""
    yield (
        "| Clients | Batch | Operation | "
        + " | ".join(f"{one.name}, messages/s | servers µs | client µs" for one in systems)
        + " |"
    )
    yield "|" + "---|" * (3 + 3 * len(systems))
    for key in systems[0].rates:
        cells = [
            f"{statistics.median(one.rates[key]):,.0f} | {statistics.median(one.processor_us[key]):,.1f}"
            f" | {statistics.median(one.client_us[key]):,.1f}"
            for one in systems
        ]
        yield f"| {key[0]} | {key[1]} | {key[2]} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--queued", type=Path, metavar="PROGRAM", help="the real queued, as built by cargo install queued"
    )
    options.add_argument("--repeats", type=int, default=3, metavar="N", help="turns of each (%(default)s)")
    options.add_argument(
        "--scale", type=float, default=1.0, metavar="F", help="factor for the number of requests (%(default)s)"
    )
    given = options.parse_args()
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        cluster = stack.enter_context(Cluster(3, directory=folder))
        pids = [node.pid for node in cluster if node.pid is not None]
        systems = [System("lmqcluster, 3 nodes", [node.queued for node in cluster], pids)]
        if given.queued is not None:
            systems.append(stack.enter_context(real_queued(given.queued, folder / "queued")))
        for _ in range(given.repeats):
            for clients, batch, rounds in CASES:
                for system in systems:
                    queue = f"bench-{next(numbers)}"
                    api = QueuedHttp(system.addresses[0], "msgpack")
                    assert api("PUT", f"/queue/{queue}").status == 200
                    uvloop.run(measure(system, (clients, batch, max(1, round(rounds * given.scale))), queue))
                    assert api("DELETE", f"/queue/{queue}").status == 200
        print("\n".join(report(systems)))


if __name__ == "__main__":
    main()
