"""Contents in JSON and MessagePack."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.media import Media, content_of
from lmqcluster.wire.errors import LmqError


@given(st.binary(max_size=50))
def test_a_content_comes_back_from_json(data: bytes) -> None:
    reply = Media(is_msgpack=False).reply({"content": Media(is_msgpack=False).content(data)})
    assert content_of(json.loads(reply.content)["content"]) == data


@given(st.binary(max_size=50))
def test_a_content_comes_back_from_msgpack(data: bytes) -> None:
    reply = Media(is_msgpack=True).reply({"content": Media(is_msgpack=True).content(data)})
    assert content_of(msgpack.unpackb(reply.content)["content"]) == data


def test_json_contents_are_strings_where_they_can_be() -> None:
    media = Media(is_msgpack=False)
    assert media.content("ü".encode()) == "ü"
    assert media.content(b"\xff") == {"base64": "/w=="}
    assert media.name(b"\xff") == {"base64": "/w=="}


def test_msgpack_names_are_text_where_they_can_be() -> None:
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
