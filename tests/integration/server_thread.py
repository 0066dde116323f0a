"""TCP servers of a test in a separate thread, for proxies that must work while the test waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

__all__ = ["Accept", "ServerThread"]

_START_S = 30.0

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves a connection until it ends or the task is cancelled."""


class ServerThread:
    """Listens at addresses, each with a function that serves its connections, until the block ends."""

    def __init__(self, accepts: Mapping[str, Accept]) -> None:
        self._accepts = accepts
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="servers")
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_S), "the servers did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        servers = []
        for address, accept in self._accepts.items():
            host, port = address.rsplit(":", 1)
            servers.append(await asyncio.start_server(self._serving(accept), host, int(port)))
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serving(self, accept: Accept) -> Accept:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                await accept(reader, writer)
            except (OSError, asyncio.CancelledError):
                # An end of the connection is gone, or the servers close; asyncio's streams would log it.
                return
            finally:
                writer.transport.abort()

        return serve
