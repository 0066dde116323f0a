"""Planted bugs in the commands that the naive model judges: their judge finds each within a few runs."""

from __future__ import annotations

import pytest

from tests.simulation.planted_modelled import PLANTED_MODELLED
from tests.simulation.tasks import Task

SEEDS = range(1, 17)
KINDS = {
    "snapshots without attempts": ("snapshot", {"acknowledged attempt not stored", "answer not in the log"}),
    "attempts end after a second": ("calm", {"wrong result: push_attempts"}),
    "only the latest attempt known": ("calm", {"wrong result: push_attempts", "wrong result: poll"}),
    "results of another client": ("calm", {"acknowledged attempt not stored"}),
    "repeated polls get other messages": ("calm", {"wrong result: poll"}),
    "suspended requests served": (
        "calm",
        {f"wrong result: {one}" for one in ("poll", "push_attempts", "update", "delete_polled")},
    ),
    "throttles ignored": ("calm", {"wrong result: poll"}),
    "moved messages without group": ("calm", {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve")}),
    "one message too many moved": (
        "calm",
        {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve", "move")},
    ),
    "sequences of dead letters ignored": ("calm", {"wrong result: redrive", "wrong result: purge"}),
    "pulls from the first queue named": ("calm", {"wrong result: pull_first"}),
    "copies for the first queue only": ("calm", {"wrong result: push_each"}),
    "queues suspended for ever": ("calm", {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve")}),
    "deleted queues only emptied": (
        "calm",
        {
            f"wrong result: {one}"
            for one in ("pull", "pull_first", "reserve", "ack", "nack", "delete", "settle_batches")
        },
    ),
    "consumers not fenced": (
        "calm",
        {f"wrong result: {one}" for one in ("reserve", "renew", "settle_batches", "abandon_batches")},
    ),
    "settled batches not acknowledged": (
        "calm",
        {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve", "move", "settle_batches")},
    ),
}
"""The profile and the kinds of violations by bug. Some runs may show other kinds."""


def test_every_planted_bug_has_its_kinds() -> None:
    assert KINDS.keys() == PLANTED_MODELLED.keys()


@pytest.mark.parametrize("name", PLANTED_MODELLED)
def test_the_bug_is_found(name: str) -> None:
    profile, kinds = KINDS[name]
    with PLANTED_MODELLED[name]():
        assert any(Task("queues", profile, seed).run()[0].kinds & kinds for seed in SEEDS)
