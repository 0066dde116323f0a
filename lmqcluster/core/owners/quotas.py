"""How much of each kind of state is kept for one owner.

An owner is the name of the principal that a command came from, which several tokens may have; the empty name stands for clients
that need no token. What is counted is part of the state: each table takes what it keeps and gives back what it forgets, also
when a snapshot is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from ..log.commands import RefusedError

__all__ = ["OWNER_BYTES_MAX", "ROWS", "Kind", "Quotas", "checked_owner"]

OWNER_BYTES_MAX = 100


class Kind(Enum):
    """What is kept for an owner."""

    KEYS = "idempotency keys"
    PRODUCERS = "producers"
    MARKS = "marks of writers"
    NOTE_BYTES = "bytes of writers' notes"
    SUBSCRIPTIONS = "subscriptions"
    QUEUES = "queues"
    PROPERTY_BYTES = "bytes of queues' properties"
    SESSIONS = "sessions"
    PLACES = "places in lines of locks and exclusive queues"
    WAITING_PUSHES = "pushes that wait"
    WAITING_BYTES = "bytes of pushes that wait"


ROWS = (Kind.KEYS, Kind.PRODUCERS, Kind.MARKS, Kind.SUBSCRIPTIONS, Kind.SESSIONS, Kind.PLACES)
"""The kinds that are counted in things that each take some memory."""


class Quotas:
    """What each owner uses of each kind.

    Attributes:
        LIMITS: the most of each kind that one owner may have.
    """

    LIMITS: ClassVar[Mapping[Kind, int]] = {
        Kind.KEYS: 1_000_000,
        Kind.PRODUCERS: 200_000,
        Kind.MARKS: 100_000,
        Kind.NOTE_BYTES: 256 * 1024 * 1024,
        Kind.SUBSCRIPTIONS: 2_000,
        Kind.QUEUES: 100_000,
        Kind.PROPERTY_BYTES: 64 * 1024 * 1024,
        Kind.SESSIONS: 10_000,
        Kind.PLACES: 100_000,
        Kind.WAITING_PUSHES: 10_000,
        Kind.WAITING_BYTES: 256 * 1024 * 1024,
    }

    def __init__(self) -> None:
        self._used: dict[Kind, dict[bytes, int]] = {kind: {} for kind in Kind}
        self._totals: dict[Kind, int] = dict.fromkeys(Kind, 0)
        # Of how many kinds each owner has something.
        self._kinds: dict[bytes, int] = {}

    @property
    def owners(self) -> int:
        """How many owners have something."""
        return len(self._kinds)

    def owns(self, owner: bytes) -> bool:
        """Return whether an owner has something of any kind."""
        return owner in self._kinds

    def kept(self, owner: bytes) -> dict[Kind, int]:
        """Return how much an owner has of each kind of which it has something."""
        return {kind: used[owner] for kind, used in self._used.items() if owner in used}

    def used(self, kind: Kind, owner: bytes) -> int:
        """How much an owner has."""
        return self._used[kind].get(owner, 0)

    def total(self, kind: Kind) -> int:
        """How much all owners have together."""
        return self._totals[kind]

    def fullest(self) -> tuple[Kind, bytes, int]:
        """Return the kind and the owner who has the largest share of the quota of that kind, and how much that is."""
        used = ((kind, owner, count) for kind, owners in self._used.items() for owner, count in owners.items())
        return max(used, key=lambda one: one[2] / self.LIMITS[one[0]], default=(Kind.QUEUES, b"", 0))

    def check(self, kind: Kind, owner: bytes, count: int = 1) -> None:
        """Refuse what would exceed the owner's quota. A command checks before it changes anything.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        used, limit = self.used(kind, owner), self.LIMITS[kind]
        if used + count > limit:
            holder = f"principal {owner.decode('utf-8', 'backslashreplace')!r}" if owner else "clients without a token"
            raise RefusedError(
                "quota_exceeded",
                f"{holder}: {used} {kind.value} are kept and {count} more are asked for, the quota is {limit}",
            )

    def take(self, kind: Kind, owner: bytes, count: int = 1) -> None:
        """Count what was added; the quota is not looked at, see `check`."""
        if not count:
            return
        used = self._used[kind]
        if owner not in used:
            self._kinds[owner] = self._kinds.get(owner, 0) + 1
        used[owner] = used.get(owner, 0) + count
        self._totals[kind] += count

    def give(self, kind: Kind, owner: bytes, count: int = 1) -> None:
        """Count what was let go of."""
        if not count:
            return
        used = self._used[kind]
        left = used[owner] - count
        if left:
            used[owner] = left
        else:
            del used[owner]
            self._kinds[owner] -= 1
            if not self._kinds[owner]:
                del self._kinds[owner]
        self._totals[kind] -= count


def checked_owner(owner: bytes) -> bytes:
    """The owner that a command names.

    Raises:
        ValueError: it is none.
    """
    if type(owner) is not bytes or len(owner) > OWNER_BYTES_MAX:
        raise ValueError(f"an owner must be at most {OWNER_BYTES_MAX} bytes")
    return owner
