"""Arguments of MessagePack-RPC methods: accepted values and refusals."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import pytest

from lmqcluster.protocols.msgpack_rpc.values import arguments
from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.legacy_msgpack import UnsupportedExtensionError


@pytest.mark.parametrize(("count", "fine"), [(0, False), (1, True), (2, True), (3, False)])
def test_arity(count: int, fine: bool) -> None:
    if fine:
        arguments.arity([None] * count, 1, 2)
        return
    with pytest.raises(LmqError) as caught:
        arguments.arity([None] * count, 1, 2)
    assert (caught.value.code, caught.value.rpc_text()) == ("unknown_method", "undef")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (0.0, 0.0), (-1, 0.0), (-0.5, 0.0), (-(2**63), 0.0), (5, 5.0), (0.25, 0.25), (1e-9, 1e-9)],
)
def test_wait(value: float, seconds: float) -> None:
    assert arguments.wait(value) == seconds


@pytest.mark.parametrize("value", [1e300, math.inf, 2**64 - 1])
def test_very_long_waits_are_finite(value: float) -> None:
    assert 86400 * 365 < arguments.wait(value) < 86400 * 36500


@pytest.mark.parametrize("value", [None, True, "1", b"1", [], {}, math.nan])
def test_wait_must_be_a_number(value: object) -> None:
    with pytest.raises(LmqError) as caught:
        arguments.wait(value)
    assert caught.value.rpc_text() == "function_clause"


@pytest.mark.parametrize("value", [None, True, 1, "text", [b"x"], {}])
def test_text_is_bytes(value: object) -> None:
    assert arguments.text(b"x") == b"x"
    with pytest.raises(LmqError) as caught:
        arguments.text(value)
    assert caught.value.rpc_text() == "function_clause"


def test_texts_are_a_list_with_a_limit() -> None:
    assert arguments.texts([b"a", b"b"], 2) == [b"a", b"b"]
    assert arguments.texts([], 2) == []
    for wrong in (b"a", None, [1], [b"a", None], {b"a": 1}):
        with pytest.raises(LmqError) as caught:
            arguments.texts(wrong, 2)
        assert caught.value.code == "bad_arguments"
    with pytest.raises(LmqError) as caught:
        arguments.texts([b"a"] * 3, 2)
    assert caught.value.code == "too_large"


@pytest.mark.parametrize("value", [0, -1, 11, True, 1.0, None, b"1"])
def test_count_has_bounds(value: object) -> None:
    assert (arguments.count(1, 10), arguments.count(10, 10)) == (1, 10)
    with pytest.raises(LmqError) as caught:
        arguments.count(value, 10)
    assert caught.value.code == "bad_arguments"


def test_key_is_1_to_255_bytes() -> None:
    assert arguments.key_of(None) is None
    assert arguments.key_of(b"k" * 255) == b"k" * 255
    for wrong in (b"", b"k" * 256, 1, "k"):
        with pytest.raises(LmqError):
            arguments.key_of(wrong)


def test_bodies_are_old_messagepack() -> None:
    assert arguments.body_of(b"x" * 32) == b"\xda\x00\x20" + b"x" * 32
    assert arguments.body_of([b"a", {b"k": 1.5}]) == b"\x92\xa1a\x81\xa1k\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("encode", [arguments.body_of, arguments.plain_item])
def test_timestamps_are_an_extension_like_any_other(encode: Callable[[Any], bytes]) -> None:
    with pytest.raises(UnsupportedExtensionError):
        encode([dt.datetime.now(dt.UTC)])


def test_push_all_stores_strings_unchanged() -> None:
    assert arguments.plain_item(b"text") == [b"text", None, b"", None]
    assert arguments.plain_item([1]) == [b"\x91\x01", b"application/x-msgpack", b"", None]
