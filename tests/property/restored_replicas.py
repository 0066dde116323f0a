"""Compare a replica restored from snapshots with one that has applied the whole log, over random histories.

``python -m tests.property.restored_replicas --histories 5000`` checks 5,000 seeds and prints those that differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from random import Random
from typing import Any
from unittest.mock import patch

from lmqcluster.core import Applied, Fault, Machine, Op
from lmqcluster.core.handlers import waiting_pushes as waiting_push_commands
from lmqcluster.core.messages.message import loaded
from lmqcluster.core.owners.quotas import Kind, Quotas
from lmqcluster.core.queue import lease_table as lease
from lmqcluster.core.queue.paged_tail import ChunkSizes
from lmqcluster.core.snapshot.records import Restoration
from lmqcluster.core.snapshot.view import SnapshotView
from lmqcluster.core.state import batch_leases, state

from .driver import SECOND, compile_pattern, over_the_wire, records
from .histories import NODES, History

__all__ = ["DifferenceError", "check", "small_bounds"]

_BATCHES = 60
_BROKEN = ("TypeError", "AttributeError", "KeyError", "IndexError", "NameError", "AssertionError")
_SMALL_CHUNKS = ChunkSizes(
    head_messages=3, head_bytes=3, head_messages_min=1, messages=2, bytes=4, crowd_bytes=1_500, crowd_head=1,
    crowd_messages=1, body=8, gather_bytes=40, gather_bytes_all=80,
)  # fmt: skip


class DifferenceError(AssertionError):
    """Two replicas that have applied the same log differ."""


@contextmanager
def small_bounds() -> Iterator[None]:
    """Lower the bounds to the sizes of these histories."""
    quotas = {**Quotas.LIMITS, Kind.KEYS: 4, Kind.PRODUCERS: 3, Kind.SESSIONS: 5, Kind.WAITING_PUSHES: 6}
    with (
        patch.object(state, "END_STEPS", 2),
        patch.object(batch_leases, "STEP_MAX", 3),
        patch.object(lease, "_SWEEP_MIN", 0),
        patch.object(waiting_push_commands, "SERVED_MAX", 2),
        patch.object(Quotas, "LIMITS", quotas),
    ):
        yield


class _Replicas:
    """One replica that only applies the log, one that also writes snapshots, and one that is restored from its own."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"replicas {seed}")
        self.small_chunks = self.random.choice((True, False))
        self.plain, self.viewed, self.restored = self._empty(), self._empty(), self._empty()
        self.view: SnapshotView | None = None
        self.rows: Iterator[list[Any]] = iter(())

    def _empty(self) -> Machine:
        machine = Machine(compile_pattern)
        if self.small_chunks:
            machine.state.pager.sizes = _SMALL_CHUNKS
        return machine

    def apply(self, now_us: int, origin: bytes, sequence: int, commands: list[list[Any]]) -> Applied:
        """Apply a batch to all; return the result of the one that only applies the log.

        Raises:
            DifferenceError: the results differ, or a command is broken.
        """
        results = [
            machine.apply(now_us, origin, 1, sequence, commands) for machine in (self.plain, self.viewed, self.restored)
        ]
        expected = _shown(self.plain, results[0])
        for name, machine, applied in zip(
            ("viewed", "restored"), (self.viewed, self.restored), results[1:], strict=True
        ):
            found = _shown(machine, applied)
            if found != expected:
                raise DifferenceError(f"{commands}: the {name} replica returns {found}, not {expected}")
        return results[0]

    def disturb(self) -> None:
        """Write part of a snapshot, or restore a replica."""
        if self.random.random() < 0.15:
            restoration = Restoration(self._empty().state)
            for record in records(self.restored):
                restoration.take(record)
            self.restored = Machine(compile_pattern, restoration.finish())
        if self.view is None and self.random.random() < 0.2:
            self.view = self.viewed.freeze_view()
            self.rows = self.view.records()
        if self.view is not None:
            wanted = self.random.choice((0, 1, 2, 5, 50))
            if len(list(islice(self.rows, wanted))) < wanted or self.random.random() < 0.1:
                self.view.close()
                self.view = None

    def compare(self) -> None:
        """Compare the whole state of all.

        Raises:
            DifferenceError: the states differ.
        """
        if self.view is not None:
            self.view.close()
        expected = records(self.plain)
        for name, machine in (("viewed", self.viewed), ("restored", self.restored)):
            if (found := records(machine)) != expected:
                pair = next(
                    (one for one in zip(expected, found, strict=False) if one[0] != one[1]), (len(expected), len(found))
                )
                raise DifferenceError(f"the {name} replica has {pair[1]}, not {pair[0]}")


def check(seed: int, batches: int = _BATCHES) -> None:
    """Replay the history of a seed.

    Raises:
        DifferenceError: replicas differ.
    """
    history, replicas = History(seed), _Replicas(seed)
    now_us, sequences = 1_700_000_000 * SECOND, dict.fromkeys(NODES, 0)
    commands: list[list[Any]] = [[Op.SET_SALT, b"0123456789"]]
    for _ in range(batches):
        origin = history.random.choice(NODES)
        sequences[origin] += 1
        applied = replicas.apply(now_us, origin, sequences[origin], over_the_wire(commands))
        history.note(commands, applied.results, list(applied.notices))
        replicas.disturb()
        now_us += history.step_us()
        commands = history.batch()
    replicas.compare()


def _shown(machine: Machine, applied: Applied) -> Any:
    results = [_plain(result) for result in applied.results]
    notices = [_plain(list(notice)) for notice in applied.notices]
    return applied.status, results, notices, list(machine.state.names)


def _plain(value: Any) -> Any:
    if isinstance(value, Fault):
        if value.reason.startswith(_BROKEN):
            raise DifferenceError(f"a command is broken: {value.reason}")
        return ("fault", value.code)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "meta"):
        traits = getattr(value, "traits", None)
        fields = [value.sequence, value.due_us, value.remaining, value.delivered, value.pushed_us, value.meta]
        return [*fields, _plain(loaded(value.content)), _plain(traits)]
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    wanted = parser.parse_args()
    failed = 0
    began = time.monotonic()
    with small_bounds():
        for seed in range(wanted.seed, wanted.seed + wanted.histories):
            try:
                check(seed)
            except DifferenceError as exc:
                failed += 1
                print(f"seed {seed}: {str(exc)[:600]}", flush=True)
    print(f"{wanted.histories} histories, {failed} with a difference, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
