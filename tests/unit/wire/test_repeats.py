"""Patterns of requests that repeat an earlier one."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lmqcluster.wire.legacy_msgpack import pack, unpack
from lmqcluster.wire.repeats import RepeatedCall, RepeatedHead, pattern_of

HEAD = b"POST /messages/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nX: 1\r\n\r\n"


def post(body: bytes) -> bytes:
    return HEAD % len(body) + body


def head_of(head: bytes) -> RepeatedHead:
    pattern = RepeatedHead.of(head)
    assert pattern is not None
    return pattern


@given(st.binary(max_size=40), st.binary(max_size=3))
def test_a_repeated_head_is_exactly_one_request(body: bytes, more: bytes) -> None:
    head = pattern_of(list(head_of(HEAD % 7).row()))
    assert head.match(post(body)) == (b"", body)
    assert head.match(post(body) + more) == ((b"", body) if not more else None)
    for end in range(len(post(body))):
        assert head.match(post(body)[:end]) is None


@given(st.integers(0, len(HEAD) - 3), st.integers(0, 255))
def test_another_head_is_no_repetition(place: int, byte: int) -> None:
    sent = bytearray(post(b"1234567"))
    is_same = sent[place] == byte
    sent[place] = byte
    assert head_of(HEAD % 7).match(bytes(sent)) == ((b"", b"1234567") if is_same else None)


@pytest.mark.parametrize(
    "digits", [b"", b"+7", b"-7", b" 7", b"7 ", b"0x7", b"7,7", b"7_", "\u0667".encode(), b"0000007"]
)
def test_a_length_that_only_the_parser_can_judge(digits: bytes) -> None:
    assert head_of(HEAD % 7).match(HEAD.replace(b"%d", digits) + b"1234567") is None


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\ntransfer-encoding : chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nX: content-length\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_heads_that_are_never_repeated(head: bytes) -> None:
    assert RepeatedHead.of(head) is None


MSGIDS = st.integers(0, (1 << 64) - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.binary(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(MSGIDS, st.binary(max_size=70_000), st.booleans())
@example(0, b"", False)
def test_a_repeated_call_is_a_push_of_a_string(msgid: int, content: bytes, is_new: bool) -> None:
    data = b"\x94\x00" + pack(msgid) + b"\xa4push\x92\xa1q" + msgpack.packb(content, use_bin_type=is_new)
    call = pattern_of(list(RepeatedCall(b"q").row()))
    assert call.match(data) == (pack(msgid), pack(content))
    assert call.match(data + b"\xc0") is None
    assert call.match(data[:-1]) is None


@given(VALUES, VALUES, VALUES, st.lists(VALUES, max_size=3), st.binary(max_size=4))
def test_what_is_recognized_is_what_the_parser_finds(
    kind: Any, msgid: Any, method: Any, rest: list[Any], more: bytes
) -> None:
    """Any other request or rubbish is not recognized."""
    call = RepeatedCall(b"q")
    for data in (
        pack([kind, msgid, method, rest]),
        pack([0, msgid, b"push", rest]),
        pack([0, msgid, b"push", [b"q", *rest]]),
        b"\x94\x00" + more + b"\xa4push\x92\xa1q" + pack(kind),
        b"\x94\x00\x01\xa4push\x92\xa1q" + more,
    ):
        found = call.match(data)
        if found is None:
            continue
        tag, body = found
        assert unpack(data) == [0, unpack(tag), b"push", [b"q", unpack(body)]]
        assert type(unpack(tag)) is int
        assert type(unpack(body)) is bytes
