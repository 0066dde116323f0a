"""Messages to the service manager, where one listens (systemd's ``Type=notify``, see sd_notify(3)).

The node says when it serves, when it stops, that its event loop is alive, and in one line how it is. Without
``NOTIFY_SOCKET`` in the environment nobody listens and nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ServiceManager"]

log = structlog.get_logger("lmq.service_manager")

STATUS_INTERVAL_S: Final = 2.0


class ServiceManager:
    """The service manager that started this process.

    Args:
        environ: the environment; default the process's. ``NOTIFY_SOCKET`` names the manager's datagram socket,
            ``WATCHDOG_USEC`` the time in microseconds within which it wants a sign of life again and again.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        name = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract name space, which the kernel marks with a zero byte.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._failed = False
        self.watchdog_s = _watchdog_s(environ) if self._address else None

    @property
    def listens(self) -> bool:
        """Whether there is one that wants to hear."""
        return bool(self._address)

    def ready(self) -> None:
        """The node has read its data and takes requests on all its ports."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Files are being read again; `ready` says when that is over."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The node has begun to stop gracefully."""
        self._tell("STOPPING=1\nSTATUS=stopping: answering what is in flight")

    async def report(self, describe: Callable[[], str]) -> None:
        """Until cancelled, tell the state whenever it has changed, and that the event loop is alive.

        Args:
            describe: gives the state of the node in one line.
        """
        if not self.listens:
            return
        interval_s = STATUS_INTERVAL_S if self.watchdog_s is None else min(STATUS_INTERVAL_S, self.watchdog_s / 3)
        told = ""
        while True:
            lines = [] if self.watchdog_s is None else ["WATCHDOG=1"]
            status = describe()
            if status != told:
                lines.append(f"STATUS={status}")
                told = status
            if lines:
                self._tell("\n".join(lines))
            await asyncio.sleep(interval_s)

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                # The event loop must not wait for a manager that has stopped reading.
                channel.setblocking(False)
                channel.sendto(state.encode(), self._address)
        except OSError as exc:
            if not self._failed:
                log.warning("cannot notify the service manager", reason=str(exc))
            self._failed = True
        else:
            self._failed = False


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    text = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", "")
    if not text.isdigit() or int(text) == 0 or meant_for not in ("", str(os.getpid())):
        return None
    return int(text) / 1_000_000
