"""An operator who follows the page of alerts: runs its commands in a shell on nodes that stand for its machines."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.docs.shell import Shell, Step, steps

from .cluster import NodeProcess, clean_environment

__all__ = ["Operator"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "alerts.md"
PROBLEMS: Final = (1, 69)
"""The exit codes of ``check`` and ``status`` while something is wrong."""
JOURNAL: Final = '#!/bin/sh\ncat "$NODE_LOG"\n'


class Operator:
    """Follows the sections of the page.

    Attributes:
        folder: the directory in which the commands run; ``etc`` below it stands for ``/etc/lmqcluster``.

    Args:
        nodes: the nodes of the cluster.
        folder: for the directory of the commands.
        environment: further variables of the commands.
    """

    def __init__(
        self, nodes: Sequence[NodeProcess], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._nodes = list(nodes)
        self.folder = folder / "operator"
        self._bin = self.folder / "bin"
        self._bin.mkdir(parents=True)
        (self._bin / "journalctl").write_text(JOURNAL, encoding="utf-8")
        (self._bin / "journalctl").chmod(0o755)
        # A node without tokens ignores it.
        (self.folder / "prometheus-token").write_text("token", encoding="utf-8")
        self._environment = dict(environment or {})

    def take(self, node: NodeProcess) -> None:
        """Add a node to the cluster."""
        self._nodes.append(node)

    def name(self, alert: str) -> str:
        """Return the queue that stands for ``jobs`` in the section of an alert."""
        return f"{alert.lower()}-jobs"

    def act(self, alert: str, node: NodeProcess | None = None, *, replaced: Mapping[str, str] | None = None) -> None:
        """Run the commands that look for the reason of an alert and remove it, with some texts replaced."""
        self._run(alert, node, _part(alert, "Action"), replaced=replaced)

    def confirm(self, alert: str, node: NodeProcess | None = None) -> None:
        """Run the commands that show whether the reason is gone; they must succeed."""
        self._run(alert, node, _part(alert, "Resolved"), may_fail=False)

    def _run(
        self,
        alert: str,
        node: NodeProcess | None,
        part: Sequence[Step],
        *,
        may_fail: bool = True,
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        node = node or self._nodes[0]
        other = next((one for one in self._nodes if one is not node and one.running), node)
        fixed = {
            **(replaced or {}),
            "install -o root -g lmq": "install",
            "https://10.0.0.": "http://10.0.0.",
            "10.0.0.3:9980": node.http,
            "10.0.0.1:9980": other.http,
            "transfer-leader n1": f"transfer-leader {other.name}",
            "/var/lib/lmqcluster": str(node.data_dir),
            "/etc/lmqcluster": str(self.folder / "etc"),
        }
        environment = clean_environment(
            {
                "PATH": f"{self._bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "LMQ_NODE": other.http,
                "NODE_LOG": str(node.log_path),
                **self._environment,
            }
        )
        with Shell(self.folder, environment, {}) as shell:
            for step in part:
                if step.command.startswith("systemctl "):
                    self._systemctl(step.command.split()[1], node)
                    continue
                command = re.sub(r"\bjobs\b", self.name(alert), step.command)
                for shown, real in fixed.items():
                    command = command.replace(shown, real)
                code, printed = shell.run(command)
                reports = may_fail and re.match(r"lmq-admin .*?\b(?:check|status)\b", command)
                assert code == 0 or (reports and code in PROBLEMS), f"{alert}: $ {command}\n{code}\n{printed}"
                shell.compare(step, printed)

    def _systemctl(self, verb: str, node: NodeProcess) -> None:
        actions: dict[str, Callable[[], object]] = {
            "status": lambda: node.running,
            "start": self._start_all,
            "reload": lambda: node.signal(1),
        }
        actions[verb]()

    def _start_all(self) -> None:
        for node in self._nodes:
            if not node.running:
                node.start(wait=False)


def _part(alert: str, name: str) -> list[Step]:
    """Return the commands of a part of the section of an alert, those for root too."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^## {alert}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section is not None, alert
    parts = re.split(r"^\*\*(\w+)\.?\*\*", section[1], flags=re.MULTILINE)
    return list(steps(dict(zip(parts[1::2], parts[2::2], strict=True))[name], prompts=("$ ", "# ")))
