"""Offsets, digests and slices, without Spark and without a cluster."""

from __future__ import annotations

import json

import pytest

from lmqcluster.spark.errors import OptionError
from lmqcluster.spark.offsets import Offset
from lmqcluster.spark.pushing import digest
from lmqcluster.spark.slices import cut


def test_an_offset_survives_the_checkpoint() -> None:
    offset = Offset("s", 5, 4)
    assert Offset.parse(json.loads(json.dumps(offset.json()))) == offset
    assert list(offset.epochs) == [4, 5]


def test_an_offset_tells_what_is_read_and_older_ones_need_not() -> None:
    offset = Offset("s", 5, 4, "queue 'a'")
    assert Offset.parse(json.loads(json.dumps(offset.json()))) == offset
    assert Offset.parse({"subscription": "s", "epoch": 5, "first": 4}).source is None


def test_nothing_has_been_read_at_the_initial_offset() -> None:
    assert list(Offset.initial("s", 7).epochs) == []
    assert Offset.initial("s", 7).epoch == 7


@pytest.mark.parametrize("other", [{}, {"topic": {"0": 5}}, {"subscription": "s", "epoch": "x", "first": 1}])
def test_the_offset_of_another_source_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="checkpointLocation"):
        Offset.parse(other)


def test_a_digest_tells_values_types_and_headers_apart() -> None:
    rows = [(b"a", None, ()), (b"b", None, ()), (b"a", "b", ()), (b"ba", None, ()), (b"a", "b", [("c", "d")])]
    others = [(b"a", "b", [("cd", "")]), (b"", None, ()), (b"", "", [("", "")])]
    digests = {digest(queue, *row) for queue in ("q", "p") for row in [*rows, *others]}
    assert len(digests) == 2 * (len(rows) + 3)
    assert {len(one) for one in digests} == {16}
    assert digest("q", *rows[4]) in digests


@pytest.mark.parametrize(
    ("count", "least", "sizes"), [(10, 1, [10]), (10, 3, [3, 3, 4]), (2, 8, [1, 1]), (25_000, 1, [8333, 8333, 8334])]
)
def test_a_batch_is_cut_into_even_slices(count: int, least: int, sizes: list[int]) -> None:
    slices = cut(count, least)
    assert [end - start for start, end in slices] == sizes
    assert [start for start, _ in slices] == [0, *[end for _, end in slices[:-1]]]


def test_an_empty_batch_is_one_empty_slice() -> None:
    assert cut(0, 4) == [(0, 0)]
