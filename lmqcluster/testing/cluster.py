"""`MemoryCluster`: a cluster in memory, and the clients that were made for it."""

from __future__ import annotations

import math
import weakref
from types import TracebackType
from typing import Self, Unpack

from lmqcluster.client import AsyncClient, Client, ClientOptions

from .logs import log_through_logging
from .node_thread import NodeThread

__all__ = ["MemoryCluster"]


class MemoryCluster:
    """A cluster of one node in this process, for tests: without files and ports, ready in milliseconds.

    ``with MemoryCluster() as cluster:`` ends it, and the clients that `client` has made. Clients of both kinds can use it from
    any thread and event loop of the process.

    Time runs as everywhere else, and `advance` moves it forward, so that a test need not sleep until a lease ends.

    Attributes:
        nodes: its address, for ``Client(cluster.nodes)``. It is known in this process only.
    """

    def __init__(self) -> None:
        """Start the cluster; it can be used at once."""
        log_through_logging()
        self._node = NodeThread()
        self._clients: list[Client] = []
        self.nodes = str(self._node.address)
        # A cluster that is dropped without `close` must not leave its thread behind.
        self._end = weakref.finalize(self, self._node.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """A client of the cluster, which is closed with it. The options are those of `Client`."""
        client = Client(self.nodes, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """A client for asyncio, to be used with ``async with``. The options are those of `AsyncClient`."""
        return AsyncClient(self.nodes, **options)

    def advance(self, seconds: float) -> None:
        """Move time forward, for the cluster alone: leases, delays, keys and waiting pulls end as if so much time had passed.

        When this returns, all of that has happened, in its order. What clients send meanwhile may come before or after it.

        Raises:
            ValueError: `seconds` is negative or no number of seconds.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time can be moved forward by 0 seconds or more, not by {seconds!r}")
        self._node.advance(seconds)

    def close(self) -> None:
        """Close the clients that `client` has made, then end the cluster and forget its messages. May be called again."""
        clients, self._clients = self._clients, []
        try:
            for client in clients:
                client.close()
        finally:
            self._end()
