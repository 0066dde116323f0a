"""Logs connections that a port closed or refused, once a minute for each client, with a count."""

from __future__ import annotations

import structlog

from .ending import Ending

__all__ = ["RateLimitedLog"]

log = structlog.get_logger("lmq.ports")

PERIOD_S = 60.0
CLIENTS_MAX = 1024
_OTHERS = "others"


class _Entry:
    __slots__ = ("count", "ending", "logged_s", "reason")

    def __init__(self, logged_s: float) -> None:
        self.logged_s = logged_s
        self.count = 0
        self.ending = Ending.IDLE
        self.reason = ""


class RateLimitedLog:
    """The rate-limited log of one port.

    Attributes:
        totals: connections closed or refused since the start, by reason.
    """

    def __init__(self, port: str) -> None:
        """Set the name of the port, for people."""
        self.totals: dict[Ending, int] = dict.fromkeys(Ending, 0)
        self._port = port
        self._entries: dict[str, _Entry] = {}

    def count(self, client: str, ending: Ending, reason: str, now_s: float) -> None:
        """Count a closed or refused connection of this client; log it if nothing was logged in the last minute."""
        self.totals[ending] += 1
        name = client if client in self._entries or len(self._entries) < CLIENTS_MAX else _OTHERS
        entry = self._entries.get(name)
        if entry is None:
            self._entries[name] = _Entry(now_s)
            self._write(name, ending, 1, reason)
            return
        entry.count += 1
        entry.ending = ending
        entry.reason = reason

    def flush(self, now_s: float) -> None:
        """Log the counts that were held back for a minute with the latest reason; forget clients without any."""
        for name, entry in list(self._entries.items()):
            if entry.logged_s > now_s - PERIOD_S:
                continue
            if entry.count:
                self._write(name, entry.ending, entry.count, entry.reason)
                entry.count, entry.logged_s = 0, now_s
            else:
                del self._entries[name]

    def _write(self, client: str, ending: Ending, count: int, reason: str) -> None:
        more = {"detail": reason} if reason else {}
        log.info("connections ended", port=self._port, client=client, reason=ending.value, count=count, **more)
