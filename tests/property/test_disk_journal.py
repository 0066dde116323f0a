"""The journal on a crashing disk: synced entries survive; unsynced ones survive as a prefix, or are lost."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lmqcluster.replication.storage.io.disk import DamagedFileError
from lmqcluster.replication.storage.journal.disk_journal import DiskJournal
from lmqcluster.replication.storage.journal.journal import Entry
from tests.simulation.disk import PowerCut, SimDisk

BASE = b"\x01"
SIZES = st.one_of(st.integers(0, 40), st.integers(0, 900), st.integers(0, 9000))


class Store:
    """A store of term and vote, which are not tested here."""

    term = 0
    vote: str | None = None

    def save_vote(self, term: int, vote: str | None) -> None:
        raise AssertionError("the journal does not vote")


def open_journal(
    disk: SimDisk, *, sync: bool = True, segment_bytes: int = 4096, cache_bytes: int = 2000
) -> DiskJournal:
    return DiskJournal.open(disk, Store(), BASE, sync=sync, segment_bytes=segment_bytes, cache_bytes=cache_bytes)


def matches(found: list[Entry], log: list[Entry]) -> bool:
    """Return whether `found` equals `log`, except for entries before the base of one of them and the command
    of the base.
    """
    start = max(found[0].idx, log[0].idx)
    ours = [entry for entry in found if entry.idx >= start]
    theirs = [entry for entry in log if entry.idx >= start]
    if not ours or not theirs or ours[0][1:] != theirs[0][1:]:
        return False
    return ours[1:] == theirs[1:]


class JournalMachine(RuleBasedStateMachine):
    """Random lives of a journal. `full` keeps dropped entries, because opening may restore them."""

    @initialize(
        seed=st.integers(0, 2**32),
        sync=st.sampled_from([True, True, False]),
        cache=st.sampled_from([0, 2000, 10**6]),
        segment=st.sampled_from([800, 4096]),
    )
    def begin(self, seed: int, sync: bool, cache: int, segment: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        # With small segments a later one often truncates entries of an earlier one.
        self.sync_mode, self.cache, self.segment = sync, cache, segment
        self.base = 1
        self.full: list[Entry] = [Entry(BASE, 1, 0)]
        # States of the log: from the last one known to be durable to the last one written, and those not written yet.
        self.durable: list[list[Entry]] = [list(self.full)]
        self.pending: list[list[Entry]] = []
        self.journal = self.opened()

    def opened(self) -> DiskJournal:
        return open_journal(self.disk, sync=self.sync_mode, segment_bytes=self.segment, cache_bytes=self.cache)

    def note(self) -> None:
        self.pending.append(list(self.full))

    @rule(size=SIZES, member=st.booleans(), step=st.sampled_from([0, 0, 0, 1, 7]), count=st.integers(1, 6))
    def add(self, size: int, member: bool, step: int, count: int) -> None:
        term = self.full[-1].term + step
        for _ in range(count):
            command = (b"\x02" if member else b"\x00") + self.rng.randbytes(size) if size else b""
            entry = Entry(command, self.full[-1].idx + 1, term)
            self.journal.add(*entry)
            self.full.append(entry)
            self.note()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        index = max(self.base + 1, self.full[-1].idx - back)
        if index > self.full[-1].idx:
            return
        self.journal.truncate_from(index)
        del self.full[index - self.full[0].idx :]
        self.note()

    @rule(back=st.integers(0, 12), size=st.integers(1, 40), more=st.integers(1, 3))
    def replace(self, back: int, size: int, more: int) -> None:
        """A new leader has other entries than the old one."""
        self.truncate(back)
        self.add(size, False, 1, back + more)

    @rule(part=st.floats(0, 1))
    def drop(self, part: float) -> None:
        index = self.base + int((self.full[-1].idx - self.base) * part)
        expected = [(e.idx, e.command) for e in self.full if self.base < e.idx <= index and e.command[:1] == b"\x02"]
        assert self.journal.drop_before(index) == expected
        self.base = index

    @rule(ahead=st.integers(0, 50), step=st.integers(0, 2))
    def reset(self, ahead: int, step: int) -> None:
        last = self.full[-1]
        self.full = [Entry(BASE, last.idx + ahead, last.term + step)]
        self.base = self.full[0].idx
        self.journal.reset(self.base, self.full[0].term)
        self.note()

    @rule()
    def sync(self) -> None:
        self.journal.sync()
        self.did_write()

    def did_write(self) -> None:
        """Note that everything is written; durable if syncs are on."""
        self.durable += self.pending
        self.pending.clear()
        if self.sync_mode:
            del self.durable[:-1]

    @rule(calls=st.integers(0, 25), power=st.booleans())
    def die_in_the_middle(self, calls: int, power: bool) -> None:
        self.disk.fail_after(calls)
        try:
            self.journal.sync()
        except PowerCut:
            self.durable += self.pending
            self.pending.clear()
        else:
            self.did_write()
        self.crash(power=power)

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        if power:
            self.disk.power_failure()
        else:
            self.disk.process_crash()
        self.reopen(self.durable)

    @rule(calls=st.integers(0, 20), power=st.booleans())
    def die_while_opening(self, calls: int, power: bool) -> None:
        self.disk.process_crash()
        self.disk.fail_after(calls)
        with contextlib.suppress(PowerCut):
            self.opened()
        if power:
            self.disk.power_failure()
        else:
            self.disk.process_crash()
        self.reopen(self.durable)

    @rule()
    def restart(self) -> None:
        """Without a power failure no written entry is lost."""
        self.disk.process_crash()
        self.reopen(self.durable[-1:])

    @rule(part=st.floats(0, 1))
    def drop_in_another_life(self, part: float) -> None:
        """The removable segments must be known after a restart too."""
        self.restart()
        self.drop(part)
        self.sync()
        self.restart()

    @rule()
    def spare(self) -> None:
        work = self.journal.prepare_spare()
        if work is not None:
            work()

    def reopen(self, allowed: list[list[Entry]]) -> None:
        self.journal = self.opened()
        found = self.journal[:]
        fits = [log for log in allowed if matches(found, log)]
        assert fits, f"found {[e[1:] for e in found]}, allowed {[[e[1:] for e in log] for log in allowed]}"
        assert found[0].idx <= max(self.base, fits[-1][0].idx)
        assert self.journal.size_bytes == sum(len(e.command) + 120 for e in found[1:])
        self.full = list(fits[-1])
        # Entries at the base and before it are those that opening found.
        self.base = found[0].idx
        self.full = [e for e in self.full if e.idx >= self.base]
        self.full[0] = found[0]
        self.durable = [list(self.full)]
        self.pending = []

    @invariant()
    def same_as_model(self) -> None:
        if not hasattr(self, "journal"):
            return
        journal, log = self.journal, [e for e in self.full if e.idx >= self.base]
        assert (journal.first_index, journal.last_index, len(journal)) == (self.base, log[-1].idx, len(log))
        assert journal[:] == log
        assert journal[-1] == log[-1]
        assert journal.changes == [(e.idx, e.command) for e in log[1:] if e.command[:1] == b"\x02"]
        assert journal.size_bytes == sum(len(e.command) + 120 for e in log[1:])
        assert [journal.term_at(e.idx) for e in log] == [e.term for e in log]


TestJournalMachine = JournalMachine.TestCase


def small_journal(rng: random.Random) -> tuple[SimDisk, list[Entry]]:
    """Return three segments with a truncation among the records, all synced."""
    disk = SimDisk(rng)
    journal = open_journal(disk, segment_bytes=900)
    for index in range(2, 16):
        journal.add(rng.choice((b"\x00", b"\x02")) + rng.randbytes(30), index, index // 4)
        if index == 7:
            journal.sync()
    journal.truncate_from(13)
    journal.add(b"\x00new", 13, 9)
    journal.sync()
    log = journal[:]
    assert [name for name in disk.names() if name != "synced"] == [f"{n:020d}.log" for n in (1, 2, 3)]
    return disk, log


def test_every_flipped_bit_is_noticed() -> None:
    rng = random.Random(1)
    disk, log = small_journal(rng)
    unnoticed = noticed = 0
    for name in disk.names():
        content = disk.content(name)
        for offset in range(len(content)):
            twin = disk.copy()
            twin.flip_bit(name, rng, offset)
            try:
                found = open_journal(twin, segment_bytes=900)
            except DamagedFileError as exc:
                assert exc.file == twin.path(name)  # noqa: PT017 - both outcomes are looked at
                assert exc.offset <= offset  # noqa: PT017
                noticed += 1
            else:
                # Only after the records.
                assert content[offset:].strip(b"\0") == b""
                assert offset >= 512
                assert found[:] == log
                unnoticed += 1
    assert noticed > 2500
    assert unnoticed < 900


def test_every_truncation_is_detected() -> None:
    rng = random.Random(2)
    disk, _ = small_journal(rng)
    for name in disk.names():
        for _ in range(60):
            twin = disk.copy()
            twin.truncate(name, rng)
            with pytest.raises(DamagedFileError) as caught:
                open_journal(twin, segment_bytes=900)
            assert caught.value.file == twin.path(name)


def test_every_missing_file_is_detected() -> None:
    disk, _ = small_journal(random.Random(3))
    for name in disk.names():
        twin = disk.copy()
        twin.lose(name)
        with pytest.raises(DamagedFileError, match="missing") as caught:
            open_journal(twin, segment_bytes=900)
        assert caught.value.file == twin.path(name)


@given(seed=st.integers(0, 2**32), calls=st.integers(0, 20), lives=st.integers(1, 4))
def test_interrupted_creation_opens_as_an_empty_log(seed: int, calls: int, lives: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    for _ in range(lives):
        disk.fail_after(calls)
        with contextlib.suppress(PowerCut):
            open_journal(disk)
        rng.choice((disk.power_failure, disk.process_crash))()
    journal = open_journal(disk)
    assert journal[:] == [Entry(BASE, 1, 0)]
    journal.add(b"\x00x", 2, 1)
    journal.sync()
    disk.power_failure()
    assert open_journal(disk)[1] == Entry(b"\x00x", 2, 1)


def long_life(journal: DiskJournal, states: list[list[Entry]], durable: list[int]) -> None:
    """Roll, truncate across segments, drop, reset and make spares; record every state, and which one is durable."""
    log = list(states[-1])

    def sync() -> None:
        journal.sync()
        durable.append(len(states) - 1)

    def add(count: int, size: int, term: int) -> None:
        for _ in range(count):
            log.append(Entry(b"\x00" * size, log[-1].idx + 1, term))
            journal.add(*log[-1])
            states.append(list(log))

    def truncate(index: int) -> None:
        journal.truncate_from(index)
        del log[index - log[0].idx :]
        states.append(list(log))

    def reset(index: int, term: int) -> None:
        journal.reset(index, term)
        log[:] = [Entry(BASE, index, term)]
        states.append(list(log))

    for life in range(2):
        term = life * 10
        add(5, 700, term + 1)
        sync()
        spare = journal.prepare_spare()
        if life == 0 and spare is not None:
            spare()
        add(9, 900, term + 2)
        sync()
        truncate(log[-1].idx - 7)
        add(3, 700, term + 3)
        sync()
        journal.drop_before(log[-1].idx - 4)
        sync()
        add(7, 1000, term + 4)
        journal.drop_before(log[-1].idx - 2)
        sync()
        add(1, 200, term + 4)
        sync()
        reset(log[-1].idx + 5, term + 5)
        sync()
        add(2, 100, term + 6)
        reset(log[-1].idx, term + 6)
        add(6, 900, term + 7)
        sync()


@pytest.mark.parametrize("sync", [True, False])
def test_dying_at_every_single_call(sync: bool) -> None:
    """It dies in the long life above before every call that changes the disk, with several outcomes of a
    power failure.
    """
    calls, finished = 0, False
    while not finished:
        for seed in range(12):
            rng = random.Random(seed)
            disk = SimDisk(rng)
            journal = open_journal(disk, sync=sync)
            states, durable = [[Entry(BASE, 1, 0)]], [0]
            disk.fail_after(calls)
            try:
                long_life(journal, states, durable)
            except PowerCut:
                pass
            else:
                finished = True
            power = seed > 0
            if power:
                disk.power_failure()
            else:
                disk.process_crash()
            found = open_journal(disk, sync=sync)[:]
            allowed = states[durable[-1] if sync or not power else 0 :]
            assert any(matches(found, log) for log in allowed), (calls, seed)
            disk.power_failure()
            assert open_journal(disk, sync=sync)[:] == found, "entries that were read must be durable"
        calls += 1
    assert calls > 100


@pytest.mark.parametrize("seed", range(20))
def test_a_missing_last_segment_is_detected_after_a_power_failure(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    journal = open_journal(disk)
    for index in range(2, 9):
        journal.add(b"\x00" * 900, index, 1)
        journal.sync()
    disk.power_failure()
    last = disk.names()[-2]
    disk.lose(last)
    with pytest.raises(DamagedFileError, match="missing") as caught:
        open_journal(disk)
    assert caught.value.file == disk.path(last)
