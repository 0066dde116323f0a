"""TLS between peers: both sides show a certificate of the cluster's authority that is marked as one of a node.

The mark is a URI among the alternative names, ``urn:lmqcluster:node:NAME``, as ``lmq-admin tls init`` writes it. Host
names are not compared: a peer's address may be that of a proxy, and the holder of a node's key is a node wherever it
listens.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from cryptography import x509

__all__ = ["NODE_MARK", "PeerTls", "TlsStream"]

NODE_MARK = "urn:lmqcluster:node:"
_READ_BYTES = 256 * 1024


class PeerTls:
    """Certificate, key and authority of a node, for connections in both directions."""

    def __init__(self, cert: Path, key: Path, authority: Path) -> None:
        """Read the files.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file has invalid content, or the certificate is not one of a node.
        """
        self._cert, self._key, self._authority = cert, key, authority
        self._listening, self._dialling = self._load()

    def reload(self) -> None:
        """Reload the files for new connections; raise like the constructor, and then keep the old ones."""
        self._listening, self._dialling = self._load()

    def stream(self, *, listening: bool) -> TlsStream:
        """Return TLS for one connection."""
        return TlsStream(self._listening if listening else self._dialling, listening=listening)

    def _load(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        reason = _why_no_node(x509.load_pem_x509_certificate(self._cert.read_bytes()))
        if reason is not None:
            raise ValueError(f"{self._cert} {reason}: make it with lmq-admin tls init, or give it that name")
        return self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        if side == ssl.PROTOCOL_TLS_SERVER:
            # Tickets would resume a session without a certificate being shown.
            context.num_tickets = 0
        try:
            context.load_cert_chain(self._cert, self._key, _no_password)
        except ssl.SSLError as exc:
            raise ValueError(f"{self._cert} and {self._key} are no certificate with its key: {exc}") from exc
        try:
            context.load_verify_locations(self._authority)
        except ssl.SSLError as exc:
            raise ValueError(f"{self._authority} holds no certificate: {exc}") from exc
        return context


class TlsStream:
    """TLS over any byte transport.

    Attributes:
        established: both sides have seen each other's certificate.
        peer_serial: the serial number of the peer's certificate.
    """

    def __init__(self, context: ssl.SSLContext, *, listening: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=listening)
        self.established = False
        self.peer_serial: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the network and return their payload. Afterwards `outgoing` may have bytes to send.

        Raises:
            ssl.SSLError: they are not TLS, or the authority has not issued the peer's certificate.
            ValueError: the peer's certificate is not that of a node.
        """
        self._incoming.write(data)
        if not self.established and not self._shake_hands():
            return b""
        pieces = []
        try:
            while piece := self._object.read(_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            # The end of the connection follows.
            pass
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def start(self) -> bytes:
        """Return the dialer's first bytes."""
        self._shake_hands()
        return self.outgoing()

    def encrypt(self, data: bytes) -> bytes:
        """Return the bytes to send for this payload."""
        view = memoryview(data)
        while view:
            view = view[self._object.write(view) :]
        return self.outgoing()

    def outgoing(self) -> bytes:
        """Return the bytes to send now."""
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        shown = self._object.getpeercert(binary_form=True)
        if shown is None:
            raise ValueError("the other side has shown no certificate")
        cert = x509.load_der_x509_certificate(shown)
        reason = _why_no_node(cert)
        if reason is not None:
            raise ValueError(f"the other side's certificate {reason}")
        self.established, self.peer_serial = True, cert.serial_number
        return True


def _why_no_node(cert: x509.Certificate) -> str | None:
    """Return the reason why a certificate is not that of a node; None if it is."""
    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    if any(uri.startswith(NODE_MARK) for uri in names.get_values_for_type(x509.UniformResourceIdentifier)):
        return None
    return f"is not marked as a node's (no name {NODE_MARK}NAME)"


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal.
    raise ValueError("the key has a password: a node cannot ask for it")
