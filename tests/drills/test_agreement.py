"""The Spark pipeline that judges large histories and the judge in the drills find the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lmqcluster_chaos.checker import judge
from lmqcluster_chaos.drill import run_drill
from lmqcluster_chaos.history import read_history
from lmqcluster_chaos.scenario import read
from pyspark.sql import SparkSession

from lmqcluster.spark.pipelines.verify import VerifySettings, verify
from tests.spark.conftest import spark  # noqa: F401  a fixture

from .planted import GUILTY, INNOCENT, history

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(autouse=True)
def interpreted(spark: SparkSession) -> None:  # noqa: F811
    """For few lines, to compile what Spark generates for them takes most of the time."""
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.conf.set("spark.sql.adaptive.enabled", "false")


def compare(spark: SparkSession, path: Path, grace_s: float) -> dict[str, int]:  # noqa: F811
    ours = judge(read_history([path]), grace_s=grace_s)
    theirs = verify(spark, VerifySettings(histories=[str(path)], grace_s=grace_s))
    assert theirs["faults"] == ours.faults
    messages = theirs["messages"]
    totals = ours.totals
    assert messages["unreadable_lines"] == 0
    assert (messages["attempted"], messages["acknowledged"]) == (totals.attempted, totals.acknowledged)
    assert (messages["delivered"], messages["acked"]) == (totals.delivered, totals.acked)
    assert (messages["recovered"], messages["undecided"]) == (totals.recovered, ours.undecided)
    assert (theirs["verdict"] == "guilty") == ours.convicted
    return ours.faults


def test_both_judges_find_the_same(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """Every planted fault, every innocent case, and the history of a real drill with a power failure, all in one."""
    cases = {name: case for name, (case, _fault, _count) in GUILTY.items()} | INNOCENT
    planted = [event for name, case in cases.items() for event in history(name, case)]
    path = tmp_path / "scenario.toml"
    power = "[[fault]]\nkind = 'power_failure'\ntarget = 'leader'\nat_s = 2\nfor_s = 1"
    path.write_text(f"title = 'real'\n[load]\nseconds = 4\nordered = 1\n{power}\n")
    real = run_drill(read(path), seed=1, folder=tmp_path / "drill", time_factor=10)
    # The drained mark of the drill is for all queues, so it would speak for planted ones that are not drained.
    lines = [json.loads(event.to_json()) for event in [*planted, *real.events]]
    whole = tmp_path / "history.jsonl"
    with whole.open("w") as file:
        for line in lines:
            if line["op"] == "drained" and "queue" not in line:
                for queue in sorted({event.queue for event in real.events if event.queue}):
                    file.write(json.dumps({**line, "queue": queue}) + "\n")
            else:
                file.write(json.dumps(line) + "\n")
    faults = compare(spark, whole, grace_s=8.0)
    assert all(faults.values())
