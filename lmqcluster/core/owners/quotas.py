"""Usage and limits of each kind of state by owner.

An owner is the name of the principal that sent a command, which several tokens may share; the empty name stands for
clients that need no token. The counts are part of the state: each table counts what it adds and removes, also when it
loads a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from ..log.results import RefusedError

__all__ = ["OWNER_BYTES_MAX", "ROWS", "Kind", "Quotas", "checked_owner"]

OWNER_BYTES_MAX = 100


class Kind(Enum):
    """The kinds of state that are counted."""

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
    SCHEDULES = "schedules"
    SCHEDULE_BYTES = "bytes of schedules"
    ATTEMPTS = "attempts"


ROWS = (Kind.KEYS, Kind.PRODUCERS, Kind.MARKS, Kind.SUBSCRIPTIONS, Kind.SESSIONS, Kind.PLACES, Kind.ATTEMPTS)
"""The kinds counted in rows that each take some memory."""


class Quotas:
    """The usage of each kind by owner.

    Attributes:
        LIMITS: the limit of each kind for one owner. Attempts have none: the oldest make room, see `Attempts`.
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
        Kind.SCHEDULES: 10_000,
        Kind.SCHEDULE_BYTES: 128 * 1024 * 1024,
    }

    def __init__(self) -> None:
        self._used: dict[Kind, dict[bytes, int]] = {kind: {} for kind in Kind}
        self._totals: dict[Kind, int] = dict.fromkeys(Kind, 0)
        # The number of kinds of which each owner has some.
        self._kinds: dict[bytes, int] = {}

    @property
    def owners(self) -> int:
        """Return the number of owners with any state."""
        return len(self._kinds)

    def owns(self, owner: bytes) -> bool:
        """Return whether an owner has state of any kind."""
        return owner in self._kinds

    def kept(self, owner: bytes) -> dict[Kind, int]:
        """Return an owner's usage of each kind of which it has some."""
        return {kind: used[owner] for kind, used in self._used.items() if owner in used}

    def used(self, kind: Kind, owner: bytes) -> int:
        """Return an owner's usage of a kind."""
        return self._used[kind].get(owner, 0)

    def total(self, kind: Kind) -> int:
        """Return the usage of a kind by all owners together."""
        return self._totals[kind]

    def fullest(self) -> tuple[Kind, bytes, int]:
        """Return the kind and the owner with the largest share of its quota, and that usage."""
        used = ((kind, owner, count) for kind in self.LIMITS for owner, count in self._used[kind].items())
        return max(used, key=lambda one: one[2] / self.LIMITS[one[0]], default=(Kind.QUEUES, b"", 0))

    def check(self, kind: Kind, owner: bytes, count: int = 1) -> None:
        """Refuse an addition that would exceed the owner's quota. A command checks before it changes anything.

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
        """Count an addition without checking the quota, see `check`."""
        if not count:
            return
        used = self._used[kind]
        if owner not in used:
            self._kinds[owner] = self._kinds.get(owner, 0) + 1
        used[owner] = used.get(owner, 0) + count
        self._totals[kind] += count

    def give(self, kind: Kind, owner: bytes, count: int = 1) -> None:
        """Count a removal."""
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
    """Return the owner that a command names.

    Raises:
        ValueError: it is malformed.
    """
    if type(owner) is not bytes or len(owner) > OWNER_BYTES_MAX:
        raise ValueError(f"an owner must be at most {OWNER_BYTES_MAX} bytes")
    return owner
