"""Commands on sessions and the state they hold. Every public method is one command of the state machine."""

from __future__ import annotations

from ..log import commands as log
from ..log.results import Delivered, RefusedError
from ..owners.quotas import checked_owner
from ..queue.expiry import NEVER
from ..queue.queue import Queue
from ..sessions.sessions import END_STEPS, LEASES_MAX, TTL_US_MAX, Session
from ..state.state import State
from .checks import checked_time

__all__ = ["SessionCommands"]

_NAME_BYTES_MAX = 255


class SessionCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def open(self, command: log.OpenSession) -> int:
        """Open a session; return its number.

        Raises:
            ValueError: the time is out of range.
            RefusedError: ``quota_exceeded``.
        """
        if not 0 < checked_time(command.ttl_us) <= TTL_US_MAX:
            raise ValueError(f"a session lives up to {TTL_US_MAX // 1_000_000} seconds")
        return self._state.sessions.open(checked_owner(command.owner), command.ttl_us)

    def renew(self, command: log.RenewSession) -> bool:
        """Renew a session for its full time to live; False if it has ended."""
        session = self._state.sessions.find(command.session, command.owner)
        if session is not None:
            self._state.sessions.renew(session)
        return session is not None

    def end(self, command: log.EndSession) -> bool:
        """End a session and release what it holds; False if it has ended."""
        session = self._state.sessions.find(command.session, command.owner)
        if session is not None:
            self._state.sessions.end(session)
        return session is not None

    # --- pull -----------------------------------------------------------------------------------------------------

    def pull(self, command: log.PullInSession) -> list[Delivered] | None:
        """Lease messages until the session ends; from an exclusive queue only when it is the session's turn.

        Deliveries after `known` that the session holds were lost on the way, and are returned again instead of new ones.
        So a late pull that the client has already repeated does not affect what the client has received since.

        Returns:
            The result of `Pull`; an empty list while another session has the exclusive queue.

        Raises:
            ValueError: a field is out of range.
            RefusedError: ``session_lost``; ``quota_exceeded`` if the session holds too many messages, or has too many
                places in lines.
        """
        count, number, charge, known = command.count, command.session, command.charge, command.known
        name, owner = command.queue, command.owner
        if {type(count), type(known)} != {int} or charge not in (0, 1):
            raise ValueError("a count and a known delivery must be integers, and a charge 0 or 1")
        state = self._state
        session = state.sessions.live(number, owner)
        queue = state.queue(name)
        if queue.is_exclusive():
            state.claims.join(name, number, owner)
            if state.claims.holder(name) != number:
                state.idle.pulled(queue)
                return []
        options = queue.settings.options
        limit_us = checked_time(command.lease_us) or (options.open_us if options is not None else None)
        ends_us = state.now_us + limit_us if limit_us else NEVER
        if known >= 0 and (lost := self._lost(session, queue, known)[: max(0, count)]):
            return state.deliveries.delivered_again(queue, lost, ends_us)
        if len(session.leases) >= LEASES_MAX:
            raise RefusedError("quota_exceeded", f"session {number} holds {LEASES_MAX} messages, which is the limit")
        passed_before = queue.passed_over
        delivered = state.deliveries.take(
            queue, min(count, LEASES_MAX - len(session.leases)), ends_us, charge, in_turn=True
        )
        state.sessions.lease(session, name, [one[1] for one in delivered])
        return delivered or state.deliveries.pulled_nothing(queue, passed_before)

    def _lost(self, session: Session, queue: Queue, known: int) -> list[int]:
        """Return the live deliveries of a queue to a session that are later than `known`, the oldest first."""
        held = self._state.sessions.held_after(session, queue.name, known)
        return [number for number in held if queue.live(number, self._state.now_us) is not None]

    def leave(self, command: log.LeaveQueue) -> bool | None:
        """Give up the turn, or the place in line, at an exclusive queue, and release the leases of its messages.

        Returns:
            Whether the session was in line; None if the command must be repeated because there are many leases.

        Raises:
            RefusedError: ``session_lost``.
        """
        state = self._state
        session = state.sessions.live(command.session, command.owner)
        if state.sessions.release_leases(session, END_STEPS, command.queue) == END_STEPS:
            return None
        return state.claims.leave(command.queue, command.session)

    # --- locks ----------------------------------------------------------------------------------------------------

    def lock(self, command: log.Lock) -> int:
        """Acquire a lock, or a place in line; return the fencing token, 0 if the session does not have the lock yet.

        Raises:
            ValueError: the name is out of range.
            RefusedError: ``session_lost``, ``quota_exceeded``.
        """
        name, waits = command.name, command.waits
        if type(name) is not bytes or not 0 < len(name) <= _NAME_BYTES_MAX or type(waits) is not bool:
            raise ValueError(f"the name of a lock must have 1 to {_NAME_BYTES_MAX} bytes, and waits be true or false")
        session = self._state.sessions.live(command.session, command.owner)
        return self._state.locks.acquire(name, session.number, session.owner, waits=waits)

    def unlock(self, command: log.Unlock) -> bool:
        """Release a lock, or leave the line; False if the session neither holds the lock nor waits for it.

        Raises:
            RefusedError: ``session_lost``.
        """
        session = self._state.sessions.live(command.session, command.owner)
        return self._state.locks.leave(command.name, session.number)
