"""Many short tasks of Celery or dramatiq over two workers, while the leader is killed: none is lost, none runs twice.

``python -m tests.integration.task_loop celery --tasks 20000`` runs the given number. With ``--kill-worker`` one of the
workers is killed too, and its tasks run again. With ``--outage 60`` the followers are paused for that many seconds
instead, while workers that abandon calls after 2 s have tasks in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cluster import Cluster, clean_environment, reaper, wait_for

__all__ = ["LIBRARIES", "Outcome", "task_loop", "task_outage"]

_NOTE = """
import json, os, time
done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
options = json.loads(os.environ["OPTIONS"])

def note(number):
    time.sleep(float(os.environ["WORK_S"]))
    os.write(done, b"%d\\n" % number)
"""
_CELERY = """
from celery import Celery
import lmqcluster.integrations.kombu

app = Celery(broker=f"lmq://{os.environ['NODES']}/loop")
app.conf.update(broker_transport_options=options, task_ignore_result=True)

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

dramatiq.set_broker(LmqBroker(os.environ["NODES"], **options))

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
_SETTLED_S = 60.0
"""Much shorter than the workers' sessions."""
_IN_HAND = 64
"""More than the number of tasks in flight at a killed worker."""


@dataclass
class Outcome:
    """The fate of the tasks.

    Attributes:
        sent_s: duration of sending.
        ran_s: duration of running, from the start of the workers.
    """

    tasks: int
    sent_s: float
    ran_s: float
    leaders_killed: int
    workers_killed: int
    runs: Counter[int] = field(default_factory=Counter)

    def violations(self) -> list[str]:
        """Return the violations."""
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
    def __init__(self, library: str, folder: Path, nodes: str, *, work_s: float = 0, **options: float) -> None:
        code, self._command = LIBRARIES[library]
        (folder / "application.py").write_text(_NOTE + code)
        self._folder = folder
        self._done = folder / "done"
        given = {"NODES": nodes, "OPTIONS": json.dumps(options), "WORK_S": str(work_s)}
        self._environment = clean_environment({**given, "DONE": str(self._done), "PYTHONPATH": str(folder)})
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
    """Run the tasks; the leader is killed and restarted `kills` times during the run."""
    with Cluster(3, directory=folder) as cluster:
        workers = _Workers(library, folder, ",".join(cluster.rpc_addresses), lease=10)
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
            # A repetition that is still under lease would arrive within this time.
            wait_for(lambda: not _left(cluster), "the last acks", _PATIENCE_S)
        finally:
            workers.close()
        return Outcome(tasks, sent - began, ran_s, kills, int(kill_worker), workers.runs())


def task_outage(
    libraries: Iterable[str], tasks: int, folder: Path, *, outage_s: float, say: Callable[[str], Any] = print
) -> list[Outcome]:
    """Run tasks while the followers are paused, then while the leader is killed.

    The workers abandon a call after 2 s, and their sessions last ten minutes: messages that they do not settle stay
    leased.
    """
    with Cluster(3, directory=folder) as cluster, ExitStack() as stack:
        nodes, sets = ",".join(cluster.rpc_addresses), []
        for library in libraries:
            (folder / library).mkdir()
            workers = _Workers(library, folder / library, nodes, work_s=0.05, lease=600, timeout_s=2)
            stack.callback(workers.close)
            workers.send(tasks)
            sets.append(workers)
        began = time.monotonic()
        for workers in sets:
            workers.start("one")
        for workers in sets:
            wait_for(lambda workers=workers: len(workers.runs()) >= tasks // 4, "a quarter")  # type: ignore[misc]
        followers = cluster.followers()
        say(f"the followers are paused for {outage_s:g} s")
        for node in followers:
            node.pause()
        time.sleep(outage_s)
        for node in followers:
            node.resume()
        for workers in sets:
            wait_for(lambda workers=workers: len(workers.runs()) >= tasks * 3 // 4, "three quarters")  # type: ignore[misc]
        say("the leader is killed")
        cluster.leader().restart()
        for workers in sets:
            wait_for(lambda workers=workers: len(workers.runs()) >= tasks, "all tasks")  # type: ignore[misc]
        ran_s = time.monotonic() - began
        wait_for(lambda: not _left(cluster), "nothing is leased or redelivered", _SETTLED_S)
        return [Outcome(tasks, 0, ran_s, 1, 0, workers.runs()) for workers in sets]


def _left(cluster: Cluster) -> int:
    found = cluster[0].get_json("/v1/queues")["queues"]
    return sum(one["ready"] + one["delayed"] + one["leased"] for one in found if "/" not in one["name"])


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--kill-worker", action="store_true")
    parser.add_argument("--outage", type=float, default=0.0, metavar="SECONDS")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.outage:
            (outcome,) = task_outage([given.library], given.tasks, folder, outage_s=given.outage)
        else:
            outcome = task_loop(given.library, given.tasks, folder, kills=given.kills, kill_worker=given.kill_worker)
    print(outcome)
    for violation in (violations := outcome.violations()):
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
