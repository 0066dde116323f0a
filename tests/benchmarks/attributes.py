"""Memory of a node that holds messages with five attributes: ``python -m tests.benchmarks.attributes``.

One node gets 1,000,000 messages in one queue. The program prints its memory and its pages while it fills, and at the end
the memory and the bytes on disk for each message. With ``--bare`` the messages have no attributes, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Final

from lmqcluster import AsyncClient
from lmqcluster.client.options import PushOptions
from lmqcluster.wire.attributes import Attributes, pack_attributes
from tests.integration.canary import rss_bytes
from tests.integration.cluster import Cluster

from .scale import metric, noise

MESSAGES: Final = 1_000_000
BATCH: Final = 500
IN_FLIGHT: Final = 8
REPORTED: Final = 10
BODY_BYTES: Final = 100
MEBIBYTE: Final = 1 << 20


def attributes_of(number: int) -> Attributes:
    """Return five attributes, different for each message."""
    return {
        "digest": number.to_bytes(16, "big"),
        "n": number,
        "ratio": number / 7,
        "tenant": f"tenant-{number % 1000}",
        "trace": f"{number:032x}",
    }


async def fill(cluster: Cluster, messages: int, *, bare: bool) -> None:
    """Push the messages, and print the memory of the node."""
    [node] = cluster
    before = rss_bytes(node)
    async with AsyncClient(node.rpc) as client:
        numbers = iter(range(0, messages, BATCH))

        async def work(end: int) -> None:
            for start in numbers:
                options: list[PushOptions | None] | None = None
                if not bare:
                    options = [{"attributes": attributes_of(start + place)} for place in range(BATCH)]
                await client.push_many("many", noise(BATCH, BODY_BYTES), options=options)
                if start + BATCH >= end:
                    return

        for part in range(1, REPORTED + 1):
            await asyncio.gather(*(work(messages * part // REPORTED) for _ in range(IN_FLIGHT)))
            held = (await client.backlog(queue="many")).messages
            memory, pages = rss_bytes(node), metric(cluster, "lmq_page_files_bytes")[0]
            print(
                f"{held:>9,} messages: {memory / MEBIBYTE:,.0f} MiB of memory, {pages / MEBIBYTE:,.0f} MiB of pages",
                flush=True,
            )
        held = (await client.backlog(queue="many")).messages
        grown, pages = rss_bytes(node) - before, metric(cluster, "lmq_page_files_bytes")[0]
        size = BODY_BYTES + (0 if bare else len(pack_attributes(attributes_of(messages))))
        print(
            f"each has {size} bytes of body and attributes: {grown / held:.0f} in memory, {pages / held:.0f} in pages"
        )
        [first] = await client.peek("many", 1)
        assert dict(first.attributes) == ({} if bare else dict(attributes_of(0)))


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--bare", action="store_true", help="push messages without attributes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(1, directory=Path(folder)) as cluster:
        asyncio.run(fill(cluster, given.messages, bare=given.bare))


if __name__ == "__main__":
    main()
