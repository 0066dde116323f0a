"""Named locks, which sessions hold, with fencing tokens.

Each acquisition returns a fencing token greater than all earlier ones. The protected resource can reject requests
with a smaller one: their sender held the lock once, and does not know yet that its session has ended (Kleppmann, "How
to do distributed locking", 2016).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..log.notices import Granted
from ..state_view import StateView
from .wait_lists import WaitLists

__all__ = ["Locks"]


class Locks(WaitLists):
    """The locks by name.

    Attributes:
        last_token: the last fencing token.
    """

    def __init__(self, state: StateView) -> None:
        super().__init__(state.quotas)
        self._state = state
        self._tokens: dict[bytes, int] = {}
        self.last_token = 0

    def acquire(self, name: bytes, session: int, owner: bytes, *, waits: bool) -> int:
        """Acquire the lock, or a place in line if it is not free and the session `waits`.

        Returns:
            The token if the session has the lock, perhaps from before; else 0.

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
        """Release the lock to the next in line, or leave the line; False if the session neither holds it nor waits."""
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
        """Return the token of the session that has the lock, 0 if it is free."""
        return self._tokens.get(name, 0)

    def token_rows(self) -> Iterator[list[object]]:
        """Return [name, token] of each lock as of now."""
        return iter([list(row) for row in self._tokens.items()])

    def load_tokens(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Add the rows of a snapshot."""
        self._tokens.update(rows)
