"""Rows to pushes: gathered by queue, sent in large requests, one request ahead of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from lmqcluster import LmqError

from .connecting import Cluster
from .keys import RowKeys
from .options import Write

__all__ = ["Pusher"]

_UNSENT_BYTES_MAX = 32 * 1024 * 1024
"""What all queues together may have waiting; more is sent in smaller requests than would be best."""


class _Unsent:
    """The rows of one queue that wait for their request."""

    def __init__(self, keys: RowKeys) -> None:
        self.keys = keys
        self.clear()

    def clear(self) -> None:
        self.contents: list[bytes] = []
        self.row_keys: list[bytes] = []
        self.types: list[str | None] = []
        self.size = 0


class Pusher:
    """Pushes the rows of one partition; those of one queue in their order. A context manager."""

    def __init__(self, options: Write, part: Sequence[str], key_scope: str | None) -> None:
        """Connect.

        Args:
            options: of the write.
            part: what tells this partition of this write from all others, the same whenever the task is run again.
            key_scope: the scope that the cluster keeps the keys in; None for those that any client may repeat.

        Raises:
            LmqError: no node can be reached.
        """
        self._options = options
        self._part = tuple(part)
        self._key_scope = key_scope
        self._unsent: dict[str, _Unsent] = {}
        self._unsent_bytes = 0
        self._cluster = Cluster(options.connection)
        self._sender = ThreadPoolExecutor(1, "lmq-push")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._sender.shutdown()
            self._cluster.close()

    def add(
        self,
        queue: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        types: Sequence[str | None] | None,
    ) -> None:
        """Take rows of one queue, with keys of their own or None for derived ones, and with content types or none.

        Raises:
            LmqError: an earlier request failed.
        """
        unsent = self._unsent.get(queue)
        if unsent is None:
            unsent = self._unsent[queue] = _Unsent(RowKeys((*self._part, queue)))
        derive = unsent.keys.next
        count_max, bytes_max = self._options.push_count, self._options.push_bytes
        for index, value in enumerate(values):
            key = None if keys is None else keys[index]
            kind = None if types is None else types[index]
            unsent.types.append(kind)
            unsent.row_keys.append(derive(value, kind) if key is None else key)
            unsent.contents.append(value)
            unsent.size += len(value)
            self._unsent_bytes += len(value)
            if unsent.size >= bytes_max or len(unsent.contents) >= count_max:
                self._send(queue, unsent)
        if self._unsent_bytes > _UNSENT_BYTES_MAX:
            self._send_all()

    def forget(self, scopes: Sequence[str]) -> None:
        """Let the cluster forget the keys of scopes that nobody needs any more.

        Raises:
            LmqError: the cluster did not answer.
        """
        if scopes:
            self._cluster.client.forget_keys(scopes)

    def flush(self) -> None:
        """Send everything and wait until it is stored.

        Raises:
            LmqError: a request failed.
        """
        self._send_all()
        self._wait()

    def _send_all(self) -> None:
        for queue, unsent in self._unsent.items():
            if unsent.contents:
                self._send(queue, unsent)

    def _send(self, queue: str, unsent: _Unsent) -> None:
        self._wait()
        self._under_way = self._sender.submit(self._push, queue, unsent.contents, unsent.row_keys, unsent.types)
        self._unsent_bytes -= unsent.size
        unsent.clear()

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _push(self, queue: str, contents: list[bytes], keys: list[bytes], types: list[str | None]) -> None:
        given = None if types.count(None) == len(types) else types
        try:
            self._cluster.client.push_many(queue, contents, keys=keys, scope=self._key_scope, content_types=given)
        except LmqError as exc:
            servers = self._options.connection.servers
            where = f"{len(contents)} messages could not be pushed to queue {queue!r} through {servers}"
            raise LmqError(exc.code, f"{where}: {exc.message}", retryable=exc.retryable, outcome=exc.outcome) from exc
