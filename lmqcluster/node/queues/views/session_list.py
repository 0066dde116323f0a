"""Sessions and locks as administrators see them: pages of those of all clients."""

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
        owner: the token that it counts to; empty without one.
        leased: deliveries that it holds. Of more than a hundred, those that were settled lately may be counted too.
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
        machine: the replicated state.
        receipts: the ids of this cluster life.
    """

    def __init__(self, machine: Callable[[], Machine], receipts: Callable[[], ReceiptFormat]) -> None:
        self._machine = machine
        self._receipts = receipts

    def sessions(self, *, offset: int, limit: int) -> tuple[list[SessionInfo], int]:
        """A page of the sessions, those first that were opened first; and how many there are."""
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
        """A page of the locks that are held, those first that were taken first; and how many there are."""
        locks, format_id = self._machine().locks, self._receipts().format
        page = [
            LockInfo(name, format_id(locks.holder(name)), locks.token(name), locks.length(name) - 1)
            for name in islice(locks, offset, offset + limit)
        ]
        return page, len(locks)

    def owner(self, session: bytes) -> bytes | None:
        """To whom a session counts; None if there is no such session."""
        return self._machine().sessions.owner(self._receipts().parse(session))
