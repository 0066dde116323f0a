"""The Spark pipeline that judges large histories and the judge of the drills agree, case by case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lmqcluster_chaos.drill import run_drill
from lmqcluster_chaos.judges.checker import FAULTS, judge
from lmqcluster_chaos.judges.spark_checker import VerifySettings, verify
from lmqcluster_chaos.load.history import Event
from lmqcluster_chaos.scenario import read
from pyspark.sql import SparkSession

from tests.spark.conftest import spark, spark_python  # noqa: F401  fixtures

from .model_queue import BUGS, GRACE_S, any_history, model_history
from .planted import GUILTY, INNOCENT, history

pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
SCENARIO = """
title = "real"
[load]
seconds = 3
ordered = 1
[[fault]]
kind = "power_failure"
target = "leader"
at_s = 1
for_s = 1
"""
ANY_HISTORIES = 400
MODEL_HISTORIES = 10

Histories = Mapping[str, Sequence[Event]]
"""Histories by queue."""


def planted() -> Histories:
    cases = {name: case for name, (case, _fault, _count) in GUILTY.items()} | INNOCENT
    return {name: history(name, case) for name, case in cases.items()}


def generated() -> Histories:
    """Return histories of queues with and without bugs, and meaningless lines."""
    made: dict[str, list[Event]] = {}
    for bug in [None, *BUGS]:
        for seed in range(MODEL_HISTORIES):
            name = f"{bug or 'no bug'}, seed {seed}"
            made[name] = model_history(name, seed, bug)[0]
    for seed in range(ANY_HISTORIES):
        made[f"any {seed}"] = any_history(f"any {seed}", seed)
    return made


def drilled(folder: Path) -> Histories:
    """Return histories of the queues of a real drill."""
    path = folder / "scenario.toml"
    path.write_text(SCENARIO)
    events = run_drill(read(path), seed=1, folder=folder / "drill", time_factor=10).events
    queues = {event.queue for event in events if event.queue is not None}
    marks = [event for event in events if event.queue is None]
    assert queues
    assert {mark.op for mark in marks} == {"drained"}
    # The mark that all queues were drained would apply to the made-up queues too.
    return {
        queue: [event for event in events if event.queue == queue] + [replace(mark, queue=queue) for mark in marks]
        for queue in queues
    }


def test_both_judges_find_the_same(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    histories = {**planted(), **generated(), **drilled(tmp_path)}
    path = tmp_path / "history.jsonl"
    with path.open("w") as file:
        file.writelines(event.to_json() + "\n" for events in histories.values() for event in events)
    theirs = verify(spark, VerifySettings(histories=[str(path)], examples=1 << 20, grace_s=GRACE_S))
    judged = {queue: judge(events, grace_s=GRACE_S) for queue, events in histories.items()}
    by_queue = Counter({(fault, queue): one.faults[fault] for queue, one in judged.items() for fault in FAULTS})
    assert Counter((fault, row["queue"]) for fault, rows in theirs["examples"].items() for row in rows) == +by_queue
    totals = Counter[str]()
    for one in judged.values():
        totals.update({name: getattr(one.totals, name) for name in ("attempted", "acknowledged", "delivered")})
        totals.update(recovered=one.totals.recovered, acked=one.totals.acked, undecided=one.undecided)
    assert theirs["messages"] == {**totals, "unreadable_lines": 0}
    assert min(theirs["faults"][fault] for fault in FAULTS) >= 5
