"""Pullers for a bench of one node's pulls, and the pushes of another node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lmqcluster.core import Op
from lmqcluster.core.log.results import Delivered
from lmqcluster.node.queues.pulls.pulls import Waiter
from lmqcluster.wire.errors import LmqError

from .command_bench import Bench

Scenario = Callable[[Bench], Awaitable[None]]


class Client:
    """A puller that records its results: (token, contents) or (token, error code)."""

    def __init__(self) -> None:
        self.closed = False
        self.place = None
        self.waiting: set[Waiter] = set()
        self.got: list[tuple[Any, Any]] = []

    def may_wait(self) -> bool:
        return True

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        self.got.append((token, [message.content for _name, _number, _remaining, message in delivered]))

    def pull_failed(self, token: Any, error: LmqError) -> None:
        self.got.append((token, error.code))


def run(scenario: Scenario) -> None:
    """Run a scenario on a new bench, and close the bench."""

    async def main() -> None:
        bench = Bench()
        await scenario(bench)
        error = LmqError("shutting_down", "the test is over")
        bench.pulls.close(error)
        bench.proposer.close(error)

    asyncio.run(main())


def push(bench: Bench, *contents: bytes, queue: bytes = b"q") -> None:
    """Push as another node."""
    bench.foreign([Op.PUSH, queue, None, list(contents), None, 0])


def left(bench: Bench, queue: bytes = b"q") -> list[tuple[bytes, int]]:
    """Pull all messages: (content, remaining deliveries)."""
    (found,) = bench.foreign([Op.PULL, queue, 1000])
    return [(message.content, remaining) for _name, _number, remaining, message in found]
