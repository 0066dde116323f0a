"""A separate systemd in separate namespaces: the closest approximation of a machine with the unit installed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.integration.cluster import reaper, wait_for

from .tools import ROOT, run

__all__ = ["Machine", "why_not"]

SCRIPT = Path(__file__).with_name("machine.sh")
SYSTEMD = Path("/lib/systemd/systemd")


def _control_groups() -> Path | None:
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _device, place, kind, options, *_rest = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return Path(place)
    return None


def why_not() -> str | None:
    """Return why there can be no such machine here; None if there can."""
    if os.geteuid() != 0:
        return "only root may boot a separate systemd"
    missing = [name for name in ("unshare", "nsenter", "systemctl", "systemd-sysusers") if shutil.which(name) is None]
    if missing or not SYSTEMD.exists():
        return f"there is no {missing[0] if missing else SYSTEMD}: install the Debian packages systemd and util-linux"
    if _control_groups() is None:
        return "control groups cannot be written here"
    tried = run("unshare", "--mount", "--pid", "--fork", "--cgroup", "mount", "-t", "tmpfs", "tmpfs", "/run")
    return None if tried.returncode == 0 else f"namespaces cannot be created here: {tried.stderr.strip()}"


class Machine:
    """A booted systemd that knows one unit, ``lmqcluster.service``, and shares the host's network."""

    def __init__(self, directory: Path) -> None:
        groups = _control_groups()
        assert groups is not None
        self._group = groups / f"lmq-test-{secrets.token_hex(4)}"
        self._log = directory / "boot.log"
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._group.mkdir()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "unshare",
                    "--mount",
                    "bash",
                    SCRIPT,
                    ROOT,
                    sys.base_prefix,
                    sysconfig.get_path("purelib"),
                    self._group,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper.tell("+", self._process.pid)
        try:
            wait_for(self._booted, "systemd")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        # The outer process ends the namespace's first one, which ends everything in the namespace.
        self._process.kill()
        self._process.wait()
        reaper.tell("-", self._process.pid)
        wait_for(self._without_groups, "the end of the control groups")

    def _without_groups(self) -> bool:
        for folder, _folders, _files in os.walk(self._group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not self._group.exists()

    def _booted(self) -> bool:
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8", errors="replace")
        return self._first() is not None and self.systemctl("is-active", "basic.target").returncode == 0

    def _first(self) -> int | None:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii")
        return int(children) if children.strip() else None

    def inside(self, *command: str, of: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command among the machine's files, or among those that the process `of` (number of the host)
        sees, as root.
        """
        target = of or self._first()
        return run("nsenter", f"--target={target}", "--mount", "--pid", *command)

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run systemctl on the machine."""
        return self.inside("systemctl", *words)

    def write(self, path: str, text: str, *, owner: str = "root:lmq", mode: str = "0640") -> None:
        """Write a file of the machine."""
        script = 'mkdir -p "${1%/*}" && printf %s "$2" > "$1" && chown "$3" "$1" && chmod "$4" "$1"'
        done = self.inside("sh", "-euc", script, "sh", path, text, owner, mode)
        assert done.returncode == 0, done.stderr

    def property(self, name: str) -> str:
        """Return a property of the unit, as systemctl shows it."""
        return self.systemctl("show", "--property", name, "--value", "lmqcluster.service").stdout.strip()

    def main_process(self) -> int:
        """Return the host's process id of the unit's main process."""
        # Ids of a process from the outermost namespace to its own.
        wanted = self.property("MainPID")
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
                numbers = lines["NSpid"].split("\t")
                if numbers[1:] == [wanted] and str(self._group.name) in (status.parent / "cgroup").read_text():
                    return int(numbers[0])
        raise AssertionError(f"the unit has no main process: {self.log()}")

    def kill(self) -> None:
        """Kill the unit's main process."""
        os.kill(self.main_process(), signal.SIGKILL)

    def log(self) -> str:
        """Return the output of the unit."""
        return self.inside("cat", "/var/log/lmqcluster.log").stdout
