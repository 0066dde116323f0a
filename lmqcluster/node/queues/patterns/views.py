"""Views of the queues that match clients' patterns, which the node keeps beside its replica.

The node fills a view in slices of the event loop, so that replication and other clients continue. The view then follows
what the replica applies: queues that were created or deleted, or that have an earlier message. A backlog of such work
is sliced too; `settled` waits until it is done.

The number of views and the queues that they list are bounded, for each client and in total. Unused views are dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from time import perf_counter

from ....core import Applied, Queue, State
from ....wire.errors import LmqError
from ...process.fair_slices import SLICE_S, FairSlices
from .view import View

__all__ = ["CLIENT_LISTED_MAX", "CLIENT_VIEWS_MAX", "LISTED_MAX", "VIEWS_MAX", "PatternViews"]

VIEWS_MAX = 512
"""Largest number of patterns for which a node keeps views."""
CLIENT_VIEWS_MAX = 128
"""Largest number of views that one client may have in use."""
LISTED_MAX = 1_000_000
"""Most queues that all views list, each counted in every view; one takes up to 200 bytes."""
CLIENT_LISTED_MAX = 500_000
"""Most queues that the views of one client list."""
FORGET_AFTER_S = 60.0


class _Event(Enum):
    """An event of a queue."""

    CREATED = 1
    EARLIER = 2
    DELETED = 3


class PatternViews:
    """The views of a node.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
        turns: hands out slices of the event loop.
    """

    def __init__(self, state: Callable[[], State], turns: FairSlices) -> None:
        self._state = state
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._views: OrderedDict[bytes, View] = OrderedDict()
        self._by_client: Counter[bytes] = Counter()
        self._listed: Counter[bytes] = Counter()
        self._listed_total = 0
        self._events: dict[Queue, _Event] = {}
        self._steps: Iterator[None] | None = None
        self._settled: list[asyncio.Future[None]] = []
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._views)

    @property
    def listed(self) -> int:
        """Return how many queues all views list together."""
        return self._listed_total

    # --- using ----------------------------------------------------------------------------------------------------

    def open(self, pattern: bytes, client: bytes) -> View:
        """Return the view of a pattern; create it if necessary. `release` must follow.

        Raises:
            LmqError: ``bad_pattern``; ``quota_exceeded`` if the client has too many in use; ``overloaded`` if the node
                has.
        """
        view = self._views.get(pattern)
        if view is None:
            self._make_room(client)
            view = View(pattern, client, self._loop.create_future())
            self._views[pattern] = view
            self._by_client[client] += 1
            self._fill(view)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(FORGET_AFTER_S, self._sweep)
        self._views.move_to_end(pattern)
        view.users += 1
        return view

    def release(self, view: View) -> None:
        """Release the view for one user."""
        view.users -= 1
        if not view.users:
            view.ignore_events()
        view.used_s = self._loop.time()

    async def settled(self, view: View) -> None:
        """Wait until the view shows everything that was applied here before the call.

        Raises:
            LmqError: ``quota_exceeded`` or ``overloaded`` if the pattern finds too many queues.
        """
        await asyncio.shield(view.complete)
        if self._steps is not None:
            future: asyncio.Future[None] = self._loop.create_future()
            self._settled.append(future)
            await future
        if not view.is_complete:
            await asyncio.shield(view.complete)

    def is_settled(self, view: View) -> bool:
        """Return whether `settled` would return at once."""
        return view.is_complete and self._steps is None

    def _make_room(self, client: bytes) -> None:
        mine = self._by_client[client] >= CLIENT_VIEWS_MAX
        if not mine and len(self._views) < VIEWS_MAX:
            return
        for view in self._views.values():
            if not view.users and (not mine or view.client == client):
                self._forget(view)
                return
        if mine:
            reason = f"this client uses {CLIENT_VIEWS_MAX} different patterns at this node, the limit; end a wait first"
            raise LmqError("quota_exceeded", reason)
        raise LmqError("overloaded", f"the clients of this node use {VIEWS_MAX} different patterns, the limit")

    def _forget(self, view: View) -> None:
        del self._views[view.pattern]
        self._by_client[view.client] -= 1
        if not self._by_client[view.client]:
            del self._by_client[view.client]
        self._empty(view)
        if view.filling is not None:
            view.filling.cancel()

    def _empty(self, view: View) -> None:
        self._count(view, -len(view.queues))
        for queue in list(view.queues.values()):
            view.remove(queue)

    def _count(self, view: View, more: int) -> None:
        self._listed_total += more
        self._listed[view.client] += more
        if not self._listed[view.client]:
            del self._listed[view.client]

    def _sweep(self) -> None:
        """Drop the views that have not been used for `FORGET_AFTER_S` seconds."""
        self._sweeper = None
        old_s = self._loop.time() - FORGET_AFTER_S
        for view in [view for view in self._views.values() if not view.users and view.used_s <= old_s]:
            self._forget(view)
        if self._views:
            self._sweeper = self._loop.call_later(FORGET_AFTER_S / 2, self._sweep)

    # --- filling --------------------------------------------------------------------------------------------------

    def replaced(self) -> None:
        """Rebuild all views because the replica has another machine."""
        self._events.clear()
        for view in list(self._views.values()):
            if view.filling is not None:
                view.filling.cancel()
            self._empty(view)
            if view.complete.done():
                view.complete = self._loop.create_future()
            self._fill(view)

    def close(self) -> None:
        """Stop all work."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        error = LmqError("shutting_down", "the node is shutting down; use another node")
        for view in list(self._views.values()):
            self._end(view, error)

    def _fill(self, view: View) -> None:
        view.filling = self._loop.create_task(self._look_at_all(view, list(self._state().queues.values())))

    async def _look_at_all(self, view: View, queues: list[Queue]) -> None:
        known = self._state().queues
        try:
            async for queue in self._turns.each(queues, view.client):
                # Some queues may have been deleted since, and the view may already have followed the deletion.
                if view.matches(queue.name) and known.get(queue.name) is queue:
                    self._list(view, queue)
        except LmqError as exc:
            view.filling = None
            self._end(view, exc)
        else:
            view.filling = None
            view.complete.set_result(None)
            view.on_change()

    def _list(self, view: View, queue: Queue) -> None:
        """Add a queue to a view.

        Raises:
            LmqError: the views of the client or of the node list too many queues.
        """
        if queue.name in view.queues:
            view.note(queue)
            return
        if self._listed[view.client] >= CLIENT_LISTED_MAX:
            reason = f"the patterns of this client find more than {CLIENT_LISTED_MAX} queues at this node, the limit"
            raise LmqError("quota_exceeded", f"{reason}; use narrower ones")
        if self._listed_total >= LISTED_MAX and not self._forget_unused():
            raise LmqError("overloaded", f"the patterns of this node's clients find {LISTED_MAX} queues, the limit")
        view.add(queue)
        self._count(view, 1)

    def _forget_unused(self) -> bool:
        for view in self._views.values():
            if not view.users and view.queues:
                self._forget(view)
                return True
        return False

    def _end(self, view: View, error: LmqError) -> None:
        """Drop a view that cannot be kept, and pass the reason to its users."""
        if self._views.get(view.pattern) is view:
            self._forget(view)
        if view.complete.done():
            view.complete = self._loop.create_future()
        view.complete.set_exception(error.again())
        # Mark the exception as retrieved: the view may have no waiting user.
        view.complete.exception()
        view.on_end(error)

    # --- following ------------------------------------------------------------------------------------------------

    def applied(self, applied: Applied) -> None:
        """Record the changes of a batch."""
        if not self._views:
            return
        events = self._events
        # A deleted queue must be followed before a new queue of the same name.
        for queue in applied.deleted:
            events[queue] = _Event.DELETED
        for queue in applied.created:
            events[queue] = _Event.CREATED
        for queue in applied.ready:
            events.setdefault(queue, _Event.EARLIER)
        if events and self._steps is None:
            self._steps = self._follow_all()
            self._settle()

    def _settle(self) -> None:
        """Update the views for one slice; the rest follows in the next turns of the event loop."""
        if self._steps is None:
            return
        until_s = perf_counter() + SLICE_S
        for _ in self._steps:
            if perf_counter() > until_s:
                self._loop.call_soon(self._settle)
                return
        self._steps = None
        waiting, self._settled = self._settled, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _follow_all(self) -> Iterator[None]:
        while self._events:
            queue = next(iter(self._events))
            event = self._events.pop(queue)
            for view in list(self._views.values()):
                if self._views.get(view.pattern) is view:
                    self._follow(view, queue, event)
                yield

    def _follow(self, view: View, queue: Queue, event: _Event) -> None:
        name = queue.name
        if event is _Event.CREATED:
            if self._state().queues.get(name) is queue and view.matches(name):
                try:
                    self._list(view, queue)
                except LmqError as exc:
                    self._end(view, exc)
                else:
                    view.on_change()
        elif view.queues.get(name) is queue:
            if event is _Event.EARLIER:
                view.note(queue)
                view.on_change()
            else:
                view.remove(queue)
                self._count(view, -1)
