"""Groups that take turns, of which several messages may be in flight: ``group_mode`` fair.

The next message is one of the group that has the fewest messages in flight; of several such groups, the one that has
waited longest for a turn. A group that enters waits for those that are there, so no group can get more turns by leaving
and coming back. All messages without a group count as one group. Within a group, the order is priority, due time,
arrival.

A group whose bucket has no token rests until it has one. A group that has reached its limit in flight needs no such
place: all groups with fewer messages in flight come before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
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
        era: the era of its bucket, see `FairGroups`.
        home, place: the list that it is in, and its key there without the name; None if it is in none.
    """

    __slots__ = ("era", "full_ns", "home", "in_flight", "name", "place", "turn", "waiting")

    def __init__(self, name: bytes, turn: int) -> None:
        self.name = name
        self.turn = turn
        self.in_flight = 0
        self.waiting = 0
        self.full_ns = 0
        self.era = 0
        self.home: SortedList[Group] | None = None
        self.place = (0, 0)

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
        era: number of the present rate. A bucket of an earlier one counts as full, so a change of the rate fills all.
    """

    __slots__ = ("_count", "_idle", "_resting", "_turns", "era", "groups", "last_turn", "limits", "line", "ungrouped")

    def __init__(self, leased: Iterable[Message], count: Callable[[int], None]) -> None:
        """Start with the leased messages of the queue; `count` counts memory."""
        self._count = count
        self.limits = GroupLimits()
        self.line: SortedList[RichMessage] = SortedList()
        self.groups: dict[bytes, Group] = {}
        self.last_turn = 0
        self.era = 0
        self.ungrouped = Group(b"", 0)
        self._turns: SortedList[Group] = SortedList()
        self._resting: SortedList[Group] = SortedList()
        self._idle: SortedList[Group] = SortedList()
        for message in leased:
            self.load_leased(message)

    def __len__(self) -> int:
        return len(self.line)

    def configure(self, limits: GroupLimits) -> None:
        """Replace the limits."""
        self.era += limits.rate != self.limits.rate
        self.limits = limits

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
        if not group.waiting and not group.in_flight and self._full_ns(group) <= now_us * _NS:
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

    def begin(self, messages: Iterable[Message], now_us: int) -> None:
        """Count messages that were taken out of their lines to be delivered."""
        for message in messages:
            name = message.traits.group if isinstance(message, RichMessage) else b""
            if name:
                self._begin(name, now_us)
            else:
                self.ungrouped.in_flight += 1
                self.ungrouped.turn = self.last_turn = self.last_turn + 1

    def _begin(self, name: bytes, now_us: int) -> None:
        group = self._group(name)
        self._leave(group)
        group.in_flight += 1
        group.turn = self._next_turn()
        if self.limits.rate is not None:
            group.full_ns, group.era = self.limits.rate.after(self._full_ns(group), now_us, 1), self.era
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
        elif group.home is not self._resting:
            self._leave(group)
            self._take_place(group)
        return group.waiting > 0

    def _line_up(self, group: Group, now_us: int) -> None:
        """Put a group with messages in line among those that take turns, or among the resting ones if it has no token."""
        self._leave(group)
        if self._token_us(group) <= now_us:
            self._take_place(group)
        else:
            self._put(group, self._resting, (group.era, group.full_ns))

    def _full_ns(self, group: Group) -> int:
        return group.full_ns if group.era == self.era else 0

    def _token_us(self, group: Group) -> int:
        """Return when a group has a token. Of resting groups of one era it is the earlier the earlier their bucket is full."""
        return 0 if self.limits.rate is None else self.limits.rate.next_us(self._full_ns(group))

    def _take_place(self, group: Group) -> None:
        self._put(group, self._turns, group.key())

    def _put(self, group: Group, home: SortedList[Group], place: tuple[int, int]) -> None:
        group.home, group.place = home, place
        home.add((*place, group.name), group)

    def _leave(self, group: Group) -> None:
        """Take a group out of the list that it is in."""
        if group.home is not None:
            group.home.remove((*group.place, group.name))
            group.home = None

    def _forget_if_idle(self, group: Group) -> None:
        """Forget a group without messages, now or when its bucket is full."""
        if group.in_flight:
            return
        if self._full_ns(group):
            self._put(group, self._idle, (group.era, group.full_ns))
        else:
            self._forget(group)

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
            if self._token_us(group) <= now_us:
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

    def in_turn(self, count: int) -> Iterator[Iterator[RichMessage]]:
        """Yield the messages in line of each of up to `count` groups, in the order of their turns."""
        for group in islice(self._turns, count):
            yield self.line.between((group.name,), (group.name + b"\0",))

    def any(self) -> RichMessage | None:
        """Return a message in line regardless of limits; None if there is none."""
        group = self._turns.first() or self._resting.first()
        return None if group is None else self.head(group)

    def wake(self, now_us: int, limit: int) -> int:
        """Return up to `limit` groups that have a token to the turns, or forget those that are idle; return how many."""
        done = 0
        while done < limit and (group := self._resting.first()) is not None and self._token_us(group) <= now_us:
            self._line_up(group, now_us)
            done += 1
        while done < limit and (group := self._idle.first()) is not None and self._full_us(group) <= now_us:
            self._leave(group)
            self._forget(group)
            done += 1
        return done

    def _full_us(self, group: Group) -> int:
        return -(self._full_ns(group) // -_NS)

    def earliest_us(self) -> int | None:
        """Return the time from which a message can be delivered; None if none can before one that is in flight returns."""
        group = self._turns.first()
        if group is not None and not self._is_at_limit(group):
            return self.head(group).due_us
        resting = self._resting.first()
        return None if resting is None else self._token_us(resting)

    def next_us(self) -> int | None:
        """Return when `wake` has something to do."""
        resting, idle = self._resting.first(), self._idle.first()
        times = [] if resting is None else [self._token_us(resting)]
        return min(times if idle is None else [*times, self._full_us(idle)], default=None)

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
        return [[one.name, one.turn, one.full_ns, one.era, int(one.home is self._resting)] for one in groups]

    def load(self, rows: Iterable[tuple[bytes, int, int, int, int]]) -> None:
        """Add groups of a snapshot; their messages and `loaded` must follow."""
        for name, turn, full_ns, era, is_resting in rows:
            group = self._group(name) if name else self.ungrouped
            group.turn, group.full_ns, group.era = turn, full_ns, era
            if is_resting:
                self._put(group, self._resting, (era, full_ns))

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
            if group.waiting and group.home is None:
                self._take_place(group)
            elif not group.waiting:
                self._forget_if_idle(group)


def _place(message: RichMessage) -> tuple[bytes, int, int, int]:
    return message.traits.group, *message.place()
