"""Sessions and locks of all clients, in pages, for administrators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ....core import Machine
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
        machine: returns the replicated state.
        receipts: returns the id format of this cluster life.
    """

    def __init__(self, machine: Callable[[], Machine], receipts: Callable[[], ReceiptFormat]) -> None:
        self._machine = machine
        self._receipts = receipts

    def sessions(self, *, offset: int, limit: int) -> tuple[list[SessionInfo], int]:
        """Return a page of the sessions, in the order in which they were opened; and the number of all sessions."""
        machine, format_id = self._machine(), self._receipts().format
        page = [
            SessionInfo(
                format_id(one.number),
                one.owner,
                one.ttl_us / 1e6,
                max(0, one.ends_us - machine.now_us) / 1e6,
                machine.sessions.leased(one, _COUNTED_MAX),
                machine.locks.places(one.number),
                machine.claims.places(one.number),
            )
            for one in islice(machine.sessions, offset, offset + limit)
        ]
        return page, len(machine.sessions)

    def locks(self, *, offset: int, limit: int) -> tuple[list[LockInfo], int]:
        """Return a page of the held locks, in the order in which they were taken; and the number of all held locks."""
        locks, format_id = self._machine().locks, self._receipts().format
        page = [
            LockInfo(name, format_id(locks.holder(name)), locks.token(name), locks.length(name) - 1)
            for name in islice(locks, offset, offset + limit)
        ]
        return page, len(locks)

    def owner(self, session: bytes) -> bytes | None:
        """Return the owner against which a session counts; None if there is no such session."""
        return self._machine().sessions.owner(self._receipts().parse(session))
