"""Standard output and error that never block a long-running program.

An unread pipe, a stopped terminal or a slow disk would block the writer: the event loop and with it the node. So a thread
writes. If too much waits for the thread, further lines are dropped and counted.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

__all__ = ["PENDING_BYTES_MAX", "StandardOutput", "dropped_lines", "never_wait_for_readers"]

PENDING_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum number of bytes that wait for the thread."""
FINISH_S: Final = 1.0
"""How long the program waits for the reader at its end."""


def _plain_notice(count: int) -> str:
    return f"{count} lines were dropped here because they were not read in time"


class StandardOutput(io.TextIOBase):
    """A text stream whose lines a thread writes to the descriptor of another stream.

    If `pending_bytes_max` wait, lines are dropped until all waiting ones have been written; then a line reports how many are
    missing.

    Attributes:
        dropped: number of dropped lines.
        notice: returns the line that reports a number of dropped lines.
    """

    def __init__(self, stream: TextIO, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        """Replace a stream of this process."""
        super().__init__()
        stream.flush()
        self.dropped = 0
        self.notice: Callable[[int], str] = _plain_notice
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding
        self._is_terminal = stream.isatty()
        self._pending_bytes_max = pending_bytes_max
        # The lock is reentrant, because a signal handler or finalizer may log while its thread holds the lock.
        self._changed = threading.Condition(threading.RLock())
        self._lines: deque[bytes] = deque()
        self._pending_bytes = 0
        self._untold = 0
        self._begun = ""
        self._is_writing = self._has_finished = False
        self._thread: threading.Thread | None = None

    # --- a text stream --------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return self._is_terminal

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Accept text. A line is queued when it is complete, so that lines of several threads do not mix."""
        if not isinstance(text, str):
            raise TypeError(f"write() needs a str, not {type(text).__name__}")
        if self._has_finished:
            if self._can_write(0):
                self._write_out(text.encode(self._encoding, self.errors)[: select.PIPE_BUF])
            return len(text)
        with self._changed:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            if newline:
                self._put(whole + newline)
            elif len(self._begun) > self._pending_bytes_max:
                self._put_begun()
        return len(text)

    def flush(self) -> None:
        """Queue an unfinished line too, without waiting for the reader."""
        if self._begun and not self._has_finished:
            with self._changed:
                self._put_begun()

    def finish(self) -> None:
        """Wait up to `FINISH_S` until all lines are written. Later lines are written immediately or dropped."""
        deadline = time.monotonic() + FINISH_S
        self.flush()
        with self._changed:
            while self._lines or self._untold or self._is_writing:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
        # The interpreter can stop the thread while it holds the lock, so later writes bypass both.
        self._has_finished = True

    # --- what waits -----------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Return whether a new line would be dropped."""
        return self._untold > 0

    def drop(self, count: int = 1) -> None:
        """Count lines that were dropped before they were formatted, because of `is_full`."""
        with self._changed:
            self.dropped += count
            self._untold += count

    def _put_begun(self) -> None:
        begun, self._begun = self._begun, ""
        self._put(begun)

    def _put(self, text: str) -> None:
        data = text.encode(self._encoding, self.errors)
        if self._untold or self._pending_bytes + len(data) > self._pending_bytes_max:
            self.drop(text.count("\n") or 1)
            return
        self._pending_bytes += len(data)
        self._lines.extend(data.splitlines(keepends=True) if text.count("\n") > 1 else [data])
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="standard output", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    # --- in the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._untold:
                    self._changed.wait()
                piece, lines = self._next()
                self._is_writing = True
            written = self._write_out(piece)
            with self._changed:
                self._is_writing = False
                if not written:
                    self.dropped += lines
                self._changed.notify_all()

    def _next(self) -> tuple[bytes, int]:
        """Return lines that fit one atomic write to a pipe, and their number."""
        if not self._lines:
            # All earlier lines are written.
            untold, self._untold = self._untold, 0
            return (self.notice(untold) + "\n").encode(self._encoding, self.errors), 0
        piece = [self._lines.popleft()]
        size = len(piece[0])
        while self._lines and size + len(self._lines[0]) <= select.PIPE_BUF:
            size += len(self._lines[0])
            piece.append(self._lines.popleft())
        self._pending_bytes -= size
        return b"".join(piece), len(piece)

    def _write_out(self, data: bytes) -> bool:
        """Write all data, however long that takes; return whether it succeeded."""
        try:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:
                    self._can_write(None)
        except OSError:
            # The reader is gone, or the disk is full. Later lines may succeed.
            return False
        return True

    def _can_write(self, timeout_ms: int | None) -> bool:
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        return bool(ready.poll(timeout_ms))


def never_wait_for_readers() -> None:
    """Replace standard output and error of this process with streams that never wait for their reader."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            _reopen_pipe(stream.fileno())
            output = StandardOutput(stream)
        except (OSError, ValueError, AttributeError):
            # The stream is closed, or a test has replaced it.
            continue
        setattr(sys, name, output)
        atexit.register(output.finish)


def _reopen_pipe(descriptor: int) -> None:
    """Make a pipe non-blocking for writers that bypass this module, such as `faulthandler`.

    The pipe is reopened, because changing the flags of an inherited descriptor changes them for the parent too. If the system
    does not allow it, such writers block.
    """
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError):
            ours = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.dup2(ours, descriptor)
            os.close(ours)


def dropped_lines() -> int:
    """Return the number of lines of standard output and error that this process has dropped."""
    return sum(stream.dropped for stream in (sys.stdout, sys.stderr) if isinstance(stream, StandardOutput))
