"""Transactions over MessagePack-RPC, against a real node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lmqcluster.core.handlers.transactions import OPERATIONS_MAX

from .cluster import NodeProcess
from .raw_rpc import Rpc, is_error, pull_all


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def test_consume_and_produce_in_one_step(rpc: Rpc, queue_name: str) -> None:
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    rpc.call("push_many", source, ["1", "2", "3"])
    first, second, third = (one[b"id"] for one in rpc.call("pull_many", source, 3))
    operations = [
        ["done", source, first],
        ["release", source, second, {"place": "head"}],
        ["retain", source, third, {"lease": 60}],
        ["push", target, {"a": 1}, {"priority": 1}],
        ["push", target, "b", None],
    ]
    assert rpc.call("transaction", operations) == [b"ok"] * 5
    assert pull_all(rpc, target) == [b"b", {b"a": 1}]
    assert pull_all(rpc, source) == [b"2"]
    assert is_error(rpc.error("transaction", operations), "lease_lost")
    assert pull_all(rpc, target) == []
    assert rpc.call("transaction", []) == []


def test_a_transaction_is_applied_entirely_or_not_at_all(rpc: Rpc, queue_name: str) -> None:
    source, full = f"{queue_name}-in", f"{queue_name}-full"
    rpc.call("update_props", full, {"max_items": 0})
    rpc.call("push", source, "x")
    receipt = rpc.call("pull", source)[b"id"]
    operations = [["done", source, receipt], ["push", f"{queue_name}-out", "y"], ["push", full, "z"]]
    error = rpc.error("transaction", operations)
    assert is_error(error, "full")
    assert b"operation 2" in error
    assert is_error(rpc.error("transaction", operations, {"again": True}), "full")
    assert pull_all(rpc, f"{queue_name}-out") == []
    assert rpc.call("done", source, receipt) == b"ok"


def test_requests_after_a_transaction_take_effect_after_it(rpc: Rpc, queue_name: str) -> None:
    replies = rpc.many([("transaction", [["push", queue_name, "x", None]]), ("pull", queue_name, 0)])
    assert replies[0].result == [b"ok"]
    assert replies[1].result[b"content"] == b"x"


def test_a_transaction_that_is_resent_is_applied_once(rpc: Rpc, queue_name: str) -> None:
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    rpc.call("push_many", source, ["1", "2"])
    first, second = (one[b"id"] for one in rpc.call("pull_many", source, 2))
    operations = [
        ["push", target, "y", {"key": "k"}],
        ["done", source, first, None],
        ["release", source, second, {"delay": 600}],
    ]
    # Nothing was done before, so it is applied; the answer to a repetition is the same.
    assert rpc.call("transaction", operations, {"again": True}) == [b"ok"] * 3
    assert rpc.call("transaction", operations, {"again": True}) == [b"ok"] * 3
    assert is_error(rpc.error("transaction", operations, {"again": False}), "lease_lost")
    assert pull_all(rpc, target) == [b"y"]


def test_a_resent_transaction_is_not_confused_with_another(rpc: Rpc, queue_name: str) -> None:
    """Its messages were settled, but by others."""
    source, target = f"{queue_name}-in", f"{queue_name}-out"
    rpc.call("push_many", source, ["1", "2", "3"])
    first, second, third = (one[b"id"] for one in rpc.call("pull_many", source, 3))
    rpc.call("release", source, first)
    rpc.call("done", source, second)
    released = [["push", target, "y", {"key": "a"}], ["done", source, first]]
    assert is_error(rpc.error("transaction", released, {"again": True}), "lease_lost")
    half = [["done", source, second], ["done", source, third]]
    assert is_error(rpc.error("transaction", half, {"again": True}), "lease_lost")
    # The push would have left its key.
    done = [["push", target, "y", {"key": "b"}], ["done", source, second]]
    assert is_error(rpc.error("transaction", done, {"again": True}), "unknown_outcome")
    # Nothing shows whether a lease was extended before it expired.
    extended = [["retain", source, second]]
    assert is_error(rpc.error("transaction", extended, {"again": True}), "unknown_outcome")
    assert is_error(rpc.error("transaction", extended), "lease_lost")
    assert pull_all(rpc, target) == []


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        (1, None),
        ([1], None),
        ([[]], None),
        ([["push", "q"]], None),
        ([["push", 1, "x"]], None),
        ([["push", "q", "x", {"x": 1}]], None),
        ([["push", "q", "x", {"delay": -1}]], "bad_request"),
        ([["push", "", "x", None]], "bad_name"),
        ([["pull", "q", "x"]], None),
        ([[["push"], "q", "x"]], None),
        ([["done", "q", 1]], None),
        ([["done", "q", "i", {"lease": 1}]], None),
        ([["release", "q", "i", {"place": "middle"}]], "bad_request"),
        ([["retain", "q", "i", {"lease": 0}]], "bad_request"),
        ([["retain", "q", "i", None, None]], None),
        ([["done", "q", "i"]] * (OPERATIONS_MAX + 1), "too_large"),
        ([["done", "q", "not an id"]], "lease_lost"),
        ([["done", "q" * 256, "i"]], "lease_lost"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_operation_is_refused(rpc: Rpc, operations: Any, code: str | None) -> None:
    error = rpc.error("transaction", operations)
    assert is_error(error, code) if code else error == b"function_clause"


@pytest.mark.parametrize("options", [None, 1, {"again": 1}, {"x": True}], ids=str)
def test_wrong_options_of_a_transaction_are_refused(rpc: Rpc, options: Any) -> None:
    assert rpc.error("transaction", [], options) == b"function_clause"
