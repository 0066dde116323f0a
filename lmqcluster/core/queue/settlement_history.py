"""How deliveries ended other than by an ack, remembered for a while.

A client that has lost the answer to an ack asks again. That it finds no lease tells nothing: the first attempt may have
settled it, or the lease may have ended before. An ack leaves no trace, because most deliveries end so; everything else does.
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
        floor: no delivery above it was forgotten.
    """

    ENDINGS_MAX = 65_536

    def __init__(self) -> None:
        self.floor = 0
        self._endings: dict[int, Settlement] = {}
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def note(self, number: int, ending: Settlement) -> None:
        """Remember how a delivery ended; it ends once."""
        self._endings[number] = ending
        order = self._order
        order.append(number)
        if len(order) > self.ENDINGS_MAX:
            oldest = order.popleft()
            del self._endings[oldest]
            self.floor = max(self.floor, oldest)

    def find(self, number: int) -> Settlement | None:
        """How the delivery ended; None if by an ack, if it has not ended, or, up to `floor`, if that is forgotten."""
        return self._endings.get(number)

    def rows(self) -> Iterator[list[object]]:
        """The table as of now for a snapshot, oldest ending first; it may change while the rows are read."""
        items = list(self._endings.items())
        return ([number, int(ending)] for number, ending in items)

    def load(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a delivery ends twice, or in a way that there is not.
        """
        for number, ending in rows:
            if number in self._endings:
                raise ValueError("a delivery ends twice")
            self._endings[number] = Settlement(ending)
            self._order.append(number)
