"""Pulls that wait at a node: one line for each queue and for each pattern, first come, first served."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ....core import Queue, State
from ....core.log.commands import Poll, PullFirst
from ....core.log.results import Delivered
from ....core.queue.limits import Endpoint
from ....ports import ConnectionSlot
from ....replication.base.log_clock import LogClock
from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand
from ..patterns.view import View
from ..patterns.views import PatternViews
from .pull_options import AnyPull, PullOptions

__all__ = [
    "CANDIDATES_MAX",
    "DeliverySink",
    "PatternWaitList",
    "PullRequest",
    "QueueLines",
    "QueueWaitList",
    "WaitList",
    "Waiter",
    "polls_are_suspended",
]  # fmt: skip

CANDIDATES_MAX = 16
"""Most queues that one claim for a pattern names."""


class DeliverySink(Protocol):
    """The recipient of a pull's outcome: a connection or a coroutine."""

    @property
    def closed(self) -> bool:
        """Return whether the recipient is gone; messages that arrive for it are put back."""

    @property
    def waiting(self) -> set[Waiter]:
        """Return its waiters that stand in a line; `Pulls` maintains the set."""

    @property
    def place(self) -> ConnectionSlot | None:
        """Return the connection that gets the messages; None if it is no client's or the node settles them."""

    def may_wait(self) -> bool:
        """Return whether there is memory for one more waiting pull."""

    def pulled(self, token: Any, delivered: list[Delivered]) -> None:
        """Receive messages, or none at the end of the wait."""

    def pull_failed(self, token: Any, error: LmqError) -> None:
        """Receive the error of a pull that was refused or whose outcome is unknown."""


PullRequest = tuple[DeliverySink, Any, int, float | None]
"""One pull: recipient, its token, most messages wanted, seconds to wait (None without end, 0 not at all)."""


class Waiter:
    """A pull that stands in a line."""

    __slots__ = ("count", "is_over", "line", "open", "puller", "timer", "token")

    def __init__(self, line: WaitList, puller: DeliverySink, token: Any, count: int) -> None:
        self.line: WaitList | None = line
        self.puller = puller
        self.token = token
        self.count = count
        self.open = True
        self.is_over = False
        self.timer: asyncio.TimerHandle | None = None


class WaitList(ABC):
    """Waiters for messages of the same source, first come, first served.

    Attributes:
        key: name of the queue, or the pattern.
        live, wanted: how many waiters are not closed, and how many messages they want.
        over: waiters that have timed out and end with the claim under way.
        claim: the pull that the node has under way for the line.
        timer: when to look again.
    """

    key: bytes

    __slots__ = ("claim", "live", "over", "timer", "waiters", "wanted")

    def __init__(self) -> None:
        self.waiters: deque[Waiter] = deque()
        self.over: list[Waiter] = []
        self.live = 0
        self.wanted = 0
        self.claim: PendingCommand | None = None
        self.timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def head(self) -> tuple[int | None, int]:
        """Return the earliest due time of the messages for the line, and how many may be ready."""

    def held_count(self) -> int:
        """Return how many messages are held behind others of their groups."""
        return 0

    @abstractmethod
    def command(self, count: int) -> AnyPull:
        """Return a pull command for the line."""

    def is_needed(self) -> bool:
        """Return whether a pull waits or a command is under way."""
        return self.live > 0 or self.claim is not None

    def drop(self) -> None:
        """Drop the line because it is not needed."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class QueueLines:
    """The lines of one queue: one for each set of options of pulls, least recently served first.

    Attributes:
        key: name of the queue.
        claimed: how many of the ready messages the claims under way ask for.
    """

    __slots__ = ("_by_options", "_by_queue", "_state", "claimed", "key")

    def __init__(self, by_queue: dict[bytes, QueueLines], key: bytes, state: Callable[[], State]) -> None:
        self.key = key
        self.claimed = 0
        self._by_queue = by_queue
        self._by_options: dict[PullOptions, QueueWaitList] = {}
        self._state = state

    def line(self, options: PullOptions) -> QueueWaitList | None:
        """Return the line of pulls with these options, None if there is none."""
        return self._by_options.get(options)

    def open(self, options: PullOptions) -> QueueWaitList:
        """Add a new line at the end."""
        line = QueueWaitList(self, self._state, options)
        self._by_options[options] = line
        self._by_queue[self.key] = self
        return line

    def in_turn(self) -> list[QueueWaitList]:
        """Return all lines; the one whose turn it is comes first."""
        return list(self._by_options.values())

    def served(self, line: QueueWaitList) -> None:
        """Move a line to the end, so that it is the others' turn."""
        if self._by_options.get(line.options) is line:
            del self._by_options[line.options]
            self._by_options[line.options] = line

    def remove(self, line: QueueWaitList) -> None:
        """Remove a line in which no pull waits any more."""
        if self._by_options.get(line.options) is line:
            del self._by_options[line.options]
            if not self._by_options and self._by_queue.get(self.key) is self:
                del self._by_queue[self.key]


class QueueWaitList(WaitList):
    """A line for one queue.

    Attributes:
        lines: all lines of the queue.
        options: the options of the pulls.
        is_backing_off: the last claim brought nothing; the line claims again when the timer fires or the queue has gained
            messages.
        share: how many of the ready messages the claim under way asks for.
    """

    __slots__ = ("_state", "is_backing_off", "key", "lines", "options", "share")

    def __init__(self, lines: QueueLines, state: Callable[[], State], options: PullOptions) -> None:
        super().__init__()
        self.key = lines.key
        self.lines = lines
        self.options = options
        self.is_backing_off = False
        self.share = 0
        self._state = state

    def head(self) -> tuple[int | None, int]:
        state, session = self._state(), self.options.session
        queue = state.queues.get(self.key)
        if queue is None or (self.options.kind is Poll and polls_are_suspended(state, queue)):
            return None, 0
        if session is None or not queue.is_exclusive():
            return queue.head_us(), queue.store.due_count(state.now_us)
        # The other sessions get a notice when it is their turn.
        if queue.suspended or state.claims.holder(self.key) not in (0, session):
            return None, 0
        return queue.limits.next_us(), queue.store.due_count(state.now_us)

    def held_count(self) -> int:
        queue = self._state().queues.get(self.key)
        return 0 if queue is None else queue.store.held_count()

    def command(self, count: int) -> AnyPull:
        return self.options.command(self.key, count)

    def drop(self) -> None:
        super().drop()
        self.lines.remove(self)


def polls_are_suspended(state: State, queue: Queue) -> bool:
    """Return whether polls of a queue are currently refused."""
    index = None if queue.store.rich is None else queue.store.rich.index
    own = index is not None and index.limits.suspended[Endpoint.POLL]
    return own or state.poll_limits.suspended[Endpoint.POLL]


class PatternWaitList(WaitList):
    """A line for all queues that match a pattern.

    Attributes:
        looking: how many pulls do not know yet whether there is a message for them.
    """

    __slots__ = ("_clock", "_lines", "_state", "_views", "key", "looking", "view")

    def __init__(
        self,
        lines: dict[bytes, PatternWaitList],
        view: View,
        views: PatternViews,
        state: Callable[[], State],
        clock: LogClock,
    ) -> None:
        super().__init__()
        self.key = view.pattern
        self.view = view
        self.looking = 0
        self._lines = lines
        self._views = views
        self._state = state
        self._clock = clock

    def head(self) -> tuple[int | None, int]:
        earliest = self.view.earliest() if self.view.is_complete else None
        return (None, 0) if earliest is None else (earliest[0], earliest[1].store.due_count(self._state().now_us))

    def command(self, count: int) -> AnyPull:
        found = self.view.first(CANDIDATES_MAX, max(self._clock.now_us(), self._state().now_us))
        return PullFirst([queue.name for queue in found], count)

    def is_needed(self) -> bool:
        return super().is_needed() or self.looking > 0

    def drop(self) -> None:
        super().drop()
        if self._lines.get(self.key) is self:
            del self._lines[self.key]
            self._views.release(self.view)
