"""Request lines in raw UTF-8, and unbounded heads, for every split of the bytes over reads."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp.http_parser import HttpRequestParser
from aiohttp.streams import StreamReader
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.server.requests.framing import HEAD_BYTES_MAX, Framing

NAME = "キュー é".replace(" ", "")
CRLF_BODY = b"\r\n\r\n\xff\x00GET /\xe9 HTTP/1.1\r\n\r\n"


def get(target: str, *headers: bytes) -> bytes:
    return b"\r\n".join([b"GET " + target.encode() + b" HTTP/1.1", b"Host: x", *headers, b"", b""])


def post(target: str, body: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nX-Name: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (target.encode(), NAME.encode(), len(body)) + body


def chunked(target: str, *chunks: bytes) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % target.encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


REQUESTS = [
    (get(f"/messages/{NAME}?t=0"), f"/messages/{NAME}?t=0", None, b""),
    (b"\r\n\r\n" + get("/plain", b"X-Name: " + NAME.encode()), "/plain", NAME.encode(), b""),
    (post(f"/{NAME}", CRLF_BODY), f"/{NAME}", NAME.encode(), CRLF_BODY),
    (post("/empty", b""), "/empty", NAME.encode(), b""),
    (
        chunked(f"/{NAME}/c", CRLF_BODY, b"\r\n\r\n", b"0\r\n\r\n", b"\r"),
        f"/{NAME}/c",
        None,
        CRLF_BODY + b"\r\n\r\n0\r\n\r\n\r",
    ),
    (chunked("/nothing"), "/nothing", None, b""),
]


def escaped(target: str) -> str:
    return "".join(c if c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode()) for c in target)


def served(pieces: list[bytes]) -> list[tuple[str, bytes | None, bytes]]:
    """Return the result of aiohttp's parser for a stream that `Framing` cuts: target, X-Name and body of each
    request.
    """

    async def main() -> list[tuple[str, bytes | None, bytes]]:
        loop = asyncio.get_running_loop()
        parser = HttpRequestParser(_Protocol(), loop, 1 << 20)  # type: ignore[arg-type]
        framing = Framing()
        found: list[tuple[Any, StreamReader]] = []
        for piece in pieces:
            rest = piece
            while rest:
                data, size = framing.piece(rest)
                assert 0 < size <= len(rest)
                rest = rest[size:]
                messages, _upgraded, _tail = parser.feed_data(data)
                assert len(messages) <= 1
                if messages:
                    found.append(messages[0])
                    message = messages[0][0]
                    length = None if message.chunked else int(message.headers.get("Content-Length", "0"))
                    framing.head_ended(length)
                elif framing.is_chunked and found[-1][1].is_eof():
                    framing.body_ended()
        result = []
        for message, payload in found:
            assert payload.is_eof()
            names = [value for name, value in message.raw_headers if name == b"X-Name"]
            result.append((message.path, names[0] if names else None, payload.read_nowait()))
        return result

    return asyncio.run(main())


class _Protocol(asyncio.Protocol):
    _reading_paused = False

    def pause_reading(self) -> None:
        raise AssertionError("nothing here is large enough")

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Do nothing: nothing was paused."""


@given(
    st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=5),
    st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=10),
)
def test_requests_are_the_same_for_every_split(requests: list[Any], sizes: list[int]) -> None:
    """Pipelined or not, split anywhere; bodies and headers are unchanged."""
    stream = b"".join(request[0] for request in requests)
    pieces = []
    while stream:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[:size])
        stream = stream[size:]
    expected = [(escaped(target), name, body) for _data, target, name, body in requests]
    assert served(pieces) == expected


def test_every_split_of_one_request() -> None:
    data, target, name, body = REQUESTS[2]
    for place in range(1, len(data)):
        assert served([data[:place], data[place:]]) == [(escaped(target), name, body)]


def test_a_head_is_counted_until_it_ends() -> None:
    framing = Framing()
    assert framing.piece(b"\r\n")[1] == 2
    assert framing.head_bytes == 0
    framing.piece(b"GET / HTTP/1.1\r\n")
    framing.piece(b"X: " + b"x" * HEAD_BYTES_MAX)
    assert framing.head_bytes == 16 + 3 + HEAD_BYTES_MAX
