"""Backpressure: a member applies nothing while its memory fills with messages faster than its disk writes pages.

Producers wait then, because an operation is answered when it is applied; the log, heartbeats and votes continue.
"""

from __future__ import annotations

import asyncio

from ...core.queue.pager import Pager
from ..storage.page_files import PageFiles

__all__ = ["Throttle"]


class Throttle:
    """The throttle of one member.

    Attributes:
        is_on: whether nothing is applied now.
        seconds_total: how long the throttle was on.
    """

    def __init__(self, pages: PageFiles) -> None:
        self.is_on = False
        self.seconds_total = 0.0
        self._pages = pages
        self._since_s = 0.0
        self._loop = asyncio.get_running_loop()

    def update(self, pager: Pager) -> bool:
        """Update and return `is_on`. If pages are not being written, for example on a full disk, nothing is held back."""
        is_on = pager.is_flooded() and self._pages.is_writing
        if is_on != self.is_on:
            self.is_on = is_on
            now_s = self._loop.time()
            if is_on:
                self._since_s = now_s
            else:
                self.seconds_total += now_s - self._since_s
        return is_on
