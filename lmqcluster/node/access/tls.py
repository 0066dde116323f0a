"""TLS of the client ports: one certificate for HTTP and MessagePack-RPC, reloaded from its files without a restart."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from cryptography import x509

__all__ = ["ServerTls", "handshake"]

HANDSHAKE_S = 10.0
"""Maximum duration of a client's handshake."""


class ServerTls:
    """The TLS context of listeners. Open connections keep the certificate with which they began.

    Attributes:
        context: for new connections.
        expires_s: when the certificate expires, in seconds since 1970.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Read the files.

        Args:
            cert: the certificate, followed by its intermediate certificates, in PEM.
            key: its private key, in PEM without a password.
            client_ca: the authority whose certificates clients must present; None if clients need none.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file has the wrong content, or key and certificate do not match.
        """
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self.context = self._load()
        self.expires_s = self._expiry()

    def reload(self) -> None:
        """Reload certificate and key. Raises as the constructor does; the old ones then stay in use.

        The client authority is read only at the start.
        """
        # Load into a separate context first, so that an invalid pair does not change the one in use.
        self._load()
        expires_s = self._expiry()
        self.context.load_cert_chain(self._cert, self._key, _no_password)
        self.expires_s = expires_s

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Restrict version 1.2 to forward secrecy and authenticated encryption, as in 1.3.
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
        # The certificate may name any host; compression and renegotiation are off by default.
        try:
            context.load_cert_chain(self._cert, self._key, _no_password)
        except ssl.SSLError as exc:
            raise ValueError(f"{self._cert} and {self._key} are no certificate with its key: {exc}") from exc
        if self._client_ca is not None:
            try:
                context.load_verify_locations(self._client_ca)
            except ssl.SSLError as exc:
                raise ValueError(f"{self._client_ca} holds no certificate: {exc}") from exc
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _expiry(self) -> float:
        return x509.load_pem_x509_certificate(self._cert.read_bytes()).not_valid_after_utc.timestamp()


def _no_password() -> str:
    # Without this callback OpenSSL would prompt on the terminal.
    raise ValueError("the key has a password: a node cannot ask for it")


def handshake(tls: ServerTls | None) -> dict[str, Any]:
    """Return the TLS arguments of a listener; empty without TLS."""
    return {} if tls is None else {"ssl": tls.context, "ssl_handshake_timeout": HANDSHAKE_S}
