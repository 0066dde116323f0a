"""Errors of Spark become one sentence and the exit status of their cause; without Spark and without a cluster."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from lmqcluster import LmqError
from lmqcluster.spark.base import connecting
from lmqcluster.spark.base.connecting import Cluster
from lmqcluster.spark.base.errors import TakenOverError
from lmqcluster.spark.base.options import Connection
from lmqcluster.spark.pipelines.base.failures import explain
from tests.integration.cluster import ports


def query_failed(error: Exception) -> StreamingQueryException:
    """Return the form in which an error of the data source leaves Spark: as text, within other text."""
    text = f"[STREAM_FAILED] Query terminated\nTraceback (most recent call last):\nx.{type(error).__name__}: {error}\nat java"
    return StreamingQueryException(text)


@pytest.mark.parametrize(
    ("code", "status"), [("unauthorized", 77), ("forbidden", 77), ("bad_name", 65), ("no_leader", 69)]
)
def test_an_error_of_the_cluster_has_the_status_of_its_code(code: str, status: int) -> None:
    found = explain(query_failed(LmqError(code, f"lmq: something failed [{code}]")))
    assert found is not None
    assert (str(found), found.exit_code) == (f"lmq: something failed [{code}]", status)


def test_a_superseded_subscription_is_reported() -> None:
    found = explain(query_failed(TakenOverError("jobs")))
    assert found is not None
    assert (found.exit_code, "subscription 'jobs' was taken over" in str(found)) == (65, True)


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), ConnectionResetError()])
def test_the_end_of_the_java_process_is_not_reported_as_a_bug(error: OSError) -> None:
    found = explain(error)
    assert found is not None
    assert (found.exit_code, "increase --memory" in str(found)) == (75, True)


def test_a_lack_of_memory_is_reported_as_such() -> None:
    found = explain(PySparkException("Job aborted\njava.lang.OutOfMemoryError: Java heap space\nat x"))
    assert found is not None
    assert (found.exit_code, "ran out of memory" in str(found)) == (75, True)


def test_a_bug_stays_one() -> None:
    assert explain(KeyError("x")) is None


def test_an_error_has_its_code_and_the_option_for_the_servers() -> None:
    address = f"127.0.0.1:{ports.take()}"
    with pytest.raises(LmqError, match=rf"option 'lmq.servers' = '{address}' answered .* \[unreachable\]$"):
        Cluster(Connection(address, timeout_s=0.5, connect_timeout_s=0.5))


def test_wrong_servers_are_reported_long_before_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{ports.take()}"
    assert connecting._FIRST_S_MAX <= 15
    monkeypatch.setattr(connecting, "_FIRST_S_MAX", 0.5)
    with pytest.raises(LmqError, match=r"answered within 0\.5 s"):
        Cluster(Connection(address, timeout_s=600, connect_timeout_s=0.5))
