"""Power failures below a node: unsynced data is lost, all else stays; disks and clocks misbehave."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from lmqcluster_chaos.injection.control import Control
from lmqcluster_chaos.injection.power import PowerFailure, cut_power
from lmqcluster_chaos.injection.tools import interposer

SEEDS = range(12)


class Machine:
    """Programs that run above the library, in a folder of data."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.undo = folder / "undo"
        self.data.mkdir()
        self.undo.mkdir()
        self.control = Control(folder / "control")

    def run(self, script: str) -> str:
        """Run a Python program with the data directory as `d`; it ends as if killed, without further writes."""
        environment = {
            **os.environ,
            "LD_PRELOAD": str(interposer()),
            "LMQ_DRILL_CONTROL": str(self.control.path),
            "LMQ_DRILL_DATA": str(self.data),
            "LMQ_DRILL_UNDO": str(self.undo),
        }
        program = "import os, sys\nfrom pathlib import Path\nd = Path(sys.argv[1])\n" + textwrap.dedent(script)
        command = [sys.executable, "-c", program, str(self.data)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def cut(self, seed: int) -> PowerFailure:
        return cut_power(self.undo, self.data, random.Random(seed))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


FILES = """
def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

fd = os.open(d / "a", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"A" * 2048, 0)
os.fdatasync(fd)
sync(d)
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_synced_bytes_stay_and_others_change_in_whole_sectors(machine: Machine, seed: int) -> None:
    machine.run(FILES + 'os.pwrite(fd, b"B" * 1024, 1024); os.pwrite(fd, b"C" * 512, 2048)')
    machine.cut(seed)
    content = (machine.data / "a").read_bytes()
    assert content[:1024] == b"A" * 1024
    sectors = [content[at : at + 512] for at in range(0, len(content), 512)]
    assert {bytes(set(sector)) for sector in sectors} <= {b"A", b"B", b"C"}
    assert len(content) in {2048, 2560}


def test_unsynced_bytes_are_lost_for_some_seed_and_kept_for_another(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        machine = Machine(folder)
        machine.run(FILES + 'os.pwrite(fd, b"B" * 2048, 0)')
        machine.cut(seed)
        seen.add((machine.data / "a").read_bytes())
    assert {b"A" * 2048, b"B" * 2048} <= seen


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sync_of_the_file_and_its_folder_makes_all_durable(machine: Machine, seed: int) -> None:
    machine.run(
        FILES
        + """
os.pwrite(fd, b"B" * 100, 5)
os.fdatasync(fd)
os.rename(d / "a", d / "b")
(d / "c").write_text("gone")
os.unlink(d / "c")
sync(d)
"""
    )
    assert machine.cut(seed) == PowerFailure(0, 0, 0)
    assert [path.name for path in machine.data.iterdir()] == ["b"]
    assert (machine.data / "b").read_bytes() == b"A" * 5 + b"B" * 100 + b"A" * 1943


@pytest.mark.parametrize("seed", SEEDS)
def test_names_need_a_sync_of_the_folder(machine: Machine, seed: int) -> None:
    machine.run(
        FILES
        + """
new = os.open(d / "new", os.O_RDWR | os.O_CREAT)
os.write(new, b"N")
os.fsync(new)
os.rename(d / "new", d / "a")
"""
    )
    machine.cut(seed)
    names = {path.name: path.read_bytes() for path in machine.data.iterdir()}
    old = b"A" * 2048
    assert names in ({"a": old}, {"a": old, "new": b"N"}, {"new": b"N"}, {"a": b"N"})


def test_a_disk_that_ignores_syncs_guarantees_nothing(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        folder.mkdir()
        machine = Machine(folder)
        machine.control.lie_about_syncs(lie=True)
        machine.run(FILES)
        machine.cut(seed)
        seen.add((machine.data / "a").exists())
    assert seen == {True, False}


def test_a_full_disk_a_failing_sync_and_a_clock_that_jumped(machine: Machine) -> None:
    attempt = """
    import errno, time
    def tried(work):
        try:
            work()
        except OSError as exc:
            return errno.errorcode[exc.errno]
        return "done"
    fd = os.open(d / "a", os.O_RDWR | os.O_CREAT)
    print(tried(lambda: os.pwrite(fd, b"x" * 100, 0)), tried(lambda: os.fdatasync(fd)), int(time.time() / 3600))
    """
    written, synced, hour = machine.run(attempt).split()
    assert (written, synced) == ("done", "done")
    (machine.data / "a").unlink()
    machine.control.limit_space(99)
    machine.control.fail_syncs(fail=True)
    machine.control.jump_clock(100 * 3600)
    spoiled = machine.run(attempt).split()
    assert spoiled[:2] == ["ENOSPC", "EIO"]
    assert int(spoiled[2]) - int(hour) in {100, 101}
    machine.control.mend()
    assert machine.run(attempt).split()[:2] == ["done", "done"]
    assert machine.control.syncs_seen == 3
