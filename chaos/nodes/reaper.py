"""A process that ends the processes of a drill, however the drill itself ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

__all__ = ["Reaper"]

_SCRIPT = """
import os, signal, sys
for name in (signal.SIGINT, signal.SIGTERM):
    signal.signal(name, signal.SIG_IGN)
alive = set()
for line in sys.stdin:
    sign, pid = line[0], int(line[1:])
    alive.add(pid) if sign == "+" else alive.discard(pid)
for pid in alive:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Reaper:
    """Kills the registered process groups when its pipe closes, which the end of the drill always causes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()

    def watch(self, pid: int) -> None:
        """Register a process group."""
        self._send("+", pid)

    def forget(self, pid: int) -> None:
        """Unregister a process group that has ended."""
        self._send("-", pid)

    def _send(self, sign: str, pid: int) -> None:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the reaper was not started")
        with self._lock:
            self._process.stdin.write(f"{sign}{pid}\n")
            self._process.stdin.flush()
