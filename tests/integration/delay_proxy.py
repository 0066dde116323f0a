"""A TCP proxy that delivers every byte after a fixed delay, in its own thread, for the links between nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from .cluster import ports
from .server_thread import Accept, ServerThread

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
        self._delay_s = delay_s
        self._servers = ServerThread(
            {address: self._acceptor(target) for address, target in zip(self.addresses, targets, strict=True)}
        )

    def __enter__(self) -> Self:
        self._servers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._servers.__exit__(kind, value, trace)

    def _acceptor(self, target: str) -> Accept:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, port = target.rsplit(":", 1)
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            try:
                await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))
            finally:
                far_writer.transport.abort()

        return accepted

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes until the source ends; its end is delayed too."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, data = await queue.get()
                await asyncio.sleep(due_s - loop.time())
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
                queue.put_nowait((loop.time() + self._delay_s, data))
                if not data:
                    await delivery
                    return
        finally:
            delivery.cancel()
