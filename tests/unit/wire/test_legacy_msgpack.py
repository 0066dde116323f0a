"""MessagePack with old types only: LMQ specification 10.1 and 11."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.wire import legacy_msgpack as legacy
from lmqcluster.wire.errors import LmqError

SIZES = [
    (0, b"\xa0"),
    (1, b"\xa1"),
    (31, b"\xbf"),
    (32, b"\xda\x00\x20"),
    (255, b"\xda\x00\xff"),
    (256, b"\xda\x01\x00"),
    (65535, b"\xda\xff\xff"),
    (65536, b"\xdb\x00\x01\x00\x00"),
    (1_000_000, b"\xdb\x00\x0f\x42\x40"),
]


@pytest.mark.parametrize(("size", "header"), SIZES)
def test_strings_of_any_size_are_raw(size: int, header: bytes) -> None:
    """Spec 10.1: fixraw, raw16, raw32; a string of 32 bytes or more is raw16, never str8 or bin."""
    data = b"x" * size
    assert legacy.pack_raw(data) == header + data
    assert legacy.pack(data) == header + data
    assert legacy.pack("x" * size) == header + data


def test_the_example_of_the_specification() -> None:
    """Spec 11: the string `text` is `a4 74 65 78 74`."""
    assert legacy.pack("text") == legacy.pack_raw(b"text") == bytes.fromhex("a474657874")


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65536])
def test_no_new_type_appears_anywhere(size: int) -> None:
    """Spec 10.1: never str8, bin or ext, however deep."""
    data = b"\x00" * size
    packed = legacy.pack({data: [data, {"k": data}]})
    assert not {0xC4, 0xC5, 0xC6, 0xD9} & set(packed)


@pytest.mark.parametrize("value", [0, 1, -1, 127, 128, -32, -33, 2**32, -(2**63), 2**64 - 1, None, True, False, [], {}])
def test_other_values_are_read_back(value: Any) -> None:
    assert legacy.unpack(legacy.pack(value)) == value
    assert type(legacy.unpack(legacy.pack(value))) is type(value)


def test_floats_have_64_bits() -> None:
    """Spec 10.1."""
    assert legacy.pack(0.5) == b"\xcb" + bytes.fromhex("3fe0000000000000")
    assert legacy.unpack(legacy.pack(0.1)) == 0.1


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, object(), {1, 2}, 1j], ids=["2**64", "-2**63-1", "object", "set", "complex"]
)
def test_an_unencodable_value_is_a_named_error(value: Any) -> None:
    """Law 6: and the shared encoder still works afterwards."""
    with pytest.raises(LmqError) as caught:
        legacy.pack(["before", value])
    assert caught.value.code == "bad_arguments"
    assert legacy.pack("x") == b"\xa1x"


def test_nesting_too_deep_is_a_named_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    try:
        with pytest.raises(LmqError):
            legacy.pack(value)
    finally:
        while value:
            value = value.pop()
    with pytest.raises(ValueError, match="MessagePack"):
        legacy.unpack(b"\x91" * 100_000 + b"\xc0")


@pytest.mark.parametrize(
    "data",
    [
        b"\xa1x",
        b"\xd9\x01x",
        b"\xda\x00\x01x",
        b"\xdb\x00\x00\x00\x01x",
        b"\xc4\x01x",
        b"\xc5\x00\x01x",
        b"\xc6\x00\x00\x00\x01x",
    ],
)
def test_old_and_new_strings_are_understood(data: bytes) -> None:
    """Spec 10.1: requests may use old raw or the new types; str8 is to be accepted."""
    assert legacy.unpack(data) == b"x"


def test_strings_need_not_be_utf_8() -> None:
    assert legacy.unpack(b"\xa2\xff\xfe") == b"\xff\xfe"


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\xa2x", b"\xa1xx", b"\x92\x01", b"\xd4\x05x", b"\xc7\x01\x05x", b"\xc7\x05\xff12345"],
    ids=bytes.hex,
)
def test_anything_but_exactly_one_value_is_refused(data: bytes) -> None:
    """Spec 10.1 and 11: not MessagePack (`c1`), truncated, trailing data, extension types."""
    with pytest.raises(ValueError, match=r"MessagePack|extension"):
        legacy.unpack(data)


@pytest.mark.parametrize("data", [b"\xd6\xff\x00\x00\x00\x00", b"\xd7\xff" + bytes(8), b"\xc7\x0c\xff" + bytes(12)])
def test_a_timestamp_is_never_returned(data: bytes) -> None:
    """Spec 10.1: responses never hold an ext type, and a timestamp is one."""
    with pytest.raises(LmqError) as caught:
        legacy.pack([legacy.unpack(data)])
    assert caught.value.code == "bad_arguments"


def test_a_timestamp_out_of_all_range_is_refused() -> None:
    with pytest.raises(ValueError, match="MessagePack"):
        legacy.unpack(b"\xc7\x0c\xff\x00\x00\x00\x00\x7f" + b"\xff" * 7)


def test_unhashable_map_keys_are_refused() -> None:
    """MessagePack allows a list as a key; Python does not."""
    with pytest.raises(ValueError, match="MessagePack"):
        legacy.unpack(b"\x81\x90\x01")


def test_the_stream_decoder_accepts_requests_in_any_pieces() -> None:
    """Spec 10.1: any number of requests in one segment, or one request in many segments."""
    unpacker = legacy.make_unpacker(1000)
    data = legacy.pack([0, 1, "push", ["q", b"\xff"]]) + msgpack.packb([2, "done", []])
    seen = []
    for index in range(len(data)):
        unpacker.feed(data[index : index + 1])
        seen += list(unpacker)
    assert seen == [[0, 1, b"push", [b"q", b"\xff"]], [2, b"done", []]]


def test_the_stream_decoder_bounds_what_it_keeps() -> None:
    """Law 7: an unfinished object does not fill the memory."""
    unpacker = legacy.make_unpacker(1000)
    unpacker.feed(b"\xdb\x7f\xff\xff\xff")
    assert list(unpacker) == []
    with pytest.raises(msgpack.BufferFull):
        unpacker.feed(b"x" * 1001)


def test_the_stream_decoder_refuses_a_huge_announcement_without_allocating_it() -> None:
    """Law 6: an array of four thousand million items in five bytes."""
    unpacker = legacy.make_unpacker(1000)
    unpacker.feed(b"\xdd\xff\xff\xff\xff")
    with pytest.raises(ValueError, match="exceeds"):
        next(unpacker)


def test_the_stream_decoder_refuses_extension_types() -> None:
    """Spec 10.1: the connection is closed."""
    unpacker = legacy.make_unpacker(1000)
    unpacker.feed(b"\xd4\x05x")
    with pytest.raises(legacy.UnsupportedExtensionError):
        next(unpacker)
