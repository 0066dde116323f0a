"""The folder of snapshot files: writing, sending, receiving, keeping; on a real folder."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.snapshots import snapshot_file
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotInfo, SnapshotReceiver, SnapshotStore

MEMBERS = {"a": "127.0.0.1:1", "b": "127.0.0.1:2"}


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return _opened(tmp_path)


def _opened(path: Path) -> SnapshotStore:
    store = SnapshotStore(Folder(path), sync=True)
    store.open()
    return store


def _made(store: SnapshotStore, index: int, records: list[Any], term: int = 3) -> SnapshotInfo:
    writer = store.create(index, term, MEMBERS, 5)
    for record in records:
        writer.add(record)
        work = writer.take_work()
        if work is not None:
            work()
    writer.finish_work()()
    return store.adopt(writer)


def _noise(count: int, size: int) -> list[Any]:
    noise = random.Random(1)
    return [["row", number, noise.randbytes(size)] for number in range(count)]


def test_a_written_snapshot_can_be_read(store: SnapshotStore, tmp_path: Path) -> None:
    records = [["first"], *_noise(100, 30_000), ["end", 1]]
    info = _made(store, 7, records)
    assert (info.index, info.term, info.members, info.created_us) == (7, 3, MEMBERS, 5)
    assert info.file == f"{7:020d}-{3:020d}.snap"
    assert info.size_bytes == (tmp_path / info.file).stat().st_size
    assert info.blocks == 8
    assert list(store.records(info)) == records
    assert store.latest is info


def test_it_is_found_after_a_restart(store: SnapshotStore, tmp_path: Path) -> None:
    made = _made(store, 7, _noise(50, 30_000))
    store.close()
    again = _opened(tmp_path)
    found = again.latest
    assert found is not None
    fields = ("index", "term", "members", "created_us", "blocks", "size_bytes", "file")
    assert [getattr(found, name) for name in fields] == [getattr(made, name) for name in fields]
    assert list(again.records(found)) == _noise(50, 30_000)


def test_an_empty_folder_has_no_snapshot(tmp_path: Path) -> None:
    assert SnapshotStore(Folder(tmp_path), sync=False).open() is None


def test_blocks_are_of_bounded_size_for_any_records(store: SnapshotStore) -> None:
    """A message may be as large as 64 MiB; a block has to fit into a frame between nodes."""
    huge = random.Random(1).randbytes(3 * snapshot_file.RAW_BYTES_MAX + 5)
    records = [b"small", huge, b"small", huge[:700_000], huge[: snapshot_file.RAW_BYTES_MAX], b"", huge[:-5]]
    info = _made(store, 1, records)
    assert list(store.records(info)) == records
    sizes = [len(store.read_block(info, number)) for number in range(info.blocks)]
    assert max(sizes) <= snapshot_file.BLOCK_BYTES_MAX
    assert sum(sizes) + len(snapshot_file.PREFIX) == info.size_bytes


def test_nothing_is_written_before_a_block_is_full(store: SnapshotStore) -> None:
    writer = store.create(1, 1, {}, 0)
    assert writer.take_work() is None
    writer.add(b"x" * (snapshot_file.RAW_BYTES - 6))
    assert writer.take_work() is None
    writer.add(b"y")
    assert writer.take_work() is not None
    assert writer.take_work() is None


def test_a_snapshot_without_records(store: SnapshotStore) -> None:
    assert list(store.records(_made(store, 1, []))) == []


def test_older_files_stay_until_they_are_removed(store: SnapshotStore, tmp_path: Path) -> None:
    first = _made(store, 1, [1])
    second = _made(store, 2, [2])
    store.pin(first)
    store.pin(first)
    third = _made(store, 3, [3])
    store.remove_older_work()()
    assert _names(tmp_path) == [first.file, third.file]
    with pytest.raises(LookupError):
        store.records(second)
    assert list(store.records(first)) == [1]
    store.unpin(first)
    store.remove_older_work()()
    assert first.file in _names(tmp_path)
    store.unpin(first)
    store.remove_older_work()()
    assert _names(tmp_path) == [third.file]
    with pytest.raises(LookupError):
        store.read_block(first, 0)
    with pytest.raises(LookupError):
        store.pin(first)


def test_opening_keeps_the_newest_only(store: SnapshotStore, tmp_path: Path) -> None:
    _made(store, 9, [1])
    newest = _made(store, 10, [2], term=4)
    unfinished = store.create(12, 4, {}, 0)
    unfinished.add(b"x" * 600_000)
    work = unfinished.take_work()
    assert work is not None
    work()
    assert len(_names(tmp_path)) == 3
    store.close()
    again = _opened(tmp_path)
    assert _names(tmp_path) == [newest.file]
    assert again.latest is not None
    assert (again.latest.index, again.latest.term) == (10, 4)


def test_a_damaged_newest_file_is_not_passed_over(store: SnapshotStore, tmp_path: Path) -> None:
    _made(store, 9, [1])
    newest = tmp_path / _made(store, 10, [2]).file
    store.close()
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(DamagedFileError) as caught:
        _opened(tmp_path)
    assert caught.value.file == str(newest)
    assert len(_names(tmp_path)) == 2


def test_a_file_under_a_wrong_name_is_damage(store: SnapshotStore, tmp_path: Path) -> None:
    made = tmp_path / _made(store, 9, [1]).file
    store.close()
    made.rename(tmp_path / f"{10:020d}-{3:020d}.snap")
    with pytest.raises(DamagedFileError, match="name"):
        _opened(tmp_path)


def test_a_snapshot_that_is_not_newer_is_not_begun(store: SnapshotStore) -> None:
    _made(store, 9, [1])
    for index in (8, 9):
        with pytest.raises(ValueError, match="not newer"):
            store.create(index, 9, {}, 0)


def test_a_snapshot_that_was_overtaken_is_not_adopted(store: SnapshotStore, tmp_path: Path) -> None:
    slow = store.create(5, 1, {}, 0)
    fast = _made(store, 9, [1])
    slow.finish_work()()
    with pytest.raises(RuntimeError, match="not newer"):
        store.adopt(slow)
    slow.abandon()
    assert store.latest is fast
    assert _names(tmp_path) == [fast.file]


def test_only_a_finished_snapshot_is_adopted(store: SnapshotStore) -> None:
    writer = store.create(5, 1, {}, 0)
    with pytest.raises(RuntimeError):
        store.adopt(writer)
    work = writer.finish_work()
    with pytest.raises(RuntimeError):
        writer.add(1)
    with pytest.raises(RuntimeError):
        store.adopt(writer)
    work()
    store.adopt(writer)


@pytest.mark.parametrize("when", ["before", "between", "finished"])
def test_an_abandoned_snapshot_leaves_nothing(store: SnapshotStore, tmp_path: Path, when: str) -> None:
    writer = store.create(5, 1, {}, 0)
    writer.add(b"x" * 600_000)
    work = writer.take_work()
    assert work is not None
    if when != "before":
        work()
    if when == "finished":
        writer.finish_work()()
    writer.abandon()
    assert _names(tmp_path) == []
    writer.finish_work()()
    work()
    assert _names(tmp_path) == []
    with pytest.raises(RuntimeError):
        store.adopt(writer)


def test_abandoning_does_not_wait_for_work_in_progress(tmp_path: Path) -> None:
    """The event loop must not block until a disk has synced."""
    entered, proceed = threading.Event(), threading.Event()

    class SlowFolder(Folder):
        def rename(self, old: str, new: str) -> None:
            entered.set()
            assert proceed.wait(10)
            super().rename(old, new)

    store = SnapshotStore(SlowFolder(tmp_path), sync=True)
    writer = store.create(5, 1, {}, 0)
    thread = threading.Thread(target=writer.finish_work())
    thread.start()
    assert entered.wait(10)
    writer.abandon()
    assert len(_names(tmp_path)) == 1
    proceed.set()
    thread.join()
    assert _names(tmp_path) == []


def test_after_a_failed_write_nothing_is_published(tmp_path: Path) -> None:
    class FullFolder(Folder):
        def create(self, name: str) -> Any:
            raise OSError("no space left")

    writer = SnapshotStore(FullFolder(tmp_path), sync=True).create(5, 1, {}, 0)
    with pytest.raises(OSError, match="no space"):
        writer.finish_work()()
    with pytest.raises(RuntimeError, match="could not be written"):
        writer.finish_work()()
    writer.abandon()
    assert _names(tmp_path) == []


# --- from node to node ----------------------------------------------------------------------------------------------


def _transfer(source: SnapshotStore, info: SnapshotInfo, receiver: SnapshotReceiver, stop: int) -> None:
    while receiver.next_block < stop:
        number = receiver.next_block
        receiver.take(number, source.read_block(info, number))
        if number % 2:
            work = receiver.take_work()
            assert work is not None
            work()


def test_a_received_file_is_the_same_file(store: SnapshotStore, tmp_path: Path) -> None:
    info = _made(store, 7, _noise(100, 30_000))
    other = _opened(tmp_path / "other")
    receiver = other.receive(7, 3)
    _transfer(store, info, receiver, info.blocks)
    assert receiver.complete
    assert receiver.members == MEMBERS
    receiver.finish_work()()
    got = other.adopt(receiver)
    assert other.latest is got
    assert (tmp_path / info.file).read_bytes() == (tmp_path / "other" / info.file).read_bytes()
    assert list(other.records(got)) == _noise(100, 30_000)
    assert other.read_block(got, 3) == store.read_block(info, 3)


def test_a_received_file_can_be_tried_before_it_is_adopted(store: SnapshotStore, tmp_path: Path) -> None:
    info = _made(store, 7, [1, 2])
    other = _opened(tmp_path / "other")
    receiver = other.receive(7, 3)
    _transfer(store, info, receiver, info.blocks)
    with pytest.raises(RuntimeError):
        receiver.records()
    work = receiver.take_work()
    assert work is not None
    work()
    assert list(receiver.records()) == [1, 2]
    receiver.abandon()
    assert _names(tmp_path / "other") == []


def test_an_interrupted_transfer_continues(store: SnapshotStore, tmp_path: Path) -> None:
    info = _made(store, 7, _noise(100, 30_000))
    other = _opened(tmp_path / "other")
    receiver = other.receive(7, 3)
    first = store.read_block(info, 0)
    assert not receiver.resumes(first)
    _transfer(store, info, receiver, 3)
    assert receiver.next_block == 3
    assert receiver.resumes(first)
    assert not receiver.resumes(store.read_block(info, 1))
    _transfer(store, info, receiver, info.blocks)
    receiver.finish_work()()
    assert list(other.records(other.adopt(receiver))) == _noise(100, 30_000)


def test_a_wrong_block_changes_nothing(store: SnapshotStore, tmp_path: Path) -> None:
    info = _made(store, 7, _noise(100, 30_000))
    blocks = [store.read_block(info, number) for number in range(info.blocks)]
    foreign = _made(store, 8, [["foreign"]])
    receiver = _opened(tmp_path / "other").receive(7, 3)
    for number, block in enumerate(blocks):
        flipped = bytearray(block)
        flipped[-1] ^= 1
        wrong = [
            (number, bytes(flipped)),
            (number, block[:-1]),
            (number, block + b"x"),
            (number, b""),
            (number + 1, block),
            *((other, blocks[other]) for other in range(info.blocks) if other != number),
            *((number, blocks[other]) for other in range(info.blocks) if other != number),
            (number, store.read_block(foreign, foreign.blocks - 1)),
            (0, store.read_block(foreign, 0)),
        ]
        for claimed, bad in wrong:
            with pytest.raises(ValueError, match=r"block|header|snapshot"):
                receiver.take(claimed, bad)
        with pytest.raises(ValueError, match="ends after"):
            receiver.finish_work()
        receiver.take(number, block)
    with pytest.raises(ValueError, match=r"block|header|snapshot"):
        receiver.take(len(blocks), blocks[-1])
    receiver.finish_work()()


def test_the_end_of_another_snapshot_does_not_fit(store: SnapshotStore, tmp_path: Path) -> None:
    """Two nodes may snapshot the same entry; blocks of both must not be mixed."""
    info = _made(store, 7, [1])
    elsewhere = _opened(tmp_path / "elsewhere")
    twin = _made(elsewhere, 7, [2])
    receiver = _opened(tmp_path / "other").receive(7, 3)
    receiver.take(0, store.read_block(info, 0))
    receiver.take(1, store.read_block(info, 1))
    with pytest.raises(ValueError, match="not those that were written"):
        receiver.take(2, elsewhere.read_block(twin, 2))


@pytest.mark.parametrize(
    "header",
    [
        {"format": 2, "index": 7, "term": 3, "members": {}, "created_us": 0},
        {"format": 1, "index": 7, "term": 3, "members": {}},
        {"format": 1, "index": 7, "term": 3, "members": {}, "created_us": 0, "more": 0},
        {"format": 1, "index": 7, "term": 3, "members": {"a": 1}, "created_us": 0},
        {"format": 1, "index": 7, "term": 3, "members": [], "created_us": 0},
        {"format": 1, "index": 7, "term": 3, "members": {}, "created_us": None},
        {"format": 1, "index": 7, "term": -3, "members": {}, "created_us": 0},
        {"format": 1, "index": 8, "term": 3, "members": {}, "created_us": 0},
        [],
        None,
    ],
)
def test_a_contradicting_header_is_refused(store: SnapshotStore, header: Any) -> None:
    block = snapshot_file.encode_block(snapshot_file.Kind.HEADER, 0, msgpack.packb(header))
    with pytest.raises(ValueError, match="header"):
        store.receive(7, 3).take(0, block)


def _names(path: Path) -> list[str]:
    return Folder(path).names()
