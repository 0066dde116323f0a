"""Micro-batches into a Delta table, each once: the table remembers the number of the last one of each query.

Delta's own writer for Python (``deltalake``) commits a micro-batch together with a transaction of its application, the query,
whose version is the number of the micro-batch. Of two drivers that write the same one at the same time, the second fails. The
writer works with any version of Spark and needs no jar; any reader of Delta takes the table. A micro-batch is collected on the
driver first, so that its bound on bytes (``Source.bytes_max``) is also one on the driver's memory.
"""

from __future__ import annotations

from typing import Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame

__all__ = ["append_once", "merge_files"]

_FILE_SCHEMES: Final = ("file://", "file:")
_SCHEMES: Final = {"s3a://": "s3://", "s3n://": "s3://"}
"""How Hadoop calls what Delta's writer knows under another name."""


def append_once(rows: DataFrame, path: str, *, application: str, version: int, partition_by: list[str]) -> bool:
    """Append rows, unless the application has committed this version or a later one before; returns whether it was done.

    Columns that the table has not are added to it.

    Raises:
        CommitFailedError: another writer has committed a version of the application meanwhile.
    """
    uri = _uri(path)
    table = _existing(uri)
    if table is not None:
        known = table.transaction_version(application)
        if known is not None and known >= version:
            return False
    write_deltalake(
        # The one that was looked into: what is committed behind it is a conflict.
        uri if table is None else table,
        rows.toArrow(),
        mode="append",
        partition_by=partition_by,
        schema_mode="merge",
        commit_properties=CommitProperties(app_transactions=[Transaction(application, version)]),
    )
    return True


def merge_files(path: str, file_bytes: int) -> None:
    """Merge small files to files of about so many bytes. Readers see the same rows before, meanwhile and afterwards."""
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
