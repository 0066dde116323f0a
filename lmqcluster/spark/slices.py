"""Reading a slice of a batch lease, on an executor."""

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

from .connecting import Cluster, Contact
from .errors import DataLossError, TakenOverError
from .options import Connection
from .rows import RowMaker

__all__ = ["Slice", "cut", "lease_lost", "read_slice"]

logger = logging.getLogger("lmqcluster.spark")

PAGE_MESSAGES: Final = 4000
"""Messages per request, and rows per Arrow batch: enough to make the round trip cheap, few enough to work while it is on."""
_SLICE_MESSAGES: Final = 10_000
"""Most messages in one task: enough to make the start of a task cheap."""
_LOST: Final = frozenset({"lease_expired", "batch_not_found"})


@dataclass
class Slice(InputPartition):
    """What one task reads: messages [start, end) of the batch lease of one epoch, in the query's session.

    Spark copies the reader to the tasks once and the slices with each micro-batch, so it is these that have the token.
    """

    subscription: str
    epoch: int
    start: int
    end: int
    session: int
    contact: Contact | None = None


def cut(count: int, slices_min: int) -> list[tuple[int, int]]:
    """Cut positions [0, count) into slices of nearly equal size: at least `slices_min`, as far as there are so many positions."""
    slices = max(1, min(count, max(slices_min, -(-count // _SLICE_MESSAGES))))
    return [(count * index // slices, count * (index + 1) // slices) for index in range(slices)]


def read_slice(
    part: Slice, connection: Connection, rows: RowMaker, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice. Any number of tasks may read the same slice, at the same time or again; it changes nothing.

    Raises:
        DataLossError: the batch is not under lease any more and `fail_on_data_loss` is set; otherwise the rest is skipped.
        TakenOverError: another query uses the subscription.
        LmqError: the cluster did not answer.
    """
    cluster = Cluster(connection, part.contact)
    try:
        for messages in _pages(cluster, part, details=rows.details):
            yield rows.batch(messages)
    except LmqError as exc:
        if exc.code == "fenced":
            raise TakenOverError(part.subscription) from exc
        if exc.code not in _LOST:
            raise
        lost = lease_lost(part.subscription, part.epoch, exc.message)
        if fail_on_data_loss:
            raise lost from exc
        logger.warning("%s Messages %d to %d are skipped.", lost, part.start, part.end - 1)
    finally:
        cluster.close()


def _pages(cluster: Cluster, part: Slice, *, details: bool) -> Iterator[BatchColumns]:
    """The messages of a slice, a page at a time; the next page is on its way while one is worked on."""
    with ThreadPoolExecutor(1, "lmq-read") as reader:
        fetch = _fetcher(cluster, part, details=details)
        coming = reader.submit(fetch, part.start)
        position = part.start
        while position < part.end:
            messages = coming.result()
            if not messages:
                raise LmqError("batch_not_found", f"the batch ends at message {position}, not at {part.end}")
            position += len(messages)
            if position < part.end:
                coming = reader.submit(fetch, position)
            yield messages


def _fetcher(cluster: Cluster, part: Slice, *, details: bool) -> Callable[[int], BatchColumns]:
    def fetch(position: int) -> BatchColumns:
        count = min(PAGE_MESSAGES, part.end - position)
        return cluster.call(
            lambda client: client.read_batch(
                part.subscription, part.epoch, position, count, session=part.session, details=details
            )
        )

    return fetch


def lease_lost(subscription: str, epoch: int, reason: str) -> DataLossError:
    """The error for a batch that cannot be read, or may have been delivered to others as well."""
    return DataLossError(
        f"lmq: batch {epoch} of subscription {subscription!r} is not under lease any more ({reason}). Its messages went back to "
        "their queues when the lease expired, and come again in a later batch. Set the option 'failOnDataLoss' to false to go "
        "on, and 'lmq.lease' to more seconds than the query may stand still."
    )
