"""Appends micro-batches to a Delta table, each once: the table stores each query's last micro-batch number.

Delta's writer for Python (``deltalake``) commits each micro-batch with a Delta transaction: its application is the
query, its version the micro-batch number. Of two drivers that write the same one concurrently, the second fails. The
writer works with any version of Spark and needs no jar; any reader of Delta can read the table. A micro-batch is first
collected on the driver, so its size limit (``Source.bytes_max``) also limits the driver's memory.
"""

from __future__ import annotations

from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame

__all__ = ["append_once", "merge_files"]

_FILE_SCHEMES: Final = ("file://", "file:")
_SCHEMES: Final = {"s3a://": "s3://", "s3n://": "s3://"}
"""Maps URL schemes of Hadoop to those of Delta's writer."""


def append_once(rows: DataFrame, path: str, *, application: str, version: int, partition_by: list[str]) -> bool:
    """Append rows unless the application has already committed this version or a later one; return whether they were
    appended.

    Missing columns are added to the table.

    Raises:
        CommitFailedError: another writer has committed a version of the application since the check.
    """
    uri = _uri(path)
    table = _existing(uri)
    if table is not None:
        known = table.transaction_version(application)
        if known is not None and known >= version:
            return False
    write_deltalake(
        # The version that was checked: any later commit is a conflict.
        uri if table is None else table,
        rows.toArrow(),
        mode="append",
        partition_by=partition_by,
        schema_mode="merge",
        commit_properties=CommitProperties(app_transactions=[Transaction(application, version)]),
    )
    return True


def merge_files(path: str, file_bytes: int) -> None:
    """Merge small files to files of about `file_bytes`. Readers see the same rows before, during and after the merge."""
    table = _existing(_uri(path))
    if table is not None:
        table.optimize.compact(target_size=file_bytes)


def _existing(uri: str) -> DeltaTable | None:
    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None


def _uri(path: str) -> str:
    for scheme in _FILE_SCHEMES:
        if path.startswith(scheme):
            return path.removeprefix(scheme)
    for scheme, known in _SCHEMES.items():
        if path.startswith(scheme):
            return known + path.removeprefix(scheme)
    return path
