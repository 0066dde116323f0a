"""The thread that runs the node of an in-memory cluster."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future

from lmqcluster.client.transport import in_memory

from .clock import MovableLoop
from .node import MemoryNode

__all__ = ["NodeThread"]


class NodeThread:
    """A node on its own thread and event loop. The methods may be called from any other thread.

    Attributes:
        address: the address that clients of this process connect to.
    """

    def __init__(self) -> None:
        self._loop = MovableLoop()
        self._stop = asyncio.Event()
        started: Future[MemoryNode] = Future()
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, self._stop, started), name="lmqcluster-memory", daemon=True
        )
        self._thread.start()
        self._node = started.result()
        self.address = in_memory.publish(self._accept)
        self._node.address = str(self.address)

    def _accept(self, connected: socket.socket) -> None:
        self._loop.call_soon_threadsafe(self._node.accept, connected)

    def advance(self, seconds: float) -> None:
        """Advance time; see `MemoryNode.advance`."""
        asyncio.run_coroutine_threadsafe(self._node.advance(seconds), self._loop).result()

    def stop(self) -> None:
        """Close the connections, stop the node and end the thread."""
        in_memory.withdraw(self.address)
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def _serve(loop: MovableLoop, stop: asyncio.Event, started: Future[MemoryNode]) -> None:
    async def until_stopped() -> None:
        node = MemoryNode(loop)
        started.set_result(node)
        await stop.wait()
        await node.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            runner.run(until_stopped())
        except BaseException as exc:
            if not started.done():
                started.set_exception(exc)
                return
            raise
