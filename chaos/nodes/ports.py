"""Loopback ports for nodes and proxies, reserved against other drills and test runs on the machine."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from ..errors import DrillError

__all__ = ["Ports"]

_RANGE = range(20_000, 32_000)
"""Below the ephemeral ports of operating systems."""


class Ports:
    """Allocates free ports. A file lock reserves each until `release`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / "lmqcluster-test-ports"
        self._locks: list[int] = []
        self._candidates = iter(random.sample(_RANGE, len(_RANGE)))

    def take(self) -> int:
        """Return a free port.

        Raises:
            DrillError: none is left.
        """
        for port in self._candidates:
            if self._reserve(port):
                return port
        raise DrillError(f"no port from {_RANGE.start} to {_RANGE.stop - 1} is free")

    def release(self) -> None:
        """Release all ports."""
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _reserve(self, port: int) -> bool:
        self._folder.mkdir(exist_ok=True)
        lock = os.open(self._folder / str(port), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            return False
        self._locks.append(lock)
        return True
