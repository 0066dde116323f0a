"""Notifications to the service manager (systemd's ``Type=notify``, see sd_notify(3)).

The node reports when it serves, when it stops, that its event loop is alive, and its status in one line. If the environment has
no ``NOTIFY_SOCKET``, nothing is sent.
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
        environ: the environment; by default that of the process. ``NOTIFY_SOCKET`` names the manager's datagram socket,
            ``WATCHDOG_USEC`` the watchdog timeout in microseconds.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        name = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the abstract name space, which the kernel marks with a zero byte.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self._failed = False
        self.watchdog_s = _watchdog_s(environ) if self._address else None

    @property
    def listens(self) -> bool:
        """Return whether a service manager wants notifications."""
        return bool(self._address)

    def ready(self) -> None:
        """Report that the node has read its data and accepts requests on all its ports."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """Report the start of a reload; `ready` reports its end."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report the start of a graceful stop."""
        self._tell("STOPPING=1\nSTATUS=stopping: answering what is in flight")

    async def report(self, describe: Callable[[], str]) -> None:
        """Report every change of the status, and feed the watchdog, until cancelled.

        Args:
            describe: returns the status of the node in one line.
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
