"""What can leave memory: the chunks of all queues, of messages and of bodies, in memory or in pages."""

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
"""Bodies that were read from pages are kept in memory up to so many bytes, because others of the same page are read next."""
THIN_MAX = 4
"""So many chunks of bodies of which most has left are gathered again with one batch, so that none takes long."""


class Pager:
    """What the backlogs and the bodies of all queues have in common.

    Attributes:
        sizes: of chunks.
        store: keeps pages; without one everything stays in memory.
        resident_bytes: about what the chunks in line take that are in memory.
        resident_bytes_max: while they take more, `page_out` turns them into pages.
        paged_messages, paged_bytes: how many messages the others hold, and bytes of their bodies.
        paged_body_bytes: bytes of the bodies that are not in memory though their messages are.
        idle_bytes: bytes of bodies in memory that have left their queues.
        loads_total, pages_total: chunks that were loaded from their pages, and turned into pages.
        thin: chunks of bodies of which most has left, the one with the lowest sequence first.
    """

    def __init__(self, stock: Totals) -> None:
        """`totals` is what all queues hold."""
        self._stock = stock
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
        self.thin: list[tuple[int, int, ref[BodyChunk]]] = []
        # By the lowest sequence of each, which no other has.
        self._in_line: dict[int, Chunk] = {}
        # Chunks in memory, the one that was filled last at the end: it will be needed last. Those that have left are not kept
        # alive by this list.
        self._resident: list[ref[Pageable]] = []
        self._body_count = 0
        self._by_first: dict[int, BodyChunk] = {}
        # Those whose pages somebody may want to read, which may be in a queue no more.
        self._with_pages: WeakSet[BodyChunk] = WeakSet()
        self._read_back: OrderedDict[BodyChunk, list[bytes]] = OrderedDict()
        self._read_back_bytes = 0
        self._tie = count()

    def __len__(self) -> int:
        """How many chunks are in line."""
        return len(self._in_line) + self._body_count

    def is_crowded(self) -> bool:
        """Whether all queues together hold so much that short lines get backlogs, too."""
        stock = self._stock
        return stock.body_bytes + backlog.MESSAGE_BYTES * stock.messages >= self.sizes.crowd_bytes

    # --- in memory, or not ----------------------------------------------------------------------------------------

    def page_out(self, limit: int) -> int:
        """Turn up to `limit` chunks into pages while those in memory take too much; returns how many."""
        done = 0
        store = self.store
        while store is not None and self._resident and done < limit and self.resident_bytes > self.resident_bytes_max:
            chunk = self._resident[-1]()
            if chunk is not None and chunk.in_line and chunk.is_here():
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

    def save(self, chunk: Pageable) -> None:
        """Have the store keep a chunk in line, unless it does."""
        if not chunk.page and chunk.is_here():
            self.save_columns(chunk, chunk.columns())
            if self.resident_bytes > 2 * self.resident_bytes_max:
                # `page_out` lags behind what comes, so it does not matter which chunk is needed last.
                self._let_go(chunk)

    def save_columns(self, chunk: Pageable, columns: Columns) -> None:
        """Have the store keep a chunk whose columns these are."""
        assert self.store is not None  # noqa: S101 - for the type checker
        chunk.page = self.store.save(columns)
        self.pages_total += 1
        if isinstance(chunk, BodyChunk):
            self._with_pages.add(chunk)

    def pages(self) -> Iterator[bytes]:
        """The pages that are needed: those of all chunks in line, and of bodies that are about to be read."""
        chunks: Iterator[Pageable] = chain(self._in_line.values(), list(self._with_pages))
        return (chunk.page for chunk in chunks if chunk.page)

    def lows(self) -> dict[bytes, int]:
        """By what nodes call each page besides its name: the lowest sequence of messages, the negated first one of bodies."""
        lows = {chunk.page: low for low, chunk in self._in_line.items() if chunk.page}
        lows.update((chunk.page, -first) for first, chunk in self._by_first.items() if chunk.page)
        return lows

    def save_chunk(self, low: int) -> None:
        """Have the store keep the chunk that `lows` calls so, if there is one."""
        chunk = self._in_line.get(low) if low > 0 else self._by_first.get(-low)
        if chunk is not None:
            self.save(chunk)

    def _let_go(self, chunk: Pageable) -> None:
        """Keep a chunk in line, which has a page, in memory no more."""
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
        """A chunk was filled, or came with a snapshot."""
        self._in_line[chunk.low] = chunk
        self._came(chunk)

    def left(self, chunk: Chunk) -> None:
        """A chunk has left the line."""
        del self._in_line[chunk.low]
        self._went(chunk)

    def messages_in(self, chunk: Chunk) -> list[Message]:
        """The messages of a chunk; if they are not in memory, as they are in its page.

        Raises:
            PageError: the page cannot be had.
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
        """The chunk's turn comes soon."""
        if chunk.messages is None and self.store is not None:
            self.store.want(chunk.page)

    # --- bodies ---------------------------------------------------------------------------------------------------

    def bodies_joined(self, chunk: BodyChunk) -> None:
        """There is another chunk of bodies."""
        self._body_count += 1
        self._by_first[chunk.first] = chunk
        if chunk.page:
            self._with_pages.add(chunk)
        self._came(chunk)

    def bodies_left(self, chunk: BodyChunk) -> None:
        """The state has a chunk of bodies no more."""
        self._body_count -= 1
        if self._by_first.get(chunk.first) is chunk:
            del self._by_first[chunk.first]
        self._went(chunk)
        self._forget(chunk)

    def body_died(self, chunk: BodyChunk, size: int) -> None:
        """A body of a chunk has left its queue."""
        if chunk.is_here():
            self.idle_bytes += size
        else:
            self.paged_body_bytes -= size
        was_thin = 2 * (chunk.live_bytes + size) < chunk.size_bytes
        if chunk.is_thin() and chunk.live_bytes and not was_thin:
            self._note_thin(chunk)

    def body_lives(self, chunk: BodyChunk, size: int) -> None:
        """A body of a chunk that came with a snapshot was found to be in its queue."""
        if chunk.is_here():
            self.idle_bytes -= size
        else:
            self.paged_body_bytes += size

    def bodies_loaded(self, chunk: BodyChunk) -> None:
        """All bodies of a chunk that came with a snapshot are known."""
        if chunk.is_thin():
            self._note_thin(chunk)

    def _note_thin(self, chunk: BodyChunk) -> None:
        heappush(self.thin, (chunk.first, next(self._tie), ref(chunk)))
        if not chunk.is_at_hand() and self.store is not None:
            self.store.want(chunk.page)

    def absent_thin(self) -> list[BodyChunk]:
        """Those chunks that `gather_again` takes next and that are not at hand."""
        thin = list[tuple[int, int, ref[BodyChunk]]]()
        chunks = list[BodyChunk]()
        while self.thin and len(thin) < THIN_MAX:
            entry = heappop(self.thin)
            chunk = entry[2]()
            # Those that have left are nobody's business any more.
            if chunk is not None and chunk.in_line:
                thin.append(entry)
                chunks.append(chunk)
        for entry in thin:
            heappush(self.thin, entry)
        return [chunk for chunk in chunks if not chunk.is_at_hand()]

    def gather_again(self, touched: Callable[[HasName], object]) -> None:
        """Gather what is left of some thin chunks, whose queues are told to `touched` before.

        Raises:
            PageError: the page of one cannot be had. If it stayed as it is, this node would have other pages than the
                others, which then could not replace them. `prefetch` tells which pages these are before.
        """
        done = 0
        while self.thin and done < THIN_MAX:
            chunk = heappop(self.thin)[2]()
            if chunk is not None and chunk.in_line:
                touched(chunk.owner.queue)
                chunk.owner.gather_again(chunk)
                done += 1

    def is_at_hand(self, chunk: BodyChunk) -> bool:
        """Whether the bodies of a chunk that is not in memory have been read lately."""
        return chunk in self._read_back

    def bodies_in(self, chunk: BodyChunk) -> list[bytes]:
        """The bodies of a chunk that is not in memory.

        Raises:
            PageError: the page cannot be had.
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
