"""The overhead of a client for one operation at a time: ``python -m tests.benchmarks.single``.

Three nodes with synced logs get pushes one after the other at the leader, in alternating turns of each way to send
them: a socket and prepared bytes, which is the minimum in Python; `AsyncClient`; `Client`; and the brokers for Celery
and dramatiq with the same body. The program prints the median time of a push, and the processor time of this process
for it.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from lmqcluster import AsyncClient, Client
from lmqcluster.wire.legacy_msgpack import make_unpacker, pack
from tests.integration.cluster import Cluster

__all__: list[str] = []

_BODY = b"x" * 100
Way = Callable[[int], list[float]]
"""Pushes `count` times; returns the seconds of each push."""


@dataclass
class Found:
    """The cost of one way to push."""

    times_s: list[float] = field(default_factory=list)
    processor_s: float = 0.0


def _timed(call: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


@contextmanager
def by_socket(address: str) -> Iterator[Way]:
    """Push with a prepared request and a blocking socket."""
    host, _, port = address.rpartition(":")
    request = pack([0, 1, b"push", [b"single", _BODY]])
    unpacker = make_unpacker(1 << 20)
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def push() -> None:
            connection.sendall(request)
            unpacker.feed(connection.recv(65_536))
            if (answer := unpacker.unpack())[2:] != [None, b"ok"]:
                raise RuntimeError(f"unexpected answer to a push: {answer!r}")

        yield lambda count: _timed(push, count)


@contextmanager
def by_async_client(address: str) -> Iterator[Way]:
    """Push with `AsyncClient`, on an otherwise idle event loop."""

    async def push(count: int) -> list[float]:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await client.push("single", _BODY)
            times.append(time.perf_counter() - began)
        return times

    with asyncio.Runner() as runner:
        client = runner.run(AsyncClient(address).__aenter__())
        yield lambda count: runner.run(push(count))
        runner.run(client.close())


@contextmanager
def by_client(address: str) -> Iterator[Way]:
    """Push with `Client`."""
    with Client(address) as client:
        yield lambda count: _timed(lambda: client.push("single", _BODY), count)


@contextmanager
def by_kombu(address: str) -> Iterator[Way]:
    """Push with a producer of kombu, as Celery uses it."""
    from kombu import Connection, Queue

    import lmqcluster.integrations.kombu  # noqa: F401 - registers lmq://

    with Connection(f"lmq://{address}/single") as connection:
        producer = connection.Producer()
        queue = Queue("tasks", routing_key="tasks")
        queue(connection.default_channel).declare()
        body = _BODY.decode()
        yield lambda count: _timed(lambda: producer.publish(body, routing_key="tasks"), count)


@contextmanager
def by_celery(address: str) -> Iterator[Way]:
    """Push a task of Celery, as its users send it."""
    from celery import Celery

    import lmqcluster.integrations.kombu  # noqa: F401 - registers lmq://

    app = Celery(broker=f"lmq://{address}/celery")

    @app.task(name="work", ignore_result=True)
    def work(text: str) -> None:
        """Do nothing: the task is never run."""

    body = _BODY.decode()
    work.delay(body)
    yield lambda count: _timed(lambda: work.delay(body), count)
    app.close()


@contextmanager
def by_dramatiq(address: str) -> Iterator[Way]:
    """Push a message of dramatiq, as its users send it."""
    import dramatiq

    from lmqcluster.integrations.dramatiq import LmqBroker

    broker = LmqBroker(address)

    @dramatiq.actor(broker=broker)
    def work(text: str) -> None:
        """Do nothing: the task is never run."""

    body = _BODY.decode()
    work.send(body)
    yield lambda count: _timed(lambda: work.send(body), count)
    broker.close()


WAYS = {
    "socket": by_socket,
    "AsyncClient": by_async_client,
    "Client": by_client,
    "kombu": by_kombu,
    "Celery": by_celery,
    "dramatiq": by_dramatiq,
}


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.single", description=__doc__)
    parser.add_argument("--ways", default=",".join(WAYS), help="which, separated by commas (default: all)")
    parser.add_argument("--turns", type=int, default=10, help="turns of each (default 10)")
    parser.add_argument("--count", type=int, default=300, help="pushes in a turn (default 300)")
    given = parser.parse_args()
    found: dict[str, Found] = defaultdict(Found)
    with Cluster(3) as cluster, ExitStack() as stack:
        address = cluster.leader().rpc
        ways = {name: stack.enter_context(WAYS[name](address)) for name in given.ways.split(",")}
        for way in ways.values():
            way(50)  # connects, and fills caches
        for _ in range(given.turns):
            for name, way in ways.items():
                began_s = time.process_time()
                found[name].times_s += way(given.count)
                found[name].processor_s += time.process_time() - began_s
    print("| | median, us | p99, us | a second | processor time, us |\n|---|---|---|---|---|")
    for name, one in found.items():
        times_us = sorted(time_s * 1e6 for time_s in one.times_s)
        cells = (
            statistics.median(times_us),
            times_us[len(times_us) * 99 // 100],
            1e6 / statistics.mean(times_us),
            one.processor_s * 1e6 / len(times_us),
        )
        print(f"| {name} | {' | '.join(f'{cell:,.0f}' for cell in cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
