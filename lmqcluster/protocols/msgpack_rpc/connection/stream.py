"""The byte stream of a client connection: bounded reading, writes at the end of a turn, and the memory of both."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack

from ....node.access.access import Principal
from ....node.gates import ARRIVAL_BYTES_PER_S
from ....node.queues.pulls.pulls import Waiter
from ....ports import VALUE_BYTES, ConnectionSlot, Ending, keep_alive, may_be_half_closed
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import make_unpacker, pack
from ....wire.parts import LARGE_BYTES, joined
from ..values import replies
from .port_context import PortContext
from .request_reader import SMALL_BYTES, RequestReader, RequestTooLargeError

__all__ = ["ANSWER_BYTES", "UNREAD_BYTES_MAX", "Stream", "checked_msgid"]

ANSWER_BYTES = 64 * 1024
"""Number of unread bytes above which each response is counted."""
UNREAD_BYTES_MAX = 96 * 1024 * 1024
"""Maximum number of bytes of unread responses, except confirmations of completed operations."""
UNREAD_S_MAX = 60.0
"""Time in seconds for which a client may read nothing of responses that exceed the network's buffers."""
LINGER_S = 10.0
"""Time in seconds for the last responses of a connection that ends."""
REQUESTS_PER_TURN = 512
STRANGER_REQUESTS_MAX = 64
"""Maximum number of requests of a client that does not authenticate; all are refused."""
PACED_VALUES = 10_000
"""Number of new values in an unfinished request above which its connection waits for its turn."""
WAITER_BYTES = 512
"""Memory counted for a waiting pull."""
TASK_BYTES = 4096
"""Memory counted for a request that takes several steps, until it is answered."""
MSGID_BYTES_MAX = 64
_HEAD_BYTES = 160
_NOT_A_REQUEST = (ValueError, TypeError, OverflowError, RecursionError, LmqError, msgpack.UnpackException)
_NO_ROOM = "overloaded: unfinished requests and unread responses fill the node's buffers; try again later"


class Stream(asyncio.Protocol):
    """A client's connection without the meaning of its requests.

    Attributes:
        principal: the client's principal, None before it has authenticated.
        place: its slot in the limits on connections and memory.
        tasks: its requests that take several steps.
        reserved_bytes: memory reserved for responses that are being made.
        promised_bytes: size of responses that are certain to be sent and wait for something else.
        waiting: its waiting pulls.
    """

    def __init__(self, port: PortContext, place: ConnectionSlot) -> None:
        self.port = port
        self.node = port.node
        self.service = port.node.service
        self.closed = False
        self.principal: Principal | None = None
        self.place = place
        self.waiting: set[Waiter] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.reserved_bytes = 0
        self.promised_bytes = 0
        self.partial_since_s: float | None = None
        self._partial_began_s = 0.0
        # Number of bytes received at the last check, and the time since it is unchanged; likewise of unread bytes.
        self._seen = -1
        self._seen_s = 0.0
        self._unread_seen = 0
        self._unread_seen_s = 0.0
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._intake = RequestReader()
        # Whether the intake holds the start of a request from before the client authenticated.
        self._has_strange_rest = False
        self._strange_requests = 0
        self._paced_values = 0
        self._turn_began_s = 0.0
        self._refused = False
        # Task that answers the rest for a half-closed client, and whether `replies.BEGINNING` of the next response was sent.
        self._end: asyncio.Task[None] | None = None
        self._has_begun_answer = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        # `_reading` is the wanted state. `_working` is true while reading is paused until all received data is carried out.
        self._reading = True
        self.writable = True
        self._working = False
        # Future of the tasks that wait for the client to read.
        self._drained: asyncio.Future[None] | None = None
        # Whether the client waits until the node has processed the pending commands.
        self._waits_for_room = False
        # Number of reasons to hold requests back, and the data that waits.
        self._held = 0
        self._rest: tuple[bytes, int] | None = None

    def dispatch(self, message: Any) -> None:
        """Carry out one request or notification.

        Raises:
            ValueError, LmqError: the message is neither.
        """
        raise RuntimeError(f"a subclass carries out {type(message).__name__}")

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        keep_alive(transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        # Received requests are dropped.
        self._rest, self._intake = None, RequestReader()
        if self._end is not None:
            self._end.cancel()
        for task in self.tasks:
            task.cancel()
        self.place.release()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        intake = self._intake
        intake.received += len(data)
        self._turn_began_s = self.loop.time()
        try:
            if self.principal is None or self._has_strange_rest:
                self._has_strange_rest = False
                data = self._take_of_stranger(intake.add(data))
            elif intake.is_collecting:
                data = self._collect(data)
            if data:
                self._take(data, intake.feed(data))
        except RequestTooLargeError as exc:
            self._refuse(f"too_large: {exc}")
        except _NOT_A_REQUEST as exc:
            self._close(f"not a MessagePack-RPC request: {exc or type(exc).__name__}")

    def eof_received(self) -> bool:
        """Return whether the connection stays open to answer the requests of a client that has half-closed it."""
        if self._end is not None:
            return True
        self._flush()
        if self.closed or self._refused or self.principal is None or not may_be_half_closed(self._transport):
            return False
        if not self.service.sender.proposer.pending() and not self.has_unanswered:
            return False
        # The rest of an unfinished request will not arrive.
        self.partial_since_s = None
        self._end = self.loop.create_task(self.answer_rest())
        return True

    async def answer_rest(self) -> None:
        """Close the connection once everything is answered."""
        raise RuntimeError("a subclass knows what is not answered")

    def _is_between(self) -> bool:
        """Return whether all received bytes are carried out, and more may follow."""
        is_open = not self.closed and not self._refused and not self.has_rest
        return is_open and not self._intake.size and not self._has_strange_rest

    @property
    def has_rest(self) -> bool:
        """Return whether received requests are not carried out yet."""
        return self._working or bool(self._held)

    @property
    def has_unanswered(self) -> bool:
        """Return whether responses are outstanding, except those to commands on their way to the log."""
        return self.has_rest or bool(self.waiting or self.tasks or self.promised_bytes)

    # --- reading --------------------------------------------------------------------------------------------------

    def _take(self, data: bytes, base: int) -> None:
        """Carry out received requests, `REQUESTS_PER_TURN` at a time.

        So the cluster processes the first requests of a burst while later ones are decoded, and no client delays the
        others for long.
        """
        intake, left = self._intake, REQUESTS_PER_TURN
        unpacker, whole = intake.unpacker, intake.whole
        was_held = self._held
        if was_held or unpacker is None:
            self._take_later(data, base)
            return
        for message in unpacker:
            whole = unpacker.tell()
            self.dispatch(message)
            left -= 1
            if self._held or (not left and whole < intake.fed):
                intake.whole = whole
                self._take_later(data, base)
                return
        if self._working:
            self._working = False
            if self._reading and not self.closed:
                self._transport.resume_reading()
        if whole and not self.place.is_known:
            self.place.admit()
        intake.whole = whole
        if whole < intake.fed:
            intake.keep(data, whole - base)
            self._note_partial(begins=whole >= base)
        else:
            self._note_whole()
        if self.service.sender.proposer.is_full():
            self._wait_for_room()

    def _take_later(self, data: bytes, base: int) -> None:
        if not self._working:
            self._working = True
            if self._reading:
                self._transport.pause_reading()
        if self._held:
            self._rest = (data, base)
        else:
            self.loop.call_soon(self._take_rest, data, base)

    def _take_rest(self, data: bytes, base: int) -> None:
        if self.closed or self._refused:
            return
        if self._held or not self.writable:
            # A client that does not read gets no further answers.
            self._rest = (data, base)
            return
        if self.service.sender.proposer.is_full():
            self._rest = (data, base)
            self._wait_for_room()
            return
        try:
            self._take(data, base)
        except RequestTooLargeError as exc:
            self._refuse(f"too_large: {exc}")
        except _NOT_A_REQUEST as exc:
            self._close(f"not a MessagePack-RPC request: {exc or type(exc).__name__}")

    def hold(self) -> None:
        """Carry out no more requests until `go_on`: the previous one is not in the log yet, or enough are in progress."""
        self._held += 1

    def go_on(self) -> None:
        """End the effect of one `hold`."""
        self._held -= 1
        if not self._held:
            self._go_on_with_rest()

    def _go_on_with_rest(self) -> None:
        if self._rest is not None:
            self.loop.call_soon(self._take_rest, *self._rest)
            self._rest = None

    def _wait_for_room(self) -> None:
        """Stop reading from this client until the node has processed the pending commands."""
        if not self._waits_for_room:
            self._waits_for_room = True
            self.pause_reading()
            self.hold()
            self.port.wait_for_room(self._go_on_in_room)

    def _go_on_in_room(self) -> None:
        self._waits_for_room = False
        self.resume_reading()
        self.go_on()

    def _collect(self, data: bytes) -> bytes:
        """Take more of a large request and carry it out once it is complete; return the data after it."""
        intake = self._intake
        end = intake.collect(data)
        if end < 0:
            self._note_partial(begins=False)
            return b""
        if not self._hold(intake.size + intake.values * VALUE_BYTES):
            self._refuse(_NO_ROOM)
            return b""
        self.dispatch(intake.decode())
        self._note_whole()
        return data[end:]

    def _take_of_stranger(self, data: bytes) -> bytes:
        """Carry out the requests of a client until it has authenticated; return the data after them."""
        intake, position = self._intake, 0
        while self.principal is None and position < len(data):
            try:
                message, end = intake.next_small(data, position)
            except RequestTooLargeError:
                self._refuse(self.node.access.refusal().rpc_text())
                return b""
            if end < 0:
                self._has_strange_rest = True
                self._note_partial(begins=True)
                return b""
            self._strange_requests += 1
            if self._strange_requests > STRANGER_REQUESTS_MAX:
                self._close("too many requests before a token was shown")
                return b""
            self.dispatch(message)
            position = end
        if self.principal is not None:
            self.place.admit()
        self._note_whole()
        return data[position:]

    def _note_whole(self) -> None:
        """Record that no request is incomplete."""
        if self.partial_since_s is not None:
            self.partial_since_s = None
            self._intake.clear()
            self.account()

    def _note_partial(self, *, begins: bool) -> None:
        """Record that a request is incomplete. `begins` is true if it began in the latest data."""
        self.partial_since_s = self.loop.time()
        if begins:
            self._partial_began_s = self.partial_since_s
        self._pace(begins=begins)
        size = self._intake.held_bytes
        if self.principal is not None:
            if size <= SMALL_BYTES:
                self.account()
                return
            self.place.admit()
        if not self._hold(size):
            self._refuse(_NO_ROOM)

    def _pace(self, *, begins: bool) -> None:
        """If very many values were scanned, pause reading so that other clients get their turn."""
        values = self._intake.values
        more = values if begins else values - self._paced_values
        self._paced_values = values
        if more > PACED_VALUES:
            self.pause_reading()
            self.loop.call_later(self.port.pace(more, self.loop.time() - self._turn_began_s), self.resume_reading)

    def is_stalled(self, now_s: float, stall_s: float, request_s: float) -> bool:
        """Return whether an unfinished request has stalled for `stall_s` seconds while it was read, or is too slow overall."""
        if not self._reading or self.partial_since_s is None:
            return False
        late_s = self._partial_began_s + request_s + self._intake.size / ARRIVAL_BYTES_PER_S
        return self.partial_since_s < now_s - stall_s or late_s < now_s

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Return whether nothing arrived for `idle_s` seconds and no request is in progress."""
        if self._intake.received != self._seen or self.waiting or self.tasks:
            self._seen, self._seen_s = self._intake.received, now_s
        return self._seen_s < now_s - idle_s

    def pause_reading(self) -> None:
        """Stop reading requests for now."""
        if self._reading and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading requests, unless the client still does not read."""
        if not self._reading and self.writable and not self.closed:
            self._reading = True
            if self.partial_since_s is not None:
                self.partial_since_s = self._partial_began_s = self.loop.time()
            if not self._working:
                self._transport.resume_reading()

    # --- ends -----------------------------------------------------------------------------------------------------

    def _refuse(self, reason: str) -> None:
        """Answer an unfinished request with an error, if its msgid can be read from its head, and close."""
        answer = self._answer_by_head(reason)
        received = self._intake.received
        self._intake = RequestReader()
        self._intake.received = received
        if answer is None:
            self._close(reason)
            return
        self.place.note(Ending.BAD_REQUEST, reason)
        # Data that still arrives is read and dropped until the client or the time limit ends the connection: closing now
        # could make the client's machine discard the answer.
        self._refused = True
        if self.partial_since_s is None:
            self.partial_since_s = self._partial_began_s = self.loop.time()
        self.write(answer)
        self._flush()
        self.account()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _answer_by_head(self, text: str) -> bytes | None:
        head = make_unpacker(_HEAD_BYTES)
        head.feed(self._intake.head(_HEAD_BYTES))
        try:
            is_request = head.read_array_header() == 4 and head.unpack() == 0
            return replies.failure(checked_msgid(head.unpack()), text) if is_request else None
        except _NOT_A_REQUEST:
            return None

    def _close(self, reason: str) -> None:
        self.place.note(Ending.BAD_REQUEST, reason)
        self.close()
        # Data that has already arrived is dropped too.
        self._refused = True
        self.pause_reading()

    def close(self) -> None:
        """Send all finished responses and close."""
        if not self.closed:
            self._flush()
            self._transport.close()
            if self._transport.get_write_buffer_size():
                # A client that does not read must not keep the connection.
                self.loop.call_later(LINGER_S, self._transport.abort)

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send data at the end of this turn of the event loop."""
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)

    def begin_answer(self) -> None:
        """Send the start of a response that will follow, to detect whether the client is still there."""
        self._flush()
        self._transport.write(replies.BEGINNING)
        self._has_begun_answer = True

    def _flush(self) -> None:
        if self._out and self._has_begun_answer:
            self._has_begun_answer = False
            self._out[0] = self._out[0][len(replies.BEGINNING) :]
        if self._out and not self._transport.is_closing():
            for data in joined(self._out) if self._out_bytes >= LARGE_BYTES else (b"".join(self._out),):
                self._transport.write(data)
        self._out = []
        if self._out_bytes > ANSWER_BYTES:
            self._out_bytes = 0
            self.account()
        else:
            self._out_bytes = 0

    def must_ask(self, size_bytes: int) -> bool:
        """Return whether a response of this size may be sent only if `has_room` permits it."""
        return self._out_bytes + size_bytes > ANSWER_BYTES or not self.writable

    def has_room(self, size_bytes: int) -> bool:
        """Count a large response and return True, if it fits the limits on unread data."""
        unread = self.unread_bytes()
        if not unread:
            # A response of any size is allowed now; otherwise the largest could never be sent.
            return True
        return unread + size_bytes <= UNREAD_BYTES_MAX and self._hold(self._intake.held_bytes + size_bytes)

    def unread_bytes(self) -> int:
        """Return the number of bytes on this node that the client has not read."""
        return self._transport.get_write_buffer_size() + self._out_bytes + self.promised_bytes

    def leaves_unread(self, now_s: float) -> bool:
        """Return whether the client has read nothing of its pending responses for `UNREAD_S_MAX` seconds."""
        unread = self._transport.get_write_buffer_size()
        if self.writable or unread < self._unread_seen or not self._unread_seen:
            self._unread_seen, self._unread_seen_s = unread, now_s
        return self._unread_seen_s < now_s - UNREAD_S_MAX

    def pause_writing(self) -> None:
        """Stop reading requests, because the client does not read its responses."""
        self.writable = False
        self.pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self.account()
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
        self.resume_reading()
        self._go_on_with_rest()

    async def until_read(self) -> None:
        """Wait until the client reads its responses."""
        while not self.writable:
            if self._drained is None:
                self._drained = self.loop.create_future()
            await asyncio.shield(self._drained)

    # --- memory ---------------------------------------------------------------------------------------------------

    def _hold(self, size: int) -> bool:
        """Hold this many bytes in addition to unread and reserved ones; return False if there is no room."""
        return self.place.hold(size + self.unread_bytes() + self._others())

    def account(self) -> None:
        """Count the memory that is held now."""
        if not self.closed:
            self.place.hold(self._intake.held_bytes + self.unread_bytes() + self._others(), must=True)

    def hold_reserve(self) -> bool:
        """Count the memory that is held or reserved for responses; return False if there is no room."""
        return self._hold(self._intake.held_bytes)

    def check_memory(self) -> None:
        """Refuse one more waiting request if waiting requests fill the client's share of memory.

        It must be read now, because the request that it waits for may follow on this connection.

        Raises:
            LmqError: ``overloaded``.
        """
        if not self._hold(self._intake.held_bytes + TASK_BYTES):
            reason = "requests that wait fill the client's share of the node's memory; wait until some have ended"
            raise LmqError("overloaded", reason)

    def _others(self) -> int:
        return self.reserved_bytes + WAITER_BYTES * len(self.waiting) + TASK_BYTES * len(self.tasks)


def checked_msgid(msgid: object) -> object:
    """Return a msgid that can be sent back.

    Raises:
        ValueError, LmqError: it cannot be sent back, or is too large to be kept for every request in flight.
    """
    if type(msgid) is not int and len(pack(msgid)) > MSGID_BYTES_MAX:
        raise ValueError(f"a msgid may have at most {MSGID_BYTES_MAX} bytes")
    return msgid
