"""Bad input for the SQS port: actions with wrong parameters in both forms, and mutated requests."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote_plus

from lmqcluster.protocols.sqs.shapes import SHAPES, Kind, Member

from .inputs import INTERESTING, Input, cut, mutated

__all__ = ["sqs_input"]

_ACTIONS = (*SHAPES, "FooBar", "")
_TEXTS = (
    "fuzz", "fuzz.fifo", "http://x/1/fuzz", "", "All", "x" * 300, "\u20ac", "\x00", "\ud800", "%", "arn:aws:sqs:a:b:fuzz",
    "AQhyuPMAAAAAAAAAAQAAAAFrChh2", "true", "String", "Binary.x", "{}", '{"maxReceiveCount":1}', "[[[[", "-1", "30",
)  # fmt: skip
_NAMES = (
    "VisibilityTimeout", "RedrivePolicy", "RedriveAllowPolicy", "FifoQueue", "Policy", "DelaySeconds", "a", "AWS.x", "",
    "KmsMasterKeyId", "AWSTraceHeader",
)  # fmt: skip
_HEADERS = (
    b"Host: evil.example", b"Origin: http://evil.example", b"Sec-Fetch-Site: cross-site", b"Content-Length: 7000000",
    b"Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/x/sqs/aws4_request, SignedHeaders=host, Signature=00",
    b"Authorization: AWS4-HMAC-SHA256 Credential=/", b"X-Amz-Date: 20260101T000000Z", b"X-Amzn-Trace-Id: \xff",
    b"amz-sdk-invocation-id: 0", b"Expect: 100-continue", b"Transfer-Encoding: chunked", b"Connection: close",
)  # fmt: skip


def _value(rng: random.Random, member: Member) -> Any:
    if rng.random() < 0.1:
        return rng.choice((None, True, 1.5, 10**30, [], {}, [[]], {"a": {"b": []}}, rng.choice(_TEXTS)))
    if member.kind is Kind.NUMBER:
        return rng.choice((0, 1, 10, 30, -1, 2**63, "5", "x"))
    if member.kind is Kind.TEXTS:
        return rng.choices((*_TEXTS, *_NAMES), k=rng.choice((0, 1, 3)))
    if member.kind is Kind.MAP:
        return {rng.choice(_NAMES): rng.choice(_TEXTS) for _ in range(rng.choice((0, 1, 3)))}
    if member.kind is Kind.ATTRIBUTES:
        return {rng.choice(_NAMES): _attribute(rng) for _ in range(rng.choice((0, 1, 3)))}
    if member.kind is Kind.ENTRIES:
        return [_given(rng, member.members) for _ in range(rng.choice((0, 1, 3, 11)))]
    return rng.choice(_TEXTS)


def _attribute(rng: random.Random) -> dict[str, Any]:
    parts = ("DataType", "StringValue", "BinaryValue", "StringListValues")
    return {name: rng.choice(_TEXTS) for name in rng.sample(parts, rng.randrange(4))}


def _given(rng: random.Random, members: tuple[Member, ...]) -> dict[str, Any]:
    return {one.name: _value(rng, one) for one in members if rng.random() < 0.85}


def _form(rng: random.Random, action: str) -> bytes:
    pairs = [("Action", action)]
    for member in SHAPES.get(action, ()):
        base = member.query_name
        tails = ("", ".1", ".1.Name", ".1.Value", ".1.Value.DataType", ".1.Value.StringValue", ".1.Id", ".x", "." * 50)
        name = base + rng.choice(tails if member.kind is not Kind.TEXT else ("",))
        pairs.append((name, rng.choice(_TEXTS)))
    return "&".join(f"{name}={quote_plus(value.encode('utf-8', 'replace'))}" for name, value in pairs).encode()


def _request(rng: random.Random) -> bytes:
    action = rng.choice(_ACTIONS)
    path = rng.choice((b"/", b"/", b"/000000000000/fuzz", b"/%zz", b"//", b"/?Action=ListQueues&"))
    method = rng.choice((b"POST", b"POST", b"POST", b"GET", b"PUT"))
    if rng.random() < 0.5:
        body = json.dumps(_given(rng, SHAPES.get(action, ()))).encode()
        lines = [f"X-Amz-Target: AmazonSQS.{action}".encode(), b"Content-Type: application/x-amz-json-1.0"]
    else:
        body, lines = _form(rng, action), [b"Content-Type: application/x-www-form-urlencoded"]
        if method == b"GET":
            path, body = b"/?" + body, b""
    if rng.random() < 0.1:
        body = rng.choice((rng.choice(INTERESTING), b"[" * 100_000, rng.randbytes(70_000)))
    lines += rng.choices(_HEADERS, k=rng.choice((0, 0, 0, 1, 2)))
    lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: localhost", *lines]) + b"\r\n\r\n" + body


def sqs_input(rng: random.Random) -> Input:
    """Return requests on one connection, most of them wrong."""
    data = b"".join(_request(rng) for _ in range(rng.choice((1, 1, 1, 2, 5))))
    if rng.random() < 0.3:
        data = mutated(rng, data)
    return cut(rng, data, "sqs")
