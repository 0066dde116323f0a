"""Faults of disks, clocks and power. The library under the node (native/interpose.c) implements those of disks and
clocks.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ..errors import BrokenPromiseError, DrillError
from ..nodes.node_process import NodeProcess
from ..stage import Stage
from .base import TargetedFault

__all__ = [
    "BadDisk",
    "ClockJump",
    "Corruption",
    "DamagedPages",
    "FailingSyncs",
    "FullDisk",
    "LyingDisk",
    "PowerLoss",
    "SlowDisk",
]

_DAMAGED = 65
"""Exit code of a node that refuses to start because of a damaged file."""
_STOP_S = 30.0
_STARTS_MAX = 3
_PAGES_S = 90.0
_LOOK_S = 0.1
_DAMAGES = ("flip", "truncate")


@dataclass
class PowerLoss(TargetedFault):
    """Power failure: the nodes are killed at the same time and lose everything that was not synced; restarted at the
    end.

    Attributes:
        kept: share of the unsynced changes that disks keep anyway, from 0 to 1; below 0 a random part.
    """

    kind: ClassVar[str] = "power_failure"
    kept: float = -1.0

    def strike(self, stage: Stage) -> None:
        """Kill all nodes, then remove unsynced changes from their disks."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            took = node.cut_power(stage.rng, kept=self.kept if self.kept >= 0 else None)
            stage.notes.append(
                f"power failure of {node.name}: lost {took.writes} writes and {took.names} changes of names"
            )

    def end(self, stage: Stage) -> None:
        """Restart the nodes."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class BadDisk(TargetedFault):
    """A faulty disk. A node may stop because of it, and is then restarted."""

    def strike(self, stage: Stage) -> None:
        """Break the disks."""
        for node in self.nodes:
            stage.may_stop.add(node.name)
            self.spoil(node)

    @abstractmethod
    def spoil(self, node: NodeProcess) -> None:
        """Break one disk."""

    def end(self, stage: Stage) -> None:
        """Repair the disks, and restart nodes that stopped."""
        for node in self.nodes:
            node.control.mend()
        stage.revive()


@dataclass
class SlowDisk(BadDisk):
    """Slow syncs.

    Attributes:
        sync_ms: delay of each sync.
    """

    kind: ClassVar[str] = "slow_disk"
    sync_ms: float = 100.0

    def spoil(self, node: NodeProcess) -> None:
        """Delay its syncs."""
        node.control.slow_syncs(self.sync_ms / 1000)


@dataclass
class FullDisk(BadDisk):
    """No space is left.

    Attributes:
        left_bytes: bytes by which files may still grow.
    """

    kind: ClassVar[str] = "full_disk"
    left_bytes: int = 65_536

    def spoil(self, node: NodeProcess) -> None:
        """Limit its space."""
        node.control.limit_space(self.left_bytes)


@dataclass
class FailingSyncs(BadDisk):
    """Syncs fail with an input/output error."""

    kind: ClassVar[str] = "failing_syncs"

    def spoil(self, node: NodeProcess) -> None:
        """Make its syncs fail."""
        node.control.fail_syncs(fail=True)

    def end(self, stage: Stage) -> None:
        """Check that the nodes have stopped or are stopping: after a failed sync, the content of the disk is unknown."""
        for node in self.nodes:
            try:
                node.wait_exit(_STOP_S)
            except DrillError as exc:
                raise BrokenPromiseError(f"{node.name} continues although its syncs fail: {exc}") from exc
        super().end(stage)


@dataclass
class LyingDisk(BadDisk):
    """Syncs succeed without any effect. No cluster survives this together with a power failure; it proves the checker."""

    kind: ClassVar[str] = "lying_disk"

    def spoil(self, node: NodeProcess) -> None:
        """Ignore its syncs."""
        node.control.lie_about_syncs(lie=True)


@dataclass
class Corruption(TargetedFault):
    """A killed node's journal is damaged. It must refuse to start, be repaired, and copy everything from the others.

    Attributes:
        damage: ``flip`` one bit in the middle of the written data, or ``truncate`` there.
    """

    kind: ClassVar[str] = "corrupt_journal"
    target: str = "follower"
    damage: str = "flip"
    _files: list[Path] = field(default_factory=list, init=False)

    def check(self) -> str | None:
        """Check that the damage is a known one."""
        return None if self.damage in _DAMAGES else f"damage must be one of {', '.join(_DAMAGES)}"

    def strike(self, stage: Stage) -> None:
        """Kill the nodes, then damage the newest file of the journal."""
        for node in self.nodes:
            node.kill()
            journal = max((node.data_folder / "journal").glob("*.log"))
            self._spoil(journal, stage)
            stage.notes.append(f"{self.damage} in {node.name}/{journal.name}")

    def _spoil(self, journal: Path, stage: Stage) -> None:
        data = bytearray(journal.read_bytes())
        middle = len(data.rstrip(b"\0")) // 2
        if self.damage == "flip":
            data[middle] ^= 1 << stage.rng.randrange(8)
        else:
            del data[middle:]
        journal.write_bytes(data)

    def end(self, stage: Stage) -> None:
        """Act as an operator: start, check that the node refuses, repair, start, and wait until it has copied the lost
        data.

        Until then it does not count towards a majority, and the next fault could hit a second node.
        """
        for node in self.nodes:
            node.start()
            code = node.wait_exit()
            if code != _DAMAGED:
                raise BrokenPromiseError(
                    f"{node.name} exited with {code} on a damaged journal, not {_DAMAGED}\n{node.log_tail()}"
                )
            node.repair()
            node.start()
            node.wait_ready()


@dataclass
class DamagedPages(TargetedFault):
    """Bits flip in page files of a killed node. It must never serve the damaged content, and must get these pages from
    the others.

    If it needs a page before that, it stops; if the others no longer have the page, it must copy everything. No other
    node may be damaged in between, as an operator would ensure.

    Attributes:
        files: number of page files to damage, if there are that many.
    """

    kind: ClassVar[str] = "damage_pages"
    target: str = "n3"
    files: int = 3
    _damaged: dict[Path, bytes] = field(default_factory=dict, init=False)

    def strike(self, stage: Stage) -> None:
        """Kill the nodes, then flip a bit in each of some page files."""
        for node in self.nodes:
            stage.may_stop.add(node.name)
            node.kill()
            # A new file may still be empty.
            pages = sorted(path for path in (node.data_folder / "pages").glob("*.page") if path.stat().st_size)
            for page in stage.rng.sample(pages, min(self.files, len(pages))):
                self._damaged[page] = _flip(page, stage.rng)
                stage.notes.append(f"flip in {node.name}/{page.name}")

    def end(self, stage: Stage) -> None:
        """Start the node until no damaged file is left; the second time it stops because of them, repair it first."""
        for node in self.nodes:
            for attempt in range(_STARTS_MAX):
                if attempt == _STARTS_MAX - 1:
                    stage.notes.append(f"{node.name} was repaired")
                    node.repair()
                node.start()
                if self._is_whole(node):
                    break
                stage.notes.append(f"{node.name} stopped with {node.wait_exit()} because of its pages")
            else:
                raise BrokenPromiseError(f"{node.name} does not start after a repair\n{node.log_tail()}")
            node.wait_ready()

    def _is_whole(self, node: NodeProcess) -> bool:
        """Wait until the damaged files have been replaced or deleted; return False if the node stops."""
        deadline = time.monotonic() + _PAGES_S
        while any(path.exists() and path.read_bytes() == data for path, data in self._damaged.items()):
            if not node.running:
                return False
            if time.monotonic() > deadline:
                raise BrokenPromiseError(f"{node.name} does not replace damaged pages\n{node.log_tail()}")
            time.sleep(_LOOK_S)
        return node.running


def _flip(path: Path, rng: random.Random) -> bytes:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return bytes(data)


@dataclass
class ClockJump(TargetedFault):
    """The wall clock jumps, and jumps back at the end.

    Attributes:
        jump_s: offset in seconds; negative is into the past.
    """

    kind: ClassVar[str] = "clock_jump"
    jump_s: float = 3600.0

    def strike(self, stage: Stage) -> None:
        """Set the clocks."""
        for node in self.nodes:
            node.control.jump_clock(self.jump_s)

    def end(self, stage: Stage) -> None:
        """Reset the clocks."""
        for node in self.nodes:
            node.control.jump_clock(0)
