"""Mutual authentication of two peers before anything else is read.

Version 2. Both sides send a fresh X25519 key, which is their nonce too. The dialer proves first that it knows the cluster's
secret, so that nobody who merely dials gets anything to try guesses on::

    dialer   -> listener   hello      [magic, 2, id, incarnation, address, key]
    listener -> dialer     challenge  [key]
    dialer   -> listener   proof      [proof]
    listener -> dialer     welcome    [id, incarnation, address, proof]

A proof is an HMAC-SHA256 over its direction, all that was said before, and what both keys yield together. So it can be neither
replayed nor reflected nor passed on, and whoever listens in cannot try guesses on it. Who poses as a listener gets one proof; the
secret is stretched with scrypt, and has to be one that cannot be guessed. From the same values come the keys with which
`sealing` guards what follows.

Version 1, of programs that know machine version 1 only, is spoken as long as the cluster has such members::

    dialer   -> listener   hello      [magic, 1, id, incarnation, address, nonce]
    listener -> dialer     challenge  [id, incarnation, address, nonce, proof]
    dialer   -> listener   proof      [proof]
    listener -> dialer     welcome    [true]

Without a secret the key is empty; that is allowed on loopback only, which the configuration enforces.
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
    "challenge_1",
    "hello",
    "hello_version",
    "parse",
    "proof_1",
    "proof_frame_1",
    "read_challenge_1",
    "read_hello",
    "stretched",
]

MAGIC = b"lmqcluster-raft"
OLD_VERSION, VERSION = 1, 2
NONCE_BYTES = 32
OLD_WELCOME = msgpack.packb([True])
TO_LISTENER, TO_DIALER = b"to listener", b"to dialer"
_SCRYPT_LOG_N, _SCRYPT_R = 14, 8


class HandshakeError(ConnectionError):
    """The other side is no peer of ours: wrong secret, wrong program, wrong node."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is to its peers.

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
    """One side's opening: its identity and nonce."""

    identity: Identity
    nonce: bytes


@lru_cache(maxsize=16)
def stretched(secret: bytes) -> bytes:
    """The key that stands for a secret: each guess at the secret costs as much as this. Empty for none."""
    if not secret:
        return b""
    return hashlib.scrypt(secret, salt=MAGIC, n=1 << _SCRYPT_LOG_N, r=_SCRYPT_R, p=1, dklen=32)


def hello(me: Identity, nonce: bytes, version: int = VERSION) -> bytes:
    """The dialer's first frame."""
    return _pack([MAGIC, version, me.node_id, me.incarnation, me.address, nonce])


def hello_version(payload: bytes) -> int:
    """The version that a dialer's first frame speaks.

    Raises:
        HandshakeError: it is no hello.
    """
    fields = parse(payload, (bytes, int, str, int, str, bytes))
    if fields[0] != MAGIC:
        raise HandshakeError("the other side does not speak lmqcluster's peer protocol")
    version: int = fields[1]
    return version


def read_hello(payload: bytes) -> Greeting:
    """Check the dialer's first frame, of either version.

    Raises:
        HandshakeError: it is not a hello of a version that this node knows.
    """
    version = hello_version(payload)
    if version not in (OLD_VERSION, VERSION):
        raise HandshakeError(f"the other side speaks version {version} of the peer protocol, this node {VERSION}")
    return _greeting(*parse(payload, (bytes, int, str, int, str, bytes))[2:])


def parse(payload: bytes, kinds: tuple[type, ...]) -> list[Any]:
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
    """One side of a handshake of version 2.

    Args:
        me: who this node is.
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
        """The first frame."""
        return hello(self._me, self.public)

    def answer(self, challenge: bytes) -> tuple[bytes, bytes]:
        """The frame that answers the listener's challenge, and what both sides know now.

        Raises:
            HandshakeError: it is no challenge.
        """
        (listener_key,) = parse(challenge, (bytes,))
        known = self._agree(self._me, self.public, listener_key, listener_key)
        return _pack([self._mac(known, b"dialer")]), known

    def read_welcome(self, welcome: bytes, known: bytes) -> Identity:
        """Who the listener is.

        Raises:
            HandshakeError: it does not know the secret.
        """
        node_id, incarnation, address, shown = parse(welcome, (str, int, str, bytes))
        listener = _greeting(node_id, incarnation, address, bytes(NONCE_BYTES)).identity
        if not hmac.compare_digest(shown, self._mac(known, b"listener", listener)):
            raise HandshakeError(f"node {node_id} at the other end has another cluster secret")
        return listener

    # --- the listener's side --------------------------------------------------------------------------------------

    def challenge(self) -> bytes:
        """The frame that answers a hello. It says nothing of this node."""
        return _pack([self.public])

    def welcome(self, dialer: Greeting, proof: bytes) -> tuple[bytes, bytes]:
        """The frame that answers the dialer's proof, and what both sides know now.

        Raises:
            HandshakeError: the dialer does not know the secret.
        """
        (shown,) = parse(proof, (bytes,))
        known = self._agree(dialer.identity, dialer.nonce, self.public, dialer.nonce)
        if not hmac.compare_digest(shown, self._mac(known, b"dialer")):
            raise HandshakeError(f"node {dialer.identity.node_id} has another cluster secret")
        me = self._me
        return _pack([me.node_id, me.incarnation, me.address, self._mac(known, b"listener", me)]), known

    # --- both -----------------------------------------------------------------------------------------------------

    def seal_key(self, known: bytes, direction: bytes) -> bytes:
        """The key that guards what is sent in one direction, ``to listener`` or ``to dialer``."""
        return self._mac(known, direction)

    def _agree(self, dialer: Identity, dialer_key: bytes, listener_key: bytes, other: bytes) -> bytes:
        """What only the two sides know, and what was said so far."""
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError as exc:
            raise HandshakeError("the other side's key is none") from exc
        said = [VERSION, dialer.node_id, dialer.incarnation, dialer.address, dialer_key, listener_key]
        return _pack([*said, shared])

    def _mac(self, known: bytes, role: bytes, listener: Identity | None = None) -> bytes:
        named = [] if listener is None else [listener.node_id, listener.incarnation, listener.address]
        return hmac.new(self._key, MAGIC + _pack([role, known, *named]), hashlib.sha256).digest()


# --- version 1 ----------------------------------------------------------------------------------------------------------


def challenge_1(me: Identity, nonce: bytes, dialer: Greeting, secret: bytes) -> bytes:
    """The listener's answer, which proves that it knows the secret."""
    mine = Greeting(me, nonce)
    return _pack([me.node_id, me.incarnation, me.address, nonce, proof_1(secret, b"listener", dialer, mine)])


def read_challenge_1(payload: bytes, mine: Greeting, secret: bytes) -> Greeting:
    """Check the listener's answer.

    Raises:
        HandshakeError: the listener does not know the secret.
    """
    node_id, incarnation, address, nonce, shown = parse(payload, (str, int, str, bytes, bytes))
    listener = _greeting(node_id, incarnation, address, nonce)
    if not hmac.compare_digest(shown, proof_1(secret, b"listener", mine, listener)):
        raise HandshakeError(f"node {node_id} at the other end has another cluster secret")
    return listener


def proof_1(secret: bytes, role: bytes, dialer: Greeting, listener: Greeting) -> bytes:
    """What only a holder of the secret can compute for this pair of greetings."""
    parts = [
        role,
        dialer.identity.node_id,
        dialer.identity.incarnation,
        dialer.identity.address,
        dialer.nonce,
        listener.identity.node_id,
        listener.identity.incarnation,
        listener.identity.address,
        listener.nonce,
    ]
    return hmac.new(secret, MAGIC + _pack(parts), hashlib.sha256).digest()


def proof_frame_1(secret: bytes, dialer: Greeting, listener: Greeting) -> bytes:
    """The dialer's second frame."""
    return _pack([proof_1(secret, b"dialer", dialer, listener)])


def _greeting(node_id: str, incarnation: int, address: str, nonce: bytes) -> Greeting:
    if len(nonce) != NONCE_BYTES or not node_id or len(node_id) > 255 or len(address) > 255:
        raise HandshakeError("a greeting field has the wrong size")
    return Greeting(Identity(node_id, incarnation, address), nonce)


def _pack(fields: list[Any]) -> bytes:
    data: bytes = msgpack.packb(fields)
    return data
