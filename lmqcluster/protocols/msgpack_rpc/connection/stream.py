"""The bytes of one client connection: reading within bounds, writing at the end of a turn, and what both hold in memory."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import msgpack

from ....node.gates import ARRIVAL_BYTES_PER_S
from ....ports import VALUE_BYTES, ConnectionSlot, Ending, may_be_half_closed
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import make_unpacker, pack
from ....wire.parts import LARGE_BYTES, joined
from ..values import replies
from .request_reader import SMALL_BYTES, RequestReader, RequestTooLargeError
from .slow_answers import TASK_BYTES, SlowAnswers

if TYPE_CHECKING:
    from ....node.access.access import Principal
    from ....node.queues.pulls.pulls import Waiter
    from ..frontend import RpcFrontEnd

__all__ = ["ANSWER_BYTES", "UNREAD_BYTES_MAX", "Stream", "checked_msgid"]

ANSWER_BYTES = 64 * 1024
"""Responses are counted one by one beyond so much that the client has not read."""
UNREAD_BYTES_MAX = 96 * 1024 * 1024
"""Most bytes of responses that wait for a client to read them, except those that tell of what was done."""
UNREAD_S_MAX = 60.0
"""How long a client may leave responses unread, without reading anything, that do not fit the network's buffers."""
LINGER_S = 10.0
"""How long the last responses of a connection that ends may take."""
REQUESTS_PER_TURN = 512
STRANGER_REQUESTS_MAX = 64
"""Most requests of a client that does not say who it is; all are refused."""
PACED_VALUES = 10_000
"""So many values of an unfinished request at once make its connection wait for its turn."""
WAITER_BYTES = 512
"""What a waiting pull counts."""
MSGID_BYTES_MAX = 64
_HEAD_BYTES = 160
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_NOT_A_REQUEST = (ValueError, TypeError, OverflowError, RecursionError, LmqError, msgpack.UnpackException)
_NO_ROOM = "overloaded: unfinished requests and unread responses fill the node's buffers; try again later"


class Stream(asyncio.Protocol):
    """A client's connection without what its requests mean.

    Attributes:
        principal: who the client is, None before it has said so.
        place: what it counts for.
        slow: its requests that take several steps.
        waiting: its pulls that wait.
    """

    def __init__(self, owner: RpcFrontEnd, place: ConnectionSlot) -> None:
        self.owner = owner
        self.node = owner.node
        self.service = owner.node.service
        self.closed = False
        self.principal: Principal | None = None
        self.place = place
        self.waiting: set[Waiter] = set()
        self.slow = SlowAnswers()
        self.partial_since_s: float | None = None
        self._partial_began_s = 0.0
        # What had come when it was last looked at, and since when it has been so; likewise of what was not read.
        self._seen = -1
        self._seen_s = 0.0
        self._unread_seen = 0
        self._unread_seen_s = 0.0
        self.loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._intake = RequestReader()
        # Whether the intake holds the begin of a request from before it was known who the client is.
        self._has_strange_rest = False
        self._strange_requests = 0
        self._paced_values = 0
        self._turn_began_s = 0.0
        self._refused = False
        # Answers the rest for a client that sends no more, and whether `replies.BEGINNING` of the next response is sent.
        self._end: asyncio.Task[None] | None = None
        self._has_begun_answer = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        # Responses that will be sent whatever happens, and wait for something else.
        self.promised_bytes = 0
        # `_reading` is the wish, `_working` whether reading stands still until what has arrived is carried out.
        self._reading = True
        self.writable = True
        self._working = False
        # For how many reasons requests are held up, and what has arrived meanwhile.
        self._held = 0
        self._rest: tuple[bytes, int] | None = None

    def dispatch(self, message: Any) -> None:
        """Carry out one request or notification.

        Raises:
            ValueError, LmqError: it is neither.
        """
        raise RuntimeError(f"a subclass carries out {type(message).__name__}")

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            # A client whose machine vanished must not keep its waiting pulls for ever.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, seconds in _KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        # What has come is carried out no more.
        self._rest, self._intake = None, RequestReader()
        if self._end is not None:
            self._end.cancel()
        self.slow.cancel()
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
        """Answer what a client has asked for that sends no more; the result says whether the connection stays open for that."""
        if self._end is not None:
            return True
        self._flush()
        if self.closed or self._refused or self.principal is None or not may_be_half_closed(self._transport):
            return False
        if not self.service.proposer.pending() and not self.has_unanswered:
            return False
        # The rest of an unfinished request will not come.
        self.partial_since_s = None
        self._end = self.loop.create_task(self.answer_rest())
        return True

    async def answer_rest(self) -> None:
        """Close the connection when everything is answered."""
        raise RuntimeError("a subclass knows what is not answered")

    @property
    def transport(self) -> asyncio.Transport:
        """Where responses go."""
        return self._transport

    @property
    def has_rest(self) -> bool:
        """Whether requests that have arrived are not carried out yet."""
        return self._working or bool(self._held)

    @property
    def has_unanswered(self) -> bool:
        """Whether responses are to come, apart from those to what is on its way to the log."""
        return self.has_rest or bool(self.waiting or self.slow.tasks or self.promised_bytes)

    # --- reading --------------------------------------------------------------------------------------------------

    def _take(self, data: bytes, base: int) -> None:
        """Carry out what has arrived, `REQUESTS_PER_TURN` at a time: so the cluster is at work on the first requests of a
        burst while the later ones are decoded, and no client keeps the others waiting for long.
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
        if self.service.proposer.is_full():
            self.owner.hold(self)

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
            # No more answers are made for a client that does not read those that it has got.
            self._rest = (data, base)
            return
        if self.service.proposer.is_full():
            self._rest = (data, base)
            self.owner.hold(self)
            return
        try:
            self._take(data, base)
        except RequestTooLargeError as exc:
            self._refuse(f"too_large: {exc}")
        except _NOT_A_REQUEST as exc:
            self._close(f"not a MessagePack-RPC request: {exc or type(exc).__name__}")

    def hold(self) -> None:
        """Carry out nothing more until `go_on`: the request before is not in the log yet, or there is work enough."""
        self._held += 1

    def go_on(self) -> None:
        """The reason for one `hold` is gone."""
        self._held -= 1
        if not self._held:
            self._go_on_with_rest()

    def _go_on_with_rest(self) -> None:
        if self._rest is not None:
            self.loop.call_soon(self._take_rest, *self._rest)
            self._rest = None

    def _collect(self, data: bytes) -> bytes:
        """Take more of a large request, and carry it out once it is complete; returns what follows it."""
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
        """Carry out the requests of a client that has not said who it is, until it does; returns what follows."""
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
        """No request is incomplete."""
        if self.partial_since_s is not None:
            self.partial_since_s = None
            self._intake.clear()
            self.account()

    def _note_partial(self, *, begins: bool) -> None:
        """A request is incomplete; it `begins` in what has just come, or has begun before."""
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
        """Read on only after the others had their turn, if very many values were gone through."""
        values = self._intake.values
        more = values if begins else values - self._paced_values
        self._paced_values = values
        if more > PACED_VALUES:
            self.pause_reading()
            self.loop.call_later(self.owner.pace(more, self.loop.time() - self._turn_began_s), self.resume_reading)

    def is_stalled(self, now_s: float, stall_s: float, request_s: float) -> bool:
        """Whether nothing of an unfinished request has come for `stall_s`, though it could have, or too little altogether."""
        if not self._reading or self.partial_since_s is None:
            return False
        late_s = self._partial_began_s + request_s + self._intake.size / ARRIVAL_BYTES_PER_S
        return self.partial_since_s < now_s - stall_s or late_s < now_s

    def is_idle(self, now_s: float, idle_s: float) -> bool:
        """Whether nothing has come for `idle_s` and nothing is under way."""
        if self._intake.received != self._seen or self.waiting or self.slow.tasks:
            self._seen, self._seen_s = self._intake.received, now_s
        return self._seen_s < now_s - idle_s

    def pause_reading(self) -> None:
        """Take no more requests for now."""
        if self._reading and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take requests again, unless the client is still not reading."""
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
        # What is still coming is read and dropped until the client or the time limit ends it: closing now could make the
        # client's machine throw the answer away.
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
        # Nothing more is taken, even of what has arrived already.
        self._refused = True
        self.pause_reading()

    def close(self) -> None:
        """Send what is ready and close."""
        if not self.closed:
            self._flush()
            self._transport.close()
            if self._transport.get_write_buffer_size():
                # A client that does not read must not keep the connection.
                self.loop.call_later(LINGER_S, self._transport.abort)

    # --- writing --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send at the end of this turn of the event loop."""
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)

    def begin_answer(self) -> None:
        """Send the beginning of a response that will follow, to learn whether the client is there."""
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
        """Whether a response of this size may be sent only if `has_room` allows it."""
        return self._out_bytes + size_bytes > ANSWER_BYTES or not self.writable

    def has_room(self, size_bytes: int) -> bool:
        """Whether a large response fits the bounds on what the client has not read yet; if so it is counted."""
        unread = self.unread_bytes()
        if not unread:
            # However large it is: else it could never be had.
            return True
        return unread + size_bytes <= UNREAD_BYTES_MAX and self._hold(self._intake.held_bytes + size_bytes)

    def unread_bytes(self) -> int:
        """What the client has not read, as far as it is here."""
        return self._transport.get_write_buffer_size() + self._out_bytes + self.promised_bytes

    def leaves_unread(self, now_s: float) -> bool:
        """Whether the client has read nothing for long of what waits for it."""
        unread = self._transport.get_write_buffer_size()
        if self.writable or unread < self._unread_seen or not self._unread_seen:
            self._unread_seen, self._unread_seen_s = unread, now_s
        return self._unread_seen_s < now_s - UNREAD_S_MAX

    def pause_writing(self) -> None:
        """The client does not read its responses: take no more requests from it."""
        self.writable = False
        self.pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self.account()
        self.slow.drained()
        self.resume_reading()
        self._go_on_with_rest()

    # --- memory ---------------------------------------------------------------------------------------------------

    def _hold(self, size: int) -> bool:
        """Hold so much besides what is there already; False if there is no room."""
        return self.place.hold(size + self.unread_bytes() + self._others())

    def account(self) -> None:
        """Count what is held now."""
        if not self.closed:
            self.place.hold(self._intake.held_bytes + self.unread_bytes() + self._others(), must=True)

    def hold_reserve(self) -> bool:
        """Count what is held now and what is reserved for responses; False if there is no room."""
        return self._hold(self._intake.held_bytes)

    def check_memory(self) -> None:
        """Refuse one more request that waits, if those that wait fill the client's share of memory.

        It cannot be left unread until there is room: what it waits for may come behind it on this connection.

        Raises:
            LmqError: ``overloaded``.
        """
        if not self._hold(self._intake.held_bytes + TASK_BYTES):
            reason = "requests that wait fill the client's share of the node's memory; wait until some have ended"
            raise LmqError("overloaded", reason)

    def _others(self) -> int:
        return self.slow.reserved_bytes + WAITER_BYTES * len(self.waiting) + TASK_BYTES * len(self.slow.tasks)


def checked_msgid(msgid: object) -> object:
    """A msgid that can be sent back.

    Raises:
        ValueError, LmqError: it cannot, or is too large to be kept for every request under way.
    """
    if type(msgid) is not int and len(pack(msgid)) > MSGID_BYTES_MAX:
        raise ValueError(f"a msgid may have at most {MSGID_BYTES_MAX} bytes")
    return msgid
