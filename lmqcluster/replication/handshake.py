"""Mutual authentication of two peers before anything else is read.

Challenge and response with HMAC-SHA256 under the cluster's secret. Both sides send a fresh nonce, and each proof
covers both nonces, both identities and its direction, so that a proof can be neither replayed nor reflected::

    dialer   -> listener   hello      [magic, version, id, incarnation, address, nonce]
    listener -> dialer     challenge  [id, incarnation, nonce, proof]
    dialer   -> listener   proof      [proof]
    listener -> dialer     welcome    [true]

Without a secret the key is empty; that is allowed on loopback only, which the configuration enforces.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

import msgpack

__all__ = [
    "Greeting",
    "HandshakeError",
    "Identity",
    "challenge",
    "hello",
    "parse",
    "proof",
    "proof_frame",
    "read_challenge",
    "read_hello",
]

MAGIC = b"lmqcluster-raft"
VERSION = 1
NONCE_BYTES = 32
WELCOME = msgpack.packb([True])


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


def hello(me: Identity, nonce: bytes) -> bytes:
    """The dialer's first frame."""
    return _pack([MAGIC, VERSION, me.node_id, me.incarnation, me.address, nonce])


def read_hello(payload: bytes) -> Greeting:
    """Check the dialer's first frame.

    Raises:
        HandshakeError: it is not a hello of our version.
    """
    fields = parse(payload, (bytes, int, str, int, str, bytes))
    if fields[0] != MAGIC:
        raise HandshakeError("the other side does not speak lmqcluster's peer protocol")
    if fields[1] != VERSION:
        raise HandshakeError(f"the other side speaks version {fields[1]} of the peer protocol, this node {VERSION}")
    return _greeting(fields[2], fields[3], fields[4], fields[5])


def challenge(me: Identity, nonce: bytes, dialer: Greeting, secret: bytes) -> bytes:
    """The listener's answer, which proves that it knows the secret."""
    mine = Greeting(me, nonce)
    return _pack([me.node_id, me.incarnation, me.address, nonce, proof(secret, b"listener", dialer, mine)])


def read_challenge(payload: bytes, mine: Greeting, secret: bytes) -> Greeting:
    """Check the listener's answer.

    Raises:
        HandshakeError: the listener does not know the secret.
    """
    node_id, incarnation, address, nonce, shown = parse(payload, (str, int, str, bytes, bytes))
    listener = _greeting(node_id, incarnation, address, nonce)
    if not hmac.compare_digest(shown, proof(secret, b"listener", mine, listener)):
        raise HandshakeError(f"node {node_id} at the other end has another cluster secret")
    return listener


def proof(secret: bytes, role: bytes, dialer: Greeting, listener: Greeting) -> bytes:
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


def proof_frame(secret: bytes, dialer: Greeting, listener: Greeting) -> bytes:
    """The dialer's second frame."""
    return _pack([proof(secret, b"dialer", dialer, listener)])


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


def _greeting(node_id: str, incarnation: int, address: str, nonce: bytes) -> Greeting:
    if len(nonce) != NONCE_BYTES or not node_id or len(node_id) > 255 or len(address) > 255:
        raise HandshakeError("a greeting field has the wrong size")
    return Greeting(Identity(node_id, incarnation, address), nonce)


def _pack(fields: list[Any]) -> bytes:
    data: bytes = msgpack.packb(fields)
    return data
