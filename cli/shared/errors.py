"""Exit codes of the programs, and how every failure becomes one line on standard error and one of them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from typing import Any, Final, NoReturn

import click

from lmqcluster.node.config import ConfigError
from lmqcluster.wire.errors import LmqError, Outcome

from .shared_options import SharedOption

__all__ = ["EXIT_CODES_HELP", "CliError", "ExitCode", "complaint", "debug_option", "exit_code_of", "run"]


class ExitCode(IntEnum):
    """Exit statuses; scripts may rely on them."""

    DONE = 0
    USAGE = 2
    BAD_DATA = 65
    NOT_FOUND = 66
    UNAVAILABLE = 69
    BUG = 70
    UNKNOWN = 75
    NOT_AUTHORISED = 77
    CONFIGURATION = 78
    INTERRUPTED = 130


_MEANINGS: Final = {
    ExitCode.DONE: "done",
    ExitCode.USAGE: "usage: wrong arguments",
    ExitCode.BAD_DATA: "bad data, or what contradicts the state of the cluster",
    ExitCode.NOT_FOUND: "no such queue or message",
    ExitCode.UNAVAILABLE: "node unreachable or no quorum, or at a limit: try again later",
    ExitCode.BUG: "a bug in lmqcluster",
    ExitCode.UNKNOWN: "timed out or outcome unknown",
    ExitCode.NOT_AUTHORISED: "not authorised",
    ExitCode.CONFIGURATION: "configuration",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C), or the answer was no",
}

# \b keeps click from re-wrapping the table.
EXIT_CODES_HELP: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {text}" for code, text in _MEANINGS.items())


class CliError(Exception):
    """A failure that a person can act on: one sentence with what failed, where, and what to try."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def exit_code_of(error: LmqError) -> ExitCode:
    """The exit status for an error of the cluster or of a client.

    75 is for what may have happened. A refusal that a retry may overcome is 69, any other one is as its code says.
    """
    if error.code == "internal":
        return ExitCode.BUG
    if error.outcome is Outcome.UNKNOWN:
        return ExitCode.UNKNOWN
    return ExitCode.UNAVAILABLE if error.retryable else ExitCode(error.spec.exit_code)


_debug: ContextVar[bool] = ContextVar("debug", default=False)


def debug_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--debug`` (or ``LMQ_DEBUG=1``): an error also shows where in the program it arose."""

    def switch_on(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            _debug.set(True)

    text = "Show where in the program an error arose. [LMQ_DEBUG]"
    return click.option(
        "--debug", cls=SharedOption, is_flag=True, expose_value=False, is_eager=True, callback=switch_on, help=text
    )(function)


def complaint(name: str, error: Exception | str) -> str:
    """An error as the one line that stands on standard error."""
    text = error.message if isinstance(error, LmqError) else str(error)
    return f"{name}: {' '.join(text.splitlines())}"


def run(command: click.Command, name: str) -> NoReturn:
    """Run a program and exit with the status its end calls for."""
    _debug.set(False)
    try:
        code = _invoke(command, name)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone, as in "| head"; nothing is left to be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + 13
    sys.exit(code)


def _invoke(command: click.Command, name: str) -> int:
    try:
        result: Any = command.main(prog_name=name, standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.DONE
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.ctx.get_help())
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return _say(name, "interrupted", ExitCode.INTERRUPTED)
    except click.UsageError as exc:
        path = exc.ctx.command_path if exc.ctx is not None else name
        text = " ".join(exc.format_message().split()).rstrip(".")
        return _say(path, f"{text} (see {path} --help)", ExitCode.USAGE)
    except click.ClickException as exc:
        return _say(name, exc.format_message(), ExitCode.USAGE)
    except ConfigError as exc:
        return _say(name, exc, ExitCode.CONFIGURATION)
    except LmqError as exc:
        return _say(name, exc, exit_code_of(exc))
    except CliError as exc:
        return _say(name, exc, exc.exit_code)
    except BrokenPipeError:
        raise
    except Exception as exc:  # noqa: BLE001  the last resort: report a bug as a bug
        hint = "" if _debugging() else " (--debug or LMQ_DEBUG=1 shows where)"
        return _say(name, f"a bug: {type(exc).__name__}: {exc}{hint}", ExitCode.BUG)


def _debugging() -> bool:
    return _debug.get() or bool(os.environ.get("LMQ_DEBUG"))


def _say(name: str, error: Exception | str, code: int) -> int:
    if _debugging():
        traceback.print_exc()
    click.echo(complaint(name, error), err=True)
    return int(code)
