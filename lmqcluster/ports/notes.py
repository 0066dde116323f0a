"""Log lines about connections that a port has ended: one a minute for each client, with the number that it stands for."""

from __future__ import annotations

import structlog

from .place import Ending

__all__ = ["Notes"]

log = structlog.get_logger("lmq.ports")

PERIOD_S = 60.0
CLIENTS_MAX = 1024
_OTHERS = "others"


class _Note:
    __slots__ = ("count", "ending", "said_s")

    def __init__(self, said_s: float) -> None:
        self.said_s = said_s
        self.count = 0
        self.ending = Ending.IDLE


class Notes:
    """What was said lately, and of whom.

    Attributes:
        totals: connections ended since the start, by reason.
    """

    def __init__(self, port: str) -> None:
        """Take the port's name for people."""
        self.totals: dict[Ending, int] = dict.fromkeys(Ending, 0)
        self._port = port
        self._notes: dict[str, _Note] = {}

    def take(self, client: str, ending: Ending, reason: str, now_s: float) -> None:
        """A connection of this client was ended."""
        self.totals[ending] += 1
        name = client if client in self._notes or len(self._notes) < CLIENTS_MAX else _OTHERS
        note = self._notes.get(name)
        if note is None:
            self._notes[name] = _Note(now_s)
            self._say(name, ending, 1, reason)
            return
        note.count += 1
        note.ending = ending

    def review(self, now_s: float) -> None:
        """Say what was held back a minute ago, and forget those of whom there is nothing to say."""
        for name, note in list(self._notes.items()):
            if note.said_s > now_s - PERIOD_S:
                continue
            if note.count:
                self._say(name, note.ending, note.count, "")
                note.count, note.said_s = 0, now_s
            else:
                del self._notes[name]

    def _say(self, client: str, ending: Ending, count: int, reason: str) -> None:
        more = {"detail": reason} if reason else {}
        log.info("connections ended", port=self._port, client=client, reason=ending.value, count=count, **more)
