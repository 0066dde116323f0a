"""Faults of disks and clocks, and of power. Disk and clock are broken by the library under the node (native/interpose.c)."""

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
    """Power failure: killed at one moment, and what no sync has made durable is gone; started again at the end.

    Attributes:
        kept: share of it that disks kept all the same, from 0 to 1; below 0 a random part.
    """

    kind: ClassVar[str] = "power_failure"
    kept: float = -1.0

    def strike(self, stage: Stage) -> None:
        """Kill all of them, then take from the disks what was not durable."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            took = node.cut_power(stage.rng, kept=self.kept if self.kept >= 0 else None)
            stage.told.append(f"power failure of {node.name}: {took.writes} writes and {took.names} names were lost")

    def end(self, stage: Stage) -> None:
        """Power is back."""
        for node in self.nodes:
            if not node.running:
                node.start()


@dataclass
class BadDisk(TargetedFault):
    """A disk that misbehaves until the end. A node may stop because of it, and is then started again."""

    def strike(self, stage: Stage) -> None:
        """Break the disks."""
        for node in self.nodes:
            stage.may_stop.add(node.name)
            self.spoil(node)

    @abstractmethod
    def spoil(self, node: NodeProcess) -> None:
        """Break one disk."""

    def end(self, stage: Stage) -> None:
        """Mend them, and start what has stopped."""
        for node in self.nodes:
            node.control.mend()
        stage.revive()


@dataclass
class SlowDisk(BadDisk):
    """Syncs take long.

    Attributes:
        sync_ms: how much longer each takes.
    """

    kind: ClassVar[str] = "slow_disk"
    sync_ms: float = 100.0

    def spoil(self, node: NodeProcess) -> None:
        """Make its syncs slow."""
        node.control.slow_syncs(self.sync_ms / 1000)


@dataclass
class FullDisk(BadDisk):
    """No space is left.

    Attributes:
        left_bytes: what files may still grow by.
    """

    kind: ClassVar[str] = "full_disk"
    left_bytes: int = 65_536

    def spoil(self, node: NodeProcess) -> None:
        """Fill it."""
        node.control.limit_space(self.left_bytes)


@dataclass
class FailingSyncs(BadDisk):
    """Syncs fail with an input/output error."""

    kind: ClassVar[str] = "failing_syncs"

    def spoil(self, node: NodeProcess) -> None:
        """Make its syncs fail."""
        node.control.fail_syncs(fail=True)

    def end(self, stage: Stage) -> None:
        """The nodes must have stopped, or be about to: what a failed sync has left behind nobody knows."""
        for node in self.nodes:
            try:
                node.wait_exit(_STOP_S)
            except DrillError as exc:
                raise BrokenPromiseError(f"{node.name} goes on although its syncs fail: {exc}") from exc
        super().end(stage)


@dataclass
class LyingDisk(BadDisk):
    """Syncs succeed without doing anything. Together with a power failure no cluster survives that; it proves the checker."""

    kind: ClassVar[str] = "lying_disk"

    def spoil(self, node: NodeProcess) -> None:
        """Make it lie."""
        node.control.lie_about_syncs(lie=True)


@dataclass
class Corruption(TargetedFault):
    """A killed node's journal is damaged. It must refuse to start, be repaired, and copy everything from the others.

    Attributes:
        damage: ``flip`` one bit in the middle of what was written, or ``truncate`` there.
    """

    kind: ClassVar[str] = "corrupt_journal"
    target: str = "follower"
    damage: str = "flip"
    _files: list[Path] = field(default_factory=list, init=False)

    def check(self) -> str | None:
        """Known words only."""
        return None if self.damage in _DAMAGES else f"damage must be one of {', '.join(_DAMAGES)}"

    def strike(self, stage: Stage) -> None:
        """Kill, then damage the newest file of the journal."""
        for node in self.nodes:
            node.kill()
            journal = max((node.data_folder / "journal").glob("*.log"))
            self._spoil(journal, stage)
            stage.told.append(f"{self.damage} in {node.name}/{journal.name}")

    def _spoil(self, journal: Path, stage: Stage) -> None:
        data = bytearray(journal.read_bytes())
        middle = len(data.rstrip(b"\0")) // 2
        if self.damage == "flip":
            data[middle] ^= 1 << stage.rng.randrange(8)
        else:
            del data[middle:]
        journal.write_bytes(data)

    def end(self, stage: Stage) -> None:
        """The operator's way: start, see it refuse, repair, start, and wait until it has copied what it lost.

        Until then it is no better than a dead node, and the next fault would hit a second one.
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
    """Bits flip in page files of a killed node. It must never serve what they hold, and get these pages from the others.

    If a page is needed before, the node stops, and if the others have no need of it any more it has to copy everything. No others
    may be damaged before that is over, as on a machine whose operator looks after it.

    Attributes:
        files: how many page files are damaged, if there are as many.
    """

    kind: ClassVar[str] = "damage_pages"
    target: str = "n3"
    files: int = 3
    _damaged: dict[Path, bytes] = field(default_factory=dict, init=False)

    def strike(self, stage: Stage) -> None:
        """Kill, then flip a bit in each of some page files."""
        for node in self.nodes:
            stage.may_stop.add(node.name)
            node.kill()
            # A file may have been made just before, and hold nothing yet.
            pages = sorted(path for path in (node.data_folder / "pages").glob("*.page") if path.stat().st_size)
            for page in stage.rng.sample(pages, min(self.files, len(pages))):
                self._damaged[page] = _flip(page, stage.rng)
                stage.told.append(f"flip in {node.name}/{page.name}")

    def end(self, stage: Stage) -> None:
        """Start it until no damaged file is left; the second time it stops because of them, repair it before."""
        for node in self.nodes:
            for attempt in range(_STARTS_MAX):
                if attempt == _STARTS_MAX - 1:
                    stage.told.append(f"{node.name} is repaired")
                    node.repair()
                node.start()
                if self._is_whole(node):
                    break
                stage.told.append(f"{node.name} stopped with {node.wait_exit()} because of its pages")
            else:
                raise BrokenPromiseError(f"{node.name} does not start after a repair\n{node.log_tail()}")
            node.wait_ready()

    def _is_whole(self, node: NodeProcess) -> bool:
        """Wait until the damaged files have been replaced or are gone; False if the node stops."""
        deadline = time.monotonic() + _PAGES_S
        while any(path.exists() and path.read_bytes() == data for path, data in self._damaged.items()):
            if not node.running:
                return False
            if time.monotonic() > deadline:
                raise BrokenPromiseError(f"{node.name} leaves damaged pages as they are\n{node.log_tail()}")
            time.sleep(_LOOK_S)
        return node.running


def _flip(path: Path, rng: random.Random) -> bytes:
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return bytes(data)


@dataclass
class ClockJump(TargetedFault):
    """The wall clock jumps, and back at the end.

    Attributes:
        jump_s: by how much; negative is into the past.
    """

    kind: ClassVar[str] = "clock_jump"
    jump_s: float = 3600.0

    def strike(self, stage: Stage) -> None:
        """Set the clocks."""
        for node in self.nodes:
            node.control.jump_clock(self.jump_s)

    def end(self, stage: Stage) -> None:
        """Set them right."""
        for node in self.nodes:
            node.control.jump_clock(0)
