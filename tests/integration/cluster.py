"""Real node processes for tests: start, kill, pause, and inspect them.

Nodes run as users run them, through ``lmq start``, on their own loopback ports with data in a temporary directory; in
tests they are forked (see `forks`). No node outlives the test run, not even after kill -9: a reaper process ends all
nodes when the run has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self, TypeVar

from lmqcluster_chaos.nodes.ports import Ports

from .forks import ForkedProcess, fork_node

READY_S = 180.0
"""Deadline for a start, an election or an exit on a busy machine; a wait normally ends much earlier."""
POLL_S = 0.02
MEASURES_COVERAGE = "COVERAGE_PROCESS_CONFIG" in os.environ
COVERAGE_STOP_S = 20.0
LOG_LINES_SHOWN = 60
_LMQ = [sys.executable, "-m", "lmqcluster_cli.lmq"]

T = TypeVar("T")


def wait_for(probe: Callable[[], T | None], what: str, timeout_s: float = READY_S) -> T:
    """Call `probe` until it returns a true value, and return that value.

    Raises:
        TimeoutError: it never did.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


class _Reaper:
    """A process that kills every registered process once the test run has ended."""

    SCRIPT = (
        "import os, signal, sys\n"
        "for name in (signal.SIGINT, signal.SIGTERM): signal.signal(name, signal.SIG_IGN)\n"
        "alive = set()\n"
        "for line in sys.stdin:\n"
        "    sign, pid = line[0], int(line[1:])\n"
        "    alive.add(pid) if sign == '+' else alive.discard(pid)\n"
        "for pid in alive:\n"
        "    try: os.killpg(pid, signal.SIGKILL)\n"
        "    except ProcessLookupError: pass\n"
    )

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def tell(self, sign: str, pid: int) -> None:
        """Register a process group (``+``), to be ended with the run, or unregister one that has ended (``-``)."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self.SCRIPT], stdin=subprocess.PIPE, text=True, start_new_session=True
            )
            atexit.register(self._finish, self._process)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{sign}{pid}\n")
        self._process.stdin.flush()

    @staticmethod
    def _finish(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


# Nodes are on this machine: requests must bypass proxies of the environment.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ports = Ports()
reaper = _Reaper()


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a program under test: unbuffered output; no settings, contexts or terminal size of the
    caller. ``TEST_FRONT_ENDS`` is the number of front-end processes of each node.
    """
    kept = (name for name in os.environ if not name.startswith("LMQ_") and name not in {"COLUMNS", "LINES"})
    environment = {name: os.environ[name] for name in kept}
    # Contexts of the user who runs the tests do not count.
    nowhere = f"{tempfile.gettempdir()}/lmqcluster-tests-without-contexts"
    fixed = {"PYTHONUNBUFFERED": "1", "LMQ_LOG_FORMAT": "json", "XDG_CONFIG_HOME": nowhere}
    if "TEST_FRONT_ENDS" in os.environ:
        fixed["LMQ_FRONT_ENDS"] = os.environ["TEST_FRONT_ENDS"]
    return {**environment, **fixed, **(extra or {})}


def fetch(
    address: str,
    path: str,
    body: bytes | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 5.0,
    scheme: str = "http",
    opener: urllib.request.OpenerDirector = _direct,
) -> tuple[int, bytes]:
    """GET a path, or POST a body to it; HTTP errors are returned as answers.

    Raises:
        OSError: the node cannot be reached.
    """
    request = urllib.request.Request(f"{scheme}://{address}{path}", body, dict(headers or {}))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read()


class NodeProcess:
    """One node in its own process. Addresses are ``HOST:PORT`` texts.

    Attributes:
        forked: True if the process is forked from one that has imported what it needs.
        scheme, opener: how its HTTP port is asked: those of a node with TLS or tokens are other ones.
    """

    forked: ClassVar[bool] = False

    def __init__(
        self,
        directory: Path,
        name: str = "n1",
        *,
        raft: str | None = None,
        peers: Sequence[str] = (),
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.data_dir = directory / name
        self.log_path = directory / f"{name}.log"
        self.http = f"127.0.0.1:{ports.take()}"
        self.rpc = f"127.0.0.1:{ports.take()}"
        self.queued = f"127.0.0.1:{ports.take()}"
        self.sqs = f"127.0.0.1:{ports.take()}"
        self.raft = raft or f"127.0.0.1:{ports.take()}"
        self.peers = tuple(peers)
        self.arguments = tuple(arguments)
        self.environment = clean_environment(environment)
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.scheme, self.opener = "http", _direct

    def __repr__(self) -> str:
        return f"<node {self.name} http={self.http} rpc={self.rpc} raft={self.raft} pid={self.pid}>"

    @property
    def pid(self) -> int | None:
        """Return the process id, ``None`` while it is not running."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    @property
    def front_ends(self) -> list[int]:
        """Return the process ids of its front ends, which are its children."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    @property
    def running(self) -> bool:
        """Return whether the process exists (perhaps paused)."""
        return self.pid is not None

    def command(self) -> list[str]:
        """Return the command line of the node."""
        command = [*_LMQ, "start", "--name", self.name]
        command += ["--data-dir", str(self.data_dir), "--http", self.http, "--rpc", self.rpc, "--raft", self.raft]
        for option, address in (("--queued", self.queued), ("--sqs", self.sqs)):
            command += [option, address] if address else []
        if self.peers:
            command += ["--peers", ",".join(self.peers)]
        return [*command, *self.arguments]

    def open_log(self) -> IO[bytes]:
        """Open the file for the node's output."""
        return self.log_path.open("ab")

    def start(self, *, wait: bool = True) -> Self:
        """Start the process; with `wait` return when ``/readyz`` succeeds."""
        assert not self.running, f"{self.name} is running already"
        command = self.command()
        with self.open_log() as log:
            # A forked process cannot preload libraries.
            if self.forked and command[: len(_LMQ)] == _LMQ and "LD_PRELOAD" not in self.environment:
                self.process = fork_node(command[len(_LMQ) :], self.environment, log)
            else:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    start_new_session=True,
                )
        reaper.tell("+", self.process.pid)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until the node reports that it can serve requests.

        Raises:
            RuntimeError: it exited or did not become ready in time; the text has the end of its log.
        """

        def ready() -> bool:
            if not self.running:
                code = None if self.process is None else self.process.returncode
                raise RuntimeError(f"{self.name} exited with {code} instead of getting ready\n{self.log_tail()}")
            try:
                return self.fetch("/readyz")[0] == 200
            except (OSError, http.client.HTTPException):
                return False

        try:
            wait_for(ready, f"{self.name} ready", timeout_s)
        except TimeoutError as exc:
            raise RuntimeError(f"{exc}\n{self.log_tail()}") from exc

    def signal(self, number: int) -> None:
        """Send a signal to the process, which must be running."""
        assert self.process is not None
        assert self.running, f"{self.name} is not running"
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it has ended. A no-op if it has ended already."""
        if self.process is not None:
            self.process.kill()
            self.wait_exit()

    def end(self) -> None:
        """End the process, paused or not: at once, or in order so that `make coverage` gets its data."""
        if MEASURES_COVERAGE and self.process is not None and self.running:
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(COVERAGE_STOP_S)
        self.kill()

    def stop(self, timeout_s: float = READY_S) -> int:
        """Stop the process in order with SIGTERM. Return the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_exit(timeout_s)

    def wait_exit(self, timeout_s: float = READY_S) -> int:
        """Wait for the end of the process. Return the exit status, negative for a signal."""
        assert self.process is not None
        code = self.process.wait(timeout_s)
        reaper.tell("-", self.process.pid)
        return code

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): it keeps its connections but answers nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process."""
        self.signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Kill the process with SIGKILL and start it again in the same directory."""
        self.kill()
        return self.start()

    def fetch(self, path: str) -> tuple[int, bytes]:
        """GET a path; see `fetch`."""
        return fetch(self.http, path, scheme=self.scheme, opener=self.opener)

    def get_json(self, path: str) -> Any:
        """GET a path that answers 200 with JSON."""
        status, body = self.fetch(path)
        assert status == 200, f"{self.name}{path}: {status} {body[:300]!r}"
        return json.loads(body)

    def log(self) -> str:
        """Return everything the node wrote to standard output and error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        """Return the end of the log, for messages of failed tests."""
        lines = self.log().splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"--- log of {self.name} ({self.log_path}) ---", *lines])

    def __enter__(self) -> Self:
        return self.start() if not self.running else self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Cluster:
    """Nodes that were founded together; more can be added for joins. A context manager that starts and ends them."""

    def __init__(
        self,
        size: int = 3,
        *,
        directory: Path | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare `size` nodes below `directory` (default: a temporary directory that is removed with the cluster).

        Args:
            size: number of founding members.
            directory: parent of data directories and logs.
            arguments: further arguments of ``lmq start`` for every node.
            environment: further environment variables for every node.
        """
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="lmqcluster-test-"))
        self._arguments = arguments
        self._environment = environment
        raft = [f"127.0.0.1:{ports.take()}" for _ in range(size)]
        self.nodes = [self._node(f"n{i + 1}", raft=address, peers=raft) for i, address in enumerate(raft)]

    def _node(self, name: str, *, raft: str | None = None, peers: Sequence[str] = ()) -> NodeProcess:
        return NodeProcess(
            self.directory, name, raft=raft, peers=peers, arguments=self._arguments, environment=self._environment
        )

    def start(self) -> Self:
        """Start all nodes and wait until each is ready."""
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()
        return self

    def add_node(self, *, start: bool = True) -> NodeProcess:
        """Add a new node, a cluster of one, which ends with this cluster; the test decides about joining."""
        node = self._node(f"n{len(self.nodes) + 1}")
        self.nodes.append(node)
        return node.start() if start else node

    def __getitem__(self, index: int) -> NodeProcess:
        return self.nodes[index]

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self.nodes)

    @property
    def alive(self) -> list[NodeProcess]:
        """Return the nodes whose process is running."""
        return [node for node in self.nodes if node.running]

    @property
    def http_addresses(self) -> list[str]:
        """Return the HTTP addresses of all nodes."""
        return [node.http for node in self.nodes]

    @property
    def rpc_addresses(self) -> list[str]:
        """Return the MessagePack-RPC addresses of all nodes."""
        return [node.rpc for node in self.nodes]

    def leader(self, among: Sequence[NodeProcess] | None = None, timeout_s: float = READY_S) -> NodeProcess:
        """Return the node that reports to be leader in the highest term; wait for an election to end.

        Args:
            among: nodes to ask, default all running ones. Leave out paused nodes.
            timeout_s: maximum duration of an election.
        """

        def find() -> NodeProcess | None:
            claims = [(term, node) for node in among or self.alive if (term := self._term_if_leader(node)) is not None]
            return max(claims, key=lambda claim: claim[0])[1] if claims else None

        return wait_for(find, "a leader", timeout_s)

    @staticmethod
    def _term_if_leader(node: NodeProcess) -> int | None:
        try:
            status, body = node.fetch("/v1/cluster")
        except (OSError, http.client.HTTPException):
            return None
        if status != 200:
            return None
        cluster = json.loads(body)
        leads = cluster["leader"] is not None and cluster["leader"] == cluster["self"] and cluster["has_quorum"]
        return int(cluster["term"]) if leads else None

    def followers(self) -> list[NodeProcess]:
        """Return the running nodes other than the leader."""
        leader = self.leader()
        return [node for node in self.alive if node is not leader]

    def stop(self) -> None:
        """End every node at once, including paused ones, and remove the cluster's own temporary directory."""
        for node in self.nodes:
            if node.process is not None:
                node.process.send_signal(signal.SIGTERM if MEASURES_COVERAGE else signal.SIGKILL)
        for node in self.nodes:
            node.end()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
