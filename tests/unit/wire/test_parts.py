"""Bytes in parts equal those in one piece, and large ones are not copied."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from lmqcluster.wire.parts import LARGE_BYTES, joined, packed_parts

LARGE = b"L" * LARGE_BYTES
SMALL = b"s" * (LARGE_BYTES - 1)


@pytest.mark.parametrize(
    "value",
    [
        [],
        LARGE,
        [1, "text", None, {b"key": [1.5]}, b"small", SMALL],
        [b"origin", 7, 8, [[1, b"q", None, [b"small", LARGE, LARGE], b"p", 1]]],
        (LARGE, [[LARGE]]),
        [*range(15), LARGE],
        [*range(16), LARGE],
        [*range(70_000), LARGE],
    ],
    ids=range(8),
)
def test_the_parts_equal_the_output_of_messagepack(value: Any) -> None:
    parts = packed_parts(value)
    assert b"".join(parts) == msgpack.packb(value)
    assert [part for part in parts if part is LARGE] == [LARGE] * b"".join(parts).count(LARGE)


@pytest.mark.parametrize(
    ("parts", "count"),
    [([], 0), ([b"a", b"b"], 1), ([LARGE], 1), ([b"a", b"b", LARGE, LARGE, b"c", b"d"], 4), ([LARGE, b"a", LARGE], 3)],
)
def test_small_parts_are_joined_and_large_ones_are_not(parts: list[bytes], count: int) -> None:
    found = list(joined(parts))
    assert b"".join(found) == b"".join(parts)
    assert len(found) == count
    assert all(part is LARGE for part in found if len(part) >= LARGE_BYTES)
