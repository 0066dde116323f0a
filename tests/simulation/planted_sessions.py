"""Bugs in sessions, locks and waiting pushes. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from typing import Any

from lmqcluster.core.handlers.waiting_pushes import WaitingPushCommands
from lmqcluster.core.messages.message import Message
from lmqcluster.core.queue.queue import Queue
from lmqcluster.core.routing.waiting_pushes import WaitingPush, WaitingPushes
from lmqcluster.core.sessions.exclusive_queues import ExclusiveQueues
from lmqcluster.core.sessions.locks import Locks
from lmqcluster.core.sessions.sessions import Session, Sessions
from lmqcluster.core.sessions.wait_lists import WaitLists
from tests.simulation.session_judge import HELD
from tests.simulation.switches import switch

__all__ = ["PLANTED_SESSIONS"]

LATE_US = 2_000_000

_ack = Queue.ack
_expire = Sessions.expire
_grant = Locks._grant
_stored = WaitingPushCommands._stored


def _forgetting(self: Sessions, session: Session, limit: int, only: bytes | None = None) -> int:
    session.leases.clear()
    return 0


def _to_the_tail(self: Queue, now_us: int, numbers: list[int]) -> None:
    for number in numbers:
        message: Message | None = self.live(number, now_us)
        if message is not None:
            del self.store.leases.messages[number]
            self._lease_ended(message, now_us, now_us)


def _confirming(self: Queue, now_us: int, numbers: list[int]) -> list[bool]:
    """Accept the confirmation of every consumer that has had the message."""
    results = _ack(self, now_us, numbers)
    return [True] * len(numbers) if self.name == HELD else results


def _late(self: Sessions, now_us: int, limit: int | None) -> int:
    return _expire(self, now_us - LATE_US, limit)


def _by_lock(self: Locks, name: bytes) -> None:
    """Count per lock, starting again when the lock has been free."""
    self._tokens[name] = 1


def _newest_first(self: WaitLists, name: bytes) -> int:
    line = self._lines.get(name)
    return 0 if line is None else list(line)[-1]


def _shared(self: Locks, name: bytes, session: int, owner: bytes, *, waits: bool) -> int:
    self.join(name, session, owner)
    _grant(self, name)
    return self._tokens[name]


def _last_in_line(self: WaitingPushes, queue: bytes) -> WaitingPush | None:
    line = self._lines.get(queue)
    return None if line is None else self._pushes[list(line)[-1]]


def _passing(self: WaitingPushCommands, queue: Queue, push: WaitingPush) -> Any:
    """Store a push without regard to earlier waiting pushes."""
    waiting, queue.pushes_waiting = queue.pushes_waiting, 0
    try:
        return _stored(self, queue, push)
    finally:
        queue.pushes_waiting += waiting


PLANTED_SESSIONS = {
    "leases of ended sessions kept": switch([(Sessions, "release_leases", _forgetting)]),
    "leases of ended sessions to the tail": switch([(Queue, "release", _to_the_tail)]),
    "lost responses kept": switch([(Sessions, "held_after", lambda *_: [])]),
    "lost leases confirmed": switch([(Queue, "ack", _confirming)]),
    "sessions that live too long": switch([(Sessions, "expire", _late)]),
    "fencing tokens by lock": switch([(Locks, "_grant", _by_lock)]),
    "locks shared": switch([(Locks, "acquire", _shared)]),
    "locks that outlive their session": switch([(Locks, "leave_some", lambda *_: 0)]),
    "turns taken by the newest": switch([(ExclusiveQueues, "holder", _newest_first)]),
    "last waiting push first": switch([(WaitingPushes, "first", _last_in_line)]),
    "pushes pass those that wait": switch([(WaitingPushCommands, "_stored", _passing)]),
    "free places wake no push": switch([(WaitingPushes, "note", lambda *_: None)]),
}
"""By name, the context manager of each bug."""
