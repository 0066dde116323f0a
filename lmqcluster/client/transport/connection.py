"""One connection to one node: frames out, replies in, matched by msgid.

Decides nothing: errors, losses and late answers are handed to the `Owner`.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol, cast

import msgpack

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import make_unpacker

from .addresses import NodeAddress
from .calls import Call, Control, Moved, Pull
from .requests import request_body
from .shared_requests import CALLS_MAX, SHARED, SharedPull, SharedRequest
from .tls import explain

__all__ = ["NONSENSE", "REPLY_BYTES_MAX", "Connection", "Owner"]

REPLY_BYTES_MAX = 512 * 1024 * 1024
"""Largest reply that is taken; a batch pull can ask for very much."""
_WRITE_BYTES = 256 * 1024
_BUFFER_BYTES_MAX = 1024 * 1024
"""With more than this unsent the connection counts as paused."""
_MSGID_MASK = 0xFFFF_FFFF
NONSENSE = (ValueError, TypeError, LookupError, AttributeError)
"""What decoding an answer raises that makes no sense."""

"""What a node answers that does not know the method."""

_head = Struct(">BBBI").pack  # array of 4, type 0, uint32 msgid


def _rpc_addresses(result: Any) -> Any:
    return result[b"rpc"]


class Owner(Protocol):
    """What a connection reports to."""

    def answered_error(self, connection: Connection, call: Call, element: Any) -> None:
        """The node answered `call` with an error; it is no longer pending."""

    def answered_moved(self, call: Call) -> None:
        """The node let go of a pull that is to go to another node; nothing was on its way to it."""

    def answered_late(self, call: Call, value: Any) -> None:
        """The node answered, but the caller has gone."""

    def received(self, connection: Connection) -> None:
        """A piece of input has been worked off, or the node reads again."""

    def write_paused(self, connection: Connection) -> None:
        """The node does not read fast enough; `received` follows when it does."""

    def connection_lost(self, connection: Connection, reason: str) -> None:
        """No reply will come any more."""


class Connection(asyncio.Protocol):
    """See the module.

    Attributes:
        address: the node.
        since: loop time in seconds when it was made.
        lost: done when the connection has ended.
        paused: whether the node reads too slowly at present.
        pending: calls without an answer yet, by msgid, in the order they were sent.
        next_sequence: the producer sequence number that the node will give to the next push.
        token: what was shown to the node, None for nothing.
        silent_sweeps: how many sweeps of the owner have passed since the node sent anything.
    """

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, address: NodeAddress) -> None:
        self.address = address
        self.since = loop.time()
        self.paused = False
        self.pending: dict[int, Call] = {}
        self.next_sequence = 0
        self.token: bytes | None = None
        self.silent_sweeps = 0
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._serial = 0
        self._out: list[bytes | SharedRequest] = []
        # What was added to it last, if another call may join it.
        self._last: Call | SharedRequest | None = None
        # Shared requests without an answer yet, by msgid.
        self._shared: dict[int, SharedRequest] = {}
        self._reason = ""
        self._transport: asyncio.Transport | None = None
        self._unpacker = make_unpacker(REPLY_BYTES_MAX)

    # --- out ------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Send the call's body under a fresh msgid, together with all others of this turn of the event loop."""
        serial = self._serial + 1
        pending = self.pending
        msgid = serial & _MSGID_MASK
        while msgid in pending or msgid in self._shared:  # Only after 2**32 requests, over one that still waits.
            serial += 1
            msgid = serial & _MSGID_MASK
        self._serial = call.serial = serial
        pending[msgid] = call
        share, last = call.share, self._last
        if share is not None and last is not None and last.share == share:
            self._join(call, last)
            return
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(_head(0x94, 0, 0xCE, msgid))
        out.append(call.body)
        self._last = call if share is not None and type(call) in SHARED else None

    def _join(self, call: Call, last: Call | SharedRequest) -> None:
        """Let the call share the request of what was sent last in this turn."""
        if isinstance(last, Call):
            shared = SHARED[type(last)](last)
            self._out[-2:] = [shared]
            self._last = shared
        else:
            shared = last
        shared.add(call)
        if len(shared.calls) == CALLS_MAX:
            self._last = None

    def authenticate(self, token: bytes) -> asyncio.Future[Any]:
        """Show the node a token; a connection whose token is refused ends."""
        self.token = token
        return self._control(b"auth", [token])

    def bind(self, producer: bytes, first_sequence: int) -> asyncio.Future[Any]:
        """Tell the node the number of the next push, where the count begins or has a gap.

        A node that refuses that cannot be used, so the connection ends then.
        """
        self.next_sequence = first_sequence
        return self._control(b"producer", [producer, first_sequence])

    def ask_for_nodes(self, learn: Callable[[Any, NodeAddress], None]) -> None:
        """Ask the node for the addresses of all members, which `learn` gets with that of the node, if it names them."""

        def answered(future: asyncio.Future[Any]) -> None:
            # A client may be refused this, and a node may not know the method.
            if not future.cancelled() and future.exception() is None:
                learn(future.result(), self.address)

        call = Control(self._loop.create_future(), request_body(b"cluster", []), _rpc_addresses, math.inf)
        call.future.add_done_callback(answered)
        self.send(call)

    def ping(self) -> None:
        """Make a living node answer."""
        self._control(b"ping", [])

    def _control(self, method: bytes, arguments: list[object]) -> asyncio.Future[Any]:
        call = Control(self._loop.create_future(), request_body(method, arguments), bytes, math.inf)
        call.future.add_done_callback(self._controlled)
        self.send(call)
        return call.future

    def _controlled(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self.abort(f"the node refused a request of the connection itself: {error}")

    def cancel(self, call: Call) -> None:
        """Tell the node that nobody waits for a pull any more; it then answers it as empty."""
        msgid = call.serial & _MSGID_MASK
        if self.pending.get(msgid) is not call:
            return
        shared = call.shared if isinstance(call, Pull) else None
        if shared is None:
            self._notify(b"cancel", [msgid])
        elif shared.cancel():
            self._notify(b"cancel", [shared.msgid])

    def _notify(self, method: bytes, arguments: list[object]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(b"\x93\x02" + request_body(method, arguments))
        self._last = None

    def ask_again(self, shared: SharedRequest) -> None:
        """Send a shared request for those of its calls that are left, under another msgid."""
        if not self._out:
            self._loop.call_soon(self._flush)
        shared.msgid = -1
        self._out.append(shared)
        self._last = None

    def _flush(self) -> None:
        transport = self._transport
        if self.paused or self._reason or transport is None:
            return
        self._last = None
        out: list[bytes] = []
        for piece in self._out:
            if isinstance(piece, SharedRequest):
                out += self._encode(piece)
            else:
                out.append(piece)
        self._out.clear()
        if sum(map(len, out)) > _WRITE_BYTES:
            self._flush_in_pieces(transport, out)
        elif out:
            transport.write(b"".join(out))

    def _encode(self, shared: SharedRequest) -> tuple[bytes, ...]:
        if isinstance(shared, SharedPull):
            shared.drop_ended(self)
        if not shared.live_calls():
            self._owner.received(self)
            return ()
        serial = self._serial + 1
        while serial & _MSGID_MASK in self.pending or serial & _MSGID_MASK in self._shared:
            serial += 1
        self._serial = serial
        shared.msgid = serial & _MSGID_MASK
        self._shared[shared.msgid] = shared
        return _head(0x94, 0, 0xCE, shared.msgid), *shared.body()

    def _flush_in_pieces(self, transport: asyncio.Transport, out: list[bytes]) -> None:
        # The transport copies what the socket does not take, so it gets no more than it asks for.
        start = 0
        while start < len(out) and not self.paused:
            end, size = start, 0
            while end < len(out) and size < _WRITE_BYTES:
                size += len(out[end])
                end += 1
            transport.write(b"".join(out[start:end]))
            start = end
        self._out[:0] = out[start:]

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.paused = True
        self._owner.write_paused(self)

    def resume_writing(self) -> None:
        """The transport's buffer is nearly empty."""
        self.paused = False
        if self._out:
            self._flush()
        self._owner.received(self)

    # --- in -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Work off whatever replies are complete."""
        self.silent_sweeps = 0
        unpacker = self._unpacker
        pending, shared = self.pending, self._shared
        try:
            unpacker.feed(data)
            for kind, msgid, error, result in unpacker:
                if msgid in shared and kind == 1:
                    self._answer_shared(shared.pop(msgid), error, result)
                    continue
                call = pending.pop(msgid, None) if kind == 1 else None
                if call is None:
                    self.abort(f"the node answered msgid {msgid!r}, which nothing waits for")
                    return
                if error is not None:
                    self._owner.answered_error(self, call, error)
                else:
                    self.answer(call, result)
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as exc:
            self.abort(f"the node sent something that is not a reply: {exc!r}")
            return
        self._owner.received(self)

    def answer(self, call: Call, result: Any) -> None:
        """Tell the caller what the node has answered."""
        try:
            call.future.set_result(call.decode(result))
        except LmqError as exc:
            call.fail(exc)
        except Moved:
            self._owner.answered_moved(call)
        except asyncio.InvalidStateError:
            self._owner.answered_late(call, call.decode(result))
        except NONSENSE:
            call.fail(LmqError("internal", f"the node's answer makes no sense: {result!r:.200}"))

    def _answer_shared(self, shared: SharedRequest, error: Any, result: Any) -> None:
        if error is None:
            shared.answered(self, result)
            return
        for call in list(shared.live_calls()):
            self.take(call)
            self.refuse(call, error)

    # --- what a shared request does with its calls --------------------------------------------------------------------

    def take(self, call: Call) -> None:
        """The call is answered."""
        self.pending.pop(call.serial & _MSGID_MASK, None)

    def refuse(self, call: Call, element: Any) -> None:
        """The node has answered the call with an error."""
        self._owner.answered_error(self, call, element)

    def late(self, call: Call, result: Any) -> None:
        """The node has answered a call whose caller has gone."""
        self._owner.answered_late(call, call.decode(result))

    # --- life -----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self.lost.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TCP connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """The TCP connection has ended, from whichever side."""
        self.lost.set_result(None)
        self._out.clear()
        reason = self._reason or self._why_lost(exc)
        self._owner.connection_lost(self, reason)

    def _why_lost(self, exc: Exception | None) -> str:
        if isinstance(exc, ssl.SSLError):
            return explain(exc)
        reason = f"{exc.__class__.__name__}: {exc}" if exc else "closed by the node"
        is_plain = self._transport is None or self._transport.get_extra_info("ssl_object") is None
        if is_plain and self._serial and len(self.pending) == self._serial:
            return f"{reason} before it had answered anything, as a node does that speaks TLS to a client without"
        return reason

    def abort(self, reason: str) -> None:
        """End the connection without sending what is buffered; `connection_lost` follows."""
        if self._transport is not None and not self._reason:
            self._reason = reason
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection after sending what is buffered; `connection_lost` follows."""
        if self._transport is not None and not self._reason:
            self._flush()
            self._reason = reason
            self._transport.close()
