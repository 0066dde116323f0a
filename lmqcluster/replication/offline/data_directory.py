"""Work on the data directory of a stopped node: repair, recovery from a lost quorum, restoring a backup."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack

from ...core.log.commands import SetSalt
from ..base.membership import MEMBERSHIP, REGULAR, apply_change, encode_change
from ..storage.io.disk import DamagedFileError, Disk
from ..storage.io.worker import AtOnce
from ..storage.journal.disk_journal import DiskJournal
from ..storage.meta import FILE_NAMES, NodeMeta
from ..storage.node_storage import JOURNAL, NO_OP, PAGES, SNAPSHOTS, Disks, NodeStorage, void_data
from ..storage.page_files import PageFiles
from ..storage.snapshots.snapshot_store import SnapshotStore
from ..storage.snapshots.stored_snapshot import StoredSnapshot
from .backup_check import check_outline
from .restore import copy_restored

__all__ = ["Remains", "discard_data", "recover", "remains", "restore", "verify"]

SALT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Remains:
    """Summary of the content of a data directory.

    Attributes:
        node_id: the member that it belongs to.
        members: id to Raft address of all members, by the newest entry.
        snapshot_index: last entry that the snapshot holds, 0 without one.
        last_index, last_term: the newest entry of the log.
    """

    node_id: str
    members: Mapping[str, str]
    snapshot_index: int
    last_index: int
    last_term: int


def discard_data(disks: Disks) -> NodeMeta | None:
    """Void log and snapshots of a folder; the node keeps its identity and gets all data from its peers at the next start.

    If the identity cannot be read, it is removed too, and None is returned. A founder then starts like one with a new
    disk; any other member has to be removed and to join again.

    Raises:
        LookupError: there is no node in the folder.
        OSError: a file cannot be read or written.
    """
    try:
        meta = NodeMeta.read(disks(""))
    except DamagedFileError:
        _forget_all(disks)
        return None
    if meta is None:
        raise LookupError("there is no node's data")
    meta.discard_data()
    return meta


def _forget_all(disks: Disks) -> None:
    """Make the folder that of a new node. The unreadable identity goes last, so that an interruption is noticed."""
    void_data(disks)
    disk = disks("")
    for name in FILE_NAMES:
        disk.remove(name)
    disk.sync()


def remains(disks: Disks) -> Remains:
    """Return what a folder holds.

    Raises:
        DamagedFileError: it is damaged.
        LookupError: it holds no durable log.
        OSError: a file cannot be read or written.
    """
    with _opened(disks) as storage:
        return _remains(storage)


def recover(disks: Disks) -> Remains:
    """Make the node of a folder the only member of its cluster, with its whole log; return what the folder held before.

    Uncommitted entries become committed, and entries that only the lost members held are gone. The others must never
    return with their data. Deliveries may be lost with them, so the salt of message ids is renewed.

    Raises:
        DamagedFileError, LookupError, OSError: see `remains`.
    """
    with _opened(disks) as storage:
        found = _remains(storage)
        meta, journal = storage.meta, storage.journal
        term = max(meta.term, found.last_term) + 1
        address = found.members.get(found.node_id, "127.0.0.1:0")
        change = encode_change("only", found.node_id, address)
        journal.add(bytes([MEMBERSHIP]) + change, found.last_index + 1, term)
        journal.add(bytes([REGULAR]) + _new_salt(), found.last_index + 2, term)
        journal.sync()
        meta.save_vote(term, None)
        return found


def restore(backup: Disk, name: str, disks: Disks, node_id: str, address: str) -> int:
    """Make a new folder from a snapshot file: a cluster of one that others can join; return the index of its last entry.

    It is a new cluster: receipts of deliveries from the backup's cluster are invalid in it.

    Args:
        backup: the folder of the file `name`.
        disks: the folder to make, which holds no node yet.
        node_id, address: the new node's id and Raft address; the latter is corrected when it starts at another one.

    Raises:
        DamagedFileError: the backup is damaged.
        FileExistsError: the folder holds a node.
        OSError: a file cannot be read or written.
    """
    if NodeMeta.read(disks("")) is not None:
        raise FileExistsError("there is a node's data already")
    verify(backup, name)
    stored = StoredSnapshot.open(backup, name, named=False)
    try:
        info = stored.info
        meta = NodeMeta.open(disks(""), node_id, {node_id: address})
        # Until the restore is complete, a start finds an empty node.
        meta.begin_again(node_id, {node_id: address}, joining=False)
        _copy(stored, disks, meta)
        journal = DiskJournal.open(disks(JOURNAL), meta, NO_OP, sync=True)
        journal.reset(info.index, info.term)
        journal.sync()
        journal.close()
        meta.term, meta.durability, meta.wipe = info.term, "disk", False
        meta.save()
        return info.index
    finally:
        stored.close()


def verify(backup: Disk, name: str) -> None:
    """Read all of a snapshot file, whatever its name, in little memory.

    Raises:
        DamagedFileError: it is damaged, holds no state, or holds a record that only an attacker would make.
        OSError: it cannot be read.
    """
    stored = StoredSnapshot.open(backup, name, named=False)
    try:
        check_outline(stored)
    finally:
        stored.close()


def _new_salt() -> bytes:
    """Return a batch of no real origin, with a timestamp in the past."""
    commands = [SetSalt(secrets.token_bytes(SALT_BYTES), renews=True).encode()]
    origin = b"recovery:" + secrets.token_hex(8).encode()
    return (0).to_bytes(8, "big") + bytes(msgpack.packb([origin, 1, 1, commands]))


def _read_all(records: Iterator[Any]) -> None:
    for _ in records:
        pass


def _copy(stored: StoredSnapshot, disks: Disks, meta: NodeMeta) -> None:
    store = SnapshotStore(disks(SNAPSHOTS), sync=True)
    pages = PageFiles(disks(PAGES), AtOnce(), sync=True)
    writer = store.create(stored.info.index, stored.info.term, meta.members, 0)
    copy_restored(stored, writer, pages, secrets.token_bytes(SALT_BYTES))
    pages.sync(_raise_it)
    writer.finish_work()()
    store.adopt(writer)
    store.close()


def _raise_it(error: Exception | None) -> None:
    try:
        if error is not None:
            raise error
    finally:
        # The error keeps this frame.
        del error


@contextmanager
def _opened(disks: Disks) -> Iterator[NodeStorage]:
    meta = NodeMeta.read(disks(""))
    if meta is None or meta.durability not in ("disk", "process") or meta.wipe:
        raise LookupError("there is no node's durable log")
    storage = NodeStorage.open(disks, meta.node_id, meta.members, meta.durability)
    try:
        if storage.latest is not None:
            _read_all(storage.snapshots.records(storage.latest))
        yield storage
    finally:
        storage.close()


def _remains(storage: NodeStorage) -> Remains:
    journal, latest, meta = storage.journal, storage.latest, storage.meta
    members: Mapping[str, str] = meta.members if latest is None else latest.members
    for _, command in journal.changes:
        members = apply_change(members, command)
    last = journal.last_index
    return Remains(meta.node_id, members, 0 if latest is None else latest.index, last, journal.term_at(last))
