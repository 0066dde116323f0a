"""A node's identity, term and vote: damage to one of its two files loses nothing that was promised."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import xxhash

from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.meta import FILE_NAMES, INCARNATION_STEP, NodeMeta, boot_id
from tests.simulation.disk import PowerCut, SimDisk

FOUNDERS = {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}
CALLS_OF_A_SAVE = 10
"""Create, write, sync, rename and sync of the folder, for each of two files."""


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1))


def opened(disk: SimDisk | Folder) -> NodeMeta:
    return NodeMeta.open(disk, "a", FOUNDERS)


def read(disk: SimDisk | Folder) -> NodeMeta:
    meta = NodeMeta.read(disk)
    assert meta is not None
    return meta


def overwrite(disk: SimDisk, name: str, data: bytes) -> None:
    """Replace the contents durably."""
    file = disk.create(name)
    file.write_at(0, data)
    file.sync()
    disk.sync()


def test_a_first_life(disk: SimDisk) -> None:
    assert NodeMeta.read(disk) is None
    meta = opened(disk)
    assert (meta.node_id, meta.members, meta.term, meta.vote) == ("a", FOUNDERS, 0, None)
    assert (meta.restarted, meta.founding, meta.recovering, meta.wipe, meta.joining) == (
        False,
        True,
        False,
        False,
        False,
    )
    assert meta.durability is None
    assert disk.names() == sorted(FILE_NAMES)


def test_a_single_founder_can_trust_itself() -> None:
    assert not NodeMeta.open(SimDisk(random.Random(1)), "a", {"a": "127.0.0.1:1"}).founding


def test_founders_that_are_not_known_yet_are_found_once(disk: SimDisk) -> None:
    meta = NodeMeta.open(disk, "a", None)
    assert (meta.awaits_founders, meta.founding, meta.joining, meta.left, meta.members) == (
        True,
        True,
        False,
        False,
        {},
    )
    # While it is a member of no cluster, its configuration counts.
    assert NodeMeta.open(disk, "A", None).node_id == "A"
    assert NodeMeta.open(disk, "n", {}).left
    other = SimDisk(random.Random(2))
    NodeMeta.open(other, "a", None).found(FOUNDERS)
    again = NodeMeta.open(other, "z", None)
    assert (again.node_id, again.members, again.founding, again.awaits_founders) == ("a", FOUNDERS, True, False)
    with pytest.raises(ValueError, match="known already"):
        again.found({"a": "a", "b": "b"})
    assert read(other).members == FOUNDERS


def test_everything_is_kept_for_the_next_life(tmp_path: Path) -> None:
    first = opened(Folder(tmp_path))
    first.save_vote(7, "b")
    first.save_members({"a": "127.0.0.1:9"})
    first.durability, first.boot, first.recovering = "disk", boot_id(), True
    first.save()
    # Another id and other founders are ignored from now on.
    second = NodeMeta.open(Folder(tmp_path), "z", {"z": "127.0.0.1:26"})
    assert (second.node_id, second.term, second.vote, second.members) == ("a", 7, "b", {"a": "127.0.0.1:9"})
    assert (second.durability, second.boot, second.recovering, second.restarted) == ("disk", boot_id(), True, True)
    assert second.incarnation > first.incarnation


def test_the_incarnation_grows_even_if_the_clock_goes_back(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    before = opened(disk).incarnation
    monkeypatch.setattr("time.time", lambda: 10.0)
    copy = disk.copy()
    after = opened(disk).incarnation
    assert before == 1_000_000
    assert before < after <= before + INCARNATION_STEP
    assert opened(copy).incarnation != after, "two concurrent lives have different incarnations"


def test_a_new_folder_has_a_unique_origin_and_keeps_it(disk: SimDisk) -> None:
    """The cluster counts batches by it: a node that lost its disk must not reuse numbers that others have seen."""
    first = opened(disk).origin
    assert read(disk).origin == opened(disk).origin == first
    assert opened(SimDisk(random.Random(1))).origin != first
    meta = read(disk)
    meta.begin_again("a", FOUNDERS, joining=False)
    assert read(disk).origin not in {first, "a"}


@pytest.mark.parametrize("change", [{"colour": "red"}, {"left": None}, {"origin": 1}])
def test_other_fields_than_those_of_the_format_are_refused(disk: SimDisk, change: dict[str, Any]) -> None:
    opened(disk)
    document = json.loads(disk.content(FILE_NAMES[0]))
    document["node"] |= change
    reseal(disk, document)
    with pytest.raises(DamagedFileError, match="not those of a node's identity"):
        NodeMeta.read(disk)


def reseal(disk: SimDisk, document: dict[str, Any]) -> None:
    """Write a changed document with a valid checksum."""
    text = json.dumps(document["node"], sort_keys=True)
    document["checksum"] = xxhash.xxh3_64_hexdigest(text.encode())
    for name in FILE_NAMES:
        overwrite(disk, name, json.dumps(document).encode())


@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
@pytest.mark.parametrize("calls", range(CALLS_OF_A_SAVE))
def test_a_save_that_is_interrupted_happens_or_does_not(disk: SimDisk, calls: int, power: bool) -> None:
    """The result is never a mixture and never empty; and the next save is newer than both files."""
    opened(disk).save_vote(3, "a")
    meta = read(disk)
    disk.fail_after(calls)
    with pytest.raises(PowerCut):
        meta.save_vote(4, "b")
    if power:
        disk.power_failure(random.Random(calls))
    else:
        disk.process_crash()
    found = read(disk)
    assert (found.term, found.vote) in {(3, "a"), (4, "b")}
    found.save_vote(5, "c")
    for name in FILE_NAMES:
        one = disk.copy()
        one.lose(name)
        assert (read(one).term, read(one).vote) == (5, "c")


def test_a_save_makes_no_more_calls_than_these(disk: SimDisk) -> None:
    """This ensures that the test above interrupts each of them."""
    meta = opened(disk)
    disk.fail_after(CALLS_OF_A_SAVE)
    meta.save_vote(4, "b")


@pytest.mark.parametrize("seed", range(20))
def test_a_save_that_has_returned_survives_a_power_failure(disk: SimDisk, seed: int) -> None:
    """This holds with the loss of either file too."""
    opened(disk).save_vote(9, "c")
    disk.power_failure(random.Random(seed))
    disk.lose(FILE_NAMES[seed % 2])
    assert (read(disk).term, read(disk).vote) == (9, "c")


@pytest.mark.parametrize("name", FILE_NAMES)
def test_any_flipped_bit_of_one_file_is_detected(disk: SimDisk, name: str) -> None:
    opened(disk).save_vote(9, "c")
    rng = random.Random(2)
    for offset in range(len(disk.content(name))):
        broken = disk.copy()
        broken.flip_bit(name, rng, offset)
        found = read(broken)
        assert (found.term, found.vote, found.node_id) == (9, "c", "a")
        # The same in both files leaves nothing to begin with, unless the bit makes no difference, as in white space.
        whole = broken.content(name)
        if _decodes_to(whole, disk.content(name)):
            continue
        overwrite(broken, _other(name), whole)
        with pytest.raises(DamagedFileError):
            NodeMeta.read(broken)


def _other(name: str) -> str:
    return next(one for one in FILE_NAMES if one != name)


def _decodes_to(data: bytes, original: bytes) -> bool:
    try:
        return bool(json.loads(data) == json.loads(original))
    except ValueError:
        return False


@pytest.mark.parametrize("name", FILE_NAMES)
@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_cut_file_is_replaced_by_its_copy(disk: SimDisk, name: str, size: int) -> None:
    opened(disk).save_vote(9, "c")
    overwrite(disk, name, disk.content(name)[:size])
    assert read(disk).term == 9
    opened(disk)
    disk.lose(_other(name))
    assert read(disk).term == 9, "the next start has mended it"


def test_the_newer_file_counts(disk: SimDisk) -> None:
    """This holds for either of the two."""
    meta = opened(disk)
    meta.save_vote(1, "a")
    old = disk.content(FILE_NAMES[0])
    meta.save_vote(2, "b")
    for name in FILE_NAMES:
        one = disk.copy()
        overwrite(one, name, old)
        assert (read(one).term, read(one).vote) == (2, "b")


def test_both_damaged_is_said_with_the_file(disk: SimDisk) -> None:
    """Term and vote are unknown: the node could vote twice."""
    opened(disk)
    for name in FILE_NAMES:
        overwrite(disk, name, b"{}")
    with pytest.raises(DamagedFileError, match="not a node's identity") as caught:
        opened(disk)
    assert caught.value.file == disk.path(FILE_NAMES[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format 2, this program reads format 1"),
        ({"format": 0}, "format 0, this program reads format 1"),
        ({"checksum": "0" * 16}, "its checksum is wrong"),
        ({"node": []}, "its checksum is wrong"),
        ({"node": None}, "its checksum is wrong"),
    ],
)
def test_the_error_is_reported(disk: SimDisk, change: dict[str, Any], reason: str) -> None:
    opened(disk)
    document = {**json.loads(disk.content(FILE_NAMES[0])), **change}
    for name in FILE_NAMES:
        overwrite(disk, name, json.dumps(document).encode())
    with pytest.raises(DamagedFileError, match=reason):
        NodeMeta.read(disk)


def test_a_new_identity_forgets_the_old_one_but_not_the_incarnation(disk: SimDisk) -> None:
    meta = opened(disk)
    meta.save_vote(9, "c")
    meta.durability, meta.recovering = "disk", True
    before = meta.incarnation
    meta.begin_again("n-1", {"x": "127.0.0.1:7"}, joining=True)
    found = read(disk)
    assert (found.node_id, found.term, found.vote, found.members) == ("n-1", 0, None, {"x": "127.0.0.1:7"})
    assert (found.wipe, found.joining, found.recovering, found.founding, found.durability) == (
        True,
        True,
        False,
        False,
        None,
    )
    assert found.incarnation > before


def test_discarded_data_leave_identity_term_and_vote(disk: SimDisk) -> None:
    """A vote must not be given twice, and acknowledged entries may be missing until the leader has sent them."""
    opened(disk).save_vote(9, "c")
    read(disk).discard_data()
    found = read(disk)
    assert (found.node_id, found.term, found.vote) == ("a", 9, "c")
    assert (found.wipe, found.joining, found.recovering, found.members) == (True, True, True, {})


def test_trust_is_written_once(disk: SimDisk) -> None:
    """It is checked in every step."""
    meta = opened(disk)
    meta.mark_trusted()
    assert not read(disk).founding
    calls = disk.calls
    meta.mark_trusted()
    meta.save_vote(meta.term, meta.vote)
    meta.save_members(FOUNDERS)
    assert disk.calls == calls
