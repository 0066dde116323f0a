"""A fleet of reliable consumers over the memcache port while nodes are killed, cut off and paused, and a judge.

``python -m tests.integration.kestrel_fleet --seconds 300`` runs it for the given time. Every stored item must be closed
once, by one consumer; only an item that was being closed when a connection broke may be either closed or redelivered.
Aborted items are redelivered first. No item is open at two consumers: a consumer that loses an item with its node can
no longer close it, and soon gets an error. At the end the queue is empty.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from .cluster import Cluster, NodeProcess
from .cut_links import CutLinks
from .kestrel_book import Book, Hold
from .kestrel_ports import address_of, with_kestrel_ports
from .raw_http import call

__all__ = ["fleet"]

ANSWER_S = 60.0
PAUSE_S = 0.1
ABORT_EVERY = 20
PUT_S = 0.02
FAULT_S = 8.0
"""Longer than the silence after which the other nodes consider a node dead."""
DRAIN_S = 180.0
PRODUCERS = 4


class Client:
    """A connection that moves to the next node when it breaks."""

    def __init__(self, nodes: list[NodeProcess], at: int) -> None:
        self._nodes = nodes
        self._at = at
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, ending: bytes) -> bytes | None:
        """Return the answer; None if the connection broke, or the node did not answer, and the effect is unknown."""
        try:
            if self._streams is None:
                address = address_of(self._nodes[self._at % len(self._nodes)], "memcache")
                self._streams = await asyncio.wait_for(asyncio.open_connection(*address), ANSWER_S)
            reader, writer = self._streams
            writer.write(request)
            said = await asyncio.wait_for(reader.readuntil(ending), ANSWER_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            await self._move()
            return None
        return said

    async def _move(self) -> None:
        self.close()
        self._at += 1
        await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def produce(book: Book, client: Client, name: int, ends_s: float) -> None:
    """Put numbered items, each under a unique number even if the outcome is unknown."""
    number = 0
    while time.monotonic() < ends_s:
        item = b"%d-%d" % (name, number)
        number += 1
        book.put.add(item)
        if await client.ask(b"set fleet 0 0 %d\r\n%b\r\n" % (len(item), item), b"\r\n") == b"STORED\r\n":
            book.stored.add(item)
        await asyncio.sleep(PUT_S)
    client.close()


async def consume(book: Book, client: Client, rng: random.Random, drained: asyncio.Event) -> None:
    """Close the last item and open the next one, as most consumers do; sometimes abort one."""
    held: Hold | None = None
    while not drained.is_set():
        aborts = held is not None and rng.randrange(ABORT_EVERY) == 0
        asked_s = time.monotonic()
        said = await client.ask(b"get fleet/abort\r\n" if aborts else b"get fleet/t=500/close/open\r\n", b"END\r\n")
        if said is None:
            book.broke(held, closing=not aborts)
            held = None
            continue
        if held is not None:
            (book.aborted if aborts else book.ended)(held)
        held = book.opened(said.split(b"\r\n")[1], asked_s) if said.startswith(b"VALUE") else None
    client.close()


async def disturb(book: Book, cluster: Cluster, links: CutLinks, rng: random.Random, ends_s: float) -> None:
    """Kill nodes, and cut off or pause others long enough that the cluster continues without them."""
    while time.monotonic() < ends_s:
        await asyncio.sleep(rng.uniform(1, 5))
        node, how = rng.choice(list(cluster)), rng.choice(("killed", "cut off", "paused"))
        book.faults[how] += 1
        if how == "killed":
            await asyncio.to_thread(node.restart)
        elif how == "paused":
            node.pause()
            try:
                await asyncio.sleep(FAULT_S)
            finally:
                node.resume()
        else:
            links.cut_off(node)
            try:
                await asyncio.sleep(FAULT_S)
            finally:
                links.mend()


async def empty(client: Client) -> None:
    """Wait until the queue holds no item, neither waiting nor open."""
    while True:
        found = await client.ask(b"get fleet/peek\r\n", b"END\r\n")
        stats = await client.ask(b"dump_stats fleet\r\n", b"END\r\n")
        if (
            found == b"END\r\n"
            and stats is not None
            and {b"  items=0", b"  open_transactions=0"} <= {*stats.split(b"\r\n")}
        ):
            client.close()
            return
        await asyncio.sleep(PAUSE_S)


async def fleet(directory: Path, *, seconds: float, consumers: int, seed: int) -> Book:
    """Run the test on a new cluster and judge the complete book.

    Raises:
        TimeoutError: not all stored items are consumed, or the queue does not become empty.
    """
    cluster = with_kestrel_ports(Cluster(3, directory=directory))
    links = CutLinks(cluster)
    await links.start()
    try:
        await asyncio.to_thread(cluster.start)
        return await _run(cluster, links, seconds=seconds, consumers=consumers, seed=seed)
    finally:
        await asyncio.to_thread(cluster.stop)
        await links.stop()


async def _run(cluster: Cluster, links: CutLinks, *, seconds: float, consumers: int, seed: int) -> Book:
    book, rng, nodes = Book(), random.Random(seed), list(cluster)
    ends_s, drained = time.monotonic() + seconds, asyncio.Event()
    work = [consume(book, Client(nodes, number), random.Random(seed + number), drained) for number in range(consumers)]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(
            disturb(book, cluster, links, rng, ends_s),
            *(produce(book, Client(nodes, number), number, ends_s) for number in range(PRODUCERS)),
        )
        async with asyncio.timeout(DRAIN_S):
            while book.missing():
                book.changed.clear()
                await book.changed.wait()
            # Items that a connection held when it broke may still be there.
            await empty(Client(nodes, 0))
        drained.set()
        await asyncio.gather(*tasks)
        book.judge_counters((await asyncio.to_thread(call, nodes[0].http, "GET", "/v1/queues/fleet")).json)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    book.judge_aborts()
    return book


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        book = asyncio.run(fleet(Path(folder), seconds=given.seconds, consumers=given.consumers, seed=given.seed))
    print(
        f"{len(book.stored)} stored, {book.delivered} delivered, {len(book.closed)} closed, {len(book.aborts)} aborted"
    )
    print(
        f"{book.compared} aborts compared with the first deliveries; {book.overlaps} items delivered to another consumer"
    )
    print(f"{len(book.breaks)} connections ended; faults: {dict(book.faults)}")
    print(f"{len(book.unsure)} closes in flight when the connection broke; never acknowledged: {book.unknown()}")
    for violation in book.violations:
        print(violation, file=sys.stderr)
    return 1 if book.violations else 0


if __name__ == "__main__":
    sys.exit(main())
