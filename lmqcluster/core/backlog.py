"""The long part of a queue's line: messages that stand still, in chunks, until those before them are gone.

A line of plain messages begins with ``ready``, a deque. Once that is long, what comes goes to the backlog behind it: to its
tail, and when the tail is full it becomes a chunk, which does not change any more. A chunk can be turned into a page, which a
`PageStore` keeps outside of memory, and is turned back when its turn comes. Which messages make a chunk follows from the log
alone, so that replicas have the same pages; which of them are in memory is every node's own business and changes no answer.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple, Protocol

from .columns import Columns, columns_of, messages_of, meta_bytes
from .message import Message, Meta, content_bytes, content_count

__all__ = ["Backlog", "Backlogs", "Chunk", "ChunkSizes", "PageError", "PageStore"]

MESSAGE_BYTES = 300
"""What a message in memory costs beside its body, about."""
_LOOKED_AT = 32
"""Most chunks that one look at a queue brings back, so that it does not take long."""
_AHEAD = 3
"""So many chunks at the head of a backlog are in memory, or on their way there."""


class PageError(Exception):
    """A page that is needed now cannot be had; the replica must stop, because it could not go on as the others do."""


class PageStore(Protocol):
    """Keeps pages outside of memory."""

    def save(self, columns: Columns) -> bytes:
        """Keep the columns of some messages; returns the page's name, which follows from its content."""

    def load(self, page: bytes) -> Columns:
        """The columns of a page.

        Raises:
            PageError: it is lost or damaged.
        """

    def want(self, page: bytes) -> None:
        """The page will be loaded soon."""

    def is_busy(self) -> bool:
        """Whether to wait before more is saved for the sake of memory."""


class ChunkSizes(NamedTuple):
    """When a line gets a backlog, and how large a chunk becomes.

    Attributes:
        head_messages: a line with so many messages goes on in a backlog.
        head_bytes, head_messages_min: so does one with `head_messages_min` messages in a queue with so many bytes.
        messages, bytes: a chunk has at most so many, or one message.
    """

    head_messages: int = 4_000
    head_bytes: int = 4 << 20
    head_messages_min: int = 32
    messages: int = 2_000
    bytes: int = 256 << 10


CHUNK_SIZES = ChunkSizes()


class Chunk:
    """Messages that stand still.

    Attributes:
        count: how many they are.
        bodies, body_bytes: how many messages were pushed for them, and bytes of their bodies.
        low, high: the lowest and the highest of their sequences.
        messages: they themselves, None if they are not in memory.
        page: the name of their page, empty if there is none.
        in_line: whether their turn has not come yet.
    """

    __slots__ = ("bodies", "body_bytes", "count", "high", "in_line", "low", "messages", "page")

    def __init__(self, messages: list[Message] | None, page: bytes, row: tuple[int, int, int, int, int]) -> None:
        """`row` are count, bodies, body_bytes, low and high."""
        self.messages = messages
        self.page = page
        self.count, self.bodies, self.body_bytes, self.low, self.high = row
        self.in_line = True

    @classmethod
    def of(cls, messages: list[Message]) -> Chunk:
        """A chunk of these messages."""
        bodies = sum(content_count(message.content) for message in messages)
        body_bytes = sum(content_bytes(message.content) for message in messages)
        sequences = [message.sequence for message in messages]
        return cls(messages, b"", (len(messages), bodies, body_bytes, min(sequences), max(sequences)))

    def row(self) -> list[object]:
        """How a snapshot names it."""
        return [self.page, self.count, self.bodies, self.body_bytes, self.low, self.high]

    def memory_bytes(self) -> int:
        """About what its messages take in memory if they are there."""
        return self.body_bytes + MESSAGE_BYTES * self.count


class Backlogs:
    """What the backlogs of all queues have in common.

    Attributes:
        active: whether lines get backlogs; from machine version 3 on.
        sizes: of chunks.
        store: keeps pages; without one everything stays in memory.
        resident_bytes: about what the chunks in line take that are in memory.
        resident_bytes_max: while they take more, `page_out` turns them into pages.
        paged_messages, paged_bytes: how many messages the others hold, and bytes of their bodies.
        loads_total, pages_total: chunks that were loaded from their pages, and turned into pages.
    """

    def __init__(self) -> None:
        self.active = False
        self.sizes = CHUNK_SIZES
        self.store: PageStore | None = None
        self.resident_bytes = 0
        self.resident_bytes_max = sys.maxsize
        self.paged_messages = 0
        self.paged_bytes = 0
        self.loads_total = 0
        self.pages_total = 0
        # By the lowest sequence of each, which no other has.
        self._in_line: dict[int, Chunk] = {}
        # Chunks in memory, the one that was filled last at the end: it will be needed last. Some have left the line.
        self._resident: list[Chunk] = []

    def __len__(self) -> int:
        """How many chunks are in line."""
        return len(self._in_line)

    def joined(self, chunk: Chunk) -> None:
        """A chunk was filled, or came with a snapshot."""
        self._in_line[chunk.low] = chunk
        if chunk.messages is None:
            self._count_paged(chunk, 1)
        else:
            self._count_resident(chunk)

    def left(self, chunk: Chunk) -> None:
        """A chunk has left the line."""
        del self._in_line[chunk.low]
        chunk.in_line = False
        if chunk.messages is None:
            self._count_paged(chunk, -1)
        else:
            self.resident_bytes -= chunk.memory_bytes()
            if len(self._resident) > 2 * len(self._in_line) + 64:
                self._resident = [one for one in self._resident if one.in_line and one.messages is not None]

    def page_out(self, limit: int) -> int:
        """Turn up to `limit` chunks into pages while those in memory take too much; returns how many."""
        done = 0
        store = self.store
        while store is not None and self._resident and done < limit and self.resident_bytes > self.resident_bytes_max:
            chunk = self._resident[-1]
            if chunk.in_line and chunk.messages is not None:
                if not chunk.page and store.is_busy():
                    break
                self.save(chunk)
                self._let_go(chunk)
                done += 1
            self._resident.pop()
        return done

    def is_flooded(self) -> bool:
        """Whether chunks in memory take a quarter more than they should, because `page_out` lags behind what comes."""
        return 4 * self.resident_bytes > 5 * self.resident_bytes_max

    def save(self, chunk: Chunk) -> None:
        """Have the store keep a chunk in line, unless it does."""
        if not chunk.page and chunk.messages is not None:
            self.save_columns(chunk, columns_of(chunk.messages))
            if self.resident_bytes > 2 * self.resident_bytes_max:
                # `page_out` lags behind what comes, so it does not matter which chunk is needed last.
                self._let_go(chunk)

    def save_columns(self, chunk: Chunk, columns: Columns) -> None:
        """Have the store keep a chunk whose columns these are."""
        assert self.store is not None  # noqa: S101 - for the type checker
        chunk.page = self.store.save(columns)
        self.pages_total += 1

    def messages_in(self, chunk: Chunk) -> list[Message]:
        """The messages of a chunk; if they are not in memory, as they are in its page.

        Raises:
            PageError: the page cannot be had.
        """
        if chunk.messages is not None:
            return chunk.messages
        if self.store is None:
            raise PageError("there is no store for pages")
        self.loads_total += 1
        try:
            messages = messages_of(self.store.load(chunk.page))
        except (ValueError, TypeError, LookupError) as exc:
            raise PageError(f"the page {chunk.page.hex()} is malformed: {exc}") from exc
        if len(messages) != chunk.count:
            raise PageError(f"the page {chunk.page.hex()} has {len(messages)} messages and should have {chunk.count}")
        return messages

    def pages(self) -> list[bytes]:
        """The pages of all chunks in line."""
        return [chunk.page for chunk in self._in_line.values() if chunk.page]

    def lows(self) -> dict[bytes, int]:
        """The lowest sequence of each page."""
        return {chunk.page: low for low, chunk in self._in_line.items() if chunk.page}

    def save_chunk(self, low: int) -> None:
        """Have the store keep the chunk with this lowest sequence, if there is one."""
        chunk = self._in_line.get(low)
        if chunk is not None:
            self.save(chunk)

    def want(self, chunk: Chunk) -> None:
        """The chunk's turn comes soon."""
        if chunk.messages is None and self.store is not None:
            self.store.want(chunk.page)

    def _let_go(self, chunk: Chunk) -> None:
        """Keep a chunk in line, which has a page, in memory no more."""
        if chunk.messages is not None:
            self.resident_bytes -= chunk.memory_bytes()
            chunk.messages = None
            self._count_paged(chunk, 1)

    def _count_resident(self, chunk: Chunk) -> None:
        self.resident_bytes += chunk.memory_bytes()
        self._resident.append(chunk)

    def _count_paged(self, chunk: Chunk, sign: int) -> None:
        self.paged_messages += sign * chunk.bodies
        self.paged_bytes += sign * chunk.body_bytes


class Backlog:
    """The backlog of one queue; it is never empty for longer than a command takes.

    Attributes:
        chunks: full ones, the next first.
        tail: what came after them.
    """

    __slots__ = ("_common", "_count", "_tail_bytes", "chunks", "tail")

    def __init__(self, common: Backlogs) -> None:
        self._common = common
        self._count = 0
        self._tail_bytes = 0
        self.chunks: deque[Chunk] = deque()
        self.tail: list[Message] = []

    def __len__(self) -> int:
        """How many messages there are."""
        return self._count + len(self.tail)

    def extend(self, messages: list[Message], meta: Meta, body_bytes: int) -> None:
        """Add messages at the end that have one meta and so many bytes together; faster than one by one."""
        sizes, size = self._common.sizes, self._tail_bytes + body_bytes + meta_bytes(meta) * len(messages)
        if size <= sizes.bytes and len(self.tail) + len(messages) <= sizes.messages:
            self.tail += messages
            self._tail_bytes = size
            return
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        sizes, size = self._common.sizes, _size_of(message)
        if self.tail and (self._tail_bytes + size > sizes.bytes or len(self.tail) >= sizes.messages):
            self.seal()
        self.tail.append(message)
        self._tail_bytes += size

    def seal(self) -> None:
        """Make a chunk of the tail, which is not empty."""
        self.join(Chunk.of(self.tail))
        self.tail, self._tail_bytes = [], 0

    def join(self, chunk: Chunk) -> None:
        """Add a chunk behind the others."""
        self.chunks.append(chunk)
        self._count += chunk.count
        self._common.joined(chunk)

    def next_line(self) -> deque[Message]:
        """Take the messages that come next, all of a chunk or of the tail.

        Raises:
            PageError: they cannot be had; nothing has changed.
        """
        if not self.chunks:
            line = deque(self.tail)
            self.tail, self._tail_bytes = [], 0
            return line
        line = deque(self._common.messages_in(self.chunks[0]))
        self._drop_first()
        self.look_ahead()
        return line

    def look_ahead(self) -> None:
        """Have the chunks loaded whose turn comes next."""
        for chunk in islice(self.chunks, _AHEAD):
            self._common.want(chunk)

    def clear(self) -> None:
        """Let everything go, without a look at it."""
        while self.chunks:
            self._drop_first()
        self.tail, self._tail_bytes = [], 0

    def lowest(self, sequence: int, count: int) -> list[Message]:
        """Messages in no order, among them the `count` with the lowest sequences from `sequence` on.

        Sequences rise along a line, but for messages that were given back; where very many were, some may be missing.
        """
        found, wanted = self.tail.copy(), [message.sequence for message in self.tail]
        chunks = sorted((chunk for chunk in self.chunks if chunk.high >= sequence), key=lambda chunk: chunk.low)
        for chunk in chunks[:_LOOKED_AT] if count else ():
            lowest = nsmallest(count, (one for one in wanted if one >= sequence))
            if len(lowest) == count and lowest[-1] < chunk.low:
                break
            messages = self._common.messages_in(chunk)
            found += messages
            wanted += [message.sequence for message in messages]
        return found

    def messages(self) -> Iterator[Message]:
        """All messages; those in pages are loaded, and not kept."""
        for chunk in self.chunks:
            yield from self._common.messages_in(chunk)
        yield from self.tail

    def sums(self) -> tuple[int, int]:
        """How many messages were pushed for what is here, and bytes of their bodies."""
        bodies = sum(chunk.bodies for chunk in self.chunks) + sum(content_count(one.content) for one in self.tail)
        return bodies, sum(chunk.body_bytes for chunk in self.chunks) + sum(
            content_bytes(one.content) for one in self.tail
        )

    def _drop_first(self) -> None:
        chunk = self.chunks.popleft()
        self._count -= chunk.count
        self._common.left(chunk)


def _size_of(message: Message) -> int:
    return content_bytes(message.content) + meta_bytes(message.meta)
