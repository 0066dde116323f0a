"""The applications of the pages on Celery and dramatiq, with only lmqcluster and the extra of that name installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.installing import one_at_a_time
from tests.integration.cluster import clean_environment, reaper, wait_for

from .conftest import ROOT
from .test_python_blocks import PROGRAM, blocks, replaced

WORKERS = {
    "celery": ("celery", "-A", "application", "worker", "-c", "1"),
    "dramatiq": ("dramatiq", "application", "--processes", "1", "--threads", "1"),
}
SENDS = {"celery": "pay.delay(17)", "dramatiq": "pay.send(17)"}
PACKAGES = ("lmqcluster", "cli", "chaos")
FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it would be published."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "source" / name)
    for name in FILES:
        shutil.copy(ROOT / name, folder / "source" / name)
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(folder / "source"))
    return next(folder.glob("*.whl"))


def _pip(*arguments: str) -> None:
    with one_at_a_time():
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("library", WORKERS)
def test_an_application_runs_with_only_its_extra(
    library: str, wheel: Path, addresses: Mapping[str, str], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    needed = f"lmqcluster[{library}] @ {wheel.as_uri()}"
    _pip("install", "--constraint", str(ROOT / ".constraints.txt"), "--target", str(installed), needed)
    page = ROOT / "docs" / f"{library}.md"
    (program,) = (block for block in blocks(page) if block.startswith("# application.py"))
    (tmp_path / "application.py").write_text(replaced(program, addresses), encoding="utf-8")
    assert SENDS[library] in page.read_text(encoding="utf-8")
    environment = clean_environment({"PYTHONPATH": os.pathsep.join([str(installed), str(tmp_path)])})
    # Without `site` only the packages that were just installed are visible.
    python = [sys.executable, "-S"]
    send = f"import application, lmqcluster; print(lmqcluster.__file__); application.{SENDS[library]}"
    sent = subprocess.run(
        [*python, "-c", send], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout.startswith(str(installed))
    log = tmp_path / "log"
    others = [block for block in blocks(page) if not PROGRAM.match(block)]
    for block in others:
        # A producer that does not use the library.
        subprocess.run([*python, "-c", replaced(block, addresses)], env=environment, cwd=tmp_path, check=True)
    count = 1 + len(others)
    with _running([*python, "-m", *WORKERS[library]], environment, log) as worker:
        wait_for(lambda: log.read_text().count("paying 17") == count or worker.poll() is not None, "the tasks")
    assert log.read_text().count("paying 17") == count, log.read_text()


@contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command, env=environment, cwd=log.parent, stdout=output, stderr=output, start_new_session=True
        )
    reaper.tell("+", worker.pid)
    try:
        yield worker
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        reaper.tell("-", worker.pid)
