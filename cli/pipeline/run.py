"""Common parts of the commands of ``lmq-pipeline``: session, configuration files, progress, failures as exit codes."""

from __future__ import annotations

import difflib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.wire.errors import LmqError

from ..shared.errors import CliError, ExitCode
from ..shared.output import make_console

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from lmqcluster.spark.pipelines.base.progress import QueryProgress

__all__ = [
    "PipelineCommand",
    "Runner",
    "StreamOutcome",
    "apply_config",
    "check_paths",
    "show_tasks",
    "spark_options",
    "watch_query",
]

SUBMITTED_BY: Final = "PYSPARK_GATEWAY_PORT"
"""The environment variable that spark-submit sets."""
_POLL_S: Final = 1


class PipelineCommand(click.Command):
    """A command whose options may come from the configuration file; a wrong value there is an error of configuration."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does; report wrong values from the file as errors of configuration."""
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as exc:
            name = None if exc.param is None else exc.param.name
            if name is None or ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
                raise
            raise ConfigError(f"{ctx.find_root().params['config']}: [{ctx.info_name}] {name}: {exc.message}") from exc


@dataclass
class Runner:
    """Runs pipelines in a Spark session.

    Attributes:
        master: Spark's master URL, ``None`` for the default.
        options: options of Spark.
        log: file for Spark's log; ``None`` for a temporary file that is kept only after a failure.
    """

    master: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    log: Path | None = None

    @contextmanager
    def session(self, name: str) -> Iterator[SparkSession]:
        """Yield a session for one pipeline; raise its failures as `CliError`."""
        _check_spark()
        from lmqcluster.spark.pipelines.base import failures  # noqa: PLC0415
        from lmqcluster.spark.pipelines.base.session import SessionSettings, open_session  # noqa: PLC0415

        log = self.log or Path(tempfile.mkstemp(prefix="lmq-pipeline-", suffix=".log")[1])
        settings = SessionSettings(name=f"lmq-pipeline {name}", master=self.master, options=self.options, log=log)
        try:
            with open_session(settings) as spark:
                yield spark
        except failures.PipelineError as exc:
            raise CliError(self._with_log(str(exc), exc.exit_code, log), ExitCode(exc.exit_code)) from exc
        except (CliError, LmqError, click.ClickException, click.exceptions.Exit, ConfigError):
            raise
        except Exception as exc:
            error = failures.explain(exc)
            if error is None:
                raise
            raise CliError(self._with_log(str(error), error.exit_code, log), ExitCode(error.exit_code)) from exc
        else:
            self._remove_log(log)

    def _with_log(self, text: str, exit_code: int, log: Path) -> str:
        """Return the text with the path of Spark's log if it may say more; otherwise remove a temporary log."""
        if exit_code == ExitCode.UNKNOWN and log.exists() and log.stat().st_size:
            return f"{text}; Spark's log is {log}"
        if str(log) not in text:
            self._remove_log(log)
        return text

    def _remove_log(self, log: Path) -> None:
        if self.log is None:
            log.unlink(missing_ok=True)


def check_paths(paths: Sequence[str]) -> None:
    """Check that local files exist; Spark checks globs and URLs."""
    for path in paths:
        if not set("*?[{:") & set(path) and not Path(path).exists():
            raise click.UsageError(f"{path} does not exist")


def _check_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise CliError("PySpark is not installed: install lmqcluster with the extra spark", ExitCode.CONFIGURATION)
    # The warning concerns functions that are not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # The errors are also in the exceptions of Spark, so they need not appear on standard error.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def apply_config(context: click.Context, path: Path) -> None:
    """Set defaults of options from a TOML file: those of all commands at its top, those of one command in its table.

    Raises:
        ConfigError: the file cannot be read, or has a key that is not an option.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"--config: cannot read {path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: not TOML: {exc}") from exc
    group = context.command
    if not isinstance(group, click.Group):
        raise TypeError(f"{group.name} has no commands to configure")
    own = _options_of(group) - {"config"}
    # A command without options, such as version, may have the name of an option of the program.
    commands = {name: command for name, command in group.commands.items() if _options_of(command)}
    shared = {name for command in commands.values() for name in _options_of(command)}
    defaults: dict[str, Any] = {name: {} for name in commands}
    for key, value in content.items():
        name = key.replace("-", "_")
        if key in commands and isinstance(value, dict):
            known = _options_of(commands[key])
            defaults[key] |= {_known(path, f"[{key}] ", option, known): item for option, item in value.items()}
        elif name == "spark" and isinstance(value, dict):
            defaults["spark"] = [f"{option}={item}" for option, item in value.items()]
        elif name in own:
            defaults[name] = value
        else:
            name = _known(path, "", key, shared | own | set(commands))
            for command in commands.values():
                if name in _options_of(command):
                    defaults[command.name].setdefault(name, value)  # type: ignore[index]  # commands of a group have names
    context.default_map = defaults


def _options_of(command: click.Command) -> set[str]:
    return {str(parameter.name) for parameter in command.params} - {"help", "version"}


def _known(path: Path, where: str, key: str, known: set[str]) -> str:
    name = key.replace("-", "_")
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"the options are {', '.join(sorted(known))}"
    raise ConfigError(f"{path}: {where}{key} is not an option: {hint}")


def spark_options(given: Sequence[str], memory: str | None, master: str | None) -> dict[str, str]:
    """Return Spark's options from ``--spark KEY=VALUE`` and ``--memory``.

    Raises:
        click.UsageError: an option is malformed or must be given to ``spark-submit``.
    """
    if SUBMITTED_BY in os.environ and (memory is not None or master is not None):
        option = "--master" if master is not None else "--memory"
        raise click.UsageError(f"pass {option} to spark-submit, which has started this program")
    if memory is not None and master is not None and master.startswith("sc://"):
        raise click.UsageError("set --memory on the Spark Connect server, which runs the driver")
    options = {} if memory is None else {"spark.driver.memory": memory}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.UsageError(f"--spark: {text!r} is not of the form spark.KEY=VALUE")
        options[key] = value
    return options


@dataclass
class StreamOutcome:
    """The progress of a streaming query, and whether it was stopped."""

    messages: int = 0
    batches: int = 0
    seconds: float = 0.0
    stopped: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the value for ``--json``."""
        return {"messages": self.messages, "micro_batches": self.batches, "seconds": round(self.seconds, 3)}


def watch_query(description: str, outcome: StreamOutcome) -> Callable[[StreamingQuery], None]:
    """Return a function that waits for the end of a query and shows its progress on a terminal.

    The first Ctrl-C (or SIGTERM) stops the query; the second one raises KeyboardInterrupt.
    """

    def watch(query: StreamingQuery) -> None:
        from lmqcluster.spark.pipelines.base.progress import QueryProgress  # noqa: PLC0415

        progress = QueryProgress(query)
        begin = time.monotonic()
        with _stop_signals() as stop, _stream_line(description) as show:
            while not query.awaitTermination(_POLL_S):
                progress.update()
                show(progress)
                if stop.is_set():
                    outcome.stopped = True
                    query.stop()
            progress.update()
        outcome.messages, outcome.batches = progress.messages, progress.batches
        outcome.seconds = time.monotonic() - begin

    return watch


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    stop = threading.Event()

    def on_signal(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        click.echo(
            "Stopping; unfinished work is repeated at the next start. Press Ctrl-C again to stop at once.", err=True
        )

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _StreamColumn(ProgressColumn):
    """Messages so far, their rate, and the backlog."""

    def render(self, task: Task) -> Text:
        count, backlog = int(task.fields["messages"]), task.fields["backlog"]
        rate = count / task.elapsed if task.elapsed else 0.0
        waiting = "" if backlog is None else f", {int(backlog):,} waiting"
        age_s = task.fields["oldest_age_s"]
        waiting += "" if age_s is None else f", the oldest for {age_s:,.0f} s"
        return Text(f"{count:,} messages, {rate:,.0f}/s{waiting}")


@contextmanager
def _stream_line(description: str) -> Iterator[Callable[[QueryProgress], None]]:
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    columns = (TextColumn("{task.description}"), SpinnerColumn(), _StreamColumn(), TimeElapsedColumn())
    with Progress(*columns, console=make_console(stderr=True)) as line:
        task = line.add_task(description, total=None, messages=0, backlog=None, oldest_age_s=None)

        def show(progress: QueryProgress) -> None:
            line.update(task, messages=progress.messages, backlog=progress.backlog, oldest_age_s=progress.oldest_age_s)

        yield show


class _TasksColumn(ProgressColumn):
    """Tasks of the running stages."""

    def render(self, task: Task) -> Text:
        total = int(task.fields["tasks"])
        return Text(f"{int(task.fields['done']):,} of {total:,} tasks" if total else "planning")


@contextmanager
def show_tasks(description: str, spark: SparkSession) -> Iterator[None]:
    """Show the progress of Spark's work in the block on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from lmqcluster.spark.pipelines.base.progress import running_tasks  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), SpinnerColumn(), _TasksColumn(), TimeElapsedColumn())
    over = threading.Event()
    with Progress(*columns, console=make_console(stderr=True), transient=True) as line:
        task = line.add_task(description, total=None, done=0, tasks=0)

        def poll() -> None:
            while not over.wait(_POLL_S):
                counted = running_tasks(spark)
                line.update(task, done=counted.done, tasks=counted.total)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            over.set()
            poller.join()
