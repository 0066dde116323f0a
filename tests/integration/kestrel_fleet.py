"""A fleet of reliable consumers over the memcache port while nodes are killed and paused, and a book of what they were told.

``python -m tests.integration.kestrel_fleet --seconds 300`` runs it for as long as one likes. Every item that was stored has to be
closed once, by one consumer; only what was being closed when a connection ended may be either closed or delivered again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .cluster import Cluster, NodeProcess
from .kestrel_ports import address_of, with_kestrel_ports

__all__ = ["Book", "fleet"]

ANSWER_S = 60.0
PAUSE_S = 0.1
ABORT_EVERY = 20
PUT_S = 0.02
PAUSED_S = 8.0
"""Longer than a node may be silent before the others take it for dead."""
DRAIN_S = 180.0


@dataclass
class Book:
    """What clients were told, by the item's number.

    Attributes:
        stored: items whose put was acknowledged.
        closed: how often an item's end was acknowledged.
        unsure: items whose end was asked for when the connection ended.
        aborted: how many were given back.
        changed: an item has ended, or may have.
    """

    stored: set[bytes] = field(default_factory=set)
    closed: Counter[bytes] = field(default_factory=Counter)
    unsure: set[bytes] = field(default_factory=set)
    aborted: int = 0
    delivered: int = 0
    broken: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def opened(self, item: bytes) -> None:
        """An item came to a consumer."""
        self.delivered += 1
        if self.closed[item]:
            self.violations.append(f"{item!r} was delivered after its end was acknowledged")

    def ended(self, item: bytes) -> None:
        """The end of an item was acknowledged."""
        self.closed[item] += 1
        self.changed.set()
        if self.closed[item] > 1:
            self.violations.append(f"{item!r} was closed {self.closed[item]} times")

    def missing(self) -> set[bytes]:
        """Stored items of whose end nobody was told."""
        return self.stored - self.closed.keys() - self.unsure


class Client:
    """A connection that moves to the next node when it ends."""

    def __init__(self, nodes: list[NodeProcess], at: int) -> None:
        self._nodes = nodes
        self._at = at
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, ending: bytes) -> bytes | None:
        """The answer; None if the connection ended, or the node did not answer, and its effect is not known."""
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
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def produce(book: Book, client: Client, name: int, ends_s: float) -> None:
    """Put numbered items, each under a number of its own also if the outcome is not known."""
    number = 0
    while time.monotonic() < ends_s:
        item = b"%d-%d" % (name, number)
        number += 1
        if await client.ask(b"set fleet 0 0 %d\r\n%b\r\n" % (len(item), item), b"\r\n") == b"STORED\r\n":
            book.stored.add(item)
        await asyncio.sleep(PUT_S)
    client.close()


async def consume(book: Book, client: Client, rng: random.Random, drained: asyncio.Event) -> None:
    """Close the last item and open the next one, as most consumers do; sometimes give one back."""
    held = b""
    while not drained.is_set():
        aborts = bool(held) and rng.randrange(ABORT_EVERY) == 0
        said = await client.ask(b"get fleet/abort\r\n" if aborts else b"get fleet/t=500/close/open\r\n", b"END\r\n")
        if said is None:
            book.broken += 1
            if held and not aborts:
                book.unsure.add(held)
                book.changed.set()
            held = b""
            continue
        if aborts:
            book.aborted += 1
        elif held:
            book.ended(held)
        held = said.split(b"\r\n")[1] if said.startswith(b"VALUE") else b""
        if held:
            book.opened(held)
    client.close()


async def disturb(book: Book, cluster: Cluster, rng: random.Random, ends_s: float) -> None:
    """Kill nodes, and pause others for so long that the cluster goes on without them."""
    while time.monotonic() < ends_s:
        await asyncio.sleep(rng.uniform(1, 5))
        node = rng.choice(list(cluster))
        if rng.randrange(2):
            book.faults["killed"] += 1
            await asyncio.to_thread(node.restart)
        else:
            book.faults["paused"] += 1
            node.pause()
            try:
                await asyncio.sleep(PAUSED_S)
            finally:
                node.resume()


async def fleet(cluster: Cluster, *, seconds: float, consumers: int, seed: int) -> Book:
    """Run it; afterwards the book is complete.

    Raises:
        TimeoutError: what is stored does not come to an end.
    """
    book, rng, nodes = Book(), random.Random(seed), list(cluster)
    ends_s, drained = time.monotonic() + seconds, asyncio.Event()
    work = [consume(book, Client(nodes, number), random.Random(seed + number), drained) for number in range(consumers)]
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(
            disturb(book, cluster, rng, ends_s),
            *(produce(book, Client(nodes, number), number, ends_s) for number in range(4)),
        )
        async with asyncio.timeout(DRAIN_S):
            while book.missing():
                book.changed.clear()
                await book.changed.wait()
        drained.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return book


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(with_kestrel_ports(Cluster(3, directory=folder)))
        book = asyncio.run(fleet(cluster, seconds=given.seconds, consumers=given.consumers, seed=given.seed))
    print(f"{len(book.stored)} stored, {book.delivered} delivered, {len(book.closed)} closed, {book.aborted} aborted")
    print(f"{book.broken} connections ended, {len(book.unsure)} items unsure; faults: {dict(book.faults)}")
    for violation in book.violations:
        print(violation, file=sys.stderr)
    return 1 if book.violations else 0


if __name__ == "__main__":
    sys.exit(main())
