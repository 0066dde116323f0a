"""JSON as LMQ writes it (specification 7), and strict reading."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.http.server.replies.compact_json import dumps, number
from lmqcluster.protocols.http.server.replies.shown_properties import shown
from lmqcluster.protocols.http.server.requests.json_body import parse_json
from lmqcluster.wire.errors import LmqError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (5.0, "5"),
        (-1.0, "-1"),
        (0.5, "0.5"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.3"),
        (1e100, "1e+100"),
        (1e-7, "1e-07"),
        (1e15, "1e+15"),
        (123456789012345.0, "123456789012345"),
        (1234567890123456789, "1234567890123456789"),
        (1 / 3, "0.333333333333333"),
        (math.nan, "0"),
        (math.inf, "0"),
    ],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_equal_the_output_of_c(value: float) -> None:
    assert number(value) == "%.15g" % value  # noqa: UP031  the C form is the point


def test_documents_have_no_whitespace_and_keep_order() -> None:
    document = {"b": [1, 2.0, None], "a": {"x": True, "y": False}, "c": ("t", [])}
    assert dumps(document) == '{"b":[1,2,null],"a":{"x":true,"y":false},"c":["t",[]]}'


def test_text_is_utf8_and_escaped_where_necessary() -> None:
    assert dumps('キ"\\\n\x01/') == '"キ\\"\\\\\\n\\u0001/"'


def test_byte_strings_that_are_not_utf8_stay_valid_json() -> None:
    assert json.loads(dumps({b"a\xff": b"\xfe"})) == {"a\\xff": "\\xfe"}


def test_a_value_without_a_json_form_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        dumps(object())


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**14), 10**14) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@given(_VALUES)
def test_dumps_is_read_back(value: object) -> None:
    assert json.loads(dumps(value)) == value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nul", b"{'a':1}", b'{"a":NaN}', b"Infinity", b"\xff", b'"\xed\xa0\x80"', b"[1,]", b"[" * 100_000, b"1" * 5000,
     b"\xef\xbb\xbf{}", "{}".encode("utf-16")],
)  # fmt: skip
def test_malformed_json_is_refused(body: bytes) -> None:
    with pytest.raises(LmqError) as caught:
        parse_json(body)
    assert caught.value.code == "bad_request"


def test_parse_json_distinguishes_integers_from_floats() -> None:
    assert [type(value) for value in parse_json(b"[1,1.0,1e3]")] == [int, float, float]


def test_properties_are_shown_as_clients_write_them() -> None:
    hooks = [("pre_http_push", [("lmq_hook_preserve_header", ["x-foo"])])]
    text = dumps(shown([("accum", 1500), ("hooks", hooks), ("retry", 2), ("timeout", 30.0)]))
    assert text == (
        '{"accum":1.5,"hooks":{"pre_http_push":[["lmq_hook_preserve_header",["x-foo"]]]},"retry":2,"timeout":30}'
    )
    assert dumps(shown([("accum", 0), ("hooks", [])])) == '{"accum":0,"hooks":{}}'
    assert dumps(shown([("accum", 2)])) == '{"accum":0.002}'
    assert dumps(shown([("accum", -500)])) == '{"accum":-0.5}'
