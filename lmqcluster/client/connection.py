"""One connection to one node: frames out, replies in, matched by msgid.

Decides nothing: errors, losses and late answers are handed to the `Owner`.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from struct import Struct
from typing import Any, Protocol, cast

import msgpack

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import make_unpacker

from .addresses import NodeAddress
from .calls import Call, Control, Moved
from .requests import request_body
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

_head = Struct(">BBBI").pack  # array of 4, type 0, uint32 msgid


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
        silent_sweeps: how many sweeps of the owner have passed since the node sent anything.
    """

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, address: NodeAddress) -> None:
        self.address = address
        self.since = loop.time()
        self.paused = False
        self.pending: dict[int, Call] = {}
        self.next_sequence = 0
        self.silent_sweeps = 0
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._serial = 0
        self._out: list[bytes] = []
        self._reason = ""
        self._transport: asyncio.Transport | None = None
        self._unpacker = make_unpacker(REPLY_BYTES_MAX)

    # --- out ------------------------------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Send the call's body under a fresh msgid, together with all others of this turn of the event loop."""
        serial = self._serial + 1
        pending = self.pending
        msgid = serial & _MSGID_MASK
        while msgid in pending:  # Only after 2**32 requests, over one that still waits.
            serial += 1
            msgid = serial & _MSGID_MASK
        self._serial = call.serial = serial
        pending[msgid] = call
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(_head(0x94, 0, 0xCE, msgid))
        out.append(call.body)

    def authenticate(self, token: bytes) -> asyncio.Future[Any]:
        """Show the node a token; a connection whose token is refused ends."""
        return self._control(b"auth", [token])

    def bind(self, producer: bytes, first_sequence: int) -> asyncio.Future[Any]:
        """Tell the node the number of the next push, where the count begins or has a gap.

        A node that refuses that cannot be used, so the connection ends then.
        """
        self.next_sequence = first_sequence
        return self._control(b"producer", [producer, first_sequence])

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
        if self.pending.get(msgid) is call:
            self._notify(b"cancel", [msgid])

    def _notify(self, method: bytes, arguments: list[object]) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(b"\x93\x02" + request_body(method, arguments))

    def _flush(self) -> None:
        transport = self._transport
        if self.paused or self._reason or transport is None:
            return
        out = self._out
        if sum(map(len, out)) > _WRITE_BYTES:
            self._flush_in_pieces(transport)
            return
        data = b"".join(out)
        out.clear()
        transport.write(data)

    def _flush_in_pieces(self, transport: asyncio.Transport) -> None:
        # The transport copies what the socket does not take, so it gets no more than it asks for.
        out = self._out
        start = 0
        while start < len(out) and not self.paused:
            end, size = start, 0
            while end < len(out) and size < _WRITE_BYTES:
                size += len(out[end])
                end += 1
            transport.write(b"".join(out[start:end]))
            start = end
        del out[:start]

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
        pending = self.pending
        try:
            unpacker.feed(data)
            for kind, msgid, error, result in unpacker:
                call = pending.pop(msgid, None) if kind == 1 else None
                if call is None:
                    self.abort(f"the node answered msgid {msgid!r}, which nothing waits for")
                    return
                if error is not None:
                    self._owner.answered_error(self, call, error)
                    continue
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
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as exc:
            self.abort(f"the node sent something that is not a reply: {exc!r}")
            return
        self._owner.received(self)

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
