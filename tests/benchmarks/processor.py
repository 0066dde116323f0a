"""Processor time of process trees, from /proc: on a machine with other work, it is more meaningful than
elapsed time.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Spent", "Usage", "machine_seconds", "process_seconds"]

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Spent:
    """Processor seconds of the parts of a Spark job on one machine.

    Attributes:
        nodes: the cluster.
        jvm: Spark itself, with its executors.
        python: the Python processes that Spark starts, and the driver.
    """

    nodes: float
    jvm: float
    python: float

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.nodes - before.nodes, self.jvm - before.jvm, self.python - before.python)

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return self.nodes + self.jvm + self.python


@dataclass(frozen=True)
class _Process:
    parent: int
    is_java: bool
    own_s: float
    ended_children_s: float


class Usage:
    """The processor time of a cluster's nodes, and of this process and everything else that it has started."""

    def __init__(self, nodes: Iterable[int]) -> None:
        """Take the process ids of the nodes, which are children of this process."""
        self._nodes = frozenset(nodes)

    def now(self) -> Spent:
        """Return the processor time so far, including ended processes."""
        nodes = jvm = python = 0.0
        for pid, process in _tree():
            if pid in self._nodes:
                nodes += process.own_s + process.ended_children_s
            elif process.is_java:
                jvm += process.own_s
                python += process.ended_children_s
            else:
                python += process.own_s + process.ended_children_s
        return Spent(nodes, jvm, python)

    def workers(self) -> dict[int, float]:
        """Return processor seconds of each Python process that Spark's daemon has forked and that is alive,
        by process id.
        """
        tree = dict(_tree())
        parents = {pid: tree.get(process.parent) for pid, process in tree.items()}
        daemons = {pid for pid, parent in parents.items() if parent is not None and parent.is_java}
        return {pid: process.own_s for pid, process in tree.items() if process.parent in daemons}


def process_seconds(pids: Iterable[int]) -> list[float]:
    """Return the processor seconds of each of these processes, with those of its ended children; 0 if it has ended."""
    processes = _processes()
    found = (processes.get(pid) for pid in pids)
    return [0.0 if one is None else one.own_s + one.ended_children_s for one in found]


def machine_seconds() -> float:
    """Return the seconds that the processors of this machine have been busy."""
    user, nice, system, _idle, _waiting, *interrupts = (
        int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    )
    return (user + nice + system + sum(interrupts)) / _TICKS_PER_S


def _tree() -> Iterator[tuple[int, _Process]]:
    """Yield this process and all its descendants."""
    processes = _processes()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children[pid]
        yield pid, processes[pid]


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text(errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # It has just ended.
                continue
            name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            user, system, ended_user, ended_system = (int(field) / _TICKS_PER_S for field in fields[11:15])
            found[int(entry.name)] = _Process(int(fields[1]), name == "java", user + system, ended_user + ended_system)
    return found
