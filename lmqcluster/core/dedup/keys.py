"""Deduplication of pushes by idempotency key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from ..owners.quotas import Kind, Quotas
from .exact_keys import ExactKeys

__all__ = ["IdempotencyKeys", "KnownPush", "PushKey", "digest_of"]

_DIGEST_BYTES = 8


class PushKey(NamedTuple):
    """The key of a push, and where it counts.

    Attributes:
        owner, queue: of the push.
        key: as the client gave it; for an exact key, what identifies it in the queue, see `exact_key`.
        window_us: the time for which an exact key counts; 0 for a key of the owner, which compares bodies.
    """

    owner: bytes
    queue: bytes
    key: bytes
    window_us: int = 0


class KnownPush(NamedTuple):
    """The push that first used a key.

    Attributes:
        flag: the result of the push that first used the key.
        digest: of its body; empty for an exact key.
    """

    flag: int
    digest: bytes


def digest_of(content: bytes) -> bytes:
    """Return a digest that distinguishes two bodies under one key."""
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


class IdempotencyKeys:
    """Pushes by (owner, queue, key), remembered for a window of log time. The keys of owners are independent.

    Exact keys are separate: a change of a queue's properties holds for the pushes after it.

    Attributes:
        exact: the exact keys.
    """

    def __init__(self, window_us: int, quotas: Quotas) -> None:
        self._window_us = window_us
        self._quotas = quotas
        self.exact = ExactKeys(quotas)
        self._known: dict[tuple[bytes, bytes, bytes], KnownPush] = {}
        self._expiry: deque[tuple[int, bytes, bytes, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._known) + len(self.exact)

    def find(self, place: PushKey, now_us: int) -> KnownPush | None:
        """Return the push that first used the key on this queue, or None.

        A key without an owner matches any owner: its client has got a token since, or the program was older.
        """
        owner, queue, key, window_us = place
        if window_us:
            flag = self.exact.find(queue, key, now_us)
            return None if flag is None else KnownPush(flag, b"")
        known = self._known.get((owner, queue, key))
        return self._known.get((b"", queue, key)) if known is None and owner else known

    def remember(self, place: PushKey, known: KnownPush, now_us: int) -> int:
        """Remember a push whose key `find` did not know; return when it is forgotten."""
        owner, queue, key, window_us = place
        ends_us = now_us + (window_us or self._window_us)
        if window_us:
            self.exact.remember(queue, key, owner, known.flag, ends_us)
        else:
            self._known[owner, queue, key] = known
            self._expiry.append((ends_us, owner, queue, key))
            self._quotas.take(Kind.KEYS, owner)
        return ends_us

    def due_us(self) -> int | None:
        """Return the log time at which the next key of an owner is forgotten, None without keys."""
        return self._expiry[0][0] if self._expiry else None

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` keys of owners whose window has ended; return how many."""
        expiry = self._expiry
        expired = 0
        while expiry and expired != limit and expiry[0][0] <= now_us:
            _, owner, queue, key = expiry.popleft()
            del self._known[owner, queue, key]
            self._quotas.give(Kind.KEYS, owner)
            expired += 1
        return expired

    def rows(self) -> Iterator[list[object]]:
        """Return the keys of owners as of now for a snapshot, in order of expiry; they may change while the rows are read."""
        expiry, known = self._expiry.copy(), self._known.copy()
        return (
            [expires_us, owner, queue, key, int(flag), digest]
            for expires_us, owner, queue, key in expiry
            for flag, digest in [known[owner, queue, key]]
        )

    def load(self, rows: Iterable[tuple[int, bytes, bytes, bytes, int, bytes]]) -> None:
        """Add the rows of a snapshot, in the order they were written.

        Raises:
            ValueError: a key occurs twice.
        """
        for expires_us, owner, queue, key, flag, digest in rows:
            if (owner, queue, key) in self._known:
                raise ValueError("an idempotency key is there twice")
            self._expiry.append((expires_us, owner, queue, key))
            self._known[owner, queue, key] = KnownPush(flag, digest)
            self._quotas.take(Kind.KEYS, owner)
