"""Files of the event journal: names, rotation, bounds, and failed writes."""

from __future__ import annotations

import gzip
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmqcluster.node.events.files import EventFiles
from tests.event_reader import files_of, read_file

NOON_US = 1_793_707_200_000_000
"""2026-11-03T12:00:00Z."""


def member(number: int, padding: int = 0) -> bytes:
    """Return a gzip member of one line with that number."""
    noise = random.Random(number).randbytes(padding).hex()
    return gzip.compress(f'{{"number":{number},"noise":"{noise}"}}\n'.encode())


def numbers(folder: Path) -> list[list[int]]:
    """Return the numbers in each file, in order of the names."""
    return [[event["number"] for event in read_file(path)] for path in files_of(folder)]


def event_files(folder: Path, node: str = "n1", bytes_max: int = 1 << 20, files_max: int = 3) -> EventFiles:
    return EventFiles(folder, node, bytes_max=bytes_max, files_max=files_max)


@contextmanager
def full_disk(bytes_max: int) -> Iterator[None]:
    """Limit the files of this process to `bytes_max`: a write fills the remaining room, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_members_share_a_file_named_after_the_first_event_and_the_node(tmp_path: Path) -> None:
    files = event_files(tmp_path)
    for number in range(3):
        files.append(member(number), NOON_US + number)
    assert [path.name for path in tmp_path.iterdir()] == ["events-20261103T120000.000000Z-n1.jsonl.gz"]
    assert numbers(tmp_path) == [[0, 1, 2]]


def test_a_new_file_begins_before_the_size_limit(tmp_path: Path) -> None:
    size = len(member(0, 1000))
    files = event_files(tmp_path, bytes_max=2 * size + size // 2)
    for number in range(5):
        files.append(member(number, 1000), NOON_US + number)
    assert numbers(tmp_path) == [[0, 1], [2, 3], [4]]
    assert all(path.stat().st_size <= 2 * size + size // 2 for path in files_of(tmp_path))


def test_a_member_larger_than_the_limit_gets_a_separate_file(tmp_path: Path) -> None:
    files = event_files(tmp_path, bytes_max=10)
    for number in range(2):
        files.append(member(number), NOON_US + number)
    assert numbers(tmp_path) == [[0], [1]]


def test_the_oldest_files_of_this_node_are_deleted_and_no_others(tmp_path: Path) -> None:
    strangers = ["events-20200101T000000.000000Z-x-n1.jsonl.gz", "events-n1.jsonl.gz", "notes.txt"]
    for name in strangers:
        (tmp_path / name).write_bytes(b"")
    other = event_files(tmp_path, "n2", bytes_max=10)
    files = event_files(tmp_path, bytes_max=10, files_max=2)
    for number in range(4):
        files.append(member(number), NOON_US + number)
        other.append(member(number), NOON_US + number)
    assert [[e["number"] for e in read_file(path)] for path in files_of(tmp_path, "[!x]*-n1")] == []
    own = [path for path in files_of(tmp_path, "n1") if "x-n1" not in path.name]
    assert [[e["number"] for e in read_file(path)] for path in own] == [[2], [3]]
    assert len(files_of(tmp_path, "n2")) == 3
    assert all((tmp_path / name).exists() for name in strangers)


def test_names_sort_by_time_even_after_log_time_restarted(tmp_path: Path) -> None:
    files = event_files(tmp_path, bytes_max=10, files_max=9)
    for number, first_us in enumerate([NOON_US, NOON_US, 0, NOON_US + 5]):
        files.append(member(number), first_us)
    assert numbers(tmp_path) == [[0], [1], [2], [3]]
    stamps = [path.name.split("-")[1] for path in files_of(tmp_path)]
    assert stamps == [f"20261103T120000.00000{digit}Z" for digit in "0125"]


def test_a_later_process_never_appends_to_a_file_of_an_earlier_one(tmp_path: Path) -> None:
    event_files(tmp_path).append(member(0), NOON_US)
    event_files(tmp_path).append(member(1), NOON_US)
    assert numbers(tmp_path) == [[0], [1]]


def test_any_name_of_a_node_makes_a_file_name(tmp_path: Path) -> None:
    for node in ("lmq@host", "a/../b", "ü %"):
        files = event_files(tmp_path, node, bytes_max=10, files_max=1)
        files.append(member(0), NOON_US)
        files.append(member(1), NOON_US)
    names = sorted(path.name.split("Z-")[1] for path in files_of(tmp_path))
    assert names == ["%C3%BC%20%25.jsonl.gz", "a%2F..%2Fb.jsonl.gz", "lmq@host.jsonl.gz"]


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_leaves_whole_members_and_the_write_can_be_repeated(tmp_path: Path, room: int) -> None:
    files = event_files(tmp_path)
    files.append(member(0, 1000), NOON_US)
    size = files_of(tmp_path)[0].stat().st_size
    with full_disk(size + room), pytest.raises(OSError, match="File too large"):
        files.append(member(1, 1000), NOON_US + 1)
    assert files_of(tmp_path)[0].stat().st_size == size
    files.append(member(1, 1000), NOON_US + 1)
    assert numbers(tmp_path) == [[0, 1]]


def test_a_disk_that_is_full_from_the_start_leaves_no_empty_files_and_deletes_none(tmp_path: Path) -> None:
    event_files(tmp_path).append(member(0), NOON_US)
    files = event_files(tmp_path, files_max=1)
    with full_disk(5):
        for _ in range(3):
            with pytest.raises(OSError, match="File too large"):
                files.append(member(1), NOON_US + 1)
    assert numbers(tmp_path) == [[0]]
    files.append(member(1), NOON_US + 1)
    assert numbers(tmp_path) == [[1]]


def test_a_missing_folder_is_an_error_until_it_is_restored(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    files = event_files(folder)
    files.append(member(0), NOON_US)
    for path in files_of(folder):
        path.unlink()
    folder.rmdir()
    with pytest.raises(FileNotFoundError, match="events"):
        files.append(member(1), NOON_US + 1)
    folder.mkdir()
    files.append(member(1), NOON_US + 1)
    assert numbers(folder) == [[1]]


def test_a_removed_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    files = event_files(tmp_path)
    files.append(member(0), NOON_US)
    files_of(tmp_path)[0].unlink()
    files.append(member(1), NOON_US + 1)
    assert numbers(tmp_path) == [[1]]


def test_all_whole_members_of_a_truncated_file_can_be_read(tmp_path: Path) -> None:
    files = event_files(tmp_path)
    for number in range(3):
        files.append(member(number, 500), NOON_US + number)
    (path,) = files_of(tmp_path)
    whole = path.stat().st_size
    last = len(member(2, 500))
    for lost in (1, 9, last // 2, last - 1):
        os.truncate(path, whole - lost)
        found = [event["number"] for event in read_file(path, cut=True)]
        # Without its checksum the last member may still give its line.
        assert found[:2] == [0, 1]
        assert found[2:] in ([], [2])
        with pytest.raises((EOFError, gzip.BadGzipFile)):
            read_file(path)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0" * 4096, b"\x1f", member(3, 100_000)[:-1], member(3)[:9]],
    ids=["nothing", "zeros", "one byte", "all but one byte", "head"],
)
def test_a_cut_end_is_removed_and_nothing_else(tmp_path: Path, garbage: bytes) -> None:
    files = event_files(tmp_path)
    for number in range(3):
        files.append(member(number, 100_000), NOON_US + number)
    (path,) = files_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content + garbage)
    assert event_files(tmp_path).mend() == len(garbage)
    assert path.read_bytes() == content
    assert event_files(tmp_path).mend() == 0


def test_a_member_whose_checksum_is_wrong_is_cut_off(tmp_path: Path) -> None:
    files = event_files(tmp_path)
    for number in range(2):
        files.append(member(number), NOON_US + number)
    (path,) = files_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert event_files(tmp_path).mend() == len(member(1))
    assert numbers(tmp_path) == [[0]]


def test_a_file_without_a_whole_member_is_removed(tmp_path: Path) -> None:
    event_files(tmp_path).append(member(0), NOON_US)
    event_files(tmp_path).append(member(1), NOON_US)
    os.truncate(files_of(tmp_path)[1], 10)
    assert event_files(tmp_path).mend() == 10
    assert numbers(tmp_path) == [[0]]


def test_an_intact_file_is_not_changed(tmp_path: Path) -> None:
    event_files(tmp_path, "n2").append(member(0), NOON_US)
    os.truncate(files_of(tmp_path)[0], 10)
    assert event_files(tmp_path).mend() == 0
    assert files_of(tmp_path)[0].stat().st_size == 10, "it is another node's"
