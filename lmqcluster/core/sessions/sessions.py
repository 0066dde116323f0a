"""Sessions: leases, turns at exclusive queues and locks that end together when a client stops renewing its session.

A session ends when log time passes the end that its last renewal set. Its leases return to their old places first,
then it leaves the lines of locks and exclusive queues, so that the next session there finds every message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, takewhile

from ..log.notices import Ended
from ..log.results import RefusedError
from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind
from ..state_view import StateView
from .exclusive_queues import ExclusiveQueues
from .locks import Locks

__all__ = ["END_STEPS", "LEASES_MAX", "TTL_US_MAX", "Session", "Sessions"]

TTL_US_MAX = 3_600 * 1_000_000
"""The longest time to live of a session between renewals."""
LEASES_MAX = 100_000
"""Most deliveries that one session may hold."""
NEWEST_MAX = 10_000
"""Number of a session's newest deliveries that are searched for lost ones: the most that one pull takes."""
END_STEPS = 1_000
"""Most leases and places that one batch releases for sessions that have ended."""
_SWEEP_MIN = 64
_ROW_LEASES = 500


class Session:
    """One session.

    Attributes:
        number: its number, unique in the life of the cluster.
        owner: the owner, who alone may use it and to whose quota it counts.
        ttl_us: time from a renewal to its end.
        ends_us: when it ends.
        leases: the queue of each of its deliveries, the oldest first; some of them may be settled already.
        sweep_at: number of leases at which settled ones are next removed.
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

    def __init__(self, state: StateView, claims: ExclusiveQueues, locks: Locks) -> None:
        self._state = state
        self._claims = claims
        self._locks = locks
        self._sessions: dict[int, Session] = {}
        self._ends: SortedList[Session] = SortedList()
        self.last = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Return the sessions, the oldest first; they must not change during iteration."""
        return iter(self._sessions.values())

    def owner(self, number: int) -> bytes | None:
        """Return the owner of a session, None if there is no such session."""
        session = self._sessions.get(number)
        return None if session is None else session.owner

    def open(self, owner: bytes, ttl_us: int) -> int:
        """Open a session; return its number.

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
        """Return the owner's session if it is alive."""
        session = self._sessions.get(number)
        if session is None or session.owner != owner or session.ends_us <= self._state.now_us:
            return None
        return session

    def knows(self, number: int) -> bool:
        """Return whether there is such a session, which may be about to end."""
        return number in self._sessions

    def live(self, number: int, owner: bytes) -> Session:
        """Return the owner's session.

        Raises:
            RefusedError: ``session_lost``: it has ended, or there is none.
        """
        session = self.find(number, owner)
        if session is None:
            reason = f"session {number} has ended, and what it held with it; open another one"
            raise RefusedError("session_lost", reason)
        return session

    def renew(self, session: Session) -> None:
        """Extend the session to its full time to live from now."""
        self._end_at(session, self._state.now_us + session.ttl_us)

    def end(self, session: Session) -> None:
        """End the session and release its leases and locks, in bounded steps if there are many."""
        self._end_at(session, self._state.now_us)
        self.expire(self._state.now_us, END_STEPS)

    def _end_at(self, session: Session, ends_us: int) -> None:
        self._ends.remove((session.ends_us, session.number))
        session.ends_us = ends_us
        self._ends.add((ends_us, session.number), session)
        self._state.expiry.at(ends_us)

    # --- leases ---------------------------------------------------------------------------------------------------

    def lease(self, session: Session, queue: bytes, numbers: Iterable[int]) -> None:
        """Add deliveries of a queue that end with the session."""
        session.leases.update(dict.fromkeys(numbers, queue))
        if len(session.leases) >= session.sweep_at:
            self._sweep(session)

    def leased(self, session: Session, counted_max: int) -> int:
        """Return how many deliveries the session holds; if there are more than `counted_max`, some may be settled."""
        if len(session.leases) > counted_max:
            return len(session.leases)
        return sum(self._is_leased(number, name) for number, name in session.leases.items())

    def _is_leased(self, number: int, name: bytes) -> bool:
        queue = self._state.queues.get(name)
        return queue is not None and number in queue.store.leases.messages

    def _sweep(self, session: Session) -> None:
        """Remove settled deliveries. The table at most doubles in between, so that a lease costs O(1) on average."""
        leases = session.leases.items()
        session.leases = {number: name for number, name in leases if self._is_leased(number, name)}
        session.sweep_at = 2 * len(session.leases) + _SWEEP_MIN

    def ending(self, now_us: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and queue of the deliveries of sessions that end by now, in the order of release.

        Nothing may change during iteration.
        """
        over = takewhile(lambda session: session.ends_us <= now_us, self._ends)
        return chain.from_iterable(session.leases.items() for session in over)

    def held(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield number and queue of the deliveries of a session, the oldest first; nothing may change during iteration."""
        session = self._sessions.get(number)
        return iter(()) if session is None else iter(session.leases.items())

    def held_after(self, session: Session, queue: bytes, known: int) -> list[int]:
        """Return the numbers of the newest deliveries of a queue that are later than `known`, the oldest first."""
        newest = takewhile(lambda one: one[0] > known, islice(reversed(session.leases.items()), NEWEST_MAX))
        return [number for number, name in newest if name == queue][::-1]

    def release_leases(self, session: Session, limit: int, only: bytes | None = None) -> int:
        """Release up to `limit` leases, of one queue or of all, the oldest first; return how many."""
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

    # --- Source
    # -------------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return when the next session ends."""
        first = self._ends.first()
        return None if first is None else first.ends_us

    def expire(self, now_us: int, limit: int | None) -> int:
        """Release up to `limit` leases and places of ended sessions, the first ended session first; return how many."""
        done = 0
        while limit is None or done < limit:
            session = self._ends.first()
            if session is None or session.ends_us > now_us:
                break
            done += self._release_all(session, (1 << 62) if limit is None else limit - done)
        return done

    def _release_all(self, session: Session, limit: int) -> int:
        state, done = self._state, self.release_leases(session, limit)
        if not session.leases:
            done += self._claims.leave_some(session.number, limit - done)
            done += self._locks.leave_some(session.number, limit - done)
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
        """Return [number, owner, time to live, end, `sweep_at`] of each as of now."""
        sessions = self._sessions.values()
        return iter([[one.number, one.owner, one.ttl_us, one.ends_us, one.sweep_at] for one in sessions])

    def lease_rows(self) -> Iterator[list[object]]:
        """Return [session, [delivery number], [queue]] as of now."""
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
