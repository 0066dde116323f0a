"""Streaming reads, exactly once into any sink that tolerates a repeated micro-batch.

A micro-batch is a batch lease: a set of messages that the cluster keeps for this *subscription* under an *epoch*, always the
same in the same order, until it is settled or its lease expires. Spark's checkpoint holds the offset (subscription, epoch); the
cluster holds the messages. Each micro-batch goes like this:

1. ``latestOffset(start)``: all of `start` is in Spark's commit log, because Spark plans one micro-batch after the other. It is
   settled: its messages are removed for good. Then the next epoch is reserved.
2. Spark writes the new offset to its offset log.
3. ``commit(start)``: settles again, which changes nothing.
4. ``partitions``: the batch is cut into slices, which tasks read, on any executor, as often as Spark likes.
5. The sink commits, and Spark writes the epoch to its commit log.

What a crash of the driver leaves behind, by the moment it happens:

- *During 1, before settling*: the restarted query calls ``latestOffset`` with the same `start`, and settles then.
- *Between 1 and 2*: an epoch is reserved that no log knows. The restarted query asks for the epoch after `start`, which is
  this one: the cluster answers with the batch it has. If its lease has expired meanwhile, its messages have gone
  back to their queues; the epoch is passed over and they come in the next. Nothing is lost or doubled, as Spark never saw them.
- *The same with a random subscription and an empty checkpoint*: nobody knows the subscription's name any more. The first
  reservation of a random subscription therefore has a lease of at most 2 minutes, which is renewed to the whole one
  a second later, when Spark has written the name into its log.
- *Between 2 and 5*: Spark plans the same micro-batch again, and reads the same messages in the same order.
- *Within 5, after the sink's commit and before the commit log*: likewise; the sink knows a repetition by its number.
- *After 5, before the next 1*: the batch stays leased until the query runs again, or until the lease expires: see below.
- *A task or an executor*: Spark runs the task again, which reads the same slice.

A node of the cluster that dies is not noticed, except as a pause: every call goes on through another node.

Leases last ``lmq.lease`` seconds (default one day) and are renewed while the query runs. A query that is stopped for longer
loses them; the messages go back to their places in the queues, without a charged delivery, and come again in a later
epoch. Where that cannot double anything the query goes on. Where a planned batch has expired it may (the sink may have it),
so that the query fails with `DataLossError`, or with ``failOnDataLoss`` = false logs what it skips.

A new checkpoint with the name of an older subscription goes on where that one was settled: batches that are still under
lease come first, as they were reserved. To have them back in their queues instead, abandon them with the client
(``abandon_batches``). An old checkpoint whose next epochs were settled through another one has lost them: `DataLossError`.

The offset names the cluster's incarnation. When it is another one the cluster has gone back to an earlier state, and knows
nothing of what happened since: `DataLossError`, before anything is settled. Batches that were reserved before that state are
still there with the messages that they had, so that a query that goes on settles them as usual.

A batch takes groups whole, and no slice begins within a group: tasks keep the order of groups.

A subscription serves one query, which claims it when it first uses it: one that used it before is fenced by the cluster,
and fails with `TakenOverError` at its next call, on the driver or in a task. Asynchronous progress tracking, which starts a
micro-batch before the last one is in the commit log, must not be used. Messages that others have pulled and that come back to
the queue are read then; those that are delayed are read when they are due.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from lmqcluster.client import Backlog, BatchLease, ClosedQueue

from .errors import DataLossError, ExclusiveQueueError, LeftBehindError
from .lag import QUEUES_MAX, lag
from .losses import expired_unsettled, restored, settled_elsewhere, unknown, unreadable
from .offsets import Offset
from .options import BATCH_MESSAGES_MAX, StreamRead
from .rows import RowMaker
from .slices import Slice, read_slice
from .subscription import LeaseKeeper

__all__ = ["StreamReader"]

logger = logging.getLogger("lmqcluster.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. Spark makes it on the driver, where it connects when it is first used, and copies it to the tasks."""

    def __init__(self, options: StreamRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._name = options.subscription or f"spark-{uuid.uuid4()}"
        self._keeper: LeaseKeeper | None = None
        self._planned = False
        """Whether the subscription's name is safe in the checkpoint."""
        self._kept = False
        self._started = False
        self._waits_since_s: float | None = None
        self._settled = 0
        self._life = ""
        """The cluster's incarnation, once the query has gone on although it is not that of the checkpoint."""
        self._closed: Sequence[ClosedQueue] = ()
        self._skipped: set[int] = set()
        self._left: int | None = None
        """With Trigger.AvailableNow: how many of the messages that were there at the start are still to be reserved."""

    # --- where the query stands -----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a query without a checkpoint."""
        settled = 0 if self._options.subscription is None else self._driver.known(self._name).settled
        return Offset.initial(self._name, settled, self._options.selection, self._driver.incarnation()).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most ``maxOffsetsPerTrigger`` messages, and about ``maxBytesPerTrigger`` bytes, see `latestOffset`."""
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read as many messages as are there now, and no more.

        A queue has no positions: when others pull some of these, as many newer ones may be read in their place. Messages
        whose leases have ended are not counted, but one micro-batch of them is read where there is nothing else.
        """
        backlog = self._driver.backlog()
        self._left = _present(backlog) or _readable(backlog, if_unknown=self._options.messages_max)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """For the query's progress: the messages that could be read now, see `lag`."""
        return lag(self._driver.backlog(queues_max=QUEUES_MAX), time.time())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Settle what ended at `start` and reserve the next batch.

        Returns:
            The end of the new batch, or `start` if there is nothing to read.

        Raises:
            DataLossError: messages were delivered to others or may come twice, or the cluster was restored, and
                ``failOnDataLoss`` is set.
            ExclusiveQueueError: a query cannot read a queue that ``subscribe`` names.
            LeftBehindError: the query is about to end and cannot read all that it should.
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
            OptionError: the checkpoint is that of another subscription.
        """
        begin = self._parse(start)
        self._check_life(begin)
        self._settle(begin)
        leases = self._reserve(begin, limit)
        if not leases:
            self._check_left()
            return start
        epochs = leases[-1].epoch, leases[0].epoch
        return Offset(begin.subscription, *epochs, self._options.selection, self._life or begin.incarnation).json()

    def commit(self, end: dict[str, Any]) -> None:
        """Settle everything up to `end`.

        Raises:
            DataLossError: see `latestOffset`.
        """
        done = self._parse(end)
        self._check_life(done)
        self._settle(done)

    def stop(self) -> None:
        """Disconnect. What is reserved stays reserved, for the query to take up again."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    # --- reading --------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The slices of a planned micro-batch.

        Raises:
            DataLossError: the batch has expired, or was settled already, and ``failOnDataLoss`` is set.
            LmqError: the cluster did not answer.
        """
        last, batch = self._parse(start), self._parse(end)
        if (batch.subscription, batch.epoch) == (last.subscription, last.epoch):
            return []
        self._check_life(batch)
        self._keep_planned(batch.subscription)
        known = self._driver.known(batch.subscription)
        slices: list[InputPartition] = []
        for epoch in batch.epochs:
            state = known.state(epoch)
            if state == "live":
                count = known.batches[epoch].count
                slices += self._driver.slices(batch.subscription, epoch, count, self._options.partitions_min)
            else:
                self._lose(unreadable(batch.subscription, epoch, state))
                self._skipped.add(epoch)
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, on an executor."""
        if not isinstance(partition, Slice):
            raise TypeError(f"not a slice of a batch: {partition!r}")
        rows = RowMaker(self._schema, explode=self._options.explode)
        return read_slice(partition, self._options.connection, rows, fail_on_data_loss=self._options.fail_on_data_loss)

    # --- on the driver --------------------------------------------------------------------------------------------

    @property
    def _driver(self) -> LeaseKeeper:
        if self._keeper is None:
            self._keeper = LeaseKeeper(self._options.connection, self._options.selection, self._options.lease_s)
        return self._keeper

    def _parse(self, offset: Mapping[str, Any]) -> Offset:
        parsed = Offset.parse(offset)
        parsed.check(self._options.subscription, self._options.selection)
        if parsed.subscription != self._name:
            # From a checkpoint, where the name is safe.
            self._name, self._planned = parsed.subscription, True
        return parsed

    def _check_life(self, offset: Offset) -> None:
        """Report a cluster that is not in the life of the offset any more."""
        incarnation = self._driver.incarnation()
        if incarnation in (offset.incarnation, self._life):
            return
        self._lose(restored(offset.epoch, offset.incarnation, incarnation))
        self._life, self._settled, self._kept = incarnation, 0, False
        self._driver.begin_again()

    def _keep_planned(self, subscription: str) -> None:
        """See to it that the leases are whole and stay alive, also those of a batch that an earlier run has planned."""
        self._planned = True
        if not self._kept:
            self._kept = True
            self._driver.extend(subscription)

    def _settle(self, done: Offset) -> None:
        if done.epoch <= self._settled:
            return
        known = self._driver.known(done.subscription)
        if known.settled > done.epoch:
            self._lose(settled_elsewhere(done.subscription, done.epoch + 1, known.settled))
        for epoch in done.epochs:
            if known.state(epoch) == "unknown":
                self._lose(unknown(done.subscription, epoch))
        # Looked for before settling, which forgets them: the query fails again when it is restarted without a change.
        expired = {epoch for epoch in done.epochs if known.state(epoch) == "expired"} - self._skipped
        for epoch in sorted(expired):
            self._lose(expired_unsettled(done.subscription, epoch))
        settled = self._driver.settle(done.subscription, done.epoch)
        for epoch in sorted(set(done.epochs).intersection(settled) - expired - self._skipped):
            self._lose(expired_unsettled(done.subscription, epoch))
        self._settled = done.epoch

    def _reserve(self, begin: Offset, limit: ReadLimit) -> list[BatchLease]:
        """The batches of the next micro-batch: one, or without a limit as many as it takes."""
        leftover = 0 if self._started else self._leftover(begin)
        if self._left is not None and not self._started:
            self._left += leftover
        self._started = True
        backlog = self._driver.backlog(self._options.bytes_max)
        self._check_open(backlog)
        ready = _readable(backlog, if_unknown=BATCH_MESSAGES_MAX) + leftover
        if not self._is_enough(ready):
            return []
        single = isinstance(limit, ReadMaxRows)
        wanted = min(limit.max_rows, backlog.fitting or limit.max_rows) if isinstance(limit, ReadMaxRows) else ready
        if self._left is not None:
            wanted = min(wanted, self._left)
        leases: list[BatchLease] = []
        # A reservation is written to the cluster's log, also one that finds nothing: an idle query should not write.
        while ready and wanted > 0 and not (single and leases):
            lease = self._next(begin.subscription, leases[-1].epoch if leases else begin.epoch, wanted)
            if lease is None:
                break
            leases.append(lease)
            wanted -= lease.count
        if self._left is not None:
            self._left -= sum(lease.count for lease in leases)
        return leases

    def _check_open(self, backlog: Backlog) -> None:
        """Report queues that hand out nothing: an exclusive one that the query names is an error, all others are logged."""
        selected = self._options.selection.queues
        for one in backlog.closed:
            if one.reason == "exclusive" and one.queue in selected:
                raise ExclusiveQueueError(one.queue)
        before = {(one.queue, one.reason) for one in self._closed}
        for one in backlog.closed:
            if (one.queue, one.reason) not in before:
                logger.warning("queue %r is %s: nothing is read from it meanwhile", one.queue, one.reason)
        self._closed = backlog.closed

    def _check_left(self) -> None:
        """Report what a query leaves behind that is about to end, because nothing more can be reserved."""
        if not self._left:
            return
        backlog = self._driver.backlog()
        left = min(self._left, backlog.held + sum(one.messages for one in backlog.closed))
        if left:
            raise LeftBehindError(left, _reasons(backlog))

    def _is_enough(self, ready: int) -> bool:
        """Whether there is enough for a micro-batch, or its time has come; all that is there is enough for AvailableNow."""
        if self._left is None and 0 < ready < self._options.messages_min:
            now_s = time.monotonic()
            if self._waits_since_s is None:
                self._waits_since_s = now_s
            if now_s - self._waits_since_s < self._options.delay_s_max:
                return False
        self._waits_since_s = None
        return True

    def _leftover(self, begin: Offset) -> int:
        """Messages in batches that an earlier run of the query reserved and did not plan."""
        known = self._driver.known(begin.subscription)
        return sum(
            batch.count for epoch, batch in known.batches.items() if batch.state == "live" and epoch > begin.epoch
        )

    def _next(self, subscription: str, after: int, count: int) -> BatchLease | None:
        """The first batch after an epoch that can be read; None if there is nothing."""
        epoch = after + 1
        while True:
            provisional = self._options.subscription is None and not self._planned
            lease = self._driver.reserve(subscription, epoch, min(count, BATCH_MESSAGES_MAX), provisional=provisional)
            if lease.state == "live":
                return lease
            if lease.state == "empty":
                return None
            if lease.state == "settled":
                settled = self._driver.known(subscription).settled
                self._lose(settled_elsewhere(subscription, epoch, settled))
                epoch = settled + 1
            else:
                # Reserved once, but never planned: its messages are in their queues again and nobody has seen them.
                logger.info("batch %d of subscription %r expired before it was planned", epoch, subscription)
                epoch += 1
                if self._left is not None:
                    # The backlog did not count them.
                    self._left += lease.count

    def _lose(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        logger.warning("%s Skipped.", loss)


def _present(backlog: Backlog) -> int:
    """How many messages there are that nobody holds, whether or not they can be reserved now."""
    suspended = sum(one.messages for one in backlog.closed if one.reason == "suspended")
    return backlog.messages + backlog.held + suspended


def _readable(backlog: Backlog, *, if_unknown: int) -> int:
    """How many messages can be reserved; messages whose leases have ended are not counted, but known to be there."""
    # Nothing of an exclusive queue is the oldest message, although its messages count.
    return 0 if backlog.oldest_due_us is None else backlog.messages + backlog.held or if_unknown


def _reasons(backlog: Backlog) -> str:
    """Why there are messages that cannot be reserved."""
    reasons = [f"queue {one.queue!r} is {one.reason} ({one.messages} messages)" for one in backlog.closed]
    if backlog.held:
        reasons.insert(0, f"{backlog.held} wait behind messages of their groups that others hold, or that are delayed")
    return "; ".join(reasons)
