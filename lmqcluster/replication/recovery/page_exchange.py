"""Transfer of pages from a node that has them to one that lacks them: a few at a time, so that other messages can pass.

A snapshot names pages instead of holding their content. The name of a page is the digest of its content, so it is
equal on all nodes, and a node that was away for a while asks only for the pages that it lacks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import structlog

from ...core.queue.pager import Pager
from ..base.membership import PeerNode
from ..storage.page_files import PageFiles

__all__ = ["PageExchange"]

log = structlog.get_logger("lmq.pages")

WINDOW = 4
"""Pages requested at a time."""
TIMEOUT_S = 10.0
"""A fetch fails if the peer has sent no page for this long."""
_LOOK_S = 0.05

Send = Callable[[PeerNode, dict[str, Any]], bool]
Done = Callable[[bool | None], None]
"""Called with whether all pages are here; None if the member has not answered, so that it may have them."""


class PageExchange:
    """One node's requests for pages, and its answers.

    Args:
        pages: the node's own.
        pager: returns the backlogs of its current state.
        send: sends a message to a member; False if it cannot be reached.

    Attributes:
        on_denied: called with the name of a page that a member has requested and that is not here.
        fetched_total: pages that came from other nodes.
    """

    def __init__(self, pages: PageFiles, pager: Callable[[], Pager], send: Send) -> None:
        self._pages = pages
        self._pager = pager
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._fetches: dict[_Fetch, None] = {}
        self._due: deque[_Fetch] = deque()
        self._is_going_on = False
        self._timer: asyncio.TimerHandle | None = None
        self.on_denied: Callable[[bytes], None] = _nothing
        self.fetched_total = 0

    def fetch(self, node: PeerNode, pages: Iterable[bytes], done: Done) -> None:
        """Fetch as many of these pages from a member as it has; then call `done`."""
        fetch = _Fetch(node, deque(pages), self._pager().lows(), done, self._loop.time())
        self._fetches[fetch] = None
        self._go_on([fetch])

    def link_changed(self, node: PeerNode) -> None:
        """Note that the connection with a member is new or gone: requests, or their answers, may be lost."""
        for fetch in self._fetches:
            if fetch.node == node and fetch.asked:
                fetch.is_unanswered = True
        self._go_on(self._fetches)

    def close(self) -> None:
        """Stop asking."""
        self._fetches.clear()
        if self._timer is not None:
            self._timer.cancel()

    def asked(self, node: PeerNode, page: bytes, low: int) -> None:
        """Handle a page request; reply with a denial if the page is missing."""
        if page not in self._pages:
            # Its messages may still be in memory only.
            self._pager().save_chunk(low)
        self._pages.give(page, partial(self._give, node, page))

    def _give(self, node: PeerNode, page: bytes, stored: bytes | None) -> None:
        self._send(node, {"type": "page", "page": page, "data": stored or b""})
        if stored is None:
            self.on_denied(page)

    def answered(self, node: PeerNode, page: bytes, data: bytes) -> None:
        """Handle a page of a member, or its denial."""
        for fetch in self._fetches:
            if fetch.node == node and page in fetch.asked:
                self._take(fetch, page, data)
                self._go_on([fetch])
                break

    def _take(self, fetch: _Fetch, page: bytes, data: bytes) -> None:
        fetch.heard_s = self._loop.time()
        try:
            self._pages.add(page, data)
        except ValueError as exc:
            log.warning("page not received", page=page.hex(), peer=str(fetch.node.id), reason=str(exc))
            fetch.is_refused = True
        else:
            self.fetched_total += 1
        fetch.asked.discard(page)

    def _go_on(self, fetches: Iterable[_Fetch]) -> None:
        """Request more where there is room; finish fetches that are complete or unanswered.

        The callback of a finished fetch may begin another one, which is queued: thousands may end at the same time.
        """
        self._due.extend(fetches)
        if self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._due:
                self._go_on_with(self._due.popleft())
        finally:
            self._is_going_on = False
        if self._fetches and self._timer is None:
            # The disk may have caught up, or a peer may be gone.
            self._timer = self._loop.call_later(_LOOK_S, self._look_again)

    def _go_on_with(self, fetch: _Fetch) -> None:
        if fetch not in self._fetches:
            return
        self._ask(fetch)
        if fetch.is_over:
            del self._fetches[fetch]
            fetch.done(fetch.outcome)

    def _look_again(self) -> None:
        self._timer = None
        self._go_on(self._fetches)

    def _ask(self, fetch: _Fetch) -> None:
        if fetch.asked and self._loop.time() > fetch.heard_s + TIMEOUT_S:
            fetch.is_unanswered = True
        if fetch.lacking:
            # No other event may retry failed writes.
            self._pages.try_again()
        while fetch.lacking and len(fetch.asked) < WINDOW and not self._pages.is_busy() and not fetch.is_unanswered:
            page = fetch.lacking.popleft()
            if page in self._pages:
                continue
            if not fetch.asked:
                fetch.heard_s = self._loop.time()
            fetch.asked.add(page)
            low = fetch.lows.get(page, 0)
            fetch.is_unanswered = not self._send(fetch.node, {"type": "page_request", "page": page, "low": low})


def _nothing(_page: bytes) -> None:
    """Do nothing: no callback is set."""


class _Fetch:
    """Pages requested from a member, or to be requested."""

    def __init__(
        self, node: PeerNode, lacking: deque[bytes], lows: Mapping[bytes, int], done: Done, now_s: float
    ) -> None:
        self.node = node
        self.lacking = lacking
        self.lows = lows
        self.asked: set[bytes] = set()
        self.done = done
        self.heard_s = now_s
        self.is_refused = False
        self.is_unanswered = False

    @property
    def outcome(self) -> bool | None:
        """Return the argument of `Done`."""
        return None if self.is_unanswered else not self.is_refused

    @property
    def is_over(self) -> bool:
        """Return whether all pages that the member has have arrived, or the member does not answer."""
        return self.is_unanswered or not (self.lacking or self.asked)
