"""Nightly backups: the commands of the systemd unit and of the chart's CronJob run as they are, against a node with TLS."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from lmqcluster_cli.admin.cluster.backup_folder import DRAFT_AGE_S

from tests.integration.programs import Result, run_here
from tests.integration.test_access_tls import TlsNode

from .rendering import kept
from .tools import DEPLOY, run

SYSTEMD = DEPLOY / "systemd"
UNIT, TIMER = SYSTEMD / "lmqcluster-backup.service", SYSTEMD / "lmqcluster-backup.timer"
EXPOSURE_MAX = 2.0
OLD = [f"lmq-2026-11-{day:02}T021500Z.backup" for day in range(1, 21)]
OTHERS = {"notes.txt", "lmq.backup", "mine.backup"}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    """A node with TLS and a token."""
    with TlsNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with twenty old backups, files of others, and drafts: of a program that was killed, and of one that runs."""
    for name in (*OLD, *OTHERS):
        (tmp_path / name).write_text("old")
    for name, age_s in (
        (".lmq-2026-11-20T021500Z.backup.7.tmp", 2 * DRAFT_AGE_S),
        (".lmq-2026-11-21T021500Z.backup.8.tmp", 0),
    ):
        (tmp_path / name).write_text("draft")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    return tmp_path


def one_more(folder: Path, keep: int) -> Path:
    """Check that a backup was added and only old ones were removed; return the new one."""
    left = {path.name for path in folder.iterdir()}
    (new,) = left - {*OLD, *OTHERS, ".lmq-2026-11-21T021500Z.backup.8.tmp"}
    assert left == {*OLD[len(OLD) - (keep - 1) :], *OTHERS, ".lmq-2026-11-21T021500Z.backup.8.tmp", new}
    assert (folder / new).stat().st_mode & 0o777 == 0o600
    return folder / new


def run_command(words: list[str], environment: Mapping[str, str], node: TlsNode, folder: Path, place: str) -> Result:
    """Run a command line of a deployment; its address, files and folder are those of the test."""
    assert Path(words[0]).name == "lmq-admin"
    assert place in words
    assert environment.keys() == {"LMQ_NODE", "LMQ_CA_FILE", "LMQ_TOKEN_FILE"}
    here = {"LMQ_NODE": node.process.http, "LMQ_CA_FILE": node.ca, "LMQ_TOKEN_FILE": str(node.token_file)}
    return run_here(*(str(folder) if word == place else word for word in words[1:]), environment=here)


def lines(path: Path, key: str) -> list[str]:
    """Return the values of a key in a unit or environment file."""
    found = [line.partition("=") for line in path.read_text(encoding="utf-8").splitlines()]
    return [value for name, _, value in found if name == key]


def test_the_units_command_writes_a_backup_and_removes_old_ones(secure: TlsNode, folder: Path) -> None:
    (command,) = lines(UNIT, "ExecStart")
    (state,) = lines(UNIT, "StateDirectory")
    example = SYSTEMD / "lmqcluster-backup.env"
    assert lines(UNIT, "EnvironmentFile") == [f"/etc/lmqcluster/{example.name}"]
    environment = dict(
        line.split("=", 1) for line in example.read_text(encoding="utf-8").splitlines() if line.startswith("LMQ_")
    )
    done = run_command(command.split(), environment, secure, folder, f"/var/lib/{state}")
    assert done == (0, "", "")
    new = one_more(folder, 14)
    assert run_here("verify", str(new)) == (0, "", "")
    new.write_bytes(new.read_bytes()[:-1])
    damaged = run_here("verify", str(new))
    assert (damaged.code, str(new) in damaged.one_line_error()) == (65, True)


def test_the_charts_command_writes_a_backup_and_removes_old_ones(secure: TlsNode, folder: Path) -> None:
    objects: dict[str, Any] = {}
    for one in yaml.safe_load_all(kept("everything").read_text(encoding="utf-8")):
        if one:
            objects[one["kind"]] = one
    pod = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    # The services lead to the nodes only.
    nodes = objects["StatefulSet"]["spec"]["selector"]["matchLabels"]
    assert not nodes.items() <= pod["metadata"]["labels"].items()
    clients = [rule["from"] for rule in objects["NetworkPolicy"]["spec"]["ingress"]]
    assert {"podSelector": {"matchLabels": pod["metadata"]["labels"]}} in clients[1]
    (container,) = pod["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    done = run_command(container["command"], environment, secure, folder, "/backups")
    assert done == (0, "", "")
    one_more(folder, 7)


def test_a_failed_backup_removes_nothing(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    assert run_here("--node", "127.0.0.1:1", "backup", str(folder), "--keep", "1").code == 69
    assert run_here("--node", "127.0.0.1:1", "backup", str(folder / "file"), "--keep", "1").code == 2
    assert {path.name for path in folder.iterdir()} == before


def test_systemd_finds_no_error_in_unit_and_timer(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: install the Debian package systemd")
    program = str(Path(sys.executable).with_name("lmq-admin"))
    for unit in (UNIT, TIMER):
        text = unit.read_text(encoding="utf-8").replace("/opt/lmqcluster/bin/lmq-admin", program)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    done = run("systemd-analyze", "verify", "--man=no", tmp_path / TIMER.name, tmp_path / UNIT.name)
    assert [line for line in (done.stdout + done.stderr).splitlines() if "lmqcluster" in line] == []
    (calendar,) = lines(TIMER, "OnCalendar")
    assert run("systemd-analyze", "calendar", calendar).returncode == 0
    done = run(
        "systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={round(10 * EXPOSURE_MAX)}",
        tmp_path / UNIT.name,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
