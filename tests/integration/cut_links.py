"""A switch on every link between nodes of a test: while a node is cut off, all its traffic is dropped.

Each node dials the others through its own forwarders: the library that the drills preload into a node exchanges the
ports. It needs Linux and a C compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools

from chaos.injection.tools import interposer

from .cluster import Cluster, NodeProcess, ports

__all__ = ["CutLinks"]

_CHUNK_BYTES = 64 * 1024


def _port(node: NodeProcess) -> int:
    return int(node.raft.rpartition(":")[2])


class _Link:
    """The address that one node dials to reach another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = ports.take()
        self.is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(far)
            await asyncio.gather(self._carry(reader, far), self._carry(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            # A node has ended, or the test is over; both ends are closed below.
            pass
        finally:
            self._tasks.discard(task)
            for one in (writer, far):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if not self.is_cut:
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def mend(self) -> None:
        """Forward again; connections that have lost bytes are closed."""
        self.is_cut = False
        for one in list(self._writers):
            one.transport.abort()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class CutLinks:
    """All links of a cluster that has not been started yet."""

    def __init__(self, cluster: Cluster) -> None:
        self._links: dict[tuple[str, str], _Link] = {}
        for here, there in itertools.permutations(cluster.nodes, 2):
            self._links[here.name, there.name] = _Link(_port(there))
        for node in cluster.nodes:
            routes = (f"{link.target}={link.port}" for (here, _), link in self._links.items() if here == node.name)
            node.environment |= {"LD_PRELOAD": str(interposer()), "LMQ_DRILL_ROUTES": ",".join(routes)}

    async def start(self) -> None:
        """Accept connections, before the nodes start."""
        for link in self._links.values():
            await link.start()

    def cut_off(self, node: NodeProcess) -> None:
        """Drop all traffic between a node and the others."""
        for names, link in self._links.items():
            link.is_cut |= node.name in names

    def mend(self) -> None:
        """Forward everything again."""
        for link in self._links.values():
            if link.is_cut:
                link.mend()

    async def stop(self) -> None:
        """Close all."""
        with contextlib.suppress(asyncio.CancelledError):
            for link in self._links.values():
                await link.stop()
