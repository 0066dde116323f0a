"""The judge of drills on Spark: every planted kind of fault is found, and only that one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lmqcluster_chaos.judges.spark_checker import (
    FAULTS,
    GUILTY,
    PASS,
    UNKNOWN,
    VerifySettings,
    verdict_of,
    verify,
)
from pyspark.sql import SparkSession

from lmqcluster.spark.pipelines.base.failures import PipelineError
from tests.spark.conftest import spark, spark_python  # noqa: F401  fixtures

from .history import History

pytestmark = [pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")]


def lost_without_delivery(history: History, queue: str) -> None:
    history.push("bad", 100, queue=queue)


def lost_after_unknown_attempts(history: History, queue: str) -> None:
    history.push("bad", 100, outcome="unknown", queue=queue)
    history.push("bad", 101, queue=queue)


def lost_after_delivery(history: History, queue: str) -> None:
    # The consumer died with it; two more deliveries were due, and none followed.
    history.push("bad", 100, queue=queue)
    history.pull("bad", "r1", 101, retry=2, queue=queue)


def phantom_never_pushed(history: History, queue: str) -> None:
    history.pull("bad", "r1", 100, queue=queue)


def phantom_of_failed_push(history: History, queue: str) -> None:
    history.push("bad", 99, outcome="failed", queue=queue)
    history.pull("bad", "r1", 100, queue=queue)


def acked_twice(history: History, queue: str) -> None:
    history.life("bad", 100, queue=queue)
    history.ack(f"r-{queue}-bad", 103, process="c2", queue=queue)


def receipt_used_twice(history: History, queue: str) -> None:
    history.push("bad", 100, queue=queue)
    history.push("other", 100, queue=queue)
    history.pull("bad", "r1", 101, queue=queue)
    history.pull("other", "r1", 102, queue=queue)
    history.ack("r1", 103, queue=queue)


def delivered_after_ack(history: History, queue: str) -> None:
    history.life("bad", 100, queue=queue)
    # Long after the lease of the first delivery, so that only the ack contradicts it.
    history.pull("bad", "r2", 200, queue=queue)


def leases_overlap(history: History, queue: str) -> None:
    history.push("bad", 100, queue=queue)
    history.pull("bad", "r1", 101, queue=queue)
    history.pull("bad", "r2", 110, process="c2", queue=queue)
    history.ack("r2", 111, process="c2", queue=queue)


def delivered_out_of_order(history: History, queue: str) -> None:
    # It was abandoned too long before to have held either of them.
    history.add("pull", 1, outcome="unknown", end=2, queue=queue)
    history.push("bad", 100, sequence=100, queue=queue)
    history.push("later", 101, sequence=101, queue=queue)
    history.pull("later", "r2", 102, queue=queue)
    history.pull("bad", "r1", 103, queue=queue)
    history.ack("r1", 104, queue=queue)
    history.ack("r2", 104, queue=queue)


PLANTED: dict[Callable[[History, str], None], str] = {
    lost_without_delivery: "lost",
    lost_after_unknown_attempts: "lost",
    lost_after_delivery: "lost",
    phantom_never_pushed: "phantom",
    phantom_of_failed_push: "phantom",
    acked_twice: "doubled_acks",
    receipt_used_twice: "doubled_receipts",
    delivered_after_ack: "doubled_after_ack",
    leases_overlap: "doubled_leases",
    delivered_out_of_order: "reordered",
}


def test_planted_faults_are_found_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    history = History().healthy()
    for plant in PLANTED:
        history.healthy(3, queue=plant.__name__)
        plant(history, plant.__name__)
    found = verify(spark, VerifySettings(histories=[history.drained().write(tmp_path / "history.jsonl")]))
    assert found["verdict"] == GUILTY
    cases = {(case["queue"], fault) for fault, examples in found["examples"].items() for case in examples}
    assert cases == {(plant.__name__, fault) for plant, fault in PLANTED.items()}
    assert {case["value"] for examples in found["examples"].values() for case in examples} == {"bad"}
    assert found["faults"] == {name: list(PLANTED.values()).count(name) for name in FAULTS}
    assert found["messages"]["undecided"] == 0


HEALTHY = {"acknowledged": 10, "delivered": 10, "undecided": 0, "unreadable_lines": 0}
NO_FAULT = dict.fromkeys(FAULTS, 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_case_of_any_fault_fails_despite_unclear_figures(fault: str) -> None:
    unclear = {"acknowledged": 0, "delivered": 0, "undecided": 3, "unreadable_lines": 5}
    reason = f"{fault.replace('_', ' ')}: 1"
    assert verdict_of({**NO_FAULT, fault: 1}, HEALTHY) == (GUILTY, [reason])
    assert verdict_of({**NO_FAULT, fault: 1}, unclear) == (GUILTY, [reason])


@pytest.mark.parametrize(
    ("figure", "count", "reason"),
    [
        ("acknowledged", 0, "no push was acknowledged"),
        ("delivered", 0, "nothing was delivered"),
        ("undecided", 3, "3 acknowledged messages were not delivered, but not all queues were drained"),
        ("unreadable_lines", 5, "5 lines could not be read"),
    ],
)
def test_unclear_figures_neither_pass_nor_fail(figure: str, count: int, reason: str) -> None:
    assert verdict_of(NO_FAULT, {**HEALTHY, figure: count}) == (UNKNOWN, [reason])


def test_a_healthy_run_passes() -> None:
    assert verdict_of(NO_FAULT, HEALTHY) == (PASS, [])


def excuse_everything(history: History) -> None:
    """Add everything that looks like a fault and need not be one, each in a separate queue."""
    # The outcome of the push is unknown; the message never arrived, or it did.
    history.push("a", 100, queue="unknown-push", outcome="unknown")
    history.push("b", 100, queue="unknown-push", outcome="unknown", end=105)
    history.pull("b", "r-b", 110, queue="unknown-push")
    history.ack("r-b", 111, queue="unknown-push")
    # The lease expired, or the message was nacked, before the next delivery; the late ack failed.
    history.push("a", 100, queue="redelivered")
    history.pull("a", "r-a1", 101, queue="redelivered", retry=2)
    history.pull("a", "r-a2", 131.5, queue="redelivered", retry=1)
    history.ack("r-a1", 132, queue="redelivered", outcome="failed")
    history.add("nack", 133, queue="redelivered", receipt="r-a2")
    history.pull("a", "r-a3", 134, queue="redelivered", retry=0)
    history.ack("r-a3", 135, queue="redelivered")
    # A pull that waited long got the message after another consumer had nacked it.
    history.push("a", 105, queue="waiting")
    history.pull("a", "r-w2", 100, end=110, queue="waiting")
    history.pull("a", "r-w1", 106, queue="waiting", process="c2")
    history.add("nack", 107, queue="waiting", receipt="r-w1", process="c2")
    history.ack("r-w2", 111, queue="waiting")
    # Its last delivery was not acked, so it was dropped.
    history.push("a", 100, queue="dropped")
    history.pull("a", "r-d", 101, queue="dropped", retry=0)
    # The ack may have succeeded.
    history.push("a", 100, queue="unknown-ack")
    history.pull("a", "r-u", 101, queue="unknown-ack")
    history.ack("r-u", 102, queue="unknown-ack", outcome="unknown")
    # A pull of unknown outcome may have held the earlier message, and used up the deliveries of another.
    history.push("a", 100, queue="unknown-pull", sequence=1)
    history.push("b", 101, queue="unknown-pull", sequence=2)
    history.push("c", 101, queue="unknown-pull", sequence=3)
    history.add("pull", 102, outcome="unknown", end=103, queue="unknown-pull")
    history.pull("b", "r-pb", 103, queue="unknown-pull")
    history.pull("a", "r-pa", 140, queue="unknown-pull")
    history.pull("c", "r-pc", 141, queue="unknown-pull", retry=1)
    history.add("pull", 150, outcome="unknown", end=151, queue="unknown-pull")
    history.ack("r-pb", 160, queue="unknown-pull")
    history.ack("r-pa", 160, queue="unknown-pull")
    # Deliveries at the same time, and of pushes by different producers, have no order.
    history.push("a", 100, queue="order", sequence=1)
    history.push("b", 101, queue="order", sequence=2)
    history.push("c", 102, queue="order", sequence=1, process="p2")
    history.pull("b", "r-ob", 103, end=105, queue="order")
    history.pull("a", "r-oa", 104, end=106, queue="order")
    history.pull("c", "r-oc", 107, queue="order")
    for receipt in ("r-oa", "r-ob", "r-oc"):
        history.ack(receipt, 110, queue="order")
    # The queue was deleted.
    history.push("a", 100, queue="deleted")
    history.add("delete", 101, queue="deleted")
    # The drill repeated the push after an unknown outcome, without a key: there may be two.
    history.push("a", 100, queue="pushed-again", outcome="unknown", end=101)
    history.push("a", 102, queue="pushed-again")
    history.pull("a", "r-p1", 103, queue="pushed-again")
    history.ack("r-p1", 104, queue="pushed-again")
    history.pull("a", "r-p2", 105, queue="pushed-again")
    history.ack("r-p2", 106, queue="pushed-again")
    # The same value and receipt in another queue is another message.
    history.life("v1", 200, queue="namesake")
    # The queue was empty.
    history.add("pull", 300, queue="q")


def test_possibly_correct_behaviour_is_accepted(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    history = History().healthy()
    excuse_everything(history)
    found = verify(spark, VerifySettings(histories=[history.drained().write(tmp_path / "history.jsonl")]))
    assert found["examples"] == {}
    assert (found["verdict"], found["reasons"]) == (PASS, [])
    assert found["messages"] == {
        "attempted": 35,
        "acknowledged": 33,
        "delivered": 33,
        "recovered": 1,
        "acked": 30,
        "undecided": 0,
        "unreadable_lines": 0,
    }
    assert found["operations"]["pull"] == {"ok": 38, "unknown": 2}


def test_a_truncated_history_leaves_the_verdict_open(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    history = History().healthy(5)
    history.push("last", 100)
    history.drained(at=50)
    history.lines += ['{"op": "push", "outcome": "o', '{"op":"pull","outcome":"ok","time_us":"soon","queue":"q"}']
    history.add("push", 101, queue="q")
    history.add("fetch", 102, queue="q")
    found = verify(spark, VerifySettings(histories=[history.write(tmp_path / "history.jsonl")]))
    assert found["verdict"] == UNKNOWN
    assert (found["messages"]["undecided"], found["messages"]["unreadable_lines"]) == (1, 4)


@pytest.mark.parametrize("content", ["", "{}\n"])
def test_an_invalid_history_is_refused(spark: SparkSession, tmp_path: Path, content: str) -> None:  # noqa: F811
    path = tmp_path / "history.jsonl"
    path.write_text(content)
    with pytest.raises(PipelineError, match="no readable line"):
        verify(spark, VerifySettings(histories=[str(path)]))
    with pytest.raises(PipelineError, match="does not exist"):
        verify(spark, VerifySettings(histories=[str(path) + "-not"]))
