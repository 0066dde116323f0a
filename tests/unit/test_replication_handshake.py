"""The handshake of peers: who knows the secret gets in, who does not is told why in the log."""

from __future__ import annotations

import msgpack
import pytest

from lmqcluster.replication import handshake
from lmqcluster.replication.handshake import Greeting, HandshakeError, Identity

SECRET = b"the cluster's secret"
DIALER = Identity("n1", 17, "127.0.0.1:1")
LISTENER = Identity("n2", 4, "127.0.0.1:2")
NONCE_1, NONCE_2, NONCE_3 = b"1" * 32, b"2" * 32, b"3" * 32


def test_both_sides_accept_each_other() -> None:
    dialer = handshake.read_hello(handshake.hello(DIALER, NONCE_1))
    assert dialer == Greeting(DIALER, NONCE_1)
    mine = Greeting(DIALER, NONCE_1)
    listener = handshake.read_challenge(handshake.challenge(LISTENER, NONCE_2, dialer, SECRET), mine, SECRET)
    assert listener == Greeting(LISTENER, NONCE_2)
    (shown,) = msgpack.unpackb(handshake.proof_frame(SECRET, mine, listener))
    assert shown == handshake.proof(SECRET, b"dialer", dialer, Greeting(LISTENER, NONCE_2))


def test_listener_with_another_secret_is_refused_by_name() -> None:
    dialer = handshake.read_hello(handshake.hello(DIALER, NONCE_1))
    answer = handshake.challenge(LISTENER, NONCE_2, dialer, b"another")
    with pytest.raises(HandshakeError, match="node n2 at the other end has another cluster secret"):
        handshake.read_challenge(answer, Greeting(DIALER, NONCE_1), SECRET)


def test_listener_without_a_secret_is_refused() -> None:
    dialer = handshake.read_hello(handshake.hello(DIALER, NONCE_1))
    with pytest.raises(HandshakeError, match="secret"):
        handshake.read_challenge(handshake.challenge(LISTENER, NONCE_2, dialer, b""), Greeting(DIALER, NONCE_1), SECRET)


def test_answer_to_an_earlier_hello_is_refused() -> None:
    earlier = handshake.challenge(LISTENER, NONCE_2, Greeting(DIALER, NONCE_3), SECRET)
    with pytest.raises(HandshakeError, match="secret"):
        handshake.read_challenge(earlier, Greeting(DIALER, NONCE_1), SECRET)


def test_proof_covers_role_nonces_and_identities() -> None:
    dialer, listener = Greeting(DIALER, NONCE_1), Greeting(LISTENER, NONCE_2)
    variants = [
        (SECRET, b"dialer", dialer, listener),
        (SECRET, b"listener", dialer, listener),
        (b"another", b"dialer", dialer, listener),
        (SECRET, b"dialer", Greeting(DIALER, NONCE_3), listener),
        (SECRET, b"dialer", dialer, Greeting(LISTENER, NONCE_3)),
        (SECRET, b"dialer", Greeting(Identity("n3", 17, "127.0.0.1:1"), NONCE_1), listener),
        (SECRET, b"dialer", Greeting(Identity("n1", 18, "127.0.0.1:1"), NONCE_1), listener),
        (SECRET, b"dialer", Greeting(Identity("n1", 17, "127.0.0.1:9"), NONCE_1), listener),
        (SECRET, b"dialer", dialer, Greeting(Identity("n3", 4, "127.0.0.1:2"), NONCE_2)),
        (SECRET, b"dialer", dialer, Greeting(Identity("n2", 5, "127.0.0.1:2"), NONCE_2)),
        (SECRET, b"dialer", dialer, Greeting(Identity("n2", 4, "127.0.0.1:9"), NONCE_2)),
        (SECRET, b"dialer", listener, dialer),
    ]
    assert len({handshake.proof(*variant) for variant in variants}) == len(variants)


def hello_fields(**changed: object) -> bytes:
    fields = {"magic": handshake.MAGIC, "version": 1, "id": "n1", "incarnation": 1, "address": "a:1", "nonce": NONCE_1}
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
        (hello_fields(nonce="1" * 32), "does not speak"),
        (hello_fields(nonce=b"1" * 31), "wrong size"),
        (hello_fields(nonce=b""), "wrong size"),
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
def test_what_is_no_hello_is_refused_with_the_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(HandshakeError, match=reason):
        handshake.read_hello(payload)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x90", msgpack.packb(["n2", 1, "a:1", NONCE_2]), msgpack.packb(["n2", 1, "a:1", NONCE_2, "proof"])],
)
def test_what_is_no_challenge_is_refused(payload: bytes) -> None:
    with pytest.raises(HandshakeError, match="does not speak"):
        handshake.read_challenge(payload, Greeting(DIALER, NONCE_1), SECRET)
