"""Deduplication of pushes by idempotency key."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from ..owners.quotas import Kind, Quotas

__all__ = ["IdempotencyKeys", "KnownPush", "digest_of"]

_DIGEST_BYTES = 8


class KnownPush(NamedTuple):
    """The push that first used a key.

    Attributes:
        flag: the result of the push that first used the key.
        digest: of its body.
    """

    flag: int
    digest: bytes


def digest_of(content: bytes) -> bytes:
    """Return a digest that distinguishes two bodies under one key."""
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


class IdempotencyKeys:
    """Pushes by (owner, queue, key), remembered for a window of log time. The keys of owners are independent."""

    def __init__(self, window_us: int, quotas: Quotas) -> None:
        self._window_us = window_us
        self._quotas = quotas
        self._known: dict[tuple[bytes, bytes, bytes], KnownPush] = {}
        self._expiry: deque[tuple[int, bytes, bytes, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, owner: bytes, queue: bytes, key: bytes) -> KnownPush | None:
        """Return the push that first used the key on this queue, or None.

        A key without an owner matches any owner: its client has got a token since, or the program was older.
        """
        known = self._known.get((owner, queue, key))
        return self._known.get((b"", queue, key)) if known is None and owner else known

    def remember(self, owner: bytes, queue: bytes, key: bytes, known: KnownPush, now_us: int) -> None:
        """Remember a push whose key `find` did not know."""
        self._known[owner, queue, key] = known
        self._expiry.append((now_us + self._window_us, owner, queue, key))
        self._quotas.take(Kind.KEYS, owner)

    def due_us(self) -> int | None:
        """Return the log time at which the next key is forgotten, None without keys."""
        return self._expiry[0][0] if self._expiry else None

    def expire(self, now_us: int, limit: int | None) -> int:
        """Forget up to `limit` keys whose window has ended; return how many."""
        expiry = self._expiry
        expired = 0
        while expiry and expired != limit and expiry[0][0] <= now_us:
            _, owner, queue, key = expiry.popleft()
            del self._known[owner, queue, key]
            self._quotas.give(Kind.KEYS, owner)
            expired += 1
        return expired

    def rows(self) -> Iterator[list[object]]:
        """Return the table as of now for a snapshot, in order of expiry; it may change while the rows are read."""
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
