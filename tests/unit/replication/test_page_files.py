"""Files of pages on a disk that fills up, loses power and flips bits; and pages from other nodes, which may
be wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import xxhash
import zstandard

from lmqcluster.core.messages.pages import PageError
from lmqcluster.replication.storage import page_files
from lmqcluster.replication.storage.page_files import PREFIX, PageFiles, page_payload
from tests.simulation.disk import SimDisk

COLUMNS: list[Any] = [[1, 2], [5, 5], [3, 3], [[2, None, []]], [b"x", b"y"], [], [], []]
OTHER: list[Any] = [[3], [5], [3], [[1, None, []]], [b"z"], [], [], []]


class Turns:
    """A worker that runs when the test calls it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((work, done))

    def close(self) -> None:
        """Do nothing: no thread runs."""

    def all(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            error: Exception | None = None
            try:
                work()
            except Exception as exc:  # noqa: BLE001 - as a worker does
                error = exc
            done(error)


class Bench:
    """Files on a simulated disk."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk(random.Random(1))
        self.turns = Turns()
        self.files = PageFiles(self.disk, self.turns, sync=True)
        self.lost: list[bytes] = []
        self.files.on_lost = self.lost.append

    def stored(self, page: bytes) -> bytes | None:
        """Return the data that a peer gets."""
        given: list[bytes | None] = []
        self.files.give(page, given.append)
        self.turns.all()
        return given[0]

    def sync(self) -> Exception | None:
        results: list[Exception | None] = []
        self.files.sync(results.append)
        self.turns.all()
        return results[0]


def _name(page: bytes) -> str:
    return page.hex() + page_files.SUFFIX


def test_a_page_is_read_before_and_after_it_is_written() -> None:
    bench = Bench()
    page = bench.files.save(COLUMNS)
    assert page == bench.files.save(COLUMNS), "equal content has one name"
    assert bench.files.load(page) == COLUMNS
    bench.turns.all()
    assert bench.disk.names() == [_name(page)]
    assert bench.files.load(page) == COLUMNS
    assert (bench.files.written_total, bench.files.late_total, len(bench.files)) == (1, 1, 1)
    bench.files.want(page)
    bench.turns.all()
    assert bench.files.load(page) == COLUMNS
    assert (bench.files.read_total, bench.files.late_total) == (1, 1)


def test_synced_pages_survive_a_power_failure_and_unreferenced_ones_are_removed() -> None:
    for seed in range(20):
        bench = Bench(SimDisk(random.Random(seed)))
        kept = bench.files.save(COLUMNS)
        assert bench.sync() is None
        late = bench.files.save(OTHER)
        bench.turns.all()
        bench.disk.power_failure()
        after = Bench(bench.disk)
        assert after.files.open([kept]) == []
        assert after.files.load(kept) == COLUMNS
        assert after.disk.names() == [_name(kept)]
        assert after.files.open([kept, late]) == [late]


def test_a_full_disk_fails_the_sync_and_loses_nothing() -> None:
    bench = Bench()
    bench.disk.full = True
    page = bench.files.save(COLUMNS)
    bench.turns.all()
    assert bench.files.load(page) == COLUMNS
    assert isinstance(bench.sync(), OSError)
    bench.disk.full = False
    assert bench.sync() is None
    assert bench.disk.names() == [_name(page)]
    assert len(bench.files) == 1


def test_paging_out_stops_while_the_disk_lags() -> None:
    bench = Bench()
    for number in range(page_files.UNWRITTEN_MAX):
        assert not bench.files.is_busy()
        bench.files.save([[number]])
    assert bench.files.is_busy()
    bench.turns.all()
    assert not bench.files.is_busy()


@pytest.mark.parametrize("how", ["flip", "cut", "lose"])
def test_a_damaged_page_is_never_served(how: str) -> None:
    rng = random.Random(3)
    bench = Bench()
    page = bench.files.save(COLUMNS)
    assert bench.sync() is None
    if how == "flip":
        bench.disk.flip_bit(_name(page), rng)
    elif how == "cut":
        bench.disk.truncate(_name(page), rng)
    else:
        bench.disk.lose(_name(page))
    with pytest.raises(PageError, match=r"\.page cannot be read"):
        bench.files.load(page)
    assert bench.stored(page) is None
    assert bench.lost == [page]
    good = Bench()
    assert good.files.save(COLUMNS) == page
    bench.files.add(page, good.stored(page) or b"")
    bench.turns.all()
    assert bench.files.load(page) == COLUMNS
    assert page not in bench.files.lost


def test_every_byte_of_a_file_counts() -> None:
    good = Bench()
    page = good.files.save(COLUMNS)
    stored = good.stored(page) or b""
    assert msgpack.unpackb(page_payload(stored, page)) == COLUMNS
    for at in range(len(stored)):
        for bit in (1, 128):
            changed = stored[:at] + bytes([stored[at] ^ bit]) + stored[at + 1 :]
            with pytest.raises(ValueError, match="page"):
                page_payload(changed, page)


def _bomb() -> bytes:
    """Return a few bytes that stand for more than a page may have."""
    return PREFIX + zstandard.ZstdCompressor().compress(bytes(page_files.PAGE_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "stored",
    [b"", PREFIX, PREFIX + b"x" * 100, PREFIX + zstandard.ZstdCompressor().compress(b"other"), _bomb()],
    ids=["nothing", "no frame", "no zstd", "another page", "too large"],
)
def test_pages_of_other_nodes_are_checked(stored: bytes) -> None:
    bench = Bench()
    page = xxhash.xxh3_128_digest(b"this")
    with pytest.raises(ValueError, match="page"):
        bench.files.add(page, stored)
    bench.turns.all()
    assert bench.disk.names() == []


def test_a_sweep_keeps_needed_pages_and_forgets_unwritten_ones() -> None:
    bench = Bench()
    first, second = bench.files.save(COLUMNS), bench.files.save(OTHER)
    bench.turns.all()
    third = bench.files.save([[9]])
    assert bench.files.sweep([first]) == 2
    bench.turns.all()
    assert bench.disk.names() == [_name(first)]
    assert first in bench.files
    assert second not in bench.files
    assert third not in bench.files
    assert bench.files.save(OTHER) == second
    bench.turns.all()
    assert bench.files.load(second) == OTHER


def test_all_files_are_checked_and_damage_is_reported_early() -> None:
    bench = Bench()
    pages = [bench.files.save([[number]]) for number in range(10)]
    bench.turns.all()
    for page in pages[3:5]:
        bench.disk.flip_bit(_name(page), random.Random(5))
    bench.files.scrub()
    bench.turns.all()
    assert bench.lost == pages[3:5]


def test_an_unreadable_page_is_missing_at_the_next_start() -> None:
    bench = Bench()
    page = bench.files.save(COLUMNS)
    assert bench.sync() is None
    bench.disk.flip_bit(_name(page), random.Random(5))
    with pytest.raises(PageError):
        bench.files.load(page)
    bench.files.set_aside()
    assert Bench(bench.disk).files.open([page]) == [page]


def test_a_page_received_twice_is_written_once() -> None:
    """Two peers may send it: a page that is in its file already must not be written repeatedly."""
    bench = Bench()
    page = bench.files.save(COLUMNS)
    bench.turns.all()
    stored = bench.stored(page)
    assert stored is not None
    bench.files.add(page, stored)
    turns = 0
    while bench.turns.jobs:
        work, done = bench.turns.jobs.pop(0)
        work()
        done(None)
        turns += 1
        assert turns < 10, "it is written repeatedly"
    assert not bench.files.is_writing
    assert bench.files.load(page) == COLUMNS
    assert bench.files.size_bytes == len(stored)


def test_the_callback_of_a_fetch_runs_when_the_page_has_arrived() -> None:
    bench = Bench()
    outcomes: list[bool] = []
    page = bench.files.save(COLUMNS)
    bench.files.fetch(page, outcomes.append)
    assert outcomes == [True], "a page that is being written is present"
    bench.turns.all()
    bench.files.fetch(page, outcomes.append)
    bench.files.fetch(page, outcomes.append)
    bench.files.want(page)
    assert outcomes == [True]
    bench.turns.all()
    assert outcomes == [True] * 3
    assert bench.files.read_total == 1, "one look at the disk is enough for both"
    assert bench.files.load(page) == COLUMNS
    assert bench.files.late_total == 0


def test_needed_pages_are_read_before_wanted_ones() -> None:
    bench = Bench()
    pages = [bench.files.save([[number]]) for number in range(5)]
    bench.turns.all()
    outcomes: list[int] = []
    for page in pages[:4]:
        bench.files.want(page)
    for number in (3, 4):
        bench.files.fetch(pages[number], lambda is_here, number=number: outcomes.append(number))  # type: ignore[misc]
    while bench.turns.jobs:
        read = [page for page in pages if bench.files.is_ready(page)]
        if len(read) == 3:
            assert outcomes == [4, 3]
        work, done = bench.turns.jobs.pop(0)
        work()
        done(None)
    assert bench.files.read_total == 5


def test_fetches_of_a_damaged_page_fail_until_another_node_has_sent_it() -> None:
    bench = Bench()
    page = bench.files.save(COLUMNS)
    assert bench.sync() is None
    whole = bench.stored(page)
    assert whole is not None
    bench.disk.open(_name(page)).write_at(len(PREFIX) + 3, b"!")
    outcomes: list[bool] = []
    for _ in range(2):
        bench.files.fetch(page, outcomes.append)
        bench.turns.all()
    assert outcomes == [False, False]
    assert bench.lost == [page], "it is asked for once"
    bench.files.add(page, whole)
    bench.turns.all()
    bench.files.fetch(page, outcomes.append)
    bench.turns.all()
    assert outcomes == [False, False, True]


def test_a_page_that_a_full_disk_refused_is_written_on_request() -> None:
    bench = Bench()
    bench.disk.full = True
    bench.files.save(COLUMNS)
    bench.turns.all()
    assert not bench.files.is_writing
    bench.disk.full = False
    bench.files.try_again()
    bench.turns.all()
    assert bench.files.written_total == 1
