"""Batching of the open reads that the node's connections request in one turn of the event loop.

A consumer closes one read and opens the next. If each request were sent at once, the ends and beginnings of many
consumers would alternate in the log, each as a separate command. The batcher sorts the requests of a turn by queue: it
sends first all ends in one command, then all beginnings in one. A connection that requests both gets them in this
order; the order among connections is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ....core.log.commands import Ack
from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand, Proposer
from ..pulls.pull_options import PullOptions
from ..pulls.pulls import Pulls
from ..pulls.wait_lists import PullRequest
from ..sending.coalesced_result import CoalescedResult, shares

__all__ = ["ReadBatcher"]

_NUMBERS_MAX = 1_000
"""Deliveries that one command ends."""


class _Turn:
    """The requests for one queue."""

    __slots__ = ("ends", "opens")

    def __init__(self) -> None:
        self.ends: list[tuple[Sequence[int], CoalescedResult]] = []
        self.opens: dict[PullOptions, list[PullRequest]] = {}


class ReadBatcher:
    """The batcher of the node.

    Args:
        proposer: takes commands.
        pulls: returns the present `Pulls`, which changes when the node joins another cluster.
    """

    def __init__(self, proposer: Proposer, pulls: Callable[[], Pulls]) -> None:
        self._proposer = proposer
        self._pulls = pulls
        self._loop = asyncio.get_running_loop()
        self._turns: dict[bytes, _Turn] = {}

    def confirm(self, queue: bytes, numbers: Sequence[int]) -> asyncio.Future[list[bool] | None]:
        """End deliveries; return a future that says which of them existed, None if there is no such queue."""
        outcome: asyncio.Future[list[bool] | None] = self._loop.create_future()
        self._turn(queue).ends.append((numbers, CoalescedResult(outcome, len(numbers))))
        return outcome

    def open(self, options: PullOptions, queue: bytes, request: PullRequest) -> None:
        """Pull; if the command cannot be sent, the request gets the error."""
        self._turn(queue).opens.setdefault(options, []).append(request)

    def _turn(self, queue: bytes) -> _Turn:
        found = self._turns.get(queue)
        if found is None:
            if not self._turns:
                self._loop.call_soon(self._send)
            found = self._turns[queue] = _Turn()
        return found

    def _send(self) -> None:
        turns, self._turns = self._turns, {}
        for queue, turn in turns.items():
            self._send_ends(queue, turn.ends)
            for options, requests in turn.opens.items():
                for request in requests:
                    self._send_open(options, queue, request)

    def _send_ends(self, queue: bytes, ends: list[tuple[Sequence[int], CoalescedResult]]) -> None:
        numbers: list[int] = []
        requests: list[CoalescedResult] = []
        for more, share in ends:
            numbers += more
            requests += [share] * len(more)
            if len(numbers) >= _NUMBERS_MAX:
                self._send_some(Ack(queue, numbers), requests)
                numbers, requests = [], []
        if numbers:
            self._send_some(Ack(queue, numbers), requests)

    def _send_some(self, command: Ack, requests: list[CoalescedResult]) -> None:
        pending = PendingCommand(command, requests, shares)
        try:
            self._proposer.add(pending, 64 + 12 * len(requests))
        except LmqError as exc:
            shares.failed(pending, exc)

    def _send_open(self, options: PullOptions, queue: bytes, request: PullRequest) -> None:
        puller, token, _, _ = request
        if puller.closed:
            return
        try:
            self._pulls().start(queue, request, options)
        except LmqError as exc:
            puller.pull_failed(token, exc)
