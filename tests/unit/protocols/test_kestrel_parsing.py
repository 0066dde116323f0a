"""Input of Kestrel's clients: names, numbers, keys, and requests in pieces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.kestrel.names import check_name, parent_of
from lmqcluster.protocols.kestrel.numbers import int32
from lmqcluster.protocols.kestrel.status import ServerStatus, Status
from lmqcluster.protocols.memcache.parser import Parser, Request
from lmqcluster.protocols.memcache.requests import Get, parse_get, ttl_of
from lmqcluster.protocols.text.parser import Parser as TextParser
from lmqcluster.protocols.text.parser import Request as TextRequest
from lmqcluster.wire.errors import LmqError

STREAM = b"set q 0 0 5\r\nhe\r\no!!get q/open\nSTATS\r\nadd q 0 0 0 \r\n..set w 1 2 3 noreply\nabc\r\nget\r\n"
REQUESTS = [
    Request(b"set", [b"set", b"q", b"0", b"0", b"5"], b"he\r\no"),
    Request(b"get", [b"get", b"q/open"]),
    Request(b"stats", [b"STATS"]),
    Request(b"add", [b"add", b"q", b"0", b"0", b"0"]),
    Request(b"set", [b"set", b"w", b"1", b"2", b"3", b"noreply"], b"abc"),
    Request(b"get", [b"get"]),
]


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=20), st.booleans())
def test_requests_are_the_same_for_every_split_of_the_stream(cuts: list[int], drops: bool) -> None:
    parser, buffer, found = Parser(100), bytearray(), []
    places = [0, *sorted(set(cuts)), len(STREAM)]
    for start, end in pairwise(places):
        buffer += STREAM[start:end]
        while (request := parser.next(buffer)) is not None:
            found.append(request)
        if drops:
            parser.drop(buffer)
        assert parser.wanted > len(buffer)
    assert found == REQUESTS


@pytest.mark.parametrize(
    "line", [b"set q 0 0\n", b"set q 0 0 x\n", b"set q 0 0 -1\n", b"set q 0 0 101\n", b"x" * 65_537]
)
def test_unreadable_input_is_an_error(line: bytes) -> None:
    with pytest.raises(LmqError):
        Parser(100).next(bytearray(line))


@pytest.mark.parametrize("name", [b"", b"a.b", b"a/b", b"~", b"a b", b"a\tb", b"+a", b"a+", b"a" * 256])
def test_invalid_queue_names(name: bytes) -> None:
    with pytest.raises(LmqError, match="queue name"):
        check_name(name)


def test_parents() -> None:
    check_name(b"a" * 255)
    check_name(b"\xe9t\xe9+x+y")
    assert parent_of(b"a+b+c") == b"a"
    assert parent_of(b"a") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"-5", -5),
        (b"+7", 7),
        (b"2147483647", (1 << 31) - 1),
        (b"2147483648", None),
        (b"1_0", None),
        (b"", None),
        (b" 1", None),
    ],
)
def test_numbers_have_32_bits(text: bytes, number: int | None) -> None:
    assert int32(text) == number


def test_options_of_a_key() -> None:
    assert parse_get(b"q/t=5/close/open") == parse_get(b"q/open/what/t=9/close/t=5") == Get(b"q", 5, True, True)
    assert parse_get(b"q/t=-1/peek") == Get(b"q", peeks=True)


def test_expiry_is_relative_below_a_million() -> None:
    assert ttl_of(0) is None
    assert ttl_of(-1) == 0
    assert ttl_of(999_999) == 999_999
    assert ttl_of(1_000_000) == 0


def test_the_status_survives_in_its_file(tmp_path: Path) -> None:
    status = ServerStatus(tmp_path / "status")
    assert status.present is Status.UP
    assert not status.set("down")
    assert status.set("read-only")
    again = ServerStatus(tmp_path / "status")
    assert again.present is Status.READONLY
    again.check_read("get")
    with pytest.raises(LmqError, match="not available for operation set"):
        again.check_write("set")


TEXT = b"PUT q 5:\none\r\ntwo: \n\nget q\r\n\n  \nput w:\n\n"
TEXT_REQUESTS = [
    TextRequest(b"put", [b"q", b"5"], [b"one", b"two: "]),
    TextRequest(b"get", [b"q"], []),
    TextRequest(b"", [], []),
    TextRequest(b"", [], []),
    TextRequest(b"put", [b"w"], []),
]


@given(st.lists(st.integers(1, len(TEXT) - 1), max_size=20))
def test_text_requests_are_the_same_for_every_split_of_the_stream(cuts: list[int]) -> None:
    parser, buffer, found = TextParser(100), bytearray(), []
    for start, end in pairwise([0, *sorted(set(cuts)), len(TEXT)]):
        buffer += TEXT[start:end]
        while (request := parser.next(buffer)) is not None:
            found.append(request)
        assert parser.wanted > len(buffer)
    assert (found, bytes(buffer)) == (TEXT_REQUESTS, b"")


@pytest.mark.parametrize("text", [b"x" * 65_537, b"put q:\n" + b"x" * 101, b"put q:\n" + b"x\n" * 10_001])
def test_a_text_request_that_is_too_large_is_an_error(text: bytes) -> None:
    with pytest.raises(LmqError):
        TextParser(100).next(bytearray(text))


@given(
    st.lists(
        st.sampled_from([b"get q\r\n", b"get q\n", b"set q 0 0 3\r\nabc\r\n", b"set q 0 0 3\r\nget\n\n"]), max_size=30
    ),
    st.lists(st.integers(0, 400), max_size=10),
    st.integers(1, 8),
)
def test_equal_requests_are_taken_together_as_one_by_one(pieces: list[bytes], cuts: list[int], most: int) -> None:
    stream, buffer, found = b"".join(pieces), bytearray(), []
    parser = Parser(100)
    places = [0, *sorted({cut for cut in cuts if cut < len(stream)}), len(stream)]
    for start, end in pairwise(places):
        buffer += stream[start:end]
        while (request := parser.next(buffer)) is not None:
            found.append(request)
            if request.command == b"set":
                bodies = parser.more_bodies(buffer, most)
                assert len(bodies) <= most
                found += [request._replace(body=body) for body in bodies]
            else:
                found += [request] * parser.repeated(buffer, most)
        parser.drop(buffer)
    one_by_one, whole = Parser(100), bytearray(stream)
    wanted = list(iter(lambda: one_by_one.next(whole), None))
    assert found == wanted
    assert len(wanted) == len(pieces)
    assert not buffer
