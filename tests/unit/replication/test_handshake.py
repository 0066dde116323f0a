"""The handshake of peers admits those that know the secret, and refuses others with the reason."""

from __future__ import annotations

import msgpack
import pytest

from lmqcluster.replication.peers import handshake
from lmqcluster.replication.peers.handshake import Exchange, Greeting, HandshakeError, Identity, stretched

SECRET = b"the cluster's secret"
DIALER = Identity("n1", 17, "127.0.0.1:1")
LISTENER = Identity("n2", 4, "127.0.0.1:2")
KEY = b"1" * 32


def exchanged(dialer: Exchange, listener: Exchange) -> tuple[Identity, bytes, bytes]:
    """Return the result of a whole handshake: the listener's id for the dialer, and what each side knows."""
    greeting = handshake.read_hello(dialer.hello())
    proof, known = dialer.answer(listener.challenge())
    welcome, listener_knows = listener.welcome(greeting, proof)
    return dialer.read_welcome(welcome, known), known, listener_knows


@pytest.mark.parametrize("secret", [SECRET, b""], ids=["secret", "none"])
def test_both_sides_accept_each_other_and_know_the_same(secret: bytes) -> None:
    key = stretched(secret)
    dialer, listener = Exchange(DIALER, key), Exchange(LISTENER, key)
    found, known, listener_knows = exchanged(dialer, listener)
    assert found == LISTENER
    assert known == listener_knows
    for direction in (handshake.TO_LISTENER, handshake.TO_DIALER):
        assert dialer.seal_key(known, direction) == listener.seal_key(listener_knows, direction)
    assert dialer.seal_key(known, handshake.TO_LISTENER) != dialer.seal_key(known, handshake.TO_DIALER)
    _, another, _ = exchanged(Exchange(DIALER, key), Exchange(LISTENER, key))
    assert another != known


def test_a_listener_reveals_nothing_that_depends_on_the_secret() -> None:
    """The data before the dialer's proof is a fresh key: it allows no guessing and does not identify the node."""
    (public,) = msgpack.unpackb(Exchange(LISTENER, stretched(SECRET)).challenge())
    assert len(public) == 32
    assert LISTENER.node_id.encode() not in public


def test_a_dialer_with_another_secret_is_refused_by_name() -> None:
    dialer, listener = Exchange(DIALER, stretched(b"another")), Exchange(LISTENER, stretched(SECRET))
    proof, _ = dialer.answer(listener.challenge())
    with pytest.raises(HandshakeError, match="node n1 has another cluster secret"):
        listener.welcome(handshake.read_hello(dialer.hello()), proof)


def test_a_listener_that_does_not_know_the_secret_is_refused() -> None:
    """It cannot make a welcome of the dialer's proof, nor return the proof."""
    dialer = Exchange(DIALER, stretched(SECRET))
    impostor = Exchange(LISTENER, b"")
    proof, known = dialer.answer(impostor.challenge())
    (shown,) = msgpack.unpackb(proof)
    for fake in (shown, bytes(32), impostor.seal_key(known, b"listener")):
        welcome = msgpack.packb([LISTENER.node_id, LISTENER.incarnation, LISTENER.address, fake])
        with pytest.raises(HandshakeError, match="node n2 at the other end has another cluster secret"):
            dialer.read_welcome(welcome, known)


def test_a_proof_is_good_for_one_pair_of_keys_and_one_identity() -> None:
    key = stretched(SECRET)
    dialer, listener, later = Exchange(DIALER, key), Exchange(LISTENER, key), Exchange(LISTENER, key)
    greeting = handshake.read_hello(dialer.hello())
    proof, _ = dialer.answer(listener.challenge())
    with pytest.raises(HandshakeError, match="another cluster secret"):
        later.welcome(greeting, proof)
    for identity in (Identity("n3", 17, DIALER.address), Identity("n1", 18, DIALER.address), Identity("n1", 17, "a:9")):
        with pytest.raises(HandshakeError, match="another cluster secret"):
            listener.welcome(Greeting(identity, greeting.key), proof)
    listener.welcome(greeting, proof)


def test_a_man_in_the_middle_cannot_forward_proofs() -> None:
    """With a man in the middle that uses separate keys on both sides, the dialer's proof is invalid for the
    listener.
    """
    key = stretched(SECRET)
    dialer, listener, middle = Exchange(DIALER, key), Exchange(LISTENER, key), Exchange(DIALER, b"")
    proof, _ = dialer.answer(middle.challenge())
    with pytest.raises(HandshakeError, match="another cluster secret"):
        listener.welcome(handshake.read_hello(middle.hello()), proof)


def test_a_key_that_gives_nothing_is_refused() -> None:
    """Points of small order would make the shared secret public."""
    with pytest.raises(HandshakeError, match="key is none"):
        Exchange(DIALER, b"").answer(msgpack.packb([bytes(32)]))


@pytest.mark.parametrize("payload", [b"", b"\x90", msgpack.packb(["text"]), msgpack.packb([b"k" * 32, 1])])
def test_an_invalid_challenge_is_refused(payload: bytes) -> None:
    with pytest.raises(HandshakeError, match="does not speak"):
        Exchange(DIALER, b"").answer(payload)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_challenge_of_the_wrong_size_is_refused(size: int) -> None:
    with pytest.raises(HandshakeError, match="key is none"):
        Exchange(DIALER, b"").answer(msgpack.packb([b"k" * size]))


def hello_fields(**changed: object) -> bytes:
    fields = {"magic": handshake.MAGIC, "version": 1, "id": "n1", "incarnation": 1, "address": "a:1", "key": KEY}
    return msgpack.packb(list((fields | changed).values()))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (hello_fields(version=2), "speaks version 2 of the peer protocol, this node 1"),
        (hello_fields(magic=b"something else!"), "does not speak lmqcluster's peer protocol"),
        (hello_fields(magic="lmqcluster-raft"), "does not speak"),
        (hello_fields(version=True), "does not speak"),
        (hello_fields(id=b"n1"), "does not speak"),
        (hello_fields(incarnation=1.0), "does not speak"),
        (hello_fields(address=None), "does not speak"),
        (hello_fields(key="1" * 32), "does not speak"),
        (hello_fields(key=b"1" * 31), "wrong size"),
        (hello_fields(key=b""), "wrong size"),
        (hello_fields(id=""), "wrong size"),
        (hello_fields(id="n" * 256), "wrong size"),
        (hello_fields(address="a" * 256), "wrong size"),
        (hello_fields(extra=1), "does not speak"),
        (b"", "does not speak"),
        (b"\xc1", "does not speak"),
        (b"\x92\x01", "does not speak"),
        (b"\x80", "does not speak"),
        (b"\x91\xa1\xff", "does not speak"),
        (b"\x91" * 2000, "does not speak"),
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_an_invalid_hello_is_refused_with_the_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(HandshakeError, match=reason):
        handshake.read_hello(payload)
