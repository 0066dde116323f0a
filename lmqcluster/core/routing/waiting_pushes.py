"""Pushes that wait until a full queue has room for them, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..log.items import Item
from ..log.notices import Pushed
from ..log.results import Fault, shown
from ..messages.sorted_list import SortedList
from ..owners.quotas import Kind
from ..queue.queue import Queue
from ..state_view import StateView
from .admission import Push

__all__ = ["WaitingPush", "WaitingPushes"]

_ITEM_BYTES = 600
"""Approximate memory of a waiting message beside its body."""


class WaitingPush(NamedTuple):
    """One push: messages that are stored together.

    Attributes:
        ticket: its number, in the order of arrival.
        queue, owner: the target, and the owner to whose quota it counts.
        ends_us: when it is refused if there has been no room.
        items: the messages and their options.
    """

    ticket: int
    queue: bytes
    owner: bytes
    ends_us: int
    items: list[tuple[Item, Push]]

    def size_bytes(self) -> int:
        """Return the approximate memory of the push."""
        return sum(_ITEM_BYTES + len(item.content) for item, _ in self.items)

    def key(self) -> tuple[bytes, bytes, bytes] | None:
        """Return the key that identifies a repetition of it: owner, queue and the first key."""
        keys = [item.key for item, _ in self.items if item.key is not None]
        return (self.owner, self.queue, keys[0]) if keys else None


class WaitingPushes:
    """The pushes by ticket, by queue and by the time at which they are refused.

    Attributes:
        last: the last ticket.
        size_bytes: approximate memory of all of them.
        gaining: queues that may have gained room since their first push was tried; part of the state, because a push
            that is tried
            again may be refused for a reason other than room.
    """

    def __init__(self, state: StateView) -> None:
        self._state = state
        self._pushes: dict[int, WaitingPush] = {}
        self._lines: dict[bytes, dict[int, None]] = {}
        self._keys: dict[tuple[bytes, bytes, bytes], int] = {}
        # By ticket, the number of repetitions that also wait for the push; no entry for none.
        self._repetitions: dict[int, int] = {}
        self._ends: SortedList[WaitingPush] = SortedList()
        self.last = 0
        self.size_bytes = 0
        self.gaining: set[bytes] = set()
        # The last push of a snapshot so far, of which further rows may come.
        self._loading: WaitingPush | None = None

    def __len__(self) -> int:
        return len(self._pushes)

    def add(self, queue: Queue, owner: bytes, wait_us: int, items: list[tuple[Item, Push]]) -> int:
        """Add a waiting push; return its ticket.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        state = self._state
        push = WaitingPush(self.last + 1, queue.name, owner, state.now_us + wait_us, items)
        state.quotas.check(Kind.WAITING_PUSHES, owner)
        state.quotas.check(Kind.WAITING_BYTES, owner, push.size_bytes())
        self.last += 1
        self._put(push)
        queue.pushes_waiting += 1
        return push.ticket

    def _put(self, push: WaitingPush) -> None:
        size, quotas = push.size_bytes(), self._state.quotas
        quotas.take(Kind.WAITING_PUSHES, push.owner)
        quotas.take(Kind.WAITING_BYTES, push.owner, size)
        self.size_bytes += size
        self._pushes[push.ticket] = push
        self._lines.setdefault(push.queue, {})[push.ticket] = None
        self._ends.add((push.ends_us, push.ticket), push)
        key = push.key()
        if key is not None:
            self._keys[key] = push.ticket
        self._state.expiry.at(push.ends_us)

    def find(self, ticket: int) -> WaitingPush | None:
        """Return the push of that ticket, if it waits."""
        return self._pushes.get(ticket)

    def repeated(self, push: WaitingPush) -> WaitingPush | None:
        """Return the waiting push of which this one is a repetition, if any."""
        key = push.key()
        ticket = None if key is None else self._keys.get(key)
        return None if ticket is None else self._pushes[ticket]

    def join(self, push: WaitingPush) -> None:
        """Add a repetition that also waits for the push."""
        self._repetitions[push.ticket] = self._repetitions.get(push.ticket, 0) + 1

    def leave(self, push: WaitingPush) -> bool:
        """Remove one of the clients that wait for the push; return whether none is left."""
        others = self._repetitions.pop(push.ticket, 0)
        if others > 1:
            self._repetitions[push.ticket] = others - 1
        return not others

    def first(self, queue: bytes) -> WaitingPush | None:
        """Return the push that has waited longest for this queue."""
        line = self._lines.get(queue)
        return None if line is None else self._pushes[next(iter(line))]

    def settle(self, push: WaitingPush, result: Any) -> None:
        """Complete a push with its result and stop its wait."""
        self._take_out(push)
        bodies = [item.content for item, _ in push.items]
        self._state.notices.append(Pushed(push.ticket, result, push.queue, bodies))

    def refuse(self, push: WaitingPush, reason: str) -> None:
        """Refuse a push without storing any of it, and stop its wait."""
        queue = self._state.existing(push.queue)
        if queue is not None:
            queue.counters.refused_total += 1
        self.settle(push, Fault(reason, "full"))

    def _take_out(self, push: WaitingPush) -> None:
        size, quotas = push.size_bytes(), self._state.quotas
        quotas.give(Kind.WAITING_PUSHES, push.owner)
        quotas.give(Kind.WAITING_BYTES, push.owner, size)
        self.size_bytes -= size
        del self._pushes[push.ticket]
        self._repetitions.pop(push.ticket, None)
        line = self._lines[push.queue]
        del line[push.ticket]
        if not line:
            del self._lines[push.queue]
            self.gaining.discard(push.queue)
        self._ends.remove((push.ends_us, push.ticket))
        key = push.key()
        if key is not None and self._keys.get(key) == push.ticket:
            del self._keys[key]
        queue = self._state.queues.get(push.queue)
        if queue is not None:
            queue.pushes_waiting -= 1

    # --- room -----------------------------------------------------------------------------------------------------

    def note(self, queue: bytes) -> None:
        """Note that the queue may have room for its first push."""
        if queue in self._lines:
            self.gaining.add(queue)

    def deleted(self, queue: bytes) -> None:
        """Refuse the pushes of a deleted queue: a later queue of the same name may serve another purpose."""
        while (push := self.first(queue)) is not None:
            self.refuse(push, f"the queue {shown(queue)} was deleted while the push waited for room")

    # --- Source
    # -------------------------------------------------------------------------------------------------------

    def due_us(self) -> int | None:
        """Return when the next push is refused; 0 while some may be stored."""
        if self.gaining:
            return 0
        first = self._ends.first()
        return None if first is None else first.ends_us

    def expire(self, now_us: int, limit: int | None) -> int:
        """Refuse up to `limit` pushes whose wait has ended; return how many."""
        done = 0
        while done != limit and (push := self._ends.first()) is not None and push.ends_us <= now_us:
            name = push.queue
            # The next in line may be one that fits.
            self.refuse(push, f"the queue {shown(name)} had no room while the push waited")
            self.note(name)
            done += 1
        return done

    # --- snapshots ------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[list[object]]:
        """Return a row for each message, as of now."""
        pushes = [(push, self._repetitions.get(push.ticket, 0)) for push in self._pushes.values()]
        return (_row(push, repetitions, *one) for push, repetitions in pushes for one in push.items)

    def load(self, rows: Iterable[tuple[int, bytes, bytes, int, int, Item, Push]]) -> None:
        """Add the rows of a snapshot, those of one push consecutively; `loaded` must follow."""
        for ticket, queue, owner, ends_us, repetitions, item, options in rows:
            if self._loading is None or self._loading.ticket != ticket:
                self._put_loaded()
                self._loading = WaitingPush(ticket, queue, owner, ends_us, [])
                if repetitions:
                    self._repetitions[ticket] = repetitions
            self._loading.items.append((item, options))

    def _put_loaded(self) -> None:
        if self._loading is not None:
            self._put(self._loading)
            self._loading = None

    def loaded(self) -> None:
        """Finish loading: all rows and queues of a snapshot are present."""
        self._put_loaded()
        for name, line in self._lines.items():
            self._state.queues[name].pushes_waiting = len(line)


def _row(push: WaitingPush, repetitions: int, item: Item, options: Push) -> list[object]:
    headers = [list(header) for header in item.headers]
    what = [item.content_type, item.attributes, item.key, headers, list(options), item.content]
    return [push.ticket, push.queue, push.owner, push.ends_us, repetitions, *what]
