"""The history checker of failover drills: judges what a cluster did to its messages by the records of its clients.

A *history* is JSON lines, in any number of files (``.gz`` too) and in any order: one line for each attempt of an operation,
recorded by the client that made it, all by one clock. The checker knows nothing of the cluster's code. All work is done on
DataFrames, so a history may be larger than any machine's memory; only counts and a few examples reach the driver.

Fields (others are ignored):

=========== =============================================================================================================
``op``      ``push``, ``pull``, ``ack``, ``nack`` (any early return of a message) or ``extend``; and two notes of the drill:
            ``delete`` (of a queue) and ``drained``: the queue, or all queues if ``queue`` is absent, was found empty,
            without leased messages, in a search that began at ``time_us``.
``outcome`` ``ok``, ``failed`` (certainly without effect), or ``unknown`` (an effect then or later is possible).
``time_us`` when the attempt began, in microseconds since any fixed moment.
``end_us``  when its outcome was known, or the client gave up; required if the outcome is ``ok``.
``process`` the client. Pushes of one process to one queue that carry a ``sequence`` promise to keep that order.
``queue``   the queue's name.
``value``   push, and pull that got a message: the identity of the message within its queue. Pushing a value again allows
            two copies of it; a retry inside a client, with one key, is not another attempt.
``sequence`` push: a number that grows with every push of this process to this queue.
``receipt`` pull that got a message, ack, nack, extend: the delivery's id.
``lease_s`` pull: seconds for which the delivery was certainly leased. Absent: overlapping deliveries are not judged.
``retry``   pull: number of further deliveries left. Absent: a message that disappears after a delivery is not judged.
=========== =============================================================================================================

Findings:

- **lost**: an acknowledged push whose message was in no delivery, or only in deliveries without an attempted ack although more
  deliveries were left, and whose queue was drained afterwards.
- **phantom**: a delivery of a value that no client pushed, whose every push certainly failed, or whose queue was deleted
  between its pushes and the delivery.
- **doubled**: two successful acks of one receipt, or of one message; one receipt returned by two pulls; a delivery that began
  after a successful ack of its message; two deliveries of a message whose leases certainly overlap.
- **reordered**: an acknowledged push that was first delivered after a later one of its process had been delivered.

Only certain violations count: an operation took effect at some time between its begin and its end, and doubt is resolved in
favour of the cluster. A pull of unknown outcome may have held a message from its begin until `VerifySettings.grace_s` after its
client gave up, which excuses both order and unseen deliveries (at most 100 of each message). A value that was pushed again may
have two copies, so its deliveries are not compared.

The verdict is ``guilty`` if there is any finding; ``unknown`` if nothing was acknowledged or delivered, if lines could not be
read, or if messages are missing from queues that were not drained; else ``pass``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  the common alias
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from lmqcluster.spark.pipelines.base.failures import BAD_DATA, PipelineError, unreadable

from .checker import FAULTS, HIDDEN_MAX

__all__ = ["FAULTS", "GUILTY", "PASS", "UNKNOWN", "VerifySettings", "verdict_of", "verify"]

PASS: Final = "pass"  # noqa: S105  a verdict
GUILTY: Final = "guilty"
UNKNOWN: Final = "unknown"
_OPS: Final = ("push", "pull", "ack", "nack", "extend", "delete", "drained")
_OUTCOMES: Final = ("ok", "failed", "unknown")
_NEVER: Final = (1 << 63) - 1
_KEY: Final = ["queue", "value"]
_UNREADABLE: Final = "_unreadable"
_SCHEMA: Final = StructType(
    [StructField(name, StringType()) for name in ("op", "outcome", "process", "queue", "value", "receipt")]
    + [StructField(name, LongType()) for name in ("time_us", "end_us", "sequence", "retry")]
    + [StructField("lease_s", DoubleType()), StructField(_UNREADABLE, StringType())]
)


@dataclass(frozen=True, kw_only=True)
class VerifySettings:
    """The settings of a judgement.

    Attributes:
        histories: files, directories or globs of JSON lines.
        examples: number of cases to show of each finding.
        grace_s: how long after its client gave up an operation of unknown outcome may still take effect.
    """

    histories: Sequence[str]
    examples: int = 5
    grace_s: float = 60.0


def verify(spark: SparkSession, settings: VerifySettings) -> dict[str, Any]:
    """Judge a history.

    Returns:
        ``verdict`` (`PASS`, `GUILTY` or `UNKNOWN`), ``reasons`` for one that is not a pass, ``operations`` by op and
            outcome, ``messages`` (attempted, acknowledged, delivered, recovered: delivered although no push was
            acknowledged, acked, undecided, unreadable_lines), ``faults`` (count by name of `FAULTS`), ``examples`` (by
            the same names).

    Raises:
        PipelineError: there is no such file, or it contains no line of a history.
    """
    lines = _read(spark, settings.histories).persist(StorageLevel.DISK_ONLY)
    try:
        operations = _operations(lines)
        if not operations:
            raise PipelineError("the history has no readable line; see the format of histories", BAD_DATA)
        history = _History(lines, grace_us=round(settings.grace_s * 1e6))
        try:
            return {**_findings(history, settings.examples), "operations": operations}
        finally:
            history.messages.unpersist()
    finally:
        lines.unpersist()


def _read(spark: SparkSession, histories: Sequence[str]) -> DataFrame:
    try:
        lines = (
            spark.read.schema(_SCHEMA)
            .option("mode", "PERMISSIVE")
            .option("columnNameOfCorruptRecord", _UNREADABLE)
            .json(list(histories))
        )
    except AnalysisException as exc:
        raise unreadable("the history", exc) from exc
    return lines.withColumn("readable", _is_readable())


def _is_readable() -> Column:
    """Return whether a line has the fields of its operation."""
    op, got = F.col("op"), F.col("value").isNotNull()
    delivery = (op == "pull") & (F.col("outcome") == "ok") & got
    needs_receipt = delivery | op.isin("ack", "nack", "extend")
    whole = (
        F.col(_UNREADABLE).isNull()
        & op.isin(*_OPS)
        & F.col("outcome").isin(*_OUTCOMES)
        & F.col("time_us").isNotNull()
        & (F.col("queue").isNotNull() | (op == "drained"))
        & (got | (op != "push"))
        & (F.col("receipt").isNotNull() | ~needs_receipt)
        & (F.col("end_us").isNotNull() | (F.col("outcome") != "ok") | (op == "drained"))
    )
    return F.coalesce(whole, F.lit(False))


class _History:
    """The tables from which findings are computed.

    Attributes:
        lines: all lines as read.
        messages: one row for each pushed or delivered value, with the aggregates of its pushes, deliveries and acks.
    """

    def __init__(self, lines: DataFrame, *, grace_us: int) -> None:
        self.lines = lines
        self._events = lines.where("readable")
        self._grace_us = grace_us
        self._deliveries = self._of("pull", "ok").where("value is not null")
        self.messages = self._messages().persist(StorageLevel.DISK_ONLY)

    def _of(self, op: str, *outcomes: str) -> DataFrame:
        return self._events.where((F.col("op") == op) & F.col("outcome").isin(*outcomes))

    def _messages(self) -> DataFrame:
        ok = F.col("outcome") == "ok"
        pushes = self._of("push", *_OUTCOMES).groupBy(*_KEY).agg(
            F.max(ok).alias("acknowledged"),
            F.count_if(F.col("outcome") != "failed").alias("copies_max"),
            F.min("time_us").alias("push_start"),
            F.min(F.when(ok, F.col("end_us"))).alias("stored_by"),
            F.max(_until(F.col("outcome") != "failed")).alias("pushed_until"),
            F.min(F.when(F.col("outcome") != "failed", F.col("process"))).alias("producer"),
            F.min(F.when(F.col("outcome") != "failed", F.col("sequence"))).alias("sequence"),
        )  # fmt: skip
        deliveries = self._deliveries.groupBy(*_KEY).agg(
            F.count("*").alias("deliveries"),
            F.min("time_us").alias("first_start"),
            F.min("end_us").alias("first_end"),
            F.max("time_us").alias("last_start"),
            F.min(F.coalesce("retry", F.lit(0))).alias("retry"),
        )
        beyond = self._all_drained_us()
        return (
            pushes.join(deliveries, _KEY, "full_outer")
            .join(self._acked(), _KEY, "left")
            .join(self._ends_of_queues(), "queue", "left")
            .withColumn("drained_us", F.greatest("drained_us", beyond))
            .withColumn("drained", F.coalesce(F.col("drained_us") > F.col("stored_by"), F.lit(False)))
            .withColumn("deleted", F.coalesce(F.col("deleted_us") > F.col("push_start"), F.lit(False)))
        )

    def _acked(self) -> DataFrame:
        """Return the messages with an ack that may have succeeded; ``acked_us`` is when one certainly had."""
        acks = self._of("ack", "ok", "unknown").select(
            "queue", "receipt", F.when(F.col("outcome") == "ok", F.col("end_us")).alias("ack_end")
        )
        return (
            self._deliveries.select(*_KEY, "receipt")
            .join(acks, ["queue", "receipt"])
            .groupBy(*_KEY)
            .agg(F.min("ack_end").alias("acked_us"), F.lit(True).alias("ack_tried"))
        )

    def _ends_of_queues(self) -> DataFrame:
        """Return by queue: when it was last found drained, until when a delete may have emptied it, and the number of
        pulls of unknown outcome.
        """
        drained = (F.col("op") == "drained") & (F.col("outcome") == "ok")
        deleted = (F.col("op") == "delete") & (F.col("outcome") != "failed")
        lost_pull = (F.col("op") == "pull") & (F.col("outcome") == "unknown")
        return (
            self._events.where(F.col("queue").isNotNull() & (F.col("op").isin("drained", "delete") | lost_pull))
            .groupBy("queue")
            .agg(
                F.max(F.when(drained, F.col("time_us"))).alias("drained_us"),
                F.max(_until(deleted)).alias("deleted_us"),
                F.count_if(lost_pull).alias("lost_pulls"),
            )
        )

    def _all_drained_us(self) -> Column:
        whole = self._of("drained", "ok").where("queue is null").agg(F.max("time_us")).head()
        return F.lit(None if whole is None else whole[0]).cast("long")

    def faults(self) -> dict[str, DataFrame]:
        """Return every finding by its name in `FAULTS`: one row for each case, with the queue and the identity of the
        case.
        """
        return {
            "lost": self._missing().where("drained").unionByName(self._vanished()),
            "phantom": self._phantoms(),
            "doubled_acks": self._repeated(self._of("ack", "ok")).unionByName(
                self._acked_again(), allowMissingColumns=True
            ),
            "doubled_receipts": self._repeated(self._deliveries),
            "doubled_after_ack": self._after_ack(),
            "doubled_leases": self._overlapping(),
            "reordered": self._reordered(),
        }

    def undecided(self) -> DataFrame:
        """Return acknowledged messages that were not delivered, in queues that were not drained afterwards."""
        return self._missing().where("not drained")

    def _missing(self) -> DataFrame:
        return self.messages.where("acknowledged and deliveries is null and not deleted").select(*_KEY, "drained")

    def _vanished(self) -> DataFrame:
        # The last recorded delivery left further ones, no ack was attempted, and yet the queue was drained.
        suspects = self.messages.where(
            "acknowledged and deliveries is not null and drained and not deleted and ack_tried is null and retry > 0"
        ).select(
            *_KEY,
            "drained",
            "retry",
            "lost_pulls",
            F.col("first_start").alias("since"),
            F.col("drained_us").alias("until"),
        )
        used_up = F.col("retry") <= HIDDEN_MAX * F.coalesce("lost_pulls", F.lit(0))
        excusable = self._unexcused(suspects.where(used_up))
        return suspects.where(~used_up).select(*_KEY, "drained").unionByName(excusable.select(*_KEY, "drained"))

    def _phantoms(self) -> DataFrame:
        delivered = self.messages.where("deliveries is not null")
        deletes = self._of("delete", "ok").select(
            "queue", F.col("time_us").alias("began"), F.col("end_us").alias("ended")
        )
        gone = (
            delivered.where("copies_max > 0")
            .join(deletes, "queue")
            .where("pushed_until < began and ended < last_start")
        )
        return delivered.where("coalesce(copies_max, 0) = 0").select(*_KEY).unionByName(gone.select(*_KEY).distinct())

    def _acked_again(self) -> DataFrame:
        """Return messages with one copy that were acked under several receipts."""
        acked = self._of("ack", "ok").select("queue", "receipt").distinct()
        given = (
            self._deliveries.join(self._single_copies().select(*_KEY), _KEY, "left_semi")
            .select(*_KEY, "receipt")
            .distinct()
        )
        counted = given.join(acked, ["queue", "receipt"]).groupBy(*_KEY).agg(F.count("*").alias("times"))
        return counted.where("times > 1")

    def _repeated(self, rows: DataFrame) -> DataFrame:
        """Return receipts that appear in several of the rows, with a message that each was for."""
        values = self._deliveries.groupBy("queue", "receipt").agg(F.min("value").alias("value"))
        counted = rows.groupBy("queue", "receipt").agg(F.count("*").alias("times")).where("times > 1")
        return counted.join(values, ["queue", "receipt"], "left")

    def _single_copies(self) -> DataFrame:
        """Return the keys of messages with several deliveries although there can be only one copy."""
        return self.messages.where("deliveries > 1 and copies_max = 1")

    def _after_ack(self) -> DataFrame:
        acked = self._single_copies().where("acked_us is not null").select(*_KEY, "acked_us")
        late = self._deliveries.join(acked, _KEY).where("time_us > acked_us")
        return late.select(*_KEY, "receipt", "time_us", "acked_us")

    def _overlapping(self) -> DataFrame:
        """Return deliveries that ended before the lease of the previous one could have expired.

        The previous one is the one whose answer came earlier; that it may have been made later anyway is taken into
        account.
        """
        returns = (
            self._of("nack", "ok", "unknown").groupBy("queue", "receipt").agg(F.min("time_us").alias("returned_us"))
        )
        lease_end = (F.col("time_us") + F.col("lease_s") * 1_000_000).cast("long")
        leases = (
            self._deliveries.join(self._single_copies().select(*_KEY), _KEY, "left_semi")
            .join(returns, ["queue", "receipt"], "left")
            .withColumn("lease_end", lease_end)
            .withColumn("live_until", F.least("lease_end", "returned_us"))
        )
        in_turn = Window.partitionBy(*_KEY).orderBy("end_us", "receipt")
        before = {name: F.lag(name).over(in_turn) for name in ("receipt", "end_us", "lease_end", "live_until")}
        pairs = leases.select(
            *(*_KEY, "receipt", "end_us", "lease_end"), *(c.alias(f"before_{n}") for n, c in before.items())
        )
        return pairs.where(
            "before_receipt <> receipt and before_lease_end is not null and lease_end is not null"
            " and end_us < before_live_until and before_end_us < lease_end"
        ).select(*_KEY, "receipt", "before_receipt", "end_us", "before_live_until")

    def _reordered(self) -> DataFrame:
        """Return first deliveries that began after a later push of the same process had been delivered."""
        came = self.messages.where("sequence is not null and deliveries is not null and copies_max = 1").select(
            *_KEY, "producer", "sequence", "acknowledged", "push_start", "first_start", "first_end"
        )
        begins = came.where("acknowledged").withColumn("at", F.col("first_start"))
        ends = came.select("queue", "producer", F.col("first_end").alias("at"), F.col("sequence").alias("ended"))
        both = begins.unionByName(ends, allowMissingColumns=True)
        # Nulls come first: an operation that begins at the moment at which another ends did not begin after it.
        until_now = Window.partitionBy("queue", "producer").orderBy("at", F.col("ended").asc_nulls_first())
        seen = F.max("ended").over(until_now.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        suspects = (
            both.withColumn("delivered_before", seen)
            .where("value is not null and delivered_before > sequence")
            .withColumnsRenamed({"push_start": "since", "first_start": "until"})
        )
        return self._unexcused(suspects).select(*_KEY, "producer", "sequence", "delivered_before")

    def _unexcused(self, suspects: DataFrame) -> DataFrame:
        """Return the suspects that no pull of unknown outcome can have held between ``since`` and ``until``."""
        gave_up = F.coalesce("end_us", "time_us") + self._grace_us
        pulls = self._of("pull", "unknown").select("queue", F.col("time_us").alias("at"), gave_up.alias("held_until"))
        both = suspects.withColumn("at", F.col("until")).unionByName(pulls, allowMissingColumns=True)
        # Nulls come last: a message requested at the moment of another delivery may have been held before.
        until_now = Window.partitionBy("queue").orderBy("at", F.col("held_until").asc_nulls_last())
        held = F.max("held_until").over(until_now.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        return both.withColumn("held", held).where("value is not null and (held is null or held < since)")


def _until(applies: Column) -> Column:
    """Return until when the operation may have taken effect."""
    return F.when(applies, F.when(F.col("outcome") == "ok", F.col("end_us")).otherwise(_NEVER))


def _findings(history: _History, examples: int) -> dict[str, Any]:
    faults = history.faults()
    others = {"undecided": history.undecided(), "unreadable_lines": history.lines.where("not readable")}
    counts = _counts({**faults, **others})
    messages = _message_figures(history.messages) | {name: counts[name] for name in others}
    found = {name: counts[name] for name in FAULTS}
    verdict, reasons = verdict_of(found, messages)
    return {
        "verdict": verdict,
        "reasons": reasons,
        "messages": messages,
        "faults": found,
        "examples": {name: _examples(faults[name], examples) for name, count in found.items() if count},
    }


def verdict_of(faults: Mapping[str, int], messages: Mapping[str, int]) -> tuple[str, list[str]]:
    """Return the verdict, and the reasons for one that is not a pass, from the counts of a report."""
    found = [f"{name.replace('_', ' ')}: {count:,}" for name, count in faults.items() if count]
    if found:
        return GUILTY, found
    undecided, unreadable = messages["undecided"], messages["unreadable_lines"]
    doubts = {
        "no push was acknowledged": not messages["acknowledged"],
        "nothing was delivered": not messages["delivered"],
        f"{undecided:,} acknowledged messages were not delivered, but not all queues were drained": undecided,
        f"{unreadable:,} lines could not be read": unreadable,
    }
    reasons = [text for text, applies in doubts.items() if applies]
    return (UNKNOWN if reasons else PASS), reasons


def _counts(tables: dict[str, DataFrame]) -> dict[str, int]:
    rows = [table.agg(F.lit(name).alias("name"), F.count("*").alias("count")) for name, table in tables.items()]
    return {row["name"]: row["count"] for row in reduce(DataFrame.union, rows).collect()}


def _operations(lines: DataFrame) -> dict[str, dict[str, int]]:
    operations: dict[str, dict[str, int]] = {}
    counted = lines.where("readable").groupBy("op", "outcome").count()
    for row in sorted(counted.collect(), key=lambda row: (_OPS.index(row["op"]), _OUTCOMES.index(row["outcome"]))):
        operations.setdefault(row["op"], {})[row["outcome"]] = row["count"]
    return operations


def _message_figures(messages: DataFrame) -> dict[str, int]:
    conditions = {
        "attempted": "push_start is not null",
        "acknowledged": "acknowledged",
        "delivered": "deliveries is not null",
        "recovered": "not acknowledged and copies_max > 0 and deliveries is not null",
        "acked": "acked_us is not null",
    }
    row = messages.agg(*(F.count_if(F.expr(condition)).alias(name) for name, condition in conditions.items())).head()
    return {} if row is None else row.asDict()


def _examples(fault: DataFrame, count: int) -> list[dict[str, Any]]:
    rows = fault.drop("drained").orderBy(*_KEY).limit(count).collect()
    return [{key: value for key, value in row.asDict().items() if value is not None} for row in rows]
