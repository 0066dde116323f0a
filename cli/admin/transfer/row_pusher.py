"""Pushes rows through several nodes: in order within each queue, each row stored exactly once."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from lmqcluster import AsyncClient
from lmqcluster.wire.errors import LmqError

from ...shared.errors import CliError, ExitCode, exit_code_of
from ...shared.interrupt import in_thread
from .rows import BadRow, Row

__all__ = ["Replay", "ReplayReport"]

WINDOW_ROWS: Final = 2000
WINDOW_BYTES: Final = 4 * 1024 * 1024
WINDOWS_IN_FLIGHT: Final = 3
"""Bounds the memory of a replay, whatever the size of the file and the number of queues."""
QUEUES_DEALT_MAX: Final = 10_000


@dataclass(slots=True)
class ReplayReport:
    """The progress of a replay.

    Attributes:
        rows: rows acknowledged.
        content_bytes: size of their contents.
        queues: rows acknowledged by queue; queues beyond a limit are counted together under ``None``.
        bad: rows skipped.
        last_line: the line up to which all rows are acknowledged or skipped; valid only at the end of the replay.
    """

    rows: int = 0
    content_bytes: int = 0
    queues: Counter[bytes | None] = field(default_factory=Counter)
    bad: int = 0
    last_line: int = 0


class _Window(NamedTuple):
    """Rows read together; if bad rows end the replay, the last one may be bad."""

    rows: list[Row]
    bad: list[BadRow]
    last_line: int


def _read_window(rows: Iterator[Row | BadRow], *, past_bad: bool) -> _Window:
    good: list[Row] = []
    bad: list[BadRow] = []
    size = line = 0
    for row in rows:
        line = row.line
        if isinstance(row, BadRow):
            bad.append(row)
            if not past_bad:
                break
        else:
            good.append(row)
            size += row.size()
        if len(good) + len(bad) == WINDOW_ROWS or size >= WINDOW_BYTES:
            break
    return _Window(good, bad, line)


class Replay:
    """One replay. All rows of a queue go through the same client, which keeps their order."""

    def __init__(
        self,
        clients: Sequence[AsyncClient],
        *,
        on_progress: Callable[[ReplayReport], None],
        on_bad: Callable[[BadRow], None] | None,
    ) -> None:
        """Prepare a replay.

        Args:
            clients: one for each node; a client retries and fails over by itself.
            on_progress: called after every group of rows is acknowledged.
            on_bad: called with every bad row, which is then skipped; ``None`` ends the replay at the first.
        """
        self._clients = clients
        self._on_progress = on_progress
        self._on_bad = on_bad
        self._lanes: dict[bytes, AsyncClient] = {}
        self._last_batch: dict[bytes, asyncio.Task[None]] = {}
        self.report = ReplayReport()

    async def run(self, rows: Iterator[Row | BadRow], stop: asyncio.Event) -> None:
        """Push all rows, or those read until `stop` is set; wait for sent rows in either case.

        Raises:
            CliError: a row is bad, or a push failed for good.
        """
        sent: deque[list[asyncio.Task[None]]] = deque()
        trouble: CliError | None = None
        try:
            while trouble is None:
                window = await self._next_window(rows, stop)
                if window is None:
                    break
                trouble = self._note_bad(window)
                sent.append(self._send_window(window.rows))
                if len(sent) == WINDOWS_IN_FLIGHT:
                    await asyncio.gather(*sent[0])
                    sent.popleft()
                self.report.last_line = window.last_line
            await asyncio.gather(*itertools.chain.from_iterable(sent))
        except CliError:
            # Requests of other queues in progress still count.
            await asyncio.gather(*itertools.chain.from_iterable(sent), return_exceptions=True)
            raise
        except asyncio.CancelledError:
            for task in itertools.chain.from_iterable(sent):
                task.cancel()
            raise
        if trouble is not None:
            raise trouble

    async def _next_window(self, rows: Iterator[Row | BadRow], stop: asyncio.Event) -> _Window | None:
        """Return the next rows; ``None`` at the end or once `stop` is set."""
        if stop.is_set():
            return None
        reading = in_thread(lambda: _read_window(rows, past_bad=self._on_bad is not None))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            either: list[asyncio.Future[Any]] = [reading, stopping]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not reading.done():
            return None
        window = reading.result()
        return window if window.rows or window.bad else None

    def _note_bad(self, window: _Window) -> CliError | None:
        for bad in window.bad:
            if self._on_bad is None:
                text = f"line {bad.line}: {bad.reason} (--skip-bad skips such rows)"
                return CliError(text, ExitCode.BAD_DATA)
            self.report.bad += 1
            self._on_bad(bad)
        return None

    def _send_window(self, window: list[Row]) -> list[asyncio.Task[None]]:
        batches: dict[bytes, list[Row]] = {}
        for row in window:
            batches.setdefault(row.queue, []).append(row)
        tasks = []
        for queue, rows in batches.items():
            task = asyncio.create_task(self._push(queue, rows, self._last_batch.get(queue)))
            self._last_batch[queue] = task
            task.add_done_callback(partial(self._forget, queue))
            tasks.append(task)
        return tasks

    def _forget(self, queue: bytes, task: asyncio.Task[None]) -> None:
        if self._last_batch.get(queue) is task:
            del self._last_batch[queue]

    async def _push(self, queue: bytes, rows: list[Row], previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
            if previous.cancelled() or previous.exception() is not None:
                # Its failure is reported once; pushing after a gap would break the order.
                return
        contents = [row.content for row in rows]
        try:
            if all(row.options is None for row in rows):
                await self._lane(queue).push_many(queue, contents)
            else:
                types, options = [row.content_type for row in rows], [row.options for row in rows]
                await self._lane(queue).push_many(queue, contents, content_types=types, options=options)
        except LmqError as exc:
            name = queue.decode(errors="replace")
            text = f"lines {rows[0].line} to {rows[-1].line}, queue {name}: {exc.message}"
            raise CliError(text, exit_code_of(exc)) from exc
        self.report.rows += len(rows)
        self.report.content_bytes += sum(row.size() for row in rows)
        counted = queue in self.report.queues or len(self.report.queues) < QUEUES_DEALT_MAX
        self.report.queues[queue if counted else None] += len(rows)
        self._on_progress(self.report)

    def _lane(self, queue: bytes) -> AsyncClient:
        """Return the client of a queue: assigned in turn while there are few queues, by checksum when there are many."""
        client = self._lanes.get(queue)
        if client is None:
            if len(self._lanes) >= QUEUES_DEALT_MAX:
                return self._clients[zlib.crc32(queue) % len(self._clients)]
            client = self._clients[len(self._lanes) % len(self._clients)]
            self._lanes[queue] = client
        return client
