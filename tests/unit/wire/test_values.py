"""Finding the end of MessagePack values, and their number, without building them."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from lmqcluster.wire.values import Scan, TooManyValuesError


def count(value: Any) -> int:
    """Return the number of values in a decoded value, itself included."""
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    if isinstance(value, dict):
        return 1 + sum(count(key) + count(item) for key, item in value.items())
    return 1


EVERY_KIND = [
    *(None, True, False, 0, 127, 128, 255, 256, 65536, 2**32, 2**63, -1, -32, -33, -129, -32769, -(2**31) - 1),
    *(1.5, "", "a" * 31, "a" * 32, "a" * 256, "a" * 65536, b"", b"b" * 255, b"b" * 256, b"b" * 65536),
    *([], [1] * 15, [1] * 16, [1] * 65536, {}, {"k": [1]}, {i: i for i in range(16)}, {i: i for i in range(65536)}),
    *(msgpack.ExtType(5, b"x" * size) for size in (0, 1, 2, 3, 4, 8, 16, 17, 256, 65536)),
    msgpack.Timestamp(1, 1),
]


@pytest.mark.parametrize("use_bin_type", [False, True])
@pytest.mark.parametrize("value", EVERY_KIND, ids=lambda value: repr(value)[:20])
def test_every_kind_of_value(value: Any, use_bin_type: bool) -> None:
    data = msgpack.packb([value, 1], use_bin_type=use_bin_type)
    scan = Scan()
    assert scan.feed(data + b"\xc0 more") == len(data)
    assert scan.count == count([value, 1])
    assert Scan().feed(b"before" + data, 6) == 6 + len(data)
    assert Scan().feed(data[:-1]) == -1


def test_floats_of_32_bit() -> None:
    data = msgpack.packb([1.5, 2.5], use_single_float=True)
    assert Scan().feed(data) == len(data)


@pytest.mark.parametrize("sizes", [[1], [2], [3, 7], [1, 2, 3, 7, 100]], ids=str)
def test_pieces_may_end_anywhere(sizes: list[int]) -> None:
    values = [value for value in EVERY_KIND if len(msgpack.packb(value)) < 1000]
    data = msgpack.packb(values) + b"rest"
    rng = random.Random(3)
    for _ in range(20):
        scan, position, end = Scan(), 0, -1
        while end < 0:
            size = rng.choice(sizes)
            end = scan.feed(data[position : position + size])
            assert end <= size
            position += size if end < 0 else end
        assert position == len(data) - 4
        assert scan.count == count(values)


def test_it_stops_at_the_limit_and_at_the_announced_length() -> None:
    assert Scan(10).feed(b"\x99" + b"\xc0" * 9) == 10
    with pytest.raises(TooManyValuesError):
        Scan(10).feed(b"\x9a")
    with pytest.raises(TooManyValuesError):
        Scan().feed(b"\xdd\xff\xff\xff\xff")
    with pytest.raises(TooManyValuesError):
        Scan().feed(b"\x91\xdf\x00\x08\x00\x00")
