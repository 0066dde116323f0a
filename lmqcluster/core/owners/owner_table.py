"""A table of values by owner and name, ordered by last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

__all__ = ["OwnedTable", "is_random"]

_UUID: Final = b"xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx"
_DIGITS: Final = {b"x"[0]: b"0123456789abcdef", b"y"[0]: b"89ab"}
Value = TypeVar("Value")
Place = tuple[bytes, bytes]


def is_random(name: bytes) -> bool:
    """Return whether a name ends with a random UUID in lower case and so cannot be guessed."""
    end = name[-len(_UUID) :]
    return len(end) == len(_UUID) and all(
        sign in _DIGITS.get(wanted, (wanted,)) for sign, wanted in zip(end, _UUID, strict=True)
    )


class OwnedTable(Generic[Value]):
    """Values by (owner, name), the least recently used first."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Place, Value] = OrderedDict()
        # The owners of values of each name.
        self._owners: dict[bytes, set[bytes]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, owner: bytes, name: bytes) -> Value | None:
        """Return the owner's value, or None."""
        return self._rows.get((owner, name))

    def find(self, owner: bytes, name: bytes) -> tuple[bytes, Value] | None:
        """Return the owner's value, or else the unowned one, together with its actual owner.

        An unowned value matches any owner: its client has got a token since, or the program was older.
        """
        for whose in (owner, b""):
            value = self._rows.get((whose, name))
            if value is not None:
                return whose, value
        return None

    def put(self, owner: bytes, name: bytes, value: Value) -> None:
        """Set a value and make it the most recently used one."""
        self._rows[owner, name] = value
        self._rows.move_to_end((owner, name))
        self._owners.setdefault(name, set()).add(owner)

    def pop(self, owner: bytes, name: bytes) -> Value | None:
        """Remove and return a value; None if there is none."""
        value = self._rows.pop((owner, name), None)
        if value is not None:
            owners = self._owners[name]
            owners.remove(owner)
            if not owners:
                del self._owners[name]
        return value

    def owner_of(self, name: bytes) -> bytes | None:
        """Return an owner of a value of this name, the first one by name; None if there is none."""
        return min(self._owners.get(name, ()), default=None)

    def oldest(self) -> tuple[Place, Value] | None:
        """Return the least recently used value, with its owner and name."""
        return next(iter(self._rows.items()), None)

    def items(self) -> Iterator[tuple[Place, Value]]:
        """Return all values, the least recently used first."""
        return iter(self._rows.items())
