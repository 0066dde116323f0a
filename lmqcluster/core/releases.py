"""Lets go of what a token's owner has when the token has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Machine

__all__ = ["Releases"]


class Releases:
    """The owners whose tokens were deleted or have expired, until nothing is left of what they had.

    Keys and producers need no release: they are forgotten after their window.

    Attributes:
        seen_us: tokens that expire by this log time have been seen to.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._owners: dict[bytes, None] = {}
        self.seen_us = 0
        # When the next token expires, for this revision of the tokens and this `seen_us`.
        self._next: tuple[int, int, int | None] = (-1, -1, None)

    def begin(self, owner: bytes) -> None:
        """The owner's token has ended."""
        self._owners[owner] = None
        self._machine.expiry.at(0)

    def cancel(self, owner: bytes) -> None:
        """There is a token of this name again, which keeps what is left."""
        self._owners.pop(owner, None)

    def due_us(self) -> int | None:
        """When there is something to do next; None if nothing is known yet."""
        if self._owners:
            return 0
        tokens = self._machine.tokens
        if self._next[:2] != (tokens.revision, self.seen_us):
            expiries = [token.expires_us for token in tokens if token.expires_us > self.seen_us]
            self._next = (tokens.revision, self.seen_us, min(expiries, default=None))
        return self._next[2]

    def expire(self, now_us: int, limit: int | None) -> int:
        """Let go of up to `limit` things; returns how many."""
        machine = self._machine
        expired = [token for token in machine.tokens if self.seen_us < token.expires_us <= now_us]
        if expired:
            self._owners.update((token.name, None) for token in expired)
            self.seen_us = now_us
        released = 0
        most = 1 << 62 if limit is None else limit
        while self._owners and released < most:
            owner = next(iter(self._owners))
            before = released
            for table in (machine.marks, machine.key_scopes, machine.batches):
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
