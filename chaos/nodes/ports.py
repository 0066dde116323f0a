"""Loopback ports for nodes and proxies, reserved against other drills and test runs on the machine."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections import deque
from pathlib import Path
from typing import ClassVar

from ..errors import DrillError

__all__ = ["Ports"]

_RANGE = range(20_000, 32_000)
"""Below the ephemeral ports of operating systems."""


class Ports:
    """Allocates free ports. A lock reserves each against other processes until `release`."""

    # A test run reserves about a thousand ports, so the locks are bytes of one file. A process must open this file only once:
    # when it closes any descriptor of a file, it loses its locks on the file.
    _file: ClassVar[int | None] = None
    _reserved: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._candidates = deque(random.sample(_RANGE, len(_RANGE)))

    def take(self) -> int:
        """Reserve and return a port on which no process listens. Released ports are reused last.

        Raises:
            DrillError: none is left.
        """
        for _ in _RANGE:
            port = self._candidates.popleft()
            self._candidates.append(port)
            if self.reserve(port):
                return port
        raise DrillError(f"no port from {_RANGE.start} to {_RANGE.stop - 1} is free")

    def release(self) -> None:
        """Release all ports. One is not reused while a process listens on it."""
        for port in self._taken:
            fcntl.lockf(self._lock_file(), fcntl.LOCK_UN, 1, port)
        Ports._reserved -= self._taken
        self._taken.clear()

    def reserve(self, port: int) -> bool:
        """Reserve a port if it is free, and return whether it was."""
        if port in Ports._reserved:
            return False
        try:
            fcntl.lockf(self._lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            fcntl.lockf(self._lock_file(), fcntl.LOCK_UN, 1, port)
            return False
        Ports._reserved.add(port)
        self._taken.add(port)
        return True

    @staticmethod
    def _lock_file() -> int:
        if Ports._file is None:
            path = Path(tempfile.gettempdir()) / "lmqcluster-ports"
            Ports._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
        return Ports._file
