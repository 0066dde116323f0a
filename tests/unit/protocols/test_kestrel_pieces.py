"""The rest of large requests in pieces: the output equals the input, with little overhead."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.protocols.kestrel import request_buffer as module
from lmqcluster.protocols.kestrel.request_buffer import RequestBuffer


@given(first=st.binary(), rest=st.lists(st.binary(min_size=1), min_size=1))
def test_the_output_equals_the_input(first: bytes, rest: list[bytes]) -> None:
    pieces = RequestBuffer()
    for data in rest:
        pieces.add(data)
    whole = first + b"".join(rest)
    assert pieces.size == len(whole) - len(first)
    assert pieces.take(bytearray(first)) == whole
    assert pieces.size == 0
    assert pieces.take(bytearray(b"next")) == b"next"


def test_a_client_that_sends_single_bytes_takes_no_more_memory_than_others() -> None:
    pieces = RequestBuffer()
    count = 4 * module.PIECE_BYTES
    for _ in range(count):
        pieces.add(b"x")
    assert sum(map(sys.getsizeof, pieces._pieces)) < 1.2 * count


def test_taken_often_bytes_are_copied_a_few_times_at_most() -> None:
    """Otherwise each line end of a client would copy everything before it again."""
    pieces, buffer, copied = RequestBuffer(), bytearray(), 0
    for _ in range(1_000):
        pieces.add(b"x" * 1_000)
        before = buffer
        buffer = pieces.take(buffer)
        copied += 0 if buffer is before else len(buffer)
    assert len(buffer) == 1_000_000
    assert copied < 2 * len(buffer)
