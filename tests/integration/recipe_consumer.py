"""A consumer of the recipes as a separate program that tests kill.

It records in a file when it begins and when it ends an item. Every line is one write at the end of the file, so the
lines of all consumers are in the order of the events.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lmqcluster import AsyncClient, Client
from lmqcluster.client import recipes
from lmqcluster.client.recipes import aio

__all__: list[str] = []


def _taker(given: argparse.Namespace) -> Callable[[str], None]:
    book = os.open(given.book, os.O_WRONLY | os.O_APPEND)

    def take(item: str) -> None:
        os.write(book, f"begin {given.name} {item}\n".encode())
        time.sleep(given.hold)
        os.write(book, f"end {given.name} {item}\n".encode())

    return take


def _in_threads(given: argparse.Namespace) -> None:
    with Client(given.nodes) as client, ThreadPoolExecutor(given.at_once) as pool:
        options = recipes.QueueOptions(
            safe=True,
            lease=given.lease,
            exclusive=given.exclusive,
            prefetch=given.prefetch,
            executor=pool if given.at_once > 1 else None,
        )
        with recipes.DistributedQueue(client, given.queue, recipes.TextSerializer(), _taker(given), options):
            sys.stdin.read()


async def _in_asyncio(given: argparse.Namespace) -> None:
    take = _taker(given)

    async def consume(item: str) -> None:
        await asyncio.to_thread(take, item)

    options = aio.QueueOptions(
        safe=True,
        lease=given.lease,
        exclusive=given.exclusive,
        prefetch=given.prefetch,
        concurrency=given.at_once,
    )
    async with (
        AsyncClient(given.nodes) as client,
        aio.DistributedQueue(client, given.queue, aio.TextSerializer(), consume, options),
    ):
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    """Consume until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flavour", choices=("threads", "aio"))
    for name in ("nodes", "queue", "book", "name"):
        parser.add_argument(name)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=1)
    parser.add_argument("--hold", type=float, default=0.001)
    parser.add_argument("--exclusive", action="store_true")
    given = parser.parse_args()
    if given.flavour == "threads":
        _in_threads(given)
    else:
        asyncio.run(_in_asyncio(given))


if __name__ == "__main__":
    main()
