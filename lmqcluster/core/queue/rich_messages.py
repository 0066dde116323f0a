"""The messages of one queue that have traits: due ones in order, delayed ones, and those held behind their group.

The order is priority, due time, arrival. A message that has a group keeps its place in it, whatever happens to the
message, until it leaves the queue: its first due time, then arrival; in a queue with an index only arrival. One rule
says what can be delivered of a group: its messages from the first one up to the first that is in flight, or delayed at
its place. The first of them, the *head*, is in line with other messages, and those behind it are held. One pull takes
the head and as many messages behind it as the queue, or a batch lease, allows. The next head becomes due when it
becomes the head, so groups take turns. Messages in line are also indexed by label and by the time at which they expire.

If the queue's groups are fair, messages with a group are in the line of `FairGroups` instead. A change of the mode holds
for messages that enter a line after it.
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
        held: due messages behind another one of their group, by group and place in it.
        holding: messages that hold those behind them in their group, by group and place in it: those in flight, unless
            groups were fair when they were delivered, and those delayed at their place.
        heads: for each group with a message in `waiting`, `held` or `holding`, the one in `waiting`; None if there is
            none.
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
        "fair",
        "heads",
        "held",
        "holding",
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
        self.holding: SortedList[RichMessage] = SortedList()
        self.heads: dict[bytes, RichMessage | None] = {}
        self.index: MessageIndex | None = None
        self.fair: FairGroups | None = None
        self.is_fair = False
        self.leased_bytes = 0
        # Derived from the messages in line: by (label, sequence), by (end, sequence), and how many have a priority. A
        # message with an origin has entries under (label, sequence) and under (b"", sequence).
        self._labelled: SortedList[RichMessage] = SortedList()
        self._expiring: SortedList[RichMessage] = SortedList()
        self._moved: SortedList[RichMessage] = SortedList()
        self._prioritised = 0
        for message in leased:
            self.load_leased(message)

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

    def arrive(self, message: RichMessage, now_us: int) -> None:
        """Count a new message and put it in line."""
        if self.index is not None and not self.is_fair:
            message.place_us = message.pushed_us
        self.on_added(message)
        self.enter(message, now_us)

    def on_added(self, message: RichMessage) -> None:
        """Count a message that is in the queue from now on."""
        self._count(_trait_bytes(message.traits))

    def on_enriched(self, count: int) -> None:
        """Count messages of the queue that have been given traits without a label or a group."""
        self._count(count * TRAIT_BYTES)

    def _count(self, trait_bytes: int) -> None:
        self.trait_bytes += trait_bytes
        self._totals.trait_bytes += trait_bytes

    def enter(self, message: RichMessage, now_us: int) -> None:
        """Put a new or returned message in line by its due time."""
        self._index(message)
        if message.due_us > now_us:
            self._schedule(message)
        else:
            self._line_up(message, now_us)

    def _schedule(self, message: RichMessage) -> None:
        self.scheduled.add((message.due_us, message.sequence), message)
        # One that is not due for the first time yet gets its place only then.
        if message.traits.group and message.due_us != message.place_us:
            self._hold_others(message)

    def _hold_others(self, message: RichMessage) -> None:
        self.holding.add(message.group_place(), message)
        self.heads.setdefault(message.traits.group, None)

    def enter_new(self, messages: Sequence[RichMessage], now_us: int) -> None:
        """Count new messages and put them in line, in the order of arrival; fast for those that are due and plain."""
        plain: list[RichMessage] = []
        for message in messages:
            if message.traits is PLAIN_TRAITS and message.due_us <= now_us:
                plain.append(message)
            else:
                self.arrive(message, now_us)
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
        """Put a due message in the waiting line or that of fair groups, or hold it if it is not the first of its group."""
        group = message.traits.group
        if group and self.is_fair and self.fair is not None:
            self.fair.enter(message, now_us)
        elif not group:
            self.waiting.add(message.place(), message)
        elif self._is_first(message):
            before = self.heads.get(group)
            if before is not None:
                self.waiting.remove(before.place())
                self._hold(before)
            self._make_head(message)
        else:
            self._hold(message)

    def _is_first(self, message: RichMessage) -> bool:
        """Return whether a message that is not the head of its group comes before all others of it."""
        group = message.traits.group
        if group not in self.heads:
            return True
        head, place = self.heads[group], message.group_place()
        others = (_first(self.held, group), _first(self.holding, group)) if head is None else (head,)
        return all(other is None or place <= other.group_place() for other in others)

    def _make_head(self, message: RichMessage) -> None:
        self.heads[message.traits.group] = message
        self.waiting.add(message.place(), message)

    def _hold(self, message: RichMessage) -> None:
        self.held.add(message.group_place(), message)
        self.heads.setdefault(message.traits.group, None)

    def load(self, line: str, message: RichMessage) -> None:
        """Restore a message of a snapshot to the line that it was in."""
        self._index(message)
        if line == "waiting" and message.traits.group:
            self._make_head(message)
        elif line == "waiting":
            self.waiting.add(message.place(), message)
        elif line == "scheduled":
            self._schedule(message)
        elif line == "fair" and self.fair is not None:
            self.fair.load_waiting(message)
        else:
            self._hold(message)

    def load_leased(self, message: Message, *, holds: bool = False) -> None:
        """Count a leased message of a snapshot, which perhaps holds those behind it in its group."""
        self.leased_bytes += message_bytes(message)
        if self.fair is not None:
            self.fair.load_leased(message)
        if holds and isinstance(message, RichMessage):
            self._hold_others(message)

    def take(self, message: RichMessage) -> bool:
        """Take a message out of its line, to be leased or to leave the queue; False if it is in none."""
        traits = message.traits
        if not self._leave_line(message):
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

    def _leave_line(self, message: RichMessage) -> bool:
        group = message.traits.group
        if self.waiting.remove(message.place()):
            if group:
                self.heads[group] = None
        elif self.scheduled.remove((message.due_us, message.sequence)):
            if group:
                self.holding.remove(message.group_place())
        elif group:
            return self.held.remove(message.group_place()) or (self.fair is not None and self.fair.remove(message))
        else:
            return False
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

    def begin_flights(self, messages: Sequence[Message], now_us: int) -> None:
        """Count messages that were taken out of their lines to be delivered."""
        if self.fair is not None:
            self.fair.begin(messages, now_us)
        if self.is_fair:
            return
        for message in messages:
            if isinstance(message, RichMessage) and message.traits.group:
                self._hold_others(message)

    def delivered(self, messages: Sequence[Message], number: int, now_us: int) -> None:
        """Note deliveries under the consecutive numbers from `number` if the queue has an index."""
        if self.index is None:
            return
        self.index.delivered(messages, number)
        for message in messages:
            if isinstance(message, RichMessage) and not message.first_us:
                message.first_us = now_us

    def end_flight(self, message: Message) -> bool:
        """Count a message whose delivery has ended; return whether that may allow another delivery.

        It must then come back or leave the queue, and holds those behind it in its group until it does: if several
        deliveries end together, none of them may free a message that is behind another one.
        """
        return self.fair is not None and self.fair.end(message)

    def stop_holding(self, message: RichMessage) -> None:
        """Hold no message of the group because of this one, which must then come back, leave the queue or be delivered."""
        if len(self.holding):
            self.holding.remove(message.group_place())

    def on_removed(self, message: RichMessage, now_us: int, pre_images: PreImages | None) -> bool:
        """Account for a message that left the queue; return whether its group has a new head."""
        group = message.traits.group
        self._count(-_trait_bytes(message.traits))
        if self.index is not None:
            self.index.on_removed(message)
        if not group:
            return False
        self.stop_holding(message)
        return self._advance(group, now_us, pre_images)

    def come_back(self, message: RichMessage, due_us: int, now_us: int, pre_images: PreImages | None) -> bool:
        """Put a delivered message back in line; return whether another message of its group is the new head."""
        message.due_us = message.ready_us = due_us
        self.stop_holding(message)
        self.enter(message, now_us)
        return self._advance(message.traits.group, now_us, pre_images)

    def take_behind(self, message: RichMessage) -> RichMessage | None:
        """Take the message behind a leased one of its group; None if that is held by another one, or there is none."""
        group = message.traits.group
        behind = (group, message.place_us, message.sequence + 1)
        following = self.held.first_from(behind) if group else None
        if following is None or following.traits.group != group:
            return None
        hold = self.holding.first_from(behind)
        if hold is not None and hold.group_place() < following.group_place():
            return None
        self.take(following)
        return following

    def _advance(self, group: bytes, now_us: int, pre_images: PreImages | None) -> bool:
        """Make the first message of a group its head, due now, if it has none and nothing holds it; return whether it was."""
        head = self._take_head(group)
        if head is None:
            return False
        if pre_images is not None:
            pre_images.keep((head,))
        head.due_us = head.ready_us = now_us
        self._make_head(head)
        return True

    def _take_head(self, group: bytes) -> RichMessage | None:
        """Take the held message that has to be the head of its group, if any. A group without messages is forgotten."""
        if group not in self.heads or self.heads[group] is not None:
            return None
        first, hold = _first(self.held, group), _first(self.holding, group)
        if first is None and hold is None:
            del self.heads[group]
        if first is None or (hold is not None and hold.group_place() < first.group_place()):
            return None
        self.held.remove(first.group_place())
        return first

    # --- looking --------------------------------------------------------------------------------------------------

    def promote(self, now_us: int, limit: int) -> int:
        """Move up to `limit` messages that have become due to the waiting line; return how many."""
        done = 0
        while done < limit and self._has_due(now_us):
            self._promote_first(now_us)
            done += 1
        return done

    def _promote_first(self, now_us: int) -> None:
        message = self.scheduled.pop_first()
        group = message.traits.group
        was_holding = bool(group) and self.holding.remove(message.group_place())
        self._line_up(message, now_us)
        if was_holding and self.is_fair:
            # It has left the order of its group, which may have messages from before the change of the mode.
            head = self._take_head(group)
            if head is not None:
                self._make_head(head)

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
            self._promote_first(now_us)
            done += 1
        return done

    def take_scheduled(self) -> RichMessage | None:
        """Take the message that becomes due first; None if there is none, or if another one of its group comes before it."""
        message = self.scheduled.first()
        if message is None or (self.is_ordered(message) and not self._is_first(message)):
            return None
        self.take(message)
        return message

    def _has_due(self, now_us: int) -> bool:
        first = self.scheduled.first()
        return first is not None and first.due_us <= now_us

    def head(self) -> RichMessage | None:
        """Return the next message, provided that those that have become due are promoted."""
        return self.waiting.first()

    def can_deliver(self, now_us: int) -> bool:
        """Return whether a message can be delivered now, provided that those that have become due are promoted."""
        return len(self.waiting) > 0 or (self.fair is not None and self.fair.next(now_us) is not None)

    def is_held(self, message: RichMessage) -> bool:
        """Return whether a message waits behind another one of its group."""
        return bool(message.traits.group) and self.held.first_from(message.group_place()) is message

    def is_ordered(self, message: RichMessage) -> bool:
        """Return whether a message has a place in an ordered group."""
        return bool(message.traits.group) and not self.is_fair

    def busy_groups(self) -> int:
        """Return the number of groups with a message in line or leased."""
        return len(self.heads) if self.fair is None else len(self.heads) + len(self.fair.groups)

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
        return _numbered(self._labelled, label, sequences)[:limit]

    def labelled_from(self, label: bytes, sequence: int) -> Iterator[RichMessage]:
        """Return the messages in line with this label from a sequence on, in the order of arrival."""
        return self._labelled.between((label, sequence), (label, NEVER))

    def moved(self, label: bytes, limit: int, sequences: Iterable[int] | None = None) -> list[RichMessage]:
        """Return up to `limit` messages in line that the cluster has moved here, in the order of arrival.

        They have this label, or any if it is empty, and one of these sequences if they are given.
        """
        if sequences is None:
            return list(islice(self._moved.between((label, 0), (label, NEVER)), limit))
        return _numbered(self._moved, label, sequences)[:limit]

    def count_moved(self) -> int:
        """Return how many messages in line the cluster has moved here."""
        return self._moved.count_between((b"", 0), (b"", NEVER))

    def count_labelled(self, label: bytes) -> int:
        """Return how many messages in line have this label."""
        return self._labelled.count_between((label, 0), (label, NEVER))


def _numbered(index: SortedList[RichMessage], label: bytes, sequences: Iterable[int]) -> list[RichMessage]:
    """Return the messages with these sequences of an index by label and sequence."""
    wanted = sorted({number for number in sequences if 0 <= number < NEVER})
    return [message for number in wanted for message in index.between((label, number), (label, number + 1))]


def _trait_bytes(traits: Traits) -> int:
    return TRAIT_BYTES + len(traits.label) + len(traits.group)


def _first(line: SortedList[RichMessage], group: bytes) -> RichMessage | None:
    """Return the first message of a group in a line that is sorted by groups."""
    found = line.first_from((group,))
    return found if found is not None and found.traits.group == group else None


def _time(message: RichMessage) -> tuple[int, int]:
    return message.due_us, message.sequence
