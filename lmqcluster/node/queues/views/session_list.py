"""Sessions and locks of all clients, in pages, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from ....core import State

if TYPE_CHECKING:
    from ....wire.ids import ReceiptFormat

__all__ = ["PAGE_MAX", "LockInfo", "SessionInfo", "SessionList"]

PAGE_MAX: Final = 1_000
_COUNTED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session.

    Attributes:
        session: its id.
        owner: the token that it counts against; empty without one.
        leased: deliveries that it holds. Above a hundred, recently settled ones may be counted too.
        locks: locks that it has, or waits for.
        queues: exclusive queues that it has, or waits for.
    """

    session: bytes
    owner: bytes
    ttl_s: float
    ends_in_s: float
    leased: int
    locks: int
    queues: int


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A lock that a session has.

    Attributes:
        session: id of the session that has it.
        token: the fencing token of that session.
        waiting: how many other sessions wait for it.
    """

    name: bytes
    session: bytes
    token: int
    waiting: int


class SessionList:
    """Reads the sessions and locks of the local replica.

    Args:
        state: returns the replicated state.
        receipts: returns the id format of this cluster life.
    """

    def __init__(self, state: Callable[[], State], receipts: Callable[[], ReceiptFormat]) -> None:
        self._state = state
        self._receipts = receipts

    def sessions(self, *, offset: int, limit: int) -> tuple[list[SessionInfo], int]:
        """Return a page of the sessions, in the order in which they were opened; and the number of all sessions."""
        state, format_id = self._state(), self._receipts().format
        page = [
            SessionInfo(
                format_id(one.number),
                one.owner,
                one.ttl_us / 1e6,
                max(0, one.ends_us - state.now_us) / 1e6,
                state.sessions.leased(one, _COUNTED_MAX),
                state.locks.places(one.number),
                state.claims.places(one.number),
            )
            for one in islice(state.sessions, offset, offset + limit)
        ]
        return page, len(state.sessions)

    def locks(self, *, offset: int, limit: int) -> tuple[list[LockInfo], int]:
        """Return a page of the held locks, in the order in which they were taken; and the number of all held locks."""
        locks, format_id = self._state().locks, self._receipts().format
        page = [
            LockInfo(name, format_id(locks.holder(name)), locks.token(name), locks.length(name) - 1)
            for name in islice(locks, offset, offset + limit)
        ]
        return page, len(locks)

    def owner(self, session: bytes) -> bytes | None:
        """Return the owner against which a session counts; None if there is no such session."""
        return self._state().sessions.owner(self._receipts().parse(session))
