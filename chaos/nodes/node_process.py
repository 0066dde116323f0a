"""One node in a separate process whose network, disk and clock the drill can break."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DrillError
from ..injection.control import Control
from ..injection.power import PowerFailure, cut_power
from ..injection.tools import interposer
from .reaper import Reaper

__all__ = ["START_S", "NodePorts", "NodeProcess", "ask"]

START_S = 90.0
"""Deadline of a start or an end on a busy machine."""
_POLL_S = 0.05
_LOG_LINES = 15
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The loopback ports of a node; without `memcache` it does not speak that protocol."""

    http: int
    rpc: int
    raft: int
    memcache: int | None = None


def ask(port: int, path: str, *, body: Mapping[str, Any] | None = None, timeout_s: float = 5.0) -> tuple[int, bytes]:
    """GET a path of a node on this machine, or POST a JSON body to it. HTTP errors are answers.

    Raises:
        OSError: the node cannot be reached.
    """
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("content-type", "application/json")
    try:
        with _direct.open(request, timeout=timeout_s) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()
    except http.client.HTTPException as exc:
        raise OSError(f"no answer to {path}: {exc!r}") from exc


class NodeProcess:
    """A node that is started, killed, paused and restarted. Methods block; they are called from one thread at a time.

    Attributes:
        raft_address: the address that it announces to peers.
        environment: its variables.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        ports: NodePorts,
        *,
        address: str = "",
        peers: tuple[str, ...],
        routes: Mapping[int, int],
        durability: str,
        memory_mib: int = 0,
        reaper: Reaper,
        program: tuple[str, ...] | None = None,
    ) -> None:
        """Prepare a node.

        Args:
            name: of the node, and of its folder below `folder`.
            folder: for data and logs.
            ports: its ports.
            address: the address that it announces to peers, if that is not numeric.
            peers: Raft addresses of all founding members; empty for a node that is alone until it joins.
            routes: by Raft port of another node, the port that this one dials instead.
            durability: see ``lmq start``.
            memory_mib: memory limit; 0 for the default.
            reaper: ends the process with the drill.
            program: command line of another ``lmq`` program to run instead of the installed one.
        """
        self.raft_address = address or f"127.0.0.1:{ports.raft}"
        self.name, self.ports = name, ports
        self.data_folder = folder / name
        self.log_path = folder / f"{name}.log"
        self.program = program
        self._undo_folder = folder / f"{name}.undo"
        self._undo_folder.mkdir(parents=True)
        self.control = Control(folder / f"{name}.control")
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False
        self._arguments = ["--name", name, "--data-dir", str(self.data_folder), "--durability", durability]
        for option, port in (("--http", ports.http), ("--rpc", ports.rpc), ("--raft", ports.raft)):
            self._arguments += [option, f"127.0.0.1:{port}"]
        if ports.memcache is not None:
            self._arguments += ["--memcache", f"127.0.0.1:{ports.memcache}"]
        if memory_mib:
            self._arguments += ["--memory-bytes-max", f"{memory_mib}MiB"]
        for option, value in (("--peers", ",".join(peers)), ("--advertise-raft", address)):
            self._arguments += [option, value] if value else []
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("LMQ_")} | {
            "PYTHONUNBUFFERED": "1",
            "LMQ_LOG_FORMAT": "json",
            "LD_PRELOAD": str(interposer()),
            "LMQ_DRILL_CONTROL": str(self.control.path),
            "LMQ_DRILL_DATA": str(self.data_folder),
            "LMQ_DRILL_UNDO": str(self._undo_folder),
            "LMQ_DRILL_ROUTES": ",".join(f"{port}={proxy}" for port, proxy in routes.items()),
        }

    def __repr__(self) -> str:
        return f"<node {self.name} http={self.ports.http} rpc={self.ports.rpc} raft={self.ports.raft}>"

    @property
    def running(self) -> bool:
        """Return whether the process exists, perhaps paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process; None while it runs or if it was never started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process without waiting."""
        if self.running:
            raise DrillError(f"{self.name} is already running")
        if self._process is not None:
            self._reaper.forget(self._process.pid)
        command = [*(self.program or (sys.executable, "-m", "lmqcluster_cli.lmq")), "start", *self._arguments]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )
        self._reaper.watch(self._process.pid)

    def kill(self) -> None:
        """Kill -9, and wait until the process has ended. A no-op if it has already ended."""
        if self._process is not None:
            self._process.kill()
            self.wait_exit()

    def stop(self) -> int:
        """Send SIGTERM and wait; return the exit code."""
        self._signal(signal.SIGTERM)
        return self.wait_exit()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open without answers."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        if self.running:
            self._signal(signal.SIGCONT)
        self.paused = False

    def cut_power(self, rng: random.Random, *, kept: float | None = None) -> PowerFailure:
        """Kill -9, and keep only this share, or a random part, of the unsynced changes."""
        self.kill()
        return cut_power(self._undo_folder, self.data_folder, rng, kept=kept)

    def repair(self) -> None:
        """Discard damaged files with ``lmq repair``, as the operator of a node that refuses to start does.

        Raises:
            DrillError: it failed.
        """
        command = [sys.executable, "-m", "lmqcluster_cli.lmq", "repair", "--data-dir", str(self.data_folder), "--yes"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        if done.returncode != 0:
            raise DrillError(f"lmq repair of {self.name} exited with {done.returncode}: {done.stderr.strip()}")

    def wait_exit(self, timeout_s: float = START_S) -> int:
        """Wait for the end of the process, and return its exit code.

        Raises:
            DrillError: it did not end in time.
        """
        if self._process is None:
            raise DrillError(f"{self.name} was never started")
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise DrillError(f"{self.name} did not end within {timeout_s:g} s\n{self.log_tail()}") from exc
        self.paused = False
        return code

    def is_ready(self) -> bool:
        """Return whether the node reports that it is ready."""
        try:
            return ask(self.ports.http, "/readyz", timeout_s=2.0)[0] == 200
        except OSError:
            return False

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait until the node reports that it is ready.

        Raises:
            DrillError: it exited, or is not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if not self.running:
                raise DrillError(
                    f"{self.name} exited with {self.exit_code} instead of getting ready\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise DrillError(f"{self.name} was not ready within {timeout_s:g} s\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def get_json(self, path: str, *, body: Mapping[str, Any] | None = None, timeout_s: float = 5.0) -> Any:
        """Return the node's JSON answer to a GET, or to a POST of `body`.

        Raises:
            OSError: it cannot be reached, or answers with an error.
        """
        status, answer = ask(self.ports.http, path, body=body, timeout_s=timeout_s)
        if status != 200:
            raise OSError(f"{self.name}: {path} answered {status}: {answer[:300]!r}")
        return json.loads(answer)

    def log_tail(self) -> str:
        """Return the end of the log."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return "\n".join([f"--- {self.log_path}", *lines[-_LOG_LINES:]])

    def _signal(self, number: int) -> None:
        if self._process is None or not self.running:
            raise DrillError(f"{self.name} is not running")
        self._process.send_signal(number)
