"""The gathered bodies of one queue at the moment a snapshot view reaches it, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..messages.bodies import Body, BodyChunk, QueueBodies

__all__ = ["FrozenBodies"]


class FrozenBodies:
    """The places of bodies, frozen while the queue continues to gather."""

    __slots__ = ("_chunks", "_numbers", "_tails")

    def __init__(self, bodies: QueueBodies) -> None:
        self._chunks = [(chunk, chunk.lives.copy()) for chunk in bodies.chunks]
        self._tails = [
            (None if tail is bodies.again else tail.key, tail.first, held) for tail, held in bodies.frozen_tails()
        ]
        self._numbers: dict[Body, int] = {}

    def records(self, page_of: Callable[[BodyChunk], bytes], rows_max: int) -> Iterator[list[Any]]:
        """Yield the records; afterwards `number` knows the bodies. `page_of` returns a chunk's page and writes it if needed."""
        count = 0
        chunks, self._chunks = self._chunks[::-1], []
        while chunks:
            rows: list[Any] = []
            for _ in range(min(rows_max, len(chunks))):
                chunk, lives = chunks.pop()
                self._numbers.update((body, count + place) for place, body in enumerate(lives) if body is not None)
                count += len(lives)
                rows.append([page_of(chunk), chunk.first, list(chunk.sizes)])
            yield ["body pages", rows]
        tails, self._tails = self._tails, []
        for key, first, held in tails:
            self._numbers.update((body, count + place) for place, (body, _) in enumerate(held))
            count += len(held)
            priority, due = key or (None, 0)
            yield ["body tail", priority, due, first, [data for _, data in held]]

    def number(self, body: Body) -> int | None:
        """Return the place of a body among all those in the records; None if it was gathered later."""
        return self._numbers.get(body)
