"""Pushes rows, each stored once: batched by queue, in large requests, one request ahead of the rows.

The rows that a task writes to one queue are a *stream* of the write's job. The cluster stores the position of each
stream together with the rows, and accepts a request only at the end of its stream. So a request that is sent twice is
stored once, and of two concurrent attempts of a task only one stores a row.

A position is not enough to continue another attempt: after a shuffle, Spark gives a repeated task the same rows in
another order. So every request has a *note*, 16 bytes for each row, which the cluster keeps. An attempt that finds the
stream further than it has written itself reads the notes, skips the stored rows, and continues at the end.

A write that may be repeated as a whole, perhaps divided into other tasks, is an *epoch* of its job, see `Run`: the
cluster recognises a row stored by an earlier run of the epoch by its digest, whatever task sends it.

An attempt cannot know that its rows are complete: if the preceding part of the task fails, its input ends too. So the
epoch is ended, or a stream marked as done, by others; see `finish`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from types import TracebackType
from typing import Final, NamedTuple, Self

from lmqcluster import LmqError
from lmqcluster.client import PushOptions
from lmqcluster.wire.limits import NAME_BYTES_MAX

from ..base.connecting import Cluster
from ..base.delivery import packed_attributes
from ..base.options import Write
from .pacing import Pace

__all__ = ["Pusher", "Run", "Stream", "digest", "finish"]

_UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Unsent bytes of all queues together; above that, smaller requests than ideal are sent."""
_KEYS_S: Final = 300.0
"""How long a cluster guarantees to remember an idempotency key."""
_DIGEST_BYTES: Final = 16
_DIGESTS: Final = 1 << 8 * _DIGEST_BYTES


def digest(queue: str, value: bytes, content_type: str | None, options: PushOptions | None = None) -> bytes:
    """Return the digest that identifies a row among those of the same write."""
    return _digest(_queue_key(queue), value, content_type, options, packed_attributes(options))


def _queue_key(queue: str) -> bytes:
    return blake2b(queue.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


def _digest(
    queue_key: bytes, value: bytes, content_type: str | None, options: PushOptions | None, attributes: bytes
) -> bytes:
    if content_type is None and not options:
        # A salt costs nothing; a key would be hashed before each value.
        return blake2b(value, digest_size=_DIGEST_BYTES, salt=queue_key).digest()
    state = blake2b(digest_size=_DIGEST_BYTES, salt=queue_key, person=b"typed")
    state.update(b"-" if content_type is None else b"+")
    others = sorted((name, value) for name, value in (options or {}).items() if name != "attributes")
    for data in ((content_type or "").encode("utf-8", "surrogateescape"), repr(others).encode(), attributes):
        state.update(b"%d:%b" % (len(data), data))
    state.update(value)
    return state.digest()


class Run(NamedTuple):
    """An attempt to write an epoch of a job, the same for all its tasks and their repetitions.

    Attributes:
        epoch: the number of the write, such as that of a micro-batch.
        name: identifies the attempt.
    """

    epoch: int
    name: str


class Stream(NamedTuple):
    """The rows that a task has written to one queue: the queue, the stream's name, and the number of rows stored."""

    queue: str
    name: str
    position: int


def finish(cluster: Cluster, job: str, streams: Iterable[Stream]) -> None:
    """Mark streams as done: the cluster drops their notes and accepts no more rows.

    Raises:
        LmqError: the cluster did not answer.
    """
    for stream in streams:
        try:
            cluster.call(
                lambda client, stream=stream: client.push_marked(  # type: ignore[misc]
                    stream.queue, [], job=job, stream=stream.name, first=stream.position, done=True
                )
            )
        except LmqError as exc:
            # The job has ended.
            if exc.code != "out_of_sequence":
                raise


class _Rows:
    """The rows of one request."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.types: list[str | None] = []
        self.options: list[PushOptions | None] = []
        self.keys: list[bytes] = []
        self.digests: list[bytes] = []
        self.size = 0

    def append(
        self,
        value: bytes,
        content_type: str | None,
        key: bytes | None,
        options: PushOptions | None,
        row_digest: bytes | None,
        size: int,
    ) -> None:
        self.values.append(value)
        self.types.append(content_type)
        self.options.append(options)
        if key is not None:
            self.keys.append(key)
        if row_digest is not None:
            self.digests.append(row_digest)
        self.size += size

    def without(self, stored: Counter[bytes]) -> tuple[_Rows, list[bytes]]:
        """Return the rows that are not stored yet, and the digests of those that are; remove these from `stored`."""
        left, found = _Rows(), []
        for index, one in enumerate(self.digests):
            if one in stored:
                stored[one] -= 1
                if not stored[one]:
                    del stored[one]
                found.append(one)
            else:
                left.values.append(self.values[index])
                left.types.append(self.types[index])
                left.options.append(self.options[index])
                left.digests.append(one)
        return left, found


class _Progress:
    """The state of one queue's stream in this attempt. All but `unsent` belongs to the sending thread.

    Attributes:
        queue_key: makes digests of equal rows of different queues different.
        unsent: rows that wait for their request.
        position: number of rows that all attempts have stored.
        passed: digests of the rows stored, or found to be stored, by this attempt.
        elsewhere: rows stored by another attempt that have not arrived here yet.
        done: whether all rows are known to be stored.
    """

    def __init__(self, queue: str, name: str) -> None:
        self.queue = queue
        self.queue_key = _queue_key(queue)
        self.name = name
        self.unsent = _Rows()
        self.position = 0
        self.passed = bytearray()
        self.elsewhere: Counter[bytes] = Counter()
        self.done = False

    def adopt(self, position: int, notes: bytes) -> None:
        """Update the position and the stored rows."""
        self.position = position
        self.elsewhere = Counter(_digests(notes)) - Counter(_digests(self.passed))


class Pusher:
    """Pushes the rows of one partition; those of one queue in order. A context manager.

    Attributes:
        cluster: the connection.
        stored: number of rows that this attempt has stored.
        rows: number of rows without idempotency keys so far.
        digests: the sum of their digests modulo 2**128.
    """

    def __init__(self, options: Write, job: str, partition: int, run: Run | None = None) -> None:
        """Connect, and begin the run.

        Args:
            options: of the write.
            job: name of the write, the same for all its tasks and their repetitions.
            partition: the task's number.
            run: for a job that writes in epochs.

        Raises:
            LmqError: no node can be reached, or another run has taken over.
        """
        self.stored = self.rows = self.digests = 0
        self._options = options
        self._job = job
        self._run = run
        self._partition = partition
        self._streams: dict[str, _Progress] = {}
        self._unsent_bytes = 0
        self._pace = None if options.rate is None else Pace(options.rate)
        self.cluster = Cluster(options.connection)
        self._is_finished = False
        if run is not None:
            try:
                self._is_finished = not self.cluster.call(lambda client: client.begin_epoch(job, *run))
            except BaseException:
                self.cluster.close()
                raise
        self._sender = ThreadPoolExecutor(1, "lmq-push")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
        finally:
            self._sender.shutdown()
            self.cluster.close()

    def add(
        self,
        queue: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        types: Sequence[str | None] | None = None,
        options: Sequence[PushOptions | None] | None = None,
    ) -> None:
        """Add rows of one queue, some or all of which may have idempotency keys, content types and options.

        Raises:
            LmqError: an earlier request failed.
        """
        stream = self._streams.get(queue)
        if stream is None:
            stream = self._streams[queue] = _Progress(queue, _stream_name(self._partition, queue))
        count_max, bytes_max = self._options.push_count, self._options.push_bytes
        for index, value in enumerate(values):
            key = None if keys is None else keys[index]
            if stream.unsent.values and bool(stream.unsent.keys) != (key is not None):
                # Rows with and without keys need different kinds of requests.
                self._send(stream)
            kind = None if types is None else types[index]
            option = None if options is None else options[index]
            attributes = packed_attributes(option)
            row_digest = None
            if key is None:
                row_digest = _digest(stream.queue_key, value, kind, option, attributes)
                self.rows += 1
                self.digests += int.from_bytes(row_digest, "big")
            if self._is_finished:
                continue
            unsent = stream.unsent
            size = len(value) + len(attributes)
            unsent.append(value, kind, key, option, row_digest, size)
            self._unsent_bytes += size
            if unsent.size >= bytes_max or len(unsent.values) >= count_max:
                self._send(stream)
        self.digests %= _DIGESTS
        if self._unsent_bytes > _UNSENT_BYTES_MAX:
            for waiting in self._streams.values():
                if waiting.unsent.values:
                    self._send(waiting)

    @property
    def streams(self) -> list[Stream]:
        """Return the streams, once all rows are stored."""
        return [Stream(one.queue, one.name, one.position) for one in self._streams.values() if one.position]

    def _flush(self) -> None:
        """Send everything and wait until it is stored."""
        for stream in self._streams.values():
            if stream.unsent.values:
                self._send(stream)
        self._wait()

    def _send(self, stream: _Progress) -> None:
        self._wait()
        rows = stream.unsent
        stream.unsent = _Rows()
        self._unsent_bytes -= rows.size
        if rows.keys:
            self._under_way = self._sender.submit(self._push_with_keys, stream.queue, rows)
        else:
            self._under_way = self._sender.submit(self._push, stream, rows)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    # --- on the sending thread ------------------------------------------------------------------------------------

    def _push(self, stream: _Progress, rows: _Rows) -> None:
        while not stream.done:
            rows, found = rows.without(stream.elsewhere) if stream.elsewhere else (rows, [])
            stream.passed += b"".join(found)
            if not rows.values:
                return
            note = b"".join(rows.digests)
            if self._append(stream, rows, note):
                stream.passed += note
                stream.position += len(rows.values)
                return
            self._adopt(stream)

    def _append(self, stream: _Progress, rows: _Rows, note: bytes) -> bool:
        """Store rows at the end of a stream; return False if the end is not where this attempt expects it."""
        if self._pace is not None:
            self._pace.wait()
        try:
            stored = self.cluster.call(
                lambda client: client.push_marked(
                    stream.queue,
                    rows.values,
                    job=self._job,
                    stream=stream.name,
                    first=stream.position,
                    note=note,
                    epoch=None if self._run is None else self._run.epoch,
                    run="" if self._run is None else self._run.name,
                    content_types=_unless_none(rows.types),
                    options=rows.options if any(rows.options) else None,
                )
            )
        except LmqError as exc:
            if exc.code == "out_of_sequence":
                return False
            raise self._refused(exc, stream.queue, len(rows.values)) from exc
        if stored is None:
            return False
        self.stored += stored
        if self._pace is not None:
            self._pace.passed(stored)
        return True

    def _adopt(self, stream: _Progress) -> None:
        mark = self.cluster.call(lambda client: client.mark(self._job, stream.name))
        if mark is None:
            raise LmqError(
                "conflict",
                f"lmq: the write {self._job!r} ended while this attempt of partition {self._partition} was still running; "
                "no more of its rows are stored",
                retryable=False,
            )
        stream.done = mark.done
        stream.adopt(mark.position, mark.notes)

    def _push_with_keys(self, queue: str, rows: _Rows) -> None:
        types = _unless_none(rows.types)
        if self._pace is not None:
            self._pace.wait()
            self._pace.passed(len(rows.values))
        try:
            self.cluster.call(
                lambda client: client.push_many(
                    queue,
                    rows.values,
                    keys=rows.keys,
                    content_types=types,
                    options=rows.options if any(rows.options) else None,
                ),
                within_s=_KEYS_S,
            )
        except LmqError as exc:
            raise self._refused(exc, queue, len(rows.values)) from exc

    def _refused(self, error: LmqError, queue: str, count: int) -> LmqError:
        text = (
            f"{count} messages could not be pushed to queue {queue!r} through "
            f"{self._options.connection.servers}: {error.message}"
        )
        return LmqError(error.code, text, retryable=error.retryable, outcome=error.outcome)


def _stream_name(partition: int, queue: str) -> str:
    name = f"{partition}/{queue}"
    if len(name.encode("utf-8", "surrogateescape")) <= NAME_BYTES_MAX:
        return name
    return f"{partition}/#{blake2b(queue.encode('utf-8', 'surrogateescape'), digest_size=16).hexdigest()}"


def _digests(notes: bytes | bytearray) -> list[bytes]:
    data = bytes(notes)
    return [data[start : start + _DIGEST_BYTES] for start in range(0, len(data), _DIGEST_BYTES)]


def _unless_none(types: list[str | None]) -> list[str | None] | None:
    return None if types.count(None) == len(types) else types
