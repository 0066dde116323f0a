"""Bodies that leave memory while their messages stay: those of messages that do not stand in a plain line.

A message with a priority or a delay can be taken out of any place in line, and a leased one be settled at any time, so neither
can stand in a chunk of messages. Their bodies can: large ones are gathered in *tails* in the order in which they come, and a tail
that is full becomes a chunk of bodies, which a page can hold. The message has a `Body` instead of bytes then. Which bodies make a
chunk follows from the log alone, as with `Chunk`; which chunks are in memory is every node's own business.

When half of a chunk's bytes have left the queue, the rest is gathered again, so that what is kept for nothing is never more than
what is kept for something.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .pages import Pageable

__all__ = ["Body", "BodyChunk", "BodyTail", "HasName", "Key", "QueueBodies"]

TAILS_MAX = 16
"""A queue gathers so many tails at the same time, so that bodies stand together whose turns come together."""
_BUCKET_BITS = 25
"""Messages with the same priority that become due within 2**25 microseconds, about half a minute, share a tail."""

Key = tuple[int, int]
"""Priority, and about when it becomes due; 0 for what is due as it comes."""


class HasName(Protocol):
    """A queue."""

    name: bytes


class Body:
    """The body of a message, which may not be in memory.

    Attributes:
        size: bytes.
        data: the bytes, unless a chunk has them.
        home: the chunk or the tail in which it stands, or has stood; None if it never has.
        place: its index in the chunk.
    """

    __slots__ = ("data", "home", "place", "size")

    def __init__(self, size: int, data: bytes | None = None) -> None:
        self.size = size
        self.data = data
        self.home: BodyChunk | BodyTail | None = None
        self.place = 0

    def read(self) -> bytes:
        """The bytes, which may have to be loaded.

        Raises:
            PageError: they cannot be had.
        """
        if self.data is not None:
            return self.data
        assert isinstance(self.home, BodyChunk)  # noqa: S101 - for the type checker; without data there is a chunk
        return self.home.bodies()[self.place]

    def missing(self) -> BodyChunk | None:
        """The chunk that has to be loaded before the body can be read; None if none has."""
        home = self.home
        return home if self.data is None and isinstance(home, BodyChunk) and not home.is_at_hand() else None


class BodyTail:
    """Bodies that will make a chunk together.

    Attributes:
        key: what they have in common, as far as there are tails enough.
        first: the sequence of the message whose body came first.
        bodies: they themselves, in their order.
        size_bytes: their bytes.
    """

    __slots__ = ("bodies", "first", "key", "size_bytes")

    def __init__(self, key: Key, first: int = 0) -> None:
        self.key = key
        self.first = first
        self.bodies: dict[Body, None] = {}
        self.size_bytes = 0

    def add(self, body: Body, first: int) -> None:
        """Add a body that has its data; `first` counts if it is the first."""
        if not self.bodies:
            self.first = first
        self.bodies[body] = None
        self.size_bytes += body.size
        body.home = self

    def remove(self, body: Body) -> None:
        """A body has left the queue; who still has it can read it."""
        del self.bodies[body]
        self.size_bytes -= body.size


class Loads(Protocol):
    """What has the store."""

    def bodies_in(self, chunk: BodyChunk) -> list[bytes]:
        """The bodies of a chunk that are not in memory."""

    def is_at_hand(self, chunk: BodyChunk) -> bool:
        """Whether that needs no look at the disk."""


class BodyChunk(Pageable):
    """Bodies that stand together until half of them have left.

    Attributes:
        owner: the queue's bodies.
        first: the sequence of one of the messages, by which all nodes know the chunk.
        sizes: bytes of each body.
        size_bytes: of all together.
        live_bytes: of those whose messages are in the queue.
        lives: these by their place, None for those that have left.
    """

    __slots__ = ("_bodies", "_loads", "first", "live_bytes", "lives", "owner", "size_bytes", "sizes")

    def __init__(
        self,
        owner: QueueBodies,
        loads: Loads,
        first: int,
        sizes: Sequence[int],
        bodies: list[bytes] | None,
        page: bytes,
    ) -> None:
        super().__init__(page)
        self._loads = loads
        self._bodies = bodies
        self.owner = owner
        self.first = first
        self.sizes = array("Q", sizes)
        self.size_bytes = sum(sizes)
        self.live_bytes = 0
        self.lives: list[Body | None] = [None] * len(sizes)

    def is_here(self) -> bool:
        return self._bodies is not None

    def is_at_hand(self) -> bool:
        """Whether its bodies can be read without a look at the disk."""
        return self._bodies is not None or self._loads.is_at_hand(self)

    def bodies(self) -> list[bytes]:
        """All its bodies, also those that have left.

        Raises:
            PageError: they cannot be had.
        """
        return self._loads.bodies_in(self) if self._bodies is None else self._bodies

    def columns(self) -> list[Any]:
        return [self._bodies]

    def memory_bytes(self) -> int:
        return self.size_bytes

    def let_go(self) -> None:
        self._bodies = None

    def is_thin(self) -> bool:
        """Whether more has left than is there."""
        return 2 * self.live_bytes < self.size_bytes

    def live(self, place: int, body: Body) -> None:
        """The body at this place is in the queue."""
        body.home, body.place, body.data = self, place, None
        self.lives[place] = body
        self.live_bytes += body.size

    def died(self, body: Body) -> None:
        """A body has left the queue; who still has it can read it."""
        self.lives[body.place] = None
        self.live_bytes -= body.size


class BodyChunks(Loads, Protocol):
    """What the bodies of all queues have in common."""

    def bodies_joined(self, chunk: BodyChunk) -> None:
        """There is another chunk."""

    def bodies_left(self, chunk: BodyChunk) -> None:
        """The state has a chunk no more."""

    def body_died(self, chunk: BodyChunk, size: int) -> None:
        """A body of a chunk has left its queue."""

    def body_lives(self, chunk: BodyChunk, size: int) -> None:
        """A body of a chunk that came with a snapshot was found to be in its queue."""

    def bodies_loaded(self, chunk: BodyChunk) -> None:
        """All bodies of a chunk that came with a snapshot are known."""


class QueueBodies:
    """The bodies of one queue that may leave memory.

    Attributes:
        queue: the queue.
        chunks: full ones.
        tails: those that are not, by key.
        again: what is left of chunks of which most has left.
    """

    __slots__ = ("_bytes_max", "_common", "_count_max", "again", "chunks", "queue", "tails")

    def __init__(self, queue: HasName, common: BodyChunks, bytes_max: int, count_max: int) -> None:
        """A chunk has at most `count_max` bodies, and `bytes_max` bytes or one body."""
        self.queue = queue
        self._common = common
        self._bytes_max = bytes_max
        self._count_max = count_max
        self.chunks: dict[BodyChunk, None] = {}
        self.tails: dict[Key, BodyTail] = {}
        self.again = BodyTail((0, 0))

    def gather(self, content: bytes, sequence: int, key: Key) -> Body:
        """Take the body of a message; returns what the message has instead."""
        body = Body(len(content), content)
        self._add(self._tail(key), body, sequence)
        return body

    def left(self, body: Body) -> None:
        """The message of a body has left the queue."""
        home = body.home
        if isinstance(home, BodyTail):
            home.remove(body)
            if not home.bodies:
                self._close(home)
        elif home is not None:
            home.died(body)
            self._common.body_died(home, body.size)
            if not home.live_bytes:
                self._drop(home)

    def gather_again(self, chunk: BodyChunk) -> None:
        """Let a chunk go, and gather what is left of it once more.

        Raises:
            PageError: its bodies cannot be had.
        """
        bodies = chunk.bodies()
        self._drop(chunk)
        for place, body in enumerate(chunk.lives):
            if body is not None:
                body.data = bodies[place]
                self._add(self.again, body, chunk.first)

    def clear(self) -> None:
        """All messages have left; costs a step a chunk."""
        for chunk in list(self.chunks):
            self._drop(chunk)
            # Bodies and chunk would keep each other.
            chunk.lives = []
        self.tails.clear()
        self.again = BodyTail((0, 0))

    # --- snapshots ------------------------------------------------------------------------------------------------

    def frozen_tails(self) -> list[tuple[BodyTail, list[tuple[Body, bytes]]]]:
        """The tails with what is in them now, the one of what was gathered again first."""
        tails = [self.again, *self.tails.values()]
        return [(tail, [(body, body.read()) for body in tail.bodies]) for tail in tails if tail.bodies]

    def load_chunk(self, first: int, sizes: Sequence[int], bodies: list[bytes] | None, page: bytes) -> BodyChunk:
        """Add a chunk of a snapshot; `body_at` makes its bodies live."""
        chunk = BodyChunk(self, self._common, first, sizes, bodies, page)
        self.chunks[chunk] = None
        self._common.bodies_joined(chunk)
        return chunk

    def load_tail(self, key: Key | None, first: int) -> BodyTail:
        """Add a tail of a snapshot, without a key the one of what was gathered again."""
        if key is None:
            return self.again
        if key in self.tails:
            raise ValueError("a queue has two tails of bodies with the same key")
        self.tails[key] = BodyTail(key, first)
        return self.tails[key]

    def revive(self, chunk: BodyChunk, place: int) -> Body:
        """The body at a place of a chunk of a snapshot, which a message names.

        Raises:
            ValueError: another one has named it.
        """
        if chunk.lives[place] is not None:
            raise ValueError("two messages have the same body")
        body = Body(chunk.sizes[place])
        chunk.live(place, body)
        self._common.body_lives(chunk, body.size)
        return body

    def loaded(self) -> None:
        """All messages of the snapshot are here."""
        for chunk in list(self.chunks):
            if chunk.live_bytes:
                self._common.bodies_loaded(chunk)
            else:
                self._drop(chunk)

    # --- tails and chunks -----------------------------------------------------------------------------------------

    def _tail(self, key: Key) -> BodyTail:
        """The tail for a key, or the nearest one if there are too many."""
        tail = self.tails.get(key)
        if tail is None and len(self.tails) < TAILS_MAX:
            tail = self.tails[key] = BodyTail(key)
        elif tail is None:
            nearest = min(self.tails, key=lambda other: (abs(other[0] - key[0]), abs(other[1] - key[1])))
            tail = self.tails[nearest]
        return tail

    def _add(self, tail: BodyTail, body: Body, first: int) -> None:
        if tail.bodies and tail.size_bytes + body.size > self._bytes_max:
            self._seal(tail)
        tail.add(body, first)
        if tail.size_bytes >= self._bytes_max or len(tail.bodies) >= self._count_max:
            self._seal(tail)
            self._close(tail)

    def _seal(self, tail: BodyTail) -> None:
        """Make a chunk of what is in a tail."""
        gathered = list(tail.bodies)
        data = [body.read() for body in gathered]
        chunk = BodyChunk(self, self._common, tail.first, [body.size for body in gathered], data, b"")
        for place, body in enumerate(gathered):
            chunk.live(place, body)
        tail.bodies, tail.size_bytes = {}, 0
        self.chunks[chunk] = None
        self._common.bodies_joined(chunk)

    def _close(self, tail: BodyTail) -> None:
        """An empty tail makes room for another one."""
        if tail is not self.again:
            self.tails.pop(tail.key, None)

    def _drop(self, chunk: BodyChunk) -> None:
        del self.chunks[chunk]
        self._common.bodies_left(chunk)


def key_of(priority: int, due_us: int, now_us: int) -> Key:
    """Which bodies are gathered together."""
    return priority, due_us >> _BUCKET_BITS if due_us > now_us else 0


def sizes_of(bodies: Iterable[bytes]) -> list[int]:
    """Bytes of each body."""
    return [len(body) for body in bodies]
