"""Backups become snapshots again: messages of pages are paged from the start, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster.core import Machine, Op, Restoration, State
from lmqcluster.core.messages.columns import messages_of
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.replication.offline import data_directory as offline
from lmqcluster.replication.storage.io.disk import DamagedFileError, Folder
from lmqcluster.replication.storage.io.worker import AtOnce
from lmqcluster.replication.storage.node_storage import PAGES
from lmqcluster.replication.storage.page_files import PageFiles
from lmqcluster.replication.storage.snapshots.snapshot_file import Kind
from tests.unit.cli.test_backup_check import backup

MESSAGES = 40
SIZES = ChunkSizes(head_messages=4, head_messages_min=2, messages=3)


def no_pattern(_pattern: bytes) -> Any:
    return lambda _name: False


def filled() -> Machine:
    """A machine with a long queue, another one, and messages of other kinds."""
    machine = Machine(no_pattern)
    machine.state.pager.sizes = SIZES
    commands: list[list[Any]] = [[Op.BARRIER]]
    commands += [
        [Op.PUSH, b"long", None, [b"%d" % number, b"second of %d" % number], None, 0] for number in range(MESSAGES)
    ]
    commands.append([Op.PUSH, b"short", None, [b"one"], None, 0])
    for sequence, command in enumerate(commands, 1):
        machine.apply(1_000 + sequence, b"n", 1, sequence, [command])
    return machine


def records(machine: Machine) -> list[bytes]:
    """Return a backup's records."""
    return [msgpack.packb(record) for record in machine.snapshot()]


def restored(folder: Path, packed: list[bytes], *blocks: tuple[int, bytes]) -> Iterator[Any]:
    """Restore a backup of these records; return the snapshot's."""
    path = backup(folder / "backup", *(blocks or [(Kind.RECORDS, b"".join(packed))]), records=len(packed))
    offline.restore(Folder(folder), path.name, lambda name: Folder(folder / "node" / name), "b" * 32, "127.0.0.1:2")
    with offline._opened(lambda name: Folder(folder / "node" / name)) as storage:
        assert storage.latest is not None
        yield from storage.snapshots.records(storage.latest)


def with_pages_read(folder: Path, found: list[Any]) -> list[Any]:
    """Return the records, with the messages of pages in place of their names."""
    pages = PageFiles(Folder(folder / "node" / PAGES), AtOnce(), sync=False)
    result: list[Any] = []
    for record in found:
        if record[0] != "pages":
            result.append(record)
            continue
        assert pages.open([row[0] for row in record[1]]) == []
        for row in record[1]:
            columns = pages.load(row[0])
            sequences = [message.sequence for message in messages_of(columns)]
            assert row[1:] == [len(sequences), len(sequences), row[3], min(sequences), max(sequences)]
            result.append(["chunk", *columns])
    result[-1] = ["end", len(result) - 1]
    return result


def test_messages_of_pages_are_in_pages_again(tmp_path: Path) -> None:
    packed = records(filled())
    found = list(restored(tmp_path, packed))
    kinds = [record[0] for record in found]
    assert "chunk" not in kinds
    assert kinds.count("pages") == 1
    expected = [msgpack.unpackb(record, strict_map_key=False) for record in packed]
    expected[0][4] = found[0][4]
    assert with_pages_read(tmp_path, found) == expected


def chunk_at(packed: list[bytes]) -> int:
    """Return the position of the first chunk."""
    return next(i for i, record in enumerate(packed) if msgpack.unpackb(record, strict_map_key=False)[0] == "chunk")


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("wrong", [[], 7, None, {}, [[]], [None, None, None]], ids=repr)
def test_impossible_messages_are_refused(tmp_path: Path, column: int, wrong: Any) -> None:
    packed = records(filled())
    place = chunk_at(packed)
    record = msgpack.unpackb(packed[place], strict_map_key=False)
    record[1 + column] = wrong
    packed[place] = msgpack.packb(record)
    with pytest.raises(DamagedFileError):
        list(restored(tmp_path, packed))


def test_a_record_in_pieces_stays_one(tmp_path: Path) -> None:
    """Around chunks that become pages, the earlier and later ones are in separate records."""
    packed = records(filled())
    place = chunk_at(packed) + 2
    record = packed[place]
    found = list(
        restored(
            tmp_path,
            packed,
            (Kind.RECORDS, b"".join(packed[:place])),
            (Kind.PIECE, record[:20]),
            (Kind.LAST_PIECE, record[20:]),
            (Kind.RECORDS, b"".join(packed[place + 1 :])),
        )
    )
    kinds = [one[0] for one in found]
    middle = kinds.index("chunk")
    assert kinds[middle - 1 : middle + 2] == ["pages", "chunk", "pages"]
    assert found[middle] == msgpack.unpackb(record, strict_map_key=False)
    taking = Restoration(State(no_pattern))
    for one in found:
        taking.take(one)
    assert len(taking.finish().queues[b"long"]) == 2 * MESSAGES


def test_a_record_that_would_take_much_memory_is_not_decoded(tmp_path: Path) -> None:
    packed = records(filled())
    place = chunk_at(packed)
    packed[place] = msgpack.packb(["chunk", [[[]] * 1_200_000], *[[]] * 7])
    found = list(restored(tmp_path, packed))
    assert "chunk" in [record[0] for record in found]
