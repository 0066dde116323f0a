"""The long part of a queue's line: messages that stand still, in chunks, until those before them are gone.

A line of plain messages begins with ``ready``, a deque. Once that is long, what comes goes to the backlog behind it: to its
tail, and when the tail is full it becomes a chunk, which does not change any more. A chunk can be turned into a page, which a
`PageStore` keeps outside of memory, and is turned back when its turn comes. Which messages make a chunk follows from the log
alone, so that replicas have the same pages; which of them are in memory is every node's own business and changes no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from ..messages.columns import Columns, columns_of, meta_bytes
from ..messages.message import Message, Meta, content_bytes, content_count
from ..messages.pages import Pageable

__all__ = ["Chunk", "ChunkSizes", "PagedTail"]

MESSAGE_BYTES = 300
"""What a message in memory costs beside its body, about."""
_AHEAD = 3
"""So many chunks at the head of a backlog are in memory, or on their way there."""


class ChunkSizes(NamedTuple):
    """When a line gets a backlog, and how large a chunk becomes.

    Attributes:
        head_messages: a line with so many messages goes on in a backlog.
        head_bytes, head_messages_min: so does one with `head_messages_min` messages in a queue with so many bytes.
        messages, bytes: a chunk has at most so many, or one message.
        crowd_bytes: once all queues together hold about so much, lines with `crowd_head` messages go on in a backlog, too, which
            has chunks of at most `crowd_messages` until there are `head_messages` in them.
        body: shorter bodies stay with their messages.
        gather_bytes, gather_bytes_all: a queue gathers bodies that may leave memory if it, or all queues together, have so many
            bytes.
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
    """Messages that stand still.

    Attributes:
        count: how many they are.
        bodies, body_bytes: how many messages were pushed for them, and bytes of their bodies.
        low, high: the lowest and the highest of their sequences.
        messages: they themselves, None if they are not in memory.
    """

    __slots__ = ("bodies", "body_bytes", "count", "high", "low", "messages")

    def __init__(self, messages: list[Message] | None, page: bytes, row: tuple[int, int, int, int, int]) -> None:
        """`row` are count, bodies, body_bytes, low and high."""
        super().__init__(page)
        self.messages = messages
        self.count, self.bodies, self.body_bytes, self.low, self.high = row

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

    def is_here(self) -> bool:
        return self.messages is not None

    def columns(self) -> Columns:
        return [] if self.messages is None else columns_of(self.messages)

    def let_go(self) -> None:
        self.messages = None

    def memory_bytes(self) -> int:
        return self.body_bytes + MESSAGE_BYTES * self.count


class Common(Protocol):
    """What the backlogs of all queues have in common."""

    @property
    def sizes(self) -> ChunkSizes: ...

    def is_crowded(self) -> bool:
        """Whether there are so many lines that short ones have a backlog, too."""

    def joined(self, chunk: Chunk) -> None:
        """A chunk was filled, or came with a snapshot."""

    def left(self, chunk: Chunk) -> None:
        """A chunk has left the line."""

    def messages_in(self, chunk: Chunk) -> list[Message]:
        """The messages of a chunk.

        Raises:
            PageError: its page cannot be had.
        """

    def want(self, chunk: Chunk) -> None:
        """The chunk's turn comes soon."""


class PagedTail:
    """The backlog of one queue; it is never empty for longer than a command takes.

    Attributes:
        chunks: full ones, the next first.
        tail: what came after them.
    """

    __slots__ = ("_common", "_count", "_tail_bytes", "chunks", "tail")

    def __init__(self, common: Common) -> None:
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
        size = self._tail_bytes + body_bytes + meta_bytes(meta) * len(messages)
        if size <= self._common.sizes.bytes and len(self.tail) + len(messages) <= self._messages_max():
            self.tail += messages
            self._tail_bytes = size
            return
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        size = _size_of(message)
        is_full = self._tail_bytes + size > self._common.sizes.bytes or len(self.tail) >= self._messages_max()
        if self.tail and is_full:
            self.seal()
        self.tail.append(message)
        self._tail_bytes += size

    def load(self, messages: list[Message]) -> None:
        """Add messages of a snapshot to the tail, which is as it was."""
        self.tail += messages
        self._tail_bytes += sum(map(_size_of, messages))

    def _messages_max(self) -> int:
        """How many messages make a chunk: fewer in a short line, if there are very many lines."""
        sizes = self._common.sizes
        return (
            sizes.crowd_messages if self._count < sizes.head_messages and self._common.is_crowded() else sizes.messages
        )

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

    def absent(self, count: int) -> Iterator[Chunk]:
        """Those chunks that are not in memory and have to be there before `count` messages can be taken."""
        for chunk in self.chunks:
            if count < 0:
                break
            if chunk.messages is None:
                yield chunk
            count -= chunk.count

    def clear(self) -> None:
        """Let everything go, without a look at it."""
        while self.chunks:
            self._drop_first()
        self.tail, self._tail_bytes = [], 0

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
