"""Pushes that repeat the head of an earlier one: the node checks what may have changed since."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, fetch
from .raw_http import Connection, call

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def lone() -> Iterator[NodeProcess]:
    with Cluster(1) as cluster:
        yield cluster[0]


def push(connection: Connection, queue: str, count: int = 4) -> None:
    """Push until the connection repeats its pushes."""
    for number in range(count):
        assert connection.call("POST", f"/messages/{queue}", b"early %d" % number, TEXT).status == 200


def test_all_pushes_are_answered_and_stored_alike(node: NodeProcess, queue_name: str) -> None:
    bodies = [b"x" * size for size in (0, 1, 9, 10, 1_000, 15_000, 17_000, 100_000, 3)]
    with Connection(node.http) as connection:
        answers = [connection.call("POST", f"/messages/{queue_name}", body, TEXT) for body in bodies]
    assert {(one.status, tuple(one.lines), one.body) for one in answers} == {
        (200, tuple(answers[0].lines), b'{"accum":"no"}')
    }
    with Client(node.rpc) as client:
        for body in bodies:
            message = client.pull(queue_name)
            assert message is not None
            assert (message.content, message.content_type) == (body, "text/plain")
            message.ack()


def test_they_count_in_the_metrics(node: NodeProcess, queue_name: str) -> None:
    def counted() -> int:
        page = fetch(node.http, "/metrics")[1].decode()
        line = 'lmq_request_duration_seconds_count{protocol="http",operation="POST /messages/{name}",code="200"}'
        found = re.search(rf"^{re.escape(line)} (\d+)", page, re.MULTILINE)
        return int(found[1]) if found else 0

    before = counted()
    with Connection(node.http) as connection:
        push(connection, queue_name, 20)
    assert counted() == before + 20


def test_pipelined_pushes_keep_their_order(node: NodeProcess, queue_name: str) -> None:
    with Connection(node.http) as connection:
        push(connection, queue_name, 3)
        for number in range(200):
            connection.ask("POST", f"/messages/{queue_name}", b"%d" % number, TEXT)
        for _ in range(200):
            assert connection.read().status == 200
    with Client(node.rpc) as client:
        found = [one.content for one in client.pull_many(queue_name, 300)]
    assert found[3:] == [b"%d" % number for number in range(200)]


def test_a_body_that_looks_like_a_request(node: NodeProcess, queue_name: str) -> None:
    body = f"POST /messages/{queue_name}-other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".encode()
    with Connection(node.http) as connection:
        push(connection, queue_name, 3)
        assert connection.call("POST", f"/messages/{queue_name}", body, TEXT).status == 200
        assert connection.is_silent(0.1)
    with Client(node.rpc) as client:
        assert [one.content for one in client.pull_many(queue_name, 9)][3:] == [body]


def test_another_request_on_the_same_connection(node: NodeProcess, queue_name: str) -> None:
    with Connection(node.http) as connection:
        push(connection, queue_name)
        assert connection.call("GET", "/livez").status == 200
        assert connection.call("POST", f"/messages/{queue_name}?sequence=true", b"x", TEXT)["x-lmq-message-sequence"]
        assert connection.call("POST", f"/messages/{queue_name}", b"x", {"Content-Type": "text/html"}).status == 200
        assert connection.call("POST", f"/messages/{queue_name}", b"x", {"Origin": "http://evil.test"}).status == 403
        push(connection, queue_name, 2)


def test_a_hook_that_is_set_later(node: NodeProcess, queue_name: str) -> None:
    hooks = '{"hooks": {"pre_http_push": [["lmq_hook_preserve_header", ["x-foo"]]]}}'
    headers = {"X-Foo": "kept"}
    with Connection(node.http) as connection:
        for _ in range(3):
            assert connection.call("POST", f"/messages/{queue_name}", b"x", headers).status == 200
        assert call(node.http, "PATCH", f"/properties/{queue_name}", hooks.encode(), JSON).status == 204
        assert connection.call("POST", f"/messages/{queue_name}", b"x", headers).status == 200
        for expected in (None, None, None, b"kept"):
            assert connection.call("GET", f"/messages/{queue_name}?t=0").headers.get("x-foo") == expected
        assert call(node.http, "DELETE", f"/properties/{queue_name}").status == 204


def test_a_full_queue_refuses_and_has_room_again(node: NodeProcess, queue_name: str) -> None:
    with Connection(node.http) as connection, Client(node.rpc) as client:
        push(connection, queue_name, 3)
        client.update_props(queue_name, {"max_items": 3})
        refused = connection.call("POST", f"/messages/{queue_name}", b"x", TEXT)
        assert refused["x-lmq-error"].startswith(b"full: ")
        client.purge(queue_name)
        push(connection, queue_name, 2)


def make_token(node: NodeProcess, name: str, role: str, admin: str = "") -> str:
    headers = JSON | ({"Authorization": f"Bearer {admin}"} if admin else {})
    answer = call(node.http, "POST", "/v1/tokens", json.dumps({"name": name, "role": role}).encode(), headers)
    assert answer.status == 200, answer
    return str(answer.json["token"])


def test_rights_that_end(lone: NodeProcess) -> None:
    """The first token ends the rights of clients without one, and a token that is deleted has none."""
    with Connection(lone.http) as without, Connection(lone.http) as known:
        push(without, "q")
        admin = make_token(lone, "admin", "admin")
        assert without.call("POST", "/messages/q", b"x", TEXT).status == 401
        writer = TEXT | {"Authorization": f"Bearer {make_token(lone, 'writer', 'write', admin)}"}
        for _ in range(4):
            assert known.call("POST", "/messages/q", b"x", writer).status == 200
        owner = {"Authorization": f"Bearer {admin}"}
        assert call(lone.http, "DELETE", "/v1/tokens/writer", headers=owner).status == 204
        assert known.call("POST", "/messages/q", b"x", writer).status == 401
        assert known.call("POST", "/messages/q", b"x", TEXT | owner).status == 200
