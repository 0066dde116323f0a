"""Listing of a queue's messages without taking them, page by page, for every protocol.

A page holds the messages with the lowest sequences from a given one on. It ends because of its count, its bytes, the
bytes that had to be read, or the number of messages whose attributes were compared, and names the sequence at which the
next page starts. So a message that stays in the queue
during the listing is shown once, even if other messages come and go or it moves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from ....core import Message, Queue, State
from ....core.messages.message import Content, Part, RichMessage, content_bytes, with_content
from ....core.queue.expiry import NEVER
from ....core.queue.paged_tail import Chunk
from ....wire.attributes import has_attribute as has_packed
from ...process.fair_slices import FairSlices
from ..pulls.body_fetcher import BodyFetcher
from ..sending.naming import no_queue

__all__ = ["PeekPage", "PeekQuery", "PeekedMessage", "Peeks", "has_attribute"]

READ_BYTES_MAX = 32 << 20
"""Bytes of paged-tail chunks after which a page ends early; a message counts 300 bytes beside its body."""
COMPARED_MAX = 10_000
"""Messages whose attributes are compared for one page."""
_TOGETHER = 1_000
"""Messages that are checked before the end of a slice is, and gathered before they are sorted."""

T = TypeVar("T")
_Row = tuple[int, Message, int, int]
"""Sequence, message, number of its delivery or 0, bytes of its body."""


@dataclass(frozen=True, slots=True)
class PeekQuery:
    """The wanted messages.

    Attributes:
        start: the lowest sequence.
        count: largest number of messages.
        bytes_max: the page ends with the message that exceeds this number of bytes.
        body_bytes_max: number of bytes of each body that are wanted, and count; None for all.
        leased: whether leased messages are wanted too.
        label, group: only messages with this label or of this group; empty for all.
        end: all sequences are lower.
        due_from_us, due_to_us: only messages that became due at or after the first log time and before the second.
        attribute: only messages with an attribute of this name whose text (`value_text`) is the second string; a compound
            message has those of all its parts. None for all.
    """

    start: int
    count: int
    bytes_max: int
    body_bytes_max: int | None = None
    leased: bool = True
    label: bytes = b""
    group: bytes = b""
    end: int = sys.maxsize
    due_from_us: int = 0
    due_to_us: int = sys.maxsize
    attribute: tuple[str, str] | None = None

    def wants_all(self) -> bool:
        """Return whether every message between the two sequences is wanted."""
        return not self.label and not self.group and not self.is_timed()

    def is_timed(self) -> bool:
        """Return whether the query is limited by the due times of messages."""
        return self.due_from_us > 0 or self.due_to_us < sys.maxsize

    def is_wanted(self, message: Message) -> bool:
        """Return whether the message has the label and the group, and became due within the limits."""
        if not self.due_from_us <= message.ready_us < self.due_to_us:
            return False
        if not self.label and not self.group:
            return True
        if not isinstance(message, RichMessage):
            return False
        traits = message.traits
        return (not self.label or traits.label == self.label) and (not self.group or traits.group == self.group)


def has_attribute(message: Message, attribute: tuple[str, str]) -> bool:
    """Return whether a message, or a part of a compound one, has an attribute of this name and this text."""
    packed, content = message.meta[1], message.content
    if isinstance(content, list):
        return any(has_packed(part.attributes, *attribute) for part in content)
    return bool(packed) and has_packed(packed, *attribute)


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A snapshot of a message.

    Attributes:
        message: the message, or a copy if its body was read for this page: it is cut to the wanted bytes and one more.
        state: ``ready``, ``delayed``, ``accumulating`` (an open window), ``held`` (its group is busy) or ``leased``.
        delivery: number of the delivery under a live lease; None if there is none, or if it was made while the page was
            read.
        age_s: seconds since it could first be pulled, or again after a nack; 0 if it cannot yet.
        due_in_s: seconds until it can be pulled (again), 0 if it can now; None if it is held as long as a session
            lives.
        deliveries_left: how many more deliveries it may have.
        size: bytes of the body, of all parts of a compound message.
    """

    message: Message
    state: str
    delivery: int | None
    age_s: float
    due_in_s: float | None
    deliveries_left: int
    size: int

    @property
    def sequence(self) -> int:
        """Return the number of the message in the cluster, in the order of pushes."""
        return self.message.sequence


class PeekPage(NamedTuple):
    """A page of a list.

    Attributes:
        messages: in the order of their sequences.
        following: the `PeekQuery.start` of the next page; None at the end.
    """

    messages: list[PeekedMessage]
    following: int | None


class Peeks:
    """Lists messages; `state` returns the local replica's state, `turns` provides slices of the event loop."""

    def __init__(self, state: Callable[[], State], turns: FairSlices) -> None:
        self._state = state
        self._turns = turns
        self._absent = BodyFetcher(state)

    async def page(self, name: bytes, query: PeekQuery, client: bytes) -> PeekPage:
        """Return a page of the list of a queue's messages. Bodies that are paged out without their messages are not read.

        Raises:
            LmqError: ``queue_not_found``; ``overloaded`` if a page cannot be read from the disk.
        """
        queue, lowest = await self._rows(name, query, client)
        now_us = self._state().now_us
        return PeekPage([_peeked(queue, row, now_us) for row in lowest.rows], lowest.following())

    async def whole_page(self, name: bytes, query: PeekQuery, client: bytes) -> tuple[list[Message], int | None]:
        """Return the messages of `page`, with their bodies if these are wanted, and where the next page starts."""
        _, lowest = await self._rows(name, query, client)
        messages = [row[1] for row in lowest.rows]
        if query.body_bytes_max != 0:
            messages = await self._absent.fetched(messages)
        return messages, lowest.following()

    async def _rows(self, name: bytes, query: PeekQuery, client: bytes) -> tuple[Queue, _Lowest]:
        while True:
            queue = self._state().queues.get(name)
            if queue is None:
                raise no_queue(name)
            lowest = await self._look(queue, query, client)
            if lowest is not None:
                return queue, lowest

    async def _look(self, queue: Queue, query: PeekQuery, client: bytes) -> _Lowest | None:
        """Return the rows of a page; None if the queue changed and has to be read again."""
        lowest = _Lowest(query)
        # Plain copies of the same moment: pairs of a million leases would take longer.
        line = queue.store.in_line()
        numbers = list(queue.store.leases.messages) if query.leased else []
        leased = list(queue.store.leases.messages.values()) if query.leased else []
        blocks: Iterable[tuple[Iterable[Message], Iterable[int]]] = chain(
            ((part, repeat(0)) for part in _parts(line.messages)),
            ((map(itemgetter(-1), part), repeat(0)) for block in line.entries for part in _parts(block)),
            zip(_parts(leased), _parts(numbers), strict=True),
        )
        async for block in self._turns.each(blocks, client):
            lowest.add(*block)
        # Messages in the paged tail have neither label nor group.
        chunks = [] if query.label or query.group else _within(line.chunks, query)
        chunks.sort(key=attrgetter("low"))
        if not await self._look_into(chunks, lowest, client):
            return None
        if query.attribute is not None:
            parts = list(_parts(lowest.rows))
            lowest.rows = []
            async for part in self._turns.each(parts, client):
                lowest.rows += [row for row in part if has_attribute(row[1], query.attribute)]
            lowest.cut(query.count, query.bytes_max)
        return lowest

    async def _look_into(self, chunks: list[Chunk], lowest: _Lowest, client: bytes) -> bool:
        """Add the messages of the chunks that belong to the page; False if a chunk has left the queue."""
        read_bytes = 0
        for chunk in chunks:
            if lowest.is_complete_before(chunk.low, must_end=read_bytes > READ_BYTES_MAX):
                break
            await self._turns.take(client)
            if await self._absent.in_chunk(chunk, partial(lowest.add_chunk, is_here=chunk.is_here())) is None:
                return False
            read_bytes += chunk.memory_bytes()
        lowest.trim()
        return True


class _Lowest:
    """The rows of a page while they are gathered.

    Attributes:
        rows: those with the lowest sequences so far, as many as the page may have; sorted after `trim`.
        end: sequence from which no message belongs to the page.
    """

    def __init__(self, query: PeekQuery) -> None:
        self._query = query
        # An attribute is compared after the messages with the lowest sequences are gathered, so that few are compared.
        filters = query.attribute is not None
        self._count = COMPARED_MAX if filters else query.count
        self._bytes_max = sys.maxsize if filters else query.bytes_max
        self._kept_max = sys.maxsize if query.body_bytes_max is None else query.body_bytes_max
        self._size = 0
        self.rows: list[_Row] = []
        self.end = query.end

    def add(
        self, messages: Iterable[Message], numbers: Iterable[int] = repeat(0), body_bytes_max: int | None = None
    ) -> None:
        """Add the messages that are wanted and may belong to the page, with at most `body_bytes_max` bytes of their bodies."""
        start, end = self._query.start, self.end
        rows = [
            (message.sequence, message, number, content_bytes(message.content))
            for message, number in zip(messages, numbers, strict=False)
            if start <= message.sequence < end
        ]
        if not self._query.wants_all():
            rows = [row for row in rows if self._query.is_wanted(row[1])]
        if body_bytes_max is not None:
            rows = [self._short_row(row, body_bytes_max) for row in rows]
        self.rows += rows
        self._size += sum(min(row[3], self._kept_max) for row in rows)
        if len(self.rows) >= 2 * self._count + _TOGETHER or self._size > 2 * self._bytes_max:
            self.trim()

    def add_chunk(self, messages: list[Message], *, is_here: bool) -> bool:
        """Add messages like `add`; cut bodies that were read for this page to the wanted bytes."""
        bytes_max = self._query.body_bytes_max
        self.add(messages, body_bytes_max=None if is_here or bytes_max is None else bytes_max + 1)
        return True

    def _short_row(self, row: _Row, bytes_max: int) -> _Row:
        """Return a row with a copy of its message, because the queue may have the chunk in memory by now."""
        sequence, message, number, size = row
        # The parts of a compound message are needed for their attributes.
        if size <= bytes_max or (self._query.attribute is not None and isinstance(message.content, list)):
            return row
        return sequence, with_content(message, _shortened(message.content, bytes_max)), number, size

    def trim(self) -> None:
        """Sort the rows and drop the excess ones."""
        self.rows.sort(key=itemgetter(0))
        self.cut(self._count, self._bytes_max)

    def cut(self, count: int, bytes_max: int) -> None:
        """Drop all but the first rows, which are sorted: at most `count`, and none after that which exceeds `bytes_max`."""
        self._size = 0
        for place, row in enumerate(self.rows):
            if place == count or self._size > bytes_max:
                self.end = row[0]
                del self.rows[place:]
                break
            self._size += min(row[3], self._kept_max)

    def following(self) -> int | None:
        """Return where the next page starts; None if this is the last one."""
        return self.end if self.end < self._query.end else None

    def is_complete_before(self, low: int, *, must_end: bool) -> bool:
        """Return whether no message from `low` on belongs to the page.

        With `must_end` the page ends before `low` if it has an earlier message. It also does so if the query is limited
        by due times and starts before `low`.
        """
        if len(self.rows) > self._count or self._size > self._bytes_max or must_end:
            self.trim()
        if self.end <= low:
            return True
        has_before = bool(self.rows) and self.rows[0][0] < low
        if must_end and (has_before or (self._query.is_timed() and self._query.start < low)):
            self.end = low
            self.rows = [row for row in self.rows if row[0] < low]
            return True
        return False


def _parts(line: list[T]) -> Iterator[list[T]]:
    return (line[start : start + _TOGETHER] for start in range(0, len(line), _TOGETHER))


def _within(chunks: list[Chunk], query: PeekQuery) -> list[Chunk]:
    return [one for one in chunks if one.high >= query.start and one.low < query.end]


def _shortened(content: Content, bytes_max: int) -> Content:
    """Return the first parts of a compound message, or the beginning of a body."""
    if isinstance(content, bytes):
        return content[:bytes_max]
    if not isinstance(content, list):
        return content
    parts: list[Part] = []
    for part in content:
        if bytes_max <= 0:
            break
        parts.append(part._replace(content=part.content[:bytes_max]))
        bytes_max -= len(part.content)
    return parts


def _peeked(queue: Queue, row: _Row, now_us: int) -> PeekedMessage:
    _, message, number, size = row
    due_us = message.due_us
    if _is_held(queue, message):
        state = "held"
    elif due_us <= now_us:
        state = "ready"
    elif message.ready_us != due_us:
        state = "leased"
    else:
        state = "accumulating" if message is queue.store.window else "delayed"
    return PeekedMessage(
        message=message,
        state=state,
        delivery=number if queue.store.leases.messages.get(number) is message and state == "leased" else None,
        age_s=max(0, now_us - message.ready_us) / 1e6,
        due_in_s=None if due_us == NEVER else max(0, due_us - now_us) / 1e6,
        deliveries_left=max(0, message.remaining),
        size=size,
    )


def _is_held(queue: Queue, message: Message) -> bool:
    """Return whether the message waits behind another one of its group."""
    return queue.store.rich is not None and isinstance(message, RichMessage) and queue.store.rich.is_held(message)
