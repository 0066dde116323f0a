"""The query parameters ``t``, ``cf``, ``reply`` and ``qre`` (LMQ specification 8.2 to 8.5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.lmq import parameters
from lmqcluster.protocols.http.server.requests.target import Query, pattern_of
from lmqcluster.wire.errors import LmqError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"0", 0),
        (b"0.0", 0),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"1", 1),
        (b"10", 10),
        (b"007", 7),
        (b"0.3", 0.3),
        (b"12.34", 12.34),
        (b"+0.1", 0.1),
        (b"+5", 5),
        (b"12.34abc", 12.34),
        (b"0.1.2", 0.1),
        (b"0.1e0", 0.1),
        (b"0.1e1", 1),
        (b"0.1e", 0.1),
        (b"1.5E+1x", 15),
        (b"0.0001", 0),
        (b"0.0009", 0),
        (b"0.001", 0.001),
        (b"9" * 30, 1e9),
        (b"1.0e300", 1e9),
    ],
)
def test_accepted_waits(text: bytes, seconds: float) -> None:
    assert parameters.parse_wait(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        b"", b"abc", b".5", b"5.", b"10abc", b"1e3", b"inf", b"NaN", b"0x1", b" 1", b" 0.1", b"1 ", b"0,3", b"--1", b"+", b"-",
        b"-1", b"-0.5", b"-12.5abc", b"1.0e999", b"1\n", "\u0661".encode(), b"1_0", b"infinity",
    ],
)  # fmt: skip
def test_refused_waits(text: bytes) -> None:
    with pytest.raises(LmqError) as caught:
        parameters.parse_wait(text)
    assert caught.value.code == "bad_request"


@given(st.binary(max_size=12))
def test_any_text_is_a_wait_or_refused(text: bytes) -> None:
    try:
        seconds = parameters.parse_wait(text)
    except LmqError:
        return
    assert seconds == 0 or 0.001 <= seconds <= 1e9


def test_no_wait_means_no_limit() -> None:
    assert parameters.wait(Query("cf=msgpack")) is None
    assert parameters.wait(Query("t=2.5&t=9")) == 2.5


@pytest.mark.parametrize(
    ("query", "layout"), [("", "multipart"), ("cf=multipart", "multipart"), ("cf=msgpack", "msgpack")]
)
def test_compound_format(query: str, layout: str) -> None:
    assert parameters.compound_format(Query(query)) == layout


@pytest.mark.parametrize("query", ["cf=", "cf", "cf=Msgpack", "cf=json", "cf=multipart+"])
def test_refused_compound_formats(query: str) -> None:
    with pytest.raises(LmqError):
        parameters.compound_format(Query(query))


@pytest.mark.parametrize(("query", "kind"), [("reply=ack", "ack"), ("reply=nack", "nack"), ("reply=ext", "extend")])
def test_reply_kind(query: str, kind: str) -> None:
    assert parameters.reply_kind(Query(query)) == kind


@pytest.mark.parametrize("query", ["", "reply", "reply=", "reply=ACK", "reply=extend", "Reply=ack", "reply=ack+"])
def test_refused_reply_kinds(query: str) -> None:
    with pytest.raises(LmqError):
        parameters.reply_kind(Query(query))


def test_pattern() -> None:
    assert pattern_of(Query("qre=")) == b""
    assert pattern_of(Query("qre=%5Ea%2F.%2B")) == b"^a/.+"


@pytest.mark.parametrize(
    ("query", "code"), [("", "bad_request"), ("qre", "bad_request"), ("qre=" + "a" * 4097, "bad_pattern")]
)
def test_refused_patterns(query: str, code: str) -> None:
    with pytest.raises(LmqError) as caught:
        pattern_of(Query(query))
    assert caught.value.code == code
