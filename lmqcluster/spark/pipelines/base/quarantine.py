"""Decodes the messages of a micro-batch by a schema; those that cannot be decoded go to a separate queue, each once.

Quarantined messages are stored before the micro-batch is settled, as an epoch of the query, so a repetition stores
nothing twice. A quarantined message keeps its value, type and attributes, and gets headers with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Final

import re2
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the common alias

from ...base.connecting import Cluster
from ...base.options import Write
from ...decoding.decoder import DECODED, PROBLEM, SCHEMA_BYTES_MAX, BadSchemaError, Decoder, decoded
from ...decoding.json_schema import json_decoder
from .access import Access
from .checkpoint import query_id
from .failures import CONFIGURATION, USAGE, PipelineError
from .push_columns import PUSHED, push_columns
from .source import Source

__all__ = ["DECODED", "REASON_HEADERS", "Decoding", "Quarantine"]

REASON_HEADERS: Final = ("x-quarantine-reason", "x-quarantine-queue", "x-quarantine-offset")
"""The reason of the quarantine, the former queue, and the offset there."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How values are decoded.

    Attributes:
        form: ``json`` or ``avro``.
        schema: the text of the schema.
        quarantine: the queue for messages that cannot be decoded.
    """

    form: str
    schema: str
    quarantine: str

    def decoder(self) -> Decoder:
        """Return the decoder.

        Raises:
            BadSchemaError: the schema cannot become a column.
        """
        if self.form == "json":
            return json_decoder(self.schema)
        from ...decoding.avro_schema import avro_decoder  # noqa: PLC0415  an optional package

        return avro_decoder(self.schema)

    def check(self, source: Source) -> None:
        """Check that the schema can become a column, and that the quarantine is not among the queues that are read.

        Raises:
            PipelineError: a check failed.
        """
        if self.form == "avro" and find_spec("fastavro") is None:
            raise PipelineError("Avro is not installed: pip install 'lmqcluster[avro]'", CONFIGURATION)
        if len(self.schema.encode()) > SCHEMA_BYTES_MAX:
            raise PipelineError(f"the {self.form} schema has more than {SCHEMA_BYTES_MAX} bytes", USAGE)
        try:
            self.decoder()
        except BadSchemaError as exc:
            raise PipelineError(f"the {self.form} schema cannot be used: {exc}", USAGE) from exc
        named = [name.strip() for name in (source.queue or "").split(",")]
        if self.quarantine in named or (source.pattern is not None and _matches(source.pattern, self.quarantine)):
            raise PipelineError(
                f"the quarantine {self.quarantine!r} is among the queues that are read: it would read its own messages",
                USAGE,
            )


class Quarantine:
    """Splits the micro-batches of one query."""

    def __init__(self, decoding: Decoding, access: Access) -> None:
        """Configure the quarantine to keep the headers, unless it has its own hooks.

        Raises:
            LmqError: the cluster did not answer, or refused.
        """
        self._decoding = decoding
        self._options: Mapping[str, str] = access.options()
        hooks = {"hooks": {"pre_http_push": [["lmq_hook_preserve_header", list(REASON_HEADERS)]]}}
        with Cluster(Write.parse(self._options).connection) as cluster:
            cluster.call(lambda client: client.update_props(decoding.quarantine, hooks, only_unset=True))

    @contextmanager
    def good(self, batch: DataFrame, number: int) -> Iterator[DataFrame]:
        """Quarantine the undecodable rows of a micro-batch; the others have the column `DECODED` in the block."""
        rows = decoded(batch, partial(Decoding.decoder, self._decoding)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._store(rows.where(F.col(PROBLEM).isNotNull()), f"quarantine/{query_id(batch)}", number)
            yield rows.where(F.col(PROBLEM).isNull()).drop(PROBLEM)
        finally:
            rows.unpersist()

    def _store(self, bad: DataFrame, application: str, epoch: int) -> None:
        values = (F.col(PROBLEM), F.col("queue"), F.col("offset").cast("string"))
        reasons = F.create_map(
            *(part for name, value in zip(REASON_HEADERS, values, strict=True) for part in (F.lit(name), value))
        )
        kept = F.map_filter("headers", lambda name, _value: ~F.lower(name).isin(*REASON_HEADERS))
        headers = F.map_concat(F.coalesce(kept, F.create_map().cast("map<string,string>")), reasons)
        columns = zip(PUSHED, push_columns(F.lit(self._decoding.quarantine)), strict=True)
        # It is kept until an operator removes it, whatever its time to live was.
        messages = bad.withColumn("headers", headers).select(*(one for name, one in columns if name != "ttl"), "offset")
        writer = messages.coalesce(1).sortWithinPartitions("offset").write.format("lmq").mode("append")
        writer.options(**self._options).option("lmq.application", application).option("lmq.epoch", epoch).save()


def _matches(pattern: str, name: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        # The cluster reports what is wrong with the pattern.
        return False
