"""Calls of the asynchronous client for batch leases."""

from __future__ import annotations

from asyncio import Future
from typing import Any

from ..batches import Backlog, BatchColumns, BatchLease, ClosedQueue, QueueBacklog
from ..transport.calls import Call
from ..transport.replies import name_text
from ..transport.requests import Name, name_bytes, request_body
from .call_base import CallBase, mappings, ok, optional_mapping

__all__ = ["BatchCalls"]


class BatchCalls(CallBase):
    """Subscriptions, their batches, and looking into queues."""

    def reserve_batch(
        self,
        subscription: Name,
        epoch: int,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        count: int,
        lease_s: float = 86_400.0,
        session: int | None = None,
    ) -> Future[BatchLease]:
        """Lease many messages together, for an epoch of a subscription.

        The same epoch returns the same batch again, through any node and after any crash, until it is settled, abandoned or its
        lease ends. Other consumers pull the rest of the queue meanwhile.

        Args:
            subscription: name of the consumer, 1 to 255 bytes.
            epoch: number of the batch; each new one must be higher than all before it.
            queue: take from this queue;
            pattern: or from all queues whose names match this regular expression (RE2).
            count: most messages to take, 1 to 100,000; none are waited for.
            lease_s: seconds until the messages go back to their queues unless they are settled. That costs no retry.
            session: what `claim_subscription` gave, if the subscription was claimed.

        Raises:
            ValueError: not exactly one of `queue` and `pattern` is given.
            LmqError: awaited: ``bad_request``, ``bad_name``, ``bad_pattern``; ``fenced`` if it is not the session of the latest
                claim; ``quota_exceeded``.
        """
        source, is_pattern = _source(queue, pattern)
        options = {"pattern": is_pattern, "count": count, "lease": lease_s}
        if session is not None:
            options["session"] = session
        arguments = [name_bytes(subscription), epoch, source, options]

        def decode(reply: Any) -> BatchLease:
            state, size, left_s = reply
            return BatchLease(name_text(name_bytes(subscription)), epoch, name_text(state), size, left_s)

        return self._call(Call, request_body(b"reserve_batch", arguments), decode)

    def claim_subscription(self, subscription: Name) -> Future[int]:
        """Take a subscription over: from now on its calls need the session that this gives, and all sessions before fail.

        The batches stay; so the next consumer that claims goes on where the one before stopped.

        Returns:
            Awaited: the session.

        Raises:
            LmqError: awaited: ``bad_name``, ``quota_exceeded``.
        """
        return self._call(Call, request_body(b"claim_subscription", [name_bytes(subscription)]), int)

    def delete_subscription(self, subscription: Name) -> Future[str]:
        """Give all batches back as `abandon_batches` does, and forget the subscription, also if another consumer has claimed it.

        Awaited: ``"ok"``, also if there was none.
        """
        return self._call(Call, request_body(b"delete_subscription", [name_bytes(subscription)]), ok)

    def read_batch(
        self,
        subscription: Name,
        epoch: int,
        start: int,
        count: int,
        *,
        session: int | None = None,
        details: bool = False,
        skip_lost: bool = False,
    ) -> Future[BatchColumns]:
        """Messages of a batch from position `start` on: up to `count`, but no more than 10,000 and about 16 MiB.

        It changes nothing, so several readers can read slices of one batch, again and again. With `details` the columns hold
        `BatchColumns.details` too. With `skip_lost` messages that are not leased any more are left out and counted; otherwise
        one is an error. The next slice begins at `BatchColumns.next`.

        Raises:
            LmqError: awaited: ``lease_expired`` if the batch is not live any more, ``batch_not_found`` if there is none,
                ``lease_lost`` if messages of it are gone, such as those of a deleted queue.
        """
        arguments = [name_bytes(subscription), epoch, start, count, session, details, skip_lost]
        return self._call(Call, request_body(b"read_batch", arguments), BatchColumns)

    def cut_batch(self, subscription: Name, epoch: int, parts: int) -> Future[list[int]]:
        """Where several readers may begin to read a batch: no group is cut, so that each reader keeps the order of groups.

        Returns:
            Awaited: the positions, the first of them 0; fewer than `parts` (1 to 10,000) if groups are large, none if the batch
            is not live.
        """
        return self._call(Call, request_body(b"cut_batch", [name_bytes(subscription), epoch, parts]), list)

    def incarnation(self) -> Future[str]:
        """The name of the cluster's present life.

        It is another one after the cluster was restored from a backup, or has lost the end of its log. Sequences and epochs of
        an earlier life may be given again then. Ids of messages begin with it.
        """
        return self._call(Call, request_body(b"incarnation", []), name_text)

    def renew_batches(
        self, subscription: Name, lease_s: float = 86_400.0, *, session: int | None = None
    ) -> Future[int]:
        """Let all live batches of a subscription end `lease_s` seconds from now. Awaited: how many there are."""
        arguments = [name_bytes(subscription), lease_s, *_given(session)]
        return self._call(Call, request_body(b"renew_batches", arguments), int)

    def settle_batches(self, subscription: Name, epoch: int, *, session: int | None = None) -> Future[list[int]]:
        """Ack all batches of a subscription up to an epoch. May come late and be repeated.

        Returns:
            Awaited: the epochs among them whose leases had ended, so that messages of theirs may be delivered again.
        """
        return self._call(
            Call, request_body(b"settle_batches", [name_bytes(subscription), epoch, *_given(session)]), list
        )

    def abandon_batches(self, subscription: Name, *, session: int | None = None) -> Future[str]:
        """Give all batches of a subscription back: their messages return to their places without a charged retry.

        A subscription that has settled nothing is deleted then.
        """
        return self._call(Call, request_body(b"abandon_batches", [name_bytes(subscription), *_given(session)]), ok)

    def subscription(self, name: Name) -> Future[dict[str, Any] | None]:
        """What is known of a subscription.

        Returns:
            Awaited: ``owner``, ``session`` (None if it was never claimed), ``settled`` (the highest settled epoch) and
            ``batches``, each with ``epoch``, ``state``, ``count`` and ``expires_in_s``; None if it is not known.
        """
        return self._call(Call, request_body(b"subscription", [name_bytes(name)]), optional_mapping)

    def subscriptions(self) -> Future[list[dict[str, Any]]]:
        """All subscriptions, as `subscription` shows them, with their ``name``."""
        return self._call(Call, request_body(b"subscriptions", []), mappings)

    def backlog(
        self,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        bytes_max: int | None = None,
        queues_max: int | None = None,
    ) -> Future[Backlog]:
        """What can be pulled now from a queue, or from all queues whose names match.

        Args:
            queue: this queue;
            pattern: or those that this regular expression (RE2) finds.
            bytes_max: ask also how many of the first messages have about so many bytes.
            queues_max: ask also for the bytes, and for so many of the queues with most messages; at most 100.

        Raises:
            ValueError: not exactly one of `queue` and `pattern` is given.
        """
        wanted = [bytes_max, queues_max] if queues_max is not None else _given(bytes_max)
        return self._call(Call, request_body(b"backlog", [*_source(queue, pattern), *wanted]), _backlog)

    def peek(
        self,
        queue: Name,
        count: int,
        start_sequence: int = 0,
        *,
        end_sequence: int | None = None,
        due_from_us: int | None = None,
        due_to_us: int | None = None,
        details: bool = False,
        bodies: bool = True,
    ) -> Future[BatchColumns]:
        """Look at messages that are not leased, in order of their sequence from `start_sequence` on, without taking them.

        At most 10,000 and about 16 MiB come at once. The list goes on at `BatchColumns.next`, which is None at its end; a page
        can have fewer messages than `count` before that, or none.

        Args:
            queue: its name.
            count: most messages in the page.
            start_sequence: the lowest sequence.
            end_sequence: the list ends before it.
            due_from_us: only messages that became due at this log time or later.
            due_to_us: only messages that became due before this log time.
            details: fill `BatchColumns.details`.
            bodies: False leaves them out: `BatchColumns.bodies` has empty ones.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        options = {
            "end": end_sequence,
            "due_from": due_from_us,
            "due_to": due_to_us,
            "details": details or None,
            "bodies": None if bodies else False,
        }
        given = {name: value for name, value in options.items() if value is not None}
        arguments = [name_bytes(queue), count, start_sequence, *([given] if given else [])]
        return self._call(Call, request_body(b"peek", arguments), BatchColumns)

    def peek_ranges(self, queue: Name, range_bytes: int, ranges_min: int = 1) -> Future[list[int]]:
        """Divide a queue into ranges of sequences that can be listed side by side with `peek`.

        Args:
            queue: its name.
            range_bytes: size of a range, about, with 300 bytes for each message beside its body. There are at most 1,000 ranges.
            ranges_min: least ranges, as far as there are messages; at most 1,000.

        Returns:
            Awaited: the first sequence of each range, in order, and the end of the last one, which is behind all messages that
            the queue has now.

        Raises:
            LmqError: awaited: ``queue_not_found``.
        """
        return self._call(Call, request_body(b"peek_ranges", [name_bytes(queue), range_bytes, ranges_min]), list)


def _backlog(reply: list[Any]) -> Backlog:
    messages, oldest_due_us, fitting, held, closed, body_bytes, queues = [*reply, None, None][:7]
    rows = [QueueBacklog(name_text(name), *row) for name, *row in queues or ()]
    closed_queues = [ClosedQueue(name_text(name), name_text(reason), count) for name, reason, count in closed]
    return Backlog(messages, oldest_due_us, fitting, body_bytes, rows, held, closed_queues)


def _given(session: int | None) -> list[int]:
    return [] if session is None else [session]


def _source(queue: Name | None, pattern: Name | None) -> tuple[bytes, bool]:
    """A queue's name or a pattern, and whether it is a pattern."""
    if queue is not None and pattern is None:
        return name_bytes(queue), False
    if pattern is not None and queue is None:
        return name_bytes(pattern), True
    raise ValueError("give either a queue or a pattern")
