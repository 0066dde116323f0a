"""Log, snapshots and identity opened together: in every order that a crash may leave, and in every durability mode."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from lmqcluster.replication.offline.data_directory import discard_data, recover
from lmqcluster.replication.storage.io.disk import DamagedFileError, Disk
from lmqcluster.replication.storage.journal.journal import MemoryJournal
from lmqcluster.replication.storage.node_storage import JOURNAL, PAGES, SNAPSHOTS, DurabilityError, NodeStorage
from tests.simulation.disk import PowerCut, SimDisk

MEMBERS = {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}
FOLDERS = ("", JOURNAL, SNAPSHOTS)
TERM = 3


class Machine:
    """A computer with a data directory."""

    def __init__(self, folders: dict[str, SimDisk] | None = None) -> None:
        self.folders = folders or {name: SimDisk(random.Random(1)) for name in (*FOLDERS, PAGES)}

    def __call__(self, folder: str) -> Disk:
        return self.folders[folder]

    def open(self, durability: str = "disk", founders: dict[str, str] | None = MEMBERS) -> NodeStorage:
        """Start a node."""
        return NodeStorage.open(self, "a", founders, durability, segment_bytes=4096)

    def copy(self) -> Machine:
        """Return a machine with the same files."""
        return Machine({name: disk.copy() for name, disk in self.folders.items()})

    def power_failure(self, seed: int) -> None:
        """Lose unsynced data in all folders."""
        for disk in self.folders.values():
            disk.power_failure(random.Random(seed))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def add(storage: NodeStorage, indexes: Iterable[int], term: int = TERM) -> None:
    """Append entries and make them durable."""
    for index in indexes:
        storage.journal.add(b"\x00entry %d" % index, index, term)
    storage.journal.sync()


def snapshot(storage: NodeStorage, index: int, term: int = TERM) -> None:
    """Write a snapshot of an entry."""
    writer = storage.snapshots.create(index, term, MEMBERS, 0)
    writer.add(["state", index])
    writer.finish_work()()
    storage.snapshots.adopt(writer)


def trusted(machine: Machine, durability: str = "disk") -> NodeStorage:
    """Return a node that has met its leader, with entries 2 to 10."""
    storage = machine.open(durability)
    storage.meta.mark_trusted()
    storage.meta.save_vote(TERM, "a")
    add(storage, range(2, 11))
    return storage


def span(storage: NodeStorage) -> tuple[int, int]:
    """Return first and last index of the log."""
    return storage.journal.first_index, storage.journal.last_index


# --- log and snapshot -------------------------------------------------------------------------------------------------


def test_a_log_without_a_snapshot(machine: Machine) -> None:
    trusted(machine).close()
    storage = machine.open()
    assert (span(storage), storage.latest) == ((1, 10), None)
    assert (storage.recovering, storage.forgetful, storage.durable) == (False, False, True)


@pytest.mark.parametrize(
    ("index", "term", "kept"),
    [
        (5, TERM, (5, 10)),
        (10, TERM, (10, 10)),
        (2, TERM, (2, 10)),
        (5, TERM + 1, (5, 5)),
        (11, TERM, (11, 11)),
        (500, TERM + 2, (500, 500)),
    ],
)
def test_a_snapshot_and_a_log_that_was_not_cut_yet(
    machine: Machine, index: int, term: int, kept: tuple[int, int]
) -> None:
    """D6: the log begins at the snapshot; later entries are kept only if they match it."""
    storage = trusted(machine)
    snapshot(storage, index, term)
    storage.close()
    for _ in range(2):
        storage = machine.open()
        assert span(storage) == kept
        assert storage.journal.term_at(index) == term
        assert storage.latest is not None
        assert (storage.latest.index, dict(storage.latest.members)) == (index, MEMBERS)
        storage.close()
    storage = machine.open()
    add(storage, [kept[1] + 1], term)
    storage.close()
    assert span(machine.open()) == (kept[0], kept[1] + 1)


@pytest.mark.parametrize(
    ("has", "text"), [(False, "the snapshot of it is missing"), (True, "the newest snapshot is of 4")]
)
def test_a_log_that_begins_after_its_snapshot(machine: Machine, has: bool, text: str) -> None:
    """Entries in between are missing, so the state is unknown."""
    storage = trusted(machine)
    if has:
        snapshot(storage, 4)
    storage.journal.reset(7, TERM)
    storage.journal.sync()
    storage.close()
    with pytest.raises(DamagedFileError, match=text):
        machine.open()


def test_the_newest_snapshot_counts(machine: Machine) -> None:
    storage = trusted(machine)
    for index in (4, 8):
        snapshot(storage, index)
    storage.close()
    storage = machine.open()
    assert storage.latest is not None
    assert (storage.latest.index, span(storage)) == (8, (8, 10))


@pytest.mark.parametrize("durability", ["disk", "process"])
def test_a_missing_log_is_damage(machine: Machine, durability: str) -> None:
    """An empty log in its place would forget acknowledged entries."""
    trusted(machine, durability).close()
    for name in machine.folders[JOURNAL].names():
        machine.folders[JOURNAL].lose(name)
    with pytest.raises(DamagedFileError, match="the log's files are missing"):
        machine.open(durability)


# --- durability -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("had", ["disk", "process"])
def test_memory_refuses_a_folder_with_a_log(machine: Machine, had: str) -> None:
    trusted(machine, had).close()
    names = {folder: disk.names() for folder, disk in machine.folders.items()}
    with pytest.raises(DurabilityError, match=f"a log of durability {had}"):
        machine.open("memory")
    assert {folder: disk.names() for folder, disk in machine.folders.items()} == names
    assert span(machine.open(had)) == (1, 10)


@pytest.mark.parametrize(("had", "has"), [("disk", "process"), ("process", "disk")])
def test_disk_and_process_share_the_log(machine: Machine, had: str, has: str) -> None:
    trusted(machine, had).close()
    storage = machine.open(has)
    assert (span(storage), storage.recovering, storage.meta.durability) == ((1, 10), False, has)


@pytest.mark.parametrize("has", ["memory", "disk", "process"])
def test_after_memory_nothing_is_trusted(machine: Machine, has: str) -> None:
    """The last life may have acknowledged entries that are lost; this holds until the node has caught up."""
    storage = trusted(machine, "memory")
    assert isinstance(storage.journal, MemoryJournal)
    assert storage.durable is False
    storage.close()
    for _ in range(2):
        storage = machine.open(has)
        assert (span(storage), storage.recovering, storage.forgetful) == ((1, 1), True, False)
        assert (storage.meta.term, storage.meta.vote) == (TERM, "a")
        storage.close()
    storage = machine.open(has)
    storage.meta.mark_trusted()
    storage.close()
    assert machine.open(has).recovering is (has == "memory")


def test_durability_process_is_not_trusted_after_a_reboot(machine: Machine) -> None:
    """A power failure may lose unsynced data; the death of the process does not."""
    storage = trusted(machine, "process")
    storage.close()
    assert not machine.open("process").recovering
    storage = machine.open("process")
    storage.meta.boot = "another"
    storage.meta.save()
    storage.close()
    assert machine.open("process").recovering
    assert machine.open("process").recovering, "it has not caught up yet"


def test_durability_disk_is_trusted_after_a_reboot(machine: Machine) -> None:
    storage = trusted(machine)
    storage.meta.boot = "another"
    storage.meta.save()
    storage.close()
    machine.power_failure(1)
    storage = machine.open()
    assert (storage.recovering, span(storage)) == (False, (1, 10))


def test_a_founder_that_has_not_met_a_leader_is_not_trusted(machine: Machine) -> None:
    """It could be a member that has lost its disk with its vote. No other member can tell a single node."""
    for _ in range(2):
        storage = machine.open()
        assert (storage.recovering, storage.forgetful) == (True, True)
        storage.close()
    storage = machine.open()
    storage.meta.mark_trusted()
    storage.close()
    assert (machine.open().recovering, machine.open().forgetful) == (False, False)
    alone = Machine().open(founders={"a": "127.0.0.1:1"})
    assert (alone.recovering, alone.forgetful) == (False, False)


# --- interruptions ----------------------------------------------------------------------------------------------------


def interrupted(prepared: Machine, folder: str, calls: int, *, power: bool) -> Machine | None:
    """Return a machine that died during a start, after `calls` calls in one folder; None if the start needs
    no more calls.
    """
    machine = prepared.copy()
    machine.folders[folder].fail_after(calls)
    try:
        machine.open().close()
    except PowerCut:
        if power:
            machine.power_failure(calls)
        else:
            for disk in machine.folders.values():
                disk.process_crash()
        return machine
    return None


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("folder", FOLDERS, ids=["node", "journal", "snapshots"])
def test_a_first_start_interrupted_at_every_call(folder: str, power: bool) -> None:
    calls = 0
    while (machine := interrupted(Machine(), folder, calls, power=power)) is not None:
        storage = machine.open()
        assert (span(storage), storage.recovering, storage.forgetful) == ((1, 1), True, True)
        assert storage.meta.members == MEMBERS
        calls += 1
    assert calls > 0 or folder == SNAPSHOTS


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("folder", FOLDERS, ids=["node", "journal", "snapshots"])
@pytest.mark.parametrize("how", ["repair", "join", "leave"])
def test_a_wipe_interrupted_at_every_call(machine: Machine, how: str, folder: str, power: bool) -> None:
    """Discarded data never returns, not even in part, and the next start completes the wipe."""
    storage = trusted(machine)
    snapshot(storage, 6)
    add(storage, range(11, 200))
    storage.close()
    if how == "repair":
        discard_data(machine)
    else:
        members = MEMBERS if how == "join" else {"n": "127.0.0.1:4"}
        storage.meta.begin_again("n", members, joining=how == "join")
    calls = 0
    while (dead := interrupted(machine, folder, calls, power=power)) is not None:
        storage = dead.open()
        assert span(storage) == ((1, 1) if how == "leave" else (0, 0))
        assert storage.latest is None
        assert dead.folders[SNAPSHOTS].names() == []
        assert (storage.recovering, storage.meta.wipe) == (how == "repair", False)
        assert (storage.meta.node_id, storage.meta.term) == (("a", TERM) if how == "repair" else ("n", 0))
        # The storage can be used.
        first = span(storage)[1] + 1
        add(storage, range(first, first + 3), TERM)
        storage.close()
        assert span(dead.open())[1] == first + 2
        calls += 1
    assert calls > 0


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("folder", [JOURNAL, SNAPSHOTS, ""], ids=["journal", "snapshots", "node"])
def test_an_alignment_interrupted_at_every_call(machine: Machine, folder: str, power: bool) -> None:
    """A snapshot replaces the log, like one that was installed just before a crash."""
    storage = trusted(machine)
    snapshot(storage, 500, TERM + 1)
    storage.close()
    calls = 0
    while (dead := interrupted(machine, folder, calls, power=power)) is not None:
        storage = dead.open()
        assert span(storage) == (500, 500)
        assert (storage.meta.term, storage.meta.vote, storage.recovering) == (TERM, "a", False)
        calls += 1
    assert calls > 0 or folder == SNAPSHOTS


@pytest.mark.parametrize("seed", range(10))
def test_a_snapshot_interrupted_at_every_call_lasts_once_a_start_has_found_it(seed: int) -> None:
    """The process dies while it writes the snapshot. The next start makes the log begin there; then the power fails."""
    calls, found = 0, 0
    while True:
        machine = Machine()
        storage = trusted(machine)
        machine.folders[SNAPSHOTS].fail_after(calls)
        try:
            snapshot(storage, 500, TERM + 1)
        except PowerCut:
            pass
        else:
            break
        for disk in machine.folders.values():
            disk.process_crash()
        begin = span(machine.open())
        assert begin in ((1, 10), (500, 500))
        machine.power_failure(seed)
        assert span(machine.open()) == begin
        calls, found = calls + 1, found + (begin == (500, 500))
    assert calls > 3
    assert found > 0


# --- offline ----------------------------------------------------------------------------------------------------------


def test_repair_keeps_the_vote_and_nothing_else(machine: Machine) -> None:
    trusted(machine).close()
    assert discard_data(machine) is not None
    storage = machine.open()
    assert (span(storage), storage.recovering, storage.meta.members) == ((0, 0), True, {})
    assert (storage.meta.term, storage.meta.vote, storage.meta.node_id) == (TERM, "a", "a")


def test_repair_of_an_unreadable_identity_leaves_a_node_that_never_was(machine: Machine) -> None:
    """A founder then counts as one that has lost its disk: it neither votes nor counts before it has met a leader."""
    trusted(machine).close()
    for name in ("node.json", "node.copy.json"):
        machine.folders[""].truncate(name, random.Random(1))
    assert discard_data(machine) is None
    assert all(disk.names() == [] for disk in machine.folders.values())
    storage = machine.open()
    assert (span(storage), storage.recovering, storage.forgetful) == ((1, 1), True, True)


def test_repair_of_an_unreadable_identity_interrupted_at_every_call(machine: Machine) -> None:
    """Until it is done, a start fails as before, or finds nothing at all; never a part."""
    trusted(machine).close()
    for name in ("node.json", "node.copy.json"):
        machine.folders[""].truncate(name, random.Random(1))
    for folder in FOLDERS:
        calls = 0
        while True:
            one = machine.copy()
            one.folders[folder].fail_after(calls)
            try:
                discard_data(one)
            except PowerCut:
                one.power_failure(calls)
            else:
                break
            calls += 1
            names = one.folders[""].names()
            if names:
                with pytest.raises(DamagedFileError):
                    one.open()
            else:
                assert not any(disk.names() for disk in one.folders.values())


def test_recovery_makes_the_survivor_the_only_member(machine: Machine) -> None:
    trusted(machine).close()
    found = recover(machine)
    assert (found.node_id, set(found.members), found.last_index, found.last_term) == ("a", set(MEMBERS), 10, TERM)
    storage = machine.open()
    assert span(storage) == (1, 12)
    assert storage.journal.term_at(11) == storage.journal.term_at(12) == storage.meta.term == TERM + 1
    storage.close()
    again = recover(machine)
    assert (set(again.members), again.last_index) == ({"a"}, 12)
