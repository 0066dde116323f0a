"""Replacement of pages that this node should have but that are missing or damaged: it asks other members for them.

A page found damaged is replaced while the node continues, as far as it can without the page (`page_wait`). A page
that is missing at the start may be needed by the next entry of the log, so nothing is applied until the page has
arrived.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import structlog

from ..base.membership import PeerNode
from ..member import MemberView
from ..storage.io.disk import DamagedFileError
from ..storage.page_files import PageFiles
from .page_exchange import PageExchange

__all__ = ["LostPages", "MissingPagesError"]

log = structlog.get_logger("lmq.pages")

RETRY_S = 0.5
ROUND_PAGES = 64
"""Most damaged pages in one round, so that an urgent one waits for no more than these."""
AGAIN_S = 5.0
"""Time between two rounds of questions for a damaged page."""
PATIENCE_S = 60.0
"""A node without a page that it needs stops after this time."""


class MissingPagesError(DamagedFileError):
    """Pages are missing that the state needs, and no member has them."""


class LostPages:
    """Fetches lost pages from other members.

    Attributes:
        on_replaced: called with the name of a damaged page that has arrived.
        on_denied: called with the name of a page that no reachable member has, after every round of questions for it.
    """

    def __init__(
        self,
        owner: MemberView,
        pages: PageFiles,
        exchange: PageExchange,
        lacking: list[bytes],
        need_snapshot: Callable[[Callable[[], None]], None],
    ) -> None:
        """Fetch `lacking`, the pages that are missing now and may be needed immediately.

        If no member has them, `need_snapshot` requests a newer state, and calls its argument if none arrives.
        """
        self._owner = owner
        self._need_snapshot = need_snapshot
        self._pages = pages
        self._exchange = exchange
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        # Damaged pages to ask for, and those asked for now. The value is the deadline for asking again while a member
        # has not answered; None before the first round.
        self._due: OrderedDict[bytes, float | None] = OrderedDict()
        self._asking: dict[bytes, float] = {}
        # Pages logged as missing on all members.
        self._told: set[bytes] = set()
        # Pages that were missing at the start are irrelevant once a snapshot has been installed.
        self._starts = True
        self.on_replaced: Callable[[bytes], None] = _nothing
        self.on_denied: Callable[[bytes], None] = _nothing
        pages.on_lost = self.replace
        if lacking:
            self._wait_for(lacking)

    def close(self) -> None:
        """Stop asking."""
        for timer in self._timers:
            timer.cancel()

    def installed(self) -> None:
        """Note that the state was replaced and lacks nothing; damaged pages that it also needs are still requested."""
        self._starts = False

    def replace(self, page: bytes, *, is_urgent: bool = False) -> None:
        """Fetch a replacement for a damaged page, first if urgent; a member that lacks it now may have it later."""
        if page in self._asking:
            return
        self._due.setdefault(page, None)
        self._due.move_to_end(page, last=not is_urgent)
        self._ask_round()

    def _ask_round(self) -> None:
        """Ask one member after the other for some of the pages, then begin the next round."""
        if self._asking or not self._due:
            return
        pages, until_s = [*islice(self._due, ROUND_PAGES)], self._loop.time() + PATIENCE_S
        self._asking = {page: self._due.pop(page) or until_s for page in pages}
        peers = self._owner.peers_now()
        is_everybody_there = len(peers) >= self._owner.others_count()

        def asked(*, are_here: bool | None) -> None:
            asking, self._asking = self._asking, {}
            for page, until_s in asking.items():
                if page in self._pages:
                    self._replaced(page)
                elif (are_here is False and is_everybody_there) or self._loop.time() >= until_s:
                    self._denied(page)
                else:
                    self._later(partial(self._put_off, page, until_s))
            self._ask_round()

        self._ask(pages, iter(peers), asked, are_here=False)

    def _put_off(self, page: bytes, until_s: float) -> None:
        """Ask again for a page for which not all members have been asked yet."""
        if page not in self._asking:
            self._due.setdefault(page, until_s)
            self._ask_round()

    def _replaced(self, page: bytes) -> None:
        log.warning("damaged page replaced", file=self._pages.path(page))
        self._told.discard(page)
        self.on_replaced(page)

    def _denied(self, page: bytes) -> None:
        if page not in self._told:
            self._told.add(page)
            log.error("no other member has the page", file=self._pages.path(page))
        self._later(partial(self._replace_if_lost, page), AGAIN_S)
        self.on_denied(page)

    def _replace_if_lost(self, page: bytes) -> None:
        if page in self._pages.lost:
            self.replace(page)
        else:
            self._told.discard(page)

    def _wait_for(self, pages: list[bytes]) -> None:
        """Fetch missing pages, and apply nothing until they are here."""

        def done(*, are_here: bool) -> None:
            if not self._starts:
                return
            if are_here:
                log.info("missing pages are here", count=len(pages))
                self._owner.hold_back(held=False)
            else:
                self._need_snapshot(give_up)

        def give_up() -> None:
            reason = f"{len(pages)} pages are missing and no member has them; run 'lmq repair' to copy everything"
            self._owner.failed(MissingPagesError(self._pages.path(pages[0]), 0, reason))

        log.warning("pages missing", count=len(pages), file=self._pages.path(pages[0]))
        self._owner.hold_back(held=True)
        self._later(lambda: self._try(pages, self._loop.time() + PATIENCE_S, done))

    def _try(self, pages: list[bytes], until_s: float, done: Callable[..., None]) -> None:
        """Ask all reachable members, repeatedly until each of them was asked."""
        peers = self._owner.peers_now()
        is_everybody_there = len(peers) >= self._owner.others_count()

        def tried(*, are_here: bool | None) -> None:
            has_nobody = are_here is False and is_everybody_there
            if are_here or has_nobody or self._loop.time() >= until_s:
                done(are_here=bool(are_here))
            else:
                self._later(lambda: self._try(pages, until_s, done))

        self._ask(pages, iter(peers), tried, are_here=False)

    def _later(self, action: Callable[[], None], delay_s: float = RETRY_S) -> None:
        def act() -> None:
            self._timers.discard(timer)
            action()

        timer = self._loop.call_later(delay_s, act)
        self._timers.add(timer)

    def _ask(
        self, pages: list[bytes], peers: Iterator[PeerNode], done: Callable[..., None], *, are_here: bool | None
    ) -> None:
        """Ask one peer after the other; `are_here` is None once one has not answered, since it may have the pages."""
        peer = next(peers, None)
        if peer is None:
            done(are_here=are_here)
            return

        def fetched(outcome: bool | None) -> None:
            if outcome:
                done(are_here=True)
            else:
                self._ask(pages, peers, done, are_here=None if outcome is None else are_here)

        self._exchange.fetch(peer, pages, fetched)


def _nothing(_page: bytes) -> None:
    """Do nothing: no callback is set."""
