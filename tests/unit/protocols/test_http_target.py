"""Request targets: percent-decoding, names, query strings (LMQ specification 7 and 7.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.server.requests.target import Query, check_name, decode, has_control, split_target
from lmqcluster.wire.errors import LmqError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", b"plain"),
        ("a+b", b"a b"),
        ("a%2Bb", b"a+b"),
        ("a%2Fb", b"a/b"),
        ("a%2fb", b"a/b"),
        ("%e3%82%ad", "キ".encode()),
        ("%ff%fe", b"\xff\xfe"),
        ("%00", b"\x00"),
        ("a%25b", b"a%b"),
        ("%2525", b"%25"),
        ("", b""),
        ("\udcff", b"\xff"),
    ],
)
def test_decode(text: str, expected: bytes) -> None:
    assert decode(text) == expected


@pytest.mark.parametrize("text", ["%", "%2", "%zz", "a%g0", "%0g", "100%", "%%20"])
def test_invalid_escapes_are_refused(text: str) -> None:
    with pytest.raises(LmqError) as caught:
        decode(text)
    assert caught.value.code == "bad_request"


@given(st.binary(max_size=40))
def test_decode_undoes_percent_encoding(data: bytes) -> None:
    assert decode("".join(f"%{byte:02x}" for byte in data)) == data


@pytest.mark.parametrize(
    ("target", "segments", "query"),
    [
        ("/messages/q", [b"messages", b"q"], ""),
        ("/messages/q/", [b"messages", b"q"], ""),
        ("/messages/", [b"messages"], ""),
        ("/messages//", [b"messages", b""], ""),
        ("/messages/a%2Fb?t=0", [b"messages", b"a/b"], "t=0"),
        ("/messages/q/?t=0", [b"messages", b"q"], "t=0"),
        ("/messages?qre=a/b", [b"messages"], "qre=a/b"),
        ("/messages?qre=a?b", [b"messages"], "qre=a?b"),
        ("/messages/..", [b"messages", b".."], ""),
        ("/messages/.", [b"messages", b"."], ""),
        ("/%6dessages/q", [b"messages", b"q"], ""),
        ("/stats#part", [b"stats"], ""),
        ("/stats?a=b#part", [b"stats"], "a=b"),
        ("/", [], ""),
        ("http://host:9980/messages/q?t=1", [b"messages", b"q"], "t=1"),
        ("http://host", [], ""),
        ("//messages", [b"", b"messages"], ""),
    ],
)
def test_split_target(target: str, segments: list[bytes], query: str) -> None:
    assert split_target(target) == (segments, query)


@pytest.mark.parametrize(
    "name", [b"q", b".", b"..", b"a/b", b" ", b"\xff", b"x" * 255, "キュー".encode(), b"__lmq_info__"]
)
def test_allowed_names(name: bytes) -> None:
    assert check_name(name) is name


@pytest.mark.parametrize("name", [b"", b"x" * 256, b"a\r\nb", b"\x00", b"a\tb", b"a\x7fb", b"\x1b"])
def test_refused_names(name: bytes) -> None:
    with pytest.raises(LmqError) as caught:
        check_name(name)
    assert caught.value.code == "bad_name"
    assert caught.value.spec.http == 400


def test_first_of_a_repeated_parameter_counts() -> None:
    query = Query("t=1&t=2&x=%31&%74=3")
    assert query.get(b"t") == b"1"
    assert query.get(b"x") == b"1"
    assert query.get(b"y") is None
    assert b"x" in query
    assert b"y" not in query


def test_a_parameter_without_equals_has_no_value() -> None:
    query = Query("t&verbose&u=")
    with pytest.raises(LmqError, match="'t' has no value"):
        query.get(b"t")
    assert b"verbose" in query
    assert query.get(b"u") == b""


def test_a_first_parameter_without_equals_wins_over_a_later_one() -> None:
    with pytest.raises(LmqError):
        Query("t&t=1").get(b"t")


def test_query_values_decode_plus_and_escapes() -> None:
    assert Query("qre=a+%2B%26b").get(b"qre") == b"a +&b"


def test_invalid_escape_in_the_query_is_refused() -> None:
    with pytest.raises(LmqError):
        Query("t=%zz")


def test_has_control() -> None:
    assert has_control(b"a\nb")
    assert not has_control(b"text/plain; charset=\xfc")
