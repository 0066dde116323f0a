"""Contents of messages as people see them."""

from __future__ import annotations

import datetime as dt

import msgpack
import pytest
from lmqcluster_cli.admin.queues.contents import Show, content_bytes, content_json, format_body, json_value

MSGPACK = "application/x-msgpack"
TWO_LINES = """\
00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef
00000010  21                                               !"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (b"text", "text"),
        (7, "7"),
        (None, "null"),
        ({"k": [b"\xff", 1.5]}, '{"k": [{"base64": "/w=="}, 1.5]}'),
        ({1: {b"\xff": 2}}, '{"1": {"{\\"base64\\": \\"/w==\\"}": 2}}'),
        ("ü" * 100, "ü" * 100),
    ],
    ids=repr,
)
def test_messagepack_is_decoded(value: object, text: str) -> None:
    for with_bin in (False, True):
        data = msgpack.packb(value, use_bin_type=with_bin)
        assert format_body(data, MSGPACK, Show.AUTO) == text


@pytest.mark.parametrize("data", [b"\xc1", b"\xa5four", b"\x01\x02", b"", msgpack.packb(msgpack.ExtType(5, b"x"))])
def test_invalid_messagepack_is_shown_in_hexadecimal(data: bytes) -> None:
    assert format_body(data, MSGPACK, Show.AUTO, dump=False) == data.hex(" ")


def test_another_type_is_not_taken_for_messagepack() -> None:
    assert format_body(b"\x05", "text/plain", Show.AUTO) == "\x05"
    assert format_body(b"x", None, Show.AUTO) == "x"


@pytest.mark.parametrize(
    ("data", "show", "text"),
    [
        (b'{"a":1}', Show.AUTO, '{"a":1}'),
        (b'{"a":1}', Show.TEXT, '{"a":1}'),
        (b'{"a":1}', Show.JSON, '{\n  "a": 1\n}'),
        (b"no json", Show.JSON, "00000000  6e 6f 20 6a 73 6f 6e                             no json"),
        (b"\xff", Show.TEXT, "00000000  ff                                               ."),
        (b"", Show.HEX, ""),
        (bytes(range(16)), Show.HEX, "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................"),
        (b"0123456789abcdef!", Show.HEX, TWO_LINES),
    ],
)  # fmt: skip
def test_text_json_and_hexadecimal(data: bytes, show: Show, text: str) -> None:
    assert format_body(data, "text/plain", show) == text


def test_nothing_in_a_message_reaches_the_terminal_as_a_command() -> None:
    text = "\x1b[31m\x07a\tb\nc\x9b"
    assert format_body(text.encode(), None, Show.AUTO, for_terminal=True) == "\\x1b[31m\\x07a\tb\nc\\x9b"
    assert format_body(text.encode(), None, Show.AUTO) == text


@pytest.mark.parametrize("data", [b"", b"text", "ü".encode(), b"\xff\x00"])
def test_contents_of_the_api_are_converted_in_both_directions(data: bytes) -> None:
    assert content_bytes(content_json(data)) == data


def test_a_timestamp_becomes_text() -> None:
    assert json_value(dt.datetime(2026, 1, 2, tzinfo=dt.UTC)) == "2026-01-02T00:00:00+00:00"
