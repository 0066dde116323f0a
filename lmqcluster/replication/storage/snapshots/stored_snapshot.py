"""A complete snapshot file, open for reading."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..io.disk import DamagedFileError, Disk, DiskFile
from .snapshot_file import FORMAT, HEAD_BYTES, PREFIX, Block, Chain, End, Header, Kind, parse_head, records_of, verified

__all__ = ["SnapshotInfo", "StoredSnapshot", "snapshot_name"]


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotInfo:
    """A complete snapshot. Two of them are never equal, even if they are of the same log entry.

    Attributes:
        index, term: the last log entry that the state contains.
        members: address by node id, as of that entry.
        created_us: when it was made, microseconds of the maker's clock.
        blocks: number of blocks, including the header (number 0) and the end.
        size_bytes: size of the file.
        file: the file's name in its folder.
    """

    index: int
    term: int
    members: Mapping[str, str]
    created_us: int
    blocks: int
    size_bytes: int
    file: str


def snapshot_name(index: int, term: int) -> str:
    """Return the file's name; names sort in the order of their indexes."""
    return f"{index:020d}-{term:020d}.snap"


class StoredSnapshot:
    """A file with the places of its blocks.

    Attributes:
        info: description of the snapshot.
    """

    def __init__(self, file: DiskFile, path: str, name: str, header: Header, offsets: array[int]) -> None:
        """Take over an open file; `offsets` are the places of the blocks, and the size of the file."""
        self._file = file
        self._path = path
        self._offsets = offsets
        self.info = SnapshotInfo(
            index=header.index,
            term=header.term,
            members=header.members,
            created_us=header.created_us,
            blocks=len(offsets) - 1,
            size_bytes=offsets[-1],
            file=name,
        )

    @classmethod
    def open(cls, disk: Disk, name: str, *, named: bool = True) -> StoredSnapshot:
        """Open a file, reading all heads, the header and the end.

        Args:
            named: whether the file's name must be that of its content.

        Raises:
            DamagedFileError: it is incomplete, or its blocks are not those that were written; payloads are not verified.
        """
        file = disk.open(name)
        try:
            return cls._scan(file, disk.path(name), name, named=named)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _scan(cls, file: DiskFile, path: str, name: str, *, named: bool) -> StoredSnapshot:
        if file.read_at(0, len(PREFIX)) != PREFIX:
            raise DamagedFileError(path, 0, f"this is not a snapshot of format {FORMAT}, which this program reads")
        chain = Chain()
        header: Header | None = None
        offset, size = len(PREFIX), file.size()
        offsets = array("Q", [offset])
        while not chain.ended:
            with _Damage(path, offset):
                head = parse_head(file.read_at(offset, HEAD_BYTES))
                if offset + head.size_bytes > size:
                    raise ValueError("the block is cut off")
                if head.kind in {Kind.HEADER, Kind.END}:
                    payload = verified(file.read_at(offset, head.size_bytes), chain.next_number).payload()
                    if head.kind == Kind.END:
                        chain.check(End.unpack(payload))
                    else:
                        header = Header.unpack(payload)
                chain.add(head)
            offset += head.size_bytes
            offsets.append(offset)
        if offset != size:
            raise DamagedFileError(path, offset, "the file goes on behind its end")
        with _Damage(path, len(PREFIX)):
            if header is None:
                raise ValueError("there is no header")
            if named and snapshot_name(header.index, header.term) != name:
                raise ValueError("the file's name is not that of its content")
        return cls(file, path, name, header, offsets)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read_block(self, number: int) -> bytes:
        """Return the stored form of a block.

        Raises:
            DamagedFileError: it is damaged.
            IndexError: there is no such block.
        """
        return self._block(number).stored

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks in their order.

        Raises:
            DamagedFileError: one is not as it was written, or does not follow the one before. Payloads are not verified.
        """
        if self._file.read_at(0, len(PREFIX)) != PREFIX or self._file.size() != self.info.size_bytes:
            raise DamagedFileError(self._path, 0, "the file has changed")
        chain = Chain()
        for number in range(self.info.blocks):
            block = self._block(number)
            with self.damage_at(number):
                if block.head.kind == Kind.END:
                    chain.check(End.unpack(block.payload()))
                chain.add(block.head)
            yield block

    def records(self) -> Iterator[Any]:
        """Yield the records, a block at a time.

        Raises:
            DamagedFileError: the file is not as it was written. Records already yielded may be useless.
        """
        pieces: list[bytes] = []
        count = 0
        for block in self.blocks():
            kind = block.head.kind
            with self.damage_at(block.head.number):
                payload = block.payload()
                if kind == Kind.END:
                    End.unpack(payload).check_count(count)
                if kind in {Kind.PIECE, Kind.LAST_PIECE}:
                    pieces.append(payload)
                if kind not in {Kind.RECORDS, Kind.LAST_PIECE}:
                    continue
                records = records_of(b"".join(pieces) if pieces else payload)
            pieces.clear()
            count += len(records)
            yield from records

    def damage_at(self, number: int) -> AbstractContextManager[None]:
        """Return a context that turns a ValueError into a DamagedFileError that names the block `number`."""
        return _Damage(self._path, self._offsets[number])

    def _block(self, number: int) -> Block:
        if not 0 <= number < self.info.blocks:
            raise IndexError(f"the snapshot has blocks 0 to {self.info.blocks - 1}, not {number}")
        offset = self._offsets[number]
        stored = self._file.read_at(offset, self._offsets[number + 1] - offset)
        with _Damage(self._path, offset):
            return verified(stored, number)


class _Damage(AbstractContextManager[None]):
    """Turns ValueError into DamagedFileError."""

    def __init__(self, path: str, offset: int) -> None:
        self._path = path
        self._offset = offset

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            raise DamagedFileError(self._path, self._offset, str(error)) from error
