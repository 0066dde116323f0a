"""W3C Trace Context: the grammar of its headers, and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.wire.attributes import ATTRIBUTES_MAX, pack_attributes, unpack_attributes
from lmqcluster.wire.trace_context import TraceParent, parse_traceparent, trace_attributes, with_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
ROOM = 10_240


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (PARENT, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-ff", True),
        (f"cc-{TRACE}-{SPAN}-01-x", True),
    ],
)
def test_valid_values(value: str, sampled: bool) -> None:
    assert parse_traceparent(value) == TraceParent(int(TRACE, 16), int(SPAN, 16), sampled)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "x",
            PARENT[:-1],
            PARENT + "1",
            PARENT + "-x",
            " " + PARENT,
            PARENT + "\n",
            PARENT.upper(),
            None,
            1,
            b"00",
        ),
        *(f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0g"),
        *(f"0-{TRACE}-{SPAN}-01", f"00-{TRACE}{SPAN}-01", PARENT.replace("-", "_"), f"cc-{TRACE}-{SPAN}-01x"),
        *(f"cc-{TRACE}-{SPAN}-01-" + "x" * 300, f"00-{TRACE[:-1]}٣-{SPAN}-01", f"00-{TRACE}-{SPAN}-01,{PARENT}"),
    ],
)
def test_malformed_values_are_no_trace(value: object) -> None:
    assert parse_traceparent(value) is None
    if isinstance(value, str):
        assert trace_attributes([value], ["a=1"]) == {}


@pytest.mark.parametrize("state", ["a=1", "a=1,b@c=2", "a=1, ,b=x y", "0a_-*/=!"])
def test_a_state_goes_along(state: str) -> None:
    assert trace_attributes([PARENT], [state]) == {"traceparent": PARENT, "tracestate": state}


def test_the_parts_of_a_state_are_one() -> None:
    assert trace_attributes([PARENT], ["a=1", "b=2"])["tracestate"] == "a=1,b=2"


@pytest.mark.parametrize(
    "state",
    [
        *("", ",", "a", "a=", "A=1", "a=1=2", "a=\x01", "a=1\r\nx: y", "a=é", "=1"),
        *("a=" + "x" * 511, ",".join(f"k{number}=1" for number in range(33))),
    ],
)
def test_a_malformed_or_large_state_is_left_out(state: str) -> None:
    assert trace_attributes([PARENT], [state]) == {"traceparent": PARENT}


def test_two_parents_are_none() -> None:
    assert trace_attributes([PARENT, PARENT], []) == {}
    assert trace_attributes([], ["a=1"]) == {}


@given(st.text(max_size=80), st.lists(st.text(max_size=600), max_size=3))
def test_what_is_taken_is_small_and_printable(parent: str, states: list[str]) -> None:
    for value in (*trace_attributes([parent], states).values(), *trace_attributes([PARENT], states).values()):
        assert len(value) <= 512
        assert value.isascii()
        assert value.isprintable()


def test_a_trace_joins_attributes() -> None:
    trace = {"traceparent": PARENT}
    assert unpack_attributes(with_trace(b"", trace, ROOM)) == trace
    assert unpack_attributes(with_trace(pack_attributes({"a": 1}), trace, ROOM)) == {"a": 1, **trace}
    assert with_trace(b"", {}, ROOM) == b""


@pytest.mark.parametrize("own", [{"traceparent": "mine"}, {"tracestate": "a=1"}])
def test_a_trace_of_its_own_stays(own: dict[str, str]) -> None:
    packed = pack_attributes(own)
    assert with_trace(packed, {"traceparent": PARENT}, ROOM) == packed


def test_a_trace_without_room_is_left_out() -> None:
    full = pack_attributes({f"a{number}": 1 for number in range(ATTRIBUTES_MAX)})
    assert with_trace(full, {"traceparent": PARENT}, ROOM) == full
    small = pack_attributes({"a": "x" * 20})
    assert with_trace(small, {"traceparent": PARENT}, 60) == small
    assert with_trace(b"", {"traceparent": PARENT}, 60) == b""
