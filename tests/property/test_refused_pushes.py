"""Ranges of refused sequences against plain sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lmqcluster.core.dedup import refused_ranges as refused_pushes
from lmqcluster.core.dedup.refused_ranges import RefusedRanges

OWNERS = st.sampled_from([b"", b"o"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["note", "stored", "forget", "adopt"]), OWNERS, st.integers(1, 30)), max_size=60
)


@given(STEPS, st.integers(1, 30), st.integers(0, 30))
def test_ranges_are_equivalent_to_sets(steps: list[tuple[str, bytes, int]], first: int, count: int) -> None:
    table = RefusedRanges()
    model: dict[bytes, set[int]] = {b"": set(), b"o": set()}
    for verb, owner, sequence in steps:
        if verb == "note" and sequence not in model[owner]:
            table.note(owner, b"p", sequence)
            model[owner].add(sequence)
        elif verb == "stored":
            table.stored(owner, b"p", sequence)
            model[owner].discard(sequence)
        elif verb == "forget":
            table.forget(owner, b"p")
            model[owner] = set()
        elif verb == "adopt" and not model[b"o"]:
            table.adopt(b"o", b"p")
            model = {b"": set(), b"o": model[b""]}
    loaded = RefusedRanges()
    loaded.load([(bytes(owner), bytes(name), ranges) for owner, name, ranges in table.rows()])  # type: ignore[call-overload,misc]
    for owner, expected in model.items():
        wanted = sorted(one for one in expected if first <= one < first + count)
        assert table.among(owner, b"p", first, count) == wanted
        assert loaded.among(owner, b"p", first, count) == wanted
    assert bool(table) == any(model.values())
    assert list(loaded.rows()) == list(table.rows())


def test_kept_ranges_are_bounded() -> None:
    """An attack: every other push of very many is refused."""
    table = RefusedRanges()
    for producer in range(30):
        for sequence in range(0, 2 * refused_pushes.RANGES_MAX + 20, 2):
            table.note(b"o", b"%d" % producer, sequence)
    kept = [ranges for _, _, ranges in table.rows()]
    assert sum(map(len, kept)) <= refused_pushes._OWNER_RANGES_MAX  # type: ignore[arg-type]
    assert table.among(b"o", b"0", 2 * refused_pushes.RANGES_MAX, 100) != [], "the latest of a producer are kept"
    assert table.among(b"o", b"0", 0, 10) == []
