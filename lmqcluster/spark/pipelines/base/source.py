"""The queues that a pipeline reads, as options of the data source."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ...data_source import register
from .access import Access

__all__ = ["Source"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """The queues to read, exactly one of `queue` and `pattern`.

    Attributes:
        access: the cluster.
        queue: the name of one queue, or several separated by commas.
        pattern: a regular expression (RE2) for the names of queues.
        subscription: name of the subscription; ``None`` for a random one that the checkpoint keeps.
        messages_max: maximum number of messages in one micro-batch.
        bytes_max: bytes of bodies at which a micro-batch is full.
        partitions_min: minimum number of reading tasks.
        fail_on_data_loss: whether an expired lease ends the query.
        lease_s: how long messages stay reserved while the query does not run.
        attributes: whether to read the columns of ``includeAttributes``.
        delivery: whether to read the columns of ``includeDelivery``.
        explode: whether each part of a compound message is a separate row.
        rate: maximum messages a second, on average; ``None`` for no limit.
    """

    access: Access
    queue: str | None = None
    pattern: str | None = None
    subscription: str | None = None
    messages_max: int = 100_000
    bytes_max: int = 128 * 1024 * 1024
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    lease_s: float = 86_400.0
    attributes: bool = False
    delivery: bool = False
    explode: bool = False
    rate: float | None = None

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return a streaming read."""
        register(spark)
        options = {
            "subscribe": self.queue,
            "subscribePattern": self.pattern,
            "lmq.subscription": self.subscription,
            "lmq.lease": self.lease_s,
            "includeAttributes": self.attributes,
            "includeDelivery": self.delivery,
            "explode": self.explode,
            "maxOffsetsPerTrigger": self.messages_max,
            "maxBytesPerTrigger": self.bytes_max,
            "minPartitions": self.partitions_min,
            "failOnDataLoss": self.fail_on_data_loss,
        }
        given = {name: _text(value) for name, value in options.items() if value is not None}
        return spark.readStream.format("lmq").options(**self.access.options()).options(**given).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
