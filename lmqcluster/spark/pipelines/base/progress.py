"""The progress of a streaming query or a job, for display."""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .session import has_jvm

__all__ = ["QueryProgress", "TaskCount", "running_tasks"]


class TaskCount(NamedTuple):
    """Tasks of the running stages."""

    done: int
    total: int


def running_tasks(spark: SparkSession) -> TaskCount:
    """Return the tasks of all running stages of the session; none over Spark Connect, which does not report them."""
    if not has_jvm(spark):
        return TaskCount(0, 0)
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return TaskCount(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))


class QueryProgress:
    """Sums what a query reports of its micro-batches.

    Attributes:
        messages: number of messages read in completed micro-batches.
        batches: number of completed micro-batches with messages.
        backlog: messages that could be read at the last report; ``None`` before the first.
        oldest_age_s: seconds that the oldest of them had waited; ``None`` if there was none.
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
        """Add the reports since the last update; Spark keeps the last hundred."""
        for report in self._query.recentProgress:
            if report.numInputRows:
                self._rows[report.batchId] = report.numInputRows
            for source in report.sources:
                backlog = json.loads(source.latestOffset or "{}")
                if isinstance(backlog, dict) and "backlog" in backlog:
                    self.backlog = int(backlog["backlog"])
                    self.oldest_age_s = backlog.get("oldest_age_s")
