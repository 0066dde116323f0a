"""Common uses of Celery: canvases, remote control, commands, autoscaling, shutdowns, several queues."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chain, chord, group

from .celery_workers import Workers, numbers
from .cluster import Cluster, wait_for

PATIENCE_S = 120


@pytest.fixture(scope="module")
def workers(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("celery")
    made = Workers(folder, f"lmq://{','.join(shared_cluster.rpc_addresses)}/first-day-{os.getpid()}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(workers: Workers) -> subprocess.Popen[bytes]:
    """A worker of two queues."""
    started = workers.start("main", "-c", "2", "-Q", "celery,sums")
    wait_for(lambda: workers.app.control.ping(timeout=1), "the worker")
    return started


@pytest.mark.usefixtures("worker")
def test_groups_chains_and_chords(workers: Workers) -> None:
    def plus(*arguments: int) -> object:
        return workers.app.signature("plus", arguments)

    assert chain(plus(1, 2), plus(3), plus(4)).apply_async().get(PATIENCE_S) == 10
    assert group(plus(number, number) for number in range(10)).apply_async().get(PATIENCE_S) == list(range(0, 20, 2))
    total = workers.app.signature("total")
    assert chord((plus(number, number) for number in range(10)), total).apply_async().get(PATIENCE_S) == 90


@pytest.mark.usefixtures("worker")
def test_remote_control(workers: Workers) -> None:
    control = workers.app.control
    inspect = control.inspect(timeout=5)
    name = "main@test"
    assert {queue["name"] for queue in inspect.active_queues()[name]} == {"celery", "sums"}
    assert "plus" in inspect.registered()[name]
    assert inspect.stats()[name]["broker"]["transport"] == "lmq"
    # A task that is revoked before its due time does not run.
    late, revoked = uuid.uuid4().hex, uuid.uuid4().hex
    workers.send("add", 1, countdown=2, task_id=late)
    workers.send("add", 2, countdown=2, task_id=revoked)
    assert control.revoke(revoked, reply=True, timeout=5)
    wait_for(lambda: numbers(workers.runs("add"))[1], "the other one")
    wait_for(lambda: f"Discarding revoked task: add[{revoked}]" in workers.log("main").read_text(), "its end")
    assert numbers(workers.runs("add")) == {1: 1}
    # Queues can be added and removed.
    workers.send("add", 3, queue="extra")
    control.add_consumer("extra", reply=True)
    wait_for(lambda: numbers(workers.runs("add"))[3], "the task of the other queue")
    control.cancel_consumer("extra", reply=True)
    workers.send("add", 4, queue="extra")
    workers.send("add", 5)
    wait_for(lambda: numbers(workers.runs("add"))[5], "a task of the usual queue")
    assert numbers(workers.runs("add"))[4] == 0
    control.add_consumer("extra", reply=True)
    wait_for(lambda: numbers(workers.runs("add"))[4], "the task that waited")


@pytest.mark.usefixtures("worker")
def test_a_running_task_is_terminated_remotely(workers: Workers) -> None:
    workers.hold.touch()
    task = uuid.uuid4().hex
    workers.send("hold", 7, task_id=task)
    wait_for(lambda: numbers(workers.runs("hold"))[7], "the task")
    assert workers.app.control.inspect(timeout=5).active()["main@test"][0]["id"] == task
    workers.app.control.revoke(task, terminate=True, signal="SIGKILL")
    wait_for(lambda: not workers.app.control.inspect(timeout=5).active()["main@test"], "its end")
    workers.hold.unlink()
    assert not workers.runs("held")


@pytest.mark.usefixtures("worker")
def test_the_commands(workers: Workers) -> None:
    assert "main@test: OK" in workers.command("status")
    assert "pong" in workers.command("inspect", "ping")
    workers.command("call", "add", "--args=[30]")
    wait_for(lambda: numbers(workers.runs("add"))[30], "the task")
    for number in range(3):
        workers.send("add", 1000 + number, queue="purged")
    assert "3 messages" in workers.command("purge", "-f", "-Q", "purged")


@pytest.mark.usefixtures("worker")
def test_events_are_shown(workers: Workers) -> None:
    dump = workers.start_program("dump", "events", "--dump")
    task = uuid.uuid4().hex

    def seen() -> bool:
        workers.send("add", 40, task_id=task)  # Until the program listens.
        return (
            f"task-succeeded {task}" in workers.log("dump").read_text()
            or "task succeeded" in workers.log("dump").read_text().lower()
        )

    wait_for(seen, "the event")
    workers.end(dump)


def test_a_worker_scales_with_its_tasks(workers: Workers) -> None:
    """Another worker takes over if Celery's supervisor ends: the shrinking may hit a process that is just starting."""
    workers.hold.touch()
    for number in range(10, 13):
        workers.send("hold", number, queue="scaled")
    for name in ("scaled1", "scaled2", "scaled3"):
        worker = workers.start(name, "--autoscale=3,1", "-Q", "scaled")
        wait_for(lambda name=name: _at_once(workers, name) == 3 or _has_crashed(workers, name), "three at once")  # type: ignore[misc]
        if not _has_crashed(workers, name):
            break
        workers.end(worker)
    workers.hold.unlink()
    wait_for(lambda: set(numbers(workers.runs("held"))) >= {10, 11, 12}, "their ends")
    workers.end(worker)


def _at_once(workers: Workers, name: str) -> int:
    """Return the number of tasks that a worker has begun."""
    return len({run["number"] for run in workers.runs("hold") if run["worker"] == name})


def _has_crashed(workers: Workers, name: str) -> bool:
    return "Thread 'Supervisor' crashed" in workers.log(name).read_text()


@pytest.mark.usefixtures("worker")
def test_tasks_send_tasks(workers: Workers) -> None:
    before = len(workers.runs("add"))
    workers.send("sender", 50)
    wait_for(lambda: len(workers.runs("add")) >= before + 50, "all of them")


@pytest.mark.usefixtures("worker")
def test_beat_sends_on_time(workers: Workers) -> None:
    beat = workers.start_program("beat", "beat", "-s", str(workers.log("schedule")))
    wait_for(lambda: numbers(workers.runs("add"))[-1] >= 3, "three beats")
    workers.end(beat)


def test_a_worker_in_a_soft_shutdown_returns_its_tasks(workers: Workers, worker: subprocess.Popen[bytes]) -> None:
    workers.app.control.shutdown()
    assert worker.wait(PATIENCE_S) == 0
    workers.hold.touch()
    # A worker that sends events may deadlock on its own lock if the signal arrives while it holds it.
    first = workers.start("first", sends_events=False)
    for number in range(20, 26):
        workers.send("hold", number)
    wait_for(lambda: {20, 21} <= set(numbers(workers.runs("hold"))), "both processes are busy")
    first.send_signal(signal.SIGQUIT)
    first.wait(PATIENCE_S)
    second = workers.start("second")
    workers.hold.unlink()
    wait_for(lambda: set(numbers(workers.runs("held"))) >= set(range(20, 26)), "all tasks")
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0
    held = [run for run in workers.runs("held") if run["number"] >= 20]
    assert numbers(held) == Counter(range(20, 26))


def test_a_worker_waits_for_the_cluster(tmp_path: Path) -> None:
    def kill(cluster: Cluster) -> None:
        for node in cluster:
            node.kill()

    with Cluster(3, directory=tmp_path) as cluster:
        kill(cluster)
        workers = Workers(tmp_path, f"lmq://{','.join(cluster.rpc_addresses)}/late")
        try:
            workers.start("early")
            wait_for(lambda: "Trying again" in workers.log("early").read_text(), "a first attempt")
            cluster.start()
            workers.send("add", 1)
            wait_for(lambda: numbers(workers.runs("add"))[1], "the task")
            # It also recovers from an outage of the whole cluster.
            kill(cluster)
            wait_for(lambda: "failed; retrying" in workers.log("early").read_text(), "the worker notices")
            cluster.start()
            workers.send("add", 2)
            wait_for(lambda: numbers(workers.runs("add"))[2], "the task after the outage")
        finally:
            workers.close()
