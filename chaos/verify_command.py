"""``lmq-drill verify``: judges histories of any size on Spark."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from .errors import HistoryError, MissingToolError
from .reports.table import print_rows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

__all__ = ["GRACE_S", "GUILTY", "PASS", "UNDECIDED", "verify_histories"]

GRACE_S: Final = 60.0
PASS, GUILTY, UNDECIDED = 0, 1, 3


def verify_histories(
    histories: tuple[str, ...], *, examples: int, grace_s: float, as_json: bool, master: str | None, memory: str | None
) -> int:
    """Judge histories, print the findings, and return the exit code.

    Raises:
        HistoryError: the histories cannot be read.
        MissingToolError: Spark is not installed or does not start.
    """
    for path in histories:
        # Spark checks globs and URLs.
        if not set("*?[{:") & set(path) and not Path(path).exists():
            raise click.UsageError(f"{path} does not exist")
    found = _judge(histories, examples, grace_s, master, memory)
    if as_json:
        print(json.dumps(found))
    else:
        _print_findings(found)
    return {"pass": PASS, "guilty": GUILTY}.get(found["verdict"], UNDECIDED)


def _judge(
    histories: tuple[str, ...], examples: int, grace_s: float, master: str | None, memory: str | None
) -> dict[str, Any]:
    try:
        from lmqcluster.spark.pipelines.base import failures  # noqa: PLC0415

        from .judges.spark_checker import VerifySettings, verify  # noqa: PLC0415
    except ImportError as exc:
        raise MissingToolError(f"PySpark is not installed: install lmqcluster with the extra spark ({exc})") from exc
    log = Path(tempfile.mkstemp(prefix="lmq-drill-", suffix=".log")[1])
    try:
        with _session(master, memory, log) as spark:
            found = verify(spark, VerifySettings(histories=histories, examples=examples, grace_s=grace_s))
    except failures.PipelineError as exc:
        if exc.exit_code == failures.CONFIGURATION:
            raise MissingToolError(str(exc)) from exc
        raise HistoryError(str(exc)) from exc
    except Exception as exc:
        error = failures.explain(exc)
        if error is None:
            raise
        raise HistoryError(f"{error}; Spark's log is {log}") from exc
    log.unlink(missing_ok=True)
    return found


def _session(master: str | None, memory: str | None, log: Path) -> AbstractContextManager[SparkSession]:
    """Return a session of `open_session`."""
    from lmqcluster.spark.pipelines.base.session import SessionSettings, open_session  # noqa: PLC0415

    options = {} if memory is None else {"spark.driver.memory": memory}
    return open_session(SessionSettings(name="lmq-drill verify", master=master, options=options, log=log))


def _print_findings(found: dict[str, Any]) -> None:
    console = Console()
    figures = [*found["messages"].items(), *found["faults"].items()]
    print_rows(
        console, ("Figure", "Messages"), [[name.replace("_", " "), f"{count}"] for name, count in figures], right=[1]
    )
    for name, cases in found["examples"].items():
        for case in cases:
            print(f"{name.replace('_', ' ')}: " + ", ".join(f"{key} {value}" for key, value in case.items()))
    reasons = f" ({'; '.join(found['reasons'])})" if found["reasons"] else ""
    print(f"verdict: {found['verdict']}{reasons}")
