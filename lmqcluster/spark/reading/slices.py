"""Reads a slice of a batch lease, on an executor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition

from lmqcluster import LmqError
from lmqcluster.client import BatchColumns

from ..base.connecting import Cluster, Contact
from ..base.errors import DataLossError, TakenOverError
from ..base.options import Connection
from .losses import lease_lost, partly_gone, restored
from .rows import RowMaker

__all__ = ["Slice", "read_slice", "slice_count"]

logger = logging.getLogger("lmqcluster.spark")

PAGE_MESSAGES: Final = 4000
"""Messages per request, and rows per Arrow batch: a compromise between the cost of round trips and concurrency."""
_SLICE_MESSAGES: Final = 10_000
"""Maximum messages in one task: enough that the start of a task is cheap."""
_SLICES_MAX: Final = 10_000
_LOST: Final = frozenset({"lease_expired", "batch_not_found", "lease_lost", "fenced"})


@dataclass
class Slice(InputPartition):
    """The messages that one task reads: those at [start, end) of the batch lease of one epoch, in the query's session.

    Spark copies the reader to the tasks once and the slices with each micro-batch, so the slices carry the token.
    """

    subscription: str
    epoch: int
    start: int
    end: int
    session: int
    incarnation: str
    contact: Contact | None = None


def slice_count(messages: int, slices_min: int) -> int:
    """Return the number of slices of a batch: at least `slices_min`, if there are that many messages."""
    return max(1, min(messages, max(slices_min, -(-messages // _SLICE_MESSAGES)), _SLICES_MAX))


def read_slice(
    part: Slice, connection: Connection, rows: RowMaker, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a slice. Any number of tasks may read the same slice, concurrently or repeatedly; reading
    changes nothing.

    Raises:
        DataLossError: messages of the batch are no longer leased and `fail_on_data_loss` is set; otherwise they are
            skipped.
        TakenOverError: another query uses the subscription.
        LmqError: the cluster did not answer.
    """
    cluster = Cluster(connection, part.contact)
    try:
        for messages in _pages(cluster, part, details=rows.details, skips_lost=not fail_on_data_loss):
            if messages.lost:
                logger.warning("%d messages of batch %d of subscription %r are lost and skipped: their queue was deleted, "
                               "or they were settled one by one", messages.lost, part.epoch, part.subscription)  # fmt: skip
            if messages:
                yield rows.batch(messages)
    except LmqError as exc:
        if exc.code not in _LOST:
            raise
        lost = _loss(cluster, part, exc)
        if fail_on_data_loss or isinstance(lost, TakenOverError):
            raise lost from exc
        logger.warning("%s Messages %d to %d are skipped.", lost, part.start, part.end - 1)
    finally:
        cluster.close()


def _loss(cluster: Cluster, part: Slice, exc: LmqError) -> DataLossError | TakenOverError:
    """Return the error for a batch that the cluster does not let the task read."""
    incarnation = cluster.call(lambda client: client.incarnation())
    if incarnation != part.incarnation:
        return restored(part.epoch, part.incarnation, incarnation)
    if exc.code == "fenced":
        return TakenOverError(part.subscription)
    explain = partly_gone if exc.code == "lease_lost" else lease_lost
    return explain(part.subscription, part.epoch, exc.message)


def _pages(cluster: Cluster, part: Slice, *, details: bool, skips_lost: bool) -> Iterator[BatchColumns]:
    """Yield the messages of a slice, a page at a time; the next page is requested while one is processed."""
    with ThreadPoolExecutor(1, "lmq-read") as reader:
        fetch = _fetcher(cluster, part, details=details, skips_lost=skips_lost)
        coming = reader.submit(fetch, part.start)
        position = part.start
        while position < part.end:
            messages = coming.result()
            if messages.next is None or messages.next <= position:
                raise LmqError("batch_not_found", f"the batch ends at message {position}, not at {part.end}")
            position = messages.next
            if position < part.end:
                coming = reader.submit(fetch, position)
            yield messages


def _fetcher(cluster: Cluster, part: Slice, *, details: bool, skips_lost: bool) -> Callable[[int], BatchColumns]:
    asked = (part.subscription, part.epoch)

    def fetch(position: int) -> BatchColumns:
        count = min(PAGE_MESSAGES, part.end - position)
        return cluster.call(
            lambda client: client.read_batch(
                *asked, position, count, session=part.session, details=details, skip_lost=skips_lost
            )
        )

    return fetch
