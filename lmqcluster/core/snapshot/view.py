"""The state at one moment as records, while the machine continues.

Opening a view visits no queue. A queue's containers, not its messages, are copied when a command is about to change
it or when the reader reaches it, whichever is first. Fields of messages that change afterwards are saved in a table
of pre-images, which the view reads instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from heapq import heappop
from itertools import groupby, islice
from operator import attrgetter
from types import TracebackType
from typing import Any, Self

from ..messages.bodies import Body
from ..messages.columns import Columns, meta_bytes, meta_runs, part_row
from ..messages.message import Message, Meta, Part, RichMessage, Traits, content_bytes, content_count, loaded
from ..messages.pages import Pageable
from ..messages.pre_images import PreImages
from ..queue.counters import COUNTERS
from ..queue.paged_tail import Chunk
from ..queue.queue import Queue
from ..state.state import State
from .frozen_bodies import FrozenBodies

__all__ = ["FORMAT", "SnapshotView"]

FORMAT = 1
"""The format of the records; see `records`."""

_ROWS_MAX = 500
_BODY_BYTES_MAX = 256 * 1024
_PART_OVERHEAD_BYTES = 16
_PAGES_MAX = 1
"""Chunks that one record names. Each may have to be turned into a page, which takes about a millisecond."""
_ONLY_BYTES = {bytes}

_counters_of = attrgetter(*COUNTERS)


class SnapshotView:
    """The state of a machine as of the moment when the view was made.

    With pre-images the machine may change while the view is read; without, it must not. The view must always be
    closed.

    Attributes:
        revision: queues with a lower one have not been touched since the view was opened.
        pages: the pages named by the records read so far.
    """

    def __init__(
        self, state: State, pre_images: PreImages | None = None, revision: int = 0, *, pages: bool = False
    ) -> None:
        """Open the view. With `pages`, backlogs are written as names of pages in the machine's store instead of messages."""
        self.revision = revision
        self.pages: list[bytes] = []
        self._named = self.pages if pages and state.pager.store is not None else None
        self._state: State | None = state
        self._pre_images = pre_images
        self._begun = False
        self._header = _header(state)
        self._tables: list[tuple[str, Iterator[list[Any]]]] = [
            ("sessions", state.node_sequences.rows()),
            ("producers", state.producers.rows()),
            ("refused", state.producers.refused.rows()),
            ("keys", state.keys.rows()),
            ("exact keys", state.keys.exact.rows()),
            ("sent", state.sent.rows()),
            ("received", state.received.rows()),
            ("endings", state.endings.rows()),
            ("batches", state.batches.rows()),
            ("tokens", state.tokens.rows()),
            ("jobs", state.marks.job_rows()),
            ("unclaimed", state.marks.unclaimed_rows()),
            ("marks", state.marks.rows()),
            ("bindings", state.bindings.rows()),
            ("client_sessions", state.sessions.rows()),
            ("session_leases", state.sessions.lease_rows()),
            ("claims", state.claims.rows()),
            ("locks", state.locks.rows()),
            ("lock_tokens", state.locks.token_rows()),
            ("waiting_pushes", state.waiting_pushes.rows()),
            ("gaining", iter([[name] for name in sorted(state.waiting_pushes.gaining)])),
            ("poll limits", iter([state.poll_limits.row()])),
            ("api keys", state.api_keys.rows()),
            ("times", state.times.rows()),
            ("schedule clock", iter([*state.schedules.clock_rows()])),
            ("schedules", state.schedules.rows()),
            ("move tasks", state.move_tasks.rows()),
        ]
        self._names = state.names.frozen()
        # Queues that were touched before the reader reached them.
        self._frozen: dict[bytes, _FrozenQueue] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def records(self) -> Iterator[list[Any]]:
        """Yield the records, only once: each is dropped after it was yielded.

        A record holds at most 500 rows and about 256 KiB of bodies, or one message.

        Raises:
            RuntimeError: the records were requested before, or the view is closed.
        """
        if self._begun:
            raise RuntimeError("the records of a snapshot view can be read only once")
        self._begun = True
        return self._counted()

    def close(self) -> None:
        """Release all copies; the machine stops keeping pre-images. Closing again is a no-op."""
        state, self._state = self._state, None
        if state is None:
            return
        for frozen in self._frozen.values():
            frozen.release()
        self._frozen.clear()
        self._names.clear()
        self._tables.clear()
        self._pre_images = None
        state.view_closed(self)

    def _counted(self) -> Iterator[list[Any]]:
        count = 0
        for record in self._body():
            if self._state is None:
                raise RuntimeError("the snapshot view is closed")
            yield record
            count += 1
        if self._state is None:
            raise RuntimeError("the snapshot view is closed")
        yield ["end", count]

    def _body(self) -> Iterator[list[Any]]:
        yield self._header
        for kind, rows in self._tables:
            yield from _slices(kind, rows)
        for block in self._names:
            for name in block:
                state = self._state
                if state is None:
                    # The view was closed during iteration.
                    return
                frozen = self._reached(state, name)
                yield from frozen.records()
                frozen.release()
                self._frozen.pop(name, None)

    def freeze(self, queue: Queue) -> None:
        """Save the state of a queue before its first change since the view was opened."""
        self._frozen[queue.name] = self._frozen_queue(queue)

    def _reached(self, state: State, name: bytes) -> _FrozenQueue:
        if self._pre_images is None:
            return self._frozen_queue(state.queues[name])
        if name not in self._frozen:
            state.touched(state.queues[name])
        return self._frozen[name]

    def _frozen_queue(self, queue: Queue) -> _FrozenQueue:
        return _FrozenQueue(queue, self._pre_images, self._named)


class _FrozenQueue:
    """Copies of one queue's containers, emptied as they are read."""

    __slots__ = (
        "_bodies",
        "_chunks",
        "_common",
        "_delayed",
        "_fair",
        "_holding",
        "_index",
        "_leased",
        "_lines",
        "_named",
        "_numbers",
        "_parts",
        "_pre_images",
        "_queue",
        "_ready",
        "_record",
        "_tagged",
        "_tail",
        "_window",
    )

    def __init__(self, queue: Queue, pre_images: PreImages | None, named: list[bytes] | None) -> None:
        self._queue = queue
        self._record = _queue_record(queue)
        self._window = queue.store.window
        self._parts = content_count(queue.store.window.content) if queue.store.window is not None else 0
        self._ready = queue.store.ready.copy()
        self._common = queue.store.pager
        self._chunks = None if queue.store.backlog is None else queue.store.backlog.chunks.copy()
        self._tail = deque(() if queue.store.backlog is None else queue.store.backlog.tail)
        self._named = named
        self._bodies = (
            FrozenBodies(queue.store.gathered) if named is not None and queue.store.gathered is not None else None
        )
        self._delayed = queue.store.delayed.copy()
        self._numbers = deque(queue.store.leases.messages)
        self._leased = deque(queue.store.leases.messages.values())
        rich = queue.store.rich
        self._holding = set() if rich is None else {message.sequence for message in rich.holding}
        self._fair = (
            None if rich is None or rich.fair is None else (rich.fair.last_turn, rich.fair.era, rich.fair.rows())
        )
        index = None if rich is None else rich.index
        self._index = None if index is None else index.row()
        self._tagged = deque([] if index is None else index.frozen())
        self._lines = [] if rich is None else [(kind, deque(line.frozen())) for kind, line in rich.lines()]
        self._pre_images = pre_images
        if pre_images is not None:
            queue.pre_images = pre_images

    def release(self) -> None:
        """Stop keeping pre-images of the queue."""
        if self._pre_images is not None:
            self._queue.pre_images = None

    def records(self) -> Iterator[list[Any]]:
        """Yield the queue's record and those of its messages."""
        yield self._record
        if self._bodies is not None:
            yield from self._bodies.records(self._named_page, _PAGES_MAX)
        if self._index is not None:
            yield ["index", *self._index]
        while self._tagged:
            yield ["tags", [list(self._tagged.popleft()) for _ in range(min(_ROWS_MAX, len(self._tagged)))]]
        while self._ready:
            for columns in self._columns(_taken(self._ready)):
                yield ["ready", *columns]
        if self._chunks is not None:
            yield from self._backlog(self._chunks)
        while self._delayed:
            # The heap yields them in order, a few at a time; sorting all at once could take long.
            due = [heappop(self._delayed)[2] for _ in range(min(_ROWS_MAX, len(self._delayed)))]
            for columns in self._columns(due):
                yield ["delayed", *columns]
        if self._fair is not None:
            last_turn, era, groups = self._fair
            yield ["fair groups", last_turn, era]
            for start in range(0, len(groups), _ROWS_MAX):
                yield ["fair group", groups[start : start + _ROWS_MAX]]
        while self._leased:
            for columns in self._columns(_taken(self._leased), leased=True):
                yield ["leased", [self._numbers.popleft() for _ in columns[0]], *columns]
        yield from self._rich_lines()

    def _rich_lines(self) -> Iterator[list[Any]]:
        for kind, blocks in self._lines:
            while blocks:
                messages = deque(entry[-1] for entry in blocks.popleft())
                while messages:
                    for columns in self._columns(_taken(messages)):
                        yield [kind, *columns]

    def _backlog(self, chunks: deque[Chunk]) -> Iterator[list[Any]]:
        yield ["backlog"]
        while chunks and self._named is None:
            messages = self._common.messages_in(chunks.popleft())
            yield ["chunk", *self._slice(messages, leased=False)]
        while chunks:
            rows = [self._page_row(chunks.popleft()) for _ in range(min(_PAGES_MAX, len(chunks)))]
            yield ["pages", rows]
        while self._tail:
            for columns in self._columns(_taken(self._tail)):
                yield ["ready", *columns]

    def _page_row(self, chunk: Chunk) -> list[object]:
        """Return the row of a chunk after writing its page if needed."""
        if not chunk.in_line and not chunk.page and chunk.messages is not None:
            # It has left the line since the view was opened, and its messages may have changed.
            self._common.save_columns(chunk, self._slice(chunk.messages, leased=False))
        self._named_page(chunk)
        return chunk.row()

    def _named_page(self, chunk: Pageable) -> bytes:
        """Return the page of an object that a record is about to name; write it if needed."""
        assert self._named is not None  # noqa: S101 - for the type checker
        if chunk.in_line:
            self._common.save(chunk)
        elif not chunk.page:
            self._common.save_columns(chunk, chunk.columns())
        self._named.append(chunk.page)
        return chunk.page

    def _columns(self, messages: list[Message], *, leased: bool = False) -> list[Columns]:
        """Return the messages as columns, in slices of bounded size.

        Built without a pause, so that no message can change between reading its pre-image and its fields.
        """
        return [self._slice(part, leased=leased) for part in self._bounded(messages)]

    def _bounded(self, messages: list[Message]) -> Iterator[list[Message]]:
        contents: list[Any] = [message.content for message in messages]
        metas = self._metas(messages)
        runs = groupby(metas)
        size = sum(meta_bytes(meta) for meta, _ in runs)
        if set(map(type, contents)) == _ONLY_BYTES and size + sum(map(len, contents)) <= _BODY_BYTES_MAX:
            yield messages
            return
        part: list[Message] = []
        size = 0
        for message, meta in zip(messages, metas, strict=True):
            added = meta_bytes(meta) + self._content_bytes(message)
            if part and size + added > _BODY_BYTES_MAX:
                yield part
                part, size = [], 0
            part.append(message)
            size += added
        yield part

    def _metas(self, messages: list[Message]) -> list[Meta]:
        if self._pre_images is not None and self._pre_images.table:
            return list(map(self._pre_images.meta, messages))
        return [message.meta for message in messages]

    def _slice(self, messages: list[Message], *, leased: bool) -> Columns:
        if self._pre_images is not None and self._pre_images.table:
            states = list(map(self._pre_images.take, messages))
            due, ready, remaining, delivered, first, metas = (list(column) for column in zip(*states, strict=True))
        else:
            due = [message.due_us for message in messages]
            ready = [message.ready_us for message in messages] if leased else []
            remaining = [message.remaining for message in messages]
            delivered = [message.delivered for message in messages]
            first = [message.first_us if isinstance(message, RichMessage) else 0 for message in messages]
            metas = [message.meta for message in messages]
        sequences = [message.sequence for message in messages]
        columns = [sequences, due, remaining, meta_runs(metas), self._contents(messages)]
        if leased:
            # Only a leased message has a different due time to return to; all others are due at their ready time.
            columns.append(ready)
        pushed = [message.pushed_us for message in messages]
        # Columns of default values are left empty.
        return [
            *columns,
            [] if pushed == due else pushed,
            delivered if any(delivered) else [],
            _traits_runs(messages, due, first, self._holding if leased else ()),
        ]

    def _contents(self, messages: list[Message]) -> list[Any]:
        return [
            message.content if isinstance(message.content, bytes) else self._content(message) for message in messages
        ]

    def _content(self, message: Message) -> Any:
        """Return the parts of a compound message, a body, or the number of a body that other records hold."""
        content = message.content
        if isinstance(content, list):
            return [part_row(part) for part in self._parts_of(message, content)]
        number = self._number(content)
        return loaded(content) if number is None else number

    def _number(self, content: bytes | Body) -> int | None:
        return self._bodies.number(content) if self._bodies is not None and isinstance(content, Body) else None

    def _parts_of(self, message: Message, content: list[Part]) -> Iterable[Part]:
        # The window may have grown since.
        return islice(content, self._parts) if message is self._window else content

    def _content_bytes(self, message: Message) -> int:
        content = message.content
        if isinstance(content, list):
            parts = self._parts_of(message, content)
            return sum(len(part.content) + meta_bytes(part[:2]) + _PART_OVERHEAD_BYTES for part in parts)
        return content_bytes(content) if self._number(content) is None else 0


def _header(state: State) -> list[Any]:
    return [
        "lmqcluster",
        FORMAT,
        state.version,
        state.now_us,
        state.salt,
        state.last_delivery,
        state.last_sequence,
        state.endings.floor,
        state.defaults.rows(),
        [state.retired[counter] for counter in COUNTERS],
        [state.batches.last_session, *_last_numbers(state)],
        state.defaults.row(),
    ]


def _last_numbers(state: State) -> list[int]:
    last = [state.sessions.last, state.locks.last_token, state.waiting_pushes.last]
    return [*last, state.deleted_total, state.aged_total, state.move_tasks.last]


def _queue_record(queue: Queue) -> list[Any]:
    window = queue.store.window.sequence if queue.store.window is not None else 0
    own = [list(pair) for pair in sorted(queue.own.items())]
    state = [int(queue.suspended), queue.watched_us, queue.owner, queue.idle_us]
    state += [queue.created_us, int(queue.store.rich is not None), queue.limits.full_ns, queue.changed_us]
    state.append([[name.encode(), value.encode()] for name, value in sorted(queue.annotations.items())])
    return ["queue", queue.name, own, window, list(_counters_of(queue.counters)), *state]


def _traits_runs(messages: list[Message], due: list[int], first: list[int], holding: Collection[int]) -> list[Any]:
    """Return [count, traits or None, place, first delivery, holds others] of consecutive messages; empty if none has any.

    `holding` are the sequences of those that hold others of their group.
    """
    holds = [int(message.sequence in holding) for message in messages]
    runs = [
        [len(list(run)), traits and [*traits[:-1], traits.origin and list(traits.origin)], *times]
        for (traits, *times), run in groupby(map(_traits_and_times, messages, due, first, holds))
    ]
    return [] if len(runs) == 1 and runs[0][1] is None else runs


def _traits_and_times(message: Message, due_us: int, first_us: int, holds: int) -> tuple[Traits | None, int, int, int]:
    if not isinstance(message, RichMessage):
        return None, 0, 0, 0
    has_place = message.traits.group and message.place_us != due_us
    return message.traits, message.place_us if has_place else 0, first_us, holds


def _slices(kind: str, rows: Iterable[Any]) -> Iterator[list[Any]]:
    part: list[Any] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row[-1]) if isinstance(row[-1], bytes) else 0
        if len(part) == _ROWS_MAX or size > _BODY_BYTES_MAX:
            yield [kind, part]
            part, size = [], 0
    if part:
        yield [kind, part]


def _taken(messages: deque[Message]) -> list[Message]:
    return [messages.popleft() for _ in range(min(_ROWS_MAX, len(messages)))]
