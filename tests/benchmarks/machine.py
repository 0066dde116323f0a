"""The machine on which the figures were measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine and the interpreter of client and nodes."""

    cores: int
    processor: str
    memory_gb: int
    system: str
    python: str
    event_loop: str
    load_average_before: float
    """Runnable processes in the minute before the run; well above 0 if other work uses the machine."""

    @classmethod
    def here(cls, event_loop: str) -> Self:
        """Return this machine now."""
        return cls(
            cores=len(os.sched_getaffinity(0)),
            processor=_processor(),
            memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            event_loop=event_loop,
            load_average_before=round(os.getloadavg()[0], 2),
        )

    def line(self) -> str:
        """Return everything in one line."""
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_gb} GB, {self.system}, Python {self.python}, "
            f"{self.event_loop}; load average before: {self.load_average_before}"
        )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def event_loop_version() -> str:
    """Return the event loop of the client: uvloop if installed."""
    try:
        return f"uvloop {importlib.metadata.version('uvloop')}"
    except importlib.metadata.PackageNotFoundError:
        return "asyncio"
