"""Receipts of a former incarnation of the cluster are invalid: after a restored backup, a recovery, a power
failure of all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgpack
import pytest

from lmqcluster.core import Machine, Op
from lmqcluster.node.queues.patterns.patterns import compile_pattern
from lmqcluster.replication.offline.data_directory import recover, restore
from lmqcluster.replication.recovery.stale_receipts import StaleReceipts
from lmqcluster.replication.storage.meta import NodeMeta
from lmqcluster.replication.storage.node_storage import JOURNAL, PAGES, SNAPSHOTS, NodeStorage
from lmqcluster.wire.ids import ReceiptFormat
from tests.simulation.disk import SimDisk

SALT = b"old salt.."
MEMBERS = {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}


class Folders:
    """A data directory."""

    def __init__(self) -> None:
        self._disks = {name: SimDisk(random.Random(1)) for name in ("", JOURNAL, SNAPSHOTS, PAGES)}

    def __call__(self, folder: str) -> SimDisk:
        return self._disks[folder]


def apply(machine: Machine, *commands: list[Any]) -> list[Any]:
    sequence = machine.state.node_sequences.last_sequence(b"n", 1) + 1
    return machine.apply(1_000_000, b"n", 1, sequence, commands).results


def one_delivery() -> tuple[Machine, bytes]:
    """Return a cluster's state with three messages of which one is delivered, and its receipt."""
    machine = Machine(compile_pattern)
    apply(machine, [Op.SET_SALT, SALT], [Op.PUSH, b"q", None, [b"1", b"2", b"3"], None, 0], [Op.PULL, b"q", 1])
    return machine, ReceiptFormat(SALT).format(1)


def backed_up(machine: Machine) -> SimDisk:
    """Return a snapshot file of the state, named ``backup``."""
    folders = Folders()
    storage = NodeStorage.open(folders, "old", {"old": "127.0.0.1:9"}, "disk")
    writer = storage.snapshots.create(7, 2, {"old": "127.0.0.1:9"}, 0)
    for record in machine.snapshot():
        writer.add(record)
    writer.finish_work()()
    info = storage.snapshots.adopt(writer)
    disk = folders(SNAPSHOTS)
    disk.rename(info.file, "backup")
    return disk


def test_a_restored_backup_is_another_incarnation() -> None:
    machine, receipt = one_delivery()
    folders = Folders()
    restore(backed_up(machine), "backup", folders, "new", "127.0.0.1:1")
    storage = NodeStorage.open(folders, "new", {}, "disk")
    assert storage.latest is not None
    restored = Machine.restore(compile_pattern, storage.snapshots.records(storage.latest))
    assert len(restored.state.queues[b"q"]) == 3
    # The number of a delivery that the backup does not know is reused.
    [[second]] = apply(restored, [Op.PULL, b"q", 1])
    assert second[1] == 2
    ids = ReceiptFormat(restored.state.salt)
    assert [ids.parse(receipt), ids.parse(ReceiptFormat(SALT).format(2))] == [0, 0]


def test_a_recovered_cluster_accepts_no_earlier_receipt() -> None:
    folders = Folders()
    storage = NodeStorage.open(folders, "a", MEMBERS, "disk")
    storage.meta.mark_trusted()
    storage.journal.add(b"\x00entry", 2, 1)
    storage.journal.sync()
    storage.close()
    recover(folders)
    again = NodeStorage.open(folders, "a", MEMBERS, "disk")
    machine, receipt = one_delivery()
    entry = again.journal.entries(again.journal.last_index, 1)[0].command
    origin, incarnation, sequence, commands = msgpack.unpackb(entry[9:])
    results = machine.apply(int.from_bytes(entry[1:9], "big"), origin, incarnation, sequence, commands).results
    assert results == [True]
    assert ReceiptFormat(machine.state.salt).parse(receipt) == 0
    [[delivered]] = apply(machine, [Op.PULL, b"q", 1])
    assert delivered[1] > 1 << 32, "numbers that a node may be about to settle are skipped"
    assert machine.state.now_us == 1_000_000


def test_the_salt_is_renewed() -> None:
    machine, _ = one_delivery()
    assert apply(machine, [Op.SET_SALT, b"new salt..", True]) == [True]
    assert machine.state.salt == b"new salt.."
    [bad] = apply(machine, [Op.SET_SALT, b"short", True])
    assert (machine.state.salt, "10 bytes" in bad.reason) == (b"new salt..", True)


def doubtful(peers: Iterable[str]) -> tuple[SimDisk, StaleReceipts]:
    """Return a node that has lost the end of its log, which was index 50, and has learned that these peers have too."""
    disk = SimDisk(random.Random(1))
    meta = NodeMeta.open(disk, "a", MEMBERS)
    meta.save_salt_due(50)
    receipts = StaleReceipts(meta, recovering=True)
    for peer in peers:
        receipts.heard_forgetful(peer)
    receipts.recovered(MEMBERS)
    return disk, receipts


@pytest.mark.parametrize(("peers", "lost"), [([], False), (["b"], True), (["b", "c"], True), (["stranger"], False)])
def test_a_majority_that_has_forgotten_needs_another_salt(peers: list[str], lost: bool) -> None:
    disk, receipts = doubtful(peers)
    assert receipts.are_possible == lost
    meta = NodeMeta.read(disk)
    assert meta is not None
    assert (meta.salt_due == 50) == lost, "a restart does not forget it"


def test_a_salt_in_the_log_found_at_the_start_is_not_the_new_one() -> None:
    _, receipts = doubtful(["b"])
    receipts.renewed(50)
    assert receipts.are_possible
    receipts.renewed(51)
    assert not receipts.are_possible
