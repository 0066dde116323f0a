"""Bad HTTP: requests of every route with wrong parts, and mutated requests."""

from __future__ import annotations

import json
import random
from typing import Any

import msgpack

from .inputs import INTERESTING, Input, cut, mutated

__all__ = ["http_input"]

_METHODS = (
    b"GET",
    b"POST",
    b"PUT",
    b"DELETE",
    b"PATCH",
    b"HEAD",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"get",
    b"M-SEARCH",
    b"\xff",
)
_QUEUES = (
    "fuzz",
    "fuzz-%41",
    "fuzz%2f..",
    "fuzz%ff",
    "%00fuzz",
    "fuzz" + "n" * 300,
    "fuzz%",
    "",
    "%e2%82%ac",
    "fuzz;x=1",
)
_PATHS = (
    "/messages/{q}", "/messages/{q}/{id}", "/messages/{q}?t=0",
    "/messages/{q}?t=-1&c=x", "/messages?qre=%5Efuzz&t=0", "/queues/{q}",
    "/queues/{q}/messages", "/properties/{q}", "/properties",
    "/stats", "/livez", "/readyz?verbose",
    "/metrics", "/metrics/queues?name=(", "/openapi.json",
    "/console/", "/console/../../etc/passwd", "/v1/queues",
    "/v1/queues/{q}", "/v1/queues/{q}/messages", "/v1/queues/{q}/messages?limit=x&after=-1",
    "/v1/queues/{q}/pull", "/v1/queues/{q}/ack", "/v1/queues/{q}/nack",
    "/v1/queues/{q}/extend", "/v1/queues/{q}/purge", "/v1/queues/{q}/move",
    "/v1/queues/{q}/suspend", "/v1/cluster", "/v1/overview",
    "/v1/queues/{q}/redrive", "/v1/queues/{q}.fifo",
    "/v1/queues/{q}/move-tasks", "/v1/queues/{q}/move-tasks/{id}", "/v1/queues/{q}/move-tasks/1",
    "/v1/queues/{q}/consumers", "/v1/queues?consumers",
    "/v1/connections?all_nodes", "/v1/connections/close", "/v1/leases?all_nodes&queue=%ff",
    "/v1/access", "/v1/subscriptions", "/v1/nothing/at/all",
    "*", "http://127.0.0.1/livez", "//",
    "/%",
)  # fmt: skip
"""Without routes that change the cluster: such a request of an administrator's client is executed legitimately."""
_CHANGES_CLUSTER = (b"/v1/cluster/", b"/v1/tokens", b"/v1/snapshots", b"/v1/log")
_IDS = ("0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11", "x", "%ff", "0" * 36, "-" * 36)
_HEADERS = (
    b"Content-Type: application/json", b"Content-Type: application/x-msgpack",
    b"Content-Type: multipart/form-data; boundary=", b"Expect: 100-continue",
    b"Content-Type: \xff\xfe", b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: websocket", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Content-Length: 5",
    b"Content-Length: -1", b"Content-Length: 99999999999999999999",
    b"Host: evil.example", b"Origin: http://evil.example",
    b"Authorization: Bearer x", b"Authorization: Basic Og==",
    b"Idempotency-Key: ", b"X-Lmq-Hook: \x01",
    b"Accept: application/x-msgpack", b"Accept-Encoding: gzip",
    b" folded: header", b"no colon",
    b"Cookie: " + b"c" * 5000, b": empty",
    b"Range: bytes=0-",
)  # fmt: skip


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 4 else 7)
    if kind < 7:
        return rng.choice(
            (
                None,
                True,
                0,
                -1,
                2**31,
                2**63,
                1.5,
                1e308,
                "",
                "fuzz",
                "x" * 300,
                "\ud800",
                "\x00",
                "€",
                rng.choice(_IDS),
                10**30,
            )
        )
    if kind == 7:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    names = (
        "messages",
        "content",
        "content_type",
        "ids",
        "max",
        "timeout",
        "base64",
        "key",
        "accum",
        "retry",
        "hooks",
        "delay",
        "place",
        "reason",
        "x",
    )
    return {rng.choice(names): _value(rng, depth + 1) for _ in range(rng.randrange(5))}


def _body(rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return b""
    if kind == 1:
        return rng.randbytes(rng.choice((1, 10, 1000, 70_000)))
    if kind == 2:
        return rng.choice((b"[", b'{"a":', b"\x90", b"\x80")) * rng.choice((10, 2000, 100_000))
    if kind == 3:
        return rng.choice(INTERESTING)
    value: Any = _value(rng)
    if kind == 4:
        value = {"messages": [{"content": "x"}] * rng.choice((1, 100, 20_000))}
    elif kind == 5:
        value = {"ids": [rng.choice(_IDS)], "reason": rng.choice((_value(rng), "\n" * rng.choice((1, 1025, 70_000))))}
    if rng.random() < 0.5:
        return json.dumps(value).encode()
    try:
        return bytes(msgpack.packb(value))
    except (ValueError, OverflowError):
        return b"\xc1"


def _request(rng: random.Random, token: str | None) -> bytes:
    path = rng.choice(_PATHS).format(q=rng.choice(_QUEUES), id=rng.choice(_IDS))
    if rng.random() < 0.1:
        path += "?" + "&".join(f"{rng.choice('tcqx')}={rng.randrange(-5, 10**6)}" for _ in range(rng.randrange(5)))
    body = _body(rng)
    lines = [
        rng.choice(_METHODS)
        + b" "
        + path.encode()
        + b" "
        + rng.choice((b"HTTP/1.1",) * 8 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""))
    ]
    lines.append(rng.choice((b"Host: localhost",) * 9 + (b"Host: evil.example",)))
    if token is not None and rng.random() < 0.7:
        lines.append(b"Authorization: Bearer " + token.encode())
    lines += rng.choices(_HEADERS, k=rng.choice((0, 0, 1, 1, 2, 5)))
    if rng.random() < 0.7:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def http_input(rng: random.Random, token: str | None) -> Input:
    """Return requests on one connection, most of them wrong; with the token if there is one."""
    data = b"".join(_request(rng, token) for _ in range(rng.choice((1, 1, 1, 2, 5))))
    if rng.random() < 0.6:
        data = mutated(rng, data)
    if rng.random() < 0.05:
        data = rng.randbytes(rng.choice((1, 100, 5000)))
    if any(route in data for route in _CHANGES_CLUSTER):
        data = b"GET / HTTP/1.1\r\n"
    return cut(rng, data, "http")
