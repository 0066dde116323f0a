"""Groups that take turns, of which several messages may be in flight: ``group_mode`` fair.

The next message is one of the group that has the fewest messages in flight; of several such groups, the one that has
waited longest for a turn. A group that enters waits for those that are there, so no group can get more turns by leaving
and coming back. All messages without a group count as one group. Within a group, the order is priority, due time,
arrival.

A group whose bucket has no token rests until it has one. A group that has reached its limit in flight needs no such
place: all groups with fewer messages in flight come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..messages.message import Message, RichMessage
from ..messages.sorted_list import SortedList
from .rates import Rate

__all__ = ["GROUP_BYTES", "FairGroups", "Group", "GroupLimits"]

_NS = 1_000
GROUP_BYTES = 500
"""Approximate memory of a group beside its messages."""


class GroupLimits(NamedTuple):
    """The limits of each group of a queue.

    Attributes:
        in_flight_max: most messages in flight; None for no limit.
        rate: most deliveries by time; None for no limit.
    """

    in_flight_max: int | None = None
    rate: Rate | None = None


class Group:
    """One group.

    Attributes:
        name: its name, empty for the messages without a group.
        in_flight: messages that are leased.
        waiting: messages in line.
        turn: number of its last turn; for one that has had none yet, of its arrival.
        full_ns: log time at which its bucket is full, 0 if it has none.
        resting_us: log time at which it gets a token; 0 if it does not wait for one.
    """

    __slots__ = ("full_ns", "in_flight", "name", "place", "resting_us", "turn", "waiting")

    def __init__(self, name: bytes, turn: int) -> None:
        self.name = name
        self.turn = turn
        self.in_flight = 0
        self.waiting = 0
        self.full_ns = 0
        self.resting_us = 0
        # Its key among the groups that may have a turn, or among the idle ones whose bucket is not full.
        self.place: tuple[int, ...] = ()

    def key(self) -> tuple[int, int]:
        """Return the sort key of turns."""
        return self.in_flight, self.turn


class FairGroups:
    """The groups of one queue. Every operation costs O(log n).

    Attributes:
        limits: the limits of each group.
        line: the due messages, by group, priority, due time, arrival.
        groups: those with a message in line or in flight, or with a bucket that is not full.
        ungrouped: stands for the messages without a group, which are in other lines.
        last_turn: number of the last turn or arrival of a group.
    """

    __slots__ = ("_count", "_idle", "_resting", "_turns", "groups", "last_turn", "limits", "line", "ungrouped")

    def __init__(self, leased: Iterable[Message], count: Callable[[int], None]) -> None:
        """Start with the leased messages of the queue; `count` counts memory."""
        self._count = count
        self.limits = GroupLimits()
        self.line: SortedList[RichMessage] = SortedList()
        self.groups: dict[bytes, Group] = {}
        self.last_turn = 0
        self.ungrouped = Group(b"", 0)
        self._turns: SortedList[Group] = SortedList()
        self._resting: SortedList[Group] = SortedList()
        self._idle: SortedList[Group] = SortedList()
        for message in leased:
            self.load_leased(message)

    def __len__(self) -> int:
        return len(self.line)

    def _group(self, name: bytes) -> Group:
        group = self.groups.get(name)
        if group is None:
            self._count(GROUP_BYTES)
            group = self.groups[name] = Group(name, 0)
        return group

    def _next_turn(self) -> int:
        self.last_turn += 1
        return self.last_turn

    # --- coming and going -----------------------------------------------------------------------------------------

    def enter(self, message: RichMessage, now_us: int) -> None:
        """Put a due message in line."""
        self.line.add(_place(message), message)
        group = self._group(message.traits.group)
        if not group.waiting and not group.in_flight and group.full_ns <= now_us * _NS:
            group.turn, group.full_ns = self._next_turn(), 0
        group.waiting += 1
        if group.waiting == 1:
            self._line_up(group, now_us)

    def remove(self, message: RichMessage) -> bool:
        """Take a message out of its line; False if it is not there."""
        group = self.groups.get(message.traits.group)
        if group is None or not self.line.remove(_place(message)):
            return False
        group.waiting -= 1
        if not group.waiting:
            self._leave(group)
            self._forget_if_idle(group)
        return True

    def begin(self, message: Message, now_us: int) -> None:
        """Count a message that was taken out of its line to be delivered."""
        name = message.traits.group if isinstance(message, RichMessage) else b""
        group = self._group(name) if name else self.ungrouped
        if name:
            self._leave(group)
        group.in_flight += 1
        group.turn = self._next_turn()
        if name and self.limits.rate is not None:
            group.full_ns = self.limits.rate.after(group.full_ns, now_us, 1)
        if group.waiting:
            self._line_up(group, now_us)

    def end(self, message: Message) -> bool:
        """Count a message that is in flight no more; return whether others of its group wait."""
        name = message.traits.group if isinstance(message, RichMessage) else b""
        if not name:
            self.ungrouped.in_flight -= 1
            return False
        group = self.groups[name]
        group.in_flight -= 1
        if not group.waiting:
            self._forget_if_idle(group)
        elif not group.resting_us:
            self._leave(group)
            self._take_place(group)
        return group.waiting > 0

    def _line_up(self, group: Group, now_us: int) -> None:
        """Put a group with messages in line among those that take turns, or among the resting ones if it has no token."""
        self._leave(group)
        rate = self.limits.rate
        if rate is None or rate.available(group.full_ns, now_us):
            self._take_place(group)
        else:
            group.resting_us = rate.next_us(group.full_ns)
            self._resting.add((group.resting_us, group.name), group)

    def _take_place(self, group: Group) -> None:
        group.place = group.key()
        self._turns.add((*group.place, group.name), group)

    def _leave(self, group: Group) -> None:
        """Take a group out of the list that it is in."""
        if group.resting_us:
            self._resting.remove((group.resting_us, group.name))
            group.resting_us = 0
        elif group.place:
            (self._turns if len(group.place) > 1 else self._idle).remove((*group.place, group.name))
            group.place = ()

    def _forget_if_idle(self, group: Group) -> None:
        """Forget a group without messages, now or when its bucket is full."""
        if group.in_flight:
            return
        if not group.full_ns:
            self._forget(group)
            return
        group.place = (-(group.full_ns // -_NS),)
        self._idle.add((*group.place, group.name), group)

    def _forget(self, group: Group) -> None:
        self._count(-GROUP_BYTES)
        del self.groups[group.name]

    # --- turns ----------------------------------------------------------------------------------------------------

    def next(self, now_us: int) -> Group | None:
        """Return the group whose turn it is; None if none may have one."""
        while True:
            group = self._turns.first()
            if group is None or self._is_at_limit(group):
                return None
            rate = self.limits.rate
            if rate is None or rate.available(group.full_ns, now_us):
                return group
            # The queue has a new rate.
            self._line_up(group, now_us)

    def _is_at_limit(self, group: Group) -> bool:
        most = self.limits.in_flight_max
        return most is not None and group.in_flight >= most

    def head(self, group: Group) -> RichMessage:
        """Return the next message of a group that has one."""
        message = self.line.first_from((group.name,))
        assert message is not None  # noqa: S101 - for the type checker
        return message

    def any(self) -> RichMessage | None:
        """Return a message in line regardless of limits; None if there is none."""
        group = self._turns.first() or self._resting.first()
        return None if group is None else self.head(group)

    def wake(self, now_us: int, limit: int) -> int:
        """Return up to `limit` groups that have a token to the turns, or forget those that are idle; return how many."""
        done = 0
        while done < limit and (group := self._first_until(self._resting, now_us)) is not None:
            self._line_up(group, now_us)
            done += 1
        while done < limit and (group := self._first_until(self._idle, now_us)) is not None:
            self._leave(group)
            self._forget(group)
            done += 1
        return done

    def _first_until(self, groups: SortedList[Group], now_us: int) -> Group | None:
        key = groups.first_key()
        return groups.first() if key is not None and key[0] <= now_us else None

    def earliest_us(self) -> int | None:
        """Return the time from which a message can be delivered; None if none can before one that is in flight returns."""
        group = self._turns.first()
        if group is not None and not self._is_at_limit(group):
            return self.head(group).due_us
        key = self._resting.first_key()
        return None if key is None else key[0]

    def next_us(self) -> int | None:
        """Return when `wake` has something to do."""
        keys = (self._resting.first_key(), self._idle.first_key())
        return min((key[0] for key in keys if key is not None), default=None)

    def held_back(self, count_max: int) -> tuple[int, int]:
        """Return how many messages wait for one of their group that is in flight, and how many for a token.

        Args:
            count_max: most groups that are counted for each.
        """
        at_limit = 0
        most = self.limits.in_flight_max
        if most is not None:
            for group, _ in zip(self._turns.between((most, 0, b""), (1 << 62, 0, b"")), range(count_max), strict=False):
                at_limit += group.waiting
        resting = sum(group.waiting for group, _ in zip(self._resting, range(count_max), strict=False))
        return at_limit, resting

    # --- snapshots ------------------------------------------------------------------------------------------------

    def rows(self) -> list[list[Any]]:
        """Return the state that does not follow from the messages: a row for each group, that of `ungrouped` first."""
        groups = [self.ungrouped, *self.groups.values()]
        return [[group.name, group.turn, group.full_ns, group.resting_us] for group in groups]

    def load(self, rows: Iterable[tuple[bytes, int, int, int]]) -> None:
        """Add groups of a snapshot; their messages and `loaded` must follow."""
        for name, turn, full_ns, resting_us in rows:
            group = self._group(name) if name else self.ungrouped
            group.turn, group.full_ns, group.resting_us = turn, full_ns, resting_us

    def load_leased(self, message: Message) -> None:
        """Count a message in flight."""
        name = message.traits.group if isinstance(message, RichMessage) else b""
        (self._group(name) if name else self.ungrouped).in_flight += 1

    def load_waiting(self, message: RichMessage) -> None:
        """Add a message in line of a snapshot."""
        self.line.add(_place(message), message)
        self._group(message.traits.group).waiting += 1

    def loaded(self) -> None:
        """Finish loading."""
        for group in list(self.groups.values()):
            if group.resting_us:
                self._resting.add((group.resting_us, group.name), group)
            elif group.waiting:
                self._take_place(group)
            else:
                self._forget_if_idle(group)


def _place(message: RichMessage) -> tuple[bytes, int, int, int]:
    return message.traits.group, *message.place()
