"""One connection to one node, which sends requests and matches replies by msgid.

It makes no decisions: it reports errors, losses and late answers to the `Owner`.
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
"""Size of the largest accepted reply; a batch pull can return many large messages."""
_WRITE_BYTES = 256 * 1024
_BUFFER_BYTES_MAX = 1024 * 1024
"""If more bytes than this are unsent, the connection counts as paused."""
_MSGID_MASK = 0xFFFF_FFFF
NONSENSE = (ValueError, TypeError, LookupError, AttributeError)
"""Exceptions that decoding an invalid answer raises."""

_head = Struct(">BBBI").pack  # array of 4, type 0, uint32 msgid


def _rpc_addresses(result: Any) -> Any:
    return result[b"rpc"]


class Owner(Protocol):
    """Receiver of a connection's events."""

    def answered_error(self, connection: Connection, call: Call, element: Any) -> None:
        """Handle an error answer to `call`, which is no longer pending."""

    def answered_moved(self, call: Call) -> None:
        """Handle a pull that moves to another node; the node cancelled it, and no message was in flight."""

    def answered_late(self, call: Call, value: Any) -> None:
        """Handle an answer that arrived after the caller was cancelled."""

    def received(self, connection: Connection) -> None:
        """Continue after input was processed, or after the node reads again."""

    def write_paused(self, connection: Connection) -> None:
        """Pause because the node reads too slowly; `received` follows when it catches up."""

    def connection_lost(self, connection: Connection, reason: str) -> None:
        """Handle the loss of the connection, after which no reply arrives."""


class Connection(asyncio.Protocol):
    """A connection to one node, see the module.

    Attributes:
        address: the node.
        since: loop time in seconds of its creation.
        lost: done when the connection has ended.
        paused: whether the node reads too slowly at present.
        pending: unanswered calls by msgid, in the order they were sent.
        next_sequence: the producer sequence number that the node will give to the next push.
        token: the token presented to the node, None without one.
        silent_sweeps: number of sweeps of the owner since the node last sent anything.
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
        # The last element of `_out`, if another call may join it.
        self._last: Call | SharedRequest | None = None
        # Unanswered shared requests by msgid.
        self._shared: dict[int, SharedRequest] = {}
        self._reason = ""
        self._transport: asyncio.Transport | None = None
        self._unpacker = make_unpacker(REPLY_BYTES_MAX)

    # --- out ------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Send the call under a fresh msgid, in one write with all others of this turn of the event loop."""
        serial = self._serial + 1
        pending = self.pending
        msgid = serial & _MSGID_MASK
        while msgid in pending or msgid in self._shared:  # Only if a request is pending since 2**32 requests.
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
        """Coalesce the call into the last request of this turn."""
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
        """Present a token to the node. If the node refuses it, the connection ends."""
        self.token = token
        return self._control(b"auth", [token])

    def bind(self, producer: bytes, first_sequence: int) -> asyncio.Future[Any]:
        """Announce the number of the next push, at the start and after a gap.

        If the node refuses, the connection ends, because it cannot be used.
        """
        self.next_sequence = first_sequence
        return self._control(b"producer", [producer, first_sequence])

    def ask_for_nodes(self, learn: Callable[[Any, NodeAddress], None]) -> None:
        """Ask the node for the addresses of all members. If it answers, call `learn` with them and the node's address."""

        def answered(future: asyncio.Future[Any]) -> None:
            # The client may lack the permission, and an old node may not have the method.
            if not future.cancelled() and future.exception() is None:
                learn(future.result(), self.address)

        call = Control(self._loop.create_future(), request_body(b"cluster", []), _rpc_addresses, math.inf)
        call.future.add_done_callback(answered)
        self.send(call)

    def ping(self) -> None:
        """Ping the node."""
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
        """Cancel a pull at the node, which then answers it as empty."""
        msgid = call.serial & _MSGID_MASK
        if self.pending.get(msgid) is not call:
            return
        cancel_shared = call.cancel_shared if isinstance(call, Pull) else None
        request = msgid if cancel_shared is None else cancel_shared()
        if request >= 0:
            self._notify(b"cancel", [request])

    def _notify(self, method: bytes, arguments: list[object]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(b"\x93\x02" + request_body(method, arguments))
        self._last = None

    def ask_again(self, shared: SharedRequest) -> None:
        """Send a shared request again for its remaining calls, under a new msgid."""
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
        # The transport copies unsent bytes, so writes stop as soon as it is paused.
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
        """Pause because the transport's buffer is full."""
        self.paused = True
        self._owner.write_paused(self)

    def resume_writing(self) -> None:
        """Resume because the transport's buffer is nearly empty."""
        self.paused = False
        if self._out:
            self._flush()
        self._owner.received(self)

    # --- in -------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process all complete replies."""
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
        """Resolve the call with the node's answer."""
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

    # --- called by shared requests ------------------------------------------------------------------------------------

    def take(self, call: Call) -> None:
        """Remove an answered call from the pending ones."""
        self.pending.pop(call.serial & _MSGID_MASK, None)

    def refuse(self, call: Call, element: Any) -> None:
        """Report an error answer to the call."""
        self._owner.answered_error(self, call, element)

    def late(self, call: Call, result: Any) -> None:
        """Report an answer that arrived after the caller was cancelled."""
        self._owner.answered_late(call, call.decode(result))

    # --- life -----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Return whether the connection is open for requests."""
        return self._transport is not None and not self.lost.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the open TCP connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_BUFFER_BYTES_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the TCP connection, whichever side closed it."""
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
        """End the connection and discard buffered output; `connection_lost` follows."""
        if self._transport is not None and not self._reason:
            self._reason = reason
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection after sending buffered output; `connection_lost` follows."""
        if self._transport is not None and not self._reason:
            self._flush()
            self._reason = reason
            self._transport.close()
