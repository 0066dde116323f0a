"""Programs of two versions: their sources, and a cluster that is upgraded from one to the other under load."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from lmqcluster_chaos.drill import run_drill
from lmqcluster_chaos.errors import DrillError
from lmqcluster_chaos.nodes.programs import from_git, last_release, next_release, parse_program
from lmqcluster_chaos.scenario import find, read

ROOT = Path(__file__).parents[2]
DEADLINE_S = 180.0
UPGRADE = """
title = "Upgrade"
[load]
seconds = 3
[[fault]]
kind = "rolling_upgrade"
at_s = 0.5
"""


def printed_version(program: tuple[str, ...]) -> str:
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working copy without a commit, with the project's own programs."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "test")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "test@example.org")
    folder = tmp_path / "checkout"
    for package in ("lmqcluster", "cli"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet")
    return folder


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, timeout=DEADLINE_S, check=True, capture_output=True)


def commit(folder: Path, version: str) -> None:
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", version)


def test_the_last_release_is_built_from_git(checkout: Path, tmp_path: Path) -> None:
    for number in ("0.0.1", "0.0.2"):
        commit(checkout, number)
        git(checkout, "tag", f"v{number}")
    commit(checkout, "0.0.3")
    git(checkout, "tag", "nightly")
    later = last_release(tmp_path / "later", checkout)
    assert later is not None
    assert printed_version(later).endswith("0.0.2 of v0.0.2")
    # A release is not older than itself.
    git(checkout, "checkout", "--quiet", "v0.0.2")
    first = last_release(tmp_path / "first", checkout)
    assert first is not None
    assert printed_version(first).endswith("0.0.1 of v0.0.1")
    # It uses its own modules, not the installed ones.
    script = "import lmq, lmqcluster, lmqcluster_cli; print(lmqcluster.__file__, lmqcluster_cli.__file__)"
    where = subprocess.run(
        [first[0], "-c", script], cwd=tmp_path / "first", capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert where.stdout.count(str(tmp_path / "first")) == 2


def test_history_without_a_release_is_not_used(checkout: Path, tmp_path: Path) -> None:
    assert last_release(tmp_path / "nothing", checkout) is None
    commit(checkout, "0.0.1")
    git(checkout, "tag", "v0.0.1")
    # As in a clone of depth 1, the commits before the current one are missing.
    assert last_release(tmp_path / "shallow", checkout) is None
    assert last_release(tmp_path / "tarball", tmp_path) is None


def test_a_program_can_be_any_revision_or_command(checkout: Path, tmp_path: Path) -> None:
    commit(checkout, "0.0.1")
    assert printed_version(from_git("HEAD", tmp_path / "head", checkout)).endswith("0.0.1 of HEAD")
    assert parse_program("ssh there 'lmq next'", tmp_path) == ("ssh", "there", "lmq next")
    with pytest.raises(DrillError, match="'never'"):
        from_git("never", tmp_path / "never", checkout)
    with pytest.raises(DrillError, match="names no program"):
        parse_program(" ", tmp_path)


def test_the_next_release_is_the_installed_program_with_another_version(tmp_path: Path) -> None:
    assert printed_version(next_release(tmp_path / "next")).endswith(f"{version('lmqcluster')}+next")


def test_a_cluster_is_upgraded_to_the_next_version_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts from the installed program, whatever releases the history has: the test must not depend on
    the clone.
    """
    monkeypatch.setattr("lmqcluster_chaos.drill.last_release", lambda folder: None)
    path = tmp_path / "upgrade.toml"
    path.write_text(UPGRADE)
    assert find("rolling_upgrade").upgrades()
    result = run_drill(read(path), seed=1, folder=tmp_path / "drill", time_factor=10)
    assert result.verdict == "pass", "\n".join([*result.reasons, *result.notes])
    now = version("lmqcluster")
    assert result.version == f"{now}, later {now}+next"
    assert len(result.notes) == 3
    for text in result.notes:
        before, after = (int(part.split(")")[0]) for part in text.split("machine version ")[1:])
        assert after == before + 1
    assert result.judgement.totals.acknowledged > 100
