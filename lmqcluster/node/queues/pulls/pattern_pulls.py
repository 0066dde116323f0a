"""Pulls from any queue that matches a pattern.

The node looks at its own replica, names the queues whose messages have been due longest, and proposes a pull from the
first of them that has a message. If the replica shows none, it may only lag. The node then sends a barrier through the
log and looks again, so it finds every message whose push was acknowledged before the pull arrived. A pull that finds
nothing waits in a line like any other pull, or returns empty.

Messages that a lagging replica does not show were stored after all those that it shows, so they are also due later.
Only messages put back and queues resumed a moment ago can be overlooked in favour of a younger message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ....core import State
from ....core.log.commands import Barrier
from ....core.log.results import Delivered
from ....replication.base.log_clock import LogClock
from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX
from ...commit.proposer import PendingCommand, Proposer
from ..patterns.views import PatternViews
from .wait_lists import CANDIDATES_MAX, PatternWaitList, PullRequest, WaitList

__all__ = ["PatternPulls", "WaitingPulls"]


class WaitingPulls(Protocol):
    """The part of `Pulls` that keeps the lines.

    Attributes:
        closing: why pulls do not wait any more; None while they do.
    """

    closing: LmqError | None

    def try_claim(self, line: WaitList) -> None:
        """Claim messages for a line if any are due, else set a timer for the first due time."""

    def end_line(self, line: WaitList, error: LmqError) -> None:
        """Fail all pulls that wait in a line with `error`."""

    def add_waiters(self, line: WaitList, requests: list[PullRequest]) -> None:
        """Add pulls that found nothing to a line until they time out."""

    def deliver(self, line: WaitList | None, pending: PendingCommand, delivered: list[Delivered]) -> list[PullRequest]:
        """Give the messages of a command to the line and to its pulls; return the pulls that got none."""


class PatternPulls:
    """The first phase of such pulls, up to an answer or a place in a line.

    Args:
        pulls: keeps the lines.
        proposer: takes commands.
        state: returns the local replica's state, which a snapshot may replace.
        clock: estimates log time.
        views: the queues that match patterns.
        lines: by pattern.
    """

    def __init__(
        self,
        pulls: WaitingPulls,
        proposer: Proposer,
        state: Callable[[], State],
        clock: LogClock,
        views: PatternViews,
        lines: dict[bytes, PatternWaitList],
    ) -> None:
        self._pulls = pulls
        self._proposer = proposer
        self._state = state
        self._clock = clock
        self._views = views
        self._lines = lines
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], tuple[PatternWaitList, list[PullRequest]]] = {}
        self._pending: set[PendingCommand] = set()

    def start(self, pattern: bytes, request: PullRequest, client: bytes) -> bool:
        """Start a pull; see `Pulls.start_any`."""
        line = self._lines.get(pattern)
        if line is None:
            line = self._open(pattern, client)
        try:
            # Pulls that already wait in the line come first.
            if not line.live and self._views.is_settled(line.view) and self._is_due(line, self._clock.now_us()):
                self._pull(line, [request])
                return True
            self._propose(PendingCommand(Barrier(), [request], _Looking(self, line)), 16)
        except LmqError:
            self._drop_if_unneeded(line)
            raise
        line.looking += 1
        return False

    def requests(self) -> Iterator[list[PullRequest]]:
        """Iterate over the lists of undecided pulls; a caller may replace a pull in its list."""
        for pending in self._pending:
            yield pending.requests
        for _line, requests in self._tasks.values():
            yield requests

    def close(self, error: LmqError) -> None:
        """Fail the undecided pulls with `error`."""
        for task, (line, requests) in list(self._tasks.items()):
            task.cancel()
            self._fail(line, requests, error)

    def _open(self, pattern: bytes, client: bytes) -> PatternWaitList:
        view = self._views.open(pattern, client)
        line = self._lines[pattern] = PatternWaitList(self._lines, view, self._views, self._state, self._clock)
        view.on_change = lambda: self._pulls.try_claim(line)
        view.on_end = lambda error: self._pulls.end_line(line, error)
        return line

    @staticmethod
    def _is_due(line: PatternWaitList, now_us: int) -> bool:
        head_us, _ = line.head()
        return head_us is not None and head_us <= now_us

    def _pull(self, line: PatternWaitList, requests: list[PullRequest]) -> None:
        pending = PendingCommand(
            line.command(sum(count for _, _, count, _ in requests)), requests, _Pulling(self, line)
        )
        self._propose(pending, 64 + CANDIDATES_MAX * NAME_BYTES_MAX)
        line.looking += len(requests)

    def _propose(self, pending: PendingCommand, size_bytes: int) -> None:
        self._proposer.add(pending, size_bytes)
        self._pending.add(pending)

    def ended(self, pending: PendingCommand) -> None:
        """Remove a command whose outcome is known."""
        self._pending.discard(pending)

    def look(self, line: PatternWaitList, requests: list[PullRequest]) -> None:
        """Pull if the replica, which is now recent enough, shows a due message; else wait, or return empty."""
        waiting = [request for request in requests if not request[0].closed]
        line.looking -= len(requests) - len(waiting)
        if not waiting:
            self._drop_if_unneeded(line)
        elif self._pulls.closing is not None:
            self._fail(line, waiting, self._pulls.closing)
        elif not self._views.is_settled(line.view):
            task = self._loop.create_task(self._look_when_settled(line, waiting))
            self._tasks[task] = (line, waiting)
            task.add_done_callback(lambda task: self._tasks.pop(task, None))
        elif self._is_due(line, self._state().now_us):
            line.looking -= len(waiting)
            try:
                self._pull(line, waiting)
            except LmqError as exc:
                line.looking += len(waiting)
                self._fail(line, waiting, exc)
        else:
            line.looking -= len(waiting)
            self._pulls.add_waiters(line, waiting)

    async def _look_when_settled(self, line: PatternWaitList, requests: list[PullRequest]) -> None:
        try:
            await self._views.settled(line.view)
        except LmqError as exc:
            self._fail(line, requests, exc)
        else:
            self.look(line, requests)

    def pulled(self, line: PatternWaitList, pending: PendingCommand, delivered: list[Delivered] | None) -> None:
        """Hand out the messages of a pull; look again for the pulls that got none."""
        self.ended(pending)
        if delivered is None:
            # The pull met only exhausted messages, as many as one command may drop.
            empty_handed, pending.requests = pending.requests, []
        else:
            line.looking -= len(pending.requests)
            empty_handed = self._pulls.deliver(line, pending, delivered)
            line.looking += len(empty_handed)
        self.look(line, empty_handed)

    def failed(self, line: PatternWaitList, pending: PendingCommand, error: LmqError) -> None:
        """Fail the pulls of a command that was refused or whose outcome is unknown."""
        self.ended(pending)
        requests, pending.requests = pending.requests, []
        self._fail(line, requests, error)

    def _fail(self, line: PatternWaitList, requests: list[PullRequest], error: LmqError) -> None:
        line.looking -= len(requests)
        for puller, token, _, _ in requests:
            if not puller.closed:
                puller.pull_failed(token, error)
        self._drop_if_unneeded(line)

    @staticmethod
    def _drop_if_unneeded(line: PatternWaitList) -> None:
        if not line.is_needed():
            line.drop()


class _Looking:
    """Sink of a barrier, after which the replica is recent enough to look again (`Sink`)."""

    def __init__(self, pulls: PatternPulls, line: PatternWaitList) -> None:
        self._pulls = pulls
        self._line = line

    def completed(self, pending: PendingCommand, result: Any) -> None:  # noqa: ARG002 - the barrier says nothing
        self._pulls.ended(pending)
        requests, pending.requests = pending.requests, []
        self._pulls.look(self._line, requests)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._pulls.failed(self._line, pending, error)


class _Pulling:
    """Sink of a pull from the queues that the node has named (`Sink`)."""

    def __init__(self, pulls: PatternPulls, line: PatternWaitList) -> None:
        self._pulls = pulls
        self._line = line

    def completed(self, pending: PendingCommand, delivered: list[Delivered] | None) -> None:
        self._pulls.pulled(self._line, pending, delivered)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._pulls.failed(self._line, pending, error)
