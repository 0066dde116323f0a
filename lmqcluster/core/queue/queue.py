"""One queue: pulls, leases, settlement, expiry and dead-lettering."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from typing import Protocol

from ..log.commands import Delivered, Place
from ..messages.message import Message, RichMessage, content_bytes, content_count
from ..messages.totals import Totals
from .expiry import NEVER
from .pager import Pager
from .properties import Settings
from .rich_messages import RichLines
from .settlement_history import Settlement, SettlementHistory
from .store import QueueContents

__all__ = ["PASSES_MAX", "REPEATS_MAX", "Queue"]

PASSES_MAX = 10_000
"""Most undeliverable messages that one pull passes over; bounds the time of a command."""


REPEATS_MAX = 10_000
"""Most deliveries of one pull whose leases expire at once and that may return the same message repeatedly."""


class Exits(Protocol):
    """The callbacks of a queue: they route messages that leave it and follow up on changes."""

    def changed(self, queue: Queue) -> None:
        """Called when messages have left the line: the next of a group may be due, there may be room, or the queue is empty."""

    def expired(self, queue: Queue, message: Message) -> None:
        """Called when a message has expired."""

    def exhausted(self, queue: Queue, message: Message) -> None:
        """Called when a message has no deliveries left."""


class Queue(QueueContents):
    """A named queue. All methods are deterministic and cost O(1), or O(log n) for messages out of order.

    Attributes:
        exits: called when messages leave the queue; routes those that expire or have no deliveries left.
    """

    __slots__ = ("__weakref__", "exits")

    def __init__(
        self,
        name: bytes,
        settings: Settings,
        endings: SettlementHistory,
        totals: Totals,
        pager: Pager,
        exits: Exits,
    ) -> None:
        super().__init__(name, settings, endings, totals, pager)
        self.exits = exits

    def pull(self, now_us: int, count: int, last_number: int) -> list[Delivered]:
        """Lease up to `count` due messages under the numbers after `last_number`, earliest due time first.

        Exhausted messages met on the way are dropped, at most `PASSES_MAX` of them; `dropped_total` shows whether
        that limit ended the pull.
        """
        deadline_us = now_us + self.settings.timeout_us
        if deadline_us <= now_us:
            return self._pull_instantly_expiring(now_us, count, last_number, deadline_us)
        return self.lease(now_us, count, last_number, deadline_us)

    def lease(
        self,
        now_us: int,
        count: int,
        last_number: int,
        deadline_us: int,
        charge: int = 1,
        *,
        in_turn: bool = False,
        whole_groups: bool = False,
        due: list[Message] | None = None,
    ) -> list[Delivered]:
        """Pull until `deadline_us`, which must be later than now, and charge each message `charge` deliveries.

        An exclusive queue yields messages only with `in_turn`. With `whole_groups`, each message comes with those of
        its group that are held behind it, as far as `count` allows. `due` are the messages if they have already been
        taken out of their lines.
        """
        if due is None:
            due = self._due(now_us, count, in_turn=in_turn, whole_groups=whole_groups)
        if not due:
            return []
        if self.pre_images is not None:
            self.pre_images.keep(due)
        name, number = self.name, last_number
        delivered: list[Delivered] = []
        for message in due:
            number += 1
            message.remaining -= charge
            message.delivered += 1
            message.ready_us = message.due_us
            message.due_us = deadline_us
            delivered.append((name, number, message.remaining, message))
        self.pulled_total += len(due)
        self.leases.add(deadline_us, last_number + 1, due)
        if self.body_bytes >= self.pager.sizes.gather_bytes:
            self._gather_leased(due, now_us)
        if self.rich is not None:
            self.rich.leased_bytes += sum(content_bytes(message.content) for message in due)
            if self.rich.index is not None:
                self.rich.index.delivered(due, last_number + 1)
        return delivered

    def lease_followers(
        self, now_us: int, count: int, last_number: int, deadline_us: int, leader: int
    ) -> list[Delivered]:
        """Lease the messages held behind the one under the delivery number `leader`, in order and uncharged."""
        message = self.live(leader, now_us)
        if self.rich is None or message is None or self.suspended or self.is_exclusive():
            return []
        taken: list[Message] = []
        self.passed_over += self._follow(self.rich, message, taken, now_us, count)
        if taken and self.pushes_waiting:
            self.exits.changed(self)
        return self.lease(now_us, count, last_number, deadline_us, 0, due=taken)

    def _follow(self, rich: RichLines, leader: Message, taken: list[Message], now_us: int, count: int) -> int:
        """Append messages held behind `leader` to `taken`, up to `count` in all; return how many undeliverable ones were met."""
        passed = 0
        while isinstance(leader, RichMessage) and len(taken) < count and passed < PASSES_MAX:
            message = rich.take_behind(leader)
            if message is None:
                break
            if message.remaining > 0 and not self.is_expired(message, now_us):
                rich.follows(message)
                taken.append(message)
            else:
                self._remove_undeliverable(message, now_us)
                passed += 1
        return passed

    def pull_settled(self, now_us: int, count: int, last_number: int) -> list[Delivered]:
        """Deliver up to `count` messages and settle each at once, so that the next of its group may follow."""
        delivered: list[Delivered] = []
        while len(delivered) < count and (due := self._due(now_us, 1)):
            if self.pre_images is not None:
                self.pre_images.keep(due)
            message = due[0]
            message.remaining -= 1
            message.delivered += 1
            delivered.append((self.name, last_number + len(delivered) + 1, message.remaining, message))
            self._on_removed(message, now_us)
        self.pulled_total += len(delivered)
        self.acked_total += len(delivered)
        return delivered

    def _pull_instantly_expiring(self, now_us: int, count: int, last_number: int, deadline_us: int) -> list[Delivered]:
        # With a timeout of 0 or less, a delivery is due again at once; the same pull may deliver it again.
        delivered: list[Delivered] = []
        while len(delivered) < min(count, REPEATS_MAX):
            taken = self._due(now_us, 1)
            if not taken:
                break
            if self.pre_images is not None:
                self.pre_images.keep(taken)
            message = taken[0]
            message.remaining -= 1
            message.delivered += 1
            message.ready_us = message.due_us
            message.due_us = deadline_us
            number = last_number + 1 + len(delivered)
            self.leases.add(deadline_us, number, taken)
            if self.rich is not None:
                self.rich.leased_bytes += content_bytes(message.content)
                if self.rich.index is not None:
                    self.rich.index.delivered(taken, number)
            delivered.append((self.name, number, message.remaining, message))
        self.pulled_total += len(delivered)
        return delivered

    def _due(self, now_us: int, count: int, *, in_turn: bool = False, whole_groups: bool = False) -> list[Message]:
        """Remove up to `count` deliverable messages from ready, delayed and expired leases; none if that is not allowed."""
        ready = self.ready
        taken: list[Message] = []
        if self.suspended:
            return taken
        if self.rich is not None:
            if self.is_exclusive() and not in_turn:
                return taken
            return self._rich_due(self.rich, now_us, count, whole_groups=whole_groups)
        drops = 0
        other = self._other_us()
        while len(taken) < count:
            if ready and (other is None or ready[0].due_us < other):
                message = ready.popleft()
                if not ready and self.backlog is not None:
                    self.refill()
                    ready = self.ready
            elif other is not None and other <= now_us:
                message = self._pop_other()
                other = self._other_us()
            else:
                break
            if message.remaining > 0:
                taken.append(message)
                continue
            self._drop(message, now_us)
            drops += 1
            if drops == PASSES_MAX:
                break
        self.passed_over += drops
        return taken

    def _rich_due(self, rich: RichLines, now_us: int, count: int, *, whole_groups: bool) -> list[Message]:
        """Remove up to `count` due messages of a queue with traits, in the order of all lines, without expired ones."""
        taken: list[Message] = []
        passed = self.end_leases(now_us, PASSES_MAX)
        if passed:
            self.exits.changed(self)
        while len(taken) < count and passed < PASSES_MAX:
            passed += rich.promote_next(now_us, PASSES_MAX - passed)
            if passed >= PASSES_MAX:
                break
            message = self._pop_first(rich, now_us)
            if message is None:
                break
            if message.remaining > 0 and not self.is_expired(message, now_us):
                taken.append(message)
                if whole_groups:
                    passed += self._follow(rich, message, taken, now_us, count)
            else:
                self._remove_undeliverable(message, now_us)
                passed += 1
        self.passed_over += passed
        if taken and self.pushes_waiting:
            self.exits.changed(self)
        return taken

    def _pop_other(self) -> Message:
        if self._is_delayed_first():
            return self._pop_delayed()
        message = self._pop_expired()
        if message.remaining > 0:
            self.redelivered_total += 1
        return message

    # --- giving up ------------------------------------------------------------------------------------------------

    def _remove_undeliverable(self, message: Message, now_us: int) -> None:
        """Expire or drop an undeliverable message that is in no line."""
        if self.is_expired(message, now_us):
            self._expire(message, now_us)
        else:
            self._drop(message, now_us)

    def _expire(self, message: Message, now_us: int) -> None:
        """Expire a message: remove it or forward it to `expire_to`."""
        self._on_removed(message, now_us)
        self.expired_total += 1
        self.exits.expired(self, message)

    def _drop(self, message: Message, now_us: int) -> None:
        """Drop a message without deliveries left, or dead-letter it."""
        self._on_removed(message, now_us)
        if self.settings.options is None or not self.settings.options.dead_letters:
            self.dropped_total += 1
            return
        self.dead_lettered_total += 1
        self.exits.exhausted(self, message)

    def _on_removed(self, message: Message, now_us: int) -> None:
        """Account for a message that is neither in line nor leased any more."""
        self._release_bodies((message,))
        self.add_to_sums(-content_count(message.content), -content_bytes(message.content))
        if self.rich is not None:
            self._note_change(self._pass_turn(self.rich, message, now_us))

    def _pass_turn(self, rich: RichLines, message: Message, now_us: int) -> bool:
        """Give the next message of the group its turn; return whether there is one."""
        return isinstance(message, RichMessage) and rich.on_removed(message, now_us, self.pre_images)

    def _note_change(self, has_gained: bool) -> None:
        if has_gained or self.pushes_waiting or not len(self):
            self.exits.changed(self)

    def withdraw(self, now_us: int, count: int, *, also_delayed: bool) -> list[Message]:
        """Remove up to `count` messages that are not in flight, in the order in which they would be delivered.

        These are the ready ones, those whose leases have expired, and, if wanted, behind them the delayed ones and an
        open accumulation window. Suspension and used-up deliveries make no difference.
        """
        taken: list[Message] = []
        while len(taken) < count:
            message = self._next_in_line(now_us)
            if message is None and also_delayed:
                message = self._any_delayed()
            if message is None:
                break
            taken.append(message)
            self._on_removed(message, now_us)
        return taken

    def clear_line(self) -> int:
        """Remove all due messages without traits, however many; return how many."""
        count = self.take_line()
        if count:
            self._note_change(has_gained=False)
        return count

    def remove(self, messages: Iterable[RichMessage], now_us: int) -> None:
        """Remove messages that are in line."""
        for message in messages:
            if self.rich is not None and self.rich.take(message):
                self._on_removed(message, now_us)

    def destination_of(self, message: Message, now_us: int) -> bytes | None:
        """Return where a leased message goes if it is given back now: None for in line, empty for nowhere, or a queue's name."""
        options = self.settings.options
        if message.remaining <= 0:
            return b"" if options is None else options.dead_letters
        if self.is_expired(message, now_us):
            return b"" if options is None else options.expire_to
        return None

    def discard(self, now_us: int) -> bool:
        """Discard the next message to make room; False if none waits."""
        discarded = self.withdraw(now_us, 1, also_delayed=True)
        self.discarded_total += len(discarded)
        return bool(discarded)

    def next_timer_us(self) -> int:
        """Return when the next timer of the queue is due, lease expiry aside."""
        due_us = NEVER if self.rich is None else self.rich.next_us()
        options = self.settings.options
        if options is not None and options.max_queue_age_us is not None and not len(self):
            due_us = min(due_us, self.created_us + options.max_queue_age_us)
        return due_us

    def is_too_old(self, now_us: int) -> bool:
        """Return whether the queue has reached its maximum age and is empty, so that it must be deleted."""
        options = self.settings.options
        age_us = None if options is None else options.max_queue_age_us
        return age_us is not None and not len(self) and self.created_us + age_us <= now_us

    def run_timers(self, now_us: int, limit: int | None) -> int:
        """Expire or promote up to `limit` messages (None: all) whose time has come; return how many."""
        rich = self.enriched()
        done = 0
        while limit is None or done < limit:
            message = rich.first_expired(now_us)
            if message is None:
                break
            rich.take(message)
            self._expire(message, now_us)
            done += 1
        return done + rich.promote(now_us, (NEVER if limit is None else limit) - done)

    # --- settling -------------------------------------------------------------------------------------------------

    def ack(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Settle leases and remove their messages. False for a number without a live lease."""
        leased = self.leases.messages
        results: list[bool] = []
        settled = bodies = body_bytes = 0
        rich, has_gained = self.rich, False
        for number in numbers:
            message = leased.get(number)
            if message is None or message.due_us <= now_us:
                results.append(False)
                continue
            del leased[number]
            settled += 1
            if rich is not None:
                self._unlease(message)
                has_gained |= self._pass_turn(rich, message, now_us)
            content = message.content
            if isinstance(content, bytes):
                bodies += 1
                body_bytes += len(content)
            else:
                bodies += content_count(content)
                body_bytes += content_bytes(content)
                self._release_bodies((message,))
            results.append(True)
        if not leased:
            self.leases.forget_order()
        self.acked_total += settled
        self.add_to_sums(-bodies, -body_bytes)
        if rich is not None:
            self._note_change(has_gained)
        return results

    def end_leases(self, now_us: int, limit: int | None) -> int:
        """Expire up to `limit` leases (None: all) whose deadline has passed; return how many.

        The messages are available from that deadline on; those without deliveries left are dropped.
        """
        leases = self.leases
        ended = 0
        while leases.messages and ended != limit:
            head_us = leases.head_us()
            if head_us is None or head_us > now_us:
                break
            message = self._pop_expired()
            ended += 1
            if self.pre_images is not None:
                self.pre_images.keep((message,))
            self._lease_ended(message, now_us, message.due_us + self._retry_delay_us(message))
        return ended

    def release(self, now_us: int, numbers: list[int]) -> None:
        """End leases before their deadline: messages return to their old place; those without deliveries left leave the queue."""
        self._keep_pre_images(numbers)
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Settlement.EXPIRED)
                self._lease_ended(message, now_us, message.ready_us)

    def _lease_ended(self, message: Message, now_us: int, due_us: int) -> None:
        self._unlease(message)
        if message.remaining > 0:
            self._return(message, now_us, due_us)
            self.redelivered_total += 1
        else:
            self._drop(message, now_us)

    def nack(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Give messages back to the end of the line; the delivery stays charged.

        Those without deliveries left leave the queue.
        """
        if self.rich is not None:
            return self.give_back(now_us, numbers, Place.TAIL)
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Settlement.NACKED)
                message.due_us = message.ready_us = now_us
                self.nacked_total += 1
                if message.remaining <= 0:
                    self._drop(message, now_us)
                else:
                    self.line_up(message)
            results.append(message is not None)
        return results

    def put_back(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Undo deliveries that never reached a client: the messages return to their old place, uncharged."""
        return self._put_back(now_us, numbers, 1)

    def put_back_uncharged(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Undo deliveries that were not charged."""
        return self._put_back(now_us, numbers, 0)

    def _put_back(self, now_us: int, numbers: list[int], refund: int) -> list[bool]:
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Settlement.PUT_BACK)
                self._unlease(message)
                message.delivered -= 1
                message.remaining += refund
                self._return(message, now_us, message.ready_us)
            results.append(message is not None)
        return results

    def extend_to(self, now_us: int, numbers: list[int], deadline_us: int) -> list[bool]:
        """Move the deadlines of live leases to `deadline_us`; False for a number without a live lease."""
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            live = self.live(number, now_us) is not None
            if live:
                self.leases.reschedule(number, deadline_us)
            results.append(live)
        return results

    def renew(self, now_us: int, first: int, count: int, deadline_us: int) -> None:
        """Move the deadlines of the live leases under `count` consecutive numbers to `deadline_us`."""
        self._keep_pre_images(range(first, first + count))
        self.leases.reschedule_live(now_us, first, count, deadline_us)

    def live(self, number: int, now_us: int) -> Message | None:
        """Return the message under a delivery number if its lease is live."""
        message = self.leases.messages.get(number)
        return message if message is not None and message.due_us > now_us else None

    def _keep_pre_images(self, numbers: Iterable[int]) -> None:
        if self.pre_images is not None:
            self.pre_images.keep_leased(self.leases.messages, numbers)

    # --- coming back ----------------------------------------------------------------------------------------------

    def give_back(self, now_us: int, numbers: list[int], place: Place, delay_us: int | None = None) -> list[bool]:
        """Give messages back to this place; those without deliveries left leave the queue.

        Args:
            place: place of the messages that become due at once.
            delay_us: delay until they are due; None for the queue's retry delay, which does not apply to the head or
                to a kept place.
        """
        self._keep_pre_images(numbers)
        results: list[bool] = []
        returned: list[Message] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.leases.messages[number]
                self.endings.note(number, Settlement.NACKED)
                self._unlease(message)
                self.nacked_total += 1
                returned.append(message)
            results.append(message is not None)
        # Messages that return to the head together keep their order: the last of them is placed first.
        for message in reversed(returned) if place is Place.HEAD else returned:
            if message.remaining <= 0:
                self._drop(message, now_us)
            else:
                self._place(message, now_us, place, delay_us)
        return results

    def _place(self, message: Message, now_us: int, place: Place, delay_us: int | None) -> None:
        if delay_us is None:
            delay_us = self._retry_delay_us(message) if place is Place.TAIL else 0
        if delay_us:
            self._return(message, now_us, now_us + delay_us)
        elif place is Place.KEEP:
            self._return(message, now_us, message.ready_us)
        elif place is Place.HEAD:
            self._return(message, now_us, min(message.ready_us, self._front_us(message, now_us) - 1))
        elif isinstance(message, RichMessage) or self.is_expired(message, now_us):
            self._return(message, now_us, now_us)
        else:
            message.due_us = message.ready_us = now_us
            self.line_up(message)

    def _front_us(self, message: Message, now_us: int) -> int:
        """Return the earliest due time among messages in line that have the message's priority."""
        priority = message.traits.priority if isinstance(message, RichMessage) else 0
        fronts = [now_us]
        if self.rich is not None and (front_us := self.rich.front_us(priority)) is not None:
            fronts.append(front_us)
        if priority == 0 and self.ready:
            fronts.append(self.ready[0].due_us)
        if priority == 0 and self.delayed:
            fronts.append(self.delayed[0][0])
        return min(fronts)

    def _return(self, message: Message, now_us: int, due_us: int) -> None:
        """Put a message whose lease has ended back in line."""
        if self.rich is not None and self.is_expired(message, now_us):
            self._expire(message, now_us)
            return
        if isinstance(message, RichMessage):
            if self.enriched().come_back(message, due_us, now_us, self.pre_images):
                self._note_change(has_gained=True)
        else:
            message.due_us = message.ready_us = due_us
            heappush(self.delayed, (due_us, message.sequence, message))

    def _retry_delay_us(self, message: Message) -> int:
        options = self.settings.options
        return 0 if options is None else options.retry_delay_after(message.delivered)

    def _unlease(self, message: Message) -> None:
        if self.rich is not None:
            self.rich.leased_bytes -= content_bytes(message.content)
