"""Mutual authentication of two peers before any other frame is read.

Both sides send a fresh X25519 key, which is also their nonce. The dialer proves first that it knows the cluster
secret, so that a stranger who dials gets nothing to test guesses of the secret on::

    dialer   -> listener   hello      [magic, version, id, incarnation, address, key]
    listener -> dialer     challenge  [key]
    dialer   -> listener   proof      [proof]
    listener -> dialer     welcome    [id, incarnation, address, proof]

A listener refuses a hello of another version. A proof is an HMAC-SHA256 over its direction, all earlier frames, and
the shared secret of both keys. It cannot be replayed, reflected or relayed, and an eavesdropper cannot test guesses
on it. A program that poses as a listener gets one proof; the secret is stretched with scrypt and must not be
guessable. The keys with which `sealing` protects the later frames are derived from the same values.

Without a secret the key is empty; the configuration allows that on loopback only.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

__all__ = [
    "Exchange",
    "Greeting",
    "HandshakeError",
    "Identity",
    "hello",
    "read_hello",
    "stretched",
]

MAGIC = b"lmqcluster-raft"
VERSION = 1
KEY_BYTES = 32
TO_LISTENER, TO_DIALER = b"to listener", b"to dialer"
_SCRYPT_LOG_N, _SCRYPT_R = 14, 8


class HandshakeError(ConnectionError):
    """The other side is not a peer of ours: wrong secret, wrong program, wrong node."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a node for its peers.

    Attributes:
        node_id: the member id.
        incarnation: grows with every start of the node.
        address: where the node can be dialled.
    """

    node_id: str
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first frame of one side: its identity and its fresh public key."""

    identity: Identity
    key: bytes


@lru_cache(maxsize=16)
def stretched(secret: bytes) -> bytes:
    """Return the key derived from a secret, empty for none; each guess at the secret costs this derivation."""
    if not secret:
        return b""
    return hashlib.scrypt(secret, salt=MAGIC, n=1 << _SCRYPT_LOG_N, r=_SCRYPT_R, p=1, dklen=32)


def hello(me: Identity, key: bytes) -> bytes:
    """Return the dialer's first frame."""
    return _pack([MAGIC, VERSION, me.node_id, me.incarnation, me.address, key])


def read_hello(payload: bytes) -> Greeting:
    """Check the dialer's first frame.

    Raises:
        HandshakeError: it is not a hello, or one of another version.
    """
    magic, version, *fields = _parse(payload, (bytes, int, str, int, str, bytes))
    if magic != MAGIC:
        raise HandshakeError("the other side does not speak lmqcluster's peer protocol")
    if version != VERSION:
        raise HandshakeError(f"the other side speaks version {version} of the peer protocol, this node {VERSION}")
    return _greeting(*fields)


def _parse(payload: bytes, kinds: tuple[type, ...]) -> list[Any]:
    """Decode a handshake frame with exactly these field types.

    Raises:
        HandshakeError: it has another shape.
    """
    try:
        fields = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as exc:
        raise HandshakeError("the other side does not speak lmqcluster's peer protocol") from exc
    if type(fields) is not list or tuple(map(type, fields)) != kinds:
        raise HandshakeError("the other side does not speak lmqcluster's peer protocol")
    return fields


class Exchange:
    """One side of a handshake.

    Args:
        me: identity of this node.
        key: the cluster's stretched secret, empty for none.

    Attributes:
        public: this side's key, fresh.
    """

    def __init__(self, me: Identity, key: bytes) -> None:
        self._me = me
        self._key = key
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    # --- the dialer's side ----------------------------------------------------------------------------------------

    def hello(self) -> bytes:
        """Return the first frame."""
        return hello(self._me, self.public)

    def answer(self, challenge: bytes) -> tuple[bytes, bytes]:
        """Return the frame that answers the listener's challenge, and the knowledge now shared by both sides.

        Raises:
            HandshakeError: it is not a challenge.
        """
        (listener_key,) = _parse(challenge, (bytes,))
        known = self._agree(self._me, self.public, listener_key, listener_key)
        return _pack([self._mac(known, b"dialer")]), known

    def read_welcome(self, welcome: bytes, known: bytes) -> Identity:
        """Return the identity of the listener.

        Raises:
            HandshakeError: it does not know the secret.
        """
        node_id, incarnation, address, shown = _parse(welcome, (str, int, str, bytes))
        listener = _greeting(node_id, incarnation, address, bytes(KEY_BYTES)).identity
        if not hmac.compare_digest(shown, self._mac(known, b"listener", listener)):
            raise HandshakeError(f"node {node_id} at the other end has another cluster secret")
        return listener

    # --- the listener's side --------------------------------------------------------------------------------------

    def challenge(self) -> bytes:
        """Return the frame that answers a hello. It reveals nothing about this node."""
        return _pack([self.public])

    def welcome(self, dialer: Greeting, proof: bytes) -> tuple[bytes, bytes]:
        """Return the frame that answers the dialer's proof, and the knowledge now shared by both sides.

        Raises:
            HandshakeError: the dialer does not know the secret.
        """
        (shown,) = _parse(proof, (bytes,))
        known = self._agree(dialer.identity, dialer.key, self.public, dialer.key)
        if not hmac.compare_digest(shown, self._mac(known, b"dialer")):
            raise HandshakeError(f"node {dialer.identity.node_id} has another cluster secret")
        me = self._me
        return _pack([me.node_id, me.incarnation, me.address, self._mac(known, b"listener", me)]), known

    # --- both sides -----------------------------------------------------------------------------------------------

    def seal_key(self, known: bytes, direction: bytes) -> bytes:
        """Return the key that seals one direction, ``to listener`` or ``to dialer``."""
        return self._mac(known, direction)

    def _agree(self, dialer: Identity, dialer_key: bytes, listener_key: bytes, other: bytes) -> bytes:
        """Return the secret shared by the two sides, with all values exchanged so far."""
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as exc:
            raise HandshakeError("the other side's key is none") from exc
        said = [VERSION, dialer.node_id, dialer.incarnation, dialer.address, dialer_key, listener_key]
        return _pack([*said, shared])

    def _mac(self, known: bytes, role: bytes, listener: Identity | None = None) -> bytes:
        named = [] if listener is None else [listener.node_id, listener.incarnation, listener.address]
        return hmac.new(self._key, MAGIC + _pack([role, known, *named]), hashlib.sha256).digest()


def _greeting(node_id: str, incarnation: int, address: str, key: bytes) -> Greeting:
    if len(key) != KEY_BYTES or not node_id or len(node_id) > 255 or len(address) > 255:
        raise HandshakeError("a greeting field has the wrong size")
    return Greeting(Identity(node_id, incarnation, address), key)


def _pack(fields: list[Any]) -> bytes:
    data: bytes = msgpack.packb(fields)
    return data
