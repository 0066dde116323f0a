"""Asserts that a step causes no election, on a machine that may be too busy to run the leader in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .cluster import NodeProcess

__all__ = ["assert_no_election", "terms"]

ATTEMPTS = 4


def terms(nodes: Iterable[NodeProcess]) -> set[int]:
    """Return the terms that the nodes know."""
    return {node.get_json("/v1/cluster")["term"] for node in nodes}


def assert_no_election(nodes: Iterable[NodeProcess], step: Callable[[], None]) -> None:
    """Run a step; repeat it if a leader was elected during it, which a busy machine causes at times.

    A step that causes elections causes one in every attempt.

    Raises:
        AssertionError: there was one in each of `ATTEMPTS` attempts.
    """
    observed = list(nodes)
    for _ in range(ATTEMPTS):
        before = terms(observed)
        step()
        if terms(observed) == before:
            return
    raise AssertionError(f"there was an election in each of {ATTEMPTS} attempts")
