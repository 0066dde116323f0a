"""Purge, move, suspend, lists and peeks over HTTP, MessagePack-RPC and the clients, against real nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgpack
import pytest

from lmqcluster import AsyncClient, Client, LmqError

from ..unit.client.client_cluster import async_test
from .cluster import Cluster, NodeProcess
from .raw_http import Connection, call, settle
from .raw_rpc import Rpc
from .test_http_v1 import JSON, MSGPACK, Api


@pytest.fixture(scope="module")
def api(node: NodeProcess) -> Api:
    return Api(node.http)


def push(api: Api, queue: str, *contents: str) -> None:
    api.ok("POST", f"/v1/queues/{queue}/messages", {"messages": [{"content": content} for content in contents]})


def pulled(api: Api, queue: str, most: int = 100) -> list[str]:
    return [m["content"] for m in api.ok("POST", f"/v1/queues/{queue}/pull", {"max": most})["messages"]]


# --- purge
# --------------------------------------------------------------------------------------------------------------


def test_purge_removes_messages_without_a_lease(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    api.problem(api("POST", f"{path}/purge"), 404, "queue_not_found")
    push(api, queue_name, "a", "b", "c")
    (held,) = api.ok("POST", f"{path}/pull", {"max": 1})["messages"]
    api("PATCH", f"{path}/properties", {"accum": 60})
    push(api, queue_name, "part", "part")
    assert api.ok("POST", f"{path}/purge") == {"purged": 3}
    assert api.ok("POST", f"{path}/purge", {}) == {"purged": 0}
    shown = api.ok("GET", path)
    assert (shown["size"], shown["leased"], shown["bytes"], shown["purged_total"]) == (1, 1, 1, 3)
    assert api.ok("POST", f"{path}/ack", {"ids": [held["id"]]}) == {"results": [True]}
    for wrong in ({"max": 0}, {"max": "1"}, {"most": 1}):
        api.problem(api("POST", f"{path}/purge", wrong), 400, "bad_request")
    api("PATCH", f"{path}/properties", {"accum": 0})
    push(api, queue_name, "d", "e")
    assert api.ok("POST", f"{path}/purge", {"max": 1}) == {"purged": 1}
    assert api.ok("GET", path)["ready"] == 1
    assert api("GET", f"{path}/purge").status == 405


@async_test
async def test_a_large_queue_is_purged_and_moved_as_a_whole(node: NodeProcess, queue_name: str) -> None:
    """More messages than one command may affect."""
    other = f"{queue_name}-other"
    async with AsyncClient(node.rpc, decode=True) as client:
        contents = [str(number) for number in range(25_000)]
        await client.push_many(queue_name, contents)
        assert await client.move(queue_name, other, 12_345) == 12_345
        assert await client.move(queue_name, other) == 25_000 - 12_345
        first = await client.peek(other, 10_000)
        assert [body.decode() for body in map(_string, first.bodies)] == contents[:10_000]
        assert await client.purge(other) == 25_000
        assert await client.purge(other) == 0
        assert await client.delete(other) == await client.delete(queue_name) == "ok"


def _string(body: object) -> bytes:
    assert isinstance(body, bytes)
    unpacked: bytes = msgpack.unpackb(body, raw=True)
    return unpacked


@async_test
async def test_operations_take_effect_in_the_order_of_a_connection(node: NodeProcess, queue_name: str) -> None:
    other = f"{queue_name}-other"
    async with AsyncClient(node.rpc, decode=True) as client:
        first = client.push(queue_name, "purged")
        purge = client.purge(queue_name)
        second = client.push(queue_name, "moved")
        move = client.move(queue_name, other)
        third = client.push(queue_name, "left")
        await asyncio.gather(first, second, third)
        assert (await purge, await move) == (1, 1)
        suspend = client.suspend(queue_name)
        message = asyncio.create_task(client.pull(queue_name, 0))
        assert (await suspend, await message) == ("ok", None)
        assert await client.resume(queue_name) == "ok"
        for queue, content in ((other, "moved"), (queue_name, "left")):
            message_there = await client.pull(queue, 0)
            assert message_there is not None
            assert message_there.content == content


# --- move
# ---------------------------------------------------------------------------------------------------------------


def test_move_appends_messages_to_another_queue(api: Api, queue_name: str) -> None:
    path, other = f"/v1/queues/{queue_name}", f"{queue_name}/other"
    api.problem(api("POST", f"{path}/move", {"to": other}), 404, "queue_not_found")
    api.ok("PATCH", f"/v1/queues/{queue_name}%2Fother/properties", {"retry": 7})
    push(api, queue_name, "1", "2", "3")
    push(api, f"{queue_name}%2Fother", "0")
    assert api.ok("POST", f"{path}/move", {"to": other, "max": 2}) == {"moved": 2}
    found = api.ok("POST", f"/v1/queues/{queue_name}%2Fother/pull", {"max": 9})["messages"]
    assert [(message["content"], message["retry"]) for message in found] == [("0", 7), ("1", 7), ("2", 7)]
    assert pulled(api, queue_name) == ["3"]
    shown = [api.ok("GET", target) for target in (path, f"{path}%2Fother")]
    assert [(one["moved_out_total"], one["moved_in_total"]) for one in shown] == [(2, 0), (0, 2)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "bad_request"),
        ({"to": ""}, "bad_name"),
        ({"to": 7}, "bad_request"),
        ({"to": "q\n"}, "bad_name"),
        ({"to": "x", "max": 0}, "bad_request"),
        ({"to": "x", "max": True}, "bad_request"),
        ({"to": "x", "max": 1.5}, "bad_request"),
        ({"to": "x", "from": "y"}, "bad_request"),
    ],
)
def test_a_bad_move_is_refused(api: Api, queue_name: str, body: object, code: str) -> None:
    push(api, queue_name, "m")
    api.problem(api("POST", f"/v1/queues/{queue_name}/move", body), 400, code)
    api.problem(api("POST", f"/v1/queues/{queue_name}/move", {"to": queue_name}), 400, "bad_request")
    assert pulled(api, queue_name) == ["m"]


# --- suspend
# ------------------------------------------------------------------------------------------------------------


def test_pulls_wait_at_a_suspended_queue(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    for verb in ("suspend", "resume"):
        api.problem(api("POST", f"{path}/{verb}"), 404, "queue_not_found")
    push(api, queue_name, "1")
    assert api.ok("POST", f"{path}/suspend") == api.ok("POST", f"{path}/suspend", {}) == {"suspended": True}
    assert api.ok("GET", path)["suspended"] is True
    assert pulled(api, queue_name) == []
    assert api.ok("POST", f"{path}/pull", {"timeout": 0.05}) == {"messages": []}
    with Connection(api.address) as waiting, Connection(api.address) as by_pattern:
        waiting.ask("POST", f"{path}/pull", b'{"timeout":null}', {"Content-Type": JSON})
        by_pattern.ask("GET", f"/messages?qre=%5E{queue_name}%24")
        settle(api.address)
        push(api, queue_name, "2")
        settle(api.address)
        assert waiting.is_silent(0.05)
        assert by_pattern.is_silent(0.05)
        assert api.ok("POST", f"{path}/resume") == {"suspended": False}
        bodies = {waiting.read().json["messages"][0]["content"], by_pattern.read().body.decode()}
    assert bodies == {"1", "2"}


@async_test
async def test_a_queue_is_suspended_on_all_nodes(shared_cluster: Cluster, queue_name: str) -> None:
    first, second, third = (AsyncClient(address, decode=True) for address in shared_cluster.rpc_addresses)
    async with first, second, third:
        await first.push_many(queue_name, ["1", "2"])
        await first.suspend(queue_name)
        waits = [asyncio.create_task(client.pull(queue_name)) for client in (second, third)]
        assert await second.pull_any(queue_name, 0) is None
        batch = await third.reserve_batch(queue_name, 1, queue=queue_name, count=5)
        assert (batch.state, (await second.backlog(queue=queue_name)).messages) == ("empty", 0)
        assert not any(wait.done() for wait in waits)
        assert await third.resume(queue_name) == "ok"
        messages = await asyncio.gather(*waits)
        assert sorted(message.content for message in messages if message is not None) == ["1", "2"]


def test_a_restart_does_not_resume(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        with Client(node.rpc) as client:
            client.push("jobs", "1")
            client.suspend("jobs")
        assert call(node.http, "POST", "/v1/snapshots").status == 200
        node.kill()
        node.start()
        with Client(node.rpc) as client:
            assert client.pull("jobs", 0) is None
            client.resume("jobs")
            assert client.pull("jobs", 60) is not None


@pytest.mark.parametrize("call_it", ["purge", "suspend", "resume"])
def test_operations_on_a_missing_queue_fail(node: NodeProcess, queue_name: str, call_it: str) -> None:
    with Client(node.rpc) as client:
        for operation in (lambda: getattr(client, call_it)(queue_name), lambda: client.move(queue_name, "x" * 300)):
            with pytest.raises(LmqError) as caught:
                operation()
            assert caught.value.code in {"queue_not_found", "bad_name"}
        with pytest.raises(ValueError, match="1 or more"):
            client.move(queue_name, "other", 0)


def test_bad_arguments_of_the_methods_are_refused(node: NodeProcess, queue_name: str) -> None:
    with Rpc(node.rpc) as connection:
        connection.call("push", queue_name, "m")
        for method, arguments, error in (
            ("purge", [], b"undef"),
            ("purge", [7], b"function_clause"),
            ("purge", ["x" * 300], b"throw:queue_not_found"),
            ("move", [queue_name], b"undef"),
            ("move", [queue_name, "other", "many"], b"function_clause"),
            ("move", [queue_name, "other", True], b"function_clause"),
            ("suspend", [queue_name, True], b"undef"),
        ):
            assert connection.error(method, *arguments) == error
        for arguments in ([queue_name, "other", 0], [queue_name, queue_name], [queue_name, ""]):
            assert connection.error("move", *arguments).startswith(b"bad_")
        assert connection.call("purge", queue_name) == 1


# --- lists
# --------------------------------------------------------------------------------------------------------------


def test_a_list_is_filtered_sorted_and_limited_by_the_node(api: Api, queue_name: str) -> None:
    sizes = {"Apple": 3, "pear": 1, "apple-tree": 2, "plum": 0}
    for kind, size in sizes.items():
        call(api.address, "PATCH", f"/properties/{queue_name}-{kind}", b"{}", {"Content-Type": JSON})
        push(api, f"{queue_name}-{kind}", *["xx"] * size)

    def listed(query: str) -> list[str]:
        page = api.ok("GET", f"/v1/queues?{query}")
        return [row["name"].removeprefix(f"{queue_name}-") for row in page["queues"]]

    mine = f"name={queue_name}"
    assert listed(mine) == sorted(sizes)
    assert listed(f"{mine}&order=desc") == sorted(sizes, reverse=True)
    assert listed(f"{mine}-APPLE") == ["Apple", "apple-tree"]
    assert listed(f"{mine}&pattern=-p.*$") == ["pear", "plum"]
    for sort in ("ready", "size", "bytes", "pushed"):
        assert listed(f"{mine}&sort={sort}") == ["Apple", "apple-tree", "pear", "plum"]
        assert listed(f"{mine}&sort={sort}&order=asc&offset=1&limit=2") == ["pear", "apple-tree"]
    assert listed(f"{mine}&sort=oldest")[-1] == "plum"
    page = api.ok("GET", f"/v1/queues?{mine}&limit=2&order=desc&after={queue_name}-plum&fields=ready,oldest_age_s")
    assert [set(row) for row in page["queues"]] == [{"name", "ready", "oldest_age_s"}] * 2
    assert [row["name"] for row in page["queues"]] == [f"{queue_name}-pear", f"{queue_name}-apple-tree"]
    assert (page["total"], page["next"]) == (4, f"{queue_name}-apple-tree")
    assert api.ok("GET", f"/v1/queues?{mine}&fields=name")["queues"][0] == {"name": f"{queue_name}-Apple"}
    assert api.ok("GET", f"/v1/queues?{mine}&sort=size&limit=1")["next"] is None


@pytest.mark.parametrize(
    "query",
    [
        "sort=colour",
        "order=up",
        "offset=-1",
        "limit=0",
        "fields=colour",
        "sort=size&after=a",
        "limit=10001",
        "pattern=(",
    ],
)
def test_a_bad_list_is_refused(api: Api, query: str) -> None:
    code = "bad_pattern" if query.startswith("pattern") else "bad_request"
    api.problem(api("GET", f"/v1/queues?{query}"), 400, code)


def test_one_queue_shows_its_age_and_its_own_properties(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    api.ok("PATCH", f"{path}/properties", {"accum": 0, "retry": 5})
    assert api.ok("GET", path)["oldest_age_s"] is None
    push(api, queue_name, "m")
    first = api.ok("GET", path)
    assert first["own_properties"] == {"accum": 0, "retry": 5}
    assert first["properties"] == {"accum": 0, "retry": 5, "timeout": 30}
    assert first["oldest_age_s"] >= 0
    assert api.ok("GET", path)["oldest_age_s"] > first["oldest_age_s"]
    pulled(api, queue_name)
    assert api.ok("GET", path)["oldest_age_s"] is None


def test_annotations_are_set_with_properties_or_not_at_all(api: Api, node: NodeProcess, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    assert api("PATCH", f"{path}/properties", {"retry": 5, "annotations": {"team": "a", "ü": "b"}}).status == 204
    first = api.ok("GET", path)
    assert (first["own_properties"], first["annotations"]) == ({"retry": 5}, {"team": "a", "ü": "b"})
    for wrong, code, status in (
        ({"retry": 6, "annotations": {"x": 1}}, "bad_property", 400),
        ({"retry": 6, "annotations": {"": "x"}}, "bad_property", 400),
        ({"retry": 6, "annotations": {"n" * 256: "x"}}, "bad_property", 400),
        ({"retry": 6, "annotations": None}, "bad_property", 400),
        ({"retry": "x", "annotations": {"team": "b"}}, "bad_property", 400),
        ({"retry": 6, "annotations": {"x": "y" * 16_385}}, "too_large", 413),
        ({"retry": 6, "annotations": {str(n): "x" for n in range(101)}}, "too_large", 413),
        ({"retry": 6, "annotations": {str(n): None for n in range(201)}}, "too_large", 413),
    ):
        api.problem(api("PATCH", f"{path}/properties", wrong), status, code)
    with Client(node.rpc) as client:
        client.update_props(queue_name, annotations={"team": None, "by": "rpc"})
        client.update_props(queue_name, {"retry": 9}, only_unset=True, annotations={"by": "another"})
        with pytest.raises(LmqError, match="at most 16384 bytes"):
            client.update_props(queue_name, {"retry": 9}, annotations={"x": "y" * 16_385})
    last = api.ok("GET", path)
    assert (last["own_properties"], last["annotations"]) == ({"retry": 5}, {"by": "rpc", "ü": "b"})
    assert last["created_at"] == first["created_at"] <= first["changed_at"] < last["changed_at"]


# --- peek
# ---------------------------------------------------------------------------------------------------------------


def test_a_peek_shows_all_messages_and_takes_none(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    api.problem(api("GET", f"{path}/messages"), 404, "queue_not_found")
    messages = [
        {"content": "held"},
        {"content": "zwei ü", "content_type": "text/plain"},
        {"content": {"base64": "/wA="}},
    ]
    api.ok("POST", f"{path}/messages", {"messages": messages})
    (held,) = api.ok("POST", f"{path}/pull", {"max": 1})["messages"]
    api("PATCH", f"{path}/properties", {"accum": 60})
    push(api, queue_name, "part 1", "part 2")
    shown = api.ok("GET", f"{path}/messages")
    assert shown["next"] is None
    found = shown["messages"]
    assert [message["state"] for message in found] == ["leased", "ready", "ready", "accumulating"]
    assert [message["id"] for message in found] == [held["id"], None, None, None]
    assert [message["content"] for message in found[:3]] == ["held", "zwei ü", {"base64": "/wA="}]
    assert [part["content"] for part in found[3]["content"]] == ["part 1", "part 2"]
    assert [message["deliveries_left"] for message in found] == [2, 3, 3, 3]
    assert [message["deliveries"] for message in found] == [1, 0, 0, 0]
    assert found[0]["pushed_at"] == held["pushed_at"]
    assert [message["size"] for message in found] == [4, 7, 2, 12]
    assert found[1]["content_type"] == "text/plain"
    assert 0 < found[0]["due_in_s"] <= 30
    assert 0 < found[3]["due_in_s"] <= 60
    assert found[1]["due_in_s"] == 0
    page = api.ok("GET", f"{path}/messages?limit=2&after={found[0]['sequence']}")
    assert [message["sequence"] for message in page["messages"]] == [one["sequence"] for one in found[1:3]]
    assert page["next"] == found[2]["sequence"]
    assert api.ok("POST", f"{path}/ack", {"ids": [held["id"]]}) == {"results": [True]}
    assert api.ok("GET", path)["pulled_total"] == 1
    answer = api("GET", f"{path}/messages", headers={"Accept": MSGPACK})
    assert [one["content"] for one in msgpack.unpackb(answer.body)["messages"][:2]] == ["zwei ü".encode(), b"\xff\x00"]


def test_a_peek_is_bounded(api: Api, queue_name: str) -> None:
    path = f"/v1/queues/{queue_name}"
    push(api, queue_name, "äöü", "short", "x" * 200_000)
    cut = [
        (message["content"], message["truncated"]) for message in api.ok("GET", f"{path}/messages?bytes=5")["messages"]
    ]
    assert cut == [("äö", True), ("short", False), ("x" * 5, True)]
    assert len(api.ok("GET", f"{path}/messages")["messages"][2]["content"]) == 65_536
    body = json.dumps({"messages": [{"content": "y" * 1_000_000}] * 12}).encode()
    assert call(api.address, "POST", f"{path}/messages", body, {"Content-Type": JSON}).status == 200
    seen = []
    after: int | None = 0
    while after is not None:
        page = api.ok("GET", f"{path}/messages?bytes=1048576&limit=100&after={after}")
        seen.append(len(page["messages"]))
        after = page["next"]
    assert sum(seen) == 15
    assert len(seen) == 2, "an answer does not grow without limit"
    for query in ("bytes=-1", "bytes=1048577", "limit=0", "limit=1001", "after=x"):
        api.problem(api("GET", f"{path}/messages?{query}"), 400, "bad_request")
