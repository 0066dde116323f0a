"""The journal on real files, and cases that are simpler as an example than as a property."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.journal.disk_journal import DiskJournal
from lmqcluster.replication.storage.journal.journal import Entry
from lmqcluster.replication.storage.journal.segment_files import PIECE_BYTES, without_zeros
from tests.simulation.disk import PowerCut, SimDisk

BASE = b"\x01"
MEGABYTE = 1 << 20


class Store:
    """Stores term and vote and records what was made durable."""

    def __init__(self) -> None:
        self.term = 0
        self.vote: str | None = None

    def save_vote(self, term: int, vote: str | None) -> None:
        self.term, self.vote = term, vote


def open_journal(
    disk: SimDisk | Folder, *, segment_bytes: int = 4096, cache_bytes: int = 0, sync: bool = True
) -> DiskJournal:
    return DiskJournal.open(disk, Store(), BASE, sync=sync, segment_bytes=segment_bytes, cache_bytes=cache_bytes)


def simulated(*terms: int) -> tuple[SimDisk, DiskJournal]:
    """Return a journal on a simulated disk with an entry for each term, synced."""
    disk = SimDisk(random.Random(1))
    journal = open_journal(disk)
    for index, term in enumerate(terms, 2):
        journal.add(b"\x00c%d" % index, index, term)
    journal.sync()
    return disk, journal


def test_a_new_journal_has_a_base_only() -> None:
    _, log = simulated()
    assert (log.first_index, log.last_index, len(log), log.size_bytes) == (1, 1, 1, 0)
    assert log[0] == log[-1] == Entry(BASE, 1, 0)
    assert (log.getRaftCommitIndex(), log.created, log.torn_bytes, log.dirty) == (1, True, 0, False)


@pytest.mark.parametrize("calls", range(1, 12))
def test_pages_of_a_failed_sync_are_written_again(calls: int) -> None:
    """The system marks the pages of a failed sync as clean: data that the next life reads from them must not
    count as durable.
    """
    disk, log = simulated(1, 1)
    disk.fail_after(calls, lambda: OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        _fill(log)
    disk.process_crash()
    found = open_journal(disk)[:]
    assert len(found) >= 3
    disk.power_failure(random.Random(calls))
    again = open_journal(disk)
    assert again[:] == found
    again.add(b"\x00y", again.last_index + 1, 3)
    again.sync()


def test_the_latest_log_time_is_found_again() -> None:
    """It is that of the entries in the log, and a stamp of zero, as recovery writes it, hides none."""
    disk = SimDisk(random.Random(0))
    log = open_journal(disk)
    assert log.stamped_us == 0
    for index, stamp_us in enumerate((7, 9, 0, 30), 2):
        log.add(b"\x00" + stamp_us.to_bytes(8, "big") + b"x", index, 1)
    log.add(b"\x01", 6, 2)
    log.truncate_from(5)
    log.add(b"\x01", 5, 3)
    log.sync()
    assert log.stamped_us == open_journal(disk).stamped_us == 9
    log.drop_before(5)
    assert log.stamped_us == 9
    log.reset(20, 4)
    assert log.stamped_us == 0


def _fill(log: DiskJournal) -> None:
    for index in range(4, 60):
        log.add(b"\x00" + b"x" * 150, index, 2)
        log.sync()


def test_real_files_hold_the_log(tmp_path: Path) -> None:
    rng = random.Random(4)
    entries = [Entry(BASE, 1, 0)]
    log = open_journal(Folder(tmp_path / "journal"), segment_bytes=64 * 1024, cache_bytes=50_000)
    for index in range(2, 300):
        entries.append(Entry(rng.randbytes(rng.choice((0, 10, 3000))), index, index // 10))
        log.add(*entries[-1])
        if index % 7 == 0:
            log.sync()
    log.truncate_from(290)
    del entries[289:]
    log.sync()
    assert log[:] == entries
    log._destroy()
    again = open_journal(Folder(tmp_path / "journal"), segment_bytes=64 * 1024)
    assert again[:] == entries
    assert (again.created, again.torn_bytes) == (False, 0)
    again.drop_before(280)
    again.sync()
    assert len(list(tmp_path.glob("journal/*.log"))) <= 2
    assert again[0] == entries[279]
    again.reset(1000, 50)
    again.add(b"\x00x", 1001, 51)
    again.sync()
    again._destroy()
    last = open_journal(Folder(tmp_path / "journal"))
    assert last[:] == [Entry(BASE, 1000, 50), Entry(b"\x00x", 1001, 51)]
    assert len(list(tmp_path.glob("journal/*.log"))) == 1
    last._destroy()


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    for name in ("node.json", "snapshot-7", "notes.tmp", "1.log", "00000000000000000009.log.tmp", "spare"):
        (tmp_path / name).write_bytes(b"x")
    open_journal(Folder(tmp_path))._destroy()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000000001.log", "1.log", "node.json", "notes.tmp", "snapshot-7", "synced",
    ]  # fmt: skip


def test_an_entry_larger_than_a_segment(tmp_path: Path) -> None:
    disk = Folder(tmp_path)
    log = open_journal(disk)
    huge = random.Random(2).randbytes(3 * MEGABYTE)
    for index, command in enumerate((b"\x00before", huge, b"\x00behind"), 2):
        log.add(command, index, 1)
    log.sync()
    assert [entry.command for entry in log[1:]] == [b"\x00before", huge, b"\x00behind"]
    log._destroy()
    again = open_journal(disk)
    assert [entry.command for entry in again[1:]] == [b"\x00before", huge, b"\x00behind"]
    again._destroy()


def test_evicted_entries_are_read_back_in_runs() -> None:
    disk = SimDisk(random.Random(1))
    log = open_journal(disk, segment_bytes=MEGABYTE, cache_bytes=1000)
    reads = disk.reads
    for index in range(2, 202):
        log.add(b"\x00" * 100, index, 1)
    assert log.entries_between(2, 201) == [Entry(b"\x00" * 100, index, 1) for index in range(2, 202)]
    assert disk.reads == reads, "nothing unwritten may leave the cache"
    log.sync()
    assert sum(map(len, log._cache.values())) == 1000
    assert log.entries_between(2, 201) == [Entry(b"\x00" * 100, index, 1) for index in range(2, 202)]
    assert disk.reads == reads + 1


def test_read_back_verifies_checksums() -> None:
    disk = SimDisk(random.Random(1))
    log = open_journal(disk)
    for index in range(2, 8):
        log.add(b"\x00" * 100, index, 1)
    log.sync()
    name = "00000000000000000001.log"
    damaged = 512 + 129 + 60
    disk.flip_bit(name, random.Random(1), damaged)
    assert log[1].command == b"\x00" * 100
    with pytest.raises(DamagedFileError, match="entry 3 is not as it was written") as caught:
        log.entries(2, 10**6)
    assert (caught.value.file, caught.value.offset) == (disk.path(name), 512 + 129)


def test_work_runs_concurrently_with_changes() -> None:
    disk, log = simulated(1, 1)
    log.add(b"\x00a", 4, 1)
    work = log.take_work()
    assert not log.dirty
    log.add(b"\x00b", 5, 1)
    log.truncate_from(4)
    log.add(b"\x00c", 4, 2)
    assert log.dirty
    work()
    log.written()
    assert log[-1] == Entry(b"\x00c", 4, 2)
    disk.process_crash()
    assert open_journal(disk)[-1] == Entry(b"\x00a", 4, 1)


def test_one_sync_for_many_entries() -> None:
    disk, log = simulated(1, 1)
    before = disk.syncs
    for index in range(4, 14):
        log.add(b"\x00a", index, 1)
    log.sync()
    assert disk.syncs == before + 1
    log.sync()
    assert disk.syncs == before + 1


def test_without_sync_nothing_is_synced_but_rolls() -> None:
    disk = SimDisk(random.Random(1))
    log = open_journal(disk, sync=False)
    before = disk.syncs
    for index in range(2, 12):
        log.add(b"\x00" * 100, index, 1)
        log.sync()
    assert disk.syncs == before
    disk.process_crash()
    assert open_journal(disk, sync=False).last_index == 11


def test_a_torn_tail_is_truncated() -> None:
    disk, log = simulated(1, 1)
    name = "00000000000000000001.log"
    end = len(disk.content(name).rstrip(b"\0"))
    log.add(b"\x00" + b"y" * 1999, 4, 1)
    disk.fail_after(1)
    with pytest.raises(PowerCut):
        log.sync()
    disk.process_crash()
    disk.flip_bit(name, random.Random(1), end + 700)
    again = open_journal(disk)
    assert (again.last_index, again.torn_bytes) == (3, 2029)
    assert len(disk.content(name).rstrip(b"\0")) == end
    disk.power_failure()
    once_more = open_journal(disk)
    assert (once_more.last_index, once_more.torn_bytes) == (3, 0)


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 131073])
@pytest.mark.parametrize("zeros", [0, 1, 65535, 65536, 65537, 131073])
def test_only_zeros_at_the_end_of_a_file_are_unused(size: int, zeros: int) -> None:
    assert without_zeros(memoryview(b"\0" * (size - 1) + b"x"[:size] + bytes(zeros))) == size


def test_the_spare_becomes_the_next_segment() -> None:
    disk, log = simulated()
    assert log.prepare_spare() is None, "the segment is less than half full"
    for index in range(2, 6):
        log.add(b"\x00" * 600, index, 1)
    work = log.prepare_spare()
    assert work is not None
    assert log.prepare_spare() is None, "one is being made"
    work()
    assert "spare" in disk.names()
    for index in range(6, 9):
        log.add(b"\x00" * 600, index, 1)
    calls = disk.calls
    log.sync()
    assert "spare" not in disk.names()
    # Records, sync; header, sync, rename, folder; mark, sync; records, sync, mark.
    assert disk.calls - calls == 11
    disk.power_failure()
    assert open_journal(disk).last_index == 8


def test_a_spare_made_during_a_roll_serves_the_next_one() -> None:
    disk, log = simulated()
    for index in range(2, 6):
        log.add(b"\x00" * 600, index, 1)
    work = log.prepare_spare()
    assert work is not None
    for index in range(6, 9):
        log.add(b"\x00" * 600, index, 1)
    log.sync()
    work()
    for index in range(9, 14):
        log.add(b"\x00" * 600, index, 1)
    log.sync()
    assert "spare" not in disk.names()
    disk.power_failure()
    assert open_journal(disk).last_index == 13


def test_a_dropped_prefix_is_removed_from_the_disk() -> None:
    disk, log = simulated()
    for index in range(2, 60):
        log.add(b"\x02%d" % index + b"\x00" * 500, index, 1)
    log.sync()
    assert [index for index, _ in log.drop_before(40)] == list(range(2, 41))
    assert log.dirty
    log.sync()
    disk.power_failure()
    again = open_journal(disk)
    assert 30 < again.first_index < 40
    assert again[1].command.startswith(b"\x02%d" % (again.first_index + 1))
    assert [index for index, _ in again.changes] == list(range(again.first_index + 1, 60))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_segment_that_a_later_one_truncates_is_kept(reopened: bool) -> None:
    """The second segment cannot be the first one: it removes entries of the one before."""
    disk, log = simulated()
    for index in range(2, 7):
        log.add(b"\x00" * 800, index, 1)
    log.truncate_from(3)
    log.add(b"\x00new", 3, 2)
    log.add(b"\x00newer", 4, 2)
    log.add(b"\x00" * 800, 5, 2)
    log.add(b"\x00" * 800, 6, 2)
    log.add(b"\x00newest", 7, 2)
    log.sync()
    if reopened:
        log = open_journal(disk)
    expected = log[:]
    log.drop_before(7)
    log.sync()
    assert open_journal(disk)[:] == expected
    assert len([name for name in disk.names() if name.endswith(".log")]) == 2


def test_a_valid_record_of_another_log_is_damage() -> None:
    """The same index, term and command after another first entry."""
    disks = []
    for first in (b"\x00one", b"\x00two"):
        disk = SimDisk(random.Random(1))
        log = open_journal(disk)
        log.add(first, 2, 1)
        log.add(b"\x00same", 3, 1)
        log.sync()
        disks.append(disk)
    name, start = "00000000000000000001.log", 512 + 29 + 4
    ours, theirs = (disk.content(name)[start : start + 29 + 5] for disk in disks)
    assert ours != theirs
    disks[0].open(name).write_at(start, theirs)
    with pytest.raises(DamagedFileError) as caught:
        open_journal(disks[0])
    assert caught.value.offset == start


def test_a_reset_replaces_unwritten_entries() -> None:
    disk, log = simulated(1)
    for index in range(3, 20):
        log.add(b"\x00" * 900, index, 1)
    log.reset(50, 3)
    log.add(b"\x00x", 51, 3)
    log.sync()
    disk.power_failure()
    assert open_journal(disk)[:] == [Entry(BASE, 50, 3), Entry(b"\x00x", 51, 3)]
    assert len(disk.names()) == 2


def test_a_full_disk_raises_and_loses_nothing_synced() -> None:
    disk, log = simulated(1, 1)
    disk.full = True
    log.add(b"\x00" * 5000, 4, 1)
    with pytest.raises(OSError, match="No space left") as caught:
        log.sync()
    assert caught.value.errno == errno.ENOSPC
    disk.process_crash()
    assert open_journal(disk).last_index == 3


@pytest.mark.parametrize("index", [1, 2, 3, 5, 100])
def test_an_entry_must_follow_the_last_one(index: int) -> None:
    _, log = simulated(1, 1)
    with pytest.raises(ValueError, match=f"entry {index} does not follow the last entry 3"):
        log.add(b"\x00x", index, 1)
    assert not log.dirty


def test_terms_do_not_fall() -> None:
    _, log = simulated(1, 3)
    with pytest.raises(ValueError, match="term 2 of entry 4 is before the last entry's term 3"):
        log.add(b"\x00x", 4, 2)
    assert not log.dirty


def test_reading_equals_the_log_in_memory() -> None:
    _, log = simulated(1, 1, 2, 2, 2, 5)
    assert log.first_index_of_term(2, 6) == 4
    assert log.first_index_of_term(0, 1) == 1
    assert [entry.idx for entry in log.entries(2, 7)] == [2, 3]
    assert [entry.idx for entry in log.entries(2, 0)] == [2]
    assert log.entries(8, 100) == []
    assert [entry.idx for entry in log[::2]] == [1, 3, 5, 7]
    assert [entry.idx for entry in log[-2:]] == [6, 7]
    assert log[-7] == Entry(BASE, 1, 0)
    with pytest.raises(IndexError):
        log[-8]


@pytest.mark.parametrize("index", [0, 1, 2, 12, 100])
def test_entries_up_to_the_base_cannot_be_truncated(index: int) -> None:
    _, log = simulated(*[1] * 8)
    log.drop_before(2)
    log.sync()
    with pytest.raises(IndexError):
        log.truncate_from(index)
    log.truncate_from(10)
    assert not log.dirty


def test_library_interface() -> None:
    disk = SimDisk(random.Random(1))
    store = Store()
    log = DiskJournal.open(disk, store, BASE, sync=True, segment_bytes=4096)
    log.setCurrentTerm(4, "n2")
    assert (store.term, log.getCurrentTerm(), log.getVotedForNodeId()) == (4, 4, "n2")
    for index in range(2, 6):
        log.add(b"\x00", index, 1)
    log.deleteEntriesFrom(3)
    log.deleteEntriesTo(1)
    assert (log.first_index, log.last_index, len(log)) == (2, 3, 2)
    with pytest.raises(RuntimeError, match="never empties"):
        log.clear()


def test_a_large_entry_stays_in_memory_until_it_is_applied() -> None:
    """Reading it back at once would block everything else."""
    disk = SimDisk(random.Random(1))
    journal = open_journal(disk, segment_bytes=MEGABYTE, cache_bytes=MEGABYTE)
    large = b"\x00" + bytes(3 * MEGABYTE)
    for index, command in ((2, large), (3, b"\x00small")):
        journal.add(command, index, 1)
        journal.sync()
    assert journal.entries(2, 1)[0].command is large
    journal.applied_last = 2
    journal.add(b"\x00small", 4, 1)
    journal.sync()
    again = journal.entries(2, 1)[0].command
    assert again == large
    assert again is not large


@pytest.mark.parametrize("sync", [True, False])
def test_a_large_entry_is_written_in_pieces_that_report_progress(sync: bool) -> None:
    disk = SimDisk(random.Random(1))
    journal = open_journal(disk, sync=sync)
    large = b"\x00" + random.Random(2).randbytes(3 * PIECE_BYTES)
    journal.add(large, 2, 1)
    before = journal.progress
    journal.sync()
    assert journal.progress - before >= (4 if sync else 1)
    journal.close()
    assert open_journal(disk, sync=sync).entries(2, 1)[0].command == large


@pytest.mark.parametrize("is_power_failure", [False, True])
def test_a_large_entry_has_a_separate_file_and_survives(is_power_failure: bool) -> None:
    disk = SimDisk(random.Random(1))
    journal = open_journal(disk, segment_bytes=4096)
    large = b"\x00" + random.Random(2).randbytes(100_000)
    for index, command in enumerate((b"\x00before", large, b"\x00behind"), 2):
        journal.add(command, index, 1)
        journal.sync()
    before = journal[:]
    if is_power_failure:
        disk.power_failure(random.Random(3))
    else:
        disk.process_crash()
    again = open_journal(disk, segment_bytes=4096)
    assert again[:] == before
    assert again[2].command == large
