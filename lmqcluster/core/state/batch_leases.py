"""Batch leases: many messages under one lease, readable repeatedly until they are settled together.

A *subscription* holds one batch lease for each *epoch* that its consumer asks for. An epoch always denotes the same
messages in the same order, so a consumer resumes after a crash exactly where it was. The messages are leased like
those of a pull, under ordinary delivery numbers; a batch adds the list of these numbers and one deadline.

For exclusive use of its subscription a consumer *claims* it and gets a session. From then on every command needs the
session of the latest claim, which fences off a consumer that was presumed dead.

A batch lease charges no deliveries: when it ends, all messages are as before.

A batch grows by several commands, so that each is short. It is *sealed* once it holds the messages asked for or no
more were available. Only then can it be read.

Messages of a group are delivered one at a time because several consumers could overtake each other. A batch has one
consumer, which reads in order and settles it as a whole. It therefore takes a group as far as there is room, one
message right behind the other. The messages behind them stay in the queue while one of them is leased.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..log import commands as log
from ..log.results import Delivered, RefusedError, shown
from ..owners.quotas import Kind, checked_owner
from ..queue.queue import PASSES_MAX, Queue
from ..queue.settlement_history import SettlementHistory
from ..state_view import StateView
from ..timers.idle_queues import IdleQueues
from ..timers.lease_expiry import LeaseExpiry
from .batch_lease import BatchLease, BatchState, Reserved, Subscription
from .deliveries import Deliveries
from .named_queues import named_queues, take_in_order

__all__ = ["BatchLeases"]

STEP_MAX = 10_000
"""Most messages that one command adds to a batch or puts back."""
_SETTLE_STEP = _RENEW_STEP = 100_000
_ROW_RUNS = 1_000
_INT_MAX = 1 << 62
_BLOCK = 100
"""Most consecutive messages that a pattern takes from one queue before it looks for the next that is due."""


class BatchLeases:
    """All subscriptions, the least recently used first.

    Attributes:
        subscriptions: by name.
        last_session: the session of the latest claim of any subscription.
    """

    BATCHES_MAX = 1_000
    COUNT_MAX = 100_000
    REMEMBER_US = 30 * 86_400 * 1_000_000
    """How long an unused subscription is remembered, with its settled epoch."""

    def __init__(
        self,
        state: StateView,
        deliveries: Deliveries,
        endings: SettlementHistory,
        lease_watch: LeaseExpiry,
        idle: IdleQueues,
    ) -> None:
        self._state = state
        self._deliveries = deliveries
        self._endings = endings
        self._lease_watch = lease_watch
        self._idle = idle
        self.subscriptions: OrderedDict[bytes, Subscription] = OrderedDict()
        self.last_session = 0

    # --- commands -------------------------------------------------------------------------------------------------

    def claim(self, command: log.Claim) -> int:
        """Begin a new session and end the previous one; create the subscription if needed.

        Raises:
            RefusedError: ``forbidden``, ``quota_exceeded``.
        """
        name, owner = _checked_name(command.subscription), command.owner
        subscription = self._owned(name, owner) or self._create(name, owner)
        self.last_session += 1
        subscription.session = self.last_session
        self._touch(name, subscription, owner)
        return subscription.session

    def reserve(self, command: log.Reserve) -> Reserved:
        """Lease messages for an epoch, continue a batch that is not sealed, or report the existing one.

        Raises:
            ValueError: an argument is out of range, or there are too many batches.
            RefusedError: ``fenced``, ``forbidden``, ``quota_exceeded``.
        """
        source, are_all = command.source, command.are_all
        if type(are_all) is not bool:
            raise ValueError("whether the queues are all must be true or false")
        # Before anything is changed: bad names must leave no trace.
        found = [] if isinstance(source, bytes) else named_queues(self._state, source)

        def take(batch: BatchLease, limit: int) -> bool:
            if isinstance(source, bytes):
                return not self._take(batch, limit, source)
            return self._take_first(batch, limit, found) and are_all

        user = (command.session, command.owner)
        return self._reserve(command.subscription, user, command.epoch, command.count, command.lease_us, take)

    def _reserve(
        self,
        name: bytes,
        user: tuple[int, bytes],
        epoch: int,
        count: int,
        lease_us: int,
        take: Callable[[BatchLease, int], bool],
    ) -> Reserved:
        """Extend the batch of an epoch by the messages that `take` finds; it returns True if there are no more.

        `user` is session and owner.
        """
        if _checked(count) > self.COUNT_MAX:
            raise ValueError(f"a batch may have at most {self.COUNT_MAX} messages")
        _checked(lease_us)
        _checked(epoch)
        subscription = self._use(name, *user)
        if epoch <= subscription.settled:
            return Reserved(BatchState.SETTLED, 0, True, 0)
        now_us = self._state.now_us
        batch = subscription.batches.get(epoch)
        if batch is None:
            if len(subscription.batches) >= self.BATCHES_MAX:
                raise ValueError(f"the subscription has {self.BATCHES_MAX} batches that are not settled, the limit")
            if epoch < max(subscription.batches, default=0):
                raise ValueError("a later epoch has been reserved already")
            batch = BatchLease(now_us + lease_us)
        elif batch.deadline_us <= now_us:
            return Reserved(BatchState.EXPIRED, batch.count, True, batch.deadline_us)
        if not batch.sealed:
            end = min(batch.count + STEP_MAX, count)
            is_dry = batch.count < end and not self._take_followers(batch, end) and take(batch, end - batch.count)
            batch.sealed = is_dry or batch.count >= count
        if not batch.count:
            subscription.batches.pop(epoch, None)
            if not subscription.batches and not subscription.settled and not subscription.session:
                self._delete(name)
            return Reserved(BatchState.EMPTY, 0, batch.sealed, 0)
        subscription.batches[epoch] = batch
        return Reserved(BatchState.LIVE, batch.count, batch.sealed, batch.deadline_us)

    def renew(self, command: log.Renew) -> tuple[int, int]:
        """Extend the leases of the live batches from an epoch on to `lease_us` from now.

        Returns:
            The number of these batches, and the epoch from which on the command must be repeated, 0 if it is done.

        Raises:
            ValueError: the lease is not a positive integer.
            RefusedError: ``fenced``, ``forbidden``.
        """
        lease_us, from_epoch = command.lease_us, command.from_epoch
        _checked(lease_us)
        subscription = self._found(command.subscription, command.session, command.owner)
        if subscription is None:
            return 0, 0
        self._touch(command.subscription, subscription, command.owner)
        now_us = self._state.now_us
        renewed = messages = 0
        for epoch, batch in subscription.batches.items():
            if epoch < from_epoch or batch.deadline_us <= now_us:
                continue
            if messages >= _RENEW_STEP:
                return renewed, epoch
            renewed += 1
            messages += batch.count
            batch.deadline_us = now_us + lease_us
            for queue_name, first, count in batch.runs:
                queue = self._state.existing(queue_name)
                if queue is not None:
                    queue.renew(now_us, first, count, batch.deadline_us)
                    # The lease may end earlier than before.
                    self._state.note_due(queue)
                    self._lease_watch.note(queue, batch.deadline_us)
        return renewed, 0

    def settle(self, command: log.SettleBatches) -> tuple[list[int], bool]:
        """Ack all batches up to an epoch.

        Returns:
            The epochs among them whose messages may be redelivered because leases had expired, and whether the
                command must be repeated
            for the rest.

        Raises:
            ValueError: the epoch is not a positive integer, or there are too many subscriptions.
            RefusedError: ``fenced``, ``forbidden``, ``quota_exceeded``.
        """
        epoch = command.epoch
        _checked(epoch)
        subscription = self._use(command.subscription, command.session, command.owner)
        subscription.settled = max(subscription.settled, epoch)
        expired: list[int] = []
        settled = 0
        for one in [one for one in subscription.batches if one <= epoch]:
            if settled >= _SETTLE_STEP:
                return expired, True
            batch = subscription.batches.pop(one)
            settled += batch.count
            unbroken = [self._ack(run) for run in batch.runs]
            if not all(unbroken):
                expired.append(one)
        return expired, False

    def abandon(self, command: log.AbandonBatches) -> bool | None:
        """Put the messages of all batches back, uncharged, and perhaps forget the subscription.

        A subscription that has settled nothing is deleted in either case, since it has no state to remember.

        Returns:
            Whether the command must be repeated for the rest; None if the subscription is to be forgotten and unknown.

        Raises:
            RefusedError: ``fenced``, ``forbidden``.
        """
        name, owner = command.subscription, command.owner
        if command.forgets:
            subscription = self._owned(_checked_name(name), owner)
            if subscription is None:
                return None
            # Fences off the current consumer until the deletion is complete.
            self.last_session += 1
            subscription.session = self.last_session
        else:
            subscription = self._found(name, command.session, owner)
            if subscription is None:
                return False
            self._touch(name, subscription, owner)
        self._put_back(subscription, STEP_MAX)
        if not subscription.batches and (command.forgets or not subscription.settled):
            self._delete(name)
        return bool(subscription.batches)

    # --- parts ----------------------------------------------------------------------------------------------------

    def _put_back(self, subscription: Subscription, left: int) -> int:
        """Put up to `left` messages of the latest batches back; return how many."""
        most = left
        while subscription.batches and left > 0:
            epoch = max(subscription.batches)
            batch = subscription.batches[epoch]
            # From now on it cannot be read.
            batch.sealed = False
            while batch.count and left > 0:
                queue_name, numbers = batch.drop(left)
                left -= len(numbers)
                self._deliveries.settle(queue_name, numbers, Queue.put_back_uncharged)
            if not batch.count:
                del subscription.batches[epoch]
        return most - left

    def _use(self, name: bytes, session: int, owner: bytes) -> Subscription:
        _checked_name(name)
        subscription = self._found(name, session, owner) or self._create(name, owner)
        self._touch(name, subscription, owner)
        return subscription

    def _owned(self, name: bytes, owner: bytes) -> Subscription | None:
        """Return the subscription if it belongs to the owner or has none.

        Raises:
            RefusedError: ``forbidden``.
        """
        subscription = self.subscriptions.get(name)
        if subscription is not None and not subscription.is_open_to(checked_owner(owner)):
            raise RefusedError(
                "forbidden",
                f"subscription {shown(name)} belongs to principal {shown(subscription.owner)}, not to {shown(owner)}; nothing "
                "was done; use a token of that principal",
            )
        return subscription

    def _found(self, name: bytes, session: int, owner: bytes) -> Subscription | None:
        """Return the subscription if the owner may use it in this session (0: none).

        Raises:
            RefusedError: ``fenced``, ``forbidden``.
        """
        subscription = self._owned(name, owner)
        if not self.may_use(name, session):
            raise RefusedError("fenced", f"subscription {name!r} {_taken_over(subscription)}; nothing was done")
        return subscription

    def _create(self, name: bytes, owner: bytes) -> Subscription:
        state = self._state
        checked_owner(owner)
        state.quotas.check(Kind.SUBSCRIPTIONS, owner)
        return self._add(name, owner)

    def _add(self, name: bytes, owner: bytes) -> Subscription:
        subscription = self.subscriptions[name] = Subscription(owner)
        self._state.quotas.take(Kind.SUBSCRIPTIONS, owner)
        return subscription

    def _delete(self, name: bytes) -> None:
        self._state.quotas.give(Kind.SUBSCRIPTIONS, self.subscriptions.pop(name).owner)

    def due_us(self) -> int | None:
        """Return the log time at which the next subscription is forgotten, None without subscriptions."""
        oldest = next(iter(self.subscriptions.values()), None)
        return None if oldest is None else oldest.used_us + self.REMEMBER_US

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` subscriptions that were not used for 30 days; return how many."""
        expired = 0
        while self.subscriptions and expired != limit:
            name, oldest = next(iter(self.subscriptions.items()))
            if oldest.used_us > now_us - self.REMEMBER_US:
                break
            # Their live leases expire by themselves.
            self._delete(name)
            expired += 1
        return expired

    def _touch(self, name: bytes, subscription: Subscription, owner: bytes) -> None:
        """Record a use. A subscription without an owner passes to the first owner that uses it, see `OwnedTable`."""
        if owner and not subscription.owner:
            self._state.quotas.give(Kind.SUBSCRIPTIONS, b"")
            self._state.quotas.take(Kind.SUBSCRIPTIONS, owner)
            subscription.owner = owner
        subscription.used_us = self._state.now_us
        self.subscriptions.move_to_end(name)
        self._state.expiry.at(subscription.used_us + self.REMEMBER_US)

    def _take(self, batch: BatchLease, limit: int, name: bytes) -> bool:
        """Lease up to `limit` messages of a queue; False if it has no more."""
        queue = self._state.queue(name)
        self._idle.pulled(queue)
        return self._take_from(batch, limit, queue)

    def _take_from(self, batch: BatchLease, limit: int, queue: Queue) -> bool:
        passed_before = queue.passed_over
        first = self._state.last_delivery + 1
        taken = self._deliveries.take_groups(queue, limit, batch.deadline_us)
        if taken:
            batch.add(queue.name, first, len(taken))
        return len(taken) == limit or queue.passed_over - passed_before >= PASSES_MAX

    def _take_followers(self, batch: BatchLease, end: int) -> bool:
        """Lease messages behind the last one of a batch in its group, up to `end` in all; return whether there may be more."""
        queue_name, first, count = batch.runs[-1] if batch.runs else (b"", 0, 0)
        queue = self._state.existing(queue_name)
        if queue is None or batch.count >= end:
            return False
        passed_before, number = queue.passed_over, self._state.last_delivery + 1
        limit = end - batch.count
        taken = self._deliveries.take_followers(queue, limit, batch.deadline_us, first + count - 1)
        if taken:
            batch.add(queue_name, number, len(taken))
        return len(taken) == limit or queue.passed_over - passed_before >= PASSES_MAX

    def _take_block(self, batch: BatchLease, end: int, queue: Queue) -> None:
        """Lease some messages of a queue; groups that they begin are taken whole."""
        self._take_from(batch, min(_BLOCK, end - batch.count), queue)
        self._take_followers(batch, end)

    def _take_first(self, batch: BatchLease, limit: int, queues: list[Queue]) -> bool:
        """Lease up to `limit` messages of these queues; return whether they have no more."""
        end = batch.count + limit

        def take(queue: Queue) -> int:
            self._take_block(batch, end, queue)
            return end - batch.count

        drops = take_in_order(queues, self._state.now_us, limit, take)
        return batch.count < end and drops < PASSES_MAX

    def _ack(self, run: list[Any]) -> bool:
        """Ack a run; return whether none of its messages can be redelivered."""
        queue_name, first, count = run
        queue = self._state.existing(queue_name)
        if queue is None:
            return True
        numbers = list(range(first, first + count))
        acked = queue.ack(self._state.now_us, numbers)
        if all(acked):
            return True
        leased, endings = queue.store.leases.messages, self._endings
        # Messages that were settled one by one, or went with an earlier queue of the name, are gone for good.
        return not any(
            number in leased or number <= endings.floor or endings.find(number) is not None
            for number, is_acked in zip(numbers, acked, strict=True)
            if not is_acked
        )

    # --- reading --------------------------------------------------------------------------------------------------

    def state(self, name: bytes, epoch: int) -> BatchState:
        """Return the state of an epoch; an epoch that is unknown or incomplete is empty."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            return BatchState.EMPTY
        if epoch <= subscription.settled:
            return BatchState.SETTLED
        batch = subscription.batches.get(epoch)
        if batch is None or not batch.sealed:
            return BatchState.EMPTY
        return BatchState.LIVE if batch.deadline_us > self._state.now_us else BatchState.EXPIRED

    def may_use(self, name: bytes, session: int) -> bool:
        """Return whether a consumer of this session (0: none) may use the subscription."""
        subscription = self.subscriptions.get(name)
        return session == (0 if subscription is None else subscription.session)

    def read(self, name: bytes, epoch: int, start: int, count: int) -> list[Delivered] | None:
        """Return deliveries from position `start` on of a live batch; None if one of them is not leased any more."""
        found = self.look(name, epoch, start, count)
        delivered = [one for one in found if one[3] is not None]
        return delivered if len(delivered) == len(found) else None

    def look(self, name: bytes, epoch: int, start: int, count: int) -> list[Any]:
        """Return deliveries like `read`, but with None for each message that is not leased any more.

        Their remaining deliveries are reported as if this delivery were charged.
        """
        batch = self.subscriptions[name].batches[epoch]
        found: list[Any] = []
        for queue_name, first, length in batch.slice(start, count):
            queue = self._state.queues.get(queue_name)
            leased = {} if queue is None else queue.store.leases.messages
            for number in range(first, first + length):
                message = leased.get(number)
                remaining = 0 if message is None else message.remaining - 1
                found.append((queue_name, number, remaining, message))
        return found

    # --- snapshots ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, least recently used first; it may change while the rows are read."""
        frozen: list[list[object]] = []
        for name, subscription in self.subscriptions.items():
            head = [name, subscription.owner, subscription.session, subscription.settled, subscription.used_us]
            frozen.append([*head, 0, 0, 0, []])
            for epoch, batch in subscription.batches.items():
                for start in range(0, len(batch.runs), _ROW_RUNS):
                    runs = [list(run) for run in batch.runs[start : start + _ROW_RUNS]]
                    frozen.append([*head, epoch, batch.deadline_us, int(batch.sealed), runs])
        return iter(frozen)

    def load(self, rows: Iterable[tuple[bytes, bytes, int, int, int, int, int, int, list[Any]]]) -> None:
        """Add the rows of a snapshot, in the order they were written."""
        for name, owner, session, settled, used_us, epoch, deadline_us, sealed, runs in rows:
            subscription = self.subscriptions.get(name) or self._add(name, owner)
            subscription.session, subscription.settled, subscription.used_us = session, settled, used_us
            if epoch:
                batch = subscription.batches.setdefault(epoch, BatchLease(deadline_us))
                batch.sealed = bool(sealed)
                for queue, first, count in runs:
                    batch.add(queue, _checked(first), _checked(count))


def _taken_over(subscription: Subscription | None) -> str:
    if subscription is None:
        return "is not known any more: it was deleted, or not used for 30 days"
    return "was taken over by a later consumer" if subscription.session else "was deleted and recreated"


def _checked_name(name: bytes) -> bytes:
    if type(name) is not bytes or not 0 < len(name) <= 255:
        raise ValueError("a subscription's name must have 1 to 255 bytes")
    return name


def _checked(number: int) -> int:
    if type(number) is not int or not 0 < number < _INT_MAX:
        raise ValueError("a count, an epoch and a lease must be positive integers of 62 bits")
    return number
