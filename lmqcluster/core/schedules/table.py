"""The schedules by name, and by the time at which each has something to push.

Due times are Unix times. They follow the schedule clock: log time plus an offset that the leader sets. Log time neither
jumps nor stops while the cluster has a leader; the leader changes the offset only if the clocks of a majority of the
members agree on another one. So a wrong clock moves no due time, and a clock that goes back repeats none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from ..log.results import PushFlag, Refusal, RefusedError
from ..messages.message import Meta
from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind
from ..queue.queue import Queue
from ..routing.admission import COPIES_MAX, COPY_BYTES_MAX, Push, attributes_kept
from ..state_view import StateView
from .schedule import Schedule, advanced, wants_times

__all__ = ["BYTES_MAX", "ROW_BYTES", "SCHEDULES_MAX", "STEPS_MAX", "Schedules"]

SCHEDULES_MAX = 100_000
"""Most schedules of all owners together."""
BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of all of them."""
ROW_BYTES = 4_000
"""Approximate memory of a schedule beside its message."""
STEPS_MAX = 1_000
"""Most due times that one batch handles."""
MEMBERS_MAX = 100


class _State(StateView, Protocol):
    """The view that schedules have of the state: they push messages."""

    def store(self, queue: Queue, meta: Meta, contents: list[bytes], push: Push) -> list[int]:
        """Store bodies in a queue; return a flag for each."""


class _Reach(Protocol):
    """How many queues a push to a queue reaches; see `Admission.reach`."""

    def __call__(self, queue: Queue) -> int: ...


class Schedules:
    """The schedules.

    Attributes:
        ahead_us: how far the schedule clock is ahead of log time; None until a leader has set it.
        held: whether messages are refused, because the leader has no room.
        last_serial: the last serial number of a definition.
        clocks: by how much the clock of each member is ahead of log time, as it reports.
        hungry: the schedules that want further due times.
        totals: due times that all schedules have pushed, missed, and that were refused; never fall.
    """

    def __init__(self, state: _State, reach: _Reach) -> None:
        self._state = state
        self._reach = reach
        self._rows: dict[bytes, Schedule] = {}
        self._line: SortedList[bytes] = SortedList()
        self._names: SortedList[bytes] = SortedList()
        self._copies = self._bytes = 0
        self.ahead_us: int | None = None
        self.held = False
        self.last_serial = 0
        self.clocks: dict[bytes, int] = {}
        self.hungry: dict[bytes, None] = {}
        self.totals = [0, 0, 0]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Schedule]:
        return iter(self._rows.values())

    def find(self, name: bytes) -> Schedule | None:
        """Return a schedule, None if there is none of that name."""
        return self._rows.get(name)

    def behind(self, name: bytes) -> Schedule | None:
        """Return the next schedule behind a name in alphabetical order; the first behind the empty name."""
        found = self._names.first_from((name + b"\0" if name else b"",))
        return None if found is None else self._rows[found]

    def unix_us(self) -> int:
        """Return the schedule clock at this log time; it must be set."""
        return self._state.now_us + (self.ahead_us or 0)

    def check_room(self, owner: bytes, old: Schedule | None, size_bytes: int) -> None:
        """Refuse a schedule, in place of an old one if there is one, that would exceed a quota.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        quotas = self._state.quotas
        kept = old if old is not None and old.owner == owner else None
        quotas.check(Kind.SCHEDULES, owner, int(kept is None))
        more = ROW_BYTES + size_bytes - (0 if kept is None else _bytes_of(kept))
        quotas.check(Kind.SCHEDULE_BYTES, owner, more)
        if len(self) - (old is not None) >= SCHEDULES_MAX or quotas.total(Kind.SCHEDULE_BYTES) + more > BYTES_MAX:
            reason = (
                f"all owners together have {len(self)} schedules, the limit is {SCHEDULES_MAX} or {BYTES_MAX} bytes"
            )
            raise RefusedError("quota_exceeded", reason)

    def put(self, schedule: Schedule) -> None:
        """Add a schedule, or replace the one of its name."""
        self.remove(schedule.name)
        self._state.quotas.take(Kind.SCHEDULES, schedule.owner)
        self._state.quotas.take(Kind.SCHEDULE_BYTES, schedule.owner, _bytes_of(schedule))
        self._rows[schedule.name] = schedule
        self._names.add((schedule.name,), schedule.name)
        self._stand_in_line(schedule)

    def remove(self, name: bytes) -> bool:
        """Remove a schedule; return whether there was one."""
        schedule = self._rows.pop(name, None)
        if schedule is None:
            return False
        self._leave_line(schedule)
        self._names.remove((name,))
        self.hungry.pop(name, None)
        self._state.quotas.give(Kind.SCHEDULES, schedule.owner)
        self._state.quotas.give(Kind.SCHEDULE_BYTES, schedule.owner, _bytes_of(schedule))
        return True

    def change(self, schedule: Schedule) -> None:
        """Replace a schedule by one with the same definition and another progress."""
        before = self._rows[schedule.name]
        self._leave_line(before)
        for place, count in enumerate(_counts(schedule)):
            self.totals[place] += count - _counts(before)[place]
        self._rows[schedule.name] = schedule
        self._stand_in_line(schedule)

    def _stand_in_line(self, schedule: Schedule) -> None:
        wake_us = schedule.wake_us()
        if wake_us is not None:
            self._line.add((wake_us, schedule.name), schedule.name)
            self._note_due()
        if wants_times(schedule):
            self.hungry[schedule.name] = None
        else:
            self.hungry.pop(schedule.name, None)

    def _leave_line(self, schedule: Schedule) -> None:
        wake_us = schedule.wake_us()
        if wake_us is not None:
            self._line.remove((wake_us, schedule.name))

    def _note_due(self) -> None:
        due_us = self.due_us()
        if due_us is not None:
            self._state.expiry.at(due_us)

    # --- clock ----------------------------------------------------------------------------------------------------

    def report(self, member: bytes, ahead_us: int) -> None:
        """Take the report of a member's clock."""
        self.clocks.pop(member, None)
        self.clocks[member] = ahead_us
        if len(self.clocks) > MEMBERS_MAX:
            del self.clocks[next(iter(self.clocks))]

    def set_clock(self, ahead_us: int, *, held: bool) -> None:
        """Set the offset of the schedule clock, and whether messages are refused."""
        self.ahead_us, self.held = ahead_us, held
        self._note_due()

    # --- Source ---------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return the log time at which the next schedule has something to do; None if none has."""
        first = self._line.first_key()
        return None if first is None or self.ahead_us is None else max(0, first[0] - self.ahead_us)

    def expire(self, now_us: int, limit: int | None) -> int:
        """Handle up to `limit` due times; return how many."""
        done = self._copies = self._bytes = 0
        unix_us = now_us + (self.ahead_us or 0)
        while done != limit and (first := self._line.first_key()) is not None and first[0] <= unix_us:
            schedule = self._rows[first[1]]
            if not self._has_room(schedule):
                break
            schedule, due_us = advanced(schedule, unix_us)
            if due_us:
                schedule, _flag = self.push(schedule, due_us)
            self.change(schedule)
            done += 1
        return done

    def upcoming(self, now_us: int, limit: int) -> list[bytes]:
        """Return the queues of the schedules that are next in line and due, at most `limit` of them."""
        if self.ahead_us is None:
            return []
        due = self._line.between((0,), (now_us + self.ahead_us + 1,))
        return [self._rows[name].definition.queue for name in islice(due, limit)]

    def _has_room(self, schedule: Schedule) -> bool:
        """Return whether the batch may store the message of one more schedule; the first always has room."""
        queue = self._state.queues.get(schedule.definition.queue)
        copies = 1 if queue is None else self._reach(queue)
        size_bytes = copies * len(schedule.definition.item.content)
        if self._copies and (self._copies + copies > COPIES_MAX or self._bytes + size_bytes > COPY_BYTES_MAX):
            return False
        self._copies += copies
        self._bytes += size_bytes
        return True

    def push(self, schedule: Schedule, due_us: int) -> tuple[Schedule, int]:
        """Push the message of a due time; return the schedule with its counters, and the flag of the push."""
        item, push = schedule.definition.message(schedule.name, due_us), schedule.definition.push
        flag: int
        if self.held:
            flag = Refusal(PushFlag.FULL, "the leader has no room: its limit of memory or disk is reached")
        else:
            try:
                queue = self._state.queue(schedule.definition.queue)
            except RefusedError as exc:
                return schedule._replace(refused=schedule.refused + 1), Refusal(PushFlag.FULL, exc.reason)
            meta = (item.content_type, attributes_kept(queue, item))
            (flag,) = self._state.store(queue, meta, [item.content], push)
        if flag >= PushFlag.FULL:
            return schedule._replace(refused=schedule.refused + 1), flag
        return schedule._replace(pushed=schedule.pushed + 1, last_us=max(schedule.last_us, due_us)), flag

    # --- snapshots ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[list[object]]:
        """Return a row for each schedule, as of now."""
        return map(_row, [*self._rows.values()])

    def clock_rows(self) -> Iterator[list[object]]:
        """Return the clock as a row, and one for the report of each member."""
        yield [
            b"",
            -1 if self.ahead_us is None else self.ahead_us,
            self.last_serial,
            int(self.ahead_us is not None),
            int(self.held),
            [*self.totals],
        ]
        for member, ahead_us in [*self.clocks.items()]:
            yield [member, ahead_us, 0, 0, 0, []]

    def load(self, schedules: Iterable[Schedule]) -> None:
        """Add the schedules of a snapshot."""
        for schedule in schedules:
            self.put(schedule)

    def load_clock(self, rows: Iterable[tuple[bytes, int, int, int, int, list[int]]]) -> None:
        """Take the clock of a snapshot."""
        for member, ahead_us, serial, is_set, held, totals in rows:
            if member:
                self.report(member, ahead_us)
            else:
                self.ahead_us = ahead_us if is_set else None
                self.last_serial, self.held = serial, bool(held)
                pushed, missed, refused = totals
                self.totals = [pushed, missed, refused]

    def sample(self, number: int) -> Iterator[str]:
        """Yield texts of the counts and of a sample that the number selects; they are equal on equal replicas."""
        yield repr(
            (
                len(self),
                self.ahead_us,
                self.held,
                self.last_serial,
                [*self.clocks.items()],
                len(self._line),
                self.totals,
            )
        )
        start = number % max(1, len(self._line))
        for name in islice(self._line, start, start + _SAMPLE):
            yield repr((_row(self._rows[name])[:-1], self._rows[name].definition.size_bytes()))


_SAMPLE = 20


def _counts(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.pushed, schedule.missed, schedule.refused


def _bytes_of(schedule: Schedule) -> int:
    return ROW_BYTES + schedule.definition.size_bytes()


def _row(schedule: Schedule) -> list[object]:
    """Return the row of a snapshot. The body is last, since it may be large."""
    return [
        *(schedule.name, schedule.owner, schedule.serial, schedule.definition.row(), schedule.created_us),
        *(list(schedule.times), schedule.known_us, int(schedule.done), schedule.floor_us, schedule.owed_us),
        *(int(schedule.paused), schedule.pushed, schedule.missed, schedule.refused, schedule.last_us),
        schedule.definition.item.content,
    ]
