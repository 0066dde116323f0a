"""Runs ``lmq`` and ``lmq-admin`` as people and scripts do: with pipes, or in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from lmqcluster_cli.admin import program as admin

from .cluster import clean_environment, reaper
from .forks import ForkedProcess, fork_program

DEADLINE_S = 180.0
FORKED = frozenset({"config", "ping", "repair"})
"""Commands of ``lmq`` that tests fork. The start of a node or of a local cluster is tested in a new interpreter."""


class Result(NamedTuple):
    """The outcome of a program."""

    code: int
    out: str
    err: str

    def one_line_error(self) -> str:
        """Return standard error, which must be a one-line error message."""
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


def command_line(program: str, *arguments: str) -> list[str]:
    """Return the words that run a program of this checkout: ``lmq`` or ``lmq-admin``."""
    module = {"lmq": "lmqcluster_cli.lmq", "lmq-admin": "lmqcluster_cli.admin"}[program]
    return [sys.executable, "-m", module, *arguments]


def run(
    program: str,
    *arguments: str,
    stdin: str | bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run a program to its end, with pipes. It is forked if possible, see `forks`."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    settings = clean_environment(environment)
    if _can_fork(program, arguments, environment):
        code, out, err = _run_fork(program, arguments, settings, given)
    else:
        command = command_line(program, *arguments)
        done = subprocess.run(command, input=given, capture_output=True, env=settings, timeout=DEADLINE_S, check=False)
        code, out, err = done.returncode, done.stdout, done.stderr
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace"))


def _can_fork(program: str, arguments: Sequence[str], environment: Mapping[str, str] | None) -> bool:
    # An interpreter reads these variables only when it starts.
    is_special = any(name.startswith(("PYTHON", "LANG", "LC_")) for name in environment or {})
    return not is_special and (program == "lmq-admin" or not FORKED.isdisjoint(arguments[:1]))


def _run_fork(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], given: bytes
) -> tuple[int, bytes, bytes]:
    (stdin, feeding), (reading_out, stdout), (reading_err, stderr) = (os.pipe() for _ in range(3))
    process = fork_program(program, arguments, environment, (stdin, stdout, stderr))
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_feed, feeding, given)
        out, err = (threads.submit(_read_all, descriptor) for descriptor in (reading_out, reading_err))
        try:
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
    return code, out.result(), err.result()


def _feed(descriptor: int, given: bytes) -> None:
    # A program need not read its input.
    with contextlib.suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(given)


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as pipe:
        return pipe.read()


def run_here(*arguments: str, stdin: str | bytes = b"", environment: Mapping[str, str] | None = None) -> Result:
    """Run ``lmq-admin`` with pipes within this process, which saves the start of an interpreter."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    streams: dict[str, Any] = {
        name: io.TextIOWrapper(io.BytesIO(data)) for name, data in (("stdin", given), ("stdout", b""), ("stderr", b""))
    }
    code: object = 0
    with (
        mock.patch.multiple(sys, argv=["lmq-admin", *arguments], **streams),
        mock.patch.dict(os.environ, clean_environment(environment), clear=True),
    ):
        try:
            admin.main()
        except SystemExit as exc:
            code = exc.code
    for name in ("stdout", "stderr"):
        streams[name].flush()
    out, err = (streams[name].buffer.getvalue().decode(errors="replace") for name in ("stdout", "stderr"))
    assert isinstance(code, int)
    return Result(code, out, err)


@contextmanager
def started(
    program: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program with pipes for standard input, output and error; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        command_line(program, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(environment),
        start_new_session=True,
    )
    reaper.tell("+", process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        reaper.tell("-", process.pid)
        for stream in (process.stdin, process.stdout, process.stderr):
            # Input that the program did not read may be left in our buffer.
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # all three are pipes


def feed(process: subprocess.Popen[bytes], text: str) -> None:
    """Write to the standard input of a started program; if it has ended, fail with its output."""
    assert process.stdin is not None
    try:
        process.stdin.write(text.encode())
        process.stdin.flush()
    except BrokenPipeError:
        _out, error = process.communicate(timeout=DEADLINE_S)
        raise AssertionError(f"it ended with {process.returncode}: {error.decode(errors='replace')}") from None


def run_in_terminal(
    program: str,
    *arguments: str,
    columns: int = 100,
    typed: bytes = b"",
    typed_at: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a program whose standard streams are a terminal; return its exit status and what a person sees.

    Args:
        typed: what a person types: at once, or as soon as `typed_at` can be seen.
        typed_at: a part of the program's output.
    """
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = _start_in_terminal(program, arguments, environment, theirs)
        reaper.tell("+", process.pid)
        os.close(theirs)
        seen = bytearray()
        deadline = time.monotonic() + 2 * DEADLINE_S
        while True:
            if time.monotonic() > deadline:
                process.kill()
                raise TimeoutError(f"{program} did not end; it wrote {bytes(seen[-2000:])!r}")
            if typed and typed_at in seen:
                os.write(ours, typed)
                typed = b""
            chunk = _read(ours)
            if not chunk:
                break
            seen += chunk
        code = process.wait(DEADLINE_S)
        reaper.tell("-", process.pid)
        return code, seen.decode(errors="replace").replace("\r\n", "\n")
    finally:
        os.close(ours)


def _start_in_terminal(
    program: str, arguments: Sequence[str], environment: Mapping[str, str] | None, terminal: int
) -> subprocess.Popen[bytes] | ForkedProcess:
    settings = {**clean_environment(environment), "TERM": "xterm-256color"}
    if _can_fork(program, arguments, environment):
        return fork_program(program, arguments, settings, (terminal, terminal, terminal))
    return subprocess.Popen(
        command_line(program, *arguments),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=settings,
        start_new_session=True,
    )


def _read(terminal: int) -> bytes:
    written = select.poll()
    written.register(terminal, select.POLLIN)
    assert written.poll(DEADLINE_S * 1000), f"nothing was written to the terminal for {DEADLINE_S:g} s"
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux reports in this way that the other side has closed.
        return b""
