"""A queue whose messages are named by id and tag: polled, hidden for another while, and deleted, in time or late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..log.commands import Delivered
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
    """What any queue can do besides, once it has an index (`RichLines.index`)."""

    __slots__ = ()

    def index(self) -> MessageIndex:
        """The queue's index, which must be there."""
        index = self.enriched().index
        if index is None:
            raise ValueError("the queue has no index")
        return index

    # --- poll -----------------------------------------------------------------------------------------------------

    def poll(
        self, now_us: int, count: int, last_number: int, hide_us: int, *, takes_hidden: bool = False
    ) -> list[Delivered]:
        """Deliver up to `count` messages and hide them for `hide_us`; with 0 or less they can be delivered again at once.

        Args:
            now_us: log time.
            count: most messages.
            last_number: number of the last delivery before.
            hide_us: how long they are not delivered again.
            takes_hidden: take those too that are not due yet, or delivered, in the order of the times at which they would be due.
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
        self.pulled_total += len(messages)
        delivered: list[Delivered] = []
        for number, message in enumerate(messages, last_number + 1):
            message.remaining -= 1
            message.delivered += 1
            delivered.append((self.name, number, message.remaining, message))
            self.endings.note(number, Settlement.EXPIRED)
            self._return(message, now_us, now_us + hide_us)
        return delivered

    def _with_traits(self, message: Message) -> Message:
        """The message as one that can be taken out of any place in line: a client that has polled it may name it later."""
        if isinstance(message, RichMessage):
            return message
        rich = RichMessage(
            message.sequence, message.due_us, message.remaining, message.meta, message.content, PLAIN_TRAITS
        )
        rich.ready_us, rich.pushed_us, rich.delivered = message.ready_us, message.pushed_us, message.delivered
        self.enriched().came(rich)
        return rich

    def _earliest(self, now_us: int, count: int) -> list[Message]:
        """Return what `_due` does, or if nothing is due the next message, even if a client holds it."""
        taken: list[Message] = []
        rich, passed = self.enriched(), 0
        while len(taken) < count and passed < PASSES_MAX and not self.suspended:
            due = self._due(now_us, count - len(taken))
            if due:
                taken += due
                continue
            passed += 1
            hidden = self._first_hidden(rich)
            if hidden is None:
                break
            if hidden.remaining > 0 and not self.is_expired(hidden, now_us):
                taken.append(hidden)
                passed -= 1
            else:
                self._give_up(hidden, now_us)
        self.passed_over += passed
        self._note_room()
        return taken

    def _note_room(self) -> None:
        """Messages that stood in line may have been taken."""
        if self.pushes_waiting:
            self.exits.changed(self)

    def _first_hidden(self, rich: RichLines) -> Message | None:
        """Take the message that would be due next; None if there is none, or its group is busy."""
        lease_us = self.leases.head_us() if self.leases.messages else None
        scheduled = rich.scheduled.first()
        if lease_us is None or (scheduled is not None and scheduled.due_us < lease_us):
            return rich.take_scheduled()
        message = self._pop_expired()
        self._unlease(message)
        return message

    # --- by id ----------------------------------------------------------------------------------------------------

    def _named(self, sequence: int, tag: int) -> _Named | None:
        """The message with this id, if the tag is its present one."""
        index = self.index()
        number = index.number(sequence, tag)
        if number is None:
            return None
        leased = self.leases.messages.get(number) if number else None
        message = leased if leased is not None else index.in_line(sequence)
        return None if message is None else _Named(message, number)

    def _take_named(self, named: _Named) -> None:
        """Take a message out of its line, or from its lease."""
        if self.leases.messages.get(named.number) is named.message:
            del self.leases.messages[named.number]
            self._unlease(named.message)
        elif isinstance(named.message, RichMessage):
            self.enriched().take(named.message)

    def hide(self, now_us: int, sequence: int, tag: int, hide_us: int, number: int) -> bool:
        """Let a message be due so much later than now, under a new number; False if it is not there, or its tag is another.

        One that was delivered stays with its consumer, or comes back to it; one that was not is put off.
        """
        named = self._named(sequence, tag)
        if named is None:
            return False
        message = named.message
        if self.pre_images is not None:
            self.pre_images.keep((message,))
        if named.number in self.leases.messages:
            self.endings.note(named.number, Settlement.EXPIRED)
        self._take_named(named)
        self.index().delivered((message,), number)
        if named.number and hide_us > 0:
            message.due_us = now_us + hide_us
            self.leases.add(message.due_us, number, [message])
            self.enriched().leased_bytes += content_bytes(message.content)
            self._note_room()
            return True
        self.endings.note(number, Settlement.NACKED)
        if message.remaining > 0:
            self._return(message, now_us, now_us + hide_us)
        else:
            self._drop(message, now_us)
        return True

    def remove_named(self, now_us: int, pairs: Iterable[tuple[int, int]]) -> list[bool]:
        """Remove messages by id and tag; False for those that are not there, or whose tag is another."""
        results: list[bool] = []
        for sequence, tag in pairs:
            named = self._named(sequence, tag)
            results.append(named is not None)
            if named is not None:
                self._take_named(named)
                self.acked_total += 1
                self._left(named.message, now_us)
        if not self.leases.messages:
            self.leases.forget_order()
        return results
