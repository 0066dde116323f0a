"""The paged tail of a long queue: immutable chunks of messages that are read back when the head drains.

A line of plain messages begins with ``ready``, a deque. Once that is long, new messages are appended to the backlog
behind it: to its tail, which becomes an immutable chunk when it is full. A chunk can be turned into a page, which a
`PageStore` keeps outside of memory, and is read back when its turn comes. The log alone determines the chunks, so
replicas have the same pages; each node decides which of them are in memory, which never changes a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from ..messages.columns import Columns, columns_of, meta_bytes
from ..messages.message import Message, Meta, content_bytes, content_count, message_bytes
from ..messages.pages import Pageable

__all__ = ["Chunk", "ChunkSizes", "PagedTail"]

MESSAGE_BYTES = 300
"""Approximate memory cost of a message beside its body."""
_AHEAD = 3
"""Number of chunks at the head of a backlog that are kept in memory or prefetched."""


class ChunkSizes(NamedTuple):
    """Thresholds for backlogs and sizes of chunks.

    Attributes:
        head_messages: a line with this many messages gets a backlog.
        head_bytes, head_messages_min: so does one with `head_messages_min` messages in a queue with `head_bytes`
            bytes.
        messages, bytes: limits of a chunk; a single message may exceed them.
        crowd_bytes: once all queues together hold about this many bytes, lines with `crowd_head` messages also get a
            backlog, with
            chunks of at most `crowd_messages` until there are `head_messages` in them.
        body: shorter bodies stay with their messages.
        gather_bytes, gather_bytes_all: a queue gathers bodies for paging out if it, or all queues together, have this
            many bytes.
    """

    head_messages: int = 4_000
    head_bytes: int = 4 << 20
    head_messages_min: int = 32
    messages: int = 2_000
    bytes: int = 256 << 10
    crowd_bytes: int = 256 << 20
    crowd_head: int = 64
    crowd_messages: int = 250
    body: int = 1 << 10
    gather_bytes: int = 4 << 20
    gather_bytes_all: int = 64 << 20


CHUNK_SIZES = ChunkSizes()


class Chunk(Pageable):
    """An immutable chunk of messages in line.

    Attributes:
        count: number of messages.
        bodies, body_bytes: number of pushed bodies in them, and their bytes.
        low, high: the lowest and the highest sequence.
        messages: the messages, None if they are paged out.
    """

    __slots__ = ("bodies", "body_bytes", "count", "high", "low", "messages")

    def __init__(self, messages: list[Message] | None, page: bytes, row: tuple[int, int, int, int, int]) -> None:
        """Set the fields; `row` is count, bodies, body_bytes, low and high."""
        super().__init__(page)
        self.messages = messages
        self.count, self.bodies, self.body_bytes, self.low, self.high = row

    @classmethod
    def of(cls, messages: list[Message]) -> Chunk:
        """Return a chunk of these messages."""
        return cls.summed(messages, *_sums_of(messages))

    @classmethod
    def summed(cls, messages: list[Message], bodies: int, body_bytes: int) -> Chunk:
        """Return a chunk of these messages, whose bodies are counted already."""
        sequences = [message.sequence for message in messages]
        return cls(messages, b"", (len(messages), bodies, body_bytes, min(sequences), max(sequences)))

    def row(self) -> list[object]:
        """Return the snapshot row of the chunk."""
        return [self.page, self.count, self.bodies, self.body_bytes, self.low, self.high]

    def is_here(self) -> bool:
        return self.messages is not None

    def columns(self) -> Columns:
        return [] if self.messages is None else columns_of(self.messages)

    def let_go(self) -> None:
        self.messages = None

    def memory_bytes(self) -> int:
        return self.body_bytes + MESSAGE_BYTES * self.count


class Common(Protocol):
    """The part of the pager that the backlogs of all queues share."""

    @property
    def sizes(self) -> ChunkSizes: ...

    def is_crowded(self) -> bool:
        """Return whether all queues together hold so much that short lines get backlogs too."""

    def joined(self, chunk: Chunk) -> None:
        """Add a chunk that was filled or came with a snapshot."""

    def left(self, chunk: Chunk) -> None:
        """Remove a chunk that left the line."""

    def messages_in(self, chunk: Chunk) -> list[Message]:
        """Return the messages of a chunk.

        Raises:
            PageError: its page is unavailable.
        """

    def want(self, chunk: Chunk) -> None:
        """Prefetch a chunk that is needed soon."""


class PagedTail:
    """The backlog of one queue; it is empty only within a command.

    Attributes:
        chunks: full chunks, the next first.
        tail: messages behind the chunks.
    """

    __slots__ = ("_common", "_count", "_tail_bodies", "_tail_body_bytes", "_tail_bytes", "chunks", "tail")

    def __init__(self, common: Common) -> None:
        self._common = common
        self._count = 0
        self.chunks: deque[Chunk] = deque()
        self._begin_tail()

    def __len__(self) -> int:
        """Return the number of messages."""
        return self._count + len(self.tail)

    def _begin_tail(self) -> None:
        self.tail: list[Message] = []
        self._tail_bytes = self._tail_bodies = self._tail_body_bytes = 0

    def extend(self, messages: list[Message], meta: Meta, content_bytes: int) -> None:
        """Append one-body messages that share one meta and have `content_bytes` bytes in total; faster than one by one."""
        count = len(messages)
        size = content_bytes + meta_bytes(meta) * count
        is_short = len(self.tail) + count <= self._messages_max()
        if is_short and self._tail_bytes + size <= self._common.sizes.bytes:
            self._add(messages, size, count, content_bytes + len(meta[1]) * count)
            return
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Append a message."""
        size = _size_of(message)
        is_full = self._tail_bytes + size > self._common.sizes.bytes or len(self.tail) >= self._messages_max()
        if self.tail and is_full:
            self.seal()
        self._add([message], size, content_count(message.content), message_bytes(message))

    def load(self, messages: list[Message]) -> None:
        """Append messages of a snapshot to the tail without sealing it."""
        self._add(messages, sum(map(_size_of, messages)), *_sums_of(messages))

    def _add(self, messages: list[Message], size: int, bodies: int, body_bytes: int) -> None:
        """Append messages to the tail; sizes and sums are those of all of them."""
        self.tail += messages
        self._tail_bytes += size
        self._tail_bodies += bodies
        self._tail_body_bytes += body_bytes

    def _messages_max(self) -> int:
        """Return the most messages of a chunk: fewer in a short line if memory is crowded."""
        sizes = self._common.sizes
        return (
            sizes.crowd_messages if self._count < sizes.head_messages and self._common.is_crowded() else sizes.messages
        )

    def seal(self) -> None:
        """Turn the tail, which is not empty, into a chunk."""
        self.join(Chunk.summed(self.tail, self._tail_bodies, self._tail_body_bytes))
        self._begin_tail()

    def join(self, chunk: Chunk) -> None:
        """Append a chunk behind the others."""
        self.chunks.append(chunk)
        self._count += chunk.count
        self._common.joined(chunk)

    def next_line(self) -> deque[Message]:
        """Remove and return the next messages: those of a whole chunk, or the tail.

        Raises:
            PageError: the page is unavailable; nothing has changed.
        """
        if not self.chunks:
            line = deque(self.tail)
            self._begin_tail()
            return line
        line = deque(self._common.messages_in(self.chunks[0]))
        self._drop_first()
        self.look_ahead()
        return line

    def look_ahead(self) -> None:
        """Prefetch the next chunks."""
        for chunk in islice(self.chunks, _AHEAD):
            self._common.want(chunk)

    def absent(self, count: int) -> Iterator[Chunk]:
        """Yield the chunks to page in before `count` messages can be taken."""
        for chunk in self.chunks:
            if count < 0:
                break
            if chunk.messages is None:
                yield chunk
            count -= chunk.count

    def clear(self) -> None:
        """Remove everything without reading it."""
        while self.chunks:
            self._drop_first()
        self._begin_tail()

    def messages(self) -> Iterator[Message]:
        """Yield all messages; pages are loaded but not kept."""
        for chunk in self.chunks:
            yield from self._common.messages_in(chunk)
        yield from self.tail

    def sums(self) -> tuple[int, int]:
        """Return the number of pushed bodies in the backlog, and their bytes."""
        bodies, body_bytes = _sums_of(self.tail)
        return bodies + sum(chunk.bodies for chunk in self.chunks), body_bytes + sum(
            one.body_bytes for one in self.chunks
        )

    def _drop_first(self) -> None:
        chunk = self.chunks.popleft()
        self._count -= chunk.count
        self._common.left(chunk)


def _sums_of(messages: list[Message]) -> tuple[int, int]:
    """Return the number of pushed bodies in these messages, and their bytes."""
    return sum(content_count(message.content) for message in messages), sum(map(message_bytes, messages))


def _size_of(message: Message) -> int:
    return content_bytes(message.content) + meta_bytes(message.meta)
