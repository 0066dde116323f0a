"""Admission of pushes to queues that need more than an append: aliases, bound queues, limits, delays, traits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from ..log.items import Item
from ..log.results import PushFlag, Refusal, RefusedError, shown
from ..messages.attributes import with_headers
from ..messages.message import PLAIN_META, PLAIN_TRAITS, Message, Meta, RichMessage, Traits
from ..queue.options import QueueOptions
from ..queue.queue import PASSES_MAX, Queue
from ..state_view import StateView
from .bindings import Bindings

__all__ = ["PLAIN_PUSH", "TOO_MANY_COPIES", "Admission", "Push", "Room", "attributes_kept", "refuse"]

TARGETS_MAX = 1_000
"""Most names of destinations and bound queues that one push visits, and so most queues that it reaches."""
COPIES_MAX = 25_000
"""Most messages that one command stores if queues are bound or aliases; each visited name counts as a copy.

A copy takes about 4 us, and a leader that applies a command for longer than an election timeout loses the lead.
"""
COPY_BYTES_MAX = 256 * 1024 * 1024
"""Most bytes of all copies of one body."""
TOO_MANY_COPIES = Refusal(
    PushFlag.OVERSIZED,
    f"one request stores at most {COPIES_MAX:,} messages, copies in bound queues included, and {COPY_BYTES_MAX:,} bytes"
    " of copies of one body; push fewer at a time, or unbind queues",
)


class Push(NamedTuple):
    """The options of a push beyond body, content type and attributes.

    Attributes:
        delay_us: delay until it is due; negative for the queue's delay.
        due_us: log time at which it becomes due, 0 if not set.
        ttl_us: time until it expires, 0 for the queue's limit.
        priority, label, group: see `Traits`.
    """

    delay_us: int = -1
    due_us: int = 0
    ttl_us: int = 0
    priority: int = 0
    label: bytes = b""
    group: bytes = b""

    def has_traits(self) -> bool:
        """Return whether the message has traits in any queue."""
        return bool(self.ttl_us or self.priority or self.label or self.group)


PLAIN_PUSH = Push()


class Targets(NamedTuple):
    """The targets of a push.

    Attributes:
        deciding: queues all of which must accept it.
        keeping: those of them that store it.
        copies: queues that get a copy if they have room.
        reach: number of visited names; not less than the number of messages that a push becomes.
    """

    deciding: list[Queue]
    keeping: list[Queue]
    copies: list[Queue]
    reach: int


class Admission:
    """Stores pushes."""

    def __init__(self, state: StateView, bindings: Bindings) -> None:
        self._state = state
        self._bindings = bindings

    def targets(self, queue: Queue) -> Targets:
        """Return the targets of a push to the queue: aliases are followed recursively, and each queue's bindings once."""
        state, options = self._state, queue.settings.options
        if not self._bindings.has_targets(queue.name) and (
            options is None or not (options.destinations or options.fanout_only)
        ):
            return Targets([queue], [queue], [], 1)
        deciding: list[Queue] = []
        keeping: list[Queue] = []
        copies: list[Queue] = []
        pending, seen, reach = deque((queue,)), {queue.name}, 1
        while pending:
            one = pending.popleft()
            options = one.settings.options
            if options is not None and options.destinations:
                names = options.destinations[: TARGETS_MAX - reach]
                reach += len(names)
                new = [name for name in names if name not in seen]
                seen.update(new)
                pending.extend(state.queue(name) for name in new)
                continue
            deciding.append(one)
            if options is None or not options.fanout_only:
                keeping.append(one)
            names = tuple(self._bindings.targets(one.name)[: TARGETS_MAX - reach])
            reach += len(names)
            for name in names:
                bound = state.existing(name) if name not in seen else None
                if bound is not None:
                    seen.add(name)
                    copies.append(bound)
        return Targets(deciding, keeping, copies, reach)

    def store(self, queue: Queue, meta: Meta, contents: list[bytes], push: Push) -> list[int]:
        """Store bodies one by one; return a flag for each, see `PushFlag`."""
        targets = self.targets(queue)
        most, bytes_max = COPIES_MAX // targets.reach, COPY_BYTES_MAX // targets.reach
        flags: list[int] = []
        for content in contents:
            if len(flags) < most and len(content) <= bytes_max:
                flags.append(self._store(targets, meta, content, push))
            else:
                queue.counters.refused_total += 1
                flags.append(TOO_MANY_COPIES)
        return flags

    def appends(self, queue: Queue, contents: Sequence[bytes], push: Push) -> bool:
        """Return whether the queue appends all of these bodies to its line: the usual push to a queue with options."""
        options = queue.settings.options
        if push.has_traits() or push.delay_us > 0 or push.due_us or queue.gives_traits():
            return False
        if self._bindings.has_targets(queue.name) or len(contents) > COPIES_MAX:
            return False
        bytes_max = COPY_BYTES_MAX
        if options is not None:
            is_delayed = options.delay_us > 0 and push.delay_us < 0
            if is_delayed or options.destinations or options.fanout_only or queue.pushes_waiting:
                return False
            if options.max_items is not None or options.max_bytes is not None:
                return False
            if options.max_item_bytes is not None:
                bytes_max = min(bytes_max, options.max_item_bytes)
        return max(map(len, contents), default=0) <= bytes_max

    def takes_all(self, queue: Queue, contents: Sequence[bytes]) -> bool:
        """Return whether the queue stores all of these bodies, in this queue alone and indexed by id."""
        if queue.settings.options is not None or not queue.finds_by_id() or self._bindings.has_targets(queue.name):
            return False
        return len(contents) <= COPIES_MAX and max(map(len, contents), default=0) <= COPY_BYTES_MAX

    def store_alike(self, queue: Queue, contents: Sequence[bytes], push: Push) -> int:
        """Store bare bodies with equal options in a queue that takes all; return the sequence of the first."""
        state, now_us = self._state, self._state.now_us
        first = state.last_sequence + 1
        due_us = now_us + push.delay_us if push.delay_us >= 0 else push.due_us
        traits = _traits(push, now_us + push.ttl_us if push.ttl_us else 0)
        queue.push_alike(now_us, first, contents, traits, max(now_us, due_us))
        state.last_sequence += len(contents)
        if contents:
            state.note_due(queue)
        return first

    def store_all(self, queue: Queue, pushes: Iterable[tuple[Item, Push]]) -> int:
        """Store pushes in a queue that takes all; return the sequence of the first, the others follow."""
        state, now_us = self._state, self._state.now_us
        first = state.last_sequence + 1
        deliveries, messages = queue.settings.deliveries, list[RichMessage]()
        meta: Meta
        for sequence, (item, push) in enumerate(pushes, first):
            due_us = now_us + push.delay_us if push.delay_us >= 0 else push.due_us
            meta = PLAIN_META if item.is_bare() else (item.content_type, attributes_kept(queue, item))
            traits = _traits(push, now_us + push.ttl_us if push.ttl_us else 0)
            messages.append(RichMessage(sequence, max(now_us, due_us), deliveries, meta, item.content, traits))
        state.last_sequence += len(messages)
        queue.push_all(now_us, messages)
        if messages:
            state.note_due(queue)
        return first

    def reach(self, queue: Queue) -> int:
        """Return `Targets.reach` of a push to the queue, without creating anything."""
        if not queue.special:
            return 1
        pending, seen, reach = deque((queue,)), {queue.name}, 1
        while pending:
            one = pending.popleft()
            options = one.settings.options
            if options is None or not options.destinations:
                reach += len(self._bindings.targets(one.name)[: TARGETS_MAX - reach])
                continue
            names = options.destinations[: TARGETS_MAX - reach]
            reach += len(names)
            found = [self._state.queues.get(name) for name in names if name not in seen]
            seen.update(names)
            pending.extend(destination for destination in found if destination is not None)
        return reach

    def _store(self, targets: Targets, meta: Meta, content: bytes, push: Push) -> int:
        for queue in targets.deciding:
            refusal = _refusal(queue, len(content))
            if refusal is not None:
                queue.counters.refused_total += 1
                return refusal
        for queue in targets.deciding:
            self._make_room(queue)
        # The result is that of the queue itself, not of its copies.
        results = [self._put(queue, meta, content, push) for queue in targets.keeping]
        for queue in targets.copies:
            if _refusal(queue, len(content)) is not None:
                queue.counters.refused_total += 1
            else:
                self._make_room(queue)
                self._put(queue, meta, content, push)
        return results[0] if results else PushFlag.STORED

    def _make_room(self, queue: Queue) -> None:
        """Discard old messages of a full queue, if its options say so; one far above its limit shrinks push by push."""
        options = queue.settings.options
        if options is None or not options.discard_old_when_full:
            return
        for _ in range(PASSES_MAX):
            if _limit_reached(queue, options) is None or not queue.discard(self._state.now_us):
                break

    def _put(self, queue: Queue, meta: Meta, content: bytes, push: Push) -> int:
        """Store a body in a queue that takes it."""
        state, options = self._state, queue.settings.options
        now_us = state.now_us
        due_us = push.due_us
        if push.delay_us >= 0:
            due_us = now_us + push.delay_us
        elif options is not None and not due_us:
            due_us = now_us + options.delay_us
        state.last_sequence += 1
        flag: int = PushFlag.STORED
        if push.has_traits() or due_us > now_us or queue.gives_traits():
            ends = [push.ttl_us] if push.ttl_us else []
            if options is not None and options.max_age_us is not None:
                ends.append(options.max_age_us)
            traits = _traits(push, now_us + min(ends) if ends else 0)
            queue.push_rich(now_us, state.last_sequence, meta, content, traits, due_us)
        else:
            flag = queue.push(now_us, state.last_sequence, meta, [content])[0]
        state.note_due(queue)
        return flag

    def receive(self, queue: Queue, message: Message, traits: Traits) -> None:
        """Store a message that another queue forwards, in this queue alone. Limits do not apply, since it would be lost."""
        state = self._state
        state.last_sequence += 1
        queue.take_over(state.now_us, state.last_sequence, message, traits)
        state.note_due(queue)


def _traits(push: Push, expires_us: int) -> Traits:
    """Return the traits of a message; messages without any share one object."""
    if push.priority or push.label or push.group or expires_us:
        return Traits(push.priority, expires_us, push.label, push.group)
    return PLAIN_TRAITS


def attributes_kept(queue: Queue, item: Item) -> bytes:
    """Return the attributes of a push, with those headers that the hooks of the queue name, in their order."""
    names = queue.settings.preserved
    if not item.headers or not names:
        return item.attributes
    values = dict(item.headers)
    return with_headers(item.attributes, tuple((name, values[name]) for name in names if name in values))


class Room:
    """Checks whether several pushes will all be accepted, before the first of them is stored."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._copies = 0
        self._items: dict[bytes, int] = {}
        self._bytes: dict[bytes, int] = {}

    def take(self, queue: Queue, size: int, attribute_bytes: int = 0) -> Refusal | None:
        """Reserve room for a push of a body of this size; if it would be refused, return the reason and reserve nothing."""
        targets = self._admission.targets(queue)
        if size > COPY_BYTES_MAX // targets.reach or self._copies + targets.reach > COPIES_MAX:
            return TOO_MANY_COPIES
        for one in targets.deciding:
            if (refusal := self._refusal(one, size)) is not None:
                return refusal
        self._copies += targets.reach
        for one in targets.keeping:
            self.add(one, size + attribute_bytes)
        for one in targets.copies:
            if self._refusal(one, size) is None:
                self.add(one, size + attribute_bytes)
        return None

    def require(self, queue: Queue, size: int, attribute_bytes: int = 0) -> None:
        """Reserve room for a push, or refuse the whole command.

        Raises:
            RefusedError: ``full``, ``too_large``.
        """
        refusal = self.take(queue, size, attribute_bytes) if queue.special else None
        if refusal is not None:
            refuse(queue, refusal)

    def add(self, queue: Queue, size: int) -> None:
        """Count a message that is added to the line regardless of room."""
        self._items[queue.name] = self._items.get(queue.name, 0) + 1
        self._bytes[queue.name] = self._bytes.get(queue.name, 0) + size

    def _refusal(self, queue: Queue, size: int) -> Refusal | None:
        return _refusal(queue, size, self._items.get(queue.name, 0), self._bytes.get(queue.name, 0))


def refuse(queue: Queue, refusal: Refusal) -> NoReturn:
    """Refuse a push, with all others of the command.

    Raises:
        RefusedError: ``full``, ``too_large``.
    """
    queue.counters.refused_total += 1
    raise RefusedError(refusal.code, refusal.reason)


def _refusal(queue: Queue, size: int, more_items: int = 0, more_bytes: int = 0) -> Refusal | None:
    """Return why a queue with this many more messages and bytes refuses a body of this size; None if it does not."""
    options = queue.settings.options
    if options is None:
        return None
    if options.max_item_bytes is not None and size > options.max_item_bytes:
        reason = f"the body of {size} bytes is too large for the queue {shown(queue.name)}"
        return Refusal(PushFlag.OVERSIZED, f"{reason}: max_item_size is {options.max_item_bytes}")
    if queue.pushes_waiting:
        # A new push goes behind those that wait.
        return _full(queue, f"{queue.pushes_waiting} other pushes wait for room")
    if options.discard_old_when_full:
        # No message could be discarded for another one.
        closed = {"max_items": options.max_items, "max_size": options.max_bytes}
        reached = next((f"{name} is 0" for name, limit in closed.items() if limit == 0), None)
    else:
        reached = _limit_reached(queue, options, more_items, more_bytes)
    return None if reached is None else _full(queue, reached)


def _full(queue: Queue, reason: str) -> Refusal:
    return Refusal(PushFlag.FULL, f"the queue {shown(queue.name)} is full: {reason}; pull messages, or push later")


def _limit_reached(queue: Queue, options: QueueOptions, more_items: int = 0, more_bytes: int = 0) -> str | None:
    """Return which limit prevents another message, with its value; None if there is room."""
    if options.max_items is not None and queue.store.waiting() + more_items >= options.max_items:
        return f"max_items is {options.max_items}"
    if options.max_bytes is not None and queue.store.waiting_bytes() + more_bytes >= options.max_bytes:
        return f"max_size is {options.max_bytes}"
    return None
