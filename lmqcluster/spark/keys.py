"""Idempotency keys for written rows, the same whenever the same task is run again.

A key is a digest of the write, the micro-batch, the partition, the queue, the row's value, and how many equal values the
partition had before it. Counting rows instead would be unsafe: behind a shuffle Spark hands a task that is run again the same
rows in another order, and a row that gets the number of another would not be stored at all.

Rows that come out different when the task is run again (``rand()``, ``current_timestamp()``) are stored again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

__all__ = ["RowKeys"]

_KEY_BYTES = 16


class RowKeys:
    """The keys of one partition's rows for one queue. Takes about 200 bytes of memory for each row."""

    def __init__(self, scope: Sequence[str]) -> None:
        """Take what tells this write, micro-batch, partition and queue from all others."""
        self._base = blake2b(digest_size=_KEY_BYTES)
        for part in scope:
            data = part.encode("utf-8", "surrogateescape")
            self._base.update(b"%d:%b" % (len(data), data))
        self._seen: dict[bytes, int] = {}

    def next(self, value: bytes, content_type: str | None = None) -> bytes:
        """The key of the next row, 16 bytes."""
        state = self._base.copy()
        if content_type is not None:
            state.update(b"%d:%b" % (len(content_type), content_type.encode("utf-8", "surrogateescape")))
        state.update(value)
        digest = state.digest()
        before = self._seen.get(digest, 0)
        self._seen[digest] = before + 1
        if not before:
            return digest
        return blake2b(b"%d:%b" % (before, digest), digest_size=_KEY_BYTES).digest()
