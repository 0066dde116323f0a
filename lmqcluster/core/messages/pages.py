"""What can leave memory for a page, and what keeps the pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["PageError", "PageStore", "Pageable"]


class PageError(Exception):
    """A page that is needed now cannot be had; the replica must stop, because it could not go on as the others do.

    Attributes:
        page: its name, empty if it is not known which.
    """

    def __init__(self, reason: str, page: bytes = b"") -> None:
        super().__init__(reason)
        self.page = page


class PageStore(Protocol):
    """Keeps pages outside of memory."""

    def save(self, columns: list[Any]) -> bytes:
        """Keep some columns; returns the page's name, which follows from its content."""

    def load(self, page: bytes) -> list[Any]:
        """The columns of a page.

        Raises:
            PageError: it is lost or damaged.
        """

    def want(self, page: bytes) -> None:
        """The page will be loaded soon."""

    def is_ready(self, page: bytes) -> bool:
        """Whether `load` can neither fail nor wait for the disk."""

    def fetch(self, page: bytes, done: Callable[[bool], None]) -> None:
        """Have the page at hand so that `load` need not wait for it, then call `done` with whether it can be read."""

    def is_busy(self) -> bool:
        """Whether to wait before more is saved for the sake of memory."""


class Pageable(ABC):
    """Something that is either in memory or in a page, and does not change.

    Attributes:
        page: the name of its page, empty if there is none.
        in_line: whether the state has it still.
    """

    __slots__ = ("__weakref__", "in_line", "page")

    def __init__(self, page: bytes) -> None:
        self.page = page
        self.in_line = True

    @abstractmethod
    def is_here(self) -> bool:
        """Whether it is in memory."""

    @abstractmethod
    def columns(self) -> list[Any]:
        """What its page holds; it must be in memory."""

    @abstractmethod
    def memory_bytes(self) -> int:
        """About what it takes in memory if it is there."""

    @abstractmethod
    def let_go(self) -> None:
        """Keep it in memory no more; there must be a page."""
