"""Counting MessagePack values without building them."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from lmqcluster.protocols.msgpack_rpc import values
from lmqcluster.protocols.msgpack_rpc.values import ValueCounter


def count(value: Any) -> int:
    """Values in a decoded value, itself included."""
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
    counter = ValueCounter()
    assert counter.feed(data)
    assert counter.count == count([value, 1])


def test_pieces_may_end_anywhere() -> None:
    data = b"".join(msgpack.packb(value) for value in EVERY_KIND if len(msgpack.packb(value)) < 1000)
    whole = ValueCounter()
    whole.feed(data)
    rng = random.Random(3)
    for _ in range(50):
        counter, position = ValueCounter(), 0
        while position < len(data):
            size = rng.choice([1, 2, 3, 7, 100])
            counter.feed(data[position : position + size])
            position += size
        assert counter.count == whole.count


def test_floats_of_32_bit() -> None:
    counter = ValueCounter()
    counter.feed(msgpack.packb([1.5, 2.5], use_single_float=True))
    assert counter.count == 3


def test_it_stops_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "VALUES_MAX", 10)
    counter = ValueCounter()
    assert counter.feed(b"\xc0" * 10)
    assert not counter.feed(b"\xc0")
    assert not counter.feed(b"")
