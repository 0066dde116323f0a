"""A cluster on this machine for ``lmq dev``: starts the nodes, merges their logs, reports deaths, stops all."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.kestrel import has_thrift
from lmqcluster.node.config.values import memory_of_machine
from lmqcluster.wire.address import Address

from ..shared.certificates import write_new
from ..shared.connection.api import Api
from ..shared.data_folder import check_data_dir
from ..shared.errors import ExitCode
from ..shared.output import plural
from .earlier_cluster import check_addresses
from .ports import check_free

__all__ = ["DevCluster", "DevSettings"]

HOST: Final = "127.0.0.1"
PORTS: Final = {
    "http": 9980,
    "rpc": 18800,
    "raft": 19980,
    "queued": 3333,
    "sqs": 9324,
    "memcache": 22133,
    "text": 2222,
} | ({"thrift": 2229} if has_thrift() else {})
PORT_STEP: Final = 10
OFFSET_STEP: Final = 100
READY_S: Final = 30.0
STOP_S: Final = 15.0
RESPAWN_DELAY_S: Final = 1.0
_POLL_S: Final = 0.05
_WIDE: Final = 200
_LINE_BYTES_MAX: Final = 64 * 1024
_HELD_LINES_MAX: Final = 1000
_TITLES: Final = {kind: kind for kind in PORTS} | {
    "http": "HTTP",
    "rpc": "MessagePack-RPC",
    "raft": "Raft",
    "sqs": "SQS",
}
_COLOURS: Final = (
    "cyan",
    "magenta",
    "yellow",
    "green",
    "blue",
    "bright_cyan",
    "bright_magenta",
    "bright_yellow",
    "red",
)
# Settings that a development node gets from here, never from the environment.
_OWN_SETTINGS: Final = (
    "CONFIG",
    "NAME",
    "DATA_DIR",
    "PEERS",
    "HTTP",
    "RPC",
    "RAFT",
    "QUEUED",
    "SQS",
    "MEMCACHE",
    "TEXT",
    "THRIFT",
    "ADVERTISE_RAFT",
)


_SECRETS: Final = ("LMQ_CLUSTER_SECRET", "LMQ_CLUSTER_SECRET_FILE")
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class DevSettings:
    """The options of ``lmq dev``; `offset` is added to every port."""

    nodes: int
    data_dir: Path
    offset: int
    respawn: bool
    event_journal: Path | None = None
    front_ends: int = 0


class DevNode:
    """A child process of one node: its addresses, and whether it ended unexpectedly."""

    def __init__(self, index: int, settings: DevSettings) -> None:
        shift = PORT_STEP * index + settings.offset
        self.name = f"n{index + 1}"
        self.colour = _COLOURS[index % len(_COLOURS)]
        self.addresses = {kind: Address(HOST, port + shift) for kind, port in PORTS.items()}
        self.data_dir = settings.data_dir / self.name
        self.event_journal = settings.event_journal
        self.front_ends = settings.front_ends
        self.secret_file: Path | None = None
        self.process: Process | None = None
        self.ended = False

    def arguments(self, peers: str) -> list[str]:
        """Return the arguments of ``lmq`` that run this node."""
        words = ["start", "--name", self.name, "--data-dir", str(self.data_dir)]
        for kind, address in self.addresses.items():
            words += [f"--{kind}", str(address)]
        if self.event_journal is not None:
            words += ["--event-journal", str(self.event_journal)]
        if self.front_ends:
            words += ["--front-ends", str(self.front_ends)]
        if self.secret_file is not None:
            words += ["--cluster-secret-file", str(self.secret_file)]
        return [*words, "--peers", peers]


class DevCluster:
    """Runs the children until Ctrl-C, SIGTERM or the death of the last one."""

    def __init__(self, settings: DevSettings) -> None:
        self._settings = settings
        self._nodes = [DevNode(index, settings) for index in range(settings.nodes)]
        self._peers = ",".join(str(node.addresses["raft"]) for node in self._nodes)
        self._stopping = asyncio.Event()
        self._colour = None if not os.environ.get("NO_COLOR") else False
        # Log lines of starting nodes, held back until all are ready or one fails, so that the table of addresses comes last.
        self._held: list[str] | None = []

    async def run(self) -> int:
        """Run the cluster; return the exit status.

        Raises:
            CliError, ConfigError: a port or the data is in use, or the data is of a cluster at other addresses; no node was
                started.
        """
        for node in self._nodes:
            if node.data_dir.is_dir():
                check_data_dir(node.data_dir, f"stop it, or {self._other_ports()}")
        check_addresses({node.data_dir: node.addresses["raft"] for node in self._nodes})
        for node in self._nodes:
            for kind, address in node.addresses.items():
                check_free(address, f"{_TITLES[kind]} of {node.name}", self._other_ports())
        if not any(os.environ.get(name) for name in _SECRETS):
            secret_file = _secret_file(self._settings.data_dir)
            for node in self._nodes:
                node.secret_file = secret_file
        self._say(f"starting {plural(len(self._nodes), 'node')}, data in {self._settings.data_dir} ...")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        watchers = [asyncio.create_task(self._watch(node)) for node in self._nodes]
        welcome = asyncio.create_task(self._welcome())
        stopping = asyncio.create_task(self._stopping.wait())
        everyone = asyncio.gather(*watchers)
        either: list[asyncio.Future[Any]] = [everyone, stopping]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        by_request = self._stopping.is_set()
        self._stopping.set()
        welcome.cancel()
        stopping.cancel()
        await asyncio.gather(welcome, stopping, return_exceptions=True)
        self._release()
        await self._stop(everyone)
        if by_request:
            self._say("All nodes have stopped.")
            return ExitCode.DONE
        self._say("No node is running any more.", error=True)
        return ExitCode.UNAVAILABLE

    def _other_ports(self) -> str:
        """Return the advice for a port or data that are in use."""
        shift = f"--offset {self._settings.offset + OFFSET_STEP}"
        folder = self._settings.data_dir
        if not any(node.data_dir.exists() for node in self._nodes):
            return f"shift all ports with {shift}"
        return f"start another cluster with {shift} --data-dir {folder.with_name(f'{folder.name}-2')}"

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._say("Killing all nodes.", error=True)
            self._signal_all(signal.SIGKILL)
            return
        self._say("Stopping all nodes; press Ctrl-C again to kill them.")
        self._stopping.set()

    def _signal_all(self, number: int) -> None:
        for node in self._nodes:
            if node.process is not None and node.process.returncode is None:
                node.process.send_signal(number)

    async def _stop(self, everyone: asyncio.Future[list[None]]) -> None:
        self._signal_all(signal.SIGTERM)
        done, _ = await asyncio.wait([everyone], timeout=STOP_S)
        if not done:
            self._say(f"Some nodes did not stop within {STOP_S:.0f} s; killing them.", error=True)
            self._signal_all(signal.SIGKILL)
        await everyone

    async def _watch(self, node: DevNode) -> None:
        """Run one node, and restart it if so configured, until the cluster stops."""
        while not self._stopping.is_set():
            process = await self._spawn(node)
            if self._stopping.is_set():
                process.terminate()
            if process.stdout is not None:
                await self._copy_log(node, process.stdout)
            code = await process.wait()
            node.process = None
            if self._stopping.is_set():
                return
            node.ended = True
            self._report_death(node, code)
            if not self._settings.respawn:
                return
            # The delay keeps a node that cannot start from flooding the screen; a stop ends it at once.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), RESPAWN_DELAY_S)

    async def _spawn(self, node: DevNode) -> Process:
        own = {f"LMQ_{name}" for name in _OWN_SETTINGS}
        environment = {key: value for key, value in os.environ.items() if key not in own}
        environment.setdefault("LMQ_MEMORY_BYTES_MAX", str(memory_of_machine() // 2 // len(self._nodes)))
        environment |= {"LMQ_LOG_FORMAT": "human", "PYTHONUNBUFFERED": "1"}
        # A child stops when its standard input ends, however this process ends. In its own session, a child does not
        # also receive the terminal's Ctrl-C.
        node.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            str(__package__),
            *node.arguments(self._peers),
            "--stop-with-parent",
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            env=environment,
            start_new_session=True,
        )
        return node.process

    async def _copy_log(self, node: DevNode, output: asyncio.StreamReader) -> None:
        prefix = click.style(f"{node.name} | ", fg=node.colour)
        rest = b""
        while chunk := await output.read(_LINE_BYTES_MAX):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._log(prefix + line.decode(errors="replace"))
        if rest:
            self._log(prefix + rest.decode(errors="replace"))
        # The node has ended, and its log may say why.
        self._release()

    def _log(self, line: str) -> None:
        if self._held is None:
            click.echo(line, color=self._colour)
            return
        self._held.append(line)
        if len(self._held) > _HELD_LINES_MAX:
            self._release()

    def _release(self) -> None:
        """Print the held lines, and every further line at once."""
        held, self._held = self._held, None
        for line in held or ():
            click.echo(line, color=self._colour)

    def _report_death(self, node: DevNode, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        alive = sum(1 for other in self._nodes if other.process is not None)
        quorum = len(self._nodes) // 2 + 1
        state = "the cluster continues" if alive >= quorum else f"no quorum: requests fail until {quorum} are running"
        self._say(f"{node.name} {how}. {alive} of {len(self._nodes)} nodes are running: {state}.", error=True)
        # A node that ends by itself has logged the reason, for which the same start would fail again.
        if code < 0 and not self._settings.respawn:
            command = f"{_command_for('lmq')} {shlex.join(node.arguments(self._peers))}"
            self._say(f"To restart it: {command}", error=True)

    async def _welcome(self) -> None:
        """Print where everything listens, once the nodes are ready. Say so once if that takes long."""
        deadline = asyncio.get_running_loop().time() + READY_S
        waiting = list(self._nodes)
        is_late = False
        while waiting:
            api = Api(str(waiting[0].addresses["http"]), timeout_s=1.0)
            if waiting[0].ended or await asyncio.to_thread(api.ready):
                waiting.pop(0)
            elif not is_late and asyncio.get_running_loop().time() > deadline:
                is_late = True
                self._release()
                self._say(f"{waiting[0].name} is not ready after {READY_S:.0f} s; check its log above.", error=True)
            else:
                await asyncio.sleep(_POLL_S)
        self._release()
        if not all(node.ended for node in self._nodes):
            click.echo(self._banner())

    def _banner(self) -> str:
        first, last = self._nodes[0].addresses["http"], self._nodes[-1].addresses["http"]
        option = "" if self._settings.offset == 0 else f" --node {first}"
        lines = [
            "",
            f"The cluster is ready: {plural(len(self._nodes), 'node')}, data in {self._settings.data_dir}.",
            "",
        ]
        rows = [["", *_TITLES.values()]]
        rows += [[node.name, *(str(node.addresses[kind]) for kind in _TITLES)] for node in self._nodes]
        lines += _table(rows, shutil.get_terminal_size((_WIDE, 24)).columns)
        lines += [
            "",
            f"Console: http://{first}/console/",
            "",
            "Try, in another terminal:",
            f"  curl -d hello http://{first}/messages/greetings",
            f"  curl -i 'http://{last}/messages/greetings?t=5'",
            f"  {_command_for('lmq-admin')}{option} status",
            "",
            f"Ctrl-C stops all nodes. Their data stays in {self._settings.data_dir} for the next start.",
            "",
        ]
        return "\n".join(lines)

    @staticmethod
    def _say(text: str, *, error: bool = False) -> None:
        click.echo(f"lmq dev: {text}", err=error)


def _table(rows: list[list[str]], width: int) -> list[str]:
    """Return the lines of a table; exchange its rows and columns if it is too wide."""
    for cells in (rows, [list(column) for column in zip(*rows, strict=True)]):
        sizes = [max(map(len, column)) + 2 for column in zip(*cells, strict=True)]
        if sum(sizes) <= width:
            break
    return ["  " + "".join(f"{cell:<{size}}" for cell, size in zip(row, sizes, strict=True)).rstrip() for row in cells]


def _secret_file(data_dir: Path) -> Path:
    """Return the file with the shared secret of the nodes; create it at the first start. Without it, tokens would not
    be enforced.

    Raises:
        ConfigError: it cannot be written.
    """
    path = data_dir / "cluster-secret"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigError(f"cannot use the data directory {data_dir}: {exc.strerror}") from exc
    if not path.exists():
        write_new(path, f"{secrets.token_hex(_SECRET_BYTES)}\n".encode(), secret=True)
    return path


def _command_for(program: str) -> str:
    """Return the command line for one of the programs: its name if the shell finds it, else its path."""
    if shutil.which(program):
        return program
    path = Path(sys.executable).with_name(program)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
