"""The judges of work with known sums, and of a node's open reads, against wrong results."""

from __future__ import annotations

from collections import Counter

import pytest
from lmqcluster_chaos.load.feature_work import describe_miscount
from lmqcluster_chaos.load.open_reads import describe_misplaced

WANTED = [b"a", b"b", b"c"]


def test_messages_present_once_are_accepted() -> None:
    assert describe_miscount(set(WANTED), Counter(WANTED)) is None
    assert describe_misplaced(WANTED, WANTED) is None


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (Counter([b"a", b"c"]), "1 lost, such as [b'b']"),
        (Counter([b"a", b"b", b"b", b"c"]), "1 duplicated, such as [b'b']"),
        (Counter([b"a", b"b", b"c", b"d"]), "1 never pushed, such as [b'd']"),
        (Counter([b"a", b"a", b"b"]), "1 lost, such as [b'c']; 1 duplicated, such as [b'a']"),
    ],
)
def test_messages_not_present_once_are_named(found: Counter[bytes], problem: str) -> None:
    assert describe_miscount(set(WANTED), found) == problem


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([b"a", b"b"], "1 are missing, such as [b'c']"),
        ([b"a", b"b", b"x"], "1 are unknown, such as [b'x']"),
        ([b"a", b"b", b"c", b"c"], "4 arrived instead of 3"),
        ([b"a", b"c", b"b"], "position 1 has b'c' instead of b'b'"),
    ],
)
def test_reads_that_did_not_return_to_their_places_are_named(found: list[bytes], problem: str) -> None:
    assert problem in (describe_misplaced(WANTED, found) or "")
