"""One queue: pulls, leases, settlement, expiry and dead-lettering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ..log.commands import Place
from ..log.results import Delivered, TagState, Updated
from ..messages.attributes import Reason, reasoned
from ..messages.message import (
    PLAIN_TRAITS,
    Message,
    Meta,
    RichMessage,
    Traits,
    content_count,
    message_bytes,
    with_traits,
)
from ..messages.pre_images import PreImages
from ..messages.totals import Totals, property_bytes
from .annotations import FIFO, KIND, NO_ANNOTATIONS, Annotations
from .counters import QueueCounters
from .delivery_limits import DeliveryLimits
from .expiry import NEVER
from .message_index import MessageIndex
from .pager import Pager
from .properties import Settings
from .rich_messages import RichLines
from .settlement_history import Settlement, SettlementHistory
from .store import MessageStore

__all__ = ["PASSES_MAX", "REPEATS_MAX", "Queue"]

PASSES_MAX = 10_000
"""Most undeliverable messages that one pull passes over; bounds the time of a command."""


REPEATS_MAX = 10_000
"""Most deliveries of one pull whose leases expire at once and that may return the same message repeatedly."""


class _Named(NamedTuple):
    """A message that was found by its id, and the number of its latest delivery or update."""

    message: Message
    number: int


class Exits(Protocol):
    """The callbacks of a queue: they route messages that leave it and follow up on changes."""

    def changed(self, queue: Queue) -> None:
        """Called when messages have left the line: the next of a group may be due, there may be room, or the queue is empty."""

    def expired(self, queue: Queue, message: Message) -> None:
        """Called when a message has expired."""

    def exhausted(self, queue: Queue, message: Message) -> None:
        """Called when a message has no deliveries left."""

    def lacks_target(self, queue: Queue) -> bool:
        """Return whether messages without deliveries left should go to a queue that does not exist or is of another kind."""


class Queue:
    """A named queue. All methods are deterministic and cost O(1), or O(log n) for messages out of order.

    Attributes:
        own: properties set on the queue itself.
        annotations: texts that clients keep with it.
        owner: the owner to whose quota the queue counts.
        settings: effective properties; kept up to date by the state, see `configure`.
        store: the messages.
        limits: the limits of deliveries.
        counters: the counters.
        exits: called when messages leave the queue; routes those that expire or have no deliveries left.
        idle_us: log time of the last pull if the queue is deleted when idle, else 0; see `IdleQueues`.
        created_us: log time of creation.
        changed_us: log time of the last command that set its properties or annotations.
        special: True if a push needs more than an append, because of options or bindings.
        revision: the state's revision when the queue was last touched, see `State.touched`.
        pre_images: copies of messages before they change, while a snapshot view needs them.
        suspended: True while deliveries are suspended; all other operations continue.
        watched_us: when leases are next checked for expiry; not later than the first deadline.
        timer_us: when the queue's timers are next checked; see `RichTimers`.
        pushes_waiting: number of pushes that wait for room.
        passed_over: number of undeliverable messages that pulls have met; only differences are meaningful.
    """

    __slots__ = (
        "__weakref__",
        "annotations",
        "changed_us",
        "counters",
        "created_us",
        "exits",
        "idle_us",
        "limits",
        "name",
        "own",
        "owner",
        "passed_over",
        "pre_images",
        "pushes_waiting",
        "revision",
        "settings",
        "special",
        "store",
        "suspended",
        "timer_us",
        "watched_us",
    )

    def __init__(
        self,
        name: bytes,
        settings: Settings,
        endings: SettlementHistory,
        totals: Totals,
        pager: Pager,
        exits: Exits,
    ) -> None:
        self.name = name
        self.own: dict[str, Any] = {}
        self.annotations: Annotations = NO_ANNOTATIONS
        self.owner = b""
        self.settings = settings
        self.store = MessageStore(name, settings, endings, totals, pager)
        self.limits = DeliveryLimits(self.store)
        self.counters = QueueCounters()
        self.exits = exits
        self.idle_us = 0
        self.created_us = 0
        self.changed_us = 0
        self.special = settings.options is not None
        self.revision = 0
        self.pre_images: PreImages | None = None
        self.suspended = False
        self.watched_us = NEVER
        self.timer_us = NEVER
        self.passed_over = 0
        self.pushes_waiting = 0

    def __len__(self) -> int:
        return len(self.store)

    def configure(self, settings: Settings) -> None:
        """Replace the effective properties."""
        self.limits.configure(settings.options)
        self.settings = self.store.settings = settings
        if self.store.rich is not None:
            self.store.rich.configure(settings.options, self.store.leases.messages.values())

    def set_own(self, own: dict[str, Any]) -> None:
        """Replace the queue's own properties; the caller updates the settings."""
        self.store.totals.property_bytes += property_bytes(own) - property_bytes(self.own)
        self.own = own

    def annotate(self, annotations: Annotations) -> None:
        """Replace the annotations."""
        self.store.totals.property_bytes += property_bytes(annotations) - property_bytes(self.annotations)
        self.annotations = annotations or NO_ANNOTATIONS

    def head_us(self) -> int | None:
        """Return when a pull can find the next message, including one whose lease expires; None if none can.

        None is returned for an empty or suspended queue, and for an exclusive one, from which only sessions pull.
        """
        return None if self.suspended or (self.special and self.is_exclusive()) else self.limits.next_us()

    def is_fifo(self) -> bool:
        """Return whether it is a FIFO queue of SQS."""
        return self.annotations.get(KIND) == FIFO

    def is_exclusive(self) -> bool:
        """Return whether only one session at a time may pull."""
        options = self.settings.options
        return options is not None and options.exclusive

    def finds_by_id(self) -> bool:
        """Return whether messages must be addressable by id before their first delivery.

        SQS never does that, and bodies in an accumulation window have no ids.
        """
        rich = self.store.rich
        return (
            rich is not None and rich.index is not None and KIND not in self.annotations and not self.settings.accum_us
        )

    def gives_traits(self) -> bool:
        """Return whether messages get traits when they are pushed, not only when they are delivered.

        Those that may expire do not accumulate.
        """
        accum_us, options = self.settings.accum_us, self.settings.options
        return self.finds_by_id() or (accum_us > 0 and options is not None and options.max_age_us is not None)

    # --- coming in ------------------------------------------------------------------------------------------------

    def push(self, now_us: int, sequence: int, meta: Meta, contents: list[bytes]) -> list[int]:
        """Store bodies that share one meta, numbered from `sequence`; return a flag for each."""
        self.counters.pushed_total += len(contents)
        return self.store.push(now_us, sequence, meta, contents)

    def push_rich(self, now_us: int, sequence: int, meta: Meta, content: bytes, traits: Traits, due_us: int) -> None:
        """Store a message with traits, or a delayed one, bypassing the accumulation window."""
        self.counters.pushed_total += 1
        self.store.push_rich(now_us, sequence, meta, content, traits, due_us)

    def push_all(self, now_us: int, messages: list[RichMessage]) -> None:
        """Store new messages with traits, or delayed ones, bypassing the accumulation window."""
        self.counters.pushed_total += len(messages)
        self.store.push_all(now_us, messages)

    def push_alike(self, now_us: int, first: int, contents: Sequence[bytes], traits: Traits, due_us: int) -> None:
        """Store bodies with the same traits that become due together."""
        self.counters.pushed_total += len(contents)
        self.store.push_alike(now_us, first, contents, traits, due_us)

    def take_over(self, now_us: int, sequence: int, message: Message, traits: Traits) -> None:
        """Store a message of another queue as if pushed now, with these traits; a compound message stays compound."""
        self.counters.moved_in_total += 1
        self.store.take_over(now_us, sequence, message, traits)

    def append(self, now_us: int, sequence: int, messages: list[Message]) -> None:
        """Append messages of another queue as if stored now, numbered from `sequence`; each keeps its form."""
        self.counters.moved_in_total += len(messages)
        self.store.append(now_us, sequence, messages)

    # --- going out ------------------------------------------------------------------------------------------------

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

        An exclusive queue yields messages only with `in_turn`. With `whole_groups`, each message comes with those
        behind it in its group, as far as `count` allows. `due` are the messages if they have already been
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
        self.counters.pulled_total += len(due)
        self.store.leases.add(deadline_us, last_number + 1, due)
        if self.store.body_bytes >= self.store.pager.sizes.gather_bytes:
            self.store.gather_leased(due, now_us)
        if self.store.rich is not None:
            self.store.rich.leased_bytes += sum(map(message_bytes, due))
            self.store.rich.delivered(due, last_number + 1, now_us)
        return delivered

    def lease_followers(
        self, now_us: int, count: int, last_number: int, deadline_us: int, leader: int
    ) -> list[Delivered]:
        """Lease the messages behind the one under the delivery number `leader` in its group, in order and uncharged."""
        message = self.live(leader, now_us)
        if self.store.rich is None or message is None or self.suspended or self.is_exclusive():
            return []
        taken: list[Message] = []
        self.passed_over += self._follow(
            self.store.rich, message, taken, now_us, min(count, self.limits.allowed(now_us))
        )
        self.limits.charge(now_us, len(taken))
        if taken and self.pushes_waiting:
            self.exits.changed(self)
        return self.lease(now_us, count, last_number, deadline_us, 0, due=taken)

    def _follow(self, rich: RichLines, leader: Message, taken: list[Message], now_us: int, count: int) -> int:
        """Append messages behind `leader` in its group to `taken`, up to `count`; return how many undeliverable ones were met."""
        passed = 0
        while isinstance(leader, RichMessage) and len(taken) < count and passed < PASSES_MAX:
            message = rich.take_behind(leader)
            if message is None:
                break
            if self._is_deliverable(message, now_us):
                rich.begin_flights((message,), now_us)
                taken.append(message)
                leader = message
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
            if self.store.rich is not None:
                self.store.rich.end_flight(message)
            self._on_removed(message, now_us)
        self.counters.pulled_total += len(delivered)
        self.counters.acked_total += len(delivered)
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
            self.store.leases.add(deadline_us, number, taken)
            if self.store.rich is not None:
                self.store.rich.leased_bytes += message_bytes(message)
                self.store.rich.delivered(taken, number, now_us)
            delivered.append((self.name, number, message.remaining, message))
        self.counters.pulled_total += len(delivered)
        return delivered

    def _due(self, now_us: int, count: int, *, in_turn: bool = False, whole_groups: bool = False) -> list[Message]:
        """Remove up to `count` deliverable messages from ready, delayed and expired leases; none if that is not allowed."""
        ready = self.store.ready
        taken: list[Message] = []
        if self.suspended:
            return taken
        if self.store.rich is not None:
            if self.is_exclusive() and not in_turn:
                return taken
            return self._rich_due(self.store.rich, now_us, count, whole_groups=whole_groups)
        drops = 0
        other = self.store.other_us()
        while len(taken) < count:
            if ready and (other is None or ready[0].due_us < other):
                message = ready.popleft()
                if not ready and self.store.backlog is not None:
                    self.store.refill()
                    ready = self.store.ready
            elif other is not None and other <= now_us:
                message = self._pop_other()
                other = self.store.other_us()
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

    def _rich_due(
        self, rich: RichLines, now_us: int, count: int, *, whole_groups: bool = False, already: int = 0
    ) -> list[Message]:
        """Remove up to `count` due messages of a queue with traits, in the order of all lines, without expired ones.

        `already` is the number of messages that the same command has taken before.
        """
        taken: list[Message] = []
        passed = self.end_leases(now_us, PASSES_MAX)
        if passed:
            self.exits.changed(self)
        options = self.settings.options
        if options is not None:
            count = min(count, self.limits.allowed(now_us, already))
        while len(taken) < count and passed < PASSES_MAX:
            passed += rich.wake(now_us, PASSES_MAX - passed)
            if passed >= PASSES_MAX:
                break
            if run := self.store.pop_plain(rich, now_us, count - len(taken), self._is_deliverable):
                taken += self._begin_flights(rich, run, now_us)
                continue
            message = self.store.pop_next(rich, now_us)
            if message is None:
                break
            if self._is_deliverable(message, now_us):
                (message,) = self._begin_flights(rich, [message], now_us)
                taken.append(message)
                group_max = count if whole_groups else len(taken) + self._followers_max()
                if group_max > len(taken):
                    passed += self._follow(rich, message, taken, now_us, min(count, group_max))
            else:
                self._remove_undeliverable(message, now_us)
                passed += 1
        self.limits.charge(now_us, len(taken))
        self.passed_over += passed
        if taken and self.pushes_waiting:
            self.exits.changed(self)
        return taken

    def _begin_flights(self, rich: RichLines, messages: list[Message], now_us: int) -> list[Message]:
        """Return messages that are about to be delivered, with traits if the queue needs them once they have left their place.

        With an index, a client that has polled a message can address it at any place in line. With a maximum age, it
        expires in time at any place.
        """
        options = self.settings.options
        age_us = None if options is None else options.max_age_us
        if age_us is not None or rich.index is not None:
            plain = sum(not isinstance(message, RichMessage) for message in messages)
            if plain:
                messages = [_enriched(message, age_us) for message in messages]
                rich.on_enriched(plain)
        rich.begin_flights(messages, now_us)
        return messages

    def _followers_max(self) -> int:
        """Return how many messages of a group may follow the first one in a pull."""
        options = self.settings.options
        most = None if options is None or options.fair else options.group_limits.in_flight_max
        return 0 if most is None else most - 1

    def _pop_other(self) -> Message:
        if self.store.is_delayed_first():
            return self.store.pop_delayed()
        message = self.store.pop_expired()
        if message.remaining > 0:
            self.counters.redelivered_total += 1
        return message

    # --- giving up ------------------------------------------------------------------------------------------------

    def _is_deliverable(self, message: Message, now_us: int) -> bool:
        if message.remaining <= 0 or self.store.is_expired(message, now_us):
            return False
        return not self.store.is_used_up(message) or self.exits.lacks_target(self)

    def _remove_undeliverable(self, message: Message, now_us: int) -> None:
        """Expire or drop an undeliverable message that is in no line."""
        if self.store.is_expired(message, now_us):
            self._expire(message, now_us)
        else:
            self._drop(message, now_us)

    def _expire(self, message: Message, now_us: int) -> None:
        """Expire a message: remove it or forward it to `expire_to`."""
        self._on_removed(message, now_us)
        self.counters.expired_total += 1
        self.exits.expired(self, message)

    def _drop(self, message: Message, now_us: int) -> None:
        """Drop a message without deliveries left, or dead-letter it."""
        self._on_removed(message, now_us)
        if self.settings.options is None or not self.settings.options.dead_letters:
            self.counters.dropped_total += 1
            return
        self.counters.dead_lettered_total += 1
        self.exits.exhausted(self, message)

    def _on_removed(self, message: Message, now_us: int) -> None:
        """Account for a message that is neither in line nor leased any more."""
        self.store.discount((message,))
        if self.store.rich is not None:
            self._note_change(self._pass_turn(self.store.rich, message, now_us))

    def _pass_turn(self, rich: RichLines, message: Message, now_us: int) -> bool:
        """Make the next message of the group its head; return whether there is one."""
        return isinstance(message, RichMessage) and rich.on_removed(message, now_us, self.pre_images)

    def _note_change(self, has_gained: bool) -> None:
        if has_gained or self.pushes_waiting or not self.store.bodies:
            self.exits.changed(self)

    def withdraw(self, now_us: int, count: int, *, also_delayed: bool) -> list[Message]:
        """Remove up to `count` messages that are not in flight, in the order in which they would be delivered.

        These are the ready ones, those whose leases have expired, and, if wanted, behind them the delayed ones and an
        open accumulation window. Suspension and used-up deliveries make no difference.
        """
        taken: list[Message] = []
        while len(taken) < count:
            message = self.store.next_in_line(now_us)
            if message is None and also_delayed:
                message = self.store.any_delayed()
            if message is None:
                break
            taken.append(message)
            self._on_removed(message, now_us)
        return taken

    def remove_leased(self, now_us: int, limit: int) -> int:
        """Remove up to `limit` leased messages as if they were acknowledged, in the order of delivery; return how many."""
        leased, has_gained = self.store.leases.messages, False
        numbers = list(islice(leased, limit))
        for number in numbers:
            message = leased.pop(number)
            has_gained |= self._unlease(message)
            self._on_removed(message, now_us)
        if not leased:
            self.store.leases.forget_order()
        if numbers:
            self._note_change(has_gained)
        return len(numbers)

    def clear_line(self) -> int:
        """Remove all due messages without traits, however many; return how many."""
        count = self.store.take_line()
        if count:
            self._note_change(has_gained=False)
        return count

    def remove(self, messages: Iterable[RichMessage], now_us: int) -> None:
        """Remove messages that are in line."""
        for message in messages:
            if self.store.rich is not None and self.store.rich.take(message):
                self._on_removed(message, now_us)

    def destination_of(self, message: Message, now_us: int) -> bytes | None:
        """Return where a leased message goes if it is given back now: None for in line, empty for nowhere, or a queue's name."""
        options = self.settings.options
        if message.remaining <= 0:
            return b"" if options is None else options.dead_letters
        if self.store.is_expired(message, now_us):
            return b"" if options is None else options.expire_to
        return None

    def discard(self, now_us: int) -> bool:
        """Discard the next message to make room; False if none waits."""
        discarded = self.withdraw(now_us, 1, also_delayed=True)
        self.counters.discarded_total += len(discarded)
        return bool(discarded)

    def next_timer_us(self) -> int:
        """Return when the next timer of the queue is due, lease expiry aside."""
        due_us = self.store.aged_us()
        if self.store.rich is not None:
            due_us = min(due_us, self.store.rich.next_us())
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
        """Expire or promote up to `limit` messages (None: all) whose time has come, and wake groups; return how many."""
        rich = self.store.enriched()
        done = 0
        while limit is None or done < limit:
            message = self.store.pop_aged(rich, now_us)
            if message is None:
                break
            self._expire(message, now_us)
            done += 1
        done += rich.promote(now_us, (NEVER if limit is None else limit) - done)
        return done if rich.fair is None else done + rich.fair.wake(now_us, (NEVER if limit is None else limit) - done)

    # --- settling -------------------------------------------------------------------------------------------------

    def ack(self, now_us: int, numbers: list[int]) -> list[bool]:
        """Settle leases and remove their messages. False for a number without a live lease."""
        leased = self.store.leases.messages
        results: list[bool] = []
        settled = bodies = body_bytes = 0
        rich, has_gained = self.store.rich, False
        for number in numbers:
            message = leased.get(number)
            if message is None or message.due_us <= now_us:
                results.append(False)
                continue
            del leased[number]
            settled += 1
            if rich is not None:
                has_gained |= self._unlease(message)
                has_gained |= self._pass_turn(rich, message, now_us)
            content, attributes = message.content, message.meta[1]
            if type(content) is bytes:
                bodies += 1
                body_bytes += (len(content) + len(attributes)) if attributes else len(content)
            else:
                bodies += content_count(content)
                body_bytes += message_bytes(message)
                self.store.release_bodies((message,))
            results.append(True)
        if not leased:
            self.store.leases.forget_order()
        self.counters.acked_total += settled
        self.store.add_to_sums(-bodies, -body_bytes)
        if rich is not None:
            self._note_change(has_gained)
        return results

    def end_leases(self, now_us: int, limit: int | None) -> int:
        """Expire up to `limit` leases (None: all) whose deadline has passed; return how many.

        The messages are available from that deadline on; those without deliveries left are dropped.
        """
        leases = self.store.leases
        ended = 0
        while leases.messages and ended != limit:
            head_us = leases.head_us()
            if head_us is None or head_us > now_us:
                break
            message = self.store.pop_expired()
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
                del self.store.leases.messages[number]
                self.store.endings.note(number, Settlement.EXPIRED)
                self._lease_ended(message, now_us, message.ready_us)

    def _lease_ended(self, message: Message, now_us: int, due_us: int) -> None:
        if self._unlease(message):
            self.exits.changed(self)
        if message.remaining > 0:
            self._return(message, now_us, due_us)
            self.counters.redelivered_total += 1
        else:
            self._drop(message, now_us)

    def nack(
        self,
        now_us: int,
        numbers: list[int],
        place: Place = Place.TAIL,
        delay_us: int | None = None,
        reason: Reason | None = None,
    ) -> list[bool]:
        """Return messages to this place; the delivery stays charged. Those without deliveries left leave the queue.

        Args:
            place: place of the messages that become due at once.
            delay_us: delay until they are due; None for the queue's retry delay, which does not apply to the head or
                to a kept place.
            reason: becomes an attribute of the messages.
        """
        if self.store.rich is not None or place is not Place.TAIL or delay_us is not None or reason is not None:
            return self._nack_to(now_us, numbers, place, delay_us, reason)
        self._keep_pre_images(numbers)
        results: list[bool] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.store.leases.messages[number]
                self.store.endings.note(number, Settlement.NACKED)
                message.due_us = message.ready_us = now_us
                self.counters.nacked_total += 1
                if message.remaining <= 0:
                    self._drop(message, now_us)
                else:
                    self.store.line_up(message)
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
        index = None if self.store.rich is None else self.store.rich.index
        results: list[bool] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None and index is not None and not index.may_undo(message):
                message = None
            if message is not None:
                del self.store.leases.messages[number]
                self.store.endings.note(number, Settlement.PUT_BACK)
                self._unlease(message)
                message.delivered -= 1
                message.remaining += refund
                if isinstance(message, RichMessage) and not message.delivered:
                    message.first_us = 0
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
                self.store.leases.reschedule(number, deadline_us)
            results.append(live)
        return results

    def renew(self, now_us: int, first: int, count: int, deadline_us: int) -> None:
        """Move the deadlines of the live leases under `count` consecutive numbers to `deadline_us`."""
        self._keep_pre_images(range(first, first + count))
        self.store.leases.reschedule_live(now_us, first, count, deadline_us)

    def live(self, number: int, now_us: int) -> Message | None:
        """Return the message under a delivery number if its lease is live."""
        message = self.store.leases.messages.get(number)
        return message if message is not None and message.due_us > now_us else None

    def _keep_pre_images(self, numbers: Iterable[int]) -> None:
        if self.pre_images is not None:
            self.pre_images.keep_leased(self.store.leases.messages, numbers)

    # --- coming back ----------------------------------------------------------------------------------------------

    def _nack_to(
        self, now_us: int, numbers: list[int], place: Place, delay_us: int | None, reason: Reason | None
    ) -> list[bool]:
        """Implement `nack` for any place, delay, reason and message."""
        self._keep_pre_images(numbers)
        results: list[bool] = []
        returned: list[Message] = []
        for number in numbers:
            message = self.live(number, now_us)
            if message is not None:
                del self.store.leases.messages[number]
                self.store.endings.note(number, Settlement.NACKED)
                self._unlease(message)
                self.counters.nacked_total += 1
                returned.append(message)
            results.append(message is not None)
        # Messages that return to the head together keep their order: the last of them is placed first.
        for message in reversed(returned) if place is Place.HEAD else returned:
            if reason is not None:
                self._explain(message, reason)
            if message.remaining <= 0:
                self._drop(message, now_us)
            else:
                self._place(message, now_us, place, delay_us)
        return results

    def _explain(self, message: Message, reason: Reason) -> None:
        content_type, before = message.meta
        message.meta = (content_type, reasoned(message, reason))
        self.store.add_to_sums(0, len(message.meta[1]) - len(before))

    def _place(self, message: Message, now_us: int, place: Place, delay_us: int | None) -> None:
        if delay_us is None:
            delay_us = self._retry_delay_us(message) if place is Place.TAIL else 0
        if delay_us:
            self._return(message, now_us, now_us + delay_us)
        elif place is Place.KEEP:
            self._return(message, now_us, message.ready_us)
        elif place is Place.HEAD:
            self._return(message, now_us, min(message.ready_us, self._front_us(message, now_us) - 1))
        elif isinstance(message, RichMessage) or self.store.is_expired(message, now_us):
            self._return(message, now_us, now_us)
        else:
            message.due_us = message.ready_us = now_us
            self.store.line_up(message)

    def _front_us(self, message: Message, now_us: int) -> int:
        """Return the earliest due time among messages in line that have the message's priority."""
        priority = message.traits.priority if isinstance(message, RichMessage) else 0
        fronts = [now_us]
        if self.store.rich is not None and (front_us := self.store.rich.front_us(priority)) is not None:
            fronts.append(front_us)
        if priority == 0 and self.store.ready:
            fronts.append(self.store.ready[0].due_us)
        if priority == 0 and self.store.delayed:
            fronts.append(self.store.delayed[0][0])
        return min(fronts)

    def _return(self, message: Message, now_us: int, due_us: int) -> None:
        """Put a message whose lease has ended back in line."""
        if self.store.rich is not None and self.store.is_expired(message, now_us):
            self._expire(message, now_us)
            return
        if isinstance(message, RichMessage):
            if self.store.enriched().come_back(message, due_us, now_us, self.pre_images):
                self._note_change(has_gained=True)
        else:
            message.due_us = message.ready_us = due_us
            heappush(self.store.delayed, (due_us, message.sequence, message))

    def _retry_delay_us(self, message: Message) -> int:
        options = self.settings.options
        return 0 if options is None else options.retry_delay_after(message.delivered)

    def _unlease(self, message: Message) -> bool:
        """Count a message that is leased no more; return whether that allows another delivery."""
        rich, options = self.store.rich, self.settings.options
        if rich is None:
            return False
        rich.leased_bytes -= message_bytes(message)
        return rich.end_flight(message) or (options is not None and options.in_flight_max is not None)

    # --- by id and tag: poll, hide again, delete, also after the lease has expired ----------------------------------

    def index(self) -> MessageIndex:
        """Return the queue's index.

        Raises:
            ValueError: the queue has no index.
        """
        index = self.store.enriched().index
        if index is None:
            raise ValueError("the queue has no index")
        return index

    def poll(
        self, now_us: int, count: int, last_number: int, hide_us: int, *, takes_hidden: bool = False
    ) -> list[Delivered]:
        """Deliver up to `count` messages and hide them for `hide_us`; with 0 or less they are visible again at once.

        Args:
            now_us: log time.
            count: most messages.
            last_number: number of the last delivery before this one.
            hide_us: how long the messages stay hidden.
            takes_hidden: also take messages that are delayed or leased, in the order in which they would become due.
        """
        messages = self._earliest(now_us, count) if takes_hidden else self._due(now_us, count)
        if not messages:
            return []
        if hide_us > 0:
            return self.lease(now_us, count, last_number, now_us + hide_us, due=messages)
        if self.pre_images is not None:
            self.pre_images.keep(messages)
        self.store.enriched().delivered(messages, last_number + 1, now_us)
        self.counters.pulled_total += len(messages)
        delivered: list[Delivered] = []
        for number, message in enumerate(messages, last_number + 1):
            message.remaining -= 1
            message.delivered += 1
            delivered.append((self.name, number, message.remaining, message))
            self.store.endings.note(number, Settlement.EXPIRED)
            self.store.enriched().end_flight(message)
            self._return(message, now_us, now_us + hide_us)
        return delivered

    def _earliest(self, now_us: int, count: int) -> list[Message]:
        """Return the messages of `_due`; if too few are due, add the next ones, even if they are delayed or leased."""
        taken: list[Message] = []
        rich, passed = self.store.enriched(), 0
        while len(taken) < count and passed < PASSES_MAX and not self.suspended:
            due = self._rich_due(rich, now_us, count - len(taken), already=len(taken))
            if due:
                taken += due
                continue
            passed += 1
            hidden = self._first_hidden(rich, now_us, len(taken))
            if hidden is None:
                break
            if self._is_deliverable(hidden, now_us):
                self.limits.charge(now_us, 1)
                taken += self._begin_flights(rich, [hidden], now_us)
                passed -= 1
            else:
                self._remove_undeliverable(hidden, now_us)
        self.passed_over += passed
        self._note_room()
        return taken

    def _note_room(self) -> None:
        """Report room if pushes wait: messages in line may have been taken."""
        if self.pushes_waiting:
            self.exits.changed(self)

    def _first_hidden(self, rich: RichLines, now_us: int, already: int) -> Message | None:
        """Remove the message that would become due next; None if there is none, if its group is busy, or at a limit.

        `already` is the number of messages that have been taken before it.
        """
        lease_us = self.store.leases.head_us() if self.store.leases.messages else None
        scheduled = rich.scheduled.first()
        is_leased = lease_us is not None and (scheduled is None or lease_us <= scheduled.due_us)
        # One that is leased is in flight already.
        if self.limits.allowed(now_us, already - is_leased) <= 0:
            return None
        if not is_leased:
            return rich.take_scheduled()
        message = self.store.pop_expired()
        self._unlease(message)
        if isinstance(message, RichMessage):
            rich.stop_holding(message)
        return message

    def _named(self, sequence: int, tag: int) -> _Named | None:
        """Return the message with this id, or None if it is gone or the tag is outdated."""
        index = self.index()
        number = index.number(sequence, tag)
        if number is None:
            return None
        leased = self.store.leases.messages.get(number) if number else None
        message = leased if leased is not None else index.in_line(sequence)
        return None if message is None else _Named(message, number)

    def _state_of(self, now_us: int, sequence: int, tag: int) -> tuple[TagState, _Named | None]:
        """Return the state of a tag, and the message if it is valid."""
        named = self._named(sequence, tag)
        if named is None:
            return TagState.OUTDATED if self.index().has_number(sequence) else TagState.GONE, None
        message, number = named
        is_ordered = isinstance(message, RichMessage) and self.store.enriched().is_ordered(message)
        if is_ordered and number and self.live(number, now_us) is not message:
            # Another message of its group may be under way.
            return TagState.EXPIRED, None
        return TagState.VALID, named

    def _take_named(self, named: _Named) -> bool:
        """Remove a message from its line or from its lease; return whether that allows another delivery."""
        message, number = named
        leased = self.store.leases.messages
        if leased.get(number) is message:
            del leased[number]
            return self._unlease(message)
        if isinstance(message, RichMessage):
            self.store.enriched().take(message)
        return False

    def hide(self, now_us: int, sequence: int, tag: int, hide_us: int, number: int | None) -> Updated:
        """Make a message with this tag due `hide_us` after now, under a new number, or with None under its own.

        A leased message stays with its consumer, or returns to it if the lease had expired, unless its group is
        ordered; one never delivered is delayed.
        """
        state, named = self._state_of(now_us, sequence, tag)
        if named is None:
            return Updated(state)
        message = named.message
        if self.pre_images is not None:
            self.pre_images.keep((message,))
        is_leased = named.number in self.store.leases.messages
        if number is None:
            number = named.number
        elif is_leased:
            self.store.endings.note(named.number, Settlement.EXPIRED)
        if number:
            self.index().delivered((message,), number)
        if is_leased and hide_us > 0:
            # It stays in flight.
            del self.store.leases.messages[named.number]
        elif self._take_named(named):
            self.exits.changed(self)
        if named.number and hide_us > 0:
            message.due_us = now_us + hide_us
            self.store.leases.add(message.due_us, number, [message])
            if not is_leased:
                self.store.enriched().begin_flights((message,), now_us)
                self.store.enriched().leased_bytes += message_bytes(message)
                self._note_room()
            return Updated(state, number)
        if number:
            self.store.endings.note(number, Settlement.NACKED)
        if message.remaining > 0:
            self._return(message, now_us, now_us + hide_us)
        else:
            self._drop(message, now_us)
        return Updated(state, number)

    def remove_named(self, now_us: int, pairs: Iterable[tuple[int, int]]) -> list[TagState]:
        """Remove messages by id and valid tag; return the state of each tag."""
        rich, has_gained = self.store.enriched(), False
        results: list[TagState] = []
        removed: list[Message] = []
        for sequence, tag in pairs:
            state, named = self._state_of(now_us, sequence, tag)
            results.append(state)
            if named is not None:
                has_gained |= self._take_named(named)
                has_gained |= self._pass_turn(rich, named.message, now_us)
                removed.append(named.message)
        if not self.store.leases.messages:
            self.store.leases.forget_order()
        self.counters.acked_total += len(removed)
        self.store.discount(removed)
        if removed:
            self._note_change(has_gained)
        return results


def _enriched(message: Message, age_us: int | None) -> RichMessage:
    """Return a message with traits: its own, or plain ones with the end of the queue's maximum age."""
    if isinstance(message, RichMessage):
        return message
    return with_traits(message, PLAIN_TRAITS if age_us is None else Traits(expires_us=message.pushed_us + age_us))
