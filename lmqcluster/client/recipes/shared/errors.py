"""Errors of the recipes."""

from __future__ import annotations

from typing import Any

__all__ = ["CorruptItemError", "PutError", "QueueEmpty", "QueueStateError"]


class QueueStateError(RuntimeError):
    """The queue is not started, started twice, or closed."""


class CorruptItemError(ValueError):
    """A stored message is not in the recipes' format."""


class PutError(Exception):
    """An item could not be stored, or nobody knows whether it was; the cause says why.

    Attributes:
        item: the item, or the list of items that were put as one.
    """

    def __init__(self, queue: str, item: Any, reason: Exception) -> None:
        super().__init__(f"an item could not be put into the queue {queue!r}: {reason}")
        self.item = item
        self.__cause__ = reason


class QueueEmpty(LookupError):  # noqa: N818
    """There is no such element."""
