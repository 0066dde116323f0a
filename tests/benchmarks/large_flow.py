"""The flow of large messages of N1, in a separate process, so that its client blocks no other client.

``python -m tests.benchmarks.large_flow ADDRESSES BYTES ROUNDS`` fails if a message arrives changed.
"""

from __future__ import annotations

import random
import sys
from typing import Final

import uvloop

from lmqcluster import AsyncClient

QUEUE: Final = "large"
BATCH: Final = 100
BATCHED_BYTES: Final = 1 << 20


async def flow(addresses: list[str], size: int, rounds: int) -> None:
    """Push, pull, nack, pull and acknowledge a message `rounds` times, through one node after the other; then
    a batch.
    """
    body = random.Random(1).randbytes(size)
    for number in range(rounds):
        place = number % len(addresses)
        async with AsyncClient([*addresses[place:], *addresses[:place]]) as client:
            await client.push(QUEUE, body)
            for settle in ("nack", "ack"):
                message = await client.pull(QUEUE, 60)
                if message is None or message.content != body:
                    raise ValueError("the message has changed")
                await getattr(message, settle)()
    async with AsyncClient(addresses) as client:
        await client.push_many(QUEUE, [body[:BATCHED_BYTES]] * BATCH)
        for _ in range(BATCH):
            message = await client.pull(QUEUE, 60)
            if message is None or message.content != body[:BATCHED_BYTES]:
                raise ValueError("a message of the batch has changed")
            await message.ack()


def main() -> int:
    """Run the program."""
    uvloop.run(flow(sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
