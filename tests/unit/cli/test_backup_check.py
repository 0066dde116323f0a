"""Forged backups: refused in little memory, before anything is written."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest
from lmqcluster_cli.shared.errors import ExitCode

from lmqcluster.core import Machine, Op
from lmqcluster.core.snapshot.records import with_salt
from lmqcluster.replication.offline import backup_check
from lmqcluster.replication.offline import data_directory as offline
from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.snapshots.snapshot_file import (
    BLOCK_BYTES_MAX,
    PREFIX,
    Chain,
    Header,
    Kind,
    encode_block,
    parse_head,
)
from lmqcluster.wire.values import Scan

ADDRESS_SPACE_MAX = 600 * 1024 * 1024
"""Memory limit of a restore; the interpreter with its libraries takes half of it, and no sum of records counts."""
STATE = [list(record) for record in Machine(lambda _pattern: lambda _name: False).snapshot()]
WHOLE = b"".join(map(msgpack.packb, STATE))


def backup(path: Path, *blocks: tuple[int, bytes], records: int | None = None) -> Path:
    """Write a file with valid checksums, whatever its blocks hold."""
    chain = Chain()
    with path.open("wb") as out:
        out.write(PREFIX)
        for kind, payload in ((Kind.HEADER, Header(7, 1, {"a": "127.0.0.1:1"}, 0).pack()), *blocks):
            block = encode_block(kind, chain.next_number, payload)
            chain.add(parse_head(block))
            out.write(block)
        out.write(
            encode_block(Kind.END, chain.next_number, chain.end(len(STATE) if records is None else records).pack())
        )
    return path


def verify(path: Path) -> None:
    offline.verify(Folder(path.parent), path.name)


def test_a_state_is_a_state(tmp_path: Path) -> None:
    verify(backup(tmp_path / "one", (Kind.RECORDS, WHOLE)))
    first, *others = map(msgpack.packb, STATE)
    verify(backup(tmp_path / "two", (Kind.RECORDS, first), (Kind.RECORDS, b"".join(others))))
    large = msgpack.packb(["x", b"y" * 1000])
    head, end = b"".join([first, *others[:-1]]), msgpack.packb(["end", len(STATE)])
    pieces = [(Kind.PIECE, large[:500]), (Kind.LAST_PIECE, large[500:])]
    verify(backup(tmp_path / "three", (Kind.RECORDS, head), *pieces, (Kind.RECORDS, end), records=len(STATE) + 1))


@pytest.mark.parametrize(
    ("blocks", "records", "reason"),
    [
        ([], 0, "it holds no state"),
        ([(Kind.RECORDS, WHOLE)], 1, f"there are {len(STATE)} records and should be 1"),
        ([(Kind.RECORDS, msgpack.packb(STATE[0]))], 1, "not hold a whole state"),
        ([(Kind.RECORDS, WHOLE + msgpack.packb(["end", len(STATE)]))], len(STATE) + 1, None),
        ([(Kind.RECORDS, msgpack.packb(STATE[-1]))], 1, "does not begin with its header"),
        ([(Kind.RECORDS, msgpack.packb(["lmqcluster", 10_000]))], 1, "the snapshot has (format|version) 10000"),
        ([(Kind.RECORDS, b"\xc1")], 1, "malformed"),
        ([(Kind.RECORDS, b"\x92")], 1, "cut off"),
        ([(Kind.RECORDS, b"")], 0, "cut off"),
        ([(Kind.RECORDS, b"\x00")], 1, "malformed"),
    ],
)  # fmt: skip
def test_an_invalid_state_is_refused(
    blocks: list[tuple[int, bytes]], records: int, reason: str | None, tmp_path: Path
) -> None:
    path = backup(tmp_path / "file", *blocks, records=records)
    if reason is None:
        # Data after its end is found by the node that loads it.
        verify(path)
        return
    with pytest.raises(DamagedFileError, match=reason):
        verify(path)


def bomb(name: str) -> list[tuple[int, bytes]]:
    """Return blocks that stand for gigabytes: zeros in pieces, and values that take a hundred times their bytes."""
    head = (Kind.RECORDS, msgpack.packb(STATE[0]))
    end = (Kind.RECORDS, msgpack.packb(["end", 2]))
    lists = b"\xdd" + (BLOCK_BYTES_MAX - 5).to_bytes(4, "big") + b"\x90" * (BLOCK_BYTES_MAX - 5)
    if name == "one body":
        body = b"\xc6" + (600 * 1024 * 1024).to_bytes(4, "big")
        return [head, (Kind.PIECE, body), *[(Kind.PIECE, bytes(BLOCK_BYTES_MAX))] * 75, (Kind.LAST_PIECE, b""), end]
    if name == "lists":
        return [head, (Kind.RECORDS, lists), end]
    if name == "lists in pieces":
        return [head, *[(Kind.PIECE, lists)] * 40, (Kind.LAST_PIECE, b"\x90"), end]
    return [(Kind.RECORDS, lists), end]


@pytest.mark.parametrize("name", ["one body", "lists", "lists in pieces", "a header of lists"])
def test_a_small_file_that_stands_for_gigabytes_is_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    path = backup(tmp_path / "bomb", *bomb(name), records=3)
    assert path.stat().st_size < 200_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX))

    folder = tmp_path / "deep" / "restored"
    words = ["-m", "lmqcluster_cli.admin", "restore", str(path), "--data-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *words], preexec_fn=limit, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == ExitCode.BAD_DATA, done.stderr
    assert re.search(r"more than \d+ (values|bytes)", done.stderr), done.stderr
    assert not folder.parent.exists(), "a failure leaves no folders"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\x01", "a record is no array"),
        (b"\xa1x", "a record is no array"),
        (msgpack.packb(["x"]), "it holds more records than a file of this size can"),
        (
            msgpack.packb(["x", [0] * 1_000_000]),
            "it holds more records than a file of this size can|more than [0-9]+ values",
        ),
    ],
)
def test_a_small_file_that_stands_for_very_many_records_is_refused_soon(
    tmp_path: Path, record: bytes, reason: str
) -> None:
    raw = 8_000_000 // len(record) * record
    path = backup(tmp_path / "bomb", (Kind.RECORDS, msgpack.packb(STATE[0])), *[(Kind.RECORDS, raw)] * 100)
    assert path.stat().st_size < 200_000
    with pytest.raises(DamagedFileError, match=reason):
        verify(path)


def test_the_bounds_leave_room_for_similar_queues(tmp_path: Path) -> None:
    """Numbered queues with one message each compress best of all that clients can create."""
    machine = Machine(lambda _pattern: lambda _name: False)
    machine.apply(1, b"o", 1, 1, [[Op.SET_SALT, bytes(16)]])
    machine.apply(2, b"o", 1, 2, [[Op.PUSH, b"queue-%05d" % number, None, [b"x"], None, 0] for number in range(20_000)])
    records = [msgpack.packb(record) for record in machine.snapshot()]
    path = backup(tmp_path / "file", (Kind.RECORDS, b"".join(records)), records=len(records))
    size, scans = path.stat().st_size, [Scan(1_000_000) for _ in records]
    for scan, record in zip(scans, records, strict=True):
        scan.feed(record)
    assert len(records) / size < backup_check.RECORDS_PER_BYTE / 4
    assert sum(scan.count for scan in scans) / size < backup_check.VALUES_PER_BYTE / 4
    verify(path)


def test_the_bounds_leave_room_for_snapshots_of_nodes() -> None:
    """A slice has 500 rows of some dozen values, and a body of 64 MiB is a separate record."""
    assert backup_check.RECORD_BYTES_MAX >= 8 * 64 * 1024 * 1024
    assert backup_check.RECORD_VALUES_MAX >= 1000 * 500


def test_a_copy_equals_the_original(tmp_path: Path) -> None:
    """Blocks are copied unchanged; only the header is the new node's."""
    large: Any = ["x", b"\x00\xff" * BLOCK_BYTES_MAX]
    packed = msgpack.packb(large)
    half = BLOCK_BYTES_MAX - 100_000
    pieces = [(Kind.PIECE, packed[at : at + half]) for at in range(0, len(packed), half)]
    pieces[-1] = (Kind.LAST_PIECE, pieces[-1][1])
    head, end = WHOLE.removesuffix(msgpack.packb(STATE[-1])), msgpack.packb(["end", len(STATE)])
    path = backup(
        tmp_path / "file", (Kind.RECORDS, head), *pieces, (Kind.RECORDS, end), records=len(STATE) + 1
    )  # fmt: skip
    folder = tmp_path / "node"
    index = offline.restore(Folder(path.parent), path.name, lambda name: Folder(folder / name), "b" * 32, "127.0.0.1:2")
    assert index == 7
    with offline._opened(lambda name: Folder(folder / name)) as storage:
        assert storage.latest is not None
        assert dict(storage.latest.members) == {"b" * 32: "127.0.0.1:2"}
        found = list(storage.snapshots.records(storage.latest))
    assert found[0][4] != STATE[0][4], "ids of messages are not those of the old cluster"
    assert found == [with_salt(STATE[0], found[0][4]), *STATE[1:-1], large, ["end", len(STATE)]]
