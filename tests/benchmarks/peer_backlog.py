"""``python -m tests.benchmarks.peer_backlog``: the cost of a long queue in lmqcluster, NATS JetStream and RabbitMQ, on
one machine.

Each system has three servers and one queue of three replicas. The program measures the rate of pushes, 256 in flight
over one connection, with 1,000 messages in the queue and with all of them; the memory of the largest server; the time
from the start of one server that was killed with SIGKILL, and of all, until each serves a push to the queue. Messages
are stored over a connection to each server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

import uvloop
from rich.console import Console
from rich.table import Table

from lmqcluster import AsyncClient
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster

from .backlog import BATCH, _bodies
from .jetstream import STREAM, JetStream
from .processes import ServerProcess
from .rabbitmq import QUEUE, RabbitMQ

IN_FLIGHT: Final = 256
SHALLOW: Final = 1_000
TURN: Final = 20_000
POLL_S: Final = 0.05
READY_S: Final = 600.0

Push = Callable[[bytes], Awaitable[object]]


class Peer(ABC):
    """One system with a queue."""

    name: str

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    @abstractmethod
    async def start(self) -> None:
        """Start the servers and create the queue."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop them, and remove their files."""

    @abstractmethod
    async def pushes(self) -> list[Push]:
        """Return the functions that store a message, over a connection to each server; the first is the
        measured one.
        """

    @abstractmethod
    async def held(self) -> int:
        """Return the number of messages."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return the memory of the largest server."""

    @abstractmethod
    async def restart(self, count: int) -> float:
        """Kill `count` servers with SIGKILL and restart them; return seconds from their start until each has
        stored a message.
        """

    async def fill(self, messages: int, size: int) -> None:
        """Store `messages` messages."""
        pushes = await self.pushes()
        each = -(-messages // len(pushes))
        await asyncio.gather(*(rate(push, min(each, messages - n * each), size) for n, push in enumerate(pushes)))


async def rate(push: Push, count: int, size: int) -> float:
    """Push `count` messages with a fixed number in flight; return pushes per second."""
    numbers = iter(range(count))

    async def work() -> None:
        for _ in numbers:
            await push(_bodies(1, size)[0])

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - began_s)


async def until_stored(push: Callable[[], Awaitable[object]]) -> None:
    """Retry a message until it is acknowledged."""
    async with asyncio.timeout(READY_S):
        while True:
            try:
                async with asyncio.timeout(1.0):
                    await push()
            except Exception:  # noqa: BLE001 - whatever a client library raises as long as a server is not there
                await asyncio.sleep(POLL_S)
            else:
                return


class Ours(Peer):
    """lmqcluster."""

    name = "lmqcluster"

    def __init__(self) -> None:
        self._cluster = Cluster(3)
        self._clients: list[AsyncClient] = []

    async def start(self) -> None:
        await asyncio.to_thread(self._cluster.__enter__)
        leader = self._cluster.leader()
        self._clients = [AsyncClient(node.rpc) for node in (leader, *self._cluster.followers())]

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        self._cluster.__exit__(None, None, None)

    async def pushes(self) -> list[Push]:
        return [functools.partial(client.push, QUEUE) for client in self._clients]

    async def fill(self, messages: int, size: int) -> None:
        # In batches, which the others lack, so that filling does not take hours; it is not measured.
        async def store(client: AsyncClient, count: int) -> None:
            for start in range(0, count, 8 * BATCH):
                counts = [min(BATCH, count - at) for at in range(start, min(start + 8 * BATCH, count), BATCH)]
                await asyncio.gather(*(client.push_many(QUEUE, _bodies(one, size)) for one in counts))

        await store(self._clients[0], messages)

    async def held(self) -> int:
        return (await self._clients[0].backlog(queue=QUEUE)).messages

    def memory_bytes(self) -> int:
        return max(rss_bytes(node) for node in self._cluster)

    async def restart(self, count: int) -> float:
        for client in self._clients:
            await client.close()
        nodes = [*self._cluster.followers(), self._cluster.leader()][:count]
        for node in nodes:
            node.kill()
        began_s = time.perf_counter()
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            async with AsyncClient(node.rpc) as client:
                await until_stored(functools.partial(client.push, QUEUE, b"after"))
        took_s = time.perf_counter() - began_s
        self._clients = [AsyncClient(node.rpc) for node in (self._cluster.leader(), *self._cluster.followers())]
        return took_s


class Nats(Peer):
    """JetStream: a stream of three replicas in files, as a work queue."""

    name = "JetStream"

    def __init__(self) -> None:
        self._system = JetStream()

    async def start(self) -> None:
        await self._system.start()

    async def stop(self) -> None:
        await self._system.stop()

    async def pushes(self) -> list[Push]:
        leader = await self._system._stream_leader()
        contexts = [self._system._clients[(leader + n) % 3].jetstream(timeout=60) for n in range(3)]
        return [functools.partial(context.publish, STREAM) for context in contexts]

    async def held(self) -> int:
        return (await self._system._admin.stream_info(STREAM)).state.messages

    def _processes(self) -> list[ServerProcess]:
        assert self._system.servers is not None
        return list(self._system.servers.servers.values())

    def memory_bytes(self) -> int:
        return max(map(session_bytes, self._processes()))

    async def restart(self, count: int) -> float:
        import nats

        # The last is the stream's leader, so that a single one is a follower.
        leader = await self._system._stream_leader()
        order = [(leader + n + 1) % 3 for n in range(3)][:count]
        urls, processes = [client.connected_url.netloc for client in self._system._clients], self._processes()
        for number in order:
            processes[number].stop()
        began_s = time.perf_counter()
        for number in order:
            processes[number].start()
        for number in order:

            async def push(url: str = urls[number]) -> None:
                client = await nats.connect(f"nats://{url}", allow_reconnect=False, connect_timeout=1, error_cb=_ignore)
                try:
                    await client.jetstream(timeout=0.8).publish(STREAM, b"after")
                finally:
                    await client.close()

            await until_stored(push)
        took_s = time.perf_counter() - began_s
        for number in order:
            self._system._clients[number] = await nats.connect(f"nats://{urls[number]}", pending_size=1 << 28)
        return took_s


class Rabbit(Peer):
    """RabbitMQ: a quorum queue of three members."""

    name = "RabbitMQ"

    def __init__(self) -> None:
        self._system = RabbitMQ()
        self._urls: list[str] = []

    async def start(self) -> None:
        import aio_pika

        self._urls = [f"amqp://guest:guest@127.0.0.1:{port}/" for port in await self._system.start_servers()]
        self._system._connections = [await aio_pika.connect(url) for url in self._urls]
        await self._system._open()

    async def stop(self) -> None:
        await self._system.stop()

    async def pushes(self) -> list[Push]:
        return [link.push for link in self._system._links]

    async def held(self) -> int:
        assert self._system._admin is not None
        declared = await self._system._admin.declare_queue(QUEUE, passive=True)
        return declared.declaration_result.message_count or 0

    def memory_bytes(self) -> int:
        return max(map(session_bytes, self._system._servers))

    async def restart(self, count: int) -> float:
        import aio_pika

        for connection in self._system._connections:
            await connection.close()
        # The queue's leader is at the first.
        servers, urls = list(reversed(self._system._servers[1:]))[:count], list(reversed(self._urls))[:count]
        for server in servers:
            server.stop()
        began_s = time.perf_counter()
        for server in servers:
            server.start()
        for url in urls:

            async def push(url: str = url) -> None:
                async with await aio_pika.connect(url) as connection:
                    channel = await connection.channel(publisher_confirms=True)
                    message = aio_pika.Message(b"after", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                    await channel.default_exchange.publish(message, QUEUE)

            await until_stored(push)
        took_s = time.perf_counter() - began_s
        self._system._connections = [await aio_pika.connect(url) for url in self._urls]
        await self._system._open()
        return took_s


async def _ignore(_error: Exception) -> None:
    """Ignore the error: a server that is not up yet is tried again."""


def session_bytes(server: ServerProcess) -> int:
    """Return the resident memory of a server and its children."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == server.pid:
                total += int(fields[21]) * 4096
    return total


PEERS: Final[dict[str, type[Peer]]] = {one.name.lower(): one for one in (Ours, Nats, Rabbit)}


async def measure(peer: Peer, messages: int, size: int) -> list[str]:
    """Return one column of the table."""
    async with peer:
        await peer.fill(SHALLOW, size)
        first = (await peer.pushes())[0]
        shallow = await rate(first, TURN, size)
        began_s = time.perf_counter()
        more = messages - SHALLOW - TURN
        await peer.fill(more, size)
        filled = more / (time.perf_counter() - began_s)
        memory = peer.memory_bytes()
        deep = await rate(first, TURN, size)
        held = await peer.held()
        if held != messages + TURN:
            raise RuntimeError(f"{peer.name} holds {held:,} messages, not {messages + TURN:,}")
        one_s, all_s = await peer.restart(1), await peer.restart(3)
        after = await peer.held()
        if after < held:
            raise RuntimeError(f"{peer.name} holds {after:,} messages after restarts, not {held:,}")
    return [
        f"{shallow:,.0f}", f"{deep:,.0f}", f"{deep / shallow:.2f}", f"{memory / 1e6:,.0f} MB",
        f"{one_s:.1f} s", f"{all_s:.1f} s", f"{filled:,.0f}",
    ]  # fmt: skip


ROWS: Final = (
    f"pushes/s with {SHALLOW:,} messages",
    "pushes/s with all of them",
    "the latter by the former",
    "memory of the largest server",
    "one server, SIGKILL, start to a push",
    "all servers",
    "stored, messages/s (lmqcluster in batches)",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    options = argparse.ArgumentParser(prog="python -m tests.benchmarks.peer_backlog", description=__doc__)
    options.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="in the queue (%(default)s)")
    options.add_argument("--size", type=int, default=100, metavar="BYTES", help="of a message (%(default)s)")
    options.add_argument("--systems", default=",".join(PEERS), metavar="NAME,...", help="only these (%(default)s)")
    given: Any = options.parse_args(arguments)
    columns: dict[str, list[str]] = {}
    for name in given.systems.lower().split(","):
        columns[PEERS[name].name] = uvloop.run(measure(PEERS[name](), given.messages, given.size))
    table = Table(title=f"{given.messages:,} messages of {given.size} bytes in one queue of three replicas")
    table.add_column("What")
    for name in columns:
        table.add_column(name, justify="right")
    for number, row in enumerate(ROWS):
        table.add_row(row, *(column[number] for column in columns.values()))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
