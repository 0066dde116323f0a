"""What every pipeline says of a cluster: its nodes, its queues, and the reading options of the data source."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from ..data_source import register

__all__ = ["Source"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """The queues to read, exactly one of `queue` and `pattern`.

    Attributes:
        servers: MessagePack-RPC addresses, ``host:port,host:port``.
        queue: the name of one queue.
        pattern: a regular expression (RE2) for the names of queues.
        subscription: name of the subscription; ``None`` for a random one that the checkpoint keeps.
        messages_max: most messages in one micro-batch.
        partitions_min: least tasks to read a micro-batch with.
        fail_on_data_loss: whether an expired lease ends the query.
        timeout_s: how long a call may take over all attempts and nodes.
    """

    servers: str
    queue: str | None = None
    pattern: str | None = None
    subscription: str | None = None
    messages_max: int = 100_000
    partitions_min: int = 1
    fail_on_data_loss: bool = True
    timeout_s: float = 60.0

    def stream(self, spark: SparkSession) -> DataFrame:
        """A streaming read."""
        register(spark)
        options = {
            "lmq.servers": self.servers,
            "lmq.timeout": self.timeout_s,
            "subscribe": self.queue,
            "subscribePattern": self.pattern,
            "lmq.subscription": self.subscription,
            "maxOffsetsPerTrigger": self.messages_max,
            "minPartitions": self.partitions_min,
            "failOnDataLoss": self.fail_on_data_loss,
        }
        given = {name: _text(value) for name, value in options.items() if value is not None}
        return spark.readStream.format("lmq").options(**given).load()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
