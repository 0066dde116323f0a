"""The test that runs of the simulator find each planted bug in the features of queues."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

import pytest

from .tasks import Task

__all__ = ["each_is_found"]


def each_is_found(
    bugs: Mapping[str, Callable[[], AbstractContextManager[object]]],
    kinds: Mapping[str, Collection[str]],
    seeds: Collection[int],
    profiles: Mapping[str, str] | None = None,
) -> Callable[[str], None]:
    """Return the test, a case for each bug; the runs themselves show that the program keeps these guarantees.

    Args:
        bugs: plants each bug.
        kinds: the kinds of violations by bug, of which one must be found. Some runs may show other kinds.
        seeds: those to try, in this order.
        profiles: the profile of the runs by bug, where it is not ``calm``.
    """
    assert kinds.keys() == bugs.keys()
    chosen = profiles or {}
    assert chosen.keys() <= bugs.keys()

    @pytest.mark.parametrize("name", bugs)
    def test(name: str) -> None:
        with bugs[name]():
            runs = (Task("queues", chosen.get(name, "calm"), seed).run()[0] for seed in seeds)
            assert any(not run.kinds.isdisjoint(kinds[name]) for run in runs)

    return test
