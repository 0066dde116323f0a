"""The messages of one queue that have traits: due ones in order, delayed ones, and those held behind their group.

The order is priority, due time, arrival. If another message of the group is in line or leased, a message is held
until that one is settled. It becomes due at that moment, so groups take turns. Messages in line are also indexed by
label and by the time at which they expire.

A batch lease takes a group as a whole, and so does a pull if the queue allows it: the message that has the turn, and the
held ones behind it, its *followers*. The group proceeds when none of them is leased any more. A message that comes back
before that is held at its old place.

If the queue's groups are fair, messages with a group are in the line of `FairGroups` instead. A change of the mode holds
for messages that enter a line after it: a message whose group has given it the turn keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..messages.message import PLAIN_TRAITS, Message, RichMessage, Traits, message_bytes
from ..messages.sorted_list import SortedList
from ..messages.totals import Totals
from .expiry import NEVER
from .fair_groups import FairGroups, GroupLimits
from .message_index import MessageIndex

if TYPE_CHECKING:
    from ..messages.pre_images import PreImages
    from .options import QueueOptions

__all__ = ["TRAIT_BYTES", "RichLines"]

TRAIT_BYTES = 600
"""Approximate memory of a message's traits and of its entries in lines."""


class RichLines:
    """The lines of messages with traits. Each message is in one of three lines; every operation costs O(log n).

    Attributes:
        waiting: due messages, by priority, due time, arrival.
        scheduled: delayed messages, by due time and arrival.
        held: messages whose group is busy, by group, due time, arrival.
        current: for each busy group, the sequence of its message in line or leased; 0 if only followers are left.
        followers: for each group, the sequences of the messages leased together with the current one.
        leased_bytes: bytes of the bodies of all the queue's leased messages, including those without traits.
        trait_bytes: approximate memory of the queue's messages with traits, leased ones included, beside body and
            attributes.
        index: finds messages by id; None in most queues.
        fair: the groups of a queue whose groups are or were fair; None in most queues.
        is_fair: messages with a group that enter a line are fair.
    """

    __slots__ = (
        "_expiring",
        "_labelled",
        "_moved",
        "_prioritised",
        "_totals",
        "current",
        "fair",
        "followers",
        "held",
        "index",
        "is_fair",
        "leased_bytes",
        "scheduled",
        "trait_bytes",
        "waiting",
    )

    def __init__(self, totals: Totals, leased: Iterable[Message]) -> None:
        self._totals = totals
        self.trait_bytes = 0
        self.waiting: SortedList[RichMessage] = SortedList()
        self.scheduled: SortedList[RichMessage] = SortedList()
        self.held: SortedList[RichMessage] = SortedList()
        self.current: dict[bytes, int] = {}
        self.followers: dict[bytes, set[int]] = {}
        self.index: MessageIndex | None = None
        self.fair: FairGroups | None = None
        self.is_fair = False
        self.leased_bytes = sum(map(message_bytes, leased))
        # Derived from the messages in line: by (label, sequence), by (end, sequence), and how many have a priority. A
        # message with an origin has entries under (label, sequence) and under (b"", sequence).
        self._labelled: SortedList[RichMessage] = SortedList()
        self._expiring: SortedList[RichMessage] = SortedList()
        self._moved: SortedList[RichMessage] = SortedList()
        self._prioritised = 0

    def __len__(self) -> int:
        count = len(self.waiting) + len(self.scheduled) + len(self.held)
        return count if self.fair is None else count + len(self.fair)

    def lines(self) -> list[tuple[str, SortedList[RichMessage]]]:
        """Return the lines with their names in snapshots."""
        lines = [("waiting", self.waiting), ("scheduled", self.scheduled), ("held", self.held)]
        return lines if self.fair is None else [*lines, ("fair", self.fair.line)]

    def configure(self, options: QueueOptions | None, leased: Iterable[Message]) -> None:
        """Apply the queue's options for groups; `leased` are its leased messages."""
        self.is_fair = options is not None and options.fair
        if self.is_fair:
            self.fair_groups(leased)
        if self.fair is not None:
            self.fair.configure(GroupLimits() if options is None else options.group_limits)

    def fair_groups(self, leased: Iterable[Message]) -> FairGroups:
        """Return the fair groups; create them if needed."""
        if self.fair is None:
            self.fair = FairGroups(leased, self._count)
        return self.fair

    # --- coming and going -----------------------------------------------------------------------------------------

    def on_added(self, message: RichMessage) -> None:
        """Count a message that arrived in the queue."""
        self._count(_trait_bytes(message.traits))

    def _count(self, trait_bytes: int) -> None:
        self.trait_bytes += trait_bytes
        self._totals.trait_bytes += trait_bytes

    def enter(self, message: RichMessage, now_us: int) -> None:
        """Put a new or returned message in line by its due time."""
        self._index(message)
        if message.due_us > now_us:
            self.scheduled.add((message.due_us, message.sequence), message)
        else:
            self._line_up(message, now_us)

    def enter_new(self, messages: Sequence[RichMessage], now_us: int) -> None:
        """Count new messages and put them in line, in the order of arrival; fast for those that are due and plain."""
        plain: list[RichMessage] = []
        for message in messages:
            if message.traits is PLAIN_TRAITS and message.due_us <= now_us:
                plain.append(message)
            else:
                self.on_added(message)
                self.enter(message, now_us)
        if plain:
            self.enter_plain(plain, plain[0].due_us, now_us)

    def enter_plain(self, messages: Sequence[RichMessage], due_us: int, now_us: int) -> None:
        """Count messages without traits that all become due at `due_us`, and put them in line."""
        self._count(len(messages) * TRAIT_BYTES)
        if self.index is not None:
            self.index.entered_all(messages)
        if due_us > now_us:
            self.scheduled.add_all([(due_us, message.sequence, message) for message in messages])
        else:
            self.waiting.add_all([(0, due_us, message.sequence, message) for message in messages])

    def _line_up(self, message: RichMessage, now_us: int) -> None:
        """Put a due message in the waiting line or that of fair groups, or hold it if its group is busy."""
        group = message.traits.group
        if group and self.is_fair and self.fair is not None and not self._has_turn(message):
            self.fair.enter(message, now_us)
        elif group and self.current.setdefault(group, message.sequence) != message.sequence:
            self._hold(message)
        else:
            self.waiting.add(message.place(), message)

    def _hold(self, message: RichMessage) -> None:
        self.held.add((message.traits.group, message.due_us, message.sequence), message)

    def load(self, line: str, message: RichMessage) -> None:
        """Restore a message of a snapshot to the line that it was in; `current` must be loaded before."""
        self._index(message)
        if line == "waiting":
            self.waiting.add(message.place(), message)
        elif line == "scheduled":
            self.scheduled.add((message.due_us, message.sequence), message)
        elif line == "fair" and self.fair is not None:
            self.fair.load_waiting(message)
        else:
            self._hold(message)

    def load_leased(self, message: RichMessage) -> None:
        """Restore a leased message of a snapshot; `current` must be loaded before."""
        group = message.traits.group
        if group and self.current.get(group, message.sequence) != message.sequence:
            self.followers.setdefault(group, set()).add(message.sequence)

    def take(self, message: RichMessage) -> bool:
        """Take a message out of its line, to be leased or to leave the queue; False if it is in none."""
        traits = message.traits
        if not (
            self.waiting.remove(message.place())
            or self.scheduled.remove((message.due_us, message.sequence))
            or (traits.group and self.held.remove((traits.group, message.due_us, message.sequence)))
            or (traits.group and self.fair is not None and self.fair.remove(message))
        ):
            return False
        self._prioritised -= traits.priority != 0
        if self.index is not None:
            self.index.taken(message)
        if traits.label:
            self._labelled.remove((traits.label, message.sequence))
        if traits.expires_us:
            self._expiring.remove((traits.expires_us, message.sequence))
        if traits.origin is not None:
            for label in {b"", traits.label}:
                self._moved.remove((label, message.sequence))
        return True

    def _index(self, message: RichMessage) -> None:
        traits = message.traits
        self._prioritised += traits.priority != 0
        if self.index is not None:
            self.index.entered(message)
        if traits.label:
            self._labelled.add((traits.label, message.sequence), message)
        if traits.expires_us:
            self._expiring.add((traits.expires_us, message.sequence), message)
        if traits.origin is not None:
            for label in {b"", traits.label}:
                self._moved.add((label, message.sequence), message)

    def begin_flight(self, message: Message, now_us: int) -> None:
        """Count a message that was taken out of its line to be delivered."""
        if self.fair is not None:
            self.fair.begin(message, now_us)

    def end_flight(self, message: Message) -> bool:
        """Count a message whose delivery has ended; return whether that may allow another delivery."""
        return self.fair is not None and self.fair.end(message)

    def on_removed(self, message: RichMessage, now_us: int, pre_images: PreImages | None) -> bool:
        """Account for a message that left the queue and pass its group's turn on; return whether a message got it."""
        self._count(-_trait_bytes(message.traits))
        if self.index is not None:
            self.index.on_removed(message)
        group = message.traits.group
        return bool(group) and self._leaves_turn(message) and self._pass_on(group, now_us, pre_images)

    def come_back(self, message: RichMessage, due_us: int, now_us: int, pre_images: PreImages | None) -> bool:
        """Put a delivered message back in line; return whether another message of its group got the turn instead."""
        group = message.traits.group
        if group not in self.followers or not self._has_turn(message):
            message.due_us = message.ready_us = due_us
            self.enter(message, now_us)
            return False
        # While messages of a group are leased, no other one of it can be pulled. All messages behind the current one
        # were pushed, or became due, after its push.
        is_current = self.current[group] == message.sequence
        message.due_us = message.ready_us = message.pushed_us if is_current else message.ready_us
        self._index(message)
        self._hold(message)
        return self._leaves_turn(message) and self._pass_on(group, now_us, pre_images)

    def take_behind(self, message: RichMessage) -> RichMessage | None:
        """Take the next held message of a leased message's group; None if there is none, or if the leased one has no turn."""
        heir = self._next_held(message.traits.group) if message.traits.group and self._has_turn(message) else None
        if heir is not None:
            self.take(heir)
        return heir

    def follows(self, message: RichMessage) -> None:
        """Note that a formerly held message is leased together with the current one of its group."""
        self.followers.setdefault(message.traits.group, set()).add(message.sequence)

    def _has_turn(self, message: RichMessage) -> bool:
        group = message.traits.group
        return self.current.get(group) == message.sequence or message.sequence in self.followers.get(group, ())

    def _leaves_turn(self, message: RichMessage) -> bool:
        """Remove a message from its group's turn; return whether the group may proceed."""
        group, followers = message.traits.group, self.followers.get(message.traits.group)
        if followers is None:
            return self.current.get(group) == message.sequence
        if message.sequence in followers:
            followers.remove(message.sequence)
        elif self.current[group] == message.sequence:
            self.current[group] = 0
        else:
            return False
        if not followers:
            del self.followers[group]
        return not followers and not self.current[group]

    def _next_held(self, group: bytes) -> RichMessage | None:
        heir = self.held.first_from((group,))
        return None if heir is None or heir.traits.group != group else heir

    def _pass_on(self, group: bytes, now_us: int, pre_images: PreImages | None) -> bool:
        """Give the next held message of a group its turn; return whether there is one."""
        heir = self._next_held(group)
        if heir is None:
            del self.current[group]
            return False
        self.held.remove((group, heir.due_us, heir.sequence))
        if pre_images is not None:
            pre_images.keep((heir,))
        heir.due_us = heir.ready_us = now_us
        self.current[group] = heir.sequence
        self.waiting.add(heir.place(), heir)
        return True

    # --- looking --------------------------------------------------------------------------------------------------

    def promote(self, now_us: int, limit: int) -> int:
        """Move up to `limit` messages that have become due to the waiting line; return how many."""
        done = 0
        while done < limit and self._has_due(now_us):
            self._line_up(self.scheduled.pop_first(), now_us)
            done += 1
        return done

    def wake(self, now_us: int, limit: int) -> int:
        """Make the next message known to `head` and `fair`; return the number of steps, or `limit` if more may be needed."""
        done = self.promote_next(now_us, limit)
        return done if self.fair is None else done + self.fair.wake(now_us, limit - done)

    def promote_next(self, now_us: int, limit: int) -> int:
        """Promote messages only until `head` is the next one; return how many, or `limit` if that may not suffice."""
        if self._prioritised:
            return self.promote(now_us, limit)
        done = 0
        while done < limit and self._has_due(now_us):
            # All have the same priority, so the earlier one is next.
            waiting, scheduled = self.waiting.first(), self.scheduled.first()
            if waiting is not None and scheduled is not None and _time(waiting) < _time(scheduled):
                break
            self._line_up(self.scheduled.pop_first(), now_us)
            done += 1
        return done

    def take_scheduled(self) -> RichMessage | None:
        """Take the message that becomes due first; None if there is none, or if another one of its group is in line or leased."""
        message = self.scheduled.first()
        if message is None:
            return None
        group = message.traits.group
        if group and self.current.setdefault(group, message.sequence) != message.sequence:
            return None
        self.take(message)
        return message

    def _has_due(self, now_us: int) -> bool:
        first = self.scheduled.first()
        return first is not None and first.due_us <= now_us

    def head(self) -> RichMessage | None:
        """Return the next message, provided that those that have become due are promoted."""
        return self.waiting.first()

    def due_count(self, now_us: int) -> int:
        """Return how many messages can be pulled now; several of one group that become due together count one by one."""
        count = len(self.waiting) + self.scheduled.count_between((0, 0), (now_us + 1, 0))
        return count if self.fair is None else count + len(self.fair)

    def first_of_all(self) -> RichMessage | None:
        """Return a message in line: the first to be due, or a held one if there is no other."""
        fair = None if self.fair is None else self.fair.any()
        return self.waiting.first() or fair or self.scheduled.first() or self.held.first()

    def earliest_us(self) -> int | None:
        """Return the time from which the next message can be pulled; None if none can."""
        heads = (self.waiting.first(), self.scheduled.first())
        times = [message.due_us for message in heads if message is not None]
        if self.fair is not None and (fair_us := self.fair.earliest_us()) is not None:
            times.append(fair_us)
        return min(times, default=None)

    def front_us(self, priority: int) -> int | None:
        """Return the earliest due time among waiting messages of this priority; None if there are none."""
        first = self.waiting.first_from((priority,))
        return None if first is None or first.traits.priority != priority else first.due_us

    def next_us(self) -> int:
        """Return when the next message becomes due or expires, or the next group gets a token."""
        scheduled, expiring = self.scheduled.first(), self._expiring.first()
        due_us = NEVER if scheduled is None else scheduled.due_us
        if self.fair is not None and (fair_us := self.fair.next_us()) is not None:
            due_us = min(due_us, fair_us)
        return due_us if expiring is None else min(due_us, expiring.traits.expires_us)

    def first_expired(self, now_us: int) -> RichMessage | None:
        """Return the message in line that expired first."""
        first = self._expiring.first()
        return None if first is None or first.traits.expires_us > now_us else first

    def expired(self, now_us: int) -> Iterator[RichMessage]:
        """Return the expired messages in line, in the order of expiry."""
        return self._expiring.between((0, 0), (now_us + 1, 0))

    def labelled(self, label: bytes, limit: int, sequences: Iterable[int] | None = None) -> list[RichMessage]:
        """Return up to `limit` messages in line with this label, in the order of arrival, or those with these sequences."""
        if sequences is None:
            return list(islice(self.labelled_from(label, 0), limit))
        wanted = sorted({number for number in sequences if 0 <= number < NEVER})
        return [
            message for number in wanted for message in self._labelled.between((label, number), (label, number + 1))
        ]

    def labelled_from(self, label: bytes, sequence: int) -> Iterator[RichMessage]:
        """Return the messages in line with this label from a sequence on, in the order of arrival."""
        return self._labelled.between((label, sequence), (label, NEVER))

    def moved(self, label: bytes, limit: int) -> list[RichMessage]:
        """Return up to `limit` messages in line that the cluster has moved here, with this label, or any if it is empty."""
        return list(islice(self._moved.between((label, 0), (label, NEVER)), limit))

    def count_moved(self) -> int:
        """Return how many messages in line the cluster has moved here."""
        return self._moved.count_between((b"", 0), (b"", NEVER))

    def count_labelled(self, label: bytes) -> int:
        """Return how many messages in line have this label."""
        return self._labelled.count_between((label, 0), (label, NEVER))


def _trait_bytes(traits: Traits) -> int:
    return TRAIT_BYTES + len(traits.label) + len(traits.group)


def _time(message: RichMessage) -> tuple[int, int]:
    return message.due_us, message.sequence
