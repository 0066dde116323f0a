"""One parent with children over the memcache port while nodes are killed, and a judge of the children's items.

``python -m tests.integration.kestrel_fanout`` puts 100,000 items into a parent with 10 children. Every child must have
every item of the parent once, in the parent's order, and nothing else; and the parent every item that was acknowledged.
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

__all__ = ["Fanout", "fanout"]

ANSWER_S = 60.0
PAUSE_S = 0.1
PRODUCERS = 8
TOGETHER = 32
READ_TOGETHER = 200
PARENT = b"parent"
STORED = b"STORED\r\n"


@dataclass
class Fanout:
    """The items that were put, and the final contents of each queue, in order.

    Attributes:
        sent: number of puts; the outcome of some is unknown.
        stored: items whose put was acknowledged.
        queues: contents by queue.
    """

    sent: int = 0
    stored: set[bytes] = field(default_factory=set)
    kills: int = 0
    broken: int = 0
    put_s: float = 0.0
    queues: dict[bytes, list[bytes]] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """Return the violations."""
        parent = self.queues[PARENT]
        found = [f"{item!r} is {count} times in the parent" for item, count in Counter(parent).items() if count > 1]
        found += [f"{item!r} is stored and not in the parent" for item in sorted(self.stored - set(parent))]
        for name, items in self.queues.items():
            if items != parent:
                at = next((n for n, (a, b) in enumerate(zip(items, parent, strict=False)) if a != b), len(items))
                found.append(
                    f"{name!r} has {len(items)} items, the parent {len(parent)}; they differ from item {at} on"
                )
        return found


@contextlib.asynccontextmanager
async def _connected(node: NodeProcess):
    reader, writer = await asyncio.open_connection(*address_of(node, "memcache"), limit=1 << 22)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _put(record: Fanout, nodes: list[NodeProcess], name: int, count: int) -> None:
    """Put numbered items, several in flight at once; continue with the next node after a broken connection."""
    number, at = 0, name
    while number < count:
        at += 1
        try:
            async with _connected(nodes[at % len(nodes)]) as (reader, writer):
                while number < count:
                    items = [b"%d-%d" % (name, n) for n in range(number, min(count, number + TOGETHER))]
                    number += len(items)
                    record.sent += len(items)
                    writer.write(b"".join(b"set %b 0 0 %d\r\n%b\r\n" % (PARENT, len(one), one) for one in items))
                    for item in items:
                        said = await asyncio.wait_for(reader.readline(), ANSWER_S)
                        if said != STORED:
                            raise ConnectionError(said)
                        record.stored.add(item)
        except (OSError, TimeoutError):
            record.broken += 1
            await asyncio.sleep(PAUSE_S)


async def _kill(record: Fanout, cluster: Cluster, rng: random.Random, over: asyncio.Event) -> None:
    """Kill and start nodes until `over`; all run at the end."""
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), rng.uniform(1, 4))
            return
        record.kills += 1
        await asyncio.to_thread(rng.choice(list(cluster)).restart)


async def _read(node: NodeProcess, queue: bytes) -> list[bytes]:
    """Remove and return all items of a queue."""
    found: list[bytes] = []
    async with _connected(node) as (reader, writer), asyncio.timeout(10 * ANSWER_S):
        while True:
            writer.write(b"get %b\r\n" % queue * READ_TOGETHER)
            empty = 0
            for _ in range(READ_TOGETHER):
                head = await reader.readline()
                if head == b"END\r\n":
                    empty += 1
                    continue
                size = int(head.split()[3])
                found.append((await reader.readexactly(size + len(b"\r\nEND\r\n")))[:size])
            if empty:
                return found


async def fanout(directory: Path, *, puts: int, children: int, seed: int) -> Fanout:
    """Run the test on a new cluster."""
    cluster = with_kestrel_ports(Cluster(3, directory=directory))
    names = [b"%b+child%d" % (PARENT, number) for number in range(children)]
    try:
        await asyncio.to_thread(cluster.start)
        nodes, record = list(cluster), Fanout()
        for number, name in enumerate(names):
            # Naming a child creates it.
            assert await _read(nodes[number % 3], name) == []
        started_s = time.monotonic()
        over = asyncio.Event()
        killing = asyncio.create_task(_kill(record, cluster, random.Random(seed), over))
        shares = [puts // PRODUCERS + (number < puts % PRODUCERS) for number in range(PRODUCERS)]
        try:
            await asyncio.gather(*(_put(record, nodes, number, share) for number, share in enumerate(shares)))
        finally:
            over.set()
            await killing
        record.put_s = time.monotonic() - started_s
        for number, name in enumerate((PARENT, *names)):
            record.queues[name] = await _read(nodes[number % 3], name)
        return record
    finally:
        await asyncio.to_thread(cluster.stop)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--puts", type=int, default=100_000)
    parser.add_argument("--children", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = asyncio.run(fanout(Path(folder), puts=given.puts, children=given.children, seed=given.seed))
    print(
        f"{record.sent} puts in {record.put_s:.0f} s, {len(record.stored)} acknowledged; "
        f"{record.kills} kills, {record.broken} broken"
    )
    print(
        f"the parent has {len(record.queues[PARENT])} items; children: {[len(one) for one in record.queues.values()][1:]}"
    )
    violations = record.violations()
    for violation in violations:
        print(violation, file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
