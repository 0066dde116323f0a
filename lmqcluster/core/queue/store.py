"""The contents of one queue in order: ready, delayed and leased messages, and the accumulation window.

Messages are delivered in order of their due time. Three structures hold them. ``ready`` is a deque, because fresh and
nacked messages are due when they enter; if it is long, it continues in ``paged_tail``. ``delayed`` is a heap for
messages that become due later or return to an old place. ``leases`` holds delivered messages, which return at their
deadline. Messages with traits, and the order that these require, are in ``rich``, which most queues do not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from ..log.results import PushFlag
from ..messages.bodies import Body, QueueBodies, key_of
from ..messages.message import (
    COMPOUND_BYTES_MAX,
    PLAIN_META,
    PLAIN_TRAITS,
    Message,
    Meta,
    Part,
    RichMessage,
    Traits,
    content_count,
    loaded,
    message_bytes,
    moved_traits,
    part_bytes,
    with_content,
)
from ..messages.totals import Totals
from .expiry import NEVER
from .lease_table import LeaseTable
from .paged_tail import Chunk, PagedTail
from .pager import Pager
from .properties import Settings
from .rich_messages import RichLines
from .settlement_history import Settlement, SettlementHistory

__all__ = ["InLine", "MessageStore"]


class InLine(NamedTuple):
    """The messages of a queue that are not in flight, at one moment.

    Attributes:
        messages: some of them.
        entries: blocks of tuples whose last element is a message.
        chunks: the chunks of the backlog, which hold the rest.
    """

    messages: list[Message]
    entries: list[list[Any]]
    chunks: list[Chunk]


class MessageStore:
    """The messages of a queue, and their sums.

    Attributes:
        name: name of the queue.
        settings: effective properties of the queue.
        totals: totals over all queues, to which this one contributes.
        pager: the paging state of long lines and bodies.
        endings: how deliveries ended.
        ready: due messages without traits; empty only if there is no backlog.
        backlog: due messages behind them; None if there are none.
        delayed: messages that become due later or return to an old place, as a heap.
        leases: messages in flight.
        window: the compound message that accumulates bodies; None if there is none.
        bodies, body_bytes: number of pushed bodies in the queue, and their bytes with those of their attributes.
        gathered: bodies that may be paged out before their messages; None in most queues.
        rich: messages with traits; set once the queue has had any, or is special.
    """

    __slots__ = (
        "_window_bytes",
        "backlog",
        "bodies",
        "body_bytes",
        "delayed",
        "endings",
        "gathered",
        "leases",
        "name",
        "pager",
        "ready",
        "rich",
        "settings",
        "totals",
        "window",
    )

    def __init__(
        self, name: bytes, settings: Settings, endings: SettlementHistory, totals: Totals, pager: Pager
    ) -> None:
        self.name = name
        self.settings = settings
        self.totals = totals
        self.pager = pager
        self.endings = endings
        self.ready: deque[Message] = deque()
        self.backlog: PagedTail | None = None
        self.gathered: QueueBodies | None = None
        self.delayed: list[tuple[int, int, Message]] = []
        self.leases = LeaseTable()
        self.rich: RichLines | None = None
        self.window: Message | None = None
        self._window_bytes = 0
        self.bodies = 0
        self.body_bytes = 0

    def __len__(self) -> int:
        return self.waiting() + len(self.leases.messages)

    def waiting(self) -> int:
        """Return how many messages are not in flight, delayed ones included."""
        return self._ready_count() + len(self.delayed) + (0 if self.rich is None else len(self.rich))

    def _ready_count(self) -> int:
        return len(self.ready) if self.backlog is None else len(self.ready) + len(self.backlog)

    def due_count(self, now_us: int) -> int:
        """Return how many messages can be pulled now, without those whose leases have expired."""
        # Without traits, only a window that is still open is due later.
        window = self.window
        count = self._ready_count() + len(self.delayed) - (window is not None and window.due_us > now_us)
        return count if self.rich is None else count + self.rich.due_count(now_us)

    def held_count(self) -> int:
        """Return how many messages wait behind another one of their group."""
        return 0 if self.rich is None else len(self.rich.held)

    def in_line(self) -> InLine:
        """Return references to all messages that are not in flight, as they are now, in no order."""
        rich = [] if self.rich is None else [block for _, line in self.rich.lines() for block in line.frozen()]
        if self.backlog is None:
            return InLine(list(self.ready), [list(self.delayed), *rich], [])
        messages = [*self.ready, *self.backlog.tail]
        return InLine(messages, [list(self.delayed), *rich], list(self.backlog.chunks))

    def waiting_bytes(self) -> int:
        """Return the bytes of the bodies that are not in flight; creates `rich` if needed."""
        return self.body_bytes - self.enriched().leased_bytes

    def enriched(self) -> RichLines:
        """Return the lines of messages with traits; create them if needed."""
        if self.rich is None:
            self.rich = RichLines(self.totals, self.leases.messages.values())
            self.rich.configure(self.settings.options, self.leases.messages.values())
        return self.rich

    def earliest_us(self) -> int | None:
        """Return the earliest due time of all messages, leased ones included, or None if the queue is empty."""
        if self.rich is None:
            return self._plain_us()
        times = (self._plain_us(), self.rich.earliest_us())
        return min((time_us for time_us in times if time_us is not None), default=None)

    def _plain_us(self) -> int | None:
        other = self.other_us()
        if self.ready and (other is None or self.ready[0].due_us < other):
            return self.ready[0].due_us
        return other

    def other_us(self) -> int | None:
        """Return the earliest due time among delayed and leased messages."""
        lease_us = self.leases.head_us() if self.leases.messages else None
        if not self.delayed:
            return lease_us
        delayed_us = self.delayed[0][0]
        return delayed_us if lease_us is None or delayed_us <= lease_us else lease_us

    def aged_us(self) -> int:
        """Return when the first ready message reaches the maximum age.

        The line is in the order of its due times, and a message that was never delivered was due when it was pushed. So
        those behind it reach that age later, and no message in pages has to be looked at.
        """
        options = self.settings.options
        if not self.ready or options is None or options.max_age_us is None:
            return NEVER
        return self.ready[0].due_us + options.max_age_us

    # --- coming in ------------------------------------------------------------------------------------------------

    def push(self, now_us: int, sequence: int, meta: Meta, contents: list[bytes]) -> list[int]:
        """Store bodies that share one meta, numbered from `sequence`; return a flag for each.

        If a window has no room for another body, it is closed and the next one is opened.
        """
        totals, count, content_bytes = self.totals, len(contents), sum(map(len, contents))
        size = content_bytes + count * len(meta[1])
        self.bodies += count
        self.body_bytes += size
        totals.messages += count
        totals.body_bytes += size
        if self.settings.accum_us:
            return [self._accumulate(now_us, sequence + i, Part(*meta, content)) for i, content in enumerate(contents)]
        deliveries = self.settings.deliveries
        messages = [
            Message(number, now_us, deliveries, meta, content) for number, content in enumerate(contents, sequence)
        ]
        if self.backlog is None:
            self.ready.extend(messages)
            if len(self.ready) >= self.pager.sizes.head_messages_min:
                self._begin_backlog_if_long()
        else:
            self.backlog.extend(messages, meta, content_bytes)
        return [0] * count

    def line_up(self, message: Message) -> None:
        """Put a message without traits behind all due ones."""
        if self.backlog is None:
            self.ready.append(message)
            self._begin_backlog_if_long()
        else:
            self.backlog.append(self._whole(message))

    def _begin_backlog_if_long(self) -> None:
        count, sizes = len(self.ready), self.pager.sizes
        if count >= sizes.head_messages or (self.body_bytes >= sizes.head_bytes and count >= sizes.head_messages_min):
            self.split_line()
        elif count >= sizes.crowd_head and self.pager.is_crowded():
            self.split_line()
            self._shorten_head(sizes.crowd_head)

    def split_line(self) -> None:
        """Start a backlog for new messages unless there is one or the queue has no ready messages."""
        if self.backlog is None and self.ready:
            self.backlog = PagedTail(self.pager)

    def _shorten_head(self, count: int) -> None:
        """Move all but the first `count` ready messages to the new backlog."""
        if self.backlog is not None:
            for message in islice(self.ready, count, None):
                self.backlog.append(self._whole(message))
            self.ready = deque(islice(self.ready, count))

    def pop_ready(self) -> Message:
        """Remove the first message of `ready`, which is not empty."""
        message = self.ready.popleft()
        if not self.ready and self.backlog is not None:
            self.refill()
        return message

    def refill(self) -> None:
        """Read the next messages of the backlog into `ready`, which is empty.

        Raises:
            PageError: their page is unavailable.
        """
        assert self.backlog is not None  # noqa: S101 - for the type checker
        if len(self.backlog):
            self.ready = self.backlog.next_line()
        if not len(self.backlog):
            self.backlog = None

    def take_line(self) -> int:
        """Remove all due messages without traits; return how many. The cost is one step per chunk and per message of the head."""
        count = self._ready_count()
        self.release_bodies(self.ready)
        bodies = sum(content_count(message.content) for message in self.ready)
        body_bytes = sum(map(message_bytes, self.ready))
        if self.backlog is not None:
            more, more_bytes = self.backlog.sums()
            bodies, body_bytes = bodies + more, body_bytes + more_bytes
            self.backlog.clear()
            self.backlog = None
        self.ready = deque()
        self.add_to_sums(-bodies, -body_bytes)
        return count

    def _accumulate(self, now_us: int, sequence: int, part: Part) -> int:
        window = self.window
        size = part_bytes(part)
        if (
            window is not None
            and window.due_us > now_us
            and isinstance(window.content, list)
            and self._window_bytes + size <= COMPOUND_BYTES_MAX
        ):
            window.content.append(part)
            self._window_bytes += size
            return PushFlag.WINDOW_JOINED
        due_us = now_us + self.settings.accum_us
        opened = Message(sequence, due_us, self.settings.deliveries, PLAIN_META, [part])
        opened.pushed_us = now_us
        heappush(self.delayed, (due_us, sequence, opened))
        self.reopen_window(opened)
        return PushFlag.WINDOW_OPENED

    def reopen_window(self, message: Message) -> None:
        """Make a compound message that is not due yet the accumulation window."""
        self.window = message
        self._window_bytes = sum(map(part_bytes, message.content)) if isinstance(message.content, list) else 0

    def push_rich(self, now_us: int, sequence: int, meta: Meta, content: bytes, traits: Traits, due_us: int) -> None:
        """Store a message with traits, or a delayed one, bypassing the accumulation window."""
        message = RichMessage(sequence, max(now_us, due_us), self.settings.deliveries, meta, content, traits)
        message.pushed_us = now_us
        self.add_to_sums(1, message_bytes(message))
        self._gather_new((message,), now_us)
        self.enriched().arrive(message, now_us)

    def push_all(self, now_us: int, messages: list[RichMessage]) -> None:
        """Store new messages with traits, or delayed ones, bypassing the accumulation window."""
        body_bytes = 0
        for message in messages:
            message.pushed_us = now_us
            body_bytes += message_bytes(message)
        self.add_to_sums(len(messages), body_bytes)
        self._gather_new(messages, now_us)
        self.enriched().enter_new(messages, now_us)

    def push_alike(self, now_us: int, first: int, contents: Sequence[bytes], traits: Traits, due_us: int) -> None:
        """Store bodies with the same traits that become due together."""
        deliveries = self.settings.deliveries
        messages = [
            RichMessage(sequence, due_us, deliveries, PLAIN_META, content, traits)
            for sequence, content in enumerate(contents, first)
        ]
        if traits is not PLAIN_TRAITS:
            self.push_all(now_us, messages)
            return
        if due_us > now_us:
            for message in messages:
                message.pushed_us = now_us
        self.add_to_sums(len(messages), sum(map(len, contents)))
        self._gather_new(messages, now_us)
        self.enriched().enter_plain(messages, due_us, now_us)

    def take_over(self, now_us: int, sequence: int, message: Message, traits: Traits) -> None:
        """Store a message of another queue as if pushed now, with these traits; a compound message stays compound."""
        content = loaded(message.content)
        taken = RichMessage(sequence, now_us, self.settings.deliveries, message.meta, content, traits)
        self.add_to_sums(content_count(content), message_bytes(taken))
        self._gather_new((taken,), now_us)
        self.enriched().arrive(taken, now_us)

    def append(self, now_us: int, sequence: int, messages: list[Message]) -> None:
        """Append messages of another queue as if stored now, numbered from `sequence`.

        Each keeps its form: it is not accumulated, and a compound message is not split. It keeps priority, label and
        group.
        """
        deliveries = self.settings.deliveries
        for number, message in enumerate(messages, sequence):
            traits = moved_traits(message)
            if traits != PLAIN_TRAITS:
                self.take_over(now_us, number, message, traits)
                continue
            appended = Message(number, now_us, deliveries, message.meta, loaded(message.content))
            self.add_to_sums(content_count(appended.content), message_bytes(appended))
            self.line_up(appended)

    # --- going out ------------------------------------------------------------------------------------------------

    def pop_first(self, rich: RichLines, now_us: int) -> Message | None:
        """Remove the message that is next of all that are due and in line."""
        first, plain = rich.head(), self._plain_head()
        if plain is None or plain.due_us > now_us or (first is not None and first.place() < _plain_place(plain)):
            if first is not None:
                rich.take(first)
            return first
        return self.pop_delayed() if self.delayed and self.delayed[0][2] is plain else self.pop_ready()

    def pop_plain(
        self, rich: RichLines, now_us: int, count: int, is_deliverable: Callable[[Message, int], bool]
    ) -> list[Message]:
        """Remove up to `count` messages of `ready`, up to an undeliverable one; none if messages of other lines are due.

        Messages with traits must have been promoted, see `RichLines.wake`.
        """
        taken: list[Message] = []
        if rich.can_deliver(now_us) or (self.delayed and self.delayed[0][0] <= now_us):
            return taken
        while len(taken) < count and self.ready:
            message = self.ready[0]
            if message.due_us > now_us or not is_deliverable(message, now_us):
                break
            taken.append(self.pop_ready())
        return taken

    def pop_next(self, rich: RichLines, now_us: int) -> Message | None:
        """Remove the message to be delivered next: like `pop_first`, but groups that are fair take turns with the others."""
        fair = rich.fair
        group = None if fair is None else fair.next(now_us)
        if fair is None or group is None or (self._is_any_due(rich, now_us) and fair.ungrouped.key() < group.key()):
            return self.pop_first(rich, now_us)
        message = fair.head(group)
        rich.take(message)
        return message

    def _is_any_due(self, rich: RichLines, now_us: int) -> bool:
        """Return whether a message is due that is in no line of fair groups."""
        plain = self._plain_head()
        return rich.head() is not None or (plain is not None and plain.due_us <= now_us)

    def _plain_head(self) -> Message | None:
        """Return the next message in line without traits."""
        if self.delayed and (not self.ready or self.delayed[0][0] <= self.ready[0].due_us):
            return self.delayed[0][2]
        return self.ready[0] if self.ready else None

    def first_in_line(self, now_us: int) -> Message | None:
        """Return the next message that is due and in line, without removing it."""
        plain = self._plain_head()
        found = [] if plain is None or plain.due_us > now_us else [(_plain_place(plain), plain)]
        if self.rich is not None:
            waiting, scheduled = self.rich.head(), self.rich.scheduled.first()
            fair = None if self.rich.fair is None else self.rich.fair.any()
            rich = (waiting, scheduled, fair)
            found += [(one.place(), one) for one in rich if one is not None and one.due_us <= now_us]
        return min(found, key=itemgetter(0))[1] if found else None

    def is_delayed_first(self) -> bool:
        """Return whether the earliest of the delayed and leased messages is a delayed one."""
        lease_us = self.leases.head_us() if self.leases.messages else None
        return bool(self.delayed) and (lease_us is None or self.delayed[0][0] <= lease_us)

    def pop_delayed(self) -> Message:
        message = heappop(self.delayed)[2]
        if message is self.window:
            self.window = None
        return message

    def pop_aged(self, rich: RichLines, now_us: int) -> Message | None:
        """Remove the message in line that expired first; None if none has."""
        first, aged_us = rich.first_expired(now_us), self.aged_us()
        if first is None:
            return self.pop_ready() if aged_us <= now_us else None
        if (aged_us, self.ready[0].sequence if self.ready else 0) < (first.traits.expires_us, first.sequence):
            return self.pop_ready()
        rich.take(first)
        return first

    def pop_expired(self) -> Message:
        number, message = self.leases.pop_head()
        self.endings.note(number, Settlement.EXPIRED)
        return message

    def is_expired(self, message: Message, now_us: int) -> bool:
        """Return whether the message has expired, regardless of the deliveries it has left."""
        options = self.settings.options
        if options is not None and options.max_age_us is not None and message.pushed_us + options.max_age_us <= now_us:
            return True
        return isinstance(message, RichMessage) and 0 < message.traits.expires_us <= now_us

    def is_used_up(self, message: Message) -> bool:
        """Return whether the message was delivered as often as the queue's options allow, regardless of its retries."""
        options = self.settings.options
        return (
            options is not None and options.deliveries_max is not None and message.delivered >= options.deliveries_max
        )

    def next_in_line(self, now_us: int) -> Message | None:
        """Remove the next due message, one whose lease has expired included."""
        if self.rich is not None:
            self.rich.promote_next(now_us, 1)
            message = self.pop_first(self.rich, now_us)
            if message is None and self.rich.fair is not None and (message := self.rich.fair.any()) is not None:
                self.rich.take(message)
            return message
        ready, other = self.ready, self.other_us()
        if ready and (other is None or ready[0].due_us < other):
            return self.pop_ready()
        if other is None or other > now_us:
            return None
        return self.pop_delayed() if self.is_delayed_first() else self.pop_expired()

    def any_delayed(self) -> Message | None:
        """Remove a message that is delayed or held."""
        if self.delayed:
            return self.pop_delayed()
        message = None if self.rich is None else self.rich.first_of_all()
        if message is not None and self.rich is not None:
            self.rich.take(message)
        return message

    # --- bodies that may leave memory ----------------------------------------------------------------------------

    def bodies_gathered(self) -> QueueBodies:
        """Return the bodies that may be paged out before their messages; create them if needed."""
        if self.gathered is None:
            sizes = self.pager.sizes
            self.gathered = QueueBodies(self, self.pager, sizes.bytes, sizes.messages)
        return self.gathered

    def _gather_new(self, messages: Iterable[RichMessage], now_us: int) -> None:
        """Gather the bodies of new messages for paging out if they are large and memory use is high."""
        sizes = self.pager.sizes
        if self.body_bytes >= sizes.gather_bytes or self.totals.body_bytes >= sizes.gather_bytes_all:
            self._gather(messages, now_us)

    def gather_leased(self, messages: Iterable[Message], now_us: int) -> None:
        """Gather the bodies of newly leased messages if leased messages take much memory."""
        leased_bytes = self.body_bytes * len(self.leases.messages) // max(1, self.bodies)
        if leased_bytes >= self.pager.sizes.gather_bytes:
            self._gather(messages, now_us)

    def _gather(self, messages: Iterable[Message], now_us: int) -> None:
        body_min = self.pager.sizes.body
        for message in messages:
            content = message.content
            if type(content) is bytes and len(content) >= body_min:
                priority = message.traits.priority if isinstance(message, RichMessage) else 0
                key = key_of(priority, message.due_us, now_us)
                message.content = self.bodies_gathered().gather(content, message.sequence, key)

    def discount(self, messages: Sequence[Message]) -> None:
        """Subtract messages that leave the queue from the sums, and release their bodies."""
        self.release_bodies(messages)
        bodies = sum([content_count(message.content) for message in messages])
        self.add_to_sums(-bodies, -sum(map(message_bytes, messages)))

    def release_bodies(self, messages: Iterable[Message]) -> None:
        """Release the bodies of messages that leave the queue."""
        if self.gathered is not None:
            for message in messages:
                if isinstance(message.content, Body):
                    self.gathered.left(message.content)

    def _whole(self, message: Message) -> Message:
        """Return the message with its body in memory, as a backlog requires.

        Raises:
            PageError: the body is unavailable.
        """
        content = message.content
        if self.gathered is None or not isinstance(content, Body):
            return message
        # A snapshot view may hold the old message.
        whole = with_content(message, content.read())
        self.gathered.left(content)
        return whole

    # --- sums -----------------------------------------------------------------------------------------------------

    def count(self, messages: Iterable[Message]) -> None:
        """Add messages to the sums that did not come by a push."""
        for message in messages:
            self.add_to_sums(content_count(message.content), message_bytes(message))

    def add_to_sums(self, bodies: int, body_bytes: int) -> None:
        """Change the sums by this number of bodies and bytes."""
        totals = self.totals
        self.bodies += bodies
        self.body_bytes += body_bytes
        totals.messages += bodies
        totals.body_bytes += body_bytes

    def uncount(self) -> None:
        """Subtract the messages from the totals, because the queue is deleted."""
        if self.backlog is not None:
            self.backlog.clear()
        if self.gathered is not None:
            self.gathered.clear()
        self.totals.messages -= self.bodies
        self.totals.body_bytes -= self.body_bytes
        if self.rich is not None:
            self.totals.trait_bytes -= self.rich.trait_bytes


def _plain_place(message: Message) -> tuple[int, int, int]:
    """Return the sort key of a plain message among those of `RichMessage.place`."""
    return 0, message.due_us, message.sequence
