"""A table of things that owners have under names, ordered by last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

__all__ = ["OwnedTable"]

Value = TypeVar("Value")
Place = tuple[bytes, bytes]


class OwnedTable(Generic[Value]):
    """Values by (owner, name), the least recently used first."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Place, Value] = OrderedDict()
        # Names of each owner, in the order in which they came.
        self._names: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, owner: bytes, name: bytes) -> Value | None:
        """The owner's value, or None."""
        return self._rows.get((owner, name))

    def find(self, owner: bytes, name: bytes) -> tuple[bytes, Value] | None:
        """The owner's value, or one that belongs to nobody, and whose it is.

        What belongs to nobody is everybody's: its client got a token meanwhile, or the program was older.
        """
        for whose in (owner, b""):
            value = self._rows.get((whose, name))
            if value is not None:
                return whose, value
        return None

    def put(self, owner: bytes, name: bytes, value: Value) -> None:
        """Set a value, which is now the one used last."""
        self._rows[owner, name] = value
        self._rows.move_to_end((owner, name))
        self._names.setdefault(owner, {})[name] = None

    def pop(self, owner: bytes, name: bytes) -> Value | None:
        """Remove a value; None if there is none."""
        value = self._rows.pop((owner, name), None)
        if value is not None:
            names = self._names[owner]
            del names[name]
            if not names:
                del self._names[owner]
        return value

    def oldest(self) -> tuple[Place, Value] | None:
        """The value used longest ago, with its owner and name."""
        return next(iter(self._rows.items()), None)

    def first_of(self, owner: bytes) -> bytes | None:
        """The name under which the owner has something, the first one that came; None if there is none."""
        return next(iter(self._names.get(owner, ())), None)

    def items(self) -> Iterator[tuple[Place, Value]]:
        """All values, the least recently used first."""
        return iter(self._rows.items())
