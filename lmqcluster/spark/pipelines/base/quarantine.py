"""Decodes the messages of a micro-batch by a schema; those that cannot be decoded go to a separate queue, each once.

Quarantined messages are stored before the micro-batch is settled, as an epoch of the query, so a repetition stores
nothing twice. A quarantined message keeps its value, type and attributes, and gets others with the reason if there is
room for them.
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
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the common alias

from lmqcluster.wire.attributes import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX

from ...decoding.decoder import DECODED, PROBLEM, SCHEMA_BYTES_MAX, BadSchemaError, Decoder, decoded
from ...decoding.json_schema import json_decoder
from .access import Access
from .checkpoint import query_id
from .failures import CONFIGURATION, USAGE, PipelineError
from .push_columns import PUSHED, push_columns
from .source import Source

__all__ = ["DECODED", "Decoding", "Quarantine"]

_REASONS: Final = ("quarantine_reason", "quarantine_queue", "quarantine_offset")
"""The attributes with the reason of the quarantine, the former queue, and the offset there."""
_ENTRY_BYTES: Final = 12
"""At least the bytes of an attribute beside those of its name and its text."""


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
            raise PipelineError("Avro is not installed: install lmqcluster with the extra avro", CONFIGURATION)
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
        self._decoding = decoding
        self._options: Mapping[str, str] = access.options()

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
        columns = zip(PUSHED, push_columns(F.lit(self._decoding.quarantine)), strict=True)
        # It is kept until an operator removes it, whatever its time to live was.
        messages = _with_reasons(bad).select(*(one for name, one in columns if name != "ttl"), "offset")
        writer = messages.coalesce(1).sortWithinPartitions("offset").write.format("lmq").mode("append")
        writer.options(**self._options).option("lmq.application", application).option("lmq.epoch", epoch).save()


def _with_reasons(bad: DataFrame) -> DataFrame:
    """Return the rows with the reasons among their attributes, unless a message cannot have so many."""
    reason, queue, offset = _REASONS
    texts = {reason: F.col(PROBLEM), queue: F.col("queue"), offset: F.col("offset").cast("string")}
    attributes = _replaced("attributes", texts)
    sizes = F.transform(
        F.map_entries(attributes), lambda one: F.octet_length(one["key"]) + F.octet_length(one["value"])
    )
    size = F.aggregate(sizes, F.lit(0), lambda total, one: total + one + _ENTRY_BYTES)
    has_room = (F.size(attributes) <= ATTRIBUTES_MAX) & (size <= ATTRIBUTE_BYTES_MAX)
    changed = {"attributes": attributes, "attribute_types": _replaced("attribute_types", {offset: F.lit("integer")})}
    return bad.withColumns({name: F.when(has_room, one).otherwise(F.col(name)) for name, one in changed.items()})


def _replaced(column: str, entries: Mapping[str, Column]) -> Column:
    """Return a map in which only these entries have the names of reasons."""
    others = F.map_filter(column, lambda name, _value: ~name.isin(*_REASONS))
    return F.map_concat(others, F.create_map(*(one for name, value in entries.items() for one in (F.lit(name), value))))


def _matches(pattern: str, name: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search(name) is not None
    except re2.error:
        # The cluster reports what is wrong with the pattern.
        return False
