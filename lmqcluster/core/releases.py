"""Releases what a token's owner has when the token has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from .queue_state import QueueState

__all__ = ["Owned", "Releases"]


class Owned(Protocol):
    """A table whose rows belong to owners."""

    def release(self, owner: bytes, limit: int) -> int:
        """Let go of up to `limit` of the owner's rows; returns how many."""


class Releases:
    """The owners whose tokens were deleted or have expired, until nothing is left of what they had.

    Keys and producers need no release: they are forgotten after their window.

    Args:
        state: the queues and tokens.
        tables: what owners have.

    Attributes:
        seen_us: tokens that expire by this log time have been seen to.
    """

    def __init__(self, state: QueueState, tables: Sequence[Owned]) -> None:
        self._state = state
        self._tables = tables
        self._owners: dict[bytes, None] = {}
        self.seen_us = 0
        # When the next token expires, for this revision of the tokens and this `seen_us`.
        self._next: tuple[int, int, int | None] = (-1, -1, None)

    def begin(self, owner: bytes) -> None:
        """The owner's token has ended."""
        self._owners[owner] = None
        self._state.expiry.at(0)

    def cancel(self, owner: bytes) -> None:
        """There is a token of this name again, which keeps what is left."""
        self._owners.pop(owner, None)

    def due_us(self) -> int | None:
        """When there is something to do next; None if nothing is known yet."""
        if self._owners:
            return 0
        tokens = self._state.tokens
        if self._next[:2] != (tokens.revision, self.seen_us):
            expiries = [token.expires_us for token in tokens if token.expires_us > self.seen_us]
            self._next = (tokens.revision, self.seen_us, min(expiries, default=None))
        return self._next[2]

    def expire(self, now_us: int, limit: int | None) -> int:
        """Let go of up to `limit` things; returns how many."""
        expired = [token for token in self._state.tokens if self.seen_us < token.expires_us <= now_us]
        if expired:
            self._owners.update((token.name, None) for token in expired)
            self.seen_us = now_us
        released = 0
        most = 1 << 62 if limit is None else limit
        while self._owners and released < most:
            owner = next(iter(self._owners))
            before = released
            for table in self._tables:
                released += table.release(owner, most - released)
            if released == before:
                del self._owners[owner]
        return released

    def rows(self) -> Iterator[list[object]]:
        """The owners as of now for a snapshot, in order; they may change while the rows are read."""
        return iter([[owner] for owner in self._owners])

    def load(self, rows: Iterable[tuple[bytes]]) -> None:
        """Add the rows of a snapshot, in the order they were written."""
        self._owners.update((owner, None) for (owner,) in rows)
