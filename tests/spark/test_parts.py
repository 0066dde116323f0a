"""Offsets, keys and slices, without Spark and without a cluster."""

from __future__ import annotations

import json
import random

import pytest

from lmqcluster.spark.errors import OptionError
from lmqcluster.spark.keys import RowKeys
from lmqcluster.spark.offsets import Offset
from lmqcluster.spark.slices import cut


def keys(values: list[bytes], *scope: str) -> list[bytes]:
    maker = RowKeys(scope)
    return [maker.next(value) for value in values]


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


def test_a_repeated_task_has_the_same_keys() -> None:
    values = [b"a", b"b", b"a", b"", b"a"]
    assert keys(values, "w", "0") == keys(values, "w", "0")


def test_equal_values_have_different_keys() -> None:
    assert len(set(keys([b"a"] * 100, "w"))) == 100


def test_a_repeated_task_with_its_rows_in_another_order_has_the_same_keys_for_the_same_values() -> None:
    values = [b"%d" % (number % 30) for number in range(100)]
    shuffled = values[:]
    random.Random(1).shuffle(shuffled)
    assert shuffled != values
    assert sorted(zip(shuffled, keys(shuffled, "w"), strict=True)) == sorted(
        zip(values, keys(values, "w"), strict=True)
    )


@pytest.mark.parametrize("other", [("w2", "0"), ("w", "1"), ("w", "0", ""), ("w0",), ("", "w", "0")])
def test_other_writes_partitions_and_queues_have_other_keys(other: tuple[str, ...]) -> None:
    values = [b"a", b"a", b"b"]
    assert not set(keys(values, "w", "0")) & set(keys(values, *other))


@pytest.mark.parametrize(
    ("count", "least", "sizes"), [(10, 1, [10]), (10, 3, [3, 3, 4]), (2, 8, [1, 1]), (25_000, 1, [8333, 8333, 8334])]
)
def test_a_batch_is_cut_into_even_slices(count: int, least: int, sizes: list[int]) -> None:
    slices = cut(count, least)
    assert [end - start for start, end in slices] == sizes
    assert [start for start, _ in slices] == [0, *[end for _, end in slices[:-1]]]


def test_an_empty_batch_is_one_empty_slice() -> None:
    assert cut(0, 4) == [(0, 0)]
