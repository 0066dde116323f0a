"""The Spark session of a pipeline: the running one under ``spark-submit``, otherwise a new one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .failures import CONFIGURATION, PipelineError

__all__ = ["CONNECT", "MASTER_DEFAULT", "SessionSettings", "has_jvm", "open_session", "under_submit"]

MASTER_DEFAULT: Final = "local[*]"
CONNECT: Final = "sc://"
"""Prefix of the URL of a Spark Connect server."""
JAVA_VERSION_MIN: Final = 17
# Needed by every session. Times in partition names are UTC on every machine.
_ALWAYS: Final = {"spark.sql.session.timeZone": "UTC"}
# Seconds for Python's authentication with Spark; the default of 15 is too short for a busy machine.
_PATIENT: Final = {"spark.python.authenticate.socketTimeout": "300s"}
# For a session that ends with its pipeline; `SessionSettings.options` overrides it.
_OWN: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "60s",
}
# By default Spark shuffles into 200 parts, far too many for one machine.
_LOCAL: Final = {"spark.sql.shuffle.partitions": "16"}


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        name: the application's name in Spark's web pages.
        master: Spark's master URL, or that of a Spark Connect server; ``None`` for that of ``spark-submit``, or
            `MASTER_DEFAULT`.
        options: further Spark options, by their full name.
        log: file for Spark's standard error, for a new session.
    """

    name: str
    master: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None


def has_jvm(spark: SparkSession) -> bool:
    """Return whether a session has a JVM beside this process; it has none over Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def under_submit() -> bool:
    """Return whether ``spark-submit`` has started this process and so determines the session's settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def open_session(settings: SessionSettings) -> Iterator[SparkSession]:
    """Yield a session for one pipeline; an existing session is not stopped.

    Raises:
        PipelineError: Java is missing, or Spark refused to start.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    spark = _start(settings)
    try:
        yield spark
    finally:
        spark.stop()


def _start(settings: SessionSettings) -> SparkSession:
    builder = SparkSession.builder.appName(settings.name)
    if under_submit():
        return _configure(builder, {**_PATIENT, **settings.options, **_ALWAYS}).getOrCreate()
    if settings.master is not None and settings.master.startswith(CONNECT):
        return _connect(settings.master, {**settings.options, **_ALWAYS})
    _check_java()
    # Without byte code, Python may take longer to start than Spark waits.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    master = settings.master or MASTER_DEFAULT
    is_local = master.startswith("local")
    if is_local:
        # The tasks use the Python that lmqcluster is installed for; on other machines only the user can know it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = _LOCAL if is_local else {}
    builder = _configure(builder.master(master), {**_PATIENT, **_OWN, **local, **settings.options, **_ALWAYS})
    # The JVM inherits our standard error permanently; its log belongs in a file, not on the user's terminal.
    try:
        with _stderr_into(settings.log):
            return builder.getOrCreate()
    except (PySparkException, OSError, ValueError) as exc:
        raise PipelineError(_refusal(exc, master, settings.log), CONFIGURATION) from exc
    except Exception as exc:
        # py4j's errors derive from Exception alone; any other error is a bug and is raised unchanged.
        if not type(exc).__module__.startswith("py4j"):
            raise
        raise PipelineError(_refusal(exc, master, settings.log), CONFIGURATION) from exc


def _connect(url: str, options: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark Connect server, which accepts only session options."""
    try:
        return _configure(SparkSession.builder.remote(url), options).getOrCreate()
    except PySparkException as exc:
        raise PipelineError(f"the Spark Connect server {url} cannot be used: {exc}", CONFIGURATION) from exc


def _configure(builder: SparkSession.Builder, options: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in options.items():
        builder = builder.config(key, value)
    return builder


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "java is not on the PATH"
        raise PipelineError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and {where}: install it, or set JAVA_HOME", CONFIGURATION
        )


def _refusal(exc: Exception, master: str, log: Path | None) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    # py4j puts the Java exception on the second line, below a heading.
    cause = next((line for line in lines if "Exception: " in line), lines[0] if lines else type(exc).__name__)
    hint = f"; see {log}" if log is not None else ""
    return f"Spark did not start with --master {master}: {cause.rpartition('Exception: ')[2]}{hint}"


@contextmanager
def _stderr_into(log: Path | None) -> Iterator[None]:
    if log is None:
        yield
        return
    saved = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
