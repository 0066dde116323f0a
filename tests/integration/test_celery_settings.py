"""Settings of Celery alone, as in Django: no program imports the transport. And what happens if no node answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_python_blocks import blocks, replaced

from .cluster import Cluster, clean_environment, ports, reaper

PAGE = Path(__file__).parents[2] / "docs" / "celery.md"
APPLICATION = """
from celery import Celery
app = Celery("application")
app.config_from_object("celeryconfig")

@app.task
def add(one, other):
    return one + other
"""
DEADLINE_S = 180.0


class Folder:
    """A folder with an application and the settings of the page."""

    def __init__(self, path: Path, servers: dict[str, str]) -> None:
        self.path = path
        (settings,) = (block for block in blocks(PAGE) if block.startswith("# celeryconfig.py"))
        (path / "celeryconfig.py").write_text(replaced(settings, servers), encoding="utf-8")
        (path / "application.py").write_text(APPLICATION, encoding="utf-8")
        self.environment = clean_environment({"PYTHONPATH": str(path)})

    def run(self, *arguments: str) -> str:
        """Run Python to its end; return its output."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def folder(shared_cluster: Cluster, tmp_path: Path) -> Iterator[Folder]:
    """The folder, with a worker that runs."""
    shown = ("127.0.0.1:18800", "127.0.0.1:18810", "127.0.0.1:18820")
    real = dict(zip(shown, shared_cluster.rpc_addresses, strict=True))
    # Other tests use the same cluster.
    made = Folder(tmp_path, real | {"/shop": f"/{tmp_path.name}"})
    command = [sys.executable, "-m", "celery", "-A", "application", "worker", "-P", "solo"]
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=tmp_path, env=made.environment, stdout=log, stderr=log)
    reaper.tell("+", worker.pid)
    yield made
    worker.kill()
    worker.wait()
    reaper.tell("-", worker.pid)


def test_settings_name_the_transport_and_the_results(folder: Folder, shared_cluster: Cluster) -> None:
    program = f"import application; print(application.add.delay(2, 3).get(timeout={DEADLINE_S}))"
    assert folder.run("-c", program) == "5\n"
    url = f"lmq://{shared_cluster[1].rpc}/{folder.path.name}"
    words = ("--config", "celeryconfig", "-b", url, "inspect", "--timeout", "30", "ping")
    assert "pong" in folder.run("-m", "celery", *words)


def test_without_a_node_a_send_fails_when_its_time_is_over(tmp_path: Path) -> None:
    folder = Folder(tmp_path, {"127.0.0.1:18800,127.0.0.1:18810,127.0.0.1:18820": f"127.0.0.1:{ports.take()}"})
    program = """
import application, kombu.exceptions
application.app.conf.broker_transport_options = {"timeout_s": 1.5}
try:
    application.add.delay(2, 3)
except kombu.exceptions.OperationalError as error:
    print(error)
"""
    assert folder.run("-c", program).startswith("given up after 1.5 s")
