"""Salvage of a damaged node that is alone: no other node has its data, so only the part before the damage remains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base.membership import apply_change
from ..storage.io.disk import DamagedFileError, Disk
from ..storage.journal.recovery import readable_changes
from ..storage.journal.segment import HEADER_BYTES, SegmentHeader, segment_name, segment_number
from ..storage.journal.segment_files import zero
from ..storage.journal.synced_mark import MARK_NAME, SyncedMark, read_mark
from ..storage.meta import NodeMeta
from ..storage.node_storage import JOURNAL, SNAPSHOTS, Disks
from ..storage.snapshots.stored_snapshot import StoredSnapshot
from .data_directory import Remains, recover, remains

__all__ = ["is_alone", "salvage"]

_SNAPSHOT_SUFFIX = ".snap"


def is_alone(disks: Disks) -> bool:
    """Return whether the node of a folder is the only member of its cluster, as far as its files still show.

    Raises:
        DamagedFileError: its identity cannot be read.
        LookupError: there is no node in the folder.
        OSError: a file cannot be read.
    """
    meta = NodeMeta.read(disks(""))
    if meta is None:
        raise LookupError("there is no node's data")
    return meta.node_id in meta.members and _members(disks, meta).keys() <= {meta.node_id}


def salvage(disks: Disks) -> Remains:
    """Cut the log of a node that is alone before its first damage, and make the node usable again; return what is left.

    Raises:
        DamagedFileError: the damage is outside the log, so nothing can be kept.
        LookupError: there is no node's durable log, or the node is not alone.
        OSError: a file cannot be read or written.
    """
    if not is_alone(disks):
        raise LookupError("the node is not alone: the other nodes have what this one lacks")
    journal = disks(JOURNAL)
    # Each round removes one damage, so that the next round finds the one before it, or none.
    for _ in range(len(journal.names()) + 1):
        try:
            found = remains(disks)
        except DamagedFileError as exc:
            if not _cut(journal, exc):
                raise
        else:
            if found.members.keys() > {found.node_id}:
                raise LookupError("the node is not alone: the other nodes have what this one lacks")
            recover(disks)
            return found
    return remains(disks)


def _members(disks: Disks, meta: NodeMeta) -> Mapping[str, str]:
    """Return the newest readable list of members."""
    members: Mapping[str, str] = meta.members
    snapshots = disks(SNAPSHOTS)
    for name in reversed([name for name in snapshots.names() if name.endswith(_SNAPSHOT_SUFFIX)]):
        try:
            stored = StoredSnapshot.open(snapshots, name)
        except DamagedFileError:
            continue
        members = stored.info.members
        stored.close()
        break
    for command in readable_changes(disks(JOURNAL)):
        members = apply_change(members, command)
    return members


def _cut(journal: Disk, damage: DamagedFileError) -> bool:
    """Move the end of the log before the damage. Opening cuts everything behind the mark in the last segment.

    Returns:
        False if that is impossible, because the damage is elsewhere, before the first entry, or in a file of unknown size.
    """
    name = Path(damage.file).name
    present = sorted(number for one in journal.names() if (number := segment_number(one)) is not None)
    if name == MARK_NAME and damage.file == journal.path(MARK_NAME) and present:
        _mark(journal, SyncedMark(present[0], present[-1], HEADER_BYTES))
        return True
    number = segment_number(name)
    if number is None or damage.file != journal.path(name):
        return False
    first = read_mark(journal).first
    # A segment whose header is damaged, or which is missing, is unreadable.
    last = number if damage.offset >= HEADER_BYTES and number in present else number - 1
    if last < first or last not in present or (last == number and not _fill_up(journal, number)):
        return False
    # The mark first: opening treats segments behind it as a torn end, but a missing one as damage.
    _mark(journal, SyncedMark(first, last, HEADER_BYTES))
    for behind in reversed([one for one in present if one > last]):
        journal.remove(segment_name(behind))
    journal.sync()
    return True


def _fill_up(journal: Disk, number: int) -> bool:
    """Restore the size of a segment that was cut short, so that the missing part reads as never written.

    Returns:
        False if its size is unknown.
    """
    file = journal.open(segment_name(number))
    try:
        header = SegmentHeader.decode(file.read_at(0, HEADER_BYTES))
        size = file.size()
        if size > header.size:
            return False
        if size < header.size:
            zero(file, size, header.size)
            file.sync()
    except ValueError:
        return False
    else:
        return True
    finally:
        file.close()


def _mark(journal: Disk, mark: SyncedMark) -> None:
    draft = MARK_NAME + ".new"
    file = journal.create(draft)
    try:
        file.write_at(0, mark.encode())
        file.sync()
    finally:
        file.close()
    journal.rename(draft, MARK_NAME)
    journal.sync()
