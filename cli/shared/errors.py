"""Exit codes of the programs. Every failure becomes one line on standard error and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.wire.errors import LmqError, Outcome

from .encoding import escape_unencodable_characters
from .shared_options import SharedOption
from .stale import take_stale

__all__ = [
    "EXIT_CODES_HELP",
    "CliError",
    "ExitCode",
    "cannot_write",
    "debug_option",
    "error_line",
    "exit_code_of",
    "run",
]


class ExitCode(IntEnum):
    """Exit statuses, stable for scripts."""

    DONE = 0
    USAGE = 2
    BAD_DATA = 65
    NOT_FOUND = 66
    UNAVAILABLE = 69
    BUG = 70
    IO = 74
    UNKNOWN = 75
    NOT_AUTHORISED = 77
    CONFIGURATION = 78
    INTERRUPTED = 130


_MEANINGS: Final = {
    ExitCode.DONE: "done",
    ExitCode.USAGE: "usage: wrong arguments",
    ExitCode.BAD_DATA: "bad data, or a conflict with the state of the cluster",
    ExitCode.NOT_FOUND: "no such queue or message",
    ExitCode.UNAVAILABLE: "node unreachable, no quorum (what is printed may be old), or a limit reached: try again later",
    ExitCode.BUG: "a bug in lmqcluster",
    ExitCode.IO: "a file or the output cannot be read or written, for example on a full disk",
    ExitCode.UNKNOWN: "timed out or outcome unknown",
    ExitCode.NOT_AUTHORISED: "not authorised",
    ExitCode.CONFIGURATION: "configuration",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C), or declined by the user",
}

# \b prevents click from rewrapping the table.
EXIT_CODES_HELP: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {text}" for code, text in _MEANINGS.items())


class CliError(Exception):
    """A failure that the user can act on: one sentence with what failed, where, and what to do."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def exit_code_of(error: LmqError) -> ExitCode:
    """Return the exit status for an error of the cluster or of a client."""
    if error.code == "internal":
        return ExitCode.BUG
    if error.outcome is Outcome.UNKNOWN:
        return ExitCode.UNKNOWN
    return ExitCode.UNAVAILABLE if error.retryable else ExitCode(error.spec.exit_code)


_IO_ERRORS: Final = (
    OSError, FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError,
)  # fmt: skip
_READER_GONE: Final = 128 + signal.SIGPIPE

_debug: ContextVar[bool] = ContextVar("debug", default=False)


def debug_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--debug`` (or ``LMQ_DEBUG=1``), which prints the traceback of an error."""

    def switch_on(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            _debug.set(True)

    text = "Print the traceback of an error. [LMQ_DEBUG]"
    return click.option(
        "--debug", cls=SharedOption, is_flag=True, expose_value=False, is_eager=True, callback=switch_on, help=text
    )(function)


def error_line(name: str, error: Exception | str) -> str:
    """Return an error as one line for standard error."""
    text = error.message if isinstance(error, LmqError) else str(error)
    return f"{name}: {' '.join(text.splitlines())}"


def cannot_write(what: Path | str, error: OSError) -> CliError:
    """Return the error for a file or an output that cannot be written."""
    return CliError(f"cannot write {what}: {error.strerror or error}", ExitCode.IO)


def run(command: click.Command, name: str) -> NoReturn:
    """Run a program and exit with its status."""
    _debug.set(False)
    take_stale()
    escape_unencodable_characters()
    try:
        code = _invoke(command, name)
    except BrokenPipeError:
        # The reader of the output has exited, as in "| head"; no message is needed.
        code = _READER_GONE
    try:
        sys.stdout.flush()
    except OSError as exc:
        # Prevents the interpreter from flushing again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(exc, BrokenPipeError):
            code = _READER_GONE
        elif code == ExitCode.DONE:
            code = _say(name, _io_error(exc), ExitCode.IO)
    sys.exit(code)


def _invoke(command: click.Command, name: str) -> int:
    try:
        result: Any = command.main(prog_name=name, standalone_mode=False)
        code = result if isinstance(result, int) else ExitCode.DONE
        warning = take_stale()
        if warning is None or code != ExitCode.DONE:
            return code
        # What the command has printed precedes the warning.
        sys.stdout.flush()
        return _say(name, warning, ExitCode.UNAVAILABLE)
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
    except OSError as exc:
        # Other subclasses are failures of connections, which every command handles itself.
        return _say(name, _io_error(exc), ExitCode.IO) if type(exc) in _IO_ERRORS else _bug(name, exc)
    except Exception as exc:  # noqa: BLE001  the last resort: report a bug as a bug
        return _bug(name, exc)


def _io_error(error: OSError) -> CliError:
    if error.filename is None:
        return cannot_write("the output", error)
    return CliError(f"cannot use {error.filename}: {error.strerror}", ExitCode.IO)


def _bug(name: str, error: Exception) -> int:
    hint = "" if _debugging() else " (--debug or LMQ_DEBUG=1 prints the traceback)"
    return _say(name, f"a bug: {type(error).__name__}: {error}{hint}", ExitCode.BUG)


def _debugging() -> bool:
    return _debug.get() or bool(os.environ.get("LMQ_DEBUG"))


def _say(name: str, error: Exception | str, code: int) -> int:
    # If standard error cannot be written, only the exit status is left.
    with contextlib.suppress(OSError):
        if _debugging():
            traceback.print_exc()
        print(error_line(name, error), file=sys.stderr, flush=True)
    return int(code)
