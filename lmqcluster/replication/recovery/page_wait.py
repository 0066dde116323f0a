"""The wait of a batch for its pages, which are read from disk or fetched from other members before the batch is applied.

A batch cannot be stopped halfway. So a page found damaged within it would end the node, although others have the
page: they keep its file at least until their next snapshot. So nothing is applied while a page that the next batch
needs is being read, or, if it is damaged, until another member has sent it. If none has it, because the state of all
others no longer needs it, the leader sends a newer state. The log, heartbeats, votes and answers to others continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from ...core import Machine
from ...core.log.commands import Encoded
from ..storage.page_files import PageFiles
from .lost_pages import PATIENCE_S, LostPages
from .snapshot_requests import SnapshotRequests

__all__ = ["PageWait"]

log = structlog.get_logger("lmq.pages")


class PageWait:
    """The wait of one member for pages before it applies more.

    Args:
        pages: its pages.
        lost: replaces damaged pages.
        requests: requests a newer state from the leader.
        wake: has the next batch checked again.

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
        # Pages that have not arrived yet, in the order in which the batch needs them.
        self._awaited: dict[bytes, None] = {}
        # Pages read for the next batch: the read-ahead buffer may evict them before it is applied.
        self._seen: set[bytes] = set()
        # Pages that the member no longer waits for.
        self._given_up: set[bytes] = set()
        self._patience: asyncio.TimerHandle | None = None
        lost.on_replaced = self._came
        lost.on_denied = self._denied

    def may_apply(self, machine: Machine, now_us: int, commands: list[Encoded]) -> bool:
        """Return whether the next batch can be applied; if not, wait for the pages that it needs."""
        if self.is_on:
            return False
        for page in machine.pages_ahead(now_us, commands):
            if not self._pages.is_ready(page) and page not in self._seen and page not in self._given_up:
                self._awaited[page] = None
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
        """Return the seconds for which nothing was applied so far."""
        return self._waited_s + (self._loop.time() - self._since_s if self.is_on else 0.0)

    def reset(self) -> None:
        """Stop waiting, as the state was replaced."""
        self._seen.clear()
        self._given_up.clear()
        self._awaited.clear()
        self._requests.end()
        self._go_on()

    def close(self) -> None:
        """Stop waiting and asking."""
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
            del self._awaited[page]
            self._seen.add(page)
            if not self._awaited:
                self._go_on()

    def _denied(self, page: bytes) -> None:
        """Request a newer state, as all reachable members have denied the page."""
        if page in self._awaited:
            # From now on the requests for a newer state have their own timeout.
            self._stop_patience()
            self._requests.begin(self._give_up)

    def _give_up(self) -> None:
        """Apply the batch without the page or a newer state; the node stops if it does need the page."""
        self._given_up.update(self._awaited)
        self._awaited.clear()
        self._go_on()

    def _go_on(self) -> None:
        if self.is_on:
            self.is_on = False
            self._waited_s += self._loop.time() - self._since_s
            self.close()
            self._wake()
