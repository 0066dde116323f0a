"""Files of pages: messages of long queues that are not in memory.

    file   = magic, format version, payload (zstd)

The payload is the MessagePack of the page's columns, and the file's name is its digest. So damage to a file is
detected, and replicas that hold the same messages have files of the same names. A file is durable only after
`PageFiles.sync`, which precedes every snapshot that names it. A page that no snapshot names is rebuilt from the log.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgpack
import structlog
import xxhash
import zstandard

from ...core.messages.pages import PageError
from .io.disk import Disk
from .io.worker import Worker

__all__ = ["PAGE_BYTES_MAX", "PREFIX", "SUFFIX", "PageFiles", "page_payload"]

log = structlog.get_logger("lmq.pages")

FORMAT = 1
PREFIX = b"\x93LMQPAGE" + struct.pack("<I", FORMAT)
SUFFIX = ".page"
PAGE_BYTES_MAX = 128 * 1024 * 1024
"""Largest page before compression: it holds a few hundred KiB, or one message."""
UNWRITTEN_MAX = 64
UNWRITTEN_BYTES_MAX = 16 * 1024 * 1024
"""Backpressure: no pages are made to save memory while this many, or these bytes, wait for the disk."""
WRITE_BYTES = 1024 * 1024
"""Approximate size of one batch of writes, after which `on_written` is called."""
WANTED_MAX = 64
"""Most pages that wait to be read ahead of need."""
_DAMAGED = ".damaged"
GIVEN_MAX = 1_000
"""Most pages that wait to be read for peers; they ask again."""
_READ_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of pages that were read ahead of need."""
_ZSTD_LEVEL = 1

Done = Callable[[Exception | None], None]
Given = Callable[[bytes | None], None]


def page_payload(stored: bytes, page: bytes) -> bytes:
    """Return the payload of a page's file.

    Raises:
        ValueError: it is not this page.
    """
    if not stored.startswith(PREFIX):
        raise ValueError(f"this is not a page of format {FORMAT}, which this program reads")
    frame = stored[len(PREFIX) :]
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= PAGE_BYTES_MAX:
            raise ValueError("the page does not say its size, or is too large")
        payload: bytes = zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as exc:
        raise ValueError(f"the page cannot be decompressed: {exc}") from exc
    if _digest(payload) != page:
        raise ValueError("the content is not that of the page of this name")
    return payload


class PageFiles:
    """The core's `PageStore` in a folder. All methods are called from the event loop; a thread reads and writes the files.

    Attributes:
        on_lost: called with the name of a page that cannot be read although it will be needed.
        on_written: called when pages that waited for the disk have been written.
        is_writing: whether pages are being written.
        lost: pages that could not be read.
        written_total, written_bytes_total, read_total, removed_total: counters of files.
        late_total: pages that were read only when they were needed.
    """

    def __init__(self, disk: Disk, worker: Worker, *, sync: bool, reader: Worker | None = None) -> None:
        """Prepare the store.

        If `sync` is true, the method `sync` makes files durable. A `reader` reads ahead, so that a snapshot does not
        wait for that.
        """
        self._disk = disk
        self._worker = worker
        self._reader = worker if reader is None else reader
        self._sync = sync
        # Stored bytes by page.
        self._sizes: dict[bytes, int] = {}
        self._unwritten: dict[bytes, bytes] = {}
        self._unsynced: dict[bytes, None] = {}
        # Callbacks by page that is being read.
        self._wanted: dict[bytes, list[Callable[[bool], None]]] = {}
        # Those of them that wait for the thread. It gets one at a time, so that the most urgent one is next.
        self._to_read: deque[bytes] = deque()
        self._reading: bytes | None = None
        # Pages for peers.
        self._to_give: deque[tuple[bytes, Given]] = deque()
        self._is_giving = False
        self._read: OrderedDict[bytes, bytes] = OrderedDict()
        self._read_bytes = 0
        self._pack = msgpack.Packer().pack
        self._failure: Exception | None = None
        self.is_writing = False
        # Callbacks for the end of that.
        self._awaiting: list[Callable[[], None]] = []
        # Sizes of files that were written in this run and are not known to be damaged. Only the thread uses it.
        self._whole: dict[bytes, int] = {}
        self.on_lost: Callable[[bytes], None] = _nothing
        self.on_written: Callable[[], None] = _nobody
        self.lost: set[bytes] = set()
        self._unreadable: set[bytes] = set()
        self.size_bytes = 0
        self.written_total = self.written_bytes_total = self.read_total = self.removed_total = self.late_total = 0

    # --- opening --------------------------------------------------------------------------------------------------

    def open(self, pages: Collection[bytes]) -> list[bytes]:
        """Take over the files of these pages, and remove all others; return the pages that have none.

        Raises:
            OSError: a file cannot be read or removed.
        """
        wanted = {_file_name(page): page for page in pages}
        removed = False
        for name in self._disk.names():
            page = wanted.pop(name, None)
            if page is None:
                self._disk.remove(name)
                removed = True
                continue
            file = self._disk.open(name)
            try:
                self._note_file(page, file.size())
            finally:
                file.close()
        if removed and self._sync:
            self._disk.sync()
        return list(wanted.values())

    def path(self, page: bytes) -> str:
        """Return the path of the page's file, for messages."""
        return self._disk.path(_file_name(page))

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._sizes)

    def __contains__(self, page: bytes) -> bool:
        """Return whether the page is here."""
        return page in self._unwritten or (page in self._sizes and page not in self.lost)

    # --- the core's store -----------------------------------------------------------------------------------------

    def save(self, columns: list[Any]) -> bytes:
        """See `PageStore`."""
        payload = self._pack(columns)
        page = _digest(payload)
        if page not in self:
            self._keep(page, payload)
        return page

    def is_busy(self) -> bool:
        """See `PageStore`."""
        return len(self._unwritten) >= UNWRITTEN_MAX or self._unwritten_bytes() >= UNWRITTEN_BYTES_MAX

    def is_flooded(self) -> bool:
        """Return whether a snapshot has to wait too; pages saved for memory stop at a quarter and cannot starve it."""
        return self._unwritten_bytes() >= 4 * UNWRITTEN_BYTES_MAX

    def _unwritten_bytes(self) -> int:
        return sum(map(len, self._unwritten.values()))

    def when_written(self, done: Callable[[], None]) -> None:
        """Call `done` when the current write has ended, even if it failed."""
        self._awaiting.append(done)

    def load(self, page: bytes) -> list[Any]:
        """See `PageStore`."""
        payload = self._unwritten.get(page)
        if payload is None:
            payload = self._read.pop(page, None)
            if payload is not None:
                self._read_bytes -= len(payload)
        if payload is None:
            self.late_total += 1
            try:
                payload = self._payload(page)
            except (OSError, ValueError) as exc:
                self._unreadable.add(page)
                self._lose(page, exc)
                raise PageError(
                    f"the page {self.path(page)} cannot be read: {exc}; the next start has it come from another node",
                    page,
                ) from exc
        columns: list[Any] = msgpack.unpackb(payload, strict_map_key=False)
        return columns

    def set_aside(self) -> None:
        """Rename damaged files, so that the next start misses them and gets their pages from other nodes."""
        for page in self._unreadable & self._sizes.keys():
            try:
                self._disk.rename(_file_name(page), _file_name(page) + _DAMAGED)
            except OSError as exc:
                log.warning("damaged page not set aside", file=self.path(page), reason=str(exc))

    def is_ready(self, page: bytes) -> bool:
        """See `PageStore`."""
        return page in self._unwritten or page in self._read

    def want(self, page: bytes) -> None:
        """See `PageStore`."""
        if self.is_ready(page) or page in self._wanted or page in self.lost:
            return
        if len(self._wanted) >= WANTED_MAX:
            # The disk is behind, so pages are read when they are needed.
            return
        self._wanted[page] = []
        self._to_read.append(page)
        self._read_next()

    def fetch(self, page: bytes, done: Callable[[bool], None]) -> None:
        """See `PageStore`; read before all pages that are only wanted."""
        if self.is_ready(page):
            done(True)
            return
        if page in self.lost:
            done(False)
            return
        if page not in self._wanted:
            self._wanted[page] = []
            self._to_read.appendleft(page)
        elif page in self._to_read:
            self._to_read.remove(page)
            self._to_read.appendleft(page)
        self._wanted[page].append(done)
        self._read_next()

    def _read_next(self) -> None:
        if self._reading is not None or not self._to_read:
            return
        page = self._reading = self._to_read.popleft()
        box: list[bytes] = []
        self._reader.run(lambda: box.append(self._payload(page)), lambda error: self._have_read(page, box, error))

    def _have_read(self, page: bytes, box: list[bytes], error: Exception | None) -> None:
        self._reading = None
        awaiting = self._wanted.pop(page)
        self._read_next()
        if error is not None:
            self._lose(page, error)
        else:
            self._keep_read(page, box)
        for done in awaiting:
            done(error is None)

    def _keep_read(self, page: bytes, box: list[bytes]) -> None:
        self.read_total += 1
        self._read[page] = box[0]
        self._read_bytes += len(box[0])
        while self._read_bytes > _READ_BYTES_MAX and len(self._read) > 1:
            _, dropped = self._read.popitem(last=False)
            self._read_bytes -= len(dropped)

    def _lose(self, page: bytes, error: Exception) -> None:
        if page in self._sizes and page not in self.lost:
            self.lost.add(page)
            log.error("page cannot be read", file=self.path(page), reason=str(error))
            self.on_lost(page)

    def scrub(self) -> None:
        """Check the present files one after the other; call `on_lost` for damaged ones."""
        self._scrub(iter(list(self._sizes)))

    def _scrub(self, pages: Iterator[bytes]) -> None:
        page = next((page for page in pages if page in self), None)
        if page is not None:
            self._reader.run(lambda: self._check(page), lambda error: self._scrubbed(page, pages, error))

    def _check(self, page: bytes) -> None:
        self._payload(page)

    def _scrubbed(self, page: bytes, pages: Iterator[bytes], error: Exception | None) -> None:
        if error is not None:
            self._lose(page, error)
        self._scrub(pages)

    # --- files ----------------------------------------------------------------------------------------------------

    def read(self, page: bytes) -> bytes:
        """Return the content of a page; may be called on any thread.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged.
        """
        payload = self._unwritten.get(page)
        return self._payload(page) if payload is None else payload

    def give(self, page: bytes, done: Given) -> None:
        """Call `done` with the bytes of the page's file, for a peer; with None if it is missing or damaged.

        One page is read at a time. If too many wait, `done` is never called.
        """
        if page not in self:
            done(None)
        elif len(self._to_give) < GIVEN_MAX:
            self._to_give.append((page, done))
            self._give_next()

    def _give_next(self) -> None:
        if self._is_giving or not self._to_give:
            return
        self._is_giving = True
        page, done = self._to_give.popleft()
        payload, box = self._unwritten.get(page), list[bytes]()

        def work() -> None:
            box.append(self._checked(page)[0] if payload is None else _stored(payload))

        def given(error: Exception | None) -> None:
            self._is_giving = False
            self._give_next()
            if error is not None:
                self._lose(page, error)
            done(box[0] if box else None)

        self._reader.run(work, given)

    def add(self, page: bytes, stored: bytes) -> None:
        """Keep a page of a peer.

        Raises:
            ValueError: it is not this page.
        """
        self._keep(page, page_payload(stored, page))

    def sync(self, done: Done) -> None:
        """Make all pages saved so far durable, then call `done` with the error if that failed."""
        pages = [*self._unsynced, *self._unwritten]
        # Pages being written, or whose write failed, are written again.
        batch, sizes = dict(self._unwritten), dict[bytes, int]()

        def work() -> None:
            self._write_files(batch, sizes)
            self._sync_files(pages)

        def synced(error: Exception | None) -> None:
            self._have_written(sizes)
            if error is None:
                for page in pages:
                    self._unsynced.pop(page, None)
            done(error)

        self._worker.run(work, synced)

    def sweep(self, needed: Iterable[bytes]) -> int:
        """Remove the files of all pages but these; return how many."""
        kept = set(needed)
        removed = [page for page in self._sizes if page not in kept]
        for page in removed:
            self.size_bytes -= self._sizes.pop(page)
            self._unsynced.pop(page, None)
            self.lost.discard(page)
        for page in [page for page in self._unwritten if page not in kept]:
            del self._unwritten[page]
            removed.append(page)
        self.removed_total += len(removed)
        if removed:
            self._worker.run(lambda: self._remove(removed), _removed)
        return len(removed)

    def _keep(self, page: bytes, payload: bytes) -> None:
        self._unwritten[page] = payload
        self.try_again()

    def try_again(self) -> None:
        """Write the waiting pages, unless a write is running; the disk may have refused them before."""
        if not self.is_writing:
            self._write()

    def _write(self) -> None:
        """Write some of the waiting pages, and the rest afterwards."""
        batch, sizes, size = dict[bytes, bytes](), dict[bytes, int](), 0
        for page, payload in self._unwritten.items():
            batch[page] = payload
            size += len(payload)
            if size >= WRITE_BYTES:
                break
        self.is_writing = bool(batch)
        if batch:
            self._worker.run(lambda: self._write_files(batch, sizes), lambda error: self._written(sizes, error))

    def _write_files(self, batch: dict[bytes, bytes], sizes: dict[bytes, int]) -> None:
        for page, payload in batch.items():
            # It may have been written, or become useless, since; an existing file may be read at any time.
            if self._unwritten.get(page) is not payload:
                continue
            if page not in self._whole:
                stored = _stored(payload)
                file = self._disk.create(_file_name(page))
                try:
                    file.write_at(0, stored)
                finally:
                    file.close()
                self._whole[page] = len(stored)
            # An existing file, such as one that came from two peers, no longer waits either.
            sizes[page] = self._whole[page]

    def _written(self, sizes: dict[bytes, int], error: Exception | None) -> None:
        self._have_written(sizes)
        if error is None:
            self._failure = None
            self._write()
            self.on_written()
        else:
            if self._failure is None:
                log.error("page not written, it stays in memory", reason=str(error))
            # The next page, or the next snapshot, tries again.
            self._failure, self.is_writing = error, False
        awaiting, self._awaiting = self._awaiting, []
        for done in awaiting:
            done()

    def _have_written(self, sizes: dict[bytes, int]) -> None:
        for page, size in sizes.items():
            if self._unwritten.pop(page, None) is not None:
                self.written_total += 1
                self.written_bytes_total += size
                self._unsynced[page] = None
                self.lost.discard(page)
                self._note_file(page, size)

    def _note_file(self, page: bytes, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.get(page, 0)
        self._sizes[page] = size_bytes

    def _sync_files(self, pages: list[bytes]) -> None:
        if not self._sync:
            return
        for page in pages:
            file = self._disk.open(_file_name(page))
            try:
                file.sync()
            finally:
                file.close()
        if pages:
            self._disk.sync()

    def _remove(self, pages: list[bytes]) -> None:
        for page in pages:
            self._whole.pop(page, None)
            self._disk.remove(_file_name(page))

    def _bytes(self, page: bytes) -> bytes:
        file = self._disk.open(_file_name(page))
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def _payload(self, page: bytes) -> bytes:
        return self._checked(page)[1]

    def _checked(self, page: bytes) -> tuple[bytes, bytes]:
        """Return a page's file, and its payload."""
        try:
            stored = self._bytes(page)
            return stored, page_payload(stored, page)
        except (OSError, ValueError):
            self._whole.pop(page, None)
            raise


def _digest(payload: bytes) -> bytes:
    return xxhash.xxh3_128_digest(payload)


def _stored(payload: bytes) -> bytes:
    return PREFIX + zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(payload)


def _file_name(page: bytes) -> str:
    return page.hex() + SUFFIX


def _removed(error: Exception | None) -> None:
    if error is not None:
        log.warning("pages not removed", reason=str(error))


def _nobody() -> None:
    """Do nothing: no callback waits for pages."""


def _nothing(_page: bytes) -> None:
    """Do nothing: no callback is set."""
