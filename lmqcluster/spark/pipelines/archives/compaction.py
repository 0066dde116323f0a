"""Merges the small files of an archive, so that no crash loses or duplicates a message permanently.

The files of an hour or a day are merged into a new one in ``_staging``. Then a *plan* is written there, which names the
files to move into place and to delete; then the plan is executed and deleted. A plan found at a start is completed;
staged files without a plan are deleted. While a plan is executed, for some milliseconds, a reader may see messages
twice, but never miss one.

Only files of micro-batches in Spark's commit log are merged: others might still be replaced.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ..base.storage import Storage, StoredFile

__all__ = ["STAGING", "WRITING", "Compaction", "batch_file_name", "sort_rows"]

STAGING: Final = "_staging"
_FILES_PER_ROUND_MAX: Final = 10_000
_GROWTH: Final = 4
_READING: Final = {
    # Spark must not infer a date from a day.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # The vectorized reader reads 4096 rows at a time, however large they are.
    "spark.sql.parquet.enableVectorizedReader": "false",
}
WRITING: Final = {
    # Memory of a task: without this setting, rows of a megabyte are only measured after 100 rows.
    "parquet.block.size": str(32 * 1024 * 1024),
    "parquet.page.size.row.check.min": "4",
}
"""Options of every write of Parquet."""


def batch_file_name(query: str, number: int) -> str:
    """Return the name of the file with the messages of one micro-batch in one directory."""
    return f"b-{query}-{number:010d}.parquet"


def sort_rows(rows: DataFrame, period: str) -> DataFrame:
    """Return all rows of a directory in one task, sorted by queue and offset, so that readers of one queue skip the
    rest.

    A task has one file open at a time, because the rows of a directory are contiguous.
    """
    return rows.repartition(period).sortWithinPartitions(period, "queue", "offset", "part")


class Compaction:
    """Merges the files of one table. Each query merges only its own files, so that several can write to one table."""

    def __init__(self, spark: SparkSession, storage: Storage, *, period: str, file_bytes: int) -> None:
        """Take the table's root, the partition column, and the size from which a file is large enough."""
        self._spark = spark
        self._storage = storage
        self._period = period
        self._file_bytes = file_bytes

    def recover(self, query: str) -> None:
        """Complete the plans of an earlier run, and delete what it staged without a plan."""
        for file in self._storage.find(f"{STAGING}/plan-{query}-*.json"):
            self._execute(file.path)
        for name in {file.path.split(f"/{STAGING}/")[1].partition("/")[0] for file in self._staged(query)}:
            self._storage.delete(f"{self._storage.root}/{STAGING}/{name}")

    def run(self, query: str, *, before: int, small_files: int) -> None:
        """Merge the small files of every directory that has at least `small_files` of them.

        Args:
            query: as in the names of its files.
            before: the first micro-batch whose files must not be merged.
            small_files: at least 2.
        """
        while groups := self._groups(query, before, small_files):
            self._merge(query, groups)

    def _groups(self, query: str, before: int, small_files: int) -> list[list[StoredFile]]:
        """Return, for each directory with enough small files, those that together make about one large file."""
        directories: dict[str, list[StoredFile]] = defaultdict(list)
        first_left_alone = batch_file_name(query, before)
        batches = self._storage.find(f"{self._period}=*/b-{query}-*.parquet")
        for file in self._storage.find(f"{self._period}=*/c-{query}-*.parquet") + batches:
            if file.size_bytes < self._file_bytes and (file.name[0] == "c" or file.name < first_left_alone):
                directories[file.path.rpartition("/")[0]].append(file)
        groups: list[list[StoredFile]] = []
        for files in directories.values():
            chosen = self._fitting(files) if len(files) >= small_files else []
            if len(chosen) >= small_files:
                groups.append(chosen)
            if sum(map(len, groups)) > _FILES_PER_ROUND_MAX:
                break
        return groups

    def _fitting(self, files: list[StoredFile]) -> list[StoredFile]:
        """Return the small files that together make at most one large file.

        A file far larger than all smaller ones together waits for more of these, so each message is rewritten only a
        few times.
        """
        chosen: list[StoredFile] = []
        size = 0
        for file in sorted(files, key=lambda file: (file.size_bytes, file.path)):
            too_much = size + file.size_bytes > self._file_bytes
            if len(chosen) >= 2 and (too_much or file.size_bytes > _GROWTH * size):
                break
            chosen.append(file)
            size += file.size_bytes
        return chosen

    def _merge(self, query: str, groups: list[list[StoredFile]]) -> None:
        name = f"merge-{query}-{uuid.uuid4().hex[:12]}"
        staging = f"{self._storage.root}/{STAGING}/{name}"
        merged = [file.path for files in groups for file in files]
        self._rewrite(merged, staging)
        moves = {}
        for file in self._storage.find(f"{STAGING}/{name}/*/*.parquet"):
            directory = file.path[len(staging) + 1 :].rpartition("/")[0]
            moves[file.path] = f"{self._storage.root}/{directory}/c-{query}-{uuid.uuid4().hex[:12]}.parquet"
        plan = f"{self._storage.root}/{STAGING}/plan-{query}-{name.rpartition('-')[2]}.json"
        self._storage.write_text(plan, json.dumps({"moves": moves, "deletes": merged, "staging": staging}))
        self._execute(plan)

    def _rewrite(self, files: list[str], staging: str) -> None:
        """Write all rows of `files`, with all columns that any of them has, one file for each directory, in order."""
        before = {name: str(self._spark.conf.get(name)) for name in _READING}
        self._configure(_READING)
        try:
            rows = self._spark.read.options(basePath=self._storage.root, mergeSchema="true").parquet(*files)
            writer = sort_rows(rows, self._period).write.mode("overwrite").options(**WRITING)
            writer.partitionBy(self._period).parquet(staging)
        finally:
            self._configure(before)

    def _configure(self, settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            self._spark.conf.set(name, value)

    def _execute(self, plan: str) -> None:
        steps = json.loads(self._storage.read_text(plan))
        for staged, final in steps["moves"].items():
            if self._storage.exists(staged):
                self._storage.rename(staged, final)
        for path in steps["deletes"]:
            self._storage.delete(path)
        self._storage.delete(steps["staging"])
        self._storage.delete(plan)

    def _staged(self, query: str) -> list[StoredFile]:
        return self._storage.find(f"{STAGING}/merge-{query}-*/*/*") + self._storage.find(f"{STAGING}/{query}-*/*/*")
