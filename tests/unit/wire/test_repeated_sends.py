"""Patterns of repeated sends of SQS: what they recognize and decode, and that everything else is left to the port."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.wire.aws_signature import SigningKey
from lmqcluster.wire.head_patterns import SignedHead
from lmqcluster.wire.legacy_msgpack import pack, unpack
from lmqcluster.wire.repeated_sends import RepeatedSend, Sent
from lmqcluster.wire.repeats import Pattern, pattern_of
from lmqcluster.wire.sdk_attempts import attempt_of
from lmqcluster.wire.xml_text import is_xml_text
from tests.integration.sqs_signed import signed

SECRET, URL, HOST = "secret", "http://localhost/000000000000/shop", "127.0.0.1:9324"
INVOCATION = "amz-sdk-invocation-id"
NOW_S = 1_790_000_000.0


@pytest.fixture(scope="module", autouse=True)
def now() -> Iterator[None]:
    """Set the time of day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmqcluster.wire.repeated_sends.time.time", lambda: NOW_S)
        yield


def body_of(text: Any, **more: Any) -> bytes:
    return json.dumps({"QueueUrl": URL, "MessageBody": text, **more}).encode()


def request(body: bytes, *, now_s: float = NOW_S, invocation: str = "i" * 36, secret: str = SECRET) -> bytes:
    headers = {INVOCATION: invocation} if invocation else {}
    return signed(("key", secret), HOST, body, now_s, headers)


def head_of(data: bytes) -> bytes:
    return data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def value_of(head: bytes, name: str) -> str:
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
    return {key.lower(): value for key, value in lines.items()}[name]


def signed_head(head: bytes) -> SignedHead:
    """Return the signature of a head, with the canonical request that its client has signed."""
    authorization = value_of(head, "authorization")
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    lines = ["POST", "/", "", *(f"{name}:{value_of(head, name)}" for name in names), "", ";".join(names), ""]
    return SignedHead(
        value_of(head, "x-amz-date"), authorization.rpartition("Signature=")[2], "\n".join(lines).encode()
    )


def pattern(first: bytes, entries_max: int = 0) -> Pattern:
    """Return the pattern of a signed request as a front end gets it: sent over a channel."""
    head = head_of(first)
    given = signed_head(head)
    key = SigningKey.of(SECRET, given.stamp[:8], "us-east-1", may_omit_body=False)
    return pattern_of(unpack(pack(list(RepeatedSend(head, URL, entries_max, given, key).row()))))


def sent(found: tuple[bytes, Any] | None) -> list[Sent]:
    """Return the messages as the node gets them: sent over a channel."""
    assert found is not None
    tag, messages = found
    assert tag == b""
    return [tuple(one) for one in unpack(pack(messages))]


def message(name: str, text: str, invocation: str, place: int = 0) -> Sent:
    content = text.encode()
    attempt = attempt_of(invocation.encode(), content, b"", place) if invocation else None
    return name.encode(), hashlib.md5(content).hexdigest().encode(), attempt, content


def batch_of(*entries: Any, **more: Any) -> bytes:
    return json.dumps({"QueueUrl": URL, "Entries": entries, **more}).encode()


def entry(name: Any, text: Any = "x", **more: Any) -> dict[str, Any]:
    return {"Id": name, "MessageBody": text, **more}


TEXTS = st.text(min_size=1, max_size=300).filter(is_xml_text)


@given(TEXTS, st.sampled_from(["", "i" * 36, "j" * 36]))
def test_a_repetition_is_decoded(text: str, invocation: str) -> None:
    first = request(body_of("first"), invocation=invocation)
    found = sent(pattern(first).match(request(body_of(text), invocation=invocation)))
    assert found == [message("", text, invocation)]


@given(st.lists(TEXTS, min_size=1, max_size=10))
def test_a_repeated_batch_is_decoded(texts: list[str]) -> None:
    """Each message has another attempt, even if they are equal."""
    first = request(batch_of(entry("first")))
    data = request(batch_of(*(entry(f"e-{place}", text) for place, text in enumerate(texts))))
    found = sent(pattern(first, 10).match(data))
    assert found == [message(f"e-{place}", text, "i" * 36, place) for place, text in enumerate(texts)]
    assert len({attempt for _name, _digest, attempt, _content in found}) == len(texts)


def test_a_client_without_a_signature_needs_none() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
    plain = pattern_of(unpack(pack(list(RepeatedSend(head, URL).row()))))
    body = body_of("x")
    assert sent(plain.match(head.replace(b"2", b"%d" % len(body)) + body)) == [message("", "x", "")]


@pytest.mark.parametrize(
    "body",
    [
        body_of(""),
        body_of(7),
        body_of(None),
        body_of("\x00"),
        b'{"QueueUrl": "%b", "MessageBody": "\\ud800"}' % URL.encode(),
        body_of("x", DelaySeconds=0),
        body_of("x", MessageAttributes={}),
        json.dumps({"QueueUrl": URL}).encode(),
        json.dumps({"QueueUrl": URL + "s", "MessageBody": "x"}).encode(),
        json.dumps({"QueueUrl": [URL], "MessageBody": "x"}).encode(),
        json.dumps([URL, "x"]).encode(),
        b"[" * 10_000,
        b'{"QueueUrl": "\xff"}',
        b"",
        batch_of(entry("a")),
    ],
)
def test_other_bodies_are_left_to_the_port(body: bytes) -> None:
    assert pattern(request(body_of("first"))).match(request(body)) is None


@pytest.mark.parametrize(
    "body",
    [
        body_of("x"),
        batch_of(),
        batch_of(*(entry(f"e{number}") for number in range(11))),
        batch_of(entry("a"), entry("a")),
        batch_of(entry("")),
        batch_of(entry("a b")),
        batch_of(entry("a" * 81)),
        batch_of(entry(7)),
        batch_of(entry(["a"])),
        batch_of(entry("a", "")),
        batch_of(entry("a"), entry("b", "\x00")),
        batch_of(entry("a", DelaySeconds=1)),
        batch_of({"Id": "a"}),
        batch_of("a"),
        batch_of(None),
        json.dumps({"QueueUrl": URL, "Entries": {"Id": "a"}}).encode(),
        json.dumps({"QueueUrl": URL, "Entries": None}).encode(),
        json.dumps({"QueueUrl": URL, "Entries": 7}).encode(),
    ],
)
def test_other_batches_are_left_to_the_port(body: bytes) -> None:
    assert pattern(request(batch_of(entry("first"))), 10).match(request(body)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda: request(body_of("right")).replace(b"right", b"wrong"),
        lambda: request(body_of("x"), secret="other"),
        lambda: request(body_of("x"), now_s=NOW_S - 1_000),
        lambda: request(body_of("x"), now_s=NOW_S + 1_000),
        lambda: request(body_of("x"), now_s=NOW_S - 86_400),
        lambda: request(body_of("x")) + b"x",
        lambda: request(body_of("x"))[:-1],
        lambda: request(body_of("x"), invocation="i" * 35),
    ],
)
def test_other_requests_are_left_to_the_port(change: Callable[[], bytes]) -> None:
    own = pattern(request(body_of("first")))
    assert own.match(request(body_of("x"))) is not None
    assert own.match(change()) is None


def test_a_head_without_a_signature_has_no_key() -> None:
    head = head_of(request(body_of("x")))
    with pytest.raises(ValueError, match="do not simply follow"):
        RepeatedSend(head, URL, 0, signed_head(head), None)
    with pytest.raises(ValueError, match="do not simply follow"):
        RepeatedSend(head.replace(b"Content-Length", b"X-Length"), URL)
