"""Contents in JSON and MessagePack."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.node.process.fair_slices import FairSlices
from lmqcluster.protocols.http.server.replies.long_content import LONG_BYTES, base64_decoded
from lmqcluster.protocols.http.server.replies.long_list import LongList, reply_with_list
from lmqcluster.protocols.http.v1.bodies.media import Media, content_of
from lmqcluster.wire.errors import LmqError


@given(st.binary(max_size=50))
def test_a_content_survives_json(data: bytes) -> None:
    reply = Media(is_msgpack=False).reply({"content": Media(is_msgpack=False).content(data)})
    assert content_of(json.loads(reply.content)["content"]) == data


BLOCK = LONG_BYTES // 2 - 1


@given(
    st.lists(
        st.sampled_from([b"a", b'"', b"\n", "\u00e9".encode(), "\U0001f600".encode(), b"\xff"]), min_size=1, max_size=3
    ),
    st.integers(0, 8),
)
def test_long_contents_are_written_like_short_ones(blocks: list[bytes], shift: int) -> None:
    """The result is that of the standard library in one call, wherever a slice ends."""
    contents = [b"x" * shift + b"".join(block * BLOCK for block in blocks), b"short", b"y" * 10 * LONG_BYTES]
    media = Media(is_msgpack=False)
    rows = LongList("messages", contents, lambda data: {"content": media.content(data)})
    reply = asyncio.run(reply_with_list(media, rows, FairSlices(), b"c"))
    shown = [{"content": media.name(data)} for data in contents]
    assert reply.content == json.dumps({"messages": shown}, separators=(",", ":"), ensure_ascii=False).encode()


@given(
    st.binary(max_size=8),
    st.integers(LONG_BYTES, 12 * LONG_BYTES),
    st.sampled_from(["", "=", "@", "A", "AAA=", "\u00e9", "\n"]),
)
def test_long_base64_is_read_like_short(data: bytes, size: int, end: str) -> None:
    digits = base64.b64encode(data * (size // max(1, len(data)))).decode()

    def decoded() -> Any:
        return content_of(asyncio.run(base64_decoded({"base64": digits}, "content")))

    for text in (digits, digits + end, digits[:100] + end + digits[100:]):
        digits = text
        try:
            expected = base64.b64decode(text, validate=True)
        except ValueError:
            with pytest.raises(LmqError):
                decoded()
        else:
            assert decoded() == expected


@given(st.binary(max_size=50))
def test_a_content_survives_msgpack(data: bytes) -> None:
    reply = Media(is_msgpack=True).reply({"content": Media(is_msgpack=True).content(data)})
    assert content_of(msgpack.unpackb(reply.content)["content"]) == data


def test_json_contents_are_strings_if_possible() -> None:
    media = Media(is_msgpack=False)
    assert media.content("ü".encode()) == "ü"
    assert media.content(b"\xff") == {"base64": "/w=="}
    assert media.name(b"\xff") == {"base64": "/w=="}


def test_msgpack_names_are_text_if_possible() -> None:
    media = Media(is_msgpack=True)
    assert media.name("ü".encode()) == "ü"
    assert media.name(b"\xff") == b"\xff"
    assert media.content(b"a") == b"a"


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        1.5,
        True,
        [],
        {},
        {"base64": 1},
        {"base64": "a"},
        {"base64": "/w==", "x": 1},
        {"base64": "@@@@"},
        "\ud800x",
    ],
)
def test_other_contents_are_refused(value: Any) -> None:
    with pytest.raises(LmqError) as caught:
        content_of(value, "messages[3].content")
    assert caught.value.code == "bad_request"
    assert "messages[3].content" in caught.value.message
