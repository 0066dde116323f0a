"""Addresses, requests and replies of the client: pure functions."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmqcluster import LmqError, Outcome
from lmqcluster.client.transport.addresses import parse_addresses
from lmqcluster.client.transport.backoff import Backoff
from lmqcluster.client.transport.replies import decode_strings, name_text, parse_error, push_text
from lmqcluster.client.transport.requests import (
    Heads,
    encode_content,
    name_bytes,
    pack_array,
    request_body,
    split_batch,
)
from lmqcluster.wire.errors import ERRORS
from lmqcluster.wire.limits import REQUEST_BYTES_MAX


def test_addresses_are_text_or_a_list_with_a_default_port() -> None:
    assert parse_addresses("a:1, b ,[::1]:3") == [("a", 1), ("b", 18800), ("::1", 3)]
    assert parse_addresses(["a:1", "b:2,c:3", "a:1"]) == [("a", 1), ("b", 2), ("c", 3)]
    assert [str(address) for address in parse_addresses("h:7,[fe80::1]:8")] == ["h:7", "[fe80::1]:8"]


@pytest.mark.parametrize("text", ["", " , ", "a:x", "a:70000", "http://a:1", "a:1/x", "u@a:1", "::1:5", "a b:1"])
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|at least one node"):
        parse_addresses(text)


@given(st.binary(max_size=300), st.sampled_from([b"push", b"done", b"a_rather_long_method_name"]), st.integers(1, 9))
def test_a_head_equals_the_packed_form(name: bytes, method: bytes, arguments: int) -> None:
    head = Heads(method, arguments)[name]
    rest = [1] * (arguments - 1)
    assert head + b"\x01" * len(rest) == msgpack.packb(method, use_bin_type=False) + msgpack.packb(
        [name, *rest], use_bin_type=False
    )


def test_the_cache_of_heads_is_bounded() -> None:
    heads = Heads(b"push", 2)
    for number in range(25_000):
        assert heads[f"q{number}"].endswith(f"q{number}".encode())
    assert len(heads) <= 10_000


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False)
        | st.text()
        | st.binary(),
        lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
        max_leaves=8,
    )
)
def test_contents_are_old_specification_messagepack(content: object) -> None:
    assert encode_content(content) == msgpack.packb(content, use_bin_type=False)


@pytest.mark.parametrize("size", [0, 31, 32, 1023, 1024, 65535, 65536, 70000])
def test_strings_of_every_length_class(size: int) -> None:
    assert msgpack.unpackb(encode_content(b"x" * size), raw=True) == b"x" * size
    assert encode_content("x" * size) == encode_content(b"x" * size)


@pytest.mark.parametrize("content", [object(), 2**64, {1, 2}, "\ud800"])
def test_values_without_a_messagepack_form_are_refused_at_once(content: object) -> None:
    with pytest.raises(LmqError) as caught:
        encode_content(content)
    assert (caught.value.code, caught.value.outcome) == ("bad_arguments", Outcome.NOT_APPLIED)


def test_requests_that_no_node_accepts_are_refused_at_once() -> None:
    for build in (
        lambda: encode_content(bytes(REQUEST_BYTES_MAX)),
        lambda: request_body(b"m", [bytes(REQUEST_BYTES_MAX)]),
    ):
        with pytest.raises(LmqError) as caught:
            build()
        assert caught.value.code == "too_large"


@given(st.binary())
def test_names_that_are_not_utf8_survive_the_round_trip(name: bytes) -> None:
    assert name_bytes(name_text(name)) == name
    assert name_bytes(name) == name


def test_names_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="str or bytes"):
        name_bytes(7)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=20), max_size=40), st.integers(1, 10), st.integers(1, 60))
def test_split_batches_cover_everything_in_order_within_the_limits(
    encoded: list[bytes], count_max: int, bytes_max: int
) -> None:
    parts = [encoded[start:end] for start, end in split_batch(encoded, count_max, bytes_max)]
    assert [one for part in parts for one in part] == encoded
    for part in parts:
        assert 1 <= len(part) <= count_max
        assert len(part) == 1 or sum(map(len, part)) <= bytes_max


@pytest.mark.parametrize("count", [0, 3, 70_000])
def test_arrays_of_encoded_values(count: int) -> None:
    assert msgpack.unpackb(pack_array([b"\x05"] * count)) == [5] * count


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_error_text_maps_back_to_its_code(code: str) -> None:
    error = parse_error(LmqError(code, "why: because").rpc_text().encode())
    assert error.code == code
    assert (error.retryable, error.outcome) == (ERRORS[code].retryable, ERRORS[code].outcome)
    if ERRORS[code].rpc is None:
        assert error.message == "why: because"


@pytest.mark.parametrize("element", [b"what", b"nonsense: x", b"", 7, [1], b"\xff"])
def test_unknown_errors_are_internal(element: object) -> None:
    assert parse_error(element).code == "internal"


def test_push_results() -> None:
    assert [push_text(text) for text in (b"ok", b"packing started", b"packed")] == ["ok", "packing started", "packed"]
    with pytest.raises(KeyError):
        push_text(b"nonsense")


def test_decoded_strings() -> None:
    value = {b"a": [b"x", b"\xff", {b"\xc3\xa4": 1}], 5: None}
    assert decode_strings(value) == {"a": ["x", b"\xff", {"ä": 1}], 5: None}


def test_backoff_tries_every_address_once_and_then_waits_ever_longer() -> None:
    backoff = Backoff(first_s=0.1, max_s=1.0)
    assert [backoff.delay_s(failures, 3) for failures in (0, 1, 2)] == [0, 0, 0]
    for failures, ceiling in ((3, 0.1), (5, 0.1), (6, 0.2), (9, 0.4), (30, 1.0), (100_000, 1.0)):
        assert all(ceiling / 2 <= backoff.delay_s(failures, 3) <= ceiling for _ in range(50))
