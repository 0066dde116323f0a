"""Short tasks of Celery and dramatiq on three nodes, beside RabbitMQ and Redis: ``python -m tests.benchmarks.tasks``.

Each round starts a broker, sends tasks one after the other and from many threads, and has two workers run all of them,
which acknowledge a task after it ran. The brokers take turns. The program prints tasks per second, sent and run from
the first one on, and the processor time per task of the senders or workers, and of the servers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.cluster import clean_environment, reaper, wait_for

from .task_brokers import BROKERS, TaskBroker

_COMMON = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor

done = os.open(os.environ["DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(number):
    os.write(done, b"%d %d\\n" % (number, time.monotonic_ns()))

def send(count, threads):
    send_one(-1)  # connects
    if threads == 1:
        started = time.perf_counter()
        for number in range(count):
            send_one(number)
        print(time.perf_counter() - started)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send_one, [-1] * threads))
        started = time.perf_counter()
        list(pool.map(send_one, range(count), chunksize=1))
        print(time.perf_counter() - started)
"""
_APPLICATIONS = {
    "celery": """
from celery import Celery
import lmqcluster.integrations.kombu

app = Celery(broker=os.environ["BROKER"])
app.conf.update(json.loads(os.environ["SETTINGS"]), task_ignore_result=True, broker_pool_limit=64)

@app.task(name="work", acks_late=True)
def work(number):
    note(number)

def send_one(number):
    work.delay(number)
""",
    "dramatiq": """
import dramatiq

if os.environ["BROKER"].startswith("redis"):
    from dramatiq.brokers.redis import RedisBroker
    broker = RedisBroker(url=os.environ["BROKER"])
elif os.environ["BROKER"].startswith("amqp"):
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    class QuorumBroker(RabbitmqBroker):
        # Its default queues are on one node.
        def _build_queue_arguments(self, queue_name):
            return {**super()._build_queue_arguments(queue_name), "x-queue-type": "quorum"}

    nodes = os.environ["BROKER"].split(";")
    broker = QuorumBroker(url=[node.removesuffix("//") for node in nodes], confirm_delivery=True)
else:
    from lmqcluster.integrations.dramatiq import LmqBroker
    broker = LmqBroker(os.environ["BROKER"].removeprefix("lmq://").partition("/")[0])
dramatiq.set_broker(broker)

@dramatiq.actor
def work(number):
    note(number)

def send_one(number):
    work.send(number)
""",
}
_WORKERS = {
    "celery": "celery -A application worker -c 2 --without-gossip --without-mingle --without-heartbeat -n {name}@bench",
    "dramatiq": "dramatiq application --processes 1 --threads 4",
}
_SENDERS = 16
_CONNECTING = _SENDERS + 2
"""Tasks that are sent before the clock starts: one of each sender's process, and one of each thread."""
_PATIENCE_S = 900.0
_NANO = 1e-9


@dataclass
class Round:
    """The result of one broker with the tasks of one library."""

    one_s: float
    """Tasks per second, sent one after the other."""
    many_s: float
    """Tasks per second, sent from many threads."""
    run_s: float
    """Tasks run per second."""
    worker_us: float
    """Processor time of the workers per task."""
    server_us: float
    """Processor time of the servers per task run."""


def processor_s(leaders: Iterable[int]) -> float:
    """Return the processor time so far of all processes in the sessions of these processes, without ended ones."""
    wanted, ticks = set(leaders), 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        if int(fields[3]) in wanted:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Application:
    """The application of one library, on one broker, in a folder."""

    def __init__(self, library: str, broker: TaskBroker, folder: Path) -> None:
        (folder / "application.py").write_text(_COMMON + _APPLICATIONS[library])
        self._library = library
        self._folder = folder
        self._done = folder / "done"
        names = {"BROKER": broker.url, "SETTINGS": json.dumps(dict(broker.settings)), "DONE": str(self._done)}
        self._environment = clean_environment({**names, "PYTHONPATH": str(folder)})
        self._running: list[subprocess.Popen[str]] = []

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "sender" else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        reaper.tell("+", process.pid)
        return process

    def send(self, count: int, threads: int) -> float:
        """Send `count` tasks; return the seconds that it took."""
        process = self._start("sender", "-c", f"import application; application.send({count}, {threads})")
        output, _ = process.communicate(timeout=_PATIENCE_S)
        reaper.tell("-", process.pid)
        if process.returncode != 0:
            raise RuntimeError((self._folder / "sender.log").read_text()[-2000:])
        return float(output)

    def start_workers(self) -> list[int]:
        """Start two workers; return their processes."""
        for name in ("one", "two"):
            self._running.append(self._start(name, "-m", *_WORKERS[self._library].format(name=name).split()))
        return [process.pid for process in self._running]

    def end_workers(self) -> None:
        """Kill the workers."""
        for process in self._running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reaper.tell("-", process.pid)
        self._running.clear()

    def run_count(self) -> int:
        """Return the number of tasks that ran, including those sent to connect."""
        return self._done.read_bytes().count(b"\n") if self._done.exists() else 0

    def runs(self) -> list[tuple[int, int]]:
        """Return number and time in nanoseconds of each task that ran, without those sent to connect."""
        lines = self._done.read_text().splitlines() if self._done.exists() else []
        pairs = (line.split() for line in lines)
        return [(int(number), int(at_ns)) for number, at_ns in pairs if number != "-1"]


def measure(library: str, kind: str, one: int, many: int) -> Round:
    """Run one round: `one` tasks sent one after the other, `many` from many threads; then all of them run."""
    with tempfile.TemporaryDirectory() as folder, BROKERS[kind](Path(folder)) as broker:
        application = Application(library, broker, Path(folder))
        one_took_s, many_took_s = application.send(one, 1), application.send(many, _SENDERS)
        wanted = sorted([*range(one), *range(many)])
        try:
            servers_s = processor_s(broker.pids)
            workers = application.start_workers()
            wait_for(lambda: application.run_count() >= len(wanted) + _CONNECTING, "all tasks", _PATIENCE_S)
            workers_s, servers_s = processor_s(workers), processor_s(broker.pids) - servers_s
        finally:
            application.end_workers()
        runs = application.runs()
    if sorted(number for number, _ in runs) != wanted:
        raise RuntimeError(f"{kind}: of {len(wanted)} tasks {len(set(runs))} ran, {len(runs)} times")
    took_s = (max(at for _, at in runs) - min(at for _, at in runs)) * _NANO
    each = 1e6 / len(runs)
    return Round(one / one_took_s, many / many_took_s, len(runs) / took_s, workers_s * each, servers_s * each)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tasks", description=__doc__)
    parser.add_argument("--libraries", default="celery,dramatiq")
    parser.add_argument("--brokers", default=",".join(BROKERS))
    parser.add_argument("--one", type=int, default=500, help="tasks sent one after the other (default 500)")
    parser.add_argument("--many", type=int, default=4000, help="tasks sent from many threads (default 4000)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each broker (default 3)")
    given = parser.parse_args()
    for library in given.libraries.split(","):
        kinds = [kind for kind in given.brokers.split(",") if library in BROKERS[kind].libraries]
        for kind in list(kinds):
            if (why := BROKERS[kind].missing()) is not None:
                print(why)
                kinds.remove(kind)
        rounds: dict[str, list[Round]] = defaultdict(list)
        for _ in range(given.repeats):
            for kind in kinds:
                started = time.monotonic()
                rounds[kind].append(measure(library, kind, given.one, given.many))
                print(f"{library} {kind}: {rounds[kind][-1]}, {time.monotonic() - started:.0f} s", file=sys.stderr)
        print_table(library, rounds)
    return 0


def print_table(library: str, rounds: dict[str, list[Round]]) -> None:
    """Print the medians."""
    print(f"\n| {library} | sent one by one | from {_SENDERS} threads | run | worker us | server us |")
    print("|---|---|---|---|---|---|")
    for kind, found in rounds.items():
        names = ("one_s", "many_s", "run_s", "worker_us", "server_us")
        cells = [f"{statistics.median(getattr(one, name) for one in found):,.0f}" for name in names]
        print(f"| {BROKERS[kind].name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
