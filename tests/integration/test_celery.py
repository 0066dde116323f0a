"""A real Celery worker on real nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from .celery_workers import Workers, numbers
from .cluster import Cluster, wait_for


@pytest.fixture(scope="module")
def workers(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("celery")
    made = Workers(folder, f"lmq://{','.join(shared_cluster.rpc_addresses)}/celery-{os.getpid()}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(workers: Workers) -> subprocess.Popen[bytes]:
    return workers.start("first")


@pytest.mark.usefixtures("worker")
def test_tasks_run_and_are_retried(workers: Workers) -> None:
    for number in range(50):
        workers.send("add", number)
    workers.send("add", 50, countdown=2)
    workers.send("flaky")
    wait_for(lambda: len(workers.runs("add")) == 51 and len(workers.runs("flaky")) == 2, "all tasks")
    assert numbers(workers.runs("add")) == Counter(range(51))
    first, second = workers.runs("flaky")
    assert second["at"] - first["at"] >= 1


@pytest.mark.usefixtures("worker")
def test_events_and_remote_control_reach_the_worker(workers: Workers) -> None:
    task = str(uuid.uuid4())
    events: list[dict[str, Any]] = []
    ready = threading.Event()

    def listen() -> None:
        with workers.app.connection_for_read() as connection:
            receiver = workers.app.events.Receiver(connection)

            # Events of the tasks of the previous test may still be in flight.
            def hear(event: dict[str, Any]) -> None:
                if event.get("uuid") == task:
                    events.append(event)
                    receiver.should_stop = event["type"] == "task-succeeded"

            receiver.handlers = {"*": hear}
            receiver.on_consume_ready = lambda *_, **__: ready.set()
            receiver.capture(timeout=120)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert ready.wait(120)
    workers.send("add", 1000, task_id=task)
    listener.join(120)
    assert {event["type"] for event in events} >= {"task-received", "task-started", "task-succeeded"}
    replies = wait_for(lambda: workers.app.control.ping(timeout=5, limit=1), "a reply")
    assert replies == [{"first@test": {"ok": "pong"}}]


def test_tasks_of_a_killed_worker_run_again(workers: Workers, worker: subprocess.Popen[bytes]) -> None:
    workers.hold.touch()
    for number in range(6):
        workers.send("hold", number)
    wait_for(lambda: len(workers.runs("hold")) == 2, "both processes are busy")
    workers.end(worker)
    second = workers.start("second")
    wait_for(lambda: len(workers.runs("hold")) == 4, "the second worker is busy")
    workers.hold.unlink()
    wait_for(lambda: len(workers.runs("held")) == 6, "all tasks")
    # A worker that gets a signal to end finishes what it has begun.
    workers.hold.touch()
    workers.send("hold", 100)
    wait_for(lambda: 100 in numbers(workers.runs("hold")), "the last task")
    second.send_signal(signal.SIGTERM)
    workers.hold.unlink()
    assert second.wait(120) == 0
    workers.end(second)
    held = workers.runs("held")
    assert {run["worker"] for run in held} == {"second"}
    assert numbers(held) == Counter([*range(6), 100])
    begun = Counter(run["worker"] for run in workers.runs("hold"))
    assert begun == {"first": 2, "second": 7}
