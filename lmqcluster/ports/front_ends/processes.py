"""Starts the front-end processes of a node, and restarts those that end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from ..connection_limiter import ConnectionLimiter, ConnectionSlot
from .channel import Operation
from .link import Link
from .relayed_port import RelayedPort

__all__ = ["FrontEndSettings", "FrontEnds"]

log = structlog.get_logger("lmq.ports")

PROGRAM: Final = "lmqcluster.front_end"
RESTART_S, RESTART_S_MAX = 0.1, 5.0
"""Pause before a front end is started again. It doubles with each one that ends early."""
STEADY_S: Final = 10.0
"""A front end that runs this long did not end early."""
PING_S: Final = 2.0
PINGS_MAX: Final = 5
"""A front end that answers none of so many pings in a row hangs, and is killed."""
END_S: Final = 2.0
"""How long a front end may take to send its last answers."""


@dataclass(frozen=True, slots=True)
class FrontEndSettings:
    """The part of the node's configuration that a front end uses.

    Attributes:
        tls: the files of certificate, key and client authority; None without TLS.
        log_level, log_format: as in the configuration.
    """

    tls: tuple[Path, Path, Path | None] | None = None
    log_level: str = "info"
    log_format: str = "auto"


class FrontEnds:
    """The front-end processes of a node.

    Attributes:
        count: number of processes.
        failures: how many have ended by themselves.
    """

    def __init__(self, count: int, settings: FrontEndSettings) -> None:
        self.count = count
        self.failures = 0
        self._settings = settings
        self._ports: dict[int, RelayedPort] = {}
        self._links: set[Link] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    @property
    def running(self) -> int:
        """Return the number of processes that are connected."""
        return len(self._links)

    def relay(
        self,
        gate: ConnectionLimiter,
        factory: Callable[[ConnectionSlot], asyncio.BaseProtocol],
        sockets: Sequence[socket.socket],
        *,
        is_tls: bool,
    ) -> RelayedPort:
        """Add listening sockets from which front ends that are started later accept."""
        number = len(self._ports)
        port = self._ports[number] = RelayedPort(gate, factory, sockets, partial(self._retire, number), is_tls=is_tls)
        return port

    def _retire(self, number: int) -> None:
        for link in self._links:
            link.channel.send(Operation.RETIRE, number)

    def start(self) -> None:
        """Start the processes, after all ports were added."""
        self._keepers = [asyncio.get_running_loop().create_task(self._keep()) for _ in range(self.count)]

    def reload(self) -> None:
        """Tell the processes to read the certificate again."""
        for link in self._links:
            link.channel.send(Operation.RELOAD, 0)

    async def stop(self) -> None:
        """End the processes, after all connections were closed."""
        self._stopping.set()
        for link in list(self._links):
            link.channel.close()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=END_S)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self) -> None:
        """Start one process again whenever it ends."""
        loop = asyncio.get_running_loop()
        pause_s = RESTART_S
        while not self._stopping.is_set():
            began_s = loop.time()
            try:
                outcome = f"ended with status {await self._run()}"
            except Exception as exc:
                log.exception("a front-end process cannot be started")
                outcome = str(exc)
            if self._stopping.is_set():
                return
            pause_s = RESTART_S if loop.time() - began_s > STEADY_S else min(2 * pause_s, RESTART_S_MAX)
            log.error("a front-end process failed; its connections are closed", reason=outcome, restart_after_s=pause_s)
            self.failures += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _run(self) -> int:
        """Run one process until it ends; return its exit status."""
        link = Link(self._ports)
        ours, theirs = socket.socketpair()
        try:
            process = await self._spawn(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            await asyncio.get_running_loop().create_connection(lambda: link.channel, sock=ours)
            self._links.add(link)
            self._tell_missed(link)
            return await self._watched(link, process)
        finally:
            self._links.discard(link)
            link.channel.close()
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _watched(self, link: Link, process: Process) -> int:
        """Wait for the end of a process, which is killed if it hangs; return its exit status."""
        ended = asyncio.ensure_future(process.wait())
        try:
            while not (await asyncio.wait((ended,), timeout=PING_S))[0]:
                if link.pings >= PINGS_MAX:
                    log.error("a front-end process hangs and is killed", pid=process.pid)
                    process.kill()
                    return await ended
                link.ping()
            return ended.result()
        finally:
            ended.cancel()

    def _tell_missed(self, link: Link) -> None:
        """Tell a process what has happened since it was started."""
        for number, port in self._ports.items():
            if not port.sockets:
                link.channel.send(Operation.RETIRE, number)
        if self._stopping.is_set():
            link.channel.close()

    async def _spawn(self, channel: socket.socket) -> Process:
        descriptors = [channel.fileno()]
        ports: list[Any] = []
        for number, port in self._ports.items():
            own = [listening.fileno() for listening in port.sockets]
            descriptors += own
            ports.append([number, port.gate.port, own, port.is_tls])
        settings = {
            "node": os.getpid(),
            "channel": channel.fileno(),
            "ports": ports,
            "tls": None if self._settings.tls is None else [str(file or "") for file in self._settings.tls],
            "log_level": self._settings.log_level,
            "log_format": self._settings.log_format,
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            PROGRAM,
            json.dumps(settings),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=descriptors,
        )
