"""Large JSON bodies are decoded in slices, with the results and refusals of the standard library."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmqcluster.protocols.http.server.requests import json_body
from lmqcluster.protocols.http.server.requests.json_body import NESTING_MAX, SLICE_BYTES, decode_json, parse_json
from lmqcluster.wire.errors import LmqError

SMALL = 80
"""A slice so small that everything crosses a slice boundary."""
PAD = b" " * SLICE_BYTES
"""Makes any body a large one."""


@contextlib.contextmanager
def small_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_body, "SLICE_BYTES", SMALL)
        patch.setattr(json_body, "_ELEMENTS", 3)
        yield


def driven(body: bytes) -> tuple[Any, int]:
    """Return the value of a body, and the number of turns for other work while it is decoded."""
    work, turns = decode_json(body), 0
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value, turns
        turns += 1


def decoded(body: bytes) -> Any:
    return driven(body)[0]


def code(body: bytes) -> str:
    with pytest.raises(LmqError) as caught:
        decoded(body)
    return caught.value.code


def as_text(value: Any) -> Any:
    """Return the value with long strings, which are bytes, as text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, dict):
        return {name: as_text(item) for name, item in value.items()}
    return value


CHARACTERS = st.characters(exclude_categories=["Cs"])
STRINGS = st.text(CHARACTERS, max_size=100) | st.text('\\"/\n\u00e9\U0001f600', max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(CHARACTERS, max_size=5), inner, max_size=12),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=60)
@given(value=VALUES, is_ascii=st.booleans(), indent=st.sampled_from([None, 0, 7]), shift=st.integers(0, SMALL))
def test_any_value_is_decoded_as_by_the_library(value: Any, is_ascii: bool, indent: int | None, shift: int) -> None:
    body = b" " * shift + json.dumps([value, 0], ensure_ascii=is_ascii, indent=indent).encode()
    expected = json.loads(body)
    with small_slices():
        result = as_text(decoded(body))
    assert result == expected
    assert json.dumps(result) == json.dumps(expected), "the types and the order of the names are the same too"


@given(
    body=st.text('[]{},:"\\ \n0123456789.eE+-truefalsn\u00e9ud8DcC', max_size=60).map(str.encode)
    | st.binary(max_size=60)
)
def test_garbage_is_refused_where_the_library_refuses_it(body: bytes) -> None:
    body = b'{"messages":[{"content":"' + b"x" * SMALL + b'"},' + body + b"]}"
    try:
        expected = parse_json(body)
    except LmqError:
        with small_slices():
            assert code(body) == "bad_request"
    else:
        with small_slices():
            assert as_text(decoded(body)) == expected


@pytest.mark.parametrize(
    "content", ["\U0001f600", "\u00e9", "\n", 'a"b', "\\", "\\\\n", '\\"', "ab\U0001f600", "\ud7ff\uffff"]
)
def test_characters_and_escapes_are_not_torn(content: str) -> None:
    for shift in range(14):
        text = "x" * shift + content * SMALL
        for is_ascii in (True, False):
            with small_slices():
                assert as_text(decoded(json.dumps({"a": text}, ensure_ascii=is_ascii).encode())) == {"a": text}


@pytest.mark.parametrize("number", ["1e+5", "1.5", "-1", "1E-7", "0.0", "12345678901234567890", "-0"])
def test_numbers_are_not_torn(number: str) -> None:
    for shift in range(SMALL):
        body = f"[{' ' * shift}{number}{' ' * SMALL}]".encode()
        with small_slices():
            assert json.dumps(decoded(body)) == json.dumps(json.loads(body))
            assert json.dumps(decoded(b" " * (SMALL + shift) + number.encode())) == json.dumps(json.loads(number))


def test_batches_and_large_contents() -> None:
    small = [{"content": f"message {n}: \u00e9\n", "key": str(n)} for n in range(10_000)]
    large = {"content": '\U0001f600\u00e9\\"\n\x7f' * 50_000, "content_type": "text/plain"}
    value = {"messages": [*small, large, {"content": {"base64": "eHh4" * 100_000}}, *small]}
    for is_ascii in (True, False):
        assert as_text(decoded(json.dumps(value, ensure_ascii=is_ascii).encode())) == value


def test_repeated_names_have_their_last_value() -> None:
    body = b'{"a":1,"b":2,"c":"' + b"x" * SLICE_BYTES + b'","a":3,"b":4,"a":5}'
    value = as_text(decoded(body))
    assert list(value.items()) == list(json.loads(body).items())


SIZE = 1 << 19


@pytest.mark.parametrize(
    "body",
    [
        b'["' + b"a" * SIZE + b'"]', b'["' + b"\\n" * (SIZE // 2) + b'"]', b'["' + b"\\\\" * (SIZE // 2) + b'"]',
        b'["' + b'\\"' * (SIZE // 2) + b'"]', b'["' + b"\\u00e9" * (SIZE // 6) + b'"]',
        b'["' + "\U0001f600".encode() * (SIZE // 4) + b'"]', b'["' + b"\\ud83d\\ude00" * (SIZE // 12) + b'"]',
        b"[" + b" " * SIZE + b"]", b"[" + b",".join([b"1" * 4000] * (SIZE // 4000)) + b"]",
        b'{"messages":[' + b",".join([b'{"content":"%b"}' % (b"x" * 5000)] * (SIZE // 5000)) + b"]}",
        b"[" + b",".join([b"[]"] * (SIZE // 3)) + b"]",
        b"{" + b",".join(b'"%d":{}' % number for number in range(SIZE // 10)) + b"}",
    ],
    ids=["plain", "escapes", "backslashes", "quotes", "codes", "utf-8", "pairs", "space", "numbers", "messages", "lists",
        "names"],
)  # fmt: skip
def test_other_work_gets_turns_with_any_body(body: bytes) -> None:
    value, turns = driven(body)
    assert turns >= len(body) // SLICE_BYTES
    assert as_text(value) == json.loads(body)


def test_nesting_is_bounded() -> None:
    for opening in (b"[", b'{"a":'):
        assert code(opening * (2 * SLICE_BYTES)) == "bad_request"
        assert code(opening * 100_000 + b"1") == "bad_request"
    fits = b"[" * NESTING_MAX + b'"' + b"x" * 3 * SLICE_BYTES + b'"' + b"]" * NESTING_MAX
    assert as_text(decoded(fits)) == json.loads(fits)
    assert code(b"[" + fits + b"]") == "bad_request"
    deep = b"[" * 500 + b"1" + b"]" * 500
    assert decoded(b"[" + PAD + b",".join([deep] * 3) + b"]") == [json.loads(deep)] * 3


LONG = b'"' + b"a" * SLICE_BYTES


@pytest.mark.parametrize(
    "tail",
    [
        b'"\\ud800"', b'"\\udc00\\ud800"', b'{"\\ud800":1}', LONG + b'\\ud800"', LONG + b'\\udc00\\ud800"', b'"\xff"',
        b'"\xed\xa0\x80"', LONG + b'\xff"', LONG, LONG + b'\n"', LONG + b'\\x"', LONG + b"\\", LONG + b'\\"', b"NaN",
        b"[Infinity]", b"-Infinity", b"01", b"1" * 2 * SLICE_BYTES, b"1" * 5000, b"tru", b"1 1", b"[1,]", b'{"a":1,}',
        b'{"a" 1}', b"{1:1}", b'{"' + b"a" * 2 * SLICE_BYTES + b'":1}', b"]", b"[1}", b'"a"\xe2\x82', b"\x00", b"\xef\xbb\xbf1",
        b"[" * 2000 + b"]" * 2000,
    ],
)  # fmt: skip
def test_malformed_bodies(tail: bytes) -> None:
    assert code(PAD + tail) == "bad_request"
    assert code(b"[" + PAD + tail + b"]") == "bad_request"
    assert code(PAD) == "bad_request"
