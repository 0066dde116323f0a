"""What the program before machine version 2 wrote is read and carried out as that program did it.

`data/machine_version_1.msgpack.gz` was written by commit e1732b9: 700 batches drawn at random, each with its results, and the
records of its snapshots after half of them and at the end. Delivered messages stand as [queue, number, remaining, sequence].
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster.core import Fault, Machine, Op
from tests.property.driver import compile_pattern, copied, records

_FILE = Path(__file__).parent / "data" / "machine_version_1.msgpack.gz"


@pytest.fixture(scope="module")
def written() -> dict[bytes, Any]:
    """The file."""
    found: dict[bytes, Any] = msgpack.unpackb(gzip.decompress(_FILE.read_bytes()), raw=True)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Fault):
        return [b"fault", value.reason.encode()]
    if isinstance(value, (list, tuple)):
        if len(value) == 4 and hasattr(value[3], "sequence"):
            return [*value[:3], value[3].sequence]
        return [_plain(one) for one in value]
    return value


def _apply(machine: Machine, log: Iterable[list[Any]]) -> list[list[Any]]:
    results = []
    for batch in log:
        applied = machine.apply(*batch)
        # A renewal tells since then where it has to go on.
        pairs = zip(batch[4], applied.results, strict=False)
        told = [_plain(one[0] if command[0] == Op.RENEW and type(one) is tuple else one) for command, one in pairs]
        results.append([applied.status.encode(), told])
    return results


def test_an_old_journal_gives_the_old_results_and_the_old_snapshot(written: dict[bytes, Any]) -> None:
    machine = Machine(compile_pattern)
    assert _apply(machine, written[b"log"]) == written[b"results"]
    assert machine.version == 1
    assert records(machine) == written[b"end"]


def test_an_old_snapshot_is_read_and_its_journal_goes_on(written: dict[bytes, Any]) -> None:
    half = len(written[b"log"]) // 2 + 1
    machine = Machine.restore(compile_pattern, written[b"middle"])
    assert _apply(machine, written[b"log"][half:]) == written[b"results"][half:]
    assert records(machine) == written[b"end"]


def test_replicas_that_load_an_old_snapshot_stay_equal_when_the_version_rises(written: dict[bytes, Any]) -> None:
    """One has applied everything itself, one begins with a snapshot of the old program, one with a snapshot of the new one."""
    machine = Machine(compile_pattern)
    _apply(machine, written[b"log"])
    begun = Machine.restore(compile_pattern, written[b"end"])
    now_us = machine.now_us
    for at, replica in enumerate((machine, begun)):
        assert replica.apply(now_us, b"upgrader", 1, 1, [[Op.UPGRADE, 2]]).results == [2], at
    later = copied(machine)
    replicas = (machine, begun, later)
    assert records(machine) == records(begun) == records(later)
    for number, batch in enumerate(written[b"log"][:300], 1):
        for replica in replicas:
            replica.apply(now_us + number * 1_000_000, b"n9", 1, number, batch[4])
    assert records(machine) == records(begun) == records(later)
