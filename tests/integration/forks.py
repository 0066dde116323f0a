"""Starts nodes and short programs by forking processes that have imported them already.

Importing what a program needs takes more processor time than everything else that it does in a test. So a process
imports it once and forks for every run. The fork gets arguments, environment, folder, standard streams and session as a
new process would, and runs the program's entry point from its first line to its regular end. Nodes that other programs
start (``lmq dev``, drills, services), and those of tests of the start itself, are new interpreters.

Strings hash alike within one such process. Nodes are therefore forked from three processes in turn, so that replicas do
not agree only because of equal hashes.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

__all__ = ["ForkedProcess", "fork_node", "fork_program"]

SEEDS: Final = 3
REQUEST_BYTES_MAX: Final = 1 << 17


class ForkedProcess:
    """A forked process with the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = end
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the exit status.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            # It may end at this moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and self._has_ended(timeout_s):
            with self._lock:
                if self.returncode is None:
                    text = os.read(self._end, 64)
                    os.close(self._end)
                    # The pipe is empty if the parent was killed, which kills a node through its reaper.
                    self.returncode = int(text or -signal.SIGKILL)
        return self.returncode

    def _has_ended(self, timeout_s: float | None) -> bool:
        # `select` cannot handle the more than 1,024 descriptors that tests open.
        ending = select.poll()
        ending.register(self._end, select.POLLIN)
        return bool(ending.poll(None if timeout_s is None else timeout_s * 1000))


class _Parent:
    """A process that forks one program, ``lmq`` or ``lmq-admin``, as the tests see it."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], streams: tuple[int, int, int]
    ) -> ForkedProcess:
        """Start the program with these arguments and descriptors of its standard streams."""
        ended, end = os.pipe()
        settings = {"arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd())}
        request = json.dumps(settings).encode()
        with self._lock:
            if self._socket is None:
                self._socket = self._start()
            socket.send_fds(self._socket, [request], [*streams, end])
            os.close(end)
            answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError(f"the process that forks {self._program} has ended")
        return ForkedProcess(int(answer), ended)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * REQUEST_BYTES_MAX)
        process = subprocess.Popen(
            [sys.executable, __file__, self._program, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        theirs.close()

        def finish() -> None:
            ours.close()
            process.wait()

        atexit.register(finish)
        return ours


_parents = [_Parent("lmq") for _ in range(SEEDS)]
_admin_parent = _Parent("lmq-admin")
_turn = threading.Lock()


def fork_node(arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> ForkedProcess:
    """Start a node as ``lmq`` with these arguments, this environment, and its output in `log`."""
    parent = _next_parent()
    with Path(os.devnull).open("rb") as nothing:
        return parent.fork(arguments, environment, (nothing.fileno(), log.fileno(), log.fileno()))


def fork_program(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], streams: tuple[int, int, int]
) -> ForkedProcess:
    """Start ``lmq`` or ``lmq-admin`` with these arguments, environment, and descriptors of its standard streams."""
    parent = _admin_parent if program == "lmq-admin" else _next_parent()
    return parent.fork(arguments, environment, streams)


def _next_parent() -> _Parent:
    with _turn:
        _parents.append(_parents.pop(0))
        return _parents[0]


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request until the requests end; in the fork, return the arguments of the program.

    Raises:
        SystemExit: in the parent, at the end.
    """
    ends: dict[int, int] = {}
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(wake_w)
    awaited = select.poll()
    for descriptor in (requests.fileno(), wake_r):
        awaited.register(descriptor, select.POLLIN)
    while True:
        readable = {descriptor for descriptor, _event in awaited.poll()}
        if wake_r in readable:
            os.read(wake_r, 4096)
            _report(ends)
        if requests.fileno() not in readable:
            continue
        body, passed, _flags, _address = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
        if not body:
            sys.exit(0)
        *streams, end = passed
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (wake_r, wake_w, end, *ends.values()):
                os.close(descriptor)
            requests.close()
            return _become(json.loads(body), streams)
        for stream in streams:
            os.close(stream)
        ends[pid] = end
        requests.send(str(pid).encode())


def _report(ends: dict[int, int]) -> None:
    """Report the exit status of every ended fork."""
    for pid, end in list(ends.items()):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            continue
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        # Reported before the process id is free again, so that no signal can reach another process.
        os.write(end, str(code).encode())
        os.close(ends.pop(pid))
        os.waitpid(pid, 0)


def _become(request: dict[str, Any], streams: Sequence[int]) -> list[str]:
    """Give this process the environment of a new one."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    environment, arguments = request["environment"], request["arguments"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def _import_lmq() -> Callable[[], None]:
    # The imports of ``lmq start`` and of the short programs.
    import uvloop  # noqa: F401
    from lmqcluster_cli.lmq import config, ping, program, repair, start  # noqa: F401

    import lmqcluster.server  # noqa: F401

    return program.main


def _import_admin() -> Callable[[], None]:
    from lmqcluster_cli.admin import program
    from lmqcluster_cli.admin.cluster import cluster  # noqa: F401
    from lmqcluster_cli.admin.messages import messages  # noqa: F401
    from lmqcluster_cli.admin.queues import queues  # noqa: F401

    return program.main


def main() -> None:
    """Run the process that forks ``lmq`` or ``lmq-admin``, which the first argument names."""
    name, descriptor = sys.argv[1:]
    entry = {"lmq": _import_lmq, "lmq-admin": _import_admin}[name]()
    # Otherwise each fork's collections search, and so copy, everything imported.
    gc.collect()
    gc.freeze()
    arguments = _serve(socket.socket(fileno=int(descriptor)))
    sys.argv = [name, *arguments]
    # The previous streams may be files, which these need not be; PYTHONUNBUFFERED must hold too.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb", 0, closefd=False), errors=errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    entry()


if __name__ == "__main__":
    # Modules must not be imported from the folder of this file.
    sys.path.pop(0)
    main()
