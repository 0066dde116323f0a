"""Celery beat with the cluster as its store, with real beats and a real worker: it does not matter how many beats run."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from celery.exceptions import ImproperlyConfigured
from celery.schedules import BaseSchedule, crontab

from lmqcluster import Client
from lmqcluster.integrations.celery_beat import Scheduler

from .celery_workers import Workers
from .cluster import Cluster, wait_for

SCHEDULER = "lmqcluster.integrations.celery_beat:Scheduler"
BEAT = """
app.conf.beat_schedule = {
    "each second": {"task": "scheduled", "schedule": 1.0, "args": (7,)},
    "expiring": {"task": "scheduled", "schedule": 1.0, "args": (8,), "options": {"expires": 600}},
}

@app.task(name="scheduled", bind=True)
def scheduled(self, number):
    note(task="scheduled", number=number, id=self.request.id, expires=self.request.expires)
"""


@pytest.fixture
def workers(shared_cluster: Cluster, tmp_path: Any, queue_name: str) -> Iterator[Workers]:
    made = Workers(tmp_path, f"lmq://{','.join(shared_cluster.rpc_addresses)}/{queue_name}-{os.getpid()}")
    with (tmp_path / "application.py").open("a") as application:
        application.write(BEAT)
    yield made
    made.close()
    with Client(shared_cluster.rpc_addresses) as client:
        for one in client.schedules():
            if one["name"].startswith(queue_name):
                client.delete_schedule(one["name"])


def beats(workers: Workers, count: int) -> list[Any]:
    return [
        workers.start_program(f"beat-{number}", "beat", "-S", SCHEDULER, "-l", "INFO", "--pidfile=")
        for number in range(count)
    ]


def test_tasks_run_once_a_second_with_three_beats_and_with_none(workers: Workers) -> None:
    workers.start("first")
    running = beats(workers, 3)
    wait_for(lambda: len(workers.runs("scheduled")) >= 6, "tasks with three beats")
    for beat in running:
        os.killpg(beat.pid, signal.SIGKILL)
        beat.wait()
    before = len(workers.runs("scheduled"))
    wait_for(lambda: len(workers.runs("scheduled")) >= before + 8, "tasks without a beat")
    runs = workers.runs("scheduled")
    ids = Counter(run["id"] for run in runs)
    assert set(ids.values()) == {1}
    for number in (7, 8):
        times = [run["at"] for run in runs if run["number"] == number]
        # A second beat of the same second would double them.
        assert len(times) <= times[-1] - times[0] + 2
    assert {run["expires"] is None for run in runs if run["number"] == 7} == {True}
    assert {run["expires"] is None for run in runs if run["number"] == 8} == {False}


def test_a_beat_removes_the_entries_that_it_does_not_have(workers: Workers, shared_cluster: Cluster) -> None:
    prefix = f"{workers.app.connection_for_write().transport.stored_name('beat/')}"
    with Client(shared_cluster.rpc_addresses) as client:
        client.set_schedule(prefix + "old", "q", 1, interval=60)
        client.set_schedule(prefix[:-1] + "-other", "q", 1, interval=60)
        beats(workers, 1)
        wait_for(lambda: client.schedule(prefix + "each second"), "the entries")
        wait_for(lambda: client.schedule(prefix + "old") is None, "the end of the old entry")
        assert client.schedule(prefix[:-1] + "-other") is not None
        client.delete_schedule(prefix[:-1] + "-other")


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (30.0, {"interval_s": 30.0}),
        (crontab(minute="*/5", hour=2), {"cron": "*/5 2 * * *", "zone": "Asia/Tokyo"}),
        (crontab(minute=0, hour="9-17/4", day_of_week="mon-fri"), {"cron": "0 9,13,17 * * 1,2,3,4,5"}),
        (crontab(minute="15,45", day_of_month="1,15", month_of_year="*/6"), {"cron": "15,45 * 1,15 */6 *"}),
    ],
)
def test_rules_are_translated(workers: Workers, shared_cluster: Cluster, given: Any, rule: dict[str, Any]) -> None:
    workers.app.conf.timezone = "Asia/Tokyo"
    workers.app.conf.beat_schedule = {"x": {"task": "add", "schedule": given, "args": (1,), "options": {"priority": 3}}}
    Scheduler(app=workers.app).store()
    Scheduler(app=workers.app).store()
    name = workers.app.connection_for_write().transport.stored_name("beat/x")
    with Client(shared_cluster.rpc_addresses, decode=True) as client:
        shown = client.schedule(name)
    assert shown is not None
    assert {member: shown[member] for member in rule} == rule
    assert shown["missed"] == "once"
    assert shown["options"] == {"priority": -3}
    assert json.dumps(rule)


@pytest.mark.parametrize("given", [0.5, BaseSchedule(), crontab(minute=0, hour=0, day_of_month=1, day_of_week=1)])
def test_rules_that_the_cluster_does_not_have(workers: Workers, given: Any) -> None:
    workers.app.conf.beat_schedule = {"x": {"task": "add", "schedule": given, "args": (1,)}}
    with pytest.raises(ImproperlyConfigured, match="x: "):
        Scheduler(app=workers.app).store()
