"""The supply of pages that one member lacks, or of a state that does not need them; and its answers to other members."""

from __future__ import annotations

from typing import Any, Final

from ...core import Machine
from ...core.log.commands import Encoded
from ..base.membership import PeerNode
from ..member import MemberView
from .lost_pages import LostPages
from .page_exchange import Send
from .page_wait import PageWait
from .snapshot_requests import SnapshotRequests

__all__ = ["PAGE_MESSAGES", "PageSupply"]

PAGE_MESSAGES: Final = frozenset({"page_request", "page", "snapshot_request"})
"""Messages that `PageSupply.take` takes."""


class PageSupply:
    """The page supply of one member.

    Args:
        lacking: pages that are missing at the start.
        send: sends a message to a member.
    """

    def __init__(self, owner: MemberView, lacking: list[bytes], send: Send) -> None:
        self._exchange = owner.page_exchange
        self._requests = SnapshotRequests(owner.core, send, owner.in_step)
        self._lost = LostPages(owner, owner.pages, owner.page_exchange, lacking, self._requests.begin)
        self._wait = PageWait(owner.pages, self._lost, self._requests, owner.wake)

    def is_waiting(self) -> bool:
        """Return whether the next batch waits for pages."""
        return self._wait.is_on

    def waited_s(self) -> float:
        """Return the seconds for which batches have waited for pages so far."""
        return self._wait.waited_s()

    def may_apply(self, machine: Machine, now_us: int, commands: list[Encoded]) -> bool:
        """Return whether a batch of these commands can be applied next; if not, fetch the pages that it needs."""
        return self._wait.may_apply(machine, now_us, commands)

    def take(self, node: PeerNode, message: dict[str, Any]) -> None:
        """Handle a message of another member, one of `PAGE_MESSAGES`."""
        if message["type"] == "page_request":
            self._exchange.asked(node, message["page"], message["low"])
        elif message["type"] == "page":
            self._exchange.answered(node, message["page"], message["data"])
        else:
            self._requests.asked(node, message["applied"])

    def installed(self) -> None:
        """Note that a snapshot was installed, so that the state has all pages that it needs."""
        self._lost.installed()
        self._wait.reset()

    def close(self) -> None:
        """Stop asking."""
        self._wait.close()
        self._lost.close()
        self._exchange.close()
