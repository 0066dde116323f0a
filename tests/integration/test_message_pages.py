"""Lists of messages skip none and show none twice, for bodies of any size, in memory or in pages."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator

import msgpack
import pytest

from lmqcluster import AsyncClient, Client
from tests.integration.cluster import NodeProcess, wait_for
from tests.integration.programs import run
from tests.integration.raw_http import call
from tests.integration.test_durability_restart import metric

KINDS = {1_000: 24_000, 20_000: 1_200, 1_000_000: 80}
"""Number of messages by size: of each size more than one answer holds."""
PUSHED_BYTES = 4_000_000
Listed = list[tuple[int, bytes]]
"""Sequences, with the beginning of each body."""


def _body(size: int, number: int) -> bytes:
    return b"%07d " % number + random.Random(number).randbytes(64).hex().encode() * (size // 128)


def _queue(size: int) -> str:
    return f"bodies-of-{size}"


def _fill(node: NodeProcess) -> None:
    for size, count in KINDS.items():
        step = min(1_000, PUSHED_BYTES // size)
        for start in range(0, count, step):
            messages = [
                {"content": _body(size, number), "content_type": "text/plain"}
                for number in range(start, min(start + step, count))
            ]
            packed = msgpack.packb({"messages": messages})
            path = f"/v1/queues/{_queue(size)}/messages"
            answer = call(node.http, "POST", path, packed, {"content-type": "application/x-msgpack"})
            assert answer.status == 200, answer.body


@pytest.fixture(scope="module", params=["in memory", "in pages"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with a queue of each kind, whose bodies are in memory, or most of them in pages on its disk."""
    in_pages = request.param == "in pages"
    environment = {"LMQ_MEMORY_BYTES_MAX": "64MiB"} if in_pages else {}
    with NodeProcess(tmp_path_factory.mktemp("filled"), environment=environment) as node:
        _fill(node)
        if in_pages:
            wait_for(lambda: metric(node, "lmq_paged_messages") > 4_000 or None, "bodies in pages")
        else:
            assert metric(node, "lmq_paged_messages") == 0
        yield node


def _by_client(node: NodeProcess, queue: str) -> Listed:
    found: Listed = []
    with Client(node.rpc) as client:
        start: int | None = 0
        while start is not None:
            page = client.peek(queue, 10_000, start)
            found += [(one.sequence, one.body[:7]) for one in page if isinstance(one.body, bytes)]
            start = page.next
    return found


def _by_async_client(node: NodeProcess, queue: str) -> Listed:
    async def listed() -> Listed:
        found: Listed = []
        async with AsyncClient(node.rpc) as client:
            start: int | None = 0
            while start is not None:
                page = await client.peek(queue, 777, start, details=True)
                found += [(one.sequence, one.body[:7]) for one in page if isinstance(one.body, bytes)]
                start = page.next
        return found

    return asyncio.run(listed())


def _by_http(node: NodeProcess, queue: str, decode: Callable[[bytes], dict], media: str, query: str) -> Listed:
    found: Listed = []
    after: int | None = 0
    while after is not None:
        answer = call(node.http, "GET", f"/v1/queues/{queue}/messages?after={after}&{query}", b"", {"accept": media})
        assert answer.status == 200, answer.body
        page = decode(answer.body)
        found += [(one["sequence"], _bytes(one["content"])[:7]) for one in page["messages"]]
        after = page["next"]
    return found


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("ascii")


def _by_json(node: NodeProcess, queue: str) -> Listed:
    return _by_http(node, queue, json.loads, "application/json", "limit=1000")


def _by_msgpack(node: NodeProcess, queue: str) -> Listed:
    return _by_http(node, queue, msgpack.unpackb, "application/x-msgpack", "limit=1000&bytes=7")


def _by_admin(node: NodeProcess, queue: str) -> Listed:
    found: Listed = []
    after: int | None = 0
    while after is not None:
        command = ("message", "peek", queue, "--max", "1000", "--after", str(after), "--json")
        page = json.loads(run("lmq-admin", "--node", node.http, *command).out)
        assert len(page["messages"]) == 1_000 or page["next"] is None, "it continues until it has as many"
        found += [(one["sequence"], _bytes(one["content"])[:7]) for one in page["messages"]]
        after = page["next"]
    return found


@pytest.mark.parametrize("listed", [_by_client, _by_async_client, _by_json, _by_msgpack, _by_admin])
@pytest.mark.parametrize("size", KINDS)
def test_every_message_is_listed_once(
    filled: NodeProcess, size: int, listed: Callable[[NodeProcess, str], Listed]
) -> None:
    found = listed(filled, _queue(size))
    assert [number for _, number in found] == [b"%07d" % number for number in range(KINDS[size])]
    sequences = [sequence for sequence, _ in found]
    assert sequences == sorted(set(sequences))
