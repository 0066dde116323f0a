"""The thread that writes the event journal, so that a slow disk cannot block the event loop, and its limits."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import deque
from typing import Final, NamedTuple

import structlog

from .files import EventFiles
from .lines import Record

__all__ = ["EventWriter"]

log = structlog.get_logger("lmq.events")

PENDING_MAX: Final = 400_000
"""Maximum number of events that wait for the thread, up to 80 MB; further events are dropped."""
FLUSH_S: Final = 1.0
"""Maximum time that an event waits; a crash can lose this much."""
RETRY_S: Final = 5.0
CLOSE_S: Final = 5.0
_WAKE_COUNT: Final = 10_000
_MEMBER_BYTES: Final = 256 * 1024
_CALM_S: Final = 10.0
# Lines are repetitive, so higher levels gain little and cost much.
_COMPRESSION: Final = 1


class _Member(NamedTuple):
    data: bytes
    first_us: int
    events: int


class EventWriter:
    """Accepts records on the event loop and writes them within a second, as gzip members of up to 256 KiB of lines.

    Args:
        files: the files to write.
        node: the node's name.
        pending_max: maximum number of waiting events; further events are dropped.
        flush_s: maximum time that an event waits, in seconds.
        retry_s: seconds between attempts to write after a failure. Events wait until an attempt succeeds.

    Attributes:
        written_total: events written.
        errors_total: failed attempts to write.
    """

    def __init__(
        self,
        files: EventFiles,
        node: str,
        *,
        pending_max: int = PENDING_MAX,
        flush_s: float = FLUSH_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self._files = files
        self._node = json.dumps(node)
        self._pending_max = pending_max
        self._flush_s = flush_s
        self._retry_s = retry_s
        # Each counter is changed by one thread only, so none needs a lock.
        self._taken_total = self._refused_total = 0
        self.written_total = self.errors_total = self._lost_total = 0
        self._records: deque[Record] = deque()
        self._member: _Member | None = None
        self._failing = False
        self._told_drops = 0
        self._calm_since_s: float | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    # --- on the event loop ----------------------------------------------------------------------------------------

    @property
    def dropped_total(self) -> int:
        """Return the number of events that were dropped."""
        return self._refused_total + self._lost_total

    def put(self, record: Record) -> None:
        """Accept events, or drop them if too many wait."""
        pending = self._pending() + record.size
        if pending > self._pending_max:
            self._refused_total += record.size
            return
        self._taken_total += record.size
        self._records.append(record)
        if pending >= _WAKE_COUNT:
            self._wake.set()

    def _pending(self) -> int:
        return self._taken_total - self.written_total - self._lost_total

    def close(self) -> None:
        """Write the waiting events and end the thread within five seconds. Blocks, so do not call it on the event loop."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S)
        pending = self._pending()
        if pending:
            self._refused_total += pending
            self._taken_total -= pending
            log.warning("events lost: the journal could not be flushed", count=pending)

    # --- in the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._mend()
        while not self._closing.is_set():
            if self._failing:
                self._closing.wait(self._retry_s)
            else:
                self._wake.wait(self._flush_s)
            self._wake.clear()
            self._write_pending()
            self._tell_drops()
        # Events may have arrived after the last write and before `close`.
        self._write_pending()
        self._tell_drops()

    def _mend(self) -> None:
        try:
            cut = self._files.mend()
        except OSError as exc:
            log.warning(
                "the last file of the event journal cannot be checked", folder=str(self._files.folder), reason=str(exc)
            )
            return
        if cut:
            log.info("truncated end of the event journal removed", folder=str(self._files.folder), bytes=cut)

    def _write_pending(self) -> None:
        while True:
            if self._member is None:
                self._member = self._next_member()
            if self._member is None:
                return
            try:
                self._files.append(self._member.data, self._member.first_us)
            except OSError as exc:
                self._failed(exc)
                return
            self.written_total += self._member.events
            self._member = None
            if self._failing:
                self._failing = False
                log.info("event journal writable again", folder=str(self._files.folder))

    def _next_member(self) -> _Member | None:
        lines: list[str] = []
        size = count = first_us = 0
        while self._records and size < _MEMBER_BYTES:
            record = self._records.popleft()
            try:
                text = "".join(record.lines(self._node))
            except Exception:
                # The journal must continue, and the count of missing events must be exact.
                log.exception("events lost: they could not be encoded", count=record.size)
                self._lost_total += record.size
                continue
            first_us = first_us or record.now_us
            lines.append(text)
            size += len(text)
            count += record.size
        if not lines:
            return None
        return _Member(gzip.compress("".join(lines).encode(), _COMPRESSION, mtime=0), first_us, count)

    def _failed(self, error: OSError) -> None:
        self.errors_total += 1
        if self._failing:
            return
        self._failing = True
        log.warning(
            "the event journal cannot be written; it is tried again, and events wait until there are too many",
            option="event_journal",
            folder=str(self._files.folder),
            reason=str(error),
            retry_s=self._retry_s,
        )

    def _tell_drops(self) -> None:
        """Log when drops begin, and when there have been none for `_CALM_S` seconds."""
        now_s, dropped = time.monotonic(), self.dropped_total
        if dropped > self._told_drops:
            if self._calm_since_s is None:
                log.warning("events dropped: they arrive faster than they can be written", dropped_total=dropped)
            self._told_drops = dropped
            self._calm_since_s = now_s
        elif self._calm_since_s is not None and now_s - self._calm_since_s > _CALM_S:
            self._calm_since_s = None
            log.info("events no longer dropped", dropped_total=dropped)
