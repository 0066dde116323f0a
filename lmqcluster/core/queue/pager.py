"""Paging: the chunks of messages and bodies of all queues, in memory or in pages."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, count
from typing import Any
from weakref import WeakSet, ref

from ..messages.bodies import BodyChunk, HasName
from ..messages.columns import Columns, messages_of
from ..messages.message import Message
from ..messages.pages import Pageable, PageError, PageStore
from ..messages.totals import Totals
from . import paged_tail as backlog
from .paged_tail import Chunk

__all__ = ["Pager"]

READ_BACK_BYTES = 16 << 20
"""Cache size for bodies that were read from pages: others of the same page are likely to be read next."""
SPARSE_MAX = 4
"""Number of sparse body chunks that one batch gathers again, which bounds the time it takes."""


class Pager:
    """The paging state shared by the backlogs and the bodies of all queues.

    Attributes:
        sizes: of chunks.
        store: keeps pages; without one everything stays in memory.
        resident_bytes: approximate memory of the chunks in line that are resident.
        resident_bytes_max: while they take more, `page_out` turns them into pages.
        paged_messages, paged_bytes: number of messages in the other chunks, and bytes of their bodies.
        paged_body_bytes: bytes of the bodies that are not in memory though their messages are.
        idle_bytes: bytes of bodies in memory that have left their queues.
        loads_total, pages_total: chunks that were paged in, and turned into pages.
        sparse: body chunks more than half of whose bytes have left, the one with the lowest sequence first.
    """

    def __init__(self, totals: Totals) -> None:
        """Create the pager; `totals` holds the totals of all queues."""
        self._totals = totals
        self.sizes = backlog.CHUNK_SIZES
        self.store: PageStore | None = None
        self.resident_bytes = 0
        self.resident_bytes_max = sys.maxsize
        self.paged_messages = 0
        self.paged_bytes = 0
        self.paged_body_bytes = 0
        self.idle_bytes = 0
        self.loads_total = 0
        self.pages_total = 0
        self.sparse: list[tuple[int, int, ref[BodyChunk]]] = []
        # By the lowest sequence of each chunk, which is unique.
        self._in_line: dict[int, Chunk] = {}
        # Resident chunks, the one that was filled last at the end because it is needed last. Weak references: the
        # list does not keep chunks alive that have left.
        self._resident: list[ref[Pageable]] = []
        self._body_count = 0
        self._by_first: dict[int, BodyChunk] = {}
        # Chunks whose pages may still be read, although they may have left their queues.
        self._with_pages: WeakSet[BodyChunk] = WeakSet()
        self._read_back: OrderedDict[BodyChunk, list[bytes]] = OrderedDict()
        self._read_back_bytes = 0
        self._tie = count()

    def __len__(self) -> int:
        """Return the number of chunks in line."""
        return len(self._in_line) + self._body_count

    def is_crowded(self) -> bool:
        """Return whether all queues together hold so much that short lines get backlogs too."""
        totals = self._totals
        return totals.body_bytes + backlog.MESSAGE_BYTES * totals.messages >= self.sizes.crowd_bytes

    # --- in memory, or not ----------------------------------------------------------------------------------------

    def page_out(self, limit: int) -> int:
        """Turn up to `limit` chunks into pages while resident ones exceed the limit; return how many."""
        done = 0
        store = self.store
        while store is not None and self._resident and done < limit and self.resident_bytes > self.resident_bytes_max:
            chunk = self._resident[-1]()
            if chunk is not None and chunk.in_line and chunk.is_here():
                if not chunk.page and store.is_busy():
                    break
                self.save(chunk)
                self._release_bodies(chunk)
                done += 1
            self._resident.pop()
        return done

    def is_flooded(self) -> bool:
        """Return whether resident chunks exceed their limit by a quarter because `page_out` lags behind the pushes."""
        return 4 * self.resident_bytes > 5 * self.resident_bytes_max

    def save(self, chunk: Pageable) -> None:
        """Write a chunk in line to the store unless it has a page."""
        if not chunk.page and chunk.is_here():
            self.save_columns(chunk, chunk.columns())
            if self.resident_bytes > 2 * self.resident_bytes_max:
                # `page_out` lags behind the pushes, so the order of eviction no longer matters.
                self._release_bodies(chunk)

    def save_columns(self, chunk: Pageable, columns: Columns) -> None:
        """Write a chunk with these columns to the store."""
        assert self.store is not None  # noqa: S101 - for the type checker
        chunk.page = self.store.save(columns)
        self.pages_total += 1
        if isinstance(chunk, BodyChunk):
            self._with_pages.add(chunk)

    def pages(self) -> Iterator[bytes]:
        """Return the pages that are needed: those of all chunks in line, and of bodies about to be read."""
        chunks: Iterator[Pageable] = chain(self._in_line.values(), list(self._with_pages))
        return (chunk.page for chunk in chunks if chunk.page)

    def lows(self) -> dict[bytes, int]:
        """Return the key of each page that all nodes share: the lowest sequence of messages, the negated first one of bodies."""
        lows = {chunk.page: low for low, chunk in self._in_line.items() if chunk.page}
        lows.update((chunk.page, -first) for first, chunk in self._by_first.items() if chunk.page)
        return lows

    def save_chunk(self, low: int) -> None:
        """Write the chunk with this key of `lows` to the store, if there is one."""
        chunk = self._in_line.get(low) if low > 0 else self._by_first.get(-low)
        if chunk is not None:
            self.save(chunk)

    def _release_bodies(self, chunk: Pageable) -> None:
        """Evict a chunk in line that has a page."""
        if chunk.is_here():
            self.resident_bytes -= chunk.memory_bytes()
            self._count_idle(chunk, -1)
            chunk.let_go()
            self._count_paged(chunk, 1)

    def _came(self, chunk: Pageable) -> None:
        if chunk.is_here():
            self.resident_bytes += chunk.memory_bytes()
            self._count_idle(chunk, 1)
            self._resident.append(ref(chunk))
        else:
            self._count_paged(chunk, 1)

    def _went(self, chunk: Pageable) -> None:
        chunk.in_line = False
        if not chunk.is_here():
            self._count_paged(chunk, -1)
            return
        self.resident_bytes -= chunk.memory_bytes()
        self._count_idle(chunk, -1)
        if len(self._resident) > 2 * len(self) + 64:
            kept = ((one, one()) for one in self._resident)
            self._resident = [one for one, found in kept if found is not None and found.in_line and found.is_here()]

    def _count_paged(self, chunk: Pageable, sign: int) -> None:
        if isinstance(chunk, Chunk):
            self.paged_messages += sign * chunk.bodies
            self.paged_bytes += sign * chunk.body_bytes
        elif isinstance(chunk, BodyChunk):
            self.paged_body_bytes += sign * chunk.live_bytes

    def _count_idle(self, chunk: Pageable, sign: int) -> None:
        if isinstance(chunk, BodyChunk):
            self.idle_bytes += sign * (chunk.size_bytes - chunk.live_bytes)

    def _loaded(self, page: bytes) -> list[Any]:
        if self.store is None:
            raise PageError("there is no store for pages", page)
        self.loads_total += 1
        return self.store.load(page)

    # --- messages -------------------------------------------------------------------------------------------------

    def joined(self, chunk: Chunk) -> None:
        """Add a chunk that was filled or came with a snapshot."""
        self._in_line[chunk.low] = chunk
        self._came(chunk)

    def left(self, chunk: Chunk) -> None:
        """Remove a chunk that left the line."""
        del self._in_line[chunk.low]
        self._went(chunk)

    def messages_in(self, chunk: Chunk) -> list[Message]:
        """Return the messages of a chunk; if they are not in memory, read them from its page.

        Raises:
            PageError: the page is unavailable.
        """
        if chunk.messages is not None:
            return chunk.messages
        columns = self._loaded(chunk.page)
        try:
            messages = messages_of(columns)
        except (ValueError, TypeError, LookupError) as exc:
            raise PageError(f"the page {chunk.page.hex()} is malformed: {exc}", chunk.page) from exc
        if len(messages) != chunk.count:
            reason = f"the page {chunk.page.hex()} has {len(messages)} messages and should have {chunk.count}"
            raise PageError(reason, chunk.page)
        return messages

    def want(self, chunk: Chunk) -> None:
        """Prefetch a chunk that is needed soon."""
        if chunk.messages is None and self.store is not None:
            self.store.want(chunk.page)

    # --- bodies ---------------------------------------------------------------------------------------------------

    def bodies_joined(self, chunk: BodyChunk) -> None:
        """Add a chunk of bodies."""
        self._body_count += 1
        self._by_first[chunk.first] = chunk
        if chunk.page:
            self._with_pages.add(chunk)
        self._came(chunk)

    def bodies_left(self, chunk: BodyChunk) -> None:
        """Remove a chunk of bodies that the state no longer has."""
        self._body_count -= 1
        if self._by_first.get(chunk.first) is chunk:
            del self._by_first[chunk.first]
        self._went(chunk)
        self._forget(chunk)

    def body_died(self, chunk: BodyChunk, size: int) -> None:
        """Update the sums after a body has left its queue."""
        if chunk.is_here():
            self.idle_bytes += size
        else:
            self.paged_body_bytes -= size
        was_sparse = 2 * (chunk.live_bytes + size) < chunk.size_bytes
        if chunk.is_sparse() and chunk.live_bytes and not was_sparse:
            self._note_sparse(chunk)

    def body_lives(self, chunk: BodyChunk, size: int) -> None:
        """Update the sums for a body from a snapshot that is still in its queue."""
        if chunk.is_here():
            self.idle_bytes -= size
        else:
            self.paged_body_bytes += size

    def bodies_loaded(self, chunk: BodyChunk) -> None:
        """Note that all bodies of a chunk from a snapshot are known."""
        if chunk.is_sparse():
            self._note_sparse(chunk)

    def _note_sparse(self, chunk: BodyChunk) -> None:
        heappush(self.sparse, (chunk.first, next(self._tie), ref(chunk)))
        if not chunk.is_at_hand() and self.store is not None:
            self.store.want(chunk.page)

    def absent_sparse(self) -> list[BodyChunk]:
        """Return those chunks that `gather_again` takes next and that must be paged in."""
        sparse = list[tuple[int, int, ref[BodyChunk]]]()
        chunks = list[BodyChunk]()
        while self.sparse and len(sparse) < SPARSE_MAX:
            entry = heappop(self.sparse)
            chunk = entry[2]()
            # Chunks that have left need no paging in.
            if chunk is not None and chunk.in_line:
                sparse.append(entry)
                chunks.append(chunk)
        for entry in sparse:
            heappush(self.sparse, entry)
        return [chunk for chunk in chunks if not chunk.is_at_hand()]

    def gather_again(self, touched: Callable[[HasName], object]) -> None:
        """Gather the rest of some sparse chunks; `touched` is called first for each of their queues.

        Raises:
            PageError: a page is unavailable. If the chunk stayed as it is, this node's pages would differ from those
                of the other
                nodes, which could then not replace them. `prefetch` names these pages beforehand.
        """
        done = 0
        while self.sparse and done < SPARSE_MAX:
            chunk = heappop(self.sparse)[2]()
            if chunk is not None and chunk.in_line:
                touched(chunk.owner.queue)
                chunk.owner.gather_again(chunk)
                done += 1

    def is_at_hand(self, chunk: BodyChunk) -> bool:
        """Return whether the bodies of a paged-out chunk are in the read cache."""
        return chunk in self._read_back

    def bodies_in(self, chunk: BodyChunk) -> list[bytes]:
        """Return the bodies of a chunk that is not in memory.

        Raises:
            PageError: the page is unavailable.
        """
        bodies = self._read_back.get(chunk)
        if bodies is not None:
            self._read_back.move_to_end(chunk)
            return bodies
        columns = self._loaded(chunk.page)
        bodies = columns[0] if len(columns) == 1 else []
        if type(bodies) is not list or [len(body) for body in bodies if type(body) is bytes] != list(chunk.sizes):
            raise PageError(f"the page {chunk.page.hex()} does not have the bodies that it should have", chunk.page)
        if chunk.in_line:
            self._keep(chunk, bodies)
        return bodies

    def _keep(self, chunk: BodyChunk, bodies: list[bytes]) -> None:
        self._read_back[chunk] = bodies
        self._read_back_bytes += chunk.size_bytes
        while self._read_back_bytes > READ_BACK_BYTES and len(self._read_back) > 1:
            self._forget(next(iter(self._read_back)))

    def _forget(self, chunk: BodyChunk) -> None:
        if self._read_back.pop(chunk, None) is not None:
            self._read_back_bytes -= chunk.size_bytes
