"""The server process: a node with its ports, signals and the pid file."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog

from .node.config.config import NodeConfig
from .node.node import Node
from .node.process.garbage import GarbageCollection
from .node.process.pauses import PauseWatch
from .node.process.service_manager import ServiceManager
from .ports.listener import ListenError
from .protocols.http import LmqHttpPort
from .protocols.kestrel.port import Factory, KestrelPort
from .protocols.kestrel.status import ServerStatus
from .protocols.memcache import MemcacheConnection
from .protocols.msgpack_rpc import RpcPort
from .protocols.queued import QueuedPort
from .protocols.sqs import SqsPort
from .protocols.text import TextConnection
from .replication.offline.salvage import is_alone
from .replication.storage.io.disk import DamagedFileError, Folder
from .replication.storage.node_storage import DurabilityError

__all__ = ["Port", "ports_of", "serve"]

log = structlog.get_logger("lmq.server")

EXIT_OK, EXIT_DAMAGED, EXIT_UNAVAILABLE, EXIT_SOFTWARE, EXIT_IO, EXIT_CONFIG = 0, 65, 69, 70, 74, 78
PASSING_ERRORS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
)
"""Errors of files at the start that a later start may not meet."""
OUTCOME_S, GRACE_S = 3.0, 4.0
"""How long a stopping node waits for the outcome of accepted requests, and for clients to read their answers."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
REUSED_BYTES_MAX = 128 * 1024 * 1024
"""Larger blocks are returned to the system as soon as they are free."""
FILES = 32_768
SWITCH_INTERVAL_S = 0.0005
"""How long the event loop may hold the interpreter lock while the thread that syncs the log waits for it."""


IGNORED_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that would otherwise end the process; SIGHUP is ignored only until the node has started."""


class Port(Protocol):
    """A port for clients."""

    async def start(self) -> None:
        """Start to listen."""

    def retire(self) -> None:
        """Stop accepting connections."""

    async def stop(self, grace_s: float) -> None:
        """Answer requests in progress for up to `grace_s`, then close the connections."""


async def serve(config: NodeConfig) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status.

    A second signal kills the process. A replication error ends it with status 70: restarting is safe.
    """
    _tune_allocator()
    GarbageCollection.prepare()
    _raise_file_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    manager = ServiceManager()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stop, loop)
    for number in IGNORED_SIGNALS:
        loop.add_signal_handler(number, _ignored, number)
    ports: list[Port] = []
    try:
        node = Node(config)
        await node.start()
        ports = ports_of(node)
        for port in ports:
            await port.start()
        if node.front_ends is not None:
            node.front_ends.start()
        pid_file = _write_pid(config.data_dir)
    except DamagedFileError as exc:
        log.critical(
            "cannot start: the data directory is damaged",
            file=exc.file,
            offset=exc.offset,
            reason=exc.reason,
            repair=f"lmq repair --data-dir {config.data_dir}{_repair_flag(config)}",
        )
        return EXIT_DAMAGED
    except (OSError, DurabilityError, ValueError) as exc:
        log.critical("cannot start", reason=str(exc))
        return _status_of(exc)
    loop.add_signal_handler(signal.SIGHUP, _reload, node, manager)
    log.info(
        "started",
        name=config.name,
        id=node.id,
        http=str(config.http),
        rpc=str(config.rpc),
        raft=str(config.raft),
        queued=str(config.queued),
        sqs=str(config.sqs),
        **{protocol: str(address) for protocol, address in config.kestrel_ports().items()},
    )
    manager.ready()
    reports = asyncio.ensure_future(manager.report(partial(_described, node)))
    watches = [reports, *_watches(node)]
    try:
        return await _run_until(stop, node)
    finally:
        for watch in watches:
            watch.cancel()
        manager.stopping()
        await _shut_down(node, ports, pid_file)


def _status_of(error: Exception) -> int:
    """Return the exit status for an error at the start: that of a wrong configuration only if a later start would fail too."""
    if isinstance(error, ListenError) and error.errno != errno.EACCES:
        return EXIT_UNAVAILABLE
    return EXIT_IO if isinstance(error, OSError) and error.errno in PASSING_ERRORS else EXIT_CONFIG


def _watches(node: Node) -> list[asyncio.Future[None]]:
    """Start the watches over this process; they run until cancelled."""
    watches: list[asyncio.Future[None]] = [
        asyncio.ensure_future(GarbageCollection(node.accounted_bytes, node.step_aside).keep()),
        asyncio.ensure_future(node.credentials.watch()),
    ]
    if node.config.pause_log_milliseconds:
        watches.append(asyncio.ensure_future(PauseWatch(node.config.pause_log_milliseconds / 1000).keep()))
    return watches


def ports_of(node: Node) -> list[Port]:
    """Return the ports that the node's configuration enables."""
    config = node.config
    ports: list[Port] = []
    if config.rpc is not None:
        ports.append(RpcPort(node, config.rpc.host, config.rpc.port))
    if config.http is not None:
        ports.append(LmqHttpPort(node, config.http.host, config.http.port))
    if config.queued is not None:
        ports.append(QueuedPort(node, config.queued.host, config.queued.port))
    if config.sqs is not None:
        ports.append(SqsPort(node, config.sqs.host, config.sqs.port))
    return ports + _kestrel_ports(node)


def _kestrel_ports(node: Node) -> list[Port]:
    """Return the enabled ports for Kestrel's clients."""
    status = ServerStatus(node.config.data_dir / "kestrel-status")
    node.observed.kestrel.status = lambda: status.present.name
    return [
        KestrelPort(protocol, node, address, _kestrel_connection(protocol), status)
        for protocol, address in node.config.kestrel_ports().items()
    ]


def _kestrel_connection(protocol: str) -> Factory:
    """Return the connection class of one of Kestrel's protocols."""
    if protocol == "thrift":
        # Its library is installed only where it is wanted.
        from .protocols.thrift import ThriftConnection  # noqa: PLC0415

        return ThriftConnection
    return TextConnection if protocol == "text" else MemcacheConnection


def _write_pid(folder: Path) -> Path:
    """Write the pid file atomically; replace one that a killed process left behind."""
    pid_file = folder / "lmq.pid"
    unfinished = folder / "lmq.pid.new"
    unfinished.write_text(f"{os.getpid()}\n", encoding="ascii")
    return unfinished.replace(pid_file)


def _repair_flag(config: NodeConfig) -> str:
    """Return the further option that `lmq repair` needs: a node without peers has none to copy from."""
    try:
        return " --alone" if is_alone(lambda name: Folder(config.data_dir / name)) else ""
    except (OSError, LookupError, DamagedFileError):
        return ""


def _signalled(stop: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    stop.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def _ignored(number: signal.Signals) -> None:
    if number is signal.SIGHUP:
        log.warning("signal ignored", signal=number.name, reason="the node is starting")
    else:
        log.warning("signal ignored", signal=number.name, reason="it means nothing to a node")


async def _run_until(stop: asyncio.Event, node: Node) -> int:
    stopped = asyncio.ensure_future(stop.wait())
    either: list[asyncio.Future[Any]] = [stopped, node.failure]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if node.failure.done():
        stopped.cancel()
        log.critical(
            "the node stops because replication failed; restarting it is safe", reason=str(node.failure.result())
        )
        return EXIT_SOFTWARE
    log.info("stopping")
    return EXIT_OK


def _reload(node: Node, manager: ServiceManager) -> None:
    manager.reloading()
    node.credentials.reload()
    manager.ready()


def _described(node: Node) -> str:
    status = node.replica.status()
    reached = sum(1 for one in status.members if status.reaches(one))
    leader = f"{status.name_of(status.leader)} leads in term {status.term}" if status.leader else "no leader is known"
    return f"{leader}; {reached} of {len(status.members)} nodes can be reached"


async def _shut_down(node: Node, ports: list[Port], pid_file: Path) -> None:
    for port in ports:
        port.retire()
    node.retire()
    await asyncio.gather(node.settle(OUTCOME_S), *(port.stop(GRACE_S) for port in ports))
    if node.front_ends is not None:
        await node.front_ends.stop()
    await node.stop()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(pid_file)  # noqa: PTH108 - one call at the very end
    log.info("stopped")


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to what two full client ports need; the usual 1,024 is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _tune_allocator() -> None:
    """Keep freed blocks of up to 128 MiB for reuse, as glibc does with blocks of up to 32 MiB.

    glibc returns larger blocks to the system at once, and touching 64 MiB for the first time takes longer than copying
    them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Other libraries than glibc have no such function, or do not know these parameters.
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, REUSED_BYTES_MAX)
        mallopt(_M_TRIM_THRESHOLD, REUSED_BYTES_MAX // 2)
