"""Batch leases for protocols: commands repeated until they are complete, and up-to-date reads."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import islice
from typing import NamedTuple

from ....core import Queue, State
from ....core.log.commands import AbandonBatches, Claim, Renew, Reserve, SettleBatches
from ....core.log.results import Delivered
from ....core.messages.message import Message, content_bytes
from ....core.state.batch_lease import BatchLease, BatchState, Reserved
from ....core.state.batch_leases import STEP_MAX, BatchLeases
from ....wire.errors import LmqError
from ....wire.limits import NAME_BYTES_MAX
from ..patterns.patterns import check_pattern
from ..pulls.body_fetcher import BodyFetcher
from ..sending.command_sender import CommandSender
from .cuts import CUTS_MAX, cuts

__all__ = ["Backlog", "BatchInfo", "QueueBacklog", "SubscriptionInfo", "Subscriptions"]

LEASE_S_MAX = 30 * 86_400
SLICE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of bodies; a slice ends with the message that exceeds them, whatever its count."""
QUEUES_SHOWN_MAX = 100
_STEP_BYTES = 128 + 16 * STEP_MAX
_NAMED_MAX = 256
"""Most queues that one command of a reservation from a pattern names."""
_CLOSED_MAX = 100
_ENDED = {
    BatchState.SETTLED: "it was settled",
    BatchState.EXPIRED: "its lease ended; its messages are in their queues again, without a delivery charged",
}
_NAMES = {state: state.name.lower() for state in BatchState}


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch lease.

    Attributes:
        state: ``live``, ``empty`` (there were no messages), ``settled`` or ``expired``.
        expires_in_s: seconds until the lease ends, 0 if there is none.
    """

    epoch: int
    state: str
    count: int
    expires_in_s: float


class SubscriptionInfo(NamedTuple):
    """A subscription.

    Attributes:
        owner: the principal that it belongs to; empty for clients that need no token.
        session: the session that may use it; None if it was never claimed.
        settled: the highest settled epoch.
        batches: the batches that are not settled.
    """

    name: bytes
    owner: bytes
    session: int | None
    settled: int
    batches: list[BatchInfo]


class QueueBacklog(NamedTuple):
    """The messages of one queue that can be pulled now.

    Attributes:
        messages: number of messages, including those that wait behind another one of their group.
        name: name of the queue.
        body_bytes: estimated bytes of their bodies, from the average body of the queue.
        oldest_due_us: log time in microseconds since which the oldest message waits; None if none waits.
    """

    messages: int
    name: bytes
    body_bytes: int
    oldest_due_us: int | None


class Closed(NamedTuple):
    """A queue that is suspended or exclusive.

    Attributes:
        reason: ``suspended``, or ``exclusive`` (only sessions pull from it).
        messages: number of its messages that are not leased.
    """

    queue: bytes
    reason: str
    messages: int


class Backlog(NamedTuple):
    """The messages that can be pulled now.

    Attributes:
        messages: number of messages.
        oldest_due_us: log time in microseconds since which the oldest one waits.
        fitting: how many of the first messages have about the requested number of bytes, at least one.
        body_bytes: see `QueueBacklog`.
        largest: the queues with the most messages.
        held: how many wait behind another one of their group. A batch also takes those behind a message that it takes.
        closed: queues that are suspended or exclusive, at most 100. Messages of exclusive ones count, those of
            suspended ones do not.
    """

    messages: int
    oldest_due_us: int | None
    fitting: int
    body_bytes: int
    largest: list[QueueBacklog]
    held: int
    closed: list[Closed]


class Slice(NamedTuple):
    """Messages of a batch.

    Attributes:
        delivered: the messages that are still leased.
        next: position of the first message that was not read.
        lost: how many of the messages before it are not leased any more.
    """

    delivered: list[Delivered]
    next: int
    lost: int


class Subscriptions:
    """The subscriptions of the cluster. Every asynchronous method raises `LmqError`, and may be retried."""

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender
        self._absent = BodyFetcher(sender.state)

    # --- commands -------------------------------------------------------------------------------------------------

    async def reserve(
        self,
        name: bytes,
        epoch: int,
        source: bytes,
        client: bytes,
        *,
        is_pattern: bool,
        count: int,
        lease_s: float,
        session: int | None = None,
        owner: bytes = b"",
    ) -> BatchInfo:
        """Lease up to `count` (1 to 100,000) messages of a queue, or of all queues that match a pattern, for an epoch.

        If the epoch already has a batch, it keeps that batch, whatever the other arguments are.

        Here and below, a subscription that was claimed requires the session of the latest claim. With another session
        the call raises ``fenced`` and does nothing. A subscription of another owner raises ``forbidden``, except for
        the empty owner.
        """
        _check_name(name)
        if is_pattern:
            check_pattern(source)
        else:
            self._sender.check_name(source)
        _check_range("an epoch", epoch, 1 << 61)
        _check_range("a count", count, BatchLeases.COUNT_MAX)
        lease_us = _microseconds(lease_s)
        command = Reserve(name, epoch, source, True, count, lease_us, session or 0, owner)
        if is_pattern:
            return await self._reserve_any(command, source, client)
        while True:
            reserved: Reserved = await self._sender.propose(command, _STEP_BYTES)
            if reserved.sealed:
                return self._info(epoch, reserved.state, reserved.size, reserved.deadline_us)

    async def _reserve_any(self, command: Reserve, pattern: bytes, client: bytes) -> BatchInfo:
        """Reserve messages from the queues that match a pattern.

        Each command names up to `_NAMED_MAX` queues that have messages.
        """
        sender = self._sender
        view = sender.views.open(pattern, client)
        try:
            await sender.barrier()
            while True:
                await sender.views.settled(view)
                queues = [queue.name for queue in view.first(_NAMED_MAX + 1, sender.state().now_us)]
                named, are_all = queues[:_NAMED_MAX], len(queues) <= _NAMED_MAX
                command.source, command.are_all = named, are_all
                reserved: Reserved = await sender.propose(command, _STEP_BYTES + sum(map(len, named)))
                if reserved.sealed:
                    return self._info(command.epoch, reserved.state, reserved.size, reserved.deadline_us)
        finally:
            sender.views.release(view)

    async def claim(self, name: bytes, owner: bytes = b"") -> int:
        """Begin a new session of a subscription and return it; create the subscription if necessary.

        All earlier sessions of the subscription end.
        """
        _check_name(name)
        session: int = await self._sender.propose(Claim(name, owner), 64)
        return session

    async def renew(self, name: bytes, lease_s: float, session: int | None = None, owner: bytes = b"") -> int:
        """Extend all live batches of a subscription to `lease_s` seconds from now; return how many there are."""
        _check_name(name)
        lease_us, renewed, epoch, more = _microseconds(lease_s), 0, 0, True
        while more:
            command = Renew(name, lease_us, session or 0, epoch, owner)
            live, epoch = await self._sender.propose(command, 64)
            renewed, more = renewed + live, epoch > 0
        return renewed

    async def settle(self, name: bytes, epoch: int, session: int | None = None, owner: bytes = b"") -> list[int]:
        """Ack all batches up to an epoch; return the epochs whose lease had ended.

        Their messages may have been redelivered.
        """
        _check_name(name)
        _check_range("an epoch", epoch, 1 << 61)
        expired: list[int] = []
        more = True
        while more:
            command = SettleBatches(name, epoch, session or 0, owner)
            found, more = await self._sender.propose(command, 64)
            expired += found
        return expired

    async def abandon(self, name: bytes, session: int | None = None, owner: bytes = b"") -> None:
        """Put the messages of all batches of a subscription back in their places, uncharged.

        If the subscription has settled nothing, it is then deleted.
        """
        _check_name(name)
        while await self._sender.propose(AbandonBatches(name, session or 0, owner), 64):
            pass

    async def take_back(self, name: bytes, owner: bytes = b"") -> None:
        """Abandon the batches like `abandon`, even if another consumer has claimed the subscription.

        The session of that consumer ends.
        """
        _check_name(name)
        found = self._sender.state().batches.subscriptions.get(name)
        claimed = found is not None and found.session
        await self.abandon(name, await self.claim(name, owner) if claimed else None, owner)

    async def delete(self, name: bytes, owner: bytes = b"") -> bool:
        """Abandon the batches and delete the subscription, even if another consumer has claimed it.

        False if there is no such subscription.
        """
        _check_name(name)
        more: bool | None = True
        existed = False
        while more:
            more = await self._sender.propose(AbandonBatches(name, owner=owner, forgets=True), 64)
            existed = existed or more is not None
        return existed

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(
        self,
        name: bytes,
        epoch: int,
        start: int,
        count: int,
        session: int | None = None,
        owner: bytes = b"",
        *,
        skips_lost: bool = False,
    ) -> Slice:
        """Return messages of a live batch from position `start` on, at most 10,000 and about 16 MiB.

        Beyond the end of the batch there are none. A message that is not leased any more is an error, or is skipped
        with `skips_lost`.
        """
        await self._sender.barrier()
        batches = self._sender.state().batches
        found = batches.subscriptions.get(name)
        if found is not None and not found.is_open_to(owner):
            raise LmqError("forbidden", f"subscription {_shown(name)} belongs to another principal")
        if not batches.may_use(name, session or 0):
            raise LmqError("fenced", f"subscription {_shown(name)} was taken over by a later consumer, or deleted")
        state = batches.state(name, epoch)
        if state == BatchState.EMPTY:
            raise LmqError("batch_not_found", f"subscription {_shown(name)} has no batch for epoch {epoch}")
        if state != BatchState.LIVE:
            raise self._unreadable(name, epoch, _ENDED[state])
        taken = batches.look(name, epoch, start, min(count, STEP_MAX))
        lost = next((one for one in taken if one[3] is None), None)
        if lost is not None and not skips_lost:
            raise self._lost(name, epoch, lost[0])
        delivered = [one for one in taken if one[3] is not None]
        fitting = delivered[: _fitting([message for _, _, _, message in delivered])]
        looked_at = len(taken) if len(fitting) == len(delivered) else taken.index(delivered[len(fitting)])
        messages = await self._absent.fetched([message for _, _, _, message in fitting])
        whole = [(*one[:3], message) for one, message in zip(fitting, messages, strict=True)]
        return Slice(whole, start + looked_at, looked_at - len(fitting))

    def _lost(self, name: bytes, epoch: int, queue: bytes) -> LmqError:
        is_there = queue in self._sender.state().queues
        what = "messages were settled one by one, or deleted with their queue" if is_there else "the queue was deleted"
        batch = f"epoch {epoch} of subscription {_shown(name)}"
        return LmqError(
            "lease_lost", f"{batch} is not whole: messages of queue {_shown(queue)} are gone, because {what}"
        )

    @staticmethod
    def _unreadable(name: bytes, epoch: int, reason: str) -> LmqError:
        return LmqError("lease_expired", f"epoch {epoch} of subscription {_shown(name)} cannot be read: {reason}")

    async def cut(self, name: bytes, epoch: int, parts: int, client: bytes) -> list[int]:
        """Return the positions at which about `parts` parts of a batch begin; none if the batch is not live.

        No part begins within a group.
        """
        _check_range("a number of parts", parts, CUTS_MAX)
        await self._sender.barrier()
        return await cuts(
            lambda: self._live(name, epoch), parts, lambda numbers: self._sender.turns.each(numbers, client)
        )

    def _live(self, name: bytes, epoch: int) -> tuple[State, BatchLease] | None:
        state = self._sender.state()
        if state.batches.state(name, epoch) != BatchState.LIVE:
            return None
        return state, state.batches.subscriptions[name].batches[epoch]

    async def show(self, name: bytes) -> SubscriptionInfo | None:
        """Return one subscription, None if it is unknown."""
        await self._sender.barrier()
        return self._subscription(name)

    async def show_all(self, client: bytes) -> list[SubscriptionInfo]:
        """Return all subscriptions by name, read in slices for this client."""
        await self._sender.barrier()
        names = sorted(self._sender.state().batches.subscriptions)
        found = [self._subscription(name) async for name in self._sender.turns.each(names, client)]
        return [one for one in found if one is not None]

    async def backlog(
        self, source: bytes, client: bytes, *, is_pattern: bool, bytes_max: int | None = None, largest: int = 0
    ) -> Backlog:
        """Return the messages that can be pulled now from a queue, or from all queues that match a pattern.

        The result shows up to `largest` of the largest queues.

        Raises:
            LmqError: ``bad_pattern``; ``bad_request`` if too many queues are to be shown.
        """
        if not 0 <= largest <= QUEUES_SHOWN_MAX:
            raise LmqError("bad_request", f"0 to {QUEUES_SHOWN_MAX} queues can be shown, not {largest}")
        if is_pattern:
            check_pattern(source)
            queues = await self._found(source, client)
        else:
            await self._sender.barrier()
            found = self._sender.state().queues.get(source)
            queues = [] if found is None else [found]
        messages = body_bytes = held = 0
        oldest_us: int | None = None
        shown: list[QueueBacklog] = []
        closed: list[Closed] = []
        async for queue in self._sender.turns.each(queues, client):
            one = _backlog_of(queue, self._sender.state().now_us)
            behind = 0 if queue.suspended else queue.store.held_count()
            messages, body_bytes, held = messages + one.messages - behind, body_bytes + one.body_bytes, held + behind
            if one.oldest_due_us is not None:
                oldest_us = one.oldest_due_us if oldest_us is None else min(oldest_us, one.oldest_due_us)
            if one.messages and largest:
                (heappush if len(shown) < largest else heappushpop)(shown, one)
            if (queue.suspended or queue.is_exclusive()) and len(closed) < _CLOSED_MAX:
                closed.append(
                    Closed(queue.name, "suspended" if queue.suspended else "exclusive", queue.store.waiting())
                )
        fitting = messages if bytes_max is None else _fitting_count(queues, bytes_max)
        return Backlog(messages, oldest_us, fitting, body_bytes, sorted(shown, reverse=True), held, closed)

    async def _found(self, pattern: bytes, client: bytes) -> list[Queue]:
        view = self._sender.views.open(pattern, client)
        try:
            await self._sender.barrier()
            await self._sender.views.settled(view)
            return list(view.queues.values())
        finally:
            self._sender.views.release(view)

    def _subscription(self, name: bytes) -> SubscriptionInfo | None:
        batches = self._sender.state().batches
        found = batches.subscriptions.get(name)
        if found is None:
            return None
        # A batch whose consumer died while it was reserved is unsealed: it is shown as it is, live.
        rows = [
            self._info(
                epoch,
                BatchState.LIVE if batch.deadline_us > self._sender.state().now_us else BatchState.EXPIRED,
                batch.count,
                batch.deadline_us,
            )
            for epoch, batch in found.batches.items()
        ]
        return SubscriptionInfo(name, found.owner, found.session or None, found.settled, rows)

    def _info(self, epoch: int, state: int, count: int, deadline_us: int) -> BatchInfo:
        left_s = max(0, deadline_us - self._sender.state().now_us) / 1e6
        return BatchInfo(epoch, _NAMES[BatchState(state)], count, left_s)


def _fitting(messages: list[Message]) -> int:
    """Return how many of the messages make up a slice."""
    size = 0
    for position, message in enumerate(messages, 1):
        size += content_bytes(message.content)
        if size > SLICE_BYTES_MAX:
            return position
    return len(messages)


def _backlog_of(queue: Queue, now_us: int) -> QueueBacklog:
    head_us = queue.head_us()
    messages = 0 if queue.suspended else queue.store.due_count(now_us) + queue.store.held_count()
    body_bytes = queue.store.body_bytes * messages // max(1, len(queue))
    return QueueBacklog(
        messages, queue.name, body_bytes, head_us if head_us is not None and head_us <= now_us else None
    )


def _fitting_count(queues: list[Queue], bytes_max: int) -> int:
    """Return how many messages of the queues have about `bytes_max` bytes.

    The sizes are those of the messages at the head if there is one plain queue, else the average size.
    """
    total = sum(queue.store.body_bytes for queue in queues)
    if total <= bytes_max:
        return BatchLeases.COUNT_MAX
    if len(queues) > 1 or queues[0].store.rich is not None:
        return max(1, bytes_max * sum(map(len, queues)) // total)
    size = 0
    for count, message in enumerate(islice(queues[0].store.ready, BatchLeases.COUNT_MAX), 1):
        size += content_bytes(message.content)
        if size >= bytes_max:
            return count
    if queues[0].store.backlog is not None:
        return max(1, bytes_max * len(queues[0]) // total)
    return BatchLeases.COUNT_MAX


def _check_name(name: bytes) -> None:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"a subscription's name must have 1 to {NAME_BYTES_MAX} bytes, this has {len(name)}")


def _check_range(what: str, value: int, most: int) -> None:
    if not 0 < value <= most:
        raise LmqError("bad_request", f"{what} must be 1 to {most}, not {value}")


def _microseconds(lease_s: float) -> int:
    if not 0 < lease_s <= LEASE_S_MAX:
        raise LmqError("bad_request", f"a lease must be more than 0 and at most {LEASE_S_MAX} seconds, not {lease_s}")
    return max(1, int(lease_s * 1_000_000))


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))
