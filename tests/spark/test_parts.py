"""Offsets, digests and slices, without Spark and without a cluster."""

from __future__ import annotations

import json

import pytest

from lmqcluster.client import PushOptions
from lmqcluster.spark.base.errors import OptionError
from lmqcluster.spark.base.options import Selection
from lmqcluster.spark.reading.offsets import Offset
from lmqcluster.spark.reading.slices import slice_count
from lmqcluster.spark.writing.pushing import digest
from lmqcluster.wire.attributes import Attributes

QUEUES = Selection(("a", "b"))


def test_an_offset_survives_the_checkpoint() -> None:
    for selection in (QUEUES, Selection((), "^a")):
        offset = Offset("s", 5, 4, selection, "i")
        assert Offset.parse(json.loads(json.dumps(offset.json()))) == offset
        assert list(offset.epochs) == [4, 5]


def test_nothing_has_been_read_at_the_initial_offset() -> None:
    offset = Offset.initial("s", 7, QUEUES, "i")
    assert (list(offset.epochs), offset.epoch) == ([], 7)


@pytest.mark.parametrize("selection", [QUEUES, Selection(("b", "a")), Selection(("a", "b", "c")), Selection(("b",))])
def test_queues_can_be_added_removed_and_reordered(selection: Selection) -> None:
    Offset("s", 5, 4, QUEUES, "i").check("s", selection)


@pytest.mark.parametrize("selection", [Selection(("c",)), Selection((), "^a")])
def test_entirely_different_queues_are_refused(selection: Selection) -> None:
    with pytest.raises(OptionError, match="the checkpoint belongs to queues 'a', 'b': keep at least one of its queues"):
        Offset("s", 5, 4, QUEUES, "i").check(None, selection)


@pytest.mark.parametrize("other", [{}, {"topic": {"0": 5}}, {"subscription": "s", "epoch": "x", "first": 1}])
def test_the_offset_of_another_source_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="checkpointLocation"):
        Offset.parse(other)


def test_a_digest_distinguishes_values_types_and_attributes() -> None:
    bare = [(b"a", None), (b"b", None), (b"a", "b"), (b"ba", None), (b"", None), (b"", "")]
    attributes: list[Attributes] = [
        {"c": "d"}, {"cd": ""}, {"c": "1"}, {"c": 1}, {"c": 1.0}, {"c": b"1"}, {"c": 0.0}, {"c": -0.0},
        {"c": "1", "d": "2"}, {"c": "2", "d": "1"},
    ]  # fmt: skip
    options = [PushOptions(attributes=one) for one in attributes] + [PushOptions(label="c")]
    rows = [*((*row, None) for row in bare), *((b"a", kind, option) for kind in (None, "b") for option in options)]
    digests = {digest(queue, *row) for queue in ("q", "p") for row in rows}
    assert len(digests) == 2 * len(rows)
    assert {len(one) for one in digests} == {16}


def test_the_order_of_attributes_and_options_does_not_change_a_digest() -> None:
    first = digest("q", b"a", None, {"attributes": {"a": 1, "b": "2"}, "label": "l"})
    assert first == digest("q", b"a", None, {"label": "l", "attributes": {"b": "2", "a": 1}})


@pytest.mark.parametrize(("count", "least", "slices"), [(10, 1, 1), (10, 3, 3), (2, 8, 2), (25_000, 1, 3), (0, 4, 1)])
def test_a_batch_is_cut_into_enough_slices(count: int, least: int, slices: int) -> None:
    assert slice_count(count, least) == slices
