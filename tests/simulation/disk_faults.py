"""Crashes, power failures, and disks that are full, slow, damaged or gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmqcluster.replication.storage.node_storage import PAGES
from tests.simulation.fault_base import FaultBase
from tests.simulation.host import DISK_S

if TYPE_CHECKING:
    from tests.simulation.host import Host

__all__ = ["DiskFaults"]

SLOW_DISK_S = (0.02, 1.0)
WRITES_MAX = 40
OPENING_WRITES_MAX = 10
CLOCK_ERROR_S = 1e7
PAGES_DAMAGED_MAX = 4


class DiskFaults(FaultBase):
    """Faults of processes and their disks."""

    def _strike(self, *, power: bool) -> Host | None:
        """Return a victim for this kind of death: a member that remembers, or one of a minority of those that
        forget.
        """
        if self._subject.forgets(power=power):
            return self._expendable()
        host = self._hosts[self._leader_or_any()]
        return host if host.running else None

    def _restart(self) -> None:
        """Kill a process and start it again."""
        host = self._strike(power=False)
        if host is not None:
            host.kill()
            self._later(host)

    def _crash_in_writing(self) -> None:
        """Kill a process between two writes, or within one, and restart it."""
        self._crash_at_a_write(power=False)

    def _power(self) -> None:
        """Cut the power of a machine and restart it."""
        host = self._strike(power=True)
        if host is not None:
            host.kill(power=True)
            self._later(host)

    def _power_in_writing(self) -> None:
        """Cut the power between two writes, or within one, and restart the machine."""
        self._crash_at_a_write(power=True)

    def _crash_at_a_write(self, *, power: bool) -> None:
        host = self._strike(power=power)
        if host is None or (self._subject.forgets(power=power) and not self._subject.forgets(power=False)):
            # Other members may have become weak before the fault strikes.
            return
        folder = self._rng.choice(sorted(host.disks))
        writes = self._rng.randrange(WRITES_MAX)
        self._checkers.note("crash due", f"{host.id} {folder!r} after {writes} writes")
        host.crash_in_writing(folder, writes, power=power)

    def _crash_in_opening(self) -> None:
        """Kill a process, and its successor while it opens the files."""
        host = self._strike(power=True)
        if host is not None:
            host.kill(power=self._rng.random() < 0.5)
            folder = self._rng.choice(sorted(host.disks))
            writes = self._rng.randrange(OPENING_WRITES_MAX)
            self._checkers.note("crash due", f"{host.id} {folder!r} after {writes} writes of opening")
            host.crash_in_writing(folder, writes, power=self._rng.random() < 0.5)
            self._later(host)

    def _bad_write(self) -> None:
        """Fail a write although there is room."""
        host = self._hosts[self._leader_or_any()]
        if host.running:
            folder = self._rng.choice(sorted(host.disks))
            writes = self._rng.randrange(WRITES_MAX)
            self._checkers.note("bad write", f"{host.id} {folder!r} after {writes} writes")
            host.fail_in_writing(folder, writes)

    def _power_all(self) -> None:
        """Cut the power of all machines at once; restart them one after the other."""
        for host in self._hosts.values():
            if host.running:
                host.kill(power=True)
                self._later(host)

    def _restart_all(self) -> None:
        """End all processes at once; restart them one after the other, perhaps with changed clocks."""
        for host in self._hosts.values():
            if host.running:
                host.kill()
                if self._rng.random() < 0.5:
                    self._jump(host)
                self._later(host)

    def _full(self) -> None:
        """Fill the disk for a while."""
        host = self._hosts[self._leader_or_any()]
        self._checkers.note("full", host.id)
        host.full = True
        self._clock.after(self._duration(), self._empty, host)

    def _empty(self, host: Host) -> None:
        host.full = False

    def _slow_disk(self) -> None:
        host = self._hosts[self._leader_or_any()]
        host.disk_s = SLOW_DISK_S
        self._checkers.note("slow disk", host.id)
        self._clock.after(self._duration(), setattr, host, "disk_s", DISK_S)

    def _damage(self) -> None:
        """While the process is down, flip a bit of a file, cut off its end, or remove it."""
        host = self._expendable()
        if host is None or self._weak(self._settled_members()):
            return
        host.kill()
        files = [(folder, name) for folder, disk in sorted(host.disks.items()) for name in disk.names()]
        folder, name = self._rng.choice(files)
        disk = host.disks[folder]
        how = self._rng.choice(["flip", "flip", "cut", "lose"])
        if not disk.content(name):
            how = "lose"
        if folder == "":
            # One lost copy of the two does no harm; without a readable copy there is no node.
            how = "flip"
        self._checkers.note("damage", f"{host.id} {how} {folder}/{name}")
        host.harmed = host.may_forget = host.lacking = True
        if how == "flip":
            disk.flip_bit(name, self._rng)
        elif how == "cut":
            disk.truncate(name, self._rng)
        else:
            disk.lose(name)
        self._later(host)

    def _damage_pages(self) -> None:
        """While the process is down, flip bits of some of its page files, cut off their ends, or remove them."""
        host = self._expendable()
        if host is None or self._weak(self._settled_members()):
            return
        disk = host.disks.get(PAGES)
        if disk is None or not disk.names():
            return
        host.kill()
        names = disk.names()
        host.harmed = host.may_forget = host.lacking = True
        for name in self._rng.sample(names, min(len(names), self._rng.randint(1, PAGES_DAMAGED_MAX))):
            how = self._rng.choice(["flip", "flip", "cut", "lose"]) if disk.content(name) else "lose"
            self._checkers.note("damage", f"{host.id} {how} {PAGES}/{name}")
            if how == "flip":
                disk.flip_bit(name, self._rng)
            elif how == "cut":
                disk.truncate(name, self._rng)
            else:
                disk.lose(name)
        self._later(host)

    def _lose_disk(self) -> None:
        """Restart a founder with an empty disk and its original list of members."""
        host = self._expendable()
        if host is None or host.id not in self._simulation.members or self._weak(self._settled_members()):
            return
        host.kill()
        host.lose_disk()
        self._later(host)

    def _clock_jump(self) -> None:
        self._jump(self._hosts[self._leader_or_any()])

    def _jump(self, host: Host) -> None:
        host.wall_offset_s = self._rng.uniform(-CLOCK_ERROR_S, CLOCK_ERROR_S)
        self._checkers.note("clock", f"{host.id} by {host.wall_offset_s:.0f} s")
