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
    """Subscriptions, their batches, backlogs and peeks."""

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

        The same epoch returns the same batch again, through any node and after any crash, until the batch is settled, abandoned
        or its lease expires. Other consumers can pull the rest of the queue at the same time.

        Args:
            subscription: name of the consumer, 1 to 255 bytes.
            epoch: number of the batch; each new one must be higher than all before it.
            queue: take from this queue;
            pattern: or from all queues whose names match this regular expression (RE2).
            count: maximum number of messages, 1 to 100,000; the call does not wait for messages.
            lease_s: seconds after which unsettled messages return to their queues, which costs no retry.
            session: the result of `claim_subscription`, if the subscription was claimed.

        Raises:
            ValueError: not exactly one of `queue` and `pattern` is given.
            LmqError: awaited: ``bad_request``, ``bad_name``, ``bad_pattern``; ``fenced`` if the session is not that of the latest
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
        """Take over a subscription: its later calls require the new session, and calls with an earlier one fail.

        The batches stay, so the consumer that claims continues where the one before stopped.

        Returns:
            Awaited: the session.

        Raises:
            LmqError: awaited: ``bad_name``, ``quota_exceeded``.
        """
        return self._call(Call, request_body(b"claim_subscription", [name_bytes(subscription)]), int)

    def delete_subscription(self, subscription: Name) -> Future[str]:
        """Abandon all batches like `abandon_batches`, and delete the subscription, also if another consumer has claimed it.

        Awaited: ``"ok"``, also if it did not exist.
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
        """Read messages of a batch from position `start`, up to `count`, at most 10,000 and about 16 MiB.

        The call is read-only, so several readers can read slices of one batch, any number of times. With `details`, the columns
        include `BatchColumns.details`. With `skip_lost`, messages that are no longer leased are skipped and counted; otherwise
        the first one is an error. The next slice begins at `BatchColumns.next`.

        Raises:
            LmqError: awaited: ``lease_expired`` if the batch is no longer live, ``batch_not_found`` if there is none,
                ``lease_lost`` if it has lost messages, such as those of a deleted queue.
        """
        arguments = [name_bytes(subscription), epoch, start, count, session, details, skip_lost]
        return self._call(Call, request_body(b"read_batch", arguments), BatchColumns)

    def cut_batch(self, subscription: Name, epoch: int, parts: int) -> Future[list[int]]:
        """Divide a batch between several readers without splitting a group, so that each reader keeps the order of groups.

        Returns:
            Awaited: the start positions, the first of them 0; fewer than `parts` (1 to 10,000) if groups are large, none if the
            batch is not live.
        """
        return self._call(Call, request_body(b"cut_batch", [name_bytes(subscription), epoch, parts]), list)

    def incarnation(self) -> Future[str]:
        """Return the name of the cluster's current incarnation.

        It changes if the cluster is restored from a backup, or loses the end of its log. The cluster may then reuse sequences and
        epochs of an earlier incarnation. Ids of messages begin with the incarnation.
        """
        return self._call(Call, request_body(b"incarnation", []), name_text)

    def renew_batches(
        self, subscription: Name, lease_s: float = 86_400.0, *, session: int | None = None
    ) -> Future[int]:
        """Extend the leases of all live batches of a subscription, to `lease_s` seconds from now. Awaited: their number."""
        arguments = [name_bytes(subscription), lease_s, *_given(session)]
        return self._call(Call, request_body(b"renew_batches", arguments), int)

    def settle_batches(self, subscription: Name, epoch: int, *, session: int | None = None) -> Future[list[int]]:
        """Ack all batches of a subscription up to an epoch. Idempotent, at any later time.

        Returns:
            Awaited: the epochs among them whose leases had expired, so that their messages may be redelivered.
        """
        return self._call(
            Call, request_body(b"settle_batches", [name_bytes(subscription), epoch, *_given(session)]), list
        )

    def abandon_batches(self, subscription: Name, *, session: int | None = None) -> Future[str]:
        """Abandon all batches of a subscription: their messages return to their places without charging a retry.

        If the subscription has never settled a batch, it is deleted.
        """
        return self._call(Call, request_body(b"abandon_batches", [name_bytes(subscription), *_given(session)]), ok)

    def subscription(self, name: Name) -> Future[dict[str, Any] | None]:
        """Return the state of a subscription.

        Returns:
            Awaited: ``owner``, ``session`` (None if it was never claimed), ``settled`` (the highest settled epoch) and
            ``batches``, each with ``epoch``, ``state``, ``count`` and ``expires_in_s``; None if it is unknown.
        """
        return self._call(Call, request_body(b"subscription", [name_bytes(name)]), optional_mapping)

    def subscriptions(self) -> Future[list[dict[str, Any]]]:
        """List all subscriptions, each as `subscription` returns it with its ``name``."""
        return self._call(Call, request_body(b"subscriptions", []), mappings)

    def backlog(
        self,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        bytes_max: int | None = None,
        queues_max: int | None = None,
    ) -> Future[Backlog]:
        """Count the messages that can be pulled now from a queue, or from all queues whose names match.

        Args:
            queue: this queue;
            pattern: or all queues whose names match this regular expression (RE2).
            bytes_max: request also the number of first messages that have about this many bytes.
            queues_max: request also the bytes, and this many of the queues with the most messages; at most 100.

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
        """Return messages that are not leased, in order of sequence from `start_sequence`, without taking them.

        A page has at most 10,000 messages and about 16 MiB. The next page starts at `BatchColumns.next`, which is None at the
        end. An earlier page can also have fewer messages than `count`, or none.

        Args:
            queue: name of the queue.
            count: maximum number of messages in the page.
            start_sequence: the lowest sequence.
            end_sequence: the list ends before it.
            due_from_us: only messages that became due at this log time (microseconds since 1970) or later.
            due_to_us: only messages that became due before this log time.
            details: fill `BatchColumns.details`.
            bodies: False omits the bodies: `BatchColumns.bodies` has empty ones.

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
        """Divide a queue into ranges of sequences that can be listed in parallel with `peek`.

        Args:
            queue: name of the queue.
            range_bytes: approximate size of a range, with 300 bytes for each message in addition to its body. There are at most
                1,000 ranges.
            ranges_min: minimum number of ranges, if there are enough messages; at most 1,000.

        Returns:
            Awaited: the first sequence of each range, in order, and the end of the last one, which is after all current messages
            of the queue.

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
    """Return a queue's name or a pattern, and whether it is a pattern."""
    if queue is not None and pattern is None:
        return name_bytes(queue), False
    if pattern is not None and queue is None:
        return name_bytes(pattern), True
    raise ValueError("give either a queue or a pattern")
