"""Named locks, which sessions hold, with fencing tokens.

A session that gets a lock gets a token that is larger than every token before it. What the lock protects can refuse those that
come
with a smaller one: they held the lock once, and do not know yet that their session has ended (Kleppmann, "How to do distributed
locking", 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from ..owners.quotas import Quotas
from .notices import Granted, Notice
from .wait_lists import WaitLists

__all__ = ["Locks"]


class LockState(Protocol):
    """What it needs of the state."""

    notices: list[Notice]


class Locks(WaitLists):
    """The locks by name.

    Attributes:
        last_token: the last fencing token.
    """

    def __init__(self, state: LockState, quotas: Quotas) -> None:
        super().__init__(quotas)
        self._state = state
        self._tokens: dict[bytes, int] = {}
        self.last_token = 0

    def acquire(self, name: bytes, session: int, owner: bytes, *, waits: bool) -> int:
        """Get the lock, or a place in line if it is not free and the session `waits`.

        Returns:
            The token if the session has the lock, which it may have had before; else 0.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        if self.holder(name) not in (0, session) and not waits:
            return 0
        self.join(name, session, owner)
        if self.holder(name) != session:
            return 0
        if name not in self._tokens:
            self._grant(name)
        return self._tokens[name]

    def leave(self, name: bytes, session: int) -> bool:
        """Free the lock, which the next in line gets, or leave the line; False if the session has nothing to do with it."""
        held = self.holder(name) == session
        left = super().leave(name, session)
        if held:
            del self._tokens[name]
            if successor := self.holder(name):
                self._grant(name)
                self._state.notices.append(Granted(name, successor, self._tokens[name]))
        return left

    def _grant(self, name: bytes) -> None:
        self.last_token += 1
        self._tokens[name] = self.last_token

    def token(self, name: bytes) -> int:
        """The token of the session that has the lock, 0 if it is free."""
        return self._tokens.get(name, 0)

    def token_rows(self) -> Iterator[list[object]]:
        """[name, token] of each lock as of now."""
        return iter([list(row) for row in self._tokens.items()])

    def load_tokens(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Add the rows of a snapshot."""
        self._tokens.update(rows)
