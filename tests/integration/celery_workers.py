"""A Celery application in a folder, and its workers, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from celery import Celery

import lmqcluster.integrations.kombu  # noqa: F401 - registers lmq://

from .cluster import clean_environment, reaper

__all__ = ["Workers", "numbers"]

APPLICATION = """
import json, os, time
from celery import Celery
import lmqcluster.integrations.kombu

app = Celery(broker=os.environ["BROKER"], backend=os.environ["RESULTS"])
app.conf.update(
    broker_transport_options={"lease": 3}, broker_connection_retry_on_startup=True, worker_prefetch_multiplier=2,
    worker_soft_shutdown_timeout=1, worker_enable_soft_shutdown_on_idle=True,
    beat_schedule={"tick": {"task": "add", "schedule": 0.2, "args": (-1,)}},
    task_routes={"plus": {"queue": "sums"}},
)

def note(**what):
    with open(os.environ["DONE"], "a") as done:
        done.write(json.dumps({"at": time.time(), "worker": os.environ["WORKER"], **what}) + "\\n")

@app.task(name="add")
def add(number):
    note(task="add", number=number)

@app.task(name="plus")
def plus(one, other):
    return one + other

@app.task(name="total")
def total(numbers):
    return sum(numbers)

@app.task(name="sender")
def sender(count):
    for number in range(count):
        add.delay(number)

@app.task(name="flaky", bind=True)
def flaky(self):
    note(task="flaky", number=self.request.retries)
    if self.request.retries == 0:
        raise self.retry(countdown=1)

@app.task(name="hold", acks_late=True)
def hold(number):
    note(task="hold", number=number)
    while os.path.exists(os.environ["HOLD"]):
        time.sleep(0.05)
    note(task="held", number=number)
"""


class Workers:
    """A Celery application in a folder, and its workers."""

    def __init__(self, folder: Path, broker: str) -> None:
        results = folder / "results"
        results.mkdir()
        self.app = Celery(broker=broker, backend=f"file://{results}")
        self.app.conf.broker_transport_options = {"lease": 3}
        self.app.conf.task_routes = {"plus": {"queue": "sums"}}
        self.hold = folder / "hold"
        self._results = results
        self._folder = folder
        self._done = folder / "done"
        self._broker = broker
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "application.py").write_text(APPLICATION)

    def _environment(self, name: str) -> dict[str, str]:
        return clean_environment(
            {
                "BROKER": self._broker,
                "RESULTS": f"file://{self._results}",
                "DONE": str(self._done),
                "HOLD": str(self.hold),
                "WORKER": name,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(self._folder), os.environ.get("PYTHONPATH")])),
            }
        )

    def start(self, name: str, *options: str, sends_events: bool = True) -> subprocess.Popen[bytes]:
        """Start a worker, by default with two processes."""
        events = ["-E"] if sends_events else []
        return self.start_program(
            name, "worker", *(options or ("-c", "2")), *events, "-l", "INFO", "-n", f"{name}@test"
        )

    def start_program(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a Celery program that runs until it is stopped."""
        with self.log(name).open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "application", *arguments],
                env=self._environment(name),
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper.tell("+", worker.pid)
        self._started.append(worker)
        return worker

    def log(self, name: str) -> Path:
        """Return the output of a program."""
        return self._folder / f"{name}.log"

    def command(self, *arguments: str) -> str:
        """Run a Celery command to its end; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "application", *arguments],
            env=self._environment("command"),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def send(self, task: str, *arguments: Any, **options: Any) -> None:
        self.app.send_task(task, arguments, **options)

    def runs(self, task: str) -> list[dict[str, Any]]:
        lines = self._done.read_text().splitlines() if self._done.exists() else []
        return [run for run in map(json.loads, lines) if run["task"] == task]

    def end(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill a worker with all its processes."""
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        reaper.tell("-", worker.pid)
        self._started.remove(worker)

    def close(self) -> None:
        for worker in list(self._started):
            self.end(worker)
        self.app.close()


def numbers(runs: list[dict[str, Any]]) -> Counter[int]:
    return Counter(run["number"] for run in runs)
