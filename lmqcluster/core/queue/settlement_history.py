"""A bounded history of deliveries that ended other than by an ack.

A client that lost the answer to an ack sends it again. If no lease is found, either the first attempt has settled it,
or the lease had expired before. Acks are not recorded, because most deliveries end this way; all other endings are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum

__all__ = ["Settlement", "SettlementHistory"]


class Settlement(IntEnum):
    """Why a delivery has no lease any more. Part of the snapshot's format: never renumber."""

    EXPIRED = 1
    NACKED = 2
    PUT_BACK = 3


class SettlementHistory:
    """The latest `ENDINGS_MAX` endings, by delivery number.

    Attributes:
        floor: the highest delivery number whose ending was forgotten.
    """

    ENDINGS_MAX = 65_536

    def __init__(self) -> None:
        self.floor = 0
        self._endings: dict[int, Settlement] = {}
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def note(self, number: int, ending: Settlement) -> None:
        """Record how a delivery ended; the last ending counts if a message was hidden again under its number."""
        is_known = number in self._endings
        self._endings[number] = ending
        if is_known:
            return
        order = self._order
        order.append(number)
        if len(order) > self.ENDINGS_MAX:
            oldest = order.popleft()
            del self._endings[oldest]
            self.floor = max(self.floor, oldest)

    def find(self, number: int) -> Settlement | None:
        """Return how the delivery ended; None if it was acked or is leased. Up to `floor` it may also be forgotten."""
        return self._endings.get(number)

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, oldest ending first; it may change while the rows are read."""
        items = list(self._endings.items())
        return ([number, int(ending)] for number, ending in items)

    def load(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a delivery ends twice, or its ending is unknown.
        """
        for number, ending in rows:
            if number in self._endings:
                raise ValueError("a delivery ends twice")
            self._endings[number] = Settlement(ending)
            self._order.append(number)
