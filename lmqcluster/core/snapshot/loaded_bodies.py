"""The gathered bodies of one queue of a snapshot, until its messages have claimed them."""

from __future__ import annotations

from bisect import bisect_right

from ..messages.bodies import Body, BodyChunk, Key, QueueBodies, sizes_of
from ..messages.columns import as_bytes, as_ints

__all__ = ["LoadedBodies"]


class LoadedBodies:
    """Finds a body by its place among all those in the records."""

    def __init__(self, bodies: QueueBodies) -> None:
        self._bodies = bodies
        self._chunks: list[BodyChunk] = []
        self._starts: list[int] = []
        self._count = 0
        # Bodies of tails, by their place.
        self._in_tails: dict[int, Body] = {}

    def add_page(self, page: bytes, first: int, sizes: list[int]) -> None:
        """Add a chunk that is a page.

        Raises:
            ValueError: the row is malformed.
        """
        if not page or not sizes or min(as_ints(sizes)) < 1 or first < 1:
            raise ValueError("the row of a page of bodies is malformed")
        self._add_chunk(self._bodies.load_chunk(first, sizes, None, page))

    def add(self, first: int, bodies: list[bytes]) -> None:
        """Add a chunk that is in memory."""
        self._add_chunk(self._bodies.load_chunk(first, sizes_of(_checked(first, bodies)), bodies, b""))

    def _add_chunk(self, chunk: BodyChunk) -> None:
        self._chunks.append(chunk)
        self._starts.append(self._count)
        self._count += len(chunk.lives)

    def add_tail(self, key: Key | None, first: int, bodies: list[bytes]) -> None:
        """Add a tail; without a key it is that for bodies gathered again."""
        as_ints([] if key is None else list(key))
        tail = self._bodies.load_tail(key, first)
        for data in _checked(first, bodies):
            body = Body(len(data), data)
            tail.add(body, first)
            self._in_tails[self._count] = body
            self._count += 1

    def body(self, number: int) -> Body:
        """Return the body of a message, which no other message has.

        Raises:
            LookupError, ValueError: there is no such body, or another message has claimed it.
        """
        chunks = bisect_right(self._starts, number)
        if chunks and number >= 0:
            chunk, place = self._chunks[chunks - 1], number - self._starts[chunks - 1]
            if place < len(chunk.lives):
                return self._bodies.revive(chunk, place)
        return self._in_tails.pop(number)

    def end(self) -> None:
        """Check that the messages have claimed all bodies, and finish loading.

        Raises:
            ValueError: a tail has a body that no message has.
        """
        if self._in_tails:
            raise ValueError("there are bodies without messages")
        self._bodies.loaded()


def _checked(first: int, bodies: list[bytes]) -> list[bytes]:
    if type(first) is not int or first < 1 or not bodies or not all(map(as_bytes, bodies)):
        raise ValueError("a record of bodies is malformed")
    return bodies
