"""Sessions: leases, turns at exclusive queues and locks that end together when nobody keeps the session alive.

A session ends when log time has passed the end that its last renewal set. Its leases return to their old places first, then it
leaves the lines of locks and exclusive queues, so that the next session there finds every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, takewhile
from typing import Protocol

from ..log.commands import RefusedError
from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind, Quotas
from ..queue.expiry import Expiry
from ..queue.queue import Queue
from .exclusive_queues import ExclusiveQueues
from .locks import Locks
from .notices import Ended, Notice

__all__ = ["END_STEPS", "LEASES_MAX", "TTL_US_MAX", "Session", "Sessions"]

TTL_US_MAX = 3_600 * 1_000_000
"""The longest time for which a session may live without being renewed."""
LEASES_MAX = 100_000
"""Most deliveries that one session may hold."""
NEWEST_MAX = 10_000
"""Among how many of a session's newest deliveries those are looked for that its client has not received: what one pull takes."""
END_STEPS = 1_000
"""Most things that one batch releases for sessions that have ended."""
_SWEEP_MIN = 64
_ROW_LEASES = 500


class SessionState(Protocol):
    """What it needs of the state."""

    now_us: int
    queues: dict[bytes, Queue]
    quotas: Quotas
    expiry: Expiry
    claims: ExclusiveQueues
    locks: Locks
    notices: list[Notice]

    def existing(self, name: bytes) -> Queue | None:
        """The queue of that name, ready to be changed, None if there is none."""

    def note_due(self, queue: Queue) -> None:
        """Messages of the queue may be due earlier than before."""


class Session:
    """One session.

    Attributes:
        number: its number, unique in the life of the cluster.
        owner: to whose quota it counts, and who may use it.
        ttl_us: how long after a renewal it ends.
        ends_us: when it ends.
        leases: the queue of each delivery made to it, the oldest first; some of them may be settled already.
        sweep_at: how many leases there are when those that are settled are forgotten next.
    """

    __slots__ = ("ends_us", "leases", "number", "owner", "sweep_at", "ttl_us")

    def __init__(self, number: int, owner: bytes, ttl_us: int, ends_us: int) -> None:
        self.number = number
        self.owner = owner
        self.ttl_us = ttl_us
        self.ends_us = ends_us
        self.leases: dict[int, bytes] = {}
        self.sweep_at = _SWEEP_MIN


class Sessions:
    """The sessions by number.

    Attributes:
        last: number of the last session.
    """

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._sessions: dict[int, Session] = {}
        self._ends: SortedList[Session] = SortedList()
        self.last = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """The sessions, those first that were opened first; they must not change meanwhile."""
        return iter(self._sessions.values())

    def owner(self, number: int) -> bytes | None:
        """To whom a session counts, None if there is no such session."""
        session = self._sessions.get(number)
        return None if session is None else session.owner

    def open(self, owner: bytes, ttl_us: int) -> int:
        """Begin a session; returns its number.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        state = self._state
        state.quotas.check(Kind.SESSIONS, owner)
        self.last += 1
        self._add(Session(self.last, owner, ttl_us, state.now_us + ttl_us))
        return self.last

    def _add(self, session: Session) -> None:
        self._state.quotas.take(Kind.SESSIONS, session.owner)
        self._sessions[session.number] = session
        self._ends.add((session.ends_us, session.number), session)
        self._state.expiry.at(session.ends_us)

    def find(self, number: int, owner: bytes) -> Session | None:
        """The owner's session if it is alive."""
        session = self._sessions.get(number)
        if session is None or session.owner != owner or session.ends_us <= self._state.now_us:
            return None
        return session

    def knows(self, number: int) -> bool:
        """Whether there is such a session, which may be about to end."""
        return number in self._sessions

    def live(self, number: int, owner: bytes) -> Session:
        """The owner's session.

        Raises:
            RefusedError: ``session_lost``: it has ended, or there is none.
        """
        session = self.find(number, owner)
        if session is None:
            reason = f"session {number} has ended, and what it held with it; open another one"
            raise RefusedError("session_lost", reason)
        return session

    def renew(self, session: Session) -> None:
        """Let the session end its whole time from now."""
        self._end_at(session, self._state.now_us + session.ttl_us)

    def end(self, session: Session) -> None:
        """End the session now; what it holds is let go of at once, or step by step if it is much."""
        self._end_at(session, self._state.now_us)
        self.expire(self._state.now_us, END_STEPS)

    def _end_at(self, session: Session, ends_us: int) -> None:
        self._ends.remove((session.ends_us, session.number))
        session.ends_us = ends_us
        self._ends.add((ends_us, session.number), session)
        self._state.expiry.at(ends_us)

    # --- leases ---------------------------------------------------------------------------------------------------

    def lease(self, session: Session, queue: bytes, numbers: Iterable[int]) -> None:
        """Deliveries of a queue end with the session."""
        session.leases.update(dict.fromkeys(numbers, queue))
        if len(session.leases) >= session.sweep_at:
            self._sweep(session)

    def leased(self, session: Session, counted_max: int) -> int:
        """How many deliveries the session holds; of more than `counted_max`, some may be settled."""
        if len(session.leases) > counted_max:
            return len(session.leases)
        return sum(self._is_leased(number, name) for number, name in session.leases.items())

    def _is_leased(self, number: int, name: bytes) -> bool:
        queue = self._state.queues.get(name)
        return queue is not None and number in queue.leases.messages

    def _sweep(self, session: Session) -> None:
        """Forget what is settled. The table at most doubles in between, so that a lease costs O(1) on average."""
        leases = session.leases.items()
        session.leases = {number: name for number, name in leases if self._is_leased(number, name)}
        session.sweep_at = 2 * len(session.leases) + _SWEEP_MIN

    def ending(self, now_us: int) -> Iterator[tuple[int, bytes]]:
        """Number and queue of the deliveries of sessions that end by now, as they are let go; nothing may change meanwhile."""
        over = takewhile(lambda session: session.ends_us <= now_us, self._ends)
        return chain.from_iterable(session.leases.items() for session in over)

    def held(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Number and queue of the deliveries of a session, the oldest first; nothing may change meanwhile."""
        session = self._sessions.get(number)
        return iter(()) if session is None else iter(session.leases.items())

    def held_after(self, session: Session, queue: bytes, known: int) -> list[int]:
        """Numbers of the deliveries of a queue that are later than this one, and among the newest; the oldest first."""
        newest = takewhile(lambda one: one[0] > known, islice(reversed(session.leases.items()), NEWEST_MAX))
        return [number for number, name in newest if name == queue][::-1]

    def release_leases(self, session: Session, limit: int, only: bytes | None = None) -> int:
        """Let up to `limit` leases go, of one queue or of all, the oldest first; returns how many."""
        leases = session.leases.items()
        return self._release(session, list(islice((one for one in leases if only is None or one[1] == only), limit)))

    def _release(self, session: Session, chosen: list[tuple[int, bytes]]) -> int:
        by_queue: dict[bytes, list[int]] = {}
        for number, name in chosen:
            by_queue.setdefault(name, []).append(number)
            del session.leases[number]
        for name, numbers in by_queue.items():
            queue = self._state.existing(name)
            if queue is not None:
                queue.release(self._state.now_us, numbers)
                self._state.note_due(queue)
        return len(chosen)

    # --- ends (Source) --------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """When the next session ends."""
        first = self._ends.first()
        return None if first is None else first.ends_us

    def expire(self, now_us: int, limit: int | None) -> int:
        """Let go of up to `limit` things of sessions that have ended, those that ended first first; returns how many."""
        done = 0
        while limit is None or done < limit:
            session = self._ends.first()
            if session is None or session.ends_us > now_us:
                break
            done += self._let_go(session, (1 << 62) if limit is None else limit - done)
        return done

    def _let_go(self, session: Session, limit: int) -> int:
        state, done = self._state, self.release_leases(session, limit)
        if not session.leases:
            done += state.claims.leave_some(session.number, limit - done)
            done += state.locks.leave_some(session.number, limit - done)
            if done < limit:
                self._remove(session)
                state.notices.append(Ended(session.number))
                done += 1
        return done

    def _remove(self, session: Session) -> None:
        self._ends.remove((session.ends_us, session.number))
        del self._sessions[session.number]
        self._state.quotas.give(Kind.SESSIONS, session.owner)

    # --- snapshots ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[list[object]]:
        """[number, owner, time to live, end, when it is swept] of each as of now."""
        sessions = self._sessions.values()
        return iter([[one.number, one.owner, one.ttl_us, one.ends_us, one.sweep_at] for one in sessions])

    def lease_rows(self) -> Iterator[list[object]]:
        """[session, [delivery number], [queue]] as of now."""
        frozen = [(one.number, list(one.leases.items())) for one in self._sessions.values() if one.leases]
        return _lease_rows(frozen)

    def load(self, rows: Iterable[tuple[int, bytes, int, int, int]]) -> None:
        """Add the rows of a snapshot."""
        for number, owner, ttl_us, ends_us, sweep_at in rows:
            session = Session(number, owner, ttl_us, ends_us)
            session.sweep_at = sweep_at
            self._add(session)

    def load_leases(self, rows: Iterable[tuple[int, list[int], list[bytes]]]) -> None:
        """Add leases of a snapshot.

        Raises:
            ValueError: there is no such session.
        """
        for number, numbers, queues in rows:
            session = self._sessions.get(number)
            if session is None:
                raise ValueError(f"there are leases of the session {number}, which is missing")
            session.leases.update(zip(numbers, queues, strict=True))


def _lease_rows(sessions: list[tuple[int, list[tuple[int, bytes]]]]) -> Iterator[list[object]]:
    for number, leases in sessions:
        for start in range(0, len(leases), _ROW_LEASES):
            part = leases[start : start + _ROW_LEASES]
            yield [number, [one for one, _ in part], [name for _, name in part]]
