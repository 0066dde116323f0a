"""How far a streaming query or a job is, to be shown."""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .session import has_jvm

__all__ = ["QueryProgress", "TaskCount", "running_tasks"]


class TaskCount(NamedTuple):
    """Tasks of the stages that run now."""

    done: int
    total: int


def running_tasks(spark: SparkSession) -> TaskCount:
    """Tasks of all stages that run in the session; none over Spark Connect, which does not tell."""
    if not has_jvm(spark):
        return TaskCount(0, 0)
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return TaskCount(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


class QueryProgress:
    """Adds up what a query reports of its micro-batches.

    Attributes:
        messages: read in all micro-batches that are done.
        batches: how many of them had any.
        backlog: messages that could be read at last report; ``None`` before the first.
        oldest_age_s: for how many seconds the oldest of them had waited; ``None`` if there was none.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._rows: dict[int, int] = {}
        self.backlog: int | None = None
        self.oldest_age_s: float | None = None

    @property
    def messages(self) -> int:
        """See the class."""
        return sum(self._rows.values())

    @property
    def batches(self) -> int:
        """See the class."""
        return len(self._rows)

    def update(self) -> None:
        """Take in what has been reported since; Spark keeps the last hundred reports."""
        for report in self._query.recentProgress:
            if report.numInputRows:
                self._rows[report.batchId] = report.numInputRows
            for source in report.sources:
                backlog = json.loads(source.latestOffset or "{}")
                if isinstance(backlog, dict) and "backlog" in backlog:
                    self.backlog = int(backlog["backlog"])
                    self.oldest_age_s = backlog.get("oldest_age_s")
