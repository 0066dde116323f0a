"""One connection between peers as a stream of length-prefixed frames, plain, sealed, or within TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable

import structlog

from ...wire.limits import FRAME_BYTES_MAX, HANDSHAKE_BYTES_MAX
from .sealing import SEAL_BYTES, Seal, SealError
from .tls import TlsStream

__all__ = ["FrameStream", "speaks_tls"]

log = structlog.get_logger("lmq.peers")

UNACKNOWLEDGED_MS_MAX = 4000
"""A connection is closed if the peer's kernel does not acknowledge its data or probes for this long."""
_PROBES = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2))
"""Seconds until the first probe and between probes, and their number: a connection that only receives, or is idle, ends
within about ten seconds after the peer's machine has vanished.
"""
UNSENT_BYTES_MAX = 512 * 1024
"""Approximate limit of unsent bytes in buffers, so that urgent frames do not wait behind more."""
_TCP_NOTSENT_LOWAT = 25
_TLS_FIRST_BYTE = 0x16
"""First byte of a TLS handshake. A frame of ours before authentication is far too short to begin with it."""


class FrameStream(asyncio.Protocol):
    """Splits received bytes into frames, and frames sent payloads. Subclasses handle the frames.

    Args:
        tls: for a connection within TLS; None for a plain one, or for one that is not determined yet.

    Attributes:
        is_writable: whether the network accepts more now.
        on_writable: called when it accepts more again.
    """

    def __init__(self, tls: TlsStream | None = None) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = HANDSHAKE_BYTES_MAX
        self._transport: asyncio.Transport | None = None
        self._tls = tls
        self._sealing: Seal | None = None
        self._opening: Seal | None = None
        self.is_writable = True
        self.on_writable: Callable[[], None] = _nobody

    # --- asyncio's side -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)  # type: ignore[attr-defined]  # of a stream
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _PROBES:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
            if sys.platform == "linux":
                sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        # Only part of a frame is left.
        self._buffer = bytearray()
        self.on_writable = _nobody

    def pause_writing(self) -> None:
        """Note that the network's buffer is full."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Note that the network accepts more."""
        self.is_writable = True
        self.on_writable()

    def data_received(self, data: bytes) -> None:
        try:
            if self._tls is not None:
                data = self._decrypted(self._tls, data)
            self._buffer += data
            self._take_frames()
        except SealError as exc:
            self.broken(str(exc))

    def _decrypted(self, tls: TlsStream, data: bytes) -> bytes:
        """Return the payload of received TLS bytes; nothing if TLS is broken."""
        was_established = tls.established
        try:
            data = tls.feed(data)
        except (ssl.SSLError, ValueError) as exc:
            # The alert shows the reason to the other side.
            self._send(tls.outgoing())
            self.broken(_tls_reason(exc))
            return b""
        self._send(tls.outgoing())
        if tls.established and not was_established:
            self.tls_established()
        return data

    def _take_frames(self) -> None:
        buffer = self._buffer
        position = 0
        while len(buffer) - position >= 4:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if size > self._frame_bytes_max:
                self.frame_too_large(size)
                return
            if len(buffer) - position - 4 < size:
                break
            payload = bytes(buffer[position + 4 : position + 4 + size])
            position += 4 + size
            if self._opening is not None:
                payload = self._opening.open(payload)
            self.frame_received(payload)
        if position:
            del buffer[:position]

    # --- hooks of subclasses --------------------------------------------------------------------------------------

    def tls_established(self) -> None:
        """Called when both sides have shown their certificates."""

    def frame_received(self, payload: bytes) -> None:
        """Called for each frame."""
        raise RuntimeError(f"a subclass takes the frame of {len(payload)} bytes")

    def broken(self, reason: str) -> None:
        """Close the connection, because received bytes cannot be from a peer of ours."""
        log.warning("peer connection broken", reason=reason)
        self.close()

    def frame_too_large(self, size: int) -> None:
        """Called when a frame announces more bytes than are allowed now."""
        self.broken(f"a frame of {size} bytes is over the limit of {self._frame_bytes_max}")

    # --- sending --------------------------------------------------------------------------------------------------

    def write(self, *payloads: bytes) -> None:
        """Send frames."""
        pieces: list[bytes] = []
        sealing = self._sealing
        for payload in payloads:
            if sealing is not None:
                payload = sealing.seal(payload)  # noqa: PLW2901
            pieces += (len(payload).to_bytes(4, "big"), payload)
        data = b"".join(pieces)
        self._send(data if self._tls is None else self._tls.encrypt(data))

    def _send(self, data: bytes) -> None:
        # The peer may be gone before asyncio reports it; uvloop raises on writing to such a transport.
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def seal(self, *, outgoing: bytes, incoming: bytes) -> None:
        """Seal all further frames with these keys; within TLS do nothing."""
        if self._tls is None:
            self._sealing, self._opening = Seal(outgoing), Seal(incoming)

    def accept_large_frames(self) -> None:
        """Allow frames of full size, as the peer is authenticated."""
        self._frame_bytes_max = FRAME_BYTES_MAX + SEAL_BYTES

    @property
    def has_tls(self) -> bool:
        """Return whether the connection is within TLS."""
        return self._tls is not None

    def peer_serial(self) -> int | None:
        """Return the serial number of the peer's certificate; None without TLS."""
        return None if self._tls is None else self._tls.peer_serial

    def buffered(self) -> int:
        """Return the number of bytes that the network has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Send the written frames and close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()


def _nobody() -> None:
    """Do nothing: no sender waits."""


def speaks_tls(data: bytes) -> bool:
    """Return whether the first bytes of a connection are those of TLS."""
    return data[0] == _TLS_FIRST_BYTE


def _tls_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not good: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and (alert := (error.reason or "").partition("_ALERT_")[2]):
        return f"the other side refused TLS: {alert.lower().replace('_', ' ')}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return str(error)
