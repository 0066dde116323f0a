"""A digest of a sample of queue contents; many digests together cover all of it.

The sample follows from a number that all replicas share: some consecutive queues, and of each of their lines some
consecutive messages. Content that may be paged out on one replica and in memory on another is compared by its
metadata alone, since a page has a checksum: chunks of long lines, and bodies of more than 1 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from ..messages.message import Content, Message, RichMessage, content_bytes
from ..queue.counters import COUNTERS
from ..queue.paged_tail import Chunk
from ..queue.queue import Queue
from .state import State

__all__ = ["part_of_contents"]

QUEUES = 100
"""Most queues of one digest."""
MESSAGES = 1_000
"""Approximate number of messages of one digest, after which no further queue is visited."""
_KEYS = 20
"""Rows of exact keys of one queue."""
_WINDOW = 200
"""Most messages of one line."""
_SKIPPED_MAX = 100_000
"""Most messages of a line that are skipped, because it must be walked; the rest is compared once they are gone."""


def part_of_contents(state: State, number: int) -> Iterator[bytes]:
    """Yield a text of each item that the digest of this number covers, in the same order on all replicas."""
    start = number % max(1, len(state.queues))
    names = state.names.from_place(start, QUEUES)
    left = MESSAGES
    for name in names + state.names.from_place(0, min(start, QUEUES - len(names))):
        if left <= 0:
            break
        queue = state.queues[name]
        yield repr((*_summary(queue), state.keys.exact.sample(name, _KEYS))).encode()
        for line in _lines(queue, number, state.pager.sizes.body):
            left -= 1
            yield repr(line).encode()


def _summary(queue: Queue) -> tuple[Any, ...]:
    rich, window, backlog = queue.store.rich, queue.store.window, queue.store.backlog
    return (
        *(queue.name, queue.owner, sorted(queue.own.items()), queue.settings, queue.suspended, queue.special),
        *(
            sorted(queue.annotations.items()),
            queue.created_us,
            queue.changed_us,
            queue.idle_us,
            queue.watched_us,
            [getattr(queue.counters, counter) for counter in COUNTERS],
        ),
        *(
            queue.store.bodies,
            queue.store.body_bytes,
            queue.pushes_waiting,
            None if window is None else window.sequence,
        ),
        *(
            len(queue.store.ready),
            0 if backlog is None else len(backlog),
            len(queue.store.delayed),
            len(queue.store.leases),
        ),
        None
        if rich is None
        else (len(rich.waiting), len(rich.scheduled), len(rich.held), len(rich), rich.leased_bytes),
    )


def _lines(queue: Queue, number: int, body_bytes_max: int) -> Iterator[tuple[Any, ...]]:
    for message in _window(queue.store.ready, len(queue.store.ready), number):
        yield _row(message, body_bytes_max)
    if queue.store.backlog is not None:
        for chunk in _window(queue.store.backlog.chunks, len(queue.store.backlog.chunks), number):
            yield _chunk_row(chunk)
        for message in _window(queue.store.backlog.tail, len(queue.store.backlog.tail), number):
            yield _row(message, body_bytes_max)
    for message in _first_of_heap(queue.store.delayed):
        yield _row(message, body_bytes_max)
    for delivery, message in _window(queue.store.leases.messages.items(), len(queue.store.leases), number):
        yield (delivery, message.ready_us, *_row(message, body_bytes_max))
    if queue.store.rich is not None:
        for _, line in queue.store.rich.lines():
            for message in _window(line, len(line), number):
                yield _row(message, body_bytes_max)


def _window(line: Iterable[Any], length: int, number: int) -> Iterator[Any]:
    """Yield some items of a line with `length` items."""
    start = 0 if length <= _WINDOW else number % min(length, _SKIPPED_MAX)
    return islice(line, start, start + _WINDOW)


def _first_of_heap(heap: list[tuple[int, int, Message]]) -> Iterator[Message]:
    """Yield the first messages of a heap in order; replicas have the same ones, in other places."""
    places = [(heap[0][:2], 0)] if heap else []
    for _ in range(min(len(heap), _WINDOW)):
        _, place = heappop(places)
        yield heap[place][2]
        for child in (2 * place + 1, 2 * place + 2):
            if child < len(heap):
                heappush(places, (heap[child][:2], child))


def _row(message: Message, body_bytes_max: int) -> tuple[Any, ...]:
    traits = times = None
    if isinstance(message, RichMessage):
        traits, times = message.traits, (message.place_us if message.traits.group else 0, message.first_us)
    return (
        *(message.sequence, message.due_us, message.remaining, message.delivered, message.pushed_us, message.meta),
        *_content(message.content, body_bytes_max),
        traits and (*traits[:-1], traits.origin and tuple(traits.origin)),
        times,
    )


def _content(content: Content, body_bytes_max: int) -> tuple[Any, ...]:
    if isinstance(content, list):
        parts = [(part.content_type, part.attributes, part.content[:body_bytes_max]) for part in content[:_WINDOW]]
        return len(content), content_bytes(content), parts
    size = content_bytes(content)
    return size, content if isinstance(content, bytes) and size < body_bytes_max else None


def _chunk_row(chunk: Chunk) -> tuple[int, ...]:
    return chunk.count, chunk.bodies, chunk.body_bytes, chunk.low, chunk.high
