"""Schedules over HTTP, MessagePack-RPC and the Python client, with real nodes. Answers are validated against OpenAPI."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lmqcluster import AsyncClient, Client, LmqError

from .cluster import Cluster, NodeProcess
from .test_http_v1 import Api


class TokenApi(Api):
    """Calls routes with a token."""

    def __init__(self, api: Api, token: str) -> None:
        self.address, self.document, self.paths = api.address, api.document, api.paths
        self.token = token

    def __call__(self, method: str, target: str, value: Any = None, **more: Any) -> Any:
        return super().__call__(method, target, value, headers={"Authorization": f"Bearer {self.token}"}, **more)


@pytest.fixture
def nodes(shared_cluster: Cluster) -> list[Api]:
    return [Api(node.http) for node in shared_cluster]


def pulled(api: Api, queue: str, count: int) -> list[dict[str, Any]]:
    """Return the next messages of a queue, as soon as there are so many."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += api.ok("POST", f"/v1/queues/{queue}/pull", {"max": count, "timeout": 30, "auto_ack": True})["messages"]
    return found


def test_an_interval_pushes_each_due_time_once(nodes: list[Api], queue_name: str) -> None:
    path = f"/v1/schedules/{queue_name}"
    body = {"queue": queue_name, "content": "tick", "interval": 1, "attributes": {"a": 1}, "label": "l"}
    before_s = time.time()
    assert nodes[0].ok("PUT", path, body) == {"result": "created"}
    assert nodes[1].ok("PUT", path, body) == {"result": "unchanged"}
    messages = pulled(nodes[2], queue_name, 3)
    times = [one["attributes"]["scheduled_at"] for one in messages]
    assert times == [times[0], times[0] + 1, times[0] + 2]
    assert before_s + 0.5 < times[0] < time.time()
    first = messages[0]
    assert (first["content"], first["label"]) == ("tick", "l")
    assert first["attributes"] == {"a": 1, "schedule": queue_name, "scheduled_at": times[0]}
    shown = nodes[1].ok("GET", path)
    assert (shown["content"], shown["interval_s"], shown["queue"], shown["missed_total"]) == ("tick", 1, queue_name, 0)
    assert nodes[0]("DELETE", path).status == 204
    nodes[2].problem(nodes[2]("GET", path), 404, "schedule_not_found")


def test_cron_pauses_and_runs_now(nodes: list[Api], queue_name: str) -> None:
    path = f"/v1/schedules/{queue_name}"
    body = {"queue": queue_name, "content": "tick", "cron": "* * * * * *", "zone": "Asia/Tokyo", "missed": "once"}
    assert nodes[0].ok("PUT", path, body) == {"result": "created"}
    times = [one["attributes"]["scheduled_at"] for one in pulled(nodes[0], queue_name, 3)]
    assert times == [times[0], times[0] + 1, times[0] + 2]
    assert nodes[1]("POST", f"{path}/pause").status == 204
    shown = nodes[2].ok("GET", path)
    assert shown["paused"] is True
    assert (shown["cron"], shown["zone"], shown["missed"]) == ("* * * * * *", "Asia/Tokyo", "once")
    while (rest := nodes[0].ok("POST", f"/v1/queues/{queue_name}/pull", {"max": 9, "auto_ack": True}))["messages"]:
        assert rest
    assert nodes[2]("POST", f"{path}/run").status == 204
    (message,) = pulled(nodes[0], queue_name, 1)
    assert message["attributes"]["scheduled_at"] % 1 > 0
    assert nodes[1]("POST", f"{path}/resume").status == 204
    assert pulled(nodes[0], queue_name, 1)
    assert nodes[0].ok("PUT", path, {**body, "cron": "0 0 1 1 *"}) == {"result": "replaced"}
    page = nodes[1].ok("GET", "/v1/schedules?limit=1000")
    (row,) = [one for one in page["schedules"] if one["name"] == queue_name]
    assert row["next_s"] > time.time()
    assert "content" not in row
    assert nodes[0]("DELETE", path).status == 204


def test_lists_come_in_pages(nodes: list[Api], queue_name: str) -> None:
    names = [f"{queue_name}-{number}" for number in range(5)]
    for name in names:
        nodes[0].ok("PUT", f"/v1/schedules/{name}", {"queue": queue_name, "content": "", "interval": 86_400})
    found, after = [], queue_name
    for _ in range(3):
        page = nodes[1].ok("GET", f"/v1/schedules?limit=2&after={after}")
        found += [one["name"] for one in page["schedules"]]
        after = page["next"]
    assert found[:5] == names
    for name in names:
        assert nodes[0]("DELETE", f"/v1/schedules/{name}").status == 204


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"cron": "* * * * *"}, 400, "bad_request"),
        ({"interval": None}, 400, "bad_request"),
        ({"interval": 0.5}, 400, "bad_request"),
        ({"interval": "x"}, 400, "bad_request"),
        ({"jitter": 61}, 400, "bad_request"),
        ({"jitter": -1}, 400, "bad_request"),
        ({"end": 1}, 400, "bad_request"),
        ({"start": 5e9, "end": 4e9}, 400, "bad_request"),
        ({"start": 1e300}, 400, "bad_request"),
        ({"missed": "never"}, 400, "bad_request"),
        ({"interval": None, "cron": "61 * * * *"}, 400, "bad_request"),
        ({"interval": None, "cron": "* * * * *", "zone": "Mars"}, 400, "bad_request"),
        ({"interval": None, "cron": "x" * 300}, 400, "bad_request"),
        ({"interval": None, "cron": "0 0 30 2 *"}, 400, "bad_request"),
        ({"attributes": {"schedule": "x"}}, 400, "bad_request"),
        ({"attributes": {str(number): 1 for number in range(63)}}, 413, "too_large"),
        ({"attributes": {"a": "x" * 10_000}}, 413, "too_large"),
        ({"content": "x" * (256 * 1024 + 1)}, 413, "too_large"),
        ({"key": "k"}, 400, "bad_request"),
        ({"due": 1}, 400, "bad_request"),
        ({"queue": ""}, 400, "bad_name"),
        ({"zone": {"base64": "/w=="}}, 400, "bad_request"),
        ({"delay": -1}, 400, "bad_request"),
    ],
)
def test_wrong_schedules_are_refused(
    nodes: list[Api], queue_name: str, change: dict[str, Any], status: int, code: str
) -> None:
    body = {"queue": queue_name, "content": "", "interval": 60, **change}
    body = {name: value for name, value in body.items() if value is not None}
    path = f"/v1/schedules/{queue_name}"
    nodes[0].problem(nodes[0]("PUT", path, body), status, code)
    nodes[0].problem(nodes[0]("GET", path), 404, "schedule_not_found")


def test_names_are_text(nodes: list[Api], queue_name: str) -> None:
    body = {"queue": queue_name, "content": "", "interval": 60}
    for name in ("%FF", "a%0Ab", "x" * 256):
        nodes[0].problem(nodes[0]("PUT", f"/v1/schedules/{name}", body), 400, "bad_name")


def test_the_asyncio_client(shared_cluster: Cluster, queue_name: str) -> None:
    asyncio.run(_the_asyncio_client(shared_cluster, queue_name))


async def _the_asyncio_client(shared_cluster: Cluster, queue_name: str) -> None:
    async with AsyncClient([node.rpc for node in shared_cluster]) as client:
        name = queue_name + "-\xe9"
        options: dict[str, Any] = {"interval": 1, "attributes": {"a": 1}, "priority": 3}
        assert await client.set_schedule(name, queue_name, {"n": 1}, **options) == "created"
        assert await client.set_schedule(name, queue_name, {"n": 1}, **options) == "unchanged"
        message = await client.pull(queue_name, 30)
        assert message is not None
        assert message.content == {b"n": 1}
        assert message.attributes["schedule"] == name
        assert await client.pause_schedule(name) == "ok"
        shown = await client.schedule(name)
        assert shown is not None
        assert (shown["name"], shown["queue"], shown["paused"], shown["interval_s"]) == (name, queue_name, True, 1.0)
        assert shown["attributes"] == {"a": 1}
        assert shown["options"]["priority"] == 3
        assert name in [one["name"] for one in await client.schedules()]
        assert await client.resume_schedule(name) == "ok"
        assert await client.run_schedule(name) == "ok"
        assert await client.delete_schedule(name) == "ok"
        assert await client.schedule(name) is None
        with pytest.raises(LmqError) as caught:
            await client.pause_schedule(name)
        assert caught.value.code == "schedule_not_found"
        raw = await client.set_schedule(name, queue_name, b"raw", cron="0 0 1 1 *", content_type="text/plain")
        assert raw == "created"
        shown = await client.schedule(name)
        assert shown is not None
        assert (shown["content"], shown["content_type"]) == (b"raw", "text/plain")
        await client.delete_schedule(name)
        with pytest.raises(ValueError, match="key"):
            client.set_schedule(name, queue_name, 1, interval=1, key="k")


def test_the_blocking_client(shared_cluster: Cluster, queue_name: str) -> None:
    with Client([node.rpc for node in shared_cluster]) as client:
        assert client.set_schedule(queue_name, queue_name, 1, interval=86_400, jitter=10, missed="once") == "created"
        assert queue_name in [one["name"] for one in client.schedules()]
        assert client.run_schedule(queue_name) == "ok"
        message = client.pull(queue_name, 30)
        assert message is not None
        assert message.content == 1
        assert client.delete_schedule(queue_name) == "ok"


def test_two_clients_that_set_one_schedule_at_once_both_succeed(shared_cluster: Cluster, queue_name: str) -> None:
    asyncio.run(_two_clients_that_set_one_schedule_at_once_both_succeed(shared_cluster, queue_name))


async def _two_clients_that_set_one_schedule_at_once_both_succeed(shared_cluster: Cluster, queue_name: str) -> None:
    clients = [AsyncClient(node.rpc, discover=False) for node in shared_cluster]
    try:
        for interval in range(60, 70):
            results = await asyncio.gather(
                *(client.set_schedule(queue_name, queue_name, 1, interval=interval) for client in clients)
            )
            assert sorted(results) in (["created", "unchanged", "unchanged"], ["replaced", "unchanged", "unchanged"])
        await clients[0].delete_schedule(queue_name)
    finally:
        for client in clients:
            await client.close()


def test_tokens_cover_the_queues_of_schedules(secret_cluster: Cluster) -> None:
    node: NodeProcess = next(iter(secret_cluster))
    admin: Api = Api(node.http)
    secrets = {}
    for name, role, queues in (
        ("root", "admin", ".*"),
        ("w", "write", "^a"),
        ("r", "read", "^a"),
        ("o", "write", "^b"),
    ):
        secrets[name] = admin.ok("POST", "/v1/tokens", {"name": name, "role": role, "queues": queues})["token"]
        admin = TokenApi(admin, secrets["root"])
    root, writer, reader, other = (TokenApi(admin, secrets[name]) for name in ("root", "w", "r", "o"))
    body = {"queue": "a1", "content": "x", "interval": 3_600}
    assert writer.ok("PUT", "/v1/schedules/s", body) == {"result": "created"}
    assert reader.ok("GET", "/v1/schedules/s")["owner"] == "w"
    assert [one["name"] for one in reader.ok("GET", "/v1/schedules")["schedules"]] == ["s"]
    assert other.ok("GET", "/v1/schedules")["schedules"] == []
    for api, method, path, given in (
        (reader, "PUT", "/v1/schedules/s", body),
        (reader, "DELETE", "/v1/schedules/s", None),
        (reader, "POST", "/v1/schedules/s/run", None),
        (other, "GET", "/v1/schedules/s", None),
        (other, "POST", "/v1/schedules/s/run", None),
        (other, "POST", "/v1/schedules/s/pause", None),
        (other, "DELETE", "/v1/schedules/s", None),
        (other, "PUT", "/v1/schedules/s", {**body, "queue": "b1"}),
        (writer, "PUT", "/v1/schedules/t", {**body, "queue": "b1"}),
    ):
        api.problem(api(method, path, given), 403, "forbidden")
    assert root.ok("PUT", "/v1/schedules/s", {**body, "queue": "b1"}) == {"result": "replaced"}
    writer.problem(writer("DELETE", "/v1/schedules/s"), 403, "forbidden")
    assert other("DELETE", "/v1/schedules/s").status == 204
