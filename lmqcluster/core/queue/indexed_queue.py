"""A queue whose messages are addressed by id and tag: poll, hide again, delete, also after the lease has expired."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..log.results import Delivered
from ..messages.message import PLAIN_TRAITS, Message, RichMessage, content_bytes
from .message_index import MessageIndex
from .queue import PASSES_MAX, Queue
from .rich_messages import RichLines
from .settlement_history import Settlement

__all__ = ["IndexedQueue"]


class _Named(NamedTuple):
    """A message that was found by its id, and the number of its latest delivery or update."""

    message: Message
    number: int


class IndexedQueue(Queue):
    """Operations by id, available on any queue that has an index (`RichLines.index`)."""

    __slots__ = ()

    def index(self) -> MessageIndex:
        """Return the queue's index.

        Raises:
            ValueError: the queue has no index.
        """
        index = self.store.enriched().index
        if index is None:
            raise ValueError("the queue has no index")
        return index

    # --- poll -----------------------------------------------------------------------------------------------------

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
        found = self._earliest(now_us, count) if takes_hidden else self._due(now_us, count)
        if not found:
            return []
        messages = [self._with_traits(message) for message in found]
        if hide_us > 0:
            return self.lease(now_us, count, last_number, now_us + hide_us, due=messages)
        if self.pre_images is not None:
            self.pre_images.keep(messages)
        self.index().delivered(messages, last_number + 1)
        self.counters.pulled_total += len(messages)
        delivered: list[Delivered] = []
        for number, message in enumerate(messages, last_number + 1):
            message.remaining -= 1
            message.delivered += 1
            delivered.append((self.name, number, message.remaining, message))
            self.store.endings.note(number, Settlement.EXPIRED)
            self._return(message, now_us, now_us + hide_us)
        return delivered

    def _with_traits(self, message: Message) -> Message:
        """Return the message with traits, so that a client that polled it can address it at any place in line."""
        if isinstance(message, RichMessage):
            return message
        rich = RichMessage(
            message.sequence, message.due_us, message.remaining, message.meta, message.content, PLAIN_TRAITS
        )
        rich.ready_us, rich.pushed_us, rich.delivered = message.ready_us, message.pushed_us, message.delivered
        self.store.enriched().on_added(rich)
        return rich

    def _earliest(self, now_us: int, count: int) -> list[Message]:
        """Return the messages of `_due`; if too few are due, add the next ones, even if they are delayed or leased."""
        taken: list[Message] = []
        rich, passed = self.store.enriched(), 0
        while len(taken) < count and passed < PASSES_MAX and not self.suspended:
            due = self._due(now_us, count - len(taken))
            if due:
                taken += due
                continue
            passed += 1
            hidden = self._first_hidden(rich)
            if hidden is None:
                break
            if hidden.remaining > 0 and not self.store.is_expired(hidden, now_us):
                taken.append(hidden)
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

    def _first_hidden(self, rich: RichLines) -> Message | None:
        """Remove the message that would become due next; None if there is none, or if its group is busy."""
        lease_us = self.store.leases.head_us() if self.store.leases.messages else None
        scheduled = rich.scheduled.first()
        if lease_us is None or (scheduled is not None and scheduled.due_us < lease_us):
            return rich.take_scheduled()
        message = self.store.pop_expired()
        self._unlease(message)
        return message

    # --- by id ----------------------------------------------------------------------------------------------------

    def _named(self, sequence: int, tag: int) -> _Named | None:
        """Return the message with this id, or None if it is gone or the tag is outdated."""
        index = self.index()
        number = index.number(sequence, tag)
        if number is None:
            return None
        leased = self.store.leases.messages.get(number) if number else None
        message = leased if leased is not None else index.in_line(sequence)
        return None if message is None else _Named(message, number)

    def _take_named(self, named: _Named) -> None:
        """Remove a message from its line or from its lease."""
        if self.store.leases.messages.get(named.number) is named.message:
            del self.store.leases.messages[named.number]
            self._unlease(named.message)
        elif isinstance(named.message, RichMessage):
            self.store.enriched().take(named.message)

    def hide(self, now_us: int, sequence: int, tag: int, hide_us: int, number: int) -> bool:
        """Make a message due `hide_us` after now, under a new number; False if it is gone or the tag is outdated.

        A leased message stays with its consumer, or returns to it if the lease had expired; one never delivered is
        delayed.
        """
        named = self._named(sequence, tag)
        if named is None:
            return False
        message = named.message
        if self.pre_images is not None:
            self.pre_images.keep((message,))
        if named.number in self.store.leases.messages:
            self.store.endings.note(named.number, Settlement.EXPIRED)
        self._take_named(named)
        self.index().delivered((message,), number)
        if named.number and hide_us > 0:
            message.due_us = now_us + hide_us
            self.store.leases.add(message.due_us, number, [message])
            self.store.enriched().leased_bytes += content_bytes(message.content)
            self._note_room()
            return True
        self.store.endings.note(number, Settlement.NACKED)
        if message.remaining > 0:
            self._return(message, now_us, now_us + hide_us)
        else:
            self._drop(message, now_us)
        return True

    def remove_named(self, now_us: int, pairs: Iterable[tuple[int, int]]) -> list[bool]:
        """Remove messages by id and tag; False for each that is gone or whose tag is outdated."""
        results: list[bool] = []
        for sequence, tag in pairs:
            named = self._named(sequence, tag)
            results.append(named is not None)
            if named is not None:
                self._take_named(named)
                self.counters.acked_total += 1
                self._on_removed(named.message, now_us)
        if not self.store.leases.messages:
            self.store.leases.forget_order()
        return results
