"""Errors of the recipes."""

from __future__ import annotations

from typing import Any

__all__ = ["CorruptItemError", "PutError", "QueueEmpty", "QueueStateError"]


class QueueStateError(RuntimeError):
    """Raised if the queue is not started, started twice, or closed."""


class CorruptItemError(ValueError):
    """Raised if a stored message is not in the recipes' format."""


class PutError(Exception):
    """Raised if an item could not be stored, or the outcome is unknown; the cause is the reason.

    Attributes:
        item: the item, or the list of items of one `put_multi`.
    """

    def __init__(self, queue: str, item: Any, reason: Exception) -> None:
        super().__init__(f"an item could not be put into the queue {queue!r}: {reason}")
        self.item = item
        self.__cause__ = reason


class QueueEmpty(LookupError):  # noqa: N818
    """Raised if the queue has no element."""
