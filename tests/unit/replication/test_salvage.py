"""The recoverable part of a single damaged node: the log up to the damage, of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lmqcluster.replication.base.membership import MEMBERSHIP, encode_change
from lmqcluster.replication.offline.data_directory import remains
from lmqcluster.replication.offline.salvage import is_alone, salvage
from lmqcluster.replication.storage.io.disk import DamagedFileError, Disk, Folder
from lmqcluster.replication.storage.node_storage import NodeStorage

ENTRIES = 200
SEGMENT_BYTES = 16 * 1024


class Folders:
    """The folders of one node."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, name: str) -> Disk:
        return Folder(self.path / name)

    def segments(self) -> list[Path]:
        """Return the files of the log, in order."""
        return sorted((self.path / "journal").glob("*.log"))


def make(path: Path, members: dict[str, str], entries: int = ENTRIES, change: bytes | None = None) -> Folders:
    """Create a node with a log in several files."""
    folders = Folders(path)
    storage = NodeStorage.open(folders, "me", members, "disk", segment_bytes=SEGMENT_BYTES)
    for number in range(entries):
        storage.journal.add(b"\0" + b"%06d" % number * 50, storage.journal.last_index + 1, 1)
        if number % 25 == 0:
            storage.journal.sync()
    storage.journal.sync()
    if change is not None:
        storage.journal.add(bytes([MEMBERSHIP]) + change, storage.journal.last_index + 1, 1)
        storage.journal.sync()
    storage.close()
    return folders


@pytest.fixture
def lone(tmp_path: Path) -> Folders:
    """A single node."""
    folders = make(tmp_path, {"me": "a:1"})
    assert len(folders.segments()) > 3
    return folders


def written(file: Path) -> int:
    """Return the size of the file without the preallocated rest."""
    return len(file.read_bytes().rstrip(b"\0"))


def flip(file: Path, offset: int) -> None:
    """Change one byte."""
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x55
    file.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Folders], object], int, int]] = {
    "the last file, in the middle": (lambda f: flip(f.segments()[-1], written(f.segments()[-1]) // 2), 150, ENTRIES),
    "a file in between": (lambda f: flip(f.segments()[1], 8000), 30, 120),
    "a file in between cut short": (
        lambda f: f.segments()[1].write_bytes(f.segments()[1].read_bytes()[:8000]),
        30,
        120,
    ),
    "a file in between missing": (lambda f: f.segments()[2].unlink(), 60, 140),
    "the head of a file": (lambda f: flip(f.segments()[2], 20), 60, 140),
    "the mark": (lambda f: flip(f.path / "journal" / "synced", 100), ENTRIES, ENTRIES),
    "the mark missing": (lambda f: (f.path / "journal" / "synced").unlink(), ENTRIES, ENTRIES),
    "two files": (lambda f: [flip(f.segments()[number], 9000) for number in (3, 1)], 30, 120),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_the_log_is_kept_up_to_the_damage(lone: Folders, damage: tuple[Callable[[Folders], object], int, int]) -> None:
    strike, least, most = damage
    before = remains(lone).last_index
    strike(lone)
    with pytest.raises(DamagedFileError):
        remains(lone)
    assert is_alone(lone)
    left = salvage(lone)
    assert least <= left.last_index <= min(most + 1, before)
    # It continues by itself, in a new term, with exactly the entries that were written.
    storage = NodeStorage.open(lone, "me", {"me": "a:1"}, "disk", segment_bytes=SEGMENT_BYTES)
    assert storage.journal.last_index > left.last_index
    assert storage.journal.term_at(storage.journal.last_index) == 2
    assert not storage.recovering
    commands = [entry.command for entry in storage.journal.entries(2, 1 << 30)]
    assert commands[: left.last_index - 1] == [b"\0" + b"%06d" % number * 50 for number in range(left.last_index - 1)]
    storage.close()


def test_the_first_file_is_required(lone: Folders) -> None:
    """Nothing of the log is left, so the repair fails."""
    flip(lone.segments()[0], 20)
    with pytest.raises(DamagedFileError):
        salvage(lone)


def test_a_node_with_other_members_is_not_alone(tmp_path: Path) -> None:
    """This follows from its first members, or from the newest readable entry."""
    founder = make(tmp_path / "founder", {"me": "a:1", "other": "a:2"}, 10)
    joined = make(tmp_path / "joined", {"me": "a:1"}, 10, encode_change("add", "other", "a:2"))
    for folders in (founder, joined):
        assert not is_alone(folders)
        flip(folders.segments()[-1], written(folders.segments()[-1]) - 1)
    assert not is_alone(founder)
    with pytest.raises(LookupError, match="not alone"):
        salvage(founder)


def test_a_node_whose_other_members_have_left_is_alone(tmp_path: Path) -> None:
    folders = make(tmp_path, {"me": "a:1", "other": "a:2"}, 10, encode_change("rem", "other", ""))
    assert is_alone(folders)
