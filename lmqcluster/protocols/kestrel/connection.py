"""A connection of a Kestrel client. Requests are carried out one after another, in order of arrival."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Awaitable, Callable

import structlog

from ...node.access.clients import client_of
from ...node.gates import ARRIVAL_BYTES_PER_S
from ...node.process.fair_slices import gathered
from ...ports import HALF_CLOSED_S, ConnectionSlot, Ending, keep_alive, may_be_half_closed, wait_for_acknowledgement
from ...wire.errors import LmqError, forget_frames
from .connection_reads import HeldReads
from .port_context import PortContext
from .queues import KestrelQueues
from .request_buffer import RequestBuffer

__all__ = ["ClosedError", "KestrelConnection"]

log = structlog.get_logger("lmq.kestrel")
requests = structlog.get_logger("lmq.requests")

READ_AHEAD_BYTES = 256 * 1024
"""Number of bytes of further requests that are read while one is carried out."""
UNREAD_S_MAX = 60.0
LINGER_S = 10.0


Settle = Callable[[], Awaitable[object]]


class ClosedError(Exception):
    """Request to close the connection after all written data has been sent."""


class KestrelConnection(asyncio.Protocol, ABC):
    """A connection of a client. Subclasses carry out the requests.

    Attributes:
        counts_bytes: whether its traffic counts in Kestrel's statistics.
        place: its slot in the limits on connections and memory.
        held: its open reads.
        queues: the queues as its client may use them; None before the first request.
        gathers: whether an answer holds items back to collect more; if the client may be gone, the items return.
        buffer: received data that is not carried out yet.
        pieces: data behind `buffer` that belongs to an incomplete large request.
        wanted: number of bytes that must have arrived before `buffer` is parsed again.
        on_made: called when the connection is established.
        on_lost: called when the connection is closed.
    """

    counts_bytes = True
    on_made: Callable[[KestrelConnection], None]
    on_lost: Callable[[KestrelConnection], None]

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        self.port = port
        self.place = place
        self.held = HeldReads(port.node.open_reads)
        self.queues: KestrelQueues | None = None
        self.buffer = bytearray()
        self.pieces = RequestBuffer()
        self.wanted = 1
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._worker: asyncio.Task[None] | None = None
        self._more: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        # Timer that ends a half-closed connection whose answers take too long; None while the client still sends.
        self._end: asyncio.TimerHandle | None = None
        # Callbacks for items that were sent to a half-closed client: one for arrival, one for loss.
        self._sent: list[tuple[Settle | None, Settle | None]] = []
        self.gathers = False
        self._paused = False
        self._closing = False
        self._closed = False
        self._heard_s = self._begun_s = self.loop.time()
        self._unread = 0
        self._unread_s = 0.0
        self._answer_bytes = 0

    @abstractmethod
    async def serve(self) -> None:
        """Carry out all complete requests in `buffer`, and set `wanted` above the size of the rest.

        Raises:
            ClosedError: the client ends the connection, or cannot be served any more.
        """

    @abstractmethod
    def refuse(self, error: LmqError) -> None:
        """Send the client the reason why it cannot be served; the connection ends."""

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        keep_alive(transport)
        self.on_made(self)
        self._worker = self.loop.create_task(self._work())

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._heard_s = self.loop.time()
        if not self.arrived_bytes:
            self._begun_s = self._heard_s
        if self.counts_bytes:
            self.port.counts.bytes_read += len(data)
        self.keep(data)
        arrived = self.arrived_bytes
        if arrived > READ_AHEAD_BYTES and not self._account():
            error = LmqError("overloaded", "unfinished requests fill the node's buffers; try again later")
            self.place.note(Ending.MEMORY, error.message)
            self.fail(error)
            return
        if arrived > max(self.wanted, READ_AHEAD_BYTES) and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._look()

    @property
    def is_waiting(self) -> bool:
        """Return whether no request is being carried out because none is complete."""
        return self._more is not None

    @property
    def arrived_bytes(self) -> int:
        """Return the number of bytes that have arrived and are not carried out yet."""
        return len(self.buffer) + self.pieces.size

    def keep(self, data: bytes) -> None:
        """Buffer received data. Only the start of a large request is parsed before it is complete."""
        size = len(self.buffer)
        if self.pieces.size or READ_AHEAD_BYTES < size < self.wanted - len(data):
            self.pieces.add(data)
        else:
            self.buffer += data

    def _join(self) -> None:
        if self.pieces.size:
            self.buffer = self.pieces.take(self.buffer)

    def _look(self) -> None:
        """Wake the worker if it waits and enough data has arrived."""
        more = self._more
        if more is not None and not more.done() and self.arrived_bytes >= self.wanted:
            more.set_result(None)

    def eof_received(self) -> bool:
        """Handle the end of input: the client has half-closed the connection or is gone, which look the same.

        Requests that arrived before are still answered, because scripts close their side and expect that. Return
        whether the connection stays open until then.
        """
        is_busy = self._more is None or self._more.done()
        is_busy = is_busy and not self.gathers
        if self._end is None and is_busy and not self._closing and may_be_half_closed(self._transport):
            self._end = self.loop.call_later(HALF_CLOSED_S, self._transport.abort)
        return self.has_stopped

    @property
    def has_stopped(self) -> bool:
        """Return whether the client sends no more or is gone."""
        return self._end is not None

    def settle_when_sent(self, confirm: Settle | None, lost: Settle | None = None) -> None:
        """Settle the items of the next answer after it is sent, because the client may be gone.

        Args:
            confirm: called if the client's machine has acknowledged the items.
            lost: called otherwise; the connection's open reads are aborted anyway.
        """
        self._sent.append((confirm, lost))

    async def _settle_sent(self) -> None:
        sent, self._sent = self._sent, []
        has_arrived = await wait_for_acknowledgement(self._transport)
        for settle in (confirm if has_arrived else lost for confirm, lost in sent):
            if settle is not None:
                await settle()
        if not has_arrived:
            self._transport.abort()
            raise ClosedError

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._closed = self._closing = True
        if self._end is not None:
            self._end.cancel()
        # Buffered requests are dropped. Dropping the task, which refers to the connection, breaks the reference cycle.
        self.buffer, self.pieces, self._sent = bytearray(), RequestBuffer(), []
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        # Confirmations in flight precede this abort in the log.
        self.held.abort_all()
        self.place.release()
        self.on_lost(self)
        self._idle.set()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # --- work -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while not self._closing:
                if self.arrived_bytes < self.wanted:
                    await self._wait_for_more()
                self._join()
                self._idle.clear()
                self._check()
                await self.serve()
                await self.flushed()
                self._idle.set()
                self._begun_s = self.loop.time()
                self._account()
                self._resume()
        except ClosedError:
            self.close()
        except LmqError as exc:
            self.fail(exc)
            forget_frames(exc)
        except Exception:
            # A bug must not leave the connection open without an answer.
            log.exception("request failed", protocol=self.port.protocol)
            self.fail(LmqError("internal", "the node met a bug; its log has the details"))

    def fail(self, error: LmqError) -> None:
        """Send the client the reason why it cannot be served, and end the connection."""
        self.refuse(error)
        self.close()

    async def _wait_for_more(self) -> None:
        if self.has_stopped:
            raise ClosedError
        self._resume()
        self._more = self.loop.create_future()
        try:
            await self._more
        finally:
            self._more = None

    def _resume(self) -> None:
        if self._paused and not self._closing and self.arrived_bytes <= max(self.wanted, READ_AHEAD_BYTES):
            self._paused = False
            self._transport.resume_reading()

    def _check(self) -> None:
        """Identify the client on its first request and admit it."""
        if self.queues is None:
            principal = self.port.principal(self.place.address)
            self.queues = KestrelQueues(self.port.node, self.port.status, principal)
            self.place.admit()

    def charge(self) -> None:
        """Count one request against the client's rate limit.

        Raises:
            LmqError: ``throttled``.
        """
        if self.port.is_rated and self.place.client.requests.take(self.loop.time()):
            raise LmqError("throttled", "this address sends more requests a second than it may; wait a little")

    async def noted(self, operation: str, queue: bytes, result: Awaitable[None], count: int = 1) -> None:
        """Carry out one request, or several equal ones together, and record the outcome."""
        since_s, code = self.loop.time(), "ok"
        try:
            await result
        except LmqError as exc:
            code = exc.code
            raise
        finally:
            self.note(operation, queue, code, since_s, count)

    def note(self, operation: str, queue: bytes, code: str, since_s: float, count: int = 1) -> None:
        """Record the outcome of `count` requests."""
        duration_s = self.loop.time() - since_s
        self.port.node.observed.request_done(self.port.protocol, operation, code, duration_s, count)
        for _ in range(count if self.port.logs_requests else 0):
            requests.info(
                "request",
                protocol=self.port.protocol,
                operation=operation,
                client=str(self.place.address),
                queue=queue.decode(errors="backslashreplace"),
                code=code,
                duration_s=round(duration_s, 6),
            )

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send an answer."""
        if not self._closed:
            if self.counts_bytes:
                self.port.counts.bytes_written += len(data)
            self._transport.write(data)

    async def flushed(self) -> None:
        """Wait until the client has read enough for another answer."""
        if self._writable is not None:
            await asyncio.shield(self._writable)
        if self._sent:
            await self._settle_sent()

    async def write_all(self, pieces: AsyncIterable[bytes]) -> None:
        """Write a long answer no faster than the client reads it, in fair slices with other clients."""
        async for piece in gathered(pieces):
            self.write(piece)
            await self.flushed()

    def client(self) -> bytes:
        """Return the name of the client whose share of the node a long answer uses.

        Raises:
            ClosedError: the client has disconnected.
        """
        if self.queues is None:
            raise ClosedError
        return client_of(self.port.node.access, self.queues.principal, str(self.place.address))

    def has_room(self, size_bytes: int) -> bool:
        """Return whether this many more bytes may be held for an answer."""
        return self.place.hold(self.arrived_bytes + self._transport.get_write_buffer_size() + size_bytes)

    def _account(self) -> bool:
        if self._closed:
            return True
        held = self.arrived_bytes + self._transport.get_write_buffer_size()
        if held or self.place.held_bytes:
            return self.place.hold(held)
        return True

    def close(self) -> None:
        """Send the remaining data, then close."""
        if self._closing:
            return
        self._closing = True
        self._transport.close()
        if self._transport.get_write_buffer_size():
            # A client that does not read must not keep the connection.
            self.loop.call_later(LINGER_S, self._transport.abort)

    async def idle(self) -> None:
        """Wait until no request is being carried out."""
        with contextlib.suppress(asyncio.CancelledError):
            await self._idle.wait()

    # --- bounds ---------------------------------------------------------------------------------------------------

    def leaves_unread(self, now_s: float) -> bool:
        """Return whether the client has read nothing of its pending answers for `UNREAD_S_MAX` seconds."""
        unread = 0 if self._closed else self._transport.get_write_buffer_size()
        if self._writable is None or unread != self._unread:
            self._unread, self._unread_s = unread, now_s
        return self._unread_s < now_s - UNREAD_S_MAX

    def is_stalled(self, now_s: float, request_s: float) -> bool:
        """Return whether an unfinished request takes too long to arrive."""
        if not (self.is_waiting and self.arrived_bytes):
            return False
        return self._begun_s + request_s + self.arrived_bytes / ARRIVAL_BYTES_PER_S < now_s

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Return whether nothing arrived for `idle_s` seconds, no request is being carried out and no read is open."""
        return self.is_waiting and not self.held and self._heard_s < now_s - idle_s
