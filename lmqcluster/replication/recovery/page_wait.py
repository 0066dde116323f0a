"""A batch that needs pages is applied when they are here: meanwhile they are read, or come from other members.

A batch cannot be stopped halfway, so a page that turned out to be damaged then would end the node, though others have the page:
they keep its file until their next snapshot at least. So nothing is applied as long as a page that the next batch needs is being
read, and, if it is damaged, until another member has sent it. If none has it, because all have left it behind, the leader sends a
newer state. The log, heartbeats, votes and the questions of others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from ...core import Machine
from ...core.log.commands import Command
from ..storage.page_files import PageFiles
from .lost_pages import PATIENCE_S, LostPages
from .snapshot_requests import SnapshotRequests

__all__ = ["PageWait"]

log = structlog.get_logger("lmq.pages")


class PageWait:
    """What one member waits for before it applies more.

    Args:
        pages: its pages.
        lost: has those replaced that are damaged.
        requests: has the leader send a newer state.
        wake: has the next batch looked at again.

    Attributes:
        is_on: whether nothing is applied now.
    """

    def __init__(self, pages: PageFiles, lost: LostPages, requests: SnapshotRequests, wake: Callable[[], None]) -> None:
        self.is_on = False
        self._since_s = self._waited_s = 0.0
        self._pages = pages
        self._lost = lost
        self._requests = requests
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        # Pages that have not come yet.
        self._awaited: set[bytes] = set()
        # Those that were read for the next batch: what is read ahead may have to make room before it is applied.
        self._seen: set[bytes] = set()
        # Those that are not waited for any more.
        self._given_up: set[bytes] = set()
        self._patience: asyncio.TimerHandle | None = None
        lost.on_replaced = self._came
        lost.on_denied = self._denied

    def may_apply(self, machine: Machine, now_us: int, commands: list[Command]) -> bool:
        """Whether the next batch can be applied; if not, this member waits for what it needs."""
        if self.is_on:
            return False
        for page in machine.pages_ahead(now_us, commands):
            if not self._pages.is_ready(page) and page not in self._seen and page not in self._given_up:
                self._awaited.add(page)
        if not self._awaited:
            self._seen.clear()
            return True
        self.is_on = True
        self._since_s = self._loop.time()
        self._patience = self._loop.call_later(PATIENCE_S, self._give_up)
        for page in list(self._awaited):
            self._pages.fetch(page, partial(self._fetched, page))
        return not self.is_on

    def waited_s(self) -> float:
        """Seconds for which nothing was applied so far."""
        return self._waited_s + (self._loop.time() - self._since_s if self.is_on else 0.0)

    def reset(self) -> None:
        """The state is another one now."""
        self._seen.clear()
        self._given_up.clear()
        self._awaited.clear()
        self._requests.end()
        self._go_on()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._requests.end()
        self._stop_patience()

    def _stop_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def _fetched(self, page: bytes, is_here: bool) -> None:
        if page not in self._awaited:
            return
        if is_here:
            self._came(page)
        else:
            log.warning("a damaged page is needed, waiting for another member to send it", file=self._pages.path(page))
            self._lost.replace(page, is_urgent=True)

    def _came(self, page: bytes) -> None:
        self._given_up.discard(page)
        if page in self._awaited:
            self._awaited.remove(page)
            self._seen.add(page)
            if not self._awaited:
                self._go_on()

    def _denied(self, page: bytes) -> None:
        """All members that could be asked have said that they do not have the page."""
        if page in self._awaited:
            # From now on it counts how the newer state comes.
            self._stop_patience()
            self._requests.begin(self._give_up)

    def _give_up(self) -> None:
        """Neither a page nor a newer state has come: apply the batch without, which ends the node if it needs the page indeed."""
        self._given_up |= self._awaited
        self._awaited.clear()
        self._go_on()

    def _go_on(self) -> None:
        if self.is_on:
            self.is_on = False
            self._waited_s += self._loop.time() - self._since_s
            self.close()
            self._wake()
