"""Patterns of heads that SDKs repeat: what they recognize, and that they recognize nothing else."""

from __future__ import annotations

import pytest

from lmqcluster.protocols.sqs.signature import Claim, Head, Signatures
from lmqcluster.wire.head_patterns import HeadPattern
from tests.integration.sqs_signed import signed

from .test_sqs_signature import KEY, KEY_ID, NOW_S, access

HOST = "127.0.0.1:9324"


def head_and_body(data: bytes) -> tuple[bytes, bytes]:
    head, end, body = data.partition(b"\r\n\r\n")
    return head + end, body


def claim_of(signatures: Signatures, head: bytes, now_s: float) -> Claim:
    """Return the claim that the port finds in a head."""
    lines = head.decode("latin-1").split("\r\n")[1:-2]
    pairs = [tuple(part.strip().encode("latin-1") for part in line.split(":", 1)) for line in lines]
    return signatures.recognize(Head("POST", "/", "", [(name, value) for name, value in pairs]), now_s)


def request(
    body: str = "x", more: dict[str, str] | None = None, *, now_s: float = NOW_S, invocation: str = "i" * 36
) -> bytes:
    return signed((KEY_ID, KEY), HOST, body.encode(), now_s, {"amz-sdk-invocation-id": invocation, **(more or {})})


@pytest.fixture
def signatures() -> Signatures:
    return Signatures(access(), is_encrypted=False)


def pattern_of(signatures: Signatures, data: bytes) -> tuple[HeadPattern, Claim]:
    head, _body = head_and_body(data)
    claim = claim_of(signatures, head, NOW_S)
    pattern = HeadPattern.of(head, claim.head())
    assert pattern is not None
    return pattern, claim


@pytest.mark.parametrize("more", [{}, {"x-amz-content-sha256": "HASH"}])
def test_a_repetition_has_the_signature_that_a_full_check_finds(signatures: Signatures, more: dict[str, str]) -> None:
    pattern, claim = pattern_of(signatures, request(more=more))
    for body, later_s, invocation in (("x", 0, "j" * 36), ("y" * 999, 1, "k%s" + "k" * 33), ("", 800, "i" * 36)):
        data = request(body, now_s=NOW_S + later_s, invocation=invocation, more=more)
        found = pattern.match(data)
        assert found is not None
        values, given = found
        assert (given.decode(), pattern.invocation(values)) == (body, invocation.encode())
        renewed = signatures.renewed(claim, *pattern.signature(values), NOW_S + later_s)
        assert renewed == claim_of(signatures, head_and_body(data)[0], NOW_S + later_s)
        assert signatures.verify(renewed, given) is claim.principal


def test_a_repetition_is_as_late_as_any_request(signatures: Signatures) -> None:
    pattern, claim = pattern_of(signatures, request())
    found = pattern.match(request())
    assert found is not None
    for now_s, text in ((NOW_S + 901, "expired"), (NOW_S - 901, "not yet current"), (NOW_S + 86_400, "expired")):
        with pytest.raises(Exception, match=text):
            signatures.renewed(claim, *pattern.signature(found[0]), now_s)
    tomorrow = pattern.match(request(now_s=NOW_S + 86_400).replace(b"20260922", b"20260921", 1))
    assert tomorrow is None or tomorrow[0] != found[0]


def test_a_head_with_any_other_byte_is_no_repetition(signatures: Signatures) -> None:
    data = request()
    pattern, _claim = pattern_of(signatures, data)
    values, body = pattern.match(data) or ((), b"")
    free = sum(map(len, values)) - len(body)
    end = data.index(b"\r\n\r\n") + 4
    recognized = 0
    for place in range(end):
        for byte in (b"\x00", b"\r", b"\n", b"0"):
            changed = data[:place] + byte + data[place + 1 :]
            if changed == data or (found := pattern.match(changed)) is None:
                continue
            recognized += byte == b"0"
            assert byte == b"0", place
            assert sum(one != other for one, other in zip(found[0], values, strict=True)) == 1, place
    assert 0 < recognized <= free


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data + b"x",
        lambda data: data[:-1],
        lambda data: data + data,
        lambda data: data.replace(b"POST /", b"POST /x", 1),
        lambda data: data.replace(b"i" * 36, b"iiii\r\nTransfer-Encoding: chunked\r\n", 1),
        lambda data: data.replace(b"i" * 36, b"i" * 35, 1),
        lambda data: data.replace(b"\r\n\r\n", b"\r\nx: y\r\n\r\n", 1),
        lambda data: b"",
    ],
)
def test_other_bytes_are_no_repetition(signatures: Signatures, change: object) -> None:
    data = request("a body of more than ten bytes")
    pattern, _claim = pattern_of(signatures, data)
    assert pattern.match(data) is not None
    assert callable(change)
    assert pattern.match(change(data)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.replace(b"Content-Length", b"X-Length"),
        lambda head: head.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
        lambda head: head.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"),
        lambda head: head.replace(b"\r\n\r\n", b"\r\namz-sdk-invocation-id: other\r\n\r\n"),
        lambda head: head.replace(b"\r\n\r\n", b"\r\nContent-length: 1\r\n\r\n"),
        lambda head: head.replace(b"Signature=", b"Signature=0"),
        lambda head: head[:-2],
        lambda head: b"",
    ],
)
def test_some_heads_have_no_pattern(signatures: Signatures, change: object) -> None:
    head, _body = head_and_body(request())
    claim = claim_of(signatures, head, NOW_S)
    assert callable(change)
    assert HeadPattern.of(change(head), claim.head()) is None
    assert HeadPattern.of(head, claim.head()._replace(signature="0" * 64)) is None
    assert HeadPattern.of(head, claim.head()) is not None


def test_a_client_without_a_signature_needs_none() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    pattern = HeadPattern.of(head, None)
    assert pattern is not None
    body = b"0123456789" * 99_999
    for size in (10, 999_990, 0, 7, 10):
        found = pattern.match(head.replace(b"2", b"%d" % size) + body[:size])
        assert found == ((b"%d" % size, b"", body[:size]), body[:size])
    for length in (b"", b"1234567", b"+2", b"2 ", b"x"):
        assert pattern.match(head.replace(b"2", length) + body[:2]) is None
