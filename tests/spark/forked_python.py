"""A Python for Spark that is forked from a process with everything imported, instead of importing it every time.

For each streaming query Spark starts a Python process and waits 10 seconds for it, which cannot be changed; and its
daemon forks further ones before anything is imported. Importing PySpark and pyarrow takes half a second of processor
time, more than the rest of such a test process, and on a busy machine more than those 10 seconds. Here Spark starts a
small process, which passes on its arguments, environment and descriptors, ends when the fork ends, and ends the fork if
it is killed. Tests that name another Python, such as that of ``spark-submit``, start it in full.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["forked_python"]

REQUEST_BYTES_MAX: Final = 1 << 18
_SCRIPT: Final = """#!/bin/sh
exec "{python}" -IS "{client}" "{address}" "$@"
"""
_IMPORTS: Final = (
    "lmqcluster.spark",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)


@contextlib.contextmanager
def forked_python(folder: Path) -> Iterator[Path]:
    """Yield a program for ``PYSPARK_PYTHON`` that works within the block; `folder` holds its files."""
    address, program = folder / "socket", folder / "python"
    script = _SCRIPT.format(
        python=sys.executable, client=Path(__file__).with_name("forked_python_client.py"), address=address
    )
    program.write_text(script)
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            # Spark sets these for its Python processes.
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"},
        )
    try:
        yield program
    finally:
        # It ends with its standard input.
        server.communicate()


def _serve(listener: socket.socket) -> None:
    """Fork for each connection. Return in the fork; the server itself exits when its standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    awaited = select.poll()
    awaited.register(0, select.POLLIN)
    awaited.register(listener, select.POLLIN)
    while True:
        readable = {descriptor for descriptor, _event in awaited.poll()}
        if listener.fileno() not in readable:
            sys.exit(0)
        connection, _address = listener.accept()
        # One process waits for the end of the other, so that the server has no state.
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _attend(connection)
        connection.close()


def _attend(connection: socket.socket) -> None:
    """Fork the requested process, and report its exit status; return in that process."""
    body, descriptors, _flags, _address = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
    if not body:
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return _become(json.loads(body), descriptors)
    for descriptor in (0, 1, 2, *descriptors):
        os.close(descriptor)
    _end_with(connection, pid)
    _pid, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _end_with(connection: socket.socket, pid: int) -> None:
    """End this process as soon as the process it stands for has ended."""

    def watch() -> None:
        connection.recv(1)
        with contextlib.suppress(ProcessLookupError):
            # Spark's daemon then ends its workers.
            os.kill(pid, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _become(request: dict[str, object], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    environment, arguments, folder = request["environment"], request["arguments"], request["folder"]
    assert isinstance(environment, dict)
    assert isinstance(arguments, list)
    assert isinstance(folder, str)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  as long as the process
    sys.argv = arguments


def _run() -> None:
    """Execute ``python -m MODULE ARGUMENT...`` and ``python -c TEXT``, with which Spark asks for the version."""
    option, module, *arguments = sys.argv
    if option == "-c":
        exec(module, {"__name__": "__main__"})
        return
    if option != "-m":
        raise SystemExit(f"this Python runs modules and texts only, not {option}")
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Run the server, and every process that is forked from it."""
    for name in _IMPORTS:
        importlib.import_module(name)
    # Otherwise each fork's collections search, and so copy, everything imported.
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _run()


if __name__ == "__main__":
    main()
