"""A TCP proxy that delivers every byte after a fixed delay, in its own thread, for the links between nodes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from .cluster import ports

__all__ = ["DelayProxy"]

CHUNK_BYTES = 64 * 1024


class DelayProxy:
    """Listens on `addresses[i]` for connections to ``targets[i]``; both directions are delayed alike.

    Bandwidth is not limited: bytes that arrive together leave together, `delay_s` later.

    Attributes:
        carried_bytes: number of bytes received so far in both directions.
    """

    def __init__(self, targets: Sequence[str], delay_s: float) -> None:
        self.addresses = [f"127.0.0.1:{ports.take()}" for _ in targets]
        self.carried_bytes = 0
        self._targets = list(targets)
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="delay proxy")
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        servers = []
        for address, target in zip(self.addresses, self._targets, strict=True):
            host, port = address.rsplit(":", 1)
            servers.append(await asyncio.start_server(self._acceptor(target), host, int(port)))
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _acceptor(self, target: str):
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            host, port = target.rsplit(":", 1)
            try:
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
            except OSError:
                writer.transport.abort()
                return
            try:
                await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
            except asyncio.CancelledError:
                # The proxy is closing; asyncio's streams would log a cancelled task.
                return
            finally:
                writer.transport.abort()
                far_writer.transport.abort()

        return accepted

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes until the source ends; its end is delayed too."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, data = await queue.get()
                await asyncio.sleep(due_s - self._loop.time())
                if not data:
                    writer.transport.abort()
                    return
                writer.write(data)

        delivery = asyncio.ensure_future(deliver())
        try:
            while True:
                try:
                    data = await reader.read(CHUNK_BYTES)
                except OSError:
                    data = b""
                self.carried_bytes += len(data)
                queue.put_nowait((self._loop.time() + self._delay_s, data))
                if not data:
                    await delivery
                    return
        finally:
            delivery.cancel()
