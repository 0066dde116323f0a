"""Bodies that are paged out while their messages stay in memory, because the messages are not in a plain line.

A message with a priority or a delay can be taken out of any place in line, and a leased one can be settled at any
time. Neither can therefore be in a chunk of messages, but their bodies can be paged out. Large ones are gathered in
*tails* in the order in which they arrive; a full tail becomes a chunk of bodies, which a page can hold. The message
then has a `Body` instead of bytes. As with `Chunk`, the log alone determines the chunks; each node decides which of
them are in memory.

When half of a chunk's bytes have left the queue, the rest is gathered again, so that the garbage is never larger than
the live data.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .pages import Pageable

__all__ = ["Body", "BodyChunk", "BodyTail", "HasName", "Key", "QueueBodies"]

TAILS_MAX = 16
"""Most tails of one queue: bodies that are due at about the same time share one."""
_BUCKET_BITS = 25
"""Messages with the same priority that become due within 2**25 microseconds, about half a minute, share a tail."""

Key = tuple[int, int]
"""Priority, and the approximate due time; 0 if the message is due on arrival."""


class HasName(Protocol):
    """A queue."""

    name: bytes


class Body:
    """The body of a message, which may not be in memory.

    Attributes:
        size: bytes.
        data: the bytes, None if a chunk has them.
        home: the chunk or the tail that holds or held it; None if there was none.
        place: its index in the chunk.
    """

    __slots__ = ("data", "home", "place", "size")

    def __init__(self, size: int, data: bytes | None = None) -> None:
        self.size = size
        self.data = data
        self.home: BodyChunk | BodyTail | None = None
        self.place = 0

    def read(self) -> bytes:
        """Return the bytes, reading their page if necessary.

        Raises:
            PageError: the page is unavailable.
        """
        if self.data is not None:
            return self.data
        assert isinstance(self.home, BodyChunk)  # noqa: S101 - for the type checker; without data there is a chunk
        return self.home.bodies()[self.place]

    def missing(self) -> BodyChunk | None:
        """Return the chunk that must be loaded before the body can be read; None if no load is needed."""
        home = self.home
        return home if self.data is None and isinstance(home, BodyChunk) and not home.is_at_hand() else None


class BodyTail:
    """Bodies that will become one chunk.

    Attributes:
        key: the key they share, unless there were too many tails.
        first: the sequence of the message whose body came first.
        bodies: the bodies in their order.
        size_bytes: their bytes.
    """

    __slots__ = ("bodies", "first", "key", "size_bytes")

    def __init__(self, key: Key, first: int = 0) -> None:
        self.key = key
        self.first = first
        self.bodies: dict[Body, None] = {}
        self.size_bytes = 0

    def add(self, body: Body, first: int) -> None:
        """Add a body that has its data; `first` is used if the tail is empty."""
        if not self.bodies:
            self.first = first
        self.bodies[body] = None
        self.size_bytes += body.size
        body.home = self

    def remove(self, body: Body) -> None:
        """Remove a body that left the queue; references to it can still be read."""
        del self.bodies[body]
        self.size_bytes -= body.size


class Loads(Protocol):
    """The part of the pager that reads bodies."""

    def bodies_in(self, chunk: BodyChunk) -> list[bytes]:
        """Return the bodies of a chunk that are not in memory."""

    def is_at_hand(self, chunk: BodyChunk) -> bool:
        """Return whether `bodies_in` needs no disk access."""


class BodyChunk(Pageable):
    """Bodies that share a page until half of their bytes have left.

    Attributes:
        owner: the queue's bodies.
        first: the sequence of one of the messages, by which all nodes identify the chunk.
        sizes: bytes of each body.
        size_bytes: of all bodies.
        live_bytes: of those whose messages are in the queue.
        lives: the live bodies by their place, None for those that have left.
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
        """Return whether its bodies can be read without disk access."""
        return self._bodies is not None or self._loads.is_at_hand(self)

    def bodies(self) -> list[bytes]:
        """Return all its bodies, including those that have left.

        Raises:
            PageError: the page is unavailable.
        """
        return self._loads.bodies_in(self) if self._bodies is None else self._bodies

    def columns(self) -> list[Any]:
        return [self._bodies]

    def memory_bytes(self) -> int:
        return self.size_bytes

    def let_go(self) -> None:
        self._bodies = None

    def is_sparse(self) -> bool:
        """Return whether more bytes have left than remain."""
        return 2 * self.live_bytes < self.size_bytes

    def live(self, place: int, body: Body) -> None:
        """Mark the body at this place as live."""
        body.home, body.place, body.data = self, place, None
        self.lives[place] = body
        self.live_bytes += body.size

    def died(self, body: Body) -> None:
        """Remove a body that left the queue; references to it can still be read."""
        self.lives[body.place] = None
        self.live_bytes -= body.size


class BodyChunks(Loads, Protocol):
    """The part of the pager that the bodies of all queues share."""

    def bodies_joined(self, chunk: BodyChunk) -> None:
        """Add a chunk."""

    def bodies_left(self, chunk: BodyChunk) -> None:
        """Remove a chunk that the state no longer has."""

    def body_died(self, chunk: BodyChunk, size: int) -> None:
        """Update the sums after a body has left its queue."""

    def body_lives(self, chunk: BodyChunk, size: int) -> None:
        """Update the sums for a body from a snapshot that is still in its queue."""

    def bodies_loaded(self, chunk: BodyChunk) -> None:
        """Note that all bodies of a chunk from a snapshot are known."""


class QueueBodies:
    """The bodies of one queue that may be paged out.

    Attributes:
        queue: the queue.
        chunks: full chunks.
        tails: unfinished chunks, by key.
        again: the rest of sparse chunks.
    """

    __slots__ = ("_bytes_max", "_common", "_count_max", "again", "chunks", "queue", "tails")

    def __init__(self, queue: HasName, common: BodyChunks, bytes_max: int, count_max: int) -> None:
        """Set the limits: a chunk has at most `count_max` bodies, and `bytes_max` bytes or a single body."""
        self.queue = queue
        self._common = common
        self._bytes_max = bytes_max
        self._count_max = count_max
        self.chunks: dict[BodyChunk, None] = {}
        self.tails: dict[Key, BodyTail] = {}
        self.again = BodyTail((0, 0))

    def gather(self, content: bytes, sequence: int, key: Key) -> Body:
        """Take the body of a message; return the object that replaces it in the message."""
        body = Body(len(content), content)
        self._add(self._tail(key), body, sequence)
        return body

    def left(self, body: Body) -> None:
        """Remove the body of a message that left the queue."""
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
        """Dissolve a chunk and gather its remaining bodies again.

        Raises:
            PageError: its page is unavailable.
        """
        bodies = chunk.bodies()
        self._drop(chunk)
        for place, body in enumerate(chunk.lives):
            if body is not None:
                body.data = bodies[place]
                self._add(self.again, body, chunk.first)

    def clear(self) -> None:
        """Remove all bodies; costs one step per chunk."""
        for chunk in list(self.chunks):
            self._drop(chunk)
            # Breaks the reference cycle between chunk and bodies.
            chunk.lives = []
        self.tails.clear()
        self.again = BodyTail((0, 0))

    # --- snapshots ------------------------------------------------------------------------------------------------

    def frozen_tails(self) -> list[tuple[BodyTail, list[tuple[Body, bytes]]]]:
        """Return the tails with their current bodies, the one for bodies gathered again first."""
        tails = [self.again, *self.tails.values()]
        return [(tail, [(body, body.read()) for body in tail.bodies]) for tail in tails if tail.bodies]

    def load_chunk(self, first: int, sizes: Sequence[int], bodies: list[bytes] | None, page: bytes) -> BodyChunk:
        """Add a chunk of a snapshot; `revive` makes its bodies live."""
        chunk = BodyChunk(self, self._common, first, sizes, bodies, page)
        self.chunks[chunk] = None
        self._common.bodies_joined(chunk)
        return chunk

    def load_tail(self, key: Key | None, first: int) -> BodyTail:
        """Add a tail of a snapshot; without a key, return the one for bodies gathered again."""
        if key is None:
            return self.again
        if key in self.tails:
            raise ValueError("a queue has two tails of bodies with the same key")
        self.tails[key] = BodyTail(key, first)
        return self.tails[key]

    def revive(self, chunk: BodyChunk, place: int) -> Body:
        """Return the body at a place of a chunk of a snapshot, which a message references.

        Raises:
            ValueError: another message references it.
        """
        if chunk.lives[place] is not None:
            raise ValueError("two messages have the same body")
        body = Body(chunk.sizes[place])
        chunk.live(place, body)
        self._common.body_lives(chunk, body.size)
        return body

    def loaded(self) -> None:
        """Finish loading: all messages of the snapshot are present."""
        for chunk in list(self.chunks):
            if chunk.live_bytes:
                self._common.bodies_loaded(chunk)
            else:
                self._drop(chunk)

    # --- tails and chunks -----------------------------------------------------------------------------------------

    def _tail(self, key: Key) -> BodyTail:
        """Return the tail for a key, or the nearest one if there are too many."""
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
        """Turn the contents of a tail into a chunk."""
        gathered = list(tail.bodies)
        data = [body.read() for body in gathered]
        chunk = BodyChunk(self, self._common, tail.first, [body.size for body in gathered], data, b"")
        for place, body in enumerate(gathered):
            chunk.live(place, body)
        tail.bodies, tail.size_bytes = {}, 0
        self.chunks[chunk] = None
        self._common.bodies_joined(chunk)

    def _close(self, tail: BodyTail) -> None:
        """Remove an empty tail to make room for another one."""
        if tail is not self.again:
            self.tails.pop(tail.key, None)

    def _drop(self, chunk: BodyChunk) -> None:
        del self.chunks[chunk]
        self._common.bodies_left(chunk)


def key_of(priority: int, due_us: int, now_us: int) -> Key:
    """Return the key of the tail for a body with this priority and due time."""
    return priority, due_us >> _BUCKET_BITS if due_us > now_us else 0


def sizes_of(bodies: Iterable[bytes]) -> list[int]:
    """Return the bytes of each body."""
    return [len(body) for body in bodies]
