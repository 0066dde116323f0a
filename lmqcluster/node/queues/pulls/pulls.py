"""Pulls. A pull is proposed immediately; if the queue is empty, it waits on this node, first come, first served.

Waiting pulls are local to this node and not replicated, so a dead node leaves none behind. When the local replica shows
a message in a queue with waiting pulls, the node claims it with its own pull. A line has one claim under way at a
time, for no more messages than are due. So a push wakes one of a thousand consumers, even if each waits in its own
session.

A wait that times out during a claim ends with the claim, because the client pulls again: messages put back would stand
in the log behind that next pull, which would overtake them. Messages that arrive for a client that is gone are put
back, uncharged and in their old places.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, cast

from ....core import Queue, State
from ....core.log.commands import Nack, Place
from ....core.log.results import Delivered
from ....core.timers.idle_queues import TOUCH_US
from ....replication.base.log_clock import LogClock
from ....wire.errors import LmqError, Outcome
from ....wire.limits import PULL_COUNT_MAX
from ...commit.proposer import PendingCommand, Proposer
from ..patterns.views import PatternViews
from .body_fetcher import BodyFetcher
from .holders import Holders
from .pattern_pulls import PatternPulls
from .pull_options import PLAIN_PULL, AnyPull, PullOptions, QueuePull
from .unsent import Unsent, unsent_of
from .wait_lists import (
    DeliverySink,
    PatternWaitList,
    PullRequest,
    QueueLines,
    QueueWaitList,
    Waiter,
    WaitList,
)

__all__ = ["DeliverySink", "PullRequest", "Pulls", "Waiter"]

_NO_MEMORY = "pulls that wait fill the client's share of the node's memory; wait until some have ended"
_CLAIM_MAX = 512
_ABANDONED_MAX = 2_000
"""Most waits of a disconnected client that end in one turn of the event loop."""
_AGAIN_S = 0.002
KEEP_PERIOD_S = 600.0
_KEEP_MAX = 500
_PULL_BYTES = 64
_DELIVERY_BYTES = 16
"""Bytes that a delivery counts in a batch, so that a batch of pulls does not keep the replicas busy for long."""


class Pulls:
    """All pulls of this node.

    Args:
        proposer: takes pull commands.
        state: returns the local replica's state, which a snapshot may replace.
        clock: estimates log time.
        views: the queues that match patterns.

    Attributes:
        clock: the same.
        holders: the connections that hold delivered messages.
        absent: reads bodies that are not in memory.
        empty_total: how many pulls ended without a message.
        closing: why pulls do not wait any more; None while they do.
    """

    def __init__(self, proposer: Proposer, state: Callable[[], State], clock: LogClock, views: PatternViews) -> None:
        self._proposer = proposer
        self._state = state
        self.clock = clock
        self.holders = Holders(state)
        self._loop = asyncio.get_running_loop()
        self._queues: dict[bytes, QueueLines] = {}
        self._patterns: dict[bytes, PatternWaitList] = {}
        self.empty_total = 0
        self.closing: LmqError | None = None
        self._keeper = self._loop.call_later(KEEP_PERIOD_S, self._keep_queues)
        self._claims = _ClaimSink(self)
        self._returns = _ReturnSink()
        self.absent = BodyFetcher(state)
        self._again: set[PendingCommand] = set()
        self._any = PatternPulls(self, proposer, state, clock, views, self._patterns)

    # --- starting and ending --------------------------------------------------------------------------------------

    def start(
        self, queue: bytes, request: PullRequest, options: PullOptions = PLAIN_PULL, since: int | None = None
    ) -> int:
        """Pull from a queue; return the number of the command that decides.

        The pull may share commands from the number `since` on, by default only the last one; see `Proposer.open_command`.

        Raises:
            LmqError: the node takes no more requests.
        """
        proposer, count = self._proposer, request[2]
        since = proposer.last_number if since is None else since
        command = proposer.open_command(self, options.kind, queue, since)
        if command is not None and command.count + count <= PULL_COUNT_MAX and options.may_share(command):
            command.count += count
            return proposer.share(_DELIVERY_BYTES * count, request)
        pending = PendingCommand(options.command(queue, count), [request], self)
        proposer.add(pending, _PULL_BYTES + _DELIVERY_BYTES * count)
        return pending.number

    def wait(self, queue: bytes, request: PullRequest, options: PullOptions = PLAIN_PULL) -> None:
        """Wait for messages of a queue, without a pull first because the queue is known to be empty."""
        options = PullOptions.of(options.command(queue, request[2]))
        self.add_waiters(self._line(queue, options) or self._new_line(queue, options), [request])

    def session_ended(self, session: int) -> None:
        """Fail all pulls that wait in a session that has ended."""
        error = LmqError("session_lost", "the session has ended, and what it held with it; open another one")
        for line in self._queue_lines():
            if line.options.session == session:
                self.end_line(line, error)

    def start_any(self, pattern: bytes, request: PullRequest, client: bytes) -> bool:
        """Pull one message from any queue whose name matches the pattern, see `PatternPulls`.

        Returns:
            Whether the command that decides is on its way. If not, this node has to look first, and requests sent later
            may be carried out before.

        Raises:
            LmqError: the node takes no more requests; ``bad_pattern``; ``quota_exceeded`` or ``overloaded`` if there
                are too many patterns.
        """
        return self._any.start(pattern, request, client)

    def cancel(self, puller: DeliverySink, token: Any) -> bool:
        """End one wait early, as if it had timed out. Return whether there was a pull with that token.

        A pull whose first command has not come back from the log may not be found.
        """
        for waiter in puller.waiting:
            if waiter.token == token and not waiter.is_over:
                self._expire(waiter)
                return True
        for requests in chain((pending.requests for pending in self._again), self._any.requests()):
            for position, (who, its_token, count, wait_s) in enumerate(requests):
                if who.waiting is puller.waiting and its_token == token and wait_s != 0.0:
                    requests[position] = (who, its_token, count, 0.0)
                    return True
        return False

    def is_looking(self, puller: DeliverySink) -> bool:
        """Return whether the puller has an undecided pull, which has neither messages nor a place in a line."""
        requests = chain.from_iterable(chain((pending.requests for pending in self._again), self._any.requests()))
        return any(who.waiting is puller.waiting for who, *_ in requests)

    def abandon(self, puller: DeliverySink) -> None:
        """Drop all pulls of a puller that is gone; its `closed` must be set.

        Messages on their way to it are put back when they arrive.
        """
        for waiter in list(islice(puller.waiting, _ABANDONED_MAX)):
            self._finish(waiter)
        if puller.waiting:
            self._loop.call_soon(self.abandon, puller)

    def close(self, error: LmqError) -> None:
        """Fail all waiting pulls with `error`, and all that would wait later."""
        self.closing = error
        self._keeper.cancel()
        self._any.close(error)
        for line in self.lines():
            self.end_line(line, error)

    def end_line(self, line: WaitList, error: LmqError) -> None:
        """Fail all pulls that wait in a line with `error`."""
        for waiter in list(line.waiters):
            if waiter.open:
                self._finish(waiter)
                waiter.puller.pull_failed(waiter.token, error)

    def reopen(self) -> None:
        """Allow pulls to wait again after `close`."""
        self.closing = None
        self._keeper = self._loop.call_later(KEEP_PERIOD_S, self._keep_queues)

    def waiting(self) -> int:
        """Return how many pulls wait."""
        return sum(line.live for line in self.lines())

    def waiting_for(self, queue: bytes) -> int:
        """Return how many pulls wait for this queue by its name."""
        lines = self._queues.get(queue)
        return 0 if lines is None else sum(line.live for line in lines.in_turn())

    # --- outcomes of pull commands (Sink) -------------------------------------------------------------------------

    def completed(self, pending: PendingCommand, delivered: list[Delivered] | None) -> None:
        """Hand out the messages of a pull command.

        Pulls that have waited longer come first, unless a claim for them is on its way.
        """
        if self._again:
            self._again.discard(pending)
        if delivered is None:
            self._pull_again(pending)
            return
        command = cast(QueuePull, pending.command)
        line = self._line(command.queue, PullOptions.of(command)) if command.queue in self._queues else None
        empty_handed = self.deliver(line, pending, delivered)
        if empty_handed:
            self.add_waiters(line or self._new_line(command.queue, PullOptions.of(command)), empty_handed)

    def _line(self, queue: bytes, options: PullOptions) -> QueueWaitList | None:
        lines = self._queues.get(queue)
        return None if lines is None else lines.line(options)

    def _new_line(self, queue: bytes, options: PullOptions) -> QueueWaitList:
        lines = self._queues.get(queue) or QueueLines(self._queues, queue, self._state)
        return lines.open(options)

    def lines(self) -> list[WaitList]:
        """Return all lines, those without waiting pulls included."""
        return [*self._queue_lines(), *self._patterns.values()]

    def _queue_lines(self) -> list[QueueWaitList]:
        return [line for lines in self._queues.values() for line in lines.in_turn()]

    def deliver(self, line: WaitList | None, pending: PendingCommand, delivered: list[Delivered]) -> list[PullRequest]:
        """Give the messages of a command to the line and to its pulls; return the pulls that got none.

        The line, whose pulls have waited longer, comes first, unless it has a claim under way.
        """
        command = cast(AnyPull, pending.command)
        if line is not None and line.claim is None and delivered:
            delivered = self._serve(line, delivered, command)
        empty_handed: list[PullRequest] = []
        position = start = 0
        holder: DeliverySink | None = None
        for request in pending.requests:
            puller, token, count, _ = request
            if puller.closed:
                continue
            share = delivered[position : position + count]
            if share:
                if puller is not holder:
                    self._note(holder, delivered, start, position)
                    holder, start = puller, position
                position += len(share)
                if self.absent.are_there():
                    self._fetch_bodies(puller, token, share, command)
                else:
                    puller.pulled(token, share)
            else:
                empty_handed.append(request)
        self._note(holder, delivered, start, position)
        # After an unknown outcome, `completed` may follow `failed`: without requests, all messages are put back.
        pending.requests = []
        if position < len(delivered):
            self.put_back(delivered[position:], unsent_of(command))
        return empty_handed

    def _note(self, holder: DeliverySink | None, delivered: list[Delivered], start: int, end: int) -> None:
        if holder is not None:
            self.holders.note(holder.place, delivered, start, end)

    def _fetch_bodies(self, puller: DeliverySink, token: Any, delivered: list[Delivered], command: AnyPull) -> None:
        """Hand deliveries of a command to their puller once their bodies are in memory."""

        def done(found: list[Delivered] | None) -> None:
            if found is None or puller.closed:
                self.put_back(delivered, unsent_of(command))
            if found is None:
                puller.pull_failed(token, self.absent.error())
            elif not puller.closed:
                puller.pulled(token, found)

        self.absent.fetch(delivered, done)

    def _pull_again(self, pending: PendingCommand) -> None:
        """Repeat a pull that met only exhausted messages, as many as one command may drop."""
        requests, pending.requests = pending.requests, []
        command = cast(QueuePull, pending.command)
        again = PendingCommand(PullOptions.of(command).command(command.queue, command.count), requests, self)
        try:
            self._proposer.add(again, 64)
        except LmqError as exc:
            self.failed(again, exc)
        else:
            self._again.add(again)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Fail the pulls of a command that was refused."""
        self._again.discard(pending)
        requests, pending.requests = pending.requests, []
        for puller, token, _, _ in requests:
            if not puller.closed:
                puller.pull_failed(token, error)

    # --- lines ----------------------------------------------------------------------------------------------------

    def add_waiters(self, line: WaitList, requests: list[PullRequest]) -> None:
        """Add pulls that found nothing to a line until they time out."""
        for puller, token, count, wait_s in requests:
            if wait_s is not None and wait_s <= 0:
                self.empty_total += 1
                puller.pulled(token, [])
                continue
            if self.closing is not None:
                puller.pull_failed(token, self.closing)
                continue
            if not puller.may_wait():
                puller.pull_failed(token, LmqError("overloaded", _NO_MEMORY))
                continue
            waiter = Waiter(line, puller, token, count)
            line.waiters.append(waiter)
            line.live += 1
            line.wanted += count
            puller.waiting.add(waiter)
            if wait_s is not None:
                waiter.timer = self._loop.call_later(wait_s, self._expire, waiter)
        if line.is_needed():
            self.try_claim(line)
        else:
            self._drop(line)

    def _expire(self, waiter: Waiter) -> None:
        """End a wait that timed out: now, or after a claim that may bring messages for it."""
        if not waiter.open:
            return
        if waiter.line is not None and waiter.line.claim is not None:
            waiter.is_over = True
            waiter.line.over.append(waiter)
            return
        self._finish(waiter)
        self.empty_total += 1
        waiter.puller.pulled(waiter.token, [])

    def _finish(self, waiter: Waiter) -> None:
        waiter.open = False
        self._leave_line(waiter)

    def _leave_line(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
        line = waiter.line
        if line is None:
            return
        waiter.line = None
        waiter.puller.waiting.discard(waiter)
        line.live -= 1
        line.wanted -= waiter.count
        # Closed waiters are skipped when their turn comes. Sweep them when they are the majority.
        if len(line.waiters) > 2 * line.live + 16:
            line.waiters = deque(w for w in line.waiters if w.open)
        if not line.is_needed():
            self._drop(line)

    def _drop(self, line: WaitList) -> None:
        looks_again = line.timer is not None
        line.drop()
        if looks_again and isinstance(line, QueueWaitList) and self.closing is None:
            # The other lines of the queue rely on the same timer.
            self._wake(line.lines)

    def _serve(self, line: WaitList, delivered: list[Delivered], command: AnyPull) -> list[Delivered]:
        """Give the messages of a command to the line; return the rest."""
        position = 0
        while position < len(delivered) and line.waiters:
            waiter = line.waiters.popleft()
            if not waiter.open or waiter.puller.closed:
                continue
            share = delivered[position : position + waiter.count]
            self.holders.note(waiter.puller.place, share, 0, len(share))
            position += len(share)
            self._finish(waiter)
            if self.absent.are_there():
                self._fetch_bodies(waiter.puller, waiter.token, share, command)
            else:
                waiter.puller.pulled(waiter.token, share)
        return delivered[position:]

    def _keep_queues(self) -> None:
        """Pull again for waiting pulls of queues that are deleted when idle.

        So such a queue is kept while pulls wait for it.
        """
        self._keeper = self._loop.call_later(KEEP_PERIOD_S, self._keep_queues)
        self._keep_some(self._queue_lines())

    def _keep_some(self, lines: list[QueueWaitList]) -> None:
        now_us, queues = self.clock.now_us(), self._state().queues
        for line in lines[:_KEEP_MAX]:
            queue = queues.get(line.key)
            is_ending = queue is not None and queue.idle_us and now_us - queue.idle_us > TOUCH_US
            if is_ending and line.live and line.claim is None:
                self._claim(line, 1)
        if len(lines) > _KEEP_MAX:
            self._loop.call_soon(self._keep_some, lines[_KEEP_MAX:])

    # --- claims ---------------------------------------------------------------------------------------------------

    def notice(self, queues: list[Queue]) -> None:
        """Wake the lines of queues that may have gained messages. Views notify the lines of patterns."""
        for queue in queues:
            lines = self._queues.get(queue.name)
            if lines is not None:
                self._wake(lines, has_gained=True)

    def notice_all(self) -> None:
        """Wake all lines, because a snapshot was installed and any queue may have changed."""
        for lines in list(self._queues.values()):
            self._wake(lines, has_gained=True)

    def try_claim(self, line: WaitList) -> None:
        """Claim messages for a line if some are due and unclaimed, else set a timer for the first due time."""
        if isinstance(line, QueueWaitList):
            self._wake(line.lines)
        elif line.claim is None and line.live:
            self._look(line, self.clock.now_us(), 0)

    def _wake(self, lines: QueueLines, *, has_gained: bool = False) -> None:
        """Make the lines of a queue claim in turn while more messages are due than are claimed."""
        now_us = self.clock.now_us()
        for line in lines.in_turn():
            is_idle = line.claim is None and line.live > 0 and (has_gained or not line.is_backing_off)
            if is_idle and not self._look(line, now_us, lines.claimed):
                return

    def _look(self, line: WaitList, now_us: int, claimed: int) -> bool:
        """Claim messages for a line, or set a timer for the first that will be due.

        Return whether another line of the queue may claim more.
        """
        head_us, ready = line.head()
        if head_us is None:
            return True
        if head_us > now_us:
            self._arm(line, (head_us - now_us) / 1e6)
            return False
        # Messages due by this node's clock but not yet by log time are not counted.
        share = min(line.wanted, max(1, ready) - claimed, _CLAIM_MAX)
        return share > 0 and self._claim(line, share)

    def _arm(self, line: WaitList, delay_s: float) -> None:
        if line.timer is not None:
            line.timer.cancel()
        line.timer = self._loop.call_later(delay_s, self._timer_fired, line)

    def _timer_fired(self, line: WaitList) -> None:
        line.timer = None
        if isinstance(line, QueueWaitList):
            line.is_backing_off = False
        self.try_claim(line)

    def _claim(self, line: WaitList, share: int) -> bool:
        """Pull a share of the ready messages for a line. Return whether the command is on its way."""
        # A pull may also take messages that are held behind a ready one of their group.
        count = min(line.wanted, share + line.held_count(), _CLAIM_MAX)
        claim = PendingCommand(line.command(count), [line], self._claims)
        try:
            self._proposer.add(claim, 64)
        except LmqError:
            # The node is over its bounds or stopping. The next message or this retry finds the line again.
            self._arm(line, 0.1)
            return False
        line.claim = claim
        if isinstance(line, QueueWaitList):
            line.share = share
            line.lines.claimed += share
            line.is_backing_off = False
        return True

    def claim_ended(self, claim: PendingCommand, delivered: list[Delivered], error: LmqError | None = None) -> None:
        """Handle the end of a claim, with messages, without, or with an error."""
        line: WaitList = claim.requests[0]
        command = cast(AnyPull, claim.command)
        # After an unknown outcome, a claim may end a second time while the line already has another one.
        if line.claim is claim:
            line.claim = None
            if isinstance(line, QueueWaitList):
                line.lines.claimed -= line.share
                line.lines.served(line)
        rest = self._serve(line, delivered, command) if delivered else []
        if rest:
            self.put_back(rest, unsent_of(command))
        if line.claim is None:
            self._expire_waiters(line, error)
        if not line.is_needed():
            self._drop(line)
        elif not delivered:
            self._back_off(line)
        if delivered or isinstance(line, QueueWaitList):
            self.try_claim(line)

    def _back_off(self, line: WaitList) -> None:
        """Look again after a pause: another node was faster, or the leader's clock is a little behind this node's."""
        head_us, _ = line.head()
        if head_us is not None:
            self._arm(line, max(_AGAIN_S, (head_us - self.clock.now_us()) / 1e6))
            if isinstance(line, QueueWaitList):
                line.is_backing_off = True

    def _expire_waiters(self, line: WaitList, error: LmqError | None) -> None:
        over, line.over = line.over, []
        for waiter in over:
            if not waiter.open:
                continue
            self._finish(waiter)
            if error is not None and error.outcome is Outcome.UNKNOWN:
                waiter.puller.pull_failed(waiter.token, error)
            else:
                self.empty_total += 1
                waiter.puller.pulled(waiter.token, [])

    def put_back(self, delivered: list[Delivered], unsent: Unsent = Unsent.UNDO) -> None:
        """Return deliveries that do not reach their client, unless their session keeps them."""
        if unsent is Unsent.KEEP:
            return
        by_queue: dict[bytes, list[int]] = {}
        for name, number, _remaining, _message in delivered:
            by_queue.setdefault(name, []).append(number)
        self.put_back_numbers(by_queue, unsent)

    def put_back_numbers(self, by_queue: dict[bytes, list[int]], unsent: Unsent = Unsent.UNDO) -> None:
        """Return deliveries by their numbers."""
        for name, numbers in by_queue.items():
            command = Nack(name, numbers, Place.KEEP, 0, undoes=unsent is Unsent.UNDO)
            self._proposer.add_first(PendingCommand(command, [], self._returns))


class _ClaimSink:
    """Sink of the claims that the node makes for lines."""

    def __init__(self, pulls: Pulls) -> None:
        self._pulls = pulls

    def completed(self, pending: PendingCommand, delivered: list[Delivered] | None) -> None:
        self._pulls.claim_ended(pending, delivered or [])

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self._pulls.claim_ended(pending, [], error)


class _ReturnSink:
    """Sink of commands that put messages back; no client waits for their outcome."""

    def completed(self, pending: PendingCommand, result: object) -> None:
        """Ignore the result."""

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Ignore the error; the lease expires anyway."""
