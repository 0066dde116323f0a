"""Many short tasks of Celery or dramatiq over two workers, while the leader is killed: none is lost, none runs twice.

``python -m tests.integration.task_loop celery --tasks 20000`` runs as many as one likes. With ``--kill-worker`` one of the
workers is killed too, and what it had runs again.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cluster import Cluster, clean_environment, reaper, wait_for

__all__ = ["LIBRARIES", "Outcome", "task_loop"]

_NOTE = """
import os
done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(number):
    os.write(done, b"%d\\n" % number)
"""
_CELERY = """
from celery import Celery
import lmqcluster.integrations.kombu

app = Celery(broker=f"lmq://{os.environ['NODES']}/loop")
app.conf.update(broker_transport_options={"lease": 10}, task_ignore_result=True)

@app.task(name="work", acks_late=True)
def work(number):
    note(number)

def send(count):
    with app.producer_pool.acquire() as producer:
        for number in range(count):
            work.apply_async((number,), producer=producer)
"""
_DRAMATIQ = """
import dramatiq
from lmqcluster.integrations.dramatiq import LmqBroker

dramatiq.set_broker(LmqBroker(os.environ["NODES"], lease=10))

@dramatiq.actor
def work(number):
    note(number)

def send(count):
    for number in range(count):
        work.send(number)
"""
LIBRARIES = {
    "celery": (_CELERY, ["celery", "-A", "application", "worker", "-c", "2"]),
    "dramatiq": (_DRAMATIQ, ["dramatiq", "application", "--processes", "1", "--threads", "4"]),
}
_PATIENCE_S = 1200.0
_IN_HAND = 64
"""More than a worker that is killed can have had."""


@dataclass
class Outcome:
    """What became of the tasks.

    Attributes:
        sent_s: how long sending took.
        ran_s: how long running took, from the start of the workers on.
    """

    tasks: int
    sent_s: float
    ran_s: float
    leaders_killed: int
    workers_killed: int
    runs: Counter[int] = field(default_factory=Counter)

    def violations(self) -> list[str]:
        """What is not as it must be."""
        lost = sorted(set(range(self.tasks)) - set(self.runs))
        again = sum(self.runs.values()) - len(self.runs)
        found = [f"{len(lost)} tasks did not run, such as {lost[:5]}"] if lost else []
        if again > self.workers_killed * _IN_HAND:
            found.append(f"{again} runs were repetitions")
        return found

    def __str__(self) -> str:
        again = sum(self.runs.values()) - len(self.runs)
        return (
            f"{self.tasks} tasks: sent in {self.sent_s:.1f} s, run in {self.ran_s:.1f} s ({self.tasks / self.ran_s:.0f}/s) over "
            f"{self.leaders_killed} kills of the leader and {self.workers_killed} of a worker; {again} ran again"
        )


class _Workers:
    def __init__(self, library: str, folder: Path, nodes: str) -> None:
        code, self._command = LIBRARIES[library]
        (folder / "application.py").write_text(_NOTE + code)
        self._folder = folder
        self._done = folder / "done"
        self._environment = clean_environment({"NODES": nodes, "DONE": str(self._done), "PYTHONPATH": str(folder)})
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self._environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        reaper.tell("+", process.pid)
        return process

    def send(self, count: int) -> None:
        process = self._start("sender", ["-c", f"import application; application.send({count})"])
        status = process.wait(_PATIENCE_S)
        reaper.tell("-", process.pid)
        assert status == 0, (self._folder / "sender.log").read_text()[-2000:]

    def start(self, name: str) -> None:
        own = ["-n", f"{name}@loop"] if "celery" in self._command else []
        self._running[name] = self._start(name, ["-m", *self._command, *own])

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reaper.tell("-", process.pid)

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def runs(self) -> Counter[int]:
        return Counter(map(int, self._done.read_bytes().split())) if self._done.exists() else Counter()


def task_loop(
    library: str,
    tasks: int,
    folder: Path,
    *,
    kills: int = 2,
    kill_worker: bool = False,
    say: Callable[[str], Any] = print,
) -> Outcome:
    """Run the tasks; the leader is killed and started again `kills` times meanwhile."""
    with Cluster(3, directory=folder) as cluster:
        workers = _Workers(library, folder, ",".join(cluster.rpc_addresses))
        try:
            began = time.monotonic()
            workers.send(tasks)
            sent = time.monotonic()
            workers.start("one")
            workers.start("two")
            for number in range(kills):
                part = tasks * (number + 1) // (kills + 2)
                wait_for(lambda part=part: len(workers.runs()) >= part, f"{part} tasks", _PATIENCE_S)  # type: ignore[misc]
                say(f"{part} tasks have run: the leader is killed")
                cluster.leader().restart()
            if kill_worker:
                part = tasks * (kills + 1) // (kills + 2)
                wait_for(lambda: len(workers.runs()) >= part, f"{part} tasks", _PATIENCE_S)
                workers.kill("one")
            wait_for(lambda: len(workers.runs()) >= tasks, "all tasks", _PATIENCE_S)
            ran_s = time.monotonic() - sent
            # A repetition that is still under lease would come within this time.
            wait_for(lambda: not _left(cluster), "the last acks", _PATIENCE_S)
        finally:
            workers.close()
        return Outcome(tasks, sent - began, ran_s, kills, int(kill_worker), workers.runs())


def _left(cluster: Cluster) -> int:
    found = cluster[0].get_json("/v1/queues")["queues"]
    return sum(one["ready"] + one["delayed"] + one["leased"] for one in found if "/" not in one["name"])


def main() -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--kill-worker", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = task_loop(given.library, given.tasks, Path(folder), kills=given.kills, kill_worker=given.kill_worker)
    print(outcome)
    for violation in (violations := outcome.violations()):
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
