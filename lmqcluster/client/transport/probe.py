"""Detection of the protocol that listens at an address, if it is not the expected one.

The client probes only after a connection has failed, so that the error names a wrong port or a TLS mismatch immediately.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from enum import StrEnum

from lmqcluster.net.blocking import connect

from .requests import request_body

__all__ = ["Answers", "Speaks", "what_answers"]

TIMEOUT_S = 1.0
_READ_BYTES = 64
# A ping for MessagePack-RPC. The empty lines make an HTTP server answer with an error.
_QUESTION = b"\x94\x00\x00" + request_body(b"ping", []) + b"\r\n\r\n"
_REPLY = (b"\x94\x01", b"\x93\x02")
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
# OpenSSL's reasons for an answer that is not TLS.
_NOT_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}


class Speaks(StrEnum):
    """Protocols of a node's ports."""

    RPC = "MessagePack-RPC"
    HTTP = "HTTP"


@dataclass(frozen=True, slots=True)
class Answers:
    """The protocol found or expected at an address.

    Attributes:
        speaks: the protocol, None if unknown.
        tls: whether it runs over TLS.
    """

    speaks: Speaks | None
    tls: bool

    def __str__(self) -> str:
        if self.speaks is None:
            return "something over TLS" if self.tls else "neither MessagePack-RPC nor HTTP"
        return f"{self.speaks} over TLS" if self.tls else f"{self.speaks} without TLS"

    def is_other_than(self, wanted: Answers) -> bool:
        """Return whether this certainly differs from `wanted`; a node that is shutting down does not reveal its protocol."""
        return (
            self.tls != wanted.tls if self.speaks is None and self.tls else self.speaks is not None and self != wanted
        )


def what_answers(host: str, port: int) -> Answers | None:
    """Probe an address, blocking for up to four times `TIMEOUT_S`. The probe sends no token and no certificate.

    Returns:
        None if nothing listens there.
    """
    try:
        first = _first_bytes(host, port, tls=False)
        if first and not first.startswith(_TLS_RECORDS):
            return Answers(_protocol(first), tls=False)
        first = _first_bytes(host, port, tls=True)
    except ssl.SSLError as exc:
        # An alert, such as a request for a certificate, is TLS too.
        return Answers(None, tls=exc.reason not in _NOT_TLS and not isinstance(exc, ssl.SSLEOFError))
    except (ConnectionResetError, BrokenPipeError, TimeoutError):
        return Answers(None, tls=False)
    except OSError:
        return None
    return Answers(_protocol(first), tls=True)


def _protocol(first: bytes) -> Speaks | None:
    if first.startswith(_REPLY):
        return Speaks.RPC
    return Speaks.HTTP if first.startswith(b"HTTP/") else None


def _first_bytes(host: str, port: int, *, tls: bool) -> bytes:
    """Return the first bytes of the answer to the probe; empty if the peer stays silent or closes.

    Raises:
        OSError: the connection or the TLS handshake failed.
    """
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(connect(host, port, timeout_s=TIMEOUT_S, lookup_s=TIMEOUT_S))
        if tls:
            link = stack.enter_context(_anybody().wrap_socket(link, server_hostname=host))
        try:
            link.sendall(_QUESTION)
            return link.recv(_READ_BYTES)
        except OSError:
            # The handshake has already shown whether the peer speaks TLS.
            return b""


def _anybody() -> ssl.SSLContext:
    """Return a TLS context that accepts any peer; nothing confidential is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
