"""Streaming reads, exactly once into any sink that tolerates a repeated micro-batch.

A micro-batch is a batch lease: a set of messages that the cluster reserves for this *subscription* under an *epoch*, always
the same in the same order, until it is settled or its lease expires. Spark's checkpoint holds the offset (subscription,
epoch); the cluster holds the messages. The steps of a micro-batch:

1. ``latestOffset(start)``: everything up to `start` is in Spark's commit log, because Spark plans one micro-batch after the
   other. The reader settles it, which removes its messages for good, and reserves the next epoch.
2. Spark writes the new offset to its offset log.
3. ``commit(start)``: settles again, a no-op.
4. ``partitions``: the batch is cut into slices, which tasks read, on any executor, any number of times.
5. The sink commits, and Spark writes the epoch to its commit log.

Recovery from a crash of the driver, by its moment:

- *During 1, before settling*: the restarted query calls ``latestOffset`` with the same `start`, and settles then.
- *Between 1 and 2*: an epoch is reserved that no log knows. The restarted query asks for the epoch after `start`, and the
  cluster returns the batch reserved for it. If its lease has expired, its messages are back in their queues; the epoch is
  skipped and the next one has them. Nothing is lost or duplicated, as Spark never saw them.
- *The same with a random subscription and an empty checkpoint*: the subscription's name is lost. The first reservation of a
  random subscription therefore has a lease of at most 2 minutes. It is extended to the full lease a second later, when Spark
  has written the name to its log.
- *Between 2 and 5*: Spark plans the same micro-batch again, and reads the same messages in the same order.
- *Within 5, after the sink's commit and before the commit log*: likewise; the sink recognises a repetition by its number.
- *After 5, before the next 1*: the batch stays leased until the query runs again or the lease expires, see below.
- *A task or an executor*: Spark runs the task again, which reads the same slice.

The failure of a node of the cluster only causes a pause: every call continues through another node.

Leases last ``lmq.lease`` seconds (default one day) and are renewed while the query runs. A query that is stopped for longer
loses them: the messages return to their positions in the queues, without counting a delivery, and follow in a later epoch.
Where that cannot duplicate anything, the query continues. If a planned batch has expired, it can (the sink may have the
batch), so the query fails with `DataLossError`, or with ``failOnDataLoss`` = false logs what it skips.

A new checkpoint with the name of an existing subscription continues where that one was settled: batches that are still
leased come first, as they were reserved. To return them to their queues instead, call ``abandon_batches`` of the client. An
old checkpoint whose next epochs were settled through another one has lost them: `DataLossError`.

The offset contains the cluster's incarnation. If the incarnation has changed, the cluster has returned to an earlier state
and knows nothing of later events: `DataLossError`, before anything is settled. Batches reserved before that state still
exist with their messages, so a query that continues settles them as usual.

A batch contains groups as a whole, and no slice begins within a group: tasks keep the order of groups.

A subscription serves one query, which claims it on first use: the cluster fences a query that used it before, which fails
with `TakenOverError` at its next call, on the driver or in a task. Asynchronous progress tracking, which starts a micro-batch
before the last one is in the commit log, must not be used. Messages that return to the queue from other consumers are read
then; delayed messages are read when they become ready.
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

from ..base.errors import DataLossError, ExclusiveQueueError, LeftBehindError
from ..base.options import BATCH_MESSAGES_MAX, StreamRead
from .lag import QUEUES_MAX, lag
from .losses import expired_unsettled, restored, settled_elsewhere, unknown, unreadable
from .offsets import Offset
from .rows import RowMaker
from .slices import Slice, read_slice
from .subscription import LeaseKeeper

__all__ = ["StreamReader"]

logger = logging.getLogger("lmqcluster.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query. Spark creates it on the driver, where it connects on first use, and copies it to the
    tasks.
    """

    def __init__(self, options: StreamRead, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._name = options.subscription or f"spark-{uuid.uuid4()}"
        self._keeper: LeaseKeeper | None = None
        self._planned = False
        """True once the subscription's name is stored in the checkpoint."""
        self._kept = False
        self._started = False
        self._waits_since_s: float | None = None
        self._settled = 0
        self._life = ""
        """The cluster's incarnation, once the query has continued although it differs from that of the checkpoint."""
        self._closed: Sequence[ClosedQueue] = ()
        self._skipped: set[int] = set()
        self._left: int | None = None
        """With Trigger.AvailableNow: the number of messages present at the start that are still to be reserved."""

    # --- the position of the query ------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start of a query without a checkpoint."""
        settled = 0 if self._options.subscription is None else self._driver.known(self._name).settled
        return Offset.initial(self._name, settled, self._options.selection, self._driver.incarnation()).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit: at most ``maxOffsetsPerTrigger`` messages, and about ``maxBytesPerTrigger`` bytes, see
        `latestOffset`.
        """
        return ReadMaxRows(self._options.messages_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read as many messages as there are now, and no more.

        A queue has no positions: if others pull some of these, newer ones may be read in their place. Messages with
        expired leases are not counted, but one micro-batch of them is read if there is nothing else.
        """
        backlog = self._driver.backlog()
        self._left = _present(backlog) or _readable(backlog, if_unknown=self._options.messages_max)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the messages that could be read now, for the query's progress; see `lag`."""
        return lag(self._driver.backlog(queues_max=QUEUES_MAX), time.time())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Settle everything up to `start` and reserve the next batch.

        Returns:
            The end of the new batch, or `start` if there is nothing to read.

        Raises:
            DataLossError: messages are lost or may be read twice, or the cluster was restored, and ``failOnDataLoss``
                is set.
            ExclusiveQueueError: ``subscribe`` names an exclusive queue.
            LeftBehindError: the query is about to end and cannot read all that it should.
            TakenOverError: another query uses the subscription.
            LmqError: the cluster did not answer.
            OptionError: the checkpoint belongs to another subscription.
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
        """Disconnect. Reserved messages stay reserved until the query continues."""
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    # --- reading --------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slices of a planned micro-batch.

        Raises:
            DataLossError: the batch has expired, or was already settled, and ``failOnDataLoss`` is set.
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
        """Yield the rows of one slice, on an executor."""
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
            # It comes from a checkpoint, where the name is stored.
            self._name, self._planned = parsed.subscription, True
        return parsed

    def _check_life(self, offset: Offset) -> None:
        """Report a cluster whose incarnation differs from that of the offset."""
        incarnation = self._driver.incarnation()
        if incarnation in (offset.incarnation, self._life):
            return
        self._lose(restored(offset.epoch, offset.incarnation, incarnation))
        self._life, self._settled, self._kept = incarnation, 0, False
        self._driver.renew_claim()

    def _keep_planned(self, subscription: str) -> None:
        """Make sure that leases are complete and renewed, including those of a batch that an earlier run has planned."""
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
        # Checked before settling, which forgets them: the query fails again if it is restarted without a change.
        expired = {epoch for epoch in done.epochs if known.state(epoch) == "expired"} - self._skipped
        for epoch in sorted(expired):
            self._lose(expired_unsettled(done.subscription, epoch))
        settled = self._driver.settle(done.subscription, done.epoch)
        for epoch in sorted(set(done.epochs).intersection(settled) - expired - self._skipped):
            self._lose(expired_unsettled(done.subscription, epoch))
        self._settled = done.epoch

    def _reserve(self, begin: Offset, limit: ReadLimit) -> list[BatchLease]:
        """Return the batches of the next micro-batch: one, or as many as needed if there is no limit."""
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
        # Every reservation is written to the cluster's log, even one that finds nothing: an idle query should not
        # write.
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
        """Report closed queues: an exclusive one that the query names is an error, all others are logged."""
        selected = self._options.selection.queues
        for one in backlog.closed:
            if one.reason == "exclusive" and one.queue in selected:
                raise ExclusiveQueueError(one.queue)
        before = {(one.queue, one.reason) for one in self._closed}
        for one in backlog.closed:
            if (one.queue, one.reason) not in before:
                logger.warning("queue %r is %s; it is not read", one.queue, one.reason)
        self._closed = backlog.closed

    def _check_left(self) -> None:
        """Report the messages that a query is about to leave behind, because no more can be reserved."""
        if not self._left:
            return
        backlog = self._driver.backlog()
        left = min(self._left, backlog.held + sum(one.messages for one in backlog.closed))
        if left:
            raise LeftBehindError(left, _reasons(backlog))

    def _is_enough(self, ready: int) -> bool:
        """Return whether there is enough for a micro-batch, or its time has come; for AvailableNow, any amount is
        enough.
        """
        if self._left is None and 0 < ready < self._options.messages_min:
            now_s = time.monotonic()
            if self._waits_since_s is None:
                self._waits_since_s = now_s
            if now_s - self._waits_since_s < self._options.delay_s_max:
                return False
        self._waits_since_s = None
        return True

    def _leftover(self, begin: Offset) -> int:
        """Return the number of messages in batches that an earlier run of the query reserved and did not plan."""
        known = self._driver.known(begin.subscription)
        return sum(
            batch.count for epoch, batch in known.batches.items() if batch.state == "live" and epoch > begin.epoch
        )

    def _next(self, subscription: str, after: int, count: int) -> BatchLease | None:
        """Return the first batch after an epoch that can be read; None if there is nothing."""
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
                # Reserved but never planned: its messages are in their queues again and were not read.
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
    """Return the number of messages that no consumer holds, whether or not they can be reserved now."""
    suspended = sum(one.messages for one in backlog.closed if one.reason == "suspended")
    return backlog.messages + backlog.held + suspended


def _readable(backlog: Backlog, *, if_unknown: int) -> int:
    """Return the number of messages that can be reserved; messages with expired leases are not counted, but known to
    exist.
    """
    # The oldest message is never one of an exclusive queue, although its messages count.
    return 0 if backlog.oldest_due_us is None else backlog.messages + backlog.held or if_unknown


def _reasons(backlog: Backlog) -> str:
    """Return the reasons why there are messages that cannot be reserved."""
    reasons = [f"queue {one.queue!r} is {one.reason} ({one.messages} messages)" for one in backlog.closed]
    if backlog.held:
        reasons.insert(0, f"{backlog.held} wait for messages of their groups that are leased or delayed")
    return "; ".join(reasons)
