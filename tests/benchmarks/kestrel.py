"""The memcache port for Kestrel's clients: ``python -m tests.benchmarks.kestrel [--memcached PROGRAM]``.

The loads are those of Kestrel's own load tests: ``put_many`` (puts alone), ``many_clients`` (reliable gets of what is
there, the last item closed with each), ``leaky_reader`` (one get in ten is aborted), ``flood`` (puts and reliable gets at the
same time). Each runs over 50 connections with items of 1 KiB, one request at a time and pipelined, against three nodes with
synced logs. memcached, if it is given, stands beside them as the client's own ceiling: it sets and gets the same bytes, and
keeps them in memory alone. Counted are operations a second; the processor time is that of the servers, for each operation.
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

import uvloop

from tests.integration.cluster import Cluster, ports, wait_for
from tests.integration.kestrel_ports import address_of, with_kestrel_ports

CONNECTIONS = 50
ITEM = b"x" * 1024
PIPELINED = 32
LEAK_EVERY = 10
SET = b"set %b 0 0 %d\r\n%b\r\n"
END = b"END\r\n"


class Connection:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Connection:
        return cls(*await asyncio.open_connection(*address, limit=1 << 22))

    async def put(self, queue: bytes, count: int, depth: int) -> int:
        """Put so many items, `depth` at a time; all have to be stored."""
        request = SET % (queue, len(ITEM), ITEM)
        for start in range(0, count, depth):
            size = min(depth, count - start)
            self.writer.write(request * size)
            said = await self.reader.readexactly(8 * size)
            if said != b"STORED\r\n" * size:
                raise RuntimeError(f"not stored: {said[:80]!r}")
        return count

    async def get(self, key: bytes, count: int, depth: int) -> int:
        """Get so many items, `depth` at a time."""
        request = b"get %b\r\n" % key
        for start in range(0, count, depth):
            size = min(depth, count - start)
            self.writer.write(request * size)
            for _ in range(size):
                if await self.answer() is None:
                    raise RuntimeError(f"nothing for {key!r}")
        return count

    async def leak(self, queue: bytes, count: int) -> int:
        """Get so many items, but every tenth is aborted and got again."""
        for number in range(count):
            self.writer.write(b"get %b/open\r\n" % queue)
            if await self.answer() is None:
                raise RuntimeError("an item is missing")
            if number % LEAK_EVERY == 0:
                self.writer.write(b"get %b/abort\r\nget %b/t=60000/open\r\n" % (queue, queue))
                await self.answer()
                if await self.answer() is None:
                    raise RuntimeError("an aborted item is missing")
            self.writer.write(b"get %b/close\r\n" % queue)
            await self.answer()
        return count

    async def answer(self) -> bytes | None:
        """The item of an answer to a get."""
        head = await self.reader.readline()
        if head == END:
            return None
        if not head.startswith(b"VALUE "):
            raise RuntimeError(head.decode("latin-1"))
        data = await self.reader.readexactly(int(head.split()[3]) + 2 + len(END))
        return data[: -2 - len(END)]


@dataclass
class System:
    """What is measured."""

    name: str
    addresses: Sequence[tuple[str, int]]
    pids: Sequence[int]

    def cpu_s(self) -> float:
        """Processor time of its processes so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = (Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in self.pids)
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / ticks


Work = Callable[[Connection], Awaitable[int]]


async def measure(system: System, title: str, works: Sequence[Work]) -> None:
    """Run one piece of work on each of so many connections; prints a row."""
    clients = [await Connection.open(system.addresses[n % len(system.addresses)]) for n in range(len(works))]
    before, started = system.cpu_s(), time.perf_counter()
    done = sum(await asyncio.gather(*(work(client) for work, client in zip(works, clients, strict=True))))
    took_s = time.perf_counter() - started
    cpu_us = (system.cpu_s() - before) / done * 1e6
    for client in clients:
        client.writer.close()
    print(f"| {system.name} | {title} | {done / took_s:,.0f} | {cpu_us:.0f} |", flush=True)


async def run_kestrel(system: System, each: int) -> None:
    """All loads."""
    for depth in (1, PIPELINED):
        await _loads(system, each if depth == 1 else each * 4, depth)
    await measure(system, "put_many, before leaky_reader", [lambda c: c.put(b"leak", each, PIPELINED)] * CONNECTIONS)
    await measure(system, "leaky_reader, one at a time", [lambda c: c.leak(b"leak", each)] * CONNECTIONS)


async def _loads(system: System, count: int, depth: int) -> None:
    queue, word, half = b"load-%d" % depth, _word(depth), CONNECTIONS // 2

    def flood(client: Connection) -> Awaitable[int]:
        return client.put(b"flood", count, depth)

    def drain(client: Connection) -> Awaitable[int]:
        return client.get(b"flood/t=60000/close/open", count, depth)

    await measure(system, f"put_many, {word}", [lambda c: c.put(queue, count, depth)] * CONNECTIONS)
    await measure(
        system, f"many_clients, {word}", [lambda c: c.get(queue + b"/close/open", count, depth)] * CONNECTIONS
    )
    await measure(system, f"flood, {word}", [flood] * half + [drain] * half)


async def run_memcached(system: System, each: int) -> None:
    """Sets and gets."""
    for depth in (1, PIPELINED):
        await _sets_and_gets(system, each if depth == 1 else each * 4, depth)


async def _sets_and_gets(system: System, count: int, depth: int) -> None:
    await measure(system, f"set, {_word(depth)}", [lambda c: c.put(b"key", count, depth)] * CONNECTIONS)
    await measure(system, f"get, {_word(depth)}", [lambda c: c.get(b"key", count, depth)] * CONNECTIONS)


def _word(depth: int) -> str:
    return "one at a time" if depth == 1 else "pipelined"


@contextlib.contextmanager
def memcached(program: str) -> Iterator[System]:
    """A memcached on loopback."""
    port = ports.take()
    process = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"])
    try:
        wait_for(lambda: _answers(port), "memcached answers")
        yield System("memcached", [("127.0.0.1", port)], [process.pid])
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
    print("| system | load | operations/s | server CPU µs/operation |\n|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(with_kestrel_ports(Cluster(3, directory=folder)))
        pids = [node.pid for node in cluster if node.pid is not None]
        system = System("lmqcluster, 3 nodes", [address_of(node, "memcache") for node in cluster], pids)
        uvloop.run(run_kestrel(system, given.each))
        if given.memcached:
            uvloop.run(run_memcached(stack.enter_context(memcached(given.memcached)), given.each))


if __name__ == "__main__":
    main()
