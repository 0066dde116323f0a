"""Server processes of the peers: each in a separate session, with its output in a file, and stopped whatever happens to
the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from tests.integration.cluster import reaper

T = TypeVar("T")

START_S = 90.0
"""Deadline for a server to come up on a busy machine."""
STOP_S = 15.0
POLL_S = 0.05
LOG_LINES_SHOWN = 30


class ServerProcess:
    """One server and its children."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self._command = list(command)
        self._directory = directory
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the server; it is not ready yet."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        reaper.tell("+", self._process.pid)
        return self

    @property
    def pid(self) -> int:
        """Return the process id of the started server, which leads the session of its children."""
        assert self._process is not None
        return self._process.pid

    def check_running(self) -> None:
        """Check that the server runs.

        Raises:
            RuntimeError: it has ended; the text has the end of its log.
        """
        if self._process is None or self._process.poll() is not None:
            code = None if self._process is None else self._process.returncode
            lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            raise RuntimeError("\n".join([f"{self.name} ended with {code}; the end of its log:", *lines]))

    def stop(self) -> None:
        """Kill the server and all its children, and wait for its end. Its data is not needed afterwards."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # It may have ended by itself, with all its children.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        reaper.tell("-", self._process.pid)
        self._process = None


async def eventually(probe: Callable[[], Awaitable[T | None]], what: str, timeout_s: float = START_S) -> T:
    """Call `probe` until it returns a true value, and return that.

    Raises:
        TimeoutError: it never did.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = await probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(POLL_S)


def find_program(name: str) -> str | None:
    """Return the path of a program, also in system directories that are not on an ordinary user's path."""
    directories = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    return shutil.which(name, path=os.pathsep.join(directories))
