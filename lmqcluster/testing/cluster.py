"""`MemoryCluster`: an in-memory cluster and its clients."""

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
    """A cluster of one node in this process, for tests: no files, no ports, ready in milliseconds.

    ``with MemoryCluster() as cluster:`` closes it and the clients that `client` created. Blocking and asyncio clients
    can use it from any thread and event loop of the process.

    Time runs normally; `advance` moves it forward, so that a test need not wait until a lease expires.

    Attributes:
        nodes: its address, for ``Client(cluster.nodes)``; valid in this process only.
    """

    def __init__(self) -> None:
        """Start the cluster; it is ready at once."""
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
        """Return a client of the cluster, which is closed with it. The options are those of `Client`."""
        client = Client(self.nodes, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Unpack[ClientOptions]) -> AsyncClient:
        """Return an asyncio client, to be used with ``async with``. The options are those of `AsyncClient`."""
        return AsyncClient(self.nodes, **options)

    def advance(self, seconds: float) -> None:
        """Advance the cluster's time by `seconds`: leases, delays, keys and waiting pulls expire as if that time had
        passed.

        All of that has happened, in order, when this returns. Concurrent requests of clients may run before or after
        it.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"time can be advanced by 0 or more seconds, not by {seconds!r}")
        self._node.advance(seconds)

    def close(self) -> None:
        """Close the clients that `client` created, then stop the cluster and discard its messages. Idempotent."""
        clients, self._clients = self._clients, []
        try:
            for client in clients:
                client.close()
        finally:
            self._end()
