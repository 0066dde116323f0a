"""Frames between peers, sealed with AES-256-GCM, so that none can be read, changed, left out or repeated.

Each direction of a connection has a separate key from the handshake, and the number of the frame is its nonce.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["SEAL_BYTES", "Seal", "SealError"]

SEAL_BYTES = 16
"""Bytes that sealing adds to a frame."""
_NONCE_BYTES = 12


class SealError(ConnectionError):
    """A frame is not the next one that the peer has sealed."""


class Seal:
    """One direction of a connection: either seals or opens."""

    __slots__ = ("_cipher", "_count")

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        self._count = 0

    def seal(self, payload: bytes) -> bytes:
        """Return the next payload as a sealed frame."""
        return self._cipher.encrypt(self._next(), payload, None)

    def open(self, payload: bytes) -> bytes:
        """Return the payload of the next frame.

        Raises:
            SealError: it is not the frame that was sent.
        """
        try:
            return self._cipher.decrypt(self._next(), payload, None)
        except InvalidTag as exc:
            raise SealError("a frame was changed on its way, or is not the next one") from exc

    def _next(self) -> bytes:
        self._count += 1
        return self._count.to_bytes(_NONCE_BYTES, "big")
