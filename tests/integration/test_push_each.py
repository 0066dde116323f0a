"""``push_each`` against a real node: an outcome for each push, producer numbers, and the client's handling of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster import AsyncClient, LmqError

from .cluster import NodeProcess
from .guarded_node import guarded_node
from .raw_rpc import Rpc


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def contents(rpc: Rpc, queue: str) -> list[Any]:
    return [message[b"content"] for message in rpc.call("pull_many", queue, 1000, 0)]


def refused(result: Any, code: bytes) -> bool:
    return type(result) is list and len(result) == 1 and result[0].partition(b":")[0] == code


def test_each_push_has_the_result_of_a_single_push(rpc: Rpc, queue_name: str) -> None:
    assert rpc.call("push_each", queue_name, []) == []
    assert rpc.call("push_each", queue_name, ["a", {"b": 1}, None]) == [b"ok"] * 3
    assert contents(rpc, queue_name) == [b"a", {b"b": 1}, None]
    rpc.call("update_props", queue_name, {"accum": 60})
    assert rpc.call("push_each", queue_name, ["c", "d"]) == [b"packing started", b"packed"]


def test_a_full_queue_stores_what_fits(rpc: Rpc, queue_name: str) -> None:
    rpc.call("update_props", queue_name, {"max_items": 2, "max_item_size": 100})
    first, large, second, third = rpc.call("push_each", queue_name, ["a", "x" * 200, "b", "c"])
    assert (first, second) == (b"ok", b"ok")
    assert refused(large, b"too_large")
    assert refused(third, b"full")
    assert contents(rpc, queue_name) == [b"a", b"b"]


def test_a_refused_push_does_not_affect_others(rpc: Rpc, queue_name: str) -> None:
    stamp = msgpack.Timestamp(1, 0)
    results = rpc.call("push_each", queue_name, [stamp, "a", stamp, stamp, "b", "c", stamp])
    assert [refused(result, b"function_clause") for result in results] == [True, False, True, True, False, False, True]
    assert contents(rpc, queue_name) == [b"a", b"b", b"c"]
    assert all(refused(result, b"function_clause") for result in rpc.call("push_each", queue_name, [stamp, stamp]))


def test_pushes_are_stored_once_under_their_numbers(rpc: Rpc, queue_name: str) -> None:
    producer = f"each {time.time_ns()}"
    stamp = msgpack.Timestamp(1, 0)
    rpc.call("producer", producer, 1)
    rpc.call("push_each", queue_name, ["1", stamp, "3"])
    rpc.call("push", queue_name, "4")
    rpc.call("producer", producer, 1)
    assert rpc.call("push_each", queue_name, ["1", stamp, "3"])[::2] == [b"ok", b"ok"]
    assert rpc.call("push_each", queue_name, ["4", "5"]) == [b"ok", b"ok"]
    assert contents(rpc, queue_name) == [b"1", b"3", b"4", b"5"]


def test_an_invalid_or_too_long_list_is_refused_as_a_whole(rpc: Rpc, queue_name: str) -> None:
    assert rpc.error("push_each", queue_name, "abc") == b"function_clause"
    assert rpc.error("push_each", queue_name, [None] * 10_001).startswith(b"too_large: ")
    assert rpc.error("push_each", queue_name, ["a"], {}) == b"undef"
    assert rpc.error("push_each", "", ["a"]).startswith(b"bad_name: ")
    assert contents(rpc, queue_name) == []


def run(use: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(use())


def test_a_message_over_the_limit_does_not_harm_pushes_beside_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            guarded_node(tmp_path, admin=None, message_bytes_max=64) as guarded,
            AsyncClient(f"127.0.0.1:{guarded.rpc.port}") as client,
        ):
            results = await asyncio.gather(
                *(client.push("q", content) for content in ("a", "x" * 100, "b")), return_exceptions=True
            )
            assert results[::2] == ["ok", "ok"]
            assert isinstance(results[1], LmqError)
            assert results[1].code == "too_large"
            pulled = await asyncio.gather(*(client.pull("q", 0) for _ in range(3)))
            assert [message and message.content for message in pulled] == [b"a", b"b", None]
            acks = [message.ack() for message in pulled if message is not None]
            assert await asyncio.gather(*acks) == [True, True]

    run(main)
