"""Columns of messages, as pushes set them, over MessagePack-RPC against a real node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import NodeProcess
from .raw_rpc import Rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def test_an_empty_content_type_is_none(rpc: Rpc, queue_name: str) -> None:
    kinds = {"content_types": ["", None, "text/plain"]}
    assert rpc.call("push_many", queue_name, ["a", "b", "c"], kinds | {"options": [None] * 3}) == [b"ok"] * 3
    marked = {"job": "j", "stream": "s", "first": 0} | kinds
    assert rpc.call("push_marked", queue_name, ["d", "e", "f"], marked) == 3
    columns = rpc.call("peek", queue_name, 10, 0, {"details": True})
    types = [None, b"application/x-msgpack", b"text/plain"]
    assert [meta[0] for meta, count in columns[b"meta"] for _ in range(count)] == types * 2
    assert columns[b"body"] == [b"a", b"\xa1b", b"c", b"d", b"\xa1e", b"f"]
    assert rpc.error("push_many", queue_name, [1], {"content_types": [""], "keys": ["k"]}) == b"function_clause"


def test_columns_show_the_expiry_of_messages(rpc: Rpc, queue_name: str) -> None:
    assert rpc.call("push", queue_name, "a", {"ttl": 3600.5}) == b"ok"
    assert rpc.call("push", queue_name, "b") == b"ok"
    columns = rpc.call("peek", queue_name, 10, 0, {"details": True})
    assert columns[b"expires"] == [columns[b"pushed"][0] + 3_600_500_000, None]
