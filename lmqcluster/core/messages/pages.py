"""Interfaces of paging: objects that can be paged out, and the store that keeps the pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["PageError", "PageStore", "Pageable"]


class PageError(Exception):
    """A page that is needed now is unavailable; the replica must stop, because it would diverge from the others.

    Attributes:
        page: its name, empty if unknown.
    """

    def __init__(self, reason: str, page: bytes = b"") -> None:
        super().__init__(reason)
        self.page = page


class PageStore(Protocol):
    """Keeps pages outside of memory."""

    def save(self, columns: list[Any]) -> bytes:
        """Write some columns; return the page's name, which is derived from its content."""

    def load(self, page: bytes) -> list[Any]:
        """Return the columns of a page.

        Raises:
            PageError: it is lost or damaged.
        """

    def want(self, page: bytes) -> None:
        """Prefetch a page that is needed soon."""

    def is_ready(self, page: bytes) -> bool:
        """Return whether `load` can neither fail nor wait for the disk."""

    def fetch(self, page: bytes, done: Callable[[bool], None]) -> None:
        """Prefetch the page so that `load` need not wait for it, then call `done` with True if it is readable."""

    def is_busy(self) -> bool:
        """Return whether eviction should pause because too many writes are pending."""


class Pageable(ABC):
    """An immutable object that is either in memory or in a page.

    Attributes:
        page: the name of its page, empty if there is none.
        in_line: True while the state refers to it.
    """

    __slots__ = ("__weakref__", "in_line", "page")

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.in_line = True

    @abstractmethod
    def is_here(self) -> bool:
        """Return whether it is in memory."""

    @abstractmethod
    def columns(self) -> list[Any]:
        """Return the content of its page; it must be in memory."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """Return its approximate bytes in memory when it is loaded."""

    @abstractmethod
    def let_go(self) -> None:
        """Drop its content from memory; there must be a page."""
