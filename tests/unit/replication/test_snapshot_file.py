"""The format of snapshot files: any damage to a file is detected when it is read (law 6)."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.snapshots import snapshot_file
from lmqcluster.replication.storage.snapshots.snapshot_store import SnapshotStore

RECORDS: list[Any] = [["lmqcluster", 2, b"salt"], ["queue", b"q", []], [b"x" * 90, 1.5, None], ["end", 3]]


def _file(path: Path, records: list[Any], *, raw_bytes: int, raw_bytes_max: int) -> tuple[str, list[int]]:
    """Write a file of small blocks; return its name and the offsets of the blocks, with the size at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_file, "RAW_BYTES", raw_bytes)
        patch.setattr(snapshot_file, "RAW_BYTES_MAX", raw_bytes_max)
        store = SnapshotStore(Folder(path), sync=False)
        writer = store.create(1, 1, {"a": "b"}, 0)
        for record in records:
            writer.add(record)
        writer.finish_work()()
        info = store.adopt(writer)
        starts = [len(snapshot_file.PREFIX)]
        for number in range(info.blocks):
            starts.append(starts[-1] + len(store.read_block(info, number)))
        store.close()
    return info.file, starts


def _read(path: Path) -> list[Any]:
    store = SnapshotStore(Folder(path), sync=False)
    try:
        info = store.open()
        assert info is not None
        return list(store.records(info))
    finally:
        store.close()


def test_a_large_body_is_stored_in_pieces_and_read_back(tmp_path: Path) -> None:
    """It is larger than two blocks, and once exactly as large as blocks are."""
    large = random.Random(1).randbytes(2 * snapshot_file.RAW_BYTES_MAX + 5)
    records = [
        ["first"],
        ["ready", [7], [large], []],
        ["ready", [8], [large[: snapshot_file.RAW_BYTES_MAX + 1]], []],
        ["end"],
    ]
    _file(tmp_path, records, raw_bytes=snapshot_file.RAW_BYTES, raw_bytes_max=snapshot_file.RAW_BYTES_MAX)
    assert _read(tmp_path) == records


@given(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=9))
def test_a_large_record_in_parts_makes_the_same_blocks_as_in_one(sizes: list[int]) -> None:
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    parts.append(bytes(41))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_file, "RAW_BYTES_MAX", 40)
        packers = [snapshot_file.BlockPacker(), snapshot_file.BlockPacker()]
        packers[0].add(b"".join(parts))
        packers[1].add_large(parts)
        blocks = [
            [(kind, b"".join(pieces), records) for kind, pieces, records in packer.take_all()] for packer in packers
        ]
    assert blocks[0] == blocks[1]
    assert all(len(payload) == 40 for _kind, payload, _records in blocks[0][:-1])


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, bytes, list[int]]:
    """A small file with every kind of block: its path, bytes, and block offsets."""
    name, starts = _file(tmp_path, RECORDS, raw_bytes=20, raw_bytes_max=40)
    data = (tmp_path / name).read_bytes()
    kinds = {data[start + 8] for start in starts[:-1]}
    assert kinds == {1, 2, 3, 4, 5}
    assert _read(tmp_path) == RECORDS
    return tmp_path / name, data, starts


def _assert_damaged(path: Path) -> None:
    with pytest.raises(DamagedFileError) as caught:
        _read(path.parent)
    assert caught.value.file == str(path)
    assert 0 <= caught.value.offset <= path.stat().st_size + 1


def test_every_flipped_bit_is_detected(small: tuple[Path, bytes, list[int]]) -> None:
    path, data, _ = small
    for position in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        _assert_damaged(path)


def test_every_truncation_is_detected(small: tuple[Path, bytes, list[int]]) -> None:
    path, data, _ = small
    for size in range(len(data)):
        path.write_bytes(data[:size])
        _assert_damaged(path)


@pytest.mark.parametrize("extra", [b"\0", b"\0" * 4096, b"LMQ"])
def test_bytes_after_the_end_are_detected(small: tuple[Path, bytes, list[int]], extra: bytes) -> None:
    path, data, starts = small
    path.write_bytes(data + extra)
    _assert_damaged(path)
    path.write_bytes(data + data[starts[-2] :])
    _assert_damaged(path)


def test_missing_repeated_and_exchanged_blocks_are_detected(small: tuple[Path, bytes, list[int]]) -> None:
    path, data, starts = small
    prefix = data[: starts[0]]
    blocks = [data[start:stop] for start, stop in pairwise(starts)]
    for number, block in enumerate(blocks):
        path.write_bytes(prefix + b"".join(blocks[:number] + blocks[number + 1 :]))
        _assert_damaged(path)
        path.write_bytes(prefix + b"".join([*blocks[:number], block, *blocks[number:]]))
        _assert_damaged(path)
        if number:
            swapped = [*blocks[: number - 1], block, blocks[number - 1], *blocks[number + 1 :]]
            path.write_bytes(prefix + b"".join(swapped))
            _assert_damaged(path)


def test_a_foreign_block_with_a_valid_checksum_is_detected(small: tuple[Path, bytes, list[int]]) -> None:
    """The blocks are valid but were not written together."""
    path, data, starts = small
    stored = data[starts[1] : starts[2]]
    forged = snapshot_file.encode_block(snapshot_file.Kind.RECORDS, 1, msgpack.packb(["something else"]))
    assert stored != forged
    path.write_bytes(data[: starts[1]] + forged + data[starts[2] :])
    _assert_damaged(path)


def test_damage_after_opening_is_detected_when_it_is_read(small: tuple[Path, bytes, list[int]]) -> None:
    path, data, starts = small
    store = SnapshotStore(Folder(path.parent), sync=False)
    info = store.open()
    assert info is not None
    with path.open("r+b") as file:
        file.seek(starts[3] - 1)
        file.write(bytes([data[starts[3] - 1] ^ 1]))
    with pytest.raises(DamagedFileError) as caught:
        list(store.records(info))
    assert caught.value.offset == starts[2]
    with pytest.raises(DamagedFileError):
        store.read_block(info, 2)
    assert store.read_block(info, 1) == data[starts[1] : starts[2]]
    store.close()


def test_a_payload_that_claims_another_size_is_not_decompressed() -> None:
    """A valid checksum does not make a peer's block harmless."""
    block = bytearray(snapshot_file.encode_block(snapshot_file.Kind.RECORDS, 0, b"x" * 5000))
    block[16:20] = struct.pack("<I", 4)
    sealed = snapshot_file.verified(_resealed(bytes(block)), 0)
    with pytest.raises(ValueError, match="length"):
        sealed.payload()


@pytest.mark.parametrize("field", [16, 20])
def test_a_block_larger_than_allowed_is_refused(field: int) -> None:
    block = bytearray(snapshot_file.encode_block(snapshot_file.Kind.RECORDS, 0, b"x"))
    block[field : field + 4] = struct.pack("<I", snapshot_file.BLOCK_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="larger"):
        snapshot_file.verified(_resealed(bytes(block)), 0)


@pytest.mark.parametrize("payload", [b"\xc1", b"\x92\x01", b"\x01\x92", b"\xa1\xff", b"\x91" * 5000])
def test_malformed_records_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"MessagePack|cut off|codec"):
        snapshot_file.records_of(payload)


def _resealed(block: bytes) -> bytes:
    import xxhash

    return struct.pack("<Q", xxhash.xxh3_64_intdigest(block[8:])) + block[8:]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=150)
@given(
    records=st.lists(st.lists(VALUES, max_size=4), max_size=20),
    raw_bytes=st.integers(1, 200),
    more=st.integers(0, 200),
    seed=st.integers(0, 1 << 32),
)
def test_any_sequence_of_records_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], raw_bytes: int, more: int, seed: int
) -> None:
    path = tmp_path_factory.mktemp("snapshots")
    limit = raw_bytes + more
    noise = random.Random(seed)
    mixed = [record if noise.random() < 0.9 else [*record, noise.randbytes(limit * 3)] for record in records]
    _file(path, mixed, raw_bytes=raw_bytes, raw_bytes_max=limit)
    assert _read(path) == mixed
