"""Getting started's cluster with TLS and tokens: its command lines run unchanged, except for ports and `make
install`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.integration.cluster import clean_environment, ports, reaper, wait_for

from .conftest import ROOT
from .shell import steps

DEADLINE_S = 180.0
LEFT_OUT = (". .venv/bin/activate",)


def command_lines() -> list[str]:
    """Return the commands that the section shows, including loops and continued lines."""
    text = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    section = re.search(r"^## Three nodes with TLS and tokens\n.*?(?=^## )", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    return [step.command for step in steps(section[0]) if step.command not in LEFT_OUT]


def test_the_commands_of_the_page_create_a_cluster_with_tls_and_tokens(tmp_path: Path) -> None:
    # The answers are compared, so the shell may continue after a refusal, which is one of them.
    script = "\n".join(command_lines())
    for port in (":9980", ":18800", ":19980"):
        script = script.replace(port, f":{ports.take()}")
    process = subprocess.Popen(
        ["bash"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    reaper.tell("+", process.pid)
    try:
        out, err = process.communicate(f"{script}\nwait\n", timeout=DEADLINE_S)
    finally:
        # All nodes may have ended already.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        reaper.tell("-", process.pid)
    assert "pong\n" in out, err
    assert len(re.findall(r"^n[123]\t(?:leader|follower)\t", out, re.MULTILINE)) == 3, out
    assert out.endswith('{"accum":"no"}pay invoice 7401\n403\n'), out + err
    folder = tmp_path / "var" / "secure"
    wait_for(lambda: not list(folder.glob("n?/lmq.pid")), "the end of the nodes")
    for name in ("cluster-secret", "admin-token", "billing-token", "tls/ca.key", "tls/n1.key"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
