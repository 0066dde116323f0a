"""Planted bugs in the commands that the naive model judges: their judge finds each within a few runs."""

from __future__ import annotations

from tests.simulation.planted_modelled import PLANTED_MODELLED
from tests.simulation.planted_search import each_is_found

KINDS = {
    "snapshots without attempts": {"acknowledged attempt not stored", "answer not in the log"},
    "attempts end after a second": {"wrong result: push_attempts"},
    "only the latest attempt known": {"wrong result: push_attempts", "wrong result: poll"},
    "results of another client": {"acknowledged attempt not stored"},
    "repeated polls get other messages": {"wrong result: poll"},
    "suspended requests served": {
        f"wrong result: {one}" for one in ("poll", "push_attempts", "update", "delete_polled")
    },
    "throttles ignored": {"wrong result: poll"},
    "moved messages without group": {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve")},
    "one message too many moved": {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve", "move")},
    "sequences of dead letters ignored": {"wrong result: redrive", "wrong result: purge"},
    "pulls from the first queue named": {"wrong result: pull_first"},
    "copies for the first queue only": {"wrong result: push_each"},
    "queues suspended for ever": {f"wrong result: {one}" for one in ("pull", "pull_first", "reserve")},
    "deleted queues only emptied": {
        f"wrong result: {one}" for one in ("pull", "pull_first", "reserve", "ack", "nack", "delete", "settle_batches")
    },
    "consumers not fenced": {
        f"wrong result: {one}" for one in ("reserve", "renew", "settle_batches", "abandon_batches")
    },
    "settled batches not acknowledged": {
        f"wrong result: {one}" for one in ("pull", "pull_first", "reserve", "move", "settle_batches")
    },
}

test_the_bug_is_found = each_is_found(PLANTED_MODELLED, KINDS, range(1, 17), {"snapshots without attempts": "snapshot"})
