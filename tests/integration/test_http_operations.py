"""Health, metrics, cluster routes and limits of the HTTP port."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster.wire.limits import MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX

from .cluster import Cluster, NodeProcess, wait_for
from .guarded_node import ADMIN, guarded_node
from .raw_http import Connection, call, open_many, settle
from .test_http_v1 import Api

MiB = 1 << 20
JSON = {"Content-Type": "application/json"}


def test_an_idle_connection_is_kept_for_the_configured_time(tmp_path: Path) -> None:
    """A load balancer reuses connections that were idle for longer than the default of 5 s."""
    with NodeProcess(tmp_path, arguments=("--http-idle-seconds-max=7",)) as node:
        host, port = node.http.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answered_s = time.monotonic()
            while connection.recv(4096):
                pass
        assert time.monotonic() - answered_s >= 6.9


# --- health -----------------------------------------------------------------------------------------------------------


def test_livez(node: NodeProcess) -> None:
    answer = call(node.http, "GET", "/livez")
    assert (answer.status, answer.body) == (200, b"ok\n")
    assert answer["content-type"] == b"text/plain; charset=utf-8"


def test_readyz(node: NodeProcess) -> None:
    assert call(node.http, "GET", "/readyz").body == b"ok\n"
    answer = call(node.http, "GET", "/readyz?verbose")
    lines = answer.body.decode().splitlines()
    assert answer.status == 200
    assert lines[-1] == "ready"
    assert all(re.fullmatch(r"\[\+\][a-z_]+ ok: .+", line) for line in lines[:-1])
    assert any(line.startswith("[+]leader ok") for line in lines)
    excluded = call(node.http, "GET", "/readyz?verbose&exclude=leader").body.decode()
    assert "leader ok" not in excluded


def test_readyz_shows_clients_without_a_token_only_the_failed_check(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_node(tmp_path) as guarded:
            token = await guarded.token("reader", "read")
            stranger = (await guarded.ask("GET", "/readyz?verbose", None))[2].splitlines()
            assert "[+]leader ok" in stranger
            assert not any(":" in line for line in stranger)
            for known in (token, ADMIN):
                assert "[+]leader ok: " in (await guarded.ask("GET", "/readyz?verbose", known))[2]
            assert (await guarded.ask("GET", "/readyz?verbose", "wrong"))[2].splitlines() == stranger

    asyncio.run(main())


def test_browsers_are_redirected_to_the_console(node: NodeProcess) -> None:
    answer = call(node.http, "GET", "/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status, answer["location"]) == (302, b"console/")
    assert call(node.http, "GET", "/").status == 404


def test_metrics(node: NodeProcess, queue_name: str) -> None:
    def pushed() -> float:
        match = re.search(rb"^lmq_messages_pushed_total (\S+)$", call(node.http, "GET", "/metrics").body, re.MULTILINE)
        assert match is not None
        return float(match[1])

    before = pushed()
    call(node.http, "POST", f"/messages/{queue_name}", b"x")
    assert pushed() == before + 1
    assert call(node.http, "GET", "/metrics")["content-type"].startswith(b"text/plain; version=0.0.4")


def test_cluster_of_one(node: NodeProcess) -> None:
    api = Api(node.http)
    cluster = api.ok("GET", "/v1/cluster")
    assert cluster["self"] == cluster["leader"]
    assert (cluster["quorum"], cluster["has_quorum"], len(cluster["nodes"])) == (1, True, 1)
    only = cluster["nodes"][0]
    assert (only["name"], only["http"], only["rpc"], only["state"]) == (node.name, node.http, node.rpc, "leader")


def test_cluster_of_three(shared_cluster: Cluster) -> None:
    leaders = set()
    for process in shared_cluster:
        cluster = Api(process.http).ok("GET", "/v1/cluster")
        leaders.add(cluster["leader"])
        assert cluster["quorum"] == 2
        assert sorted(member["name"] for member in cluster["nodes"]) == ["n1", "n2", "n3"]
        assert {member["http"] for member in cluster["nodes"]} == set(shared_cluster.http_addresses)
        assert sorted(member["state"] for member in cluster["nodes"]) == ["follower", "follower", "leader"]
        assert all(member["connected"] for member in cluster["nodes"])
    assert len(leaders) == 1


@pytest.mark.parametrize(
    "body",
    [
        *("", "{}", "[]", '{"peer":""}', '{"peer":1}', '{"peer":"x","more":1}', '{"peer":"x","discard_data":1}'),
        *('{"discard_data":true}', '{"peer":"%s"}' % ("x" * 301)),
    ],
)
def test_bad_joins(node: NodeProcess, body: str) -> None:
    api = Api(node.http)
    api.problem(api("POST", "/v1/cluster/join", raw=body.encode()), 400, "bad_request")


def test_joining_an_unreachable_peer_changes_nothing(node: NodeProcess, queue_name: str) -> None:
    call(node.http, "POST", f"/messages/{queue_name}", b"kept")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    api = Api(node.http)
    answer = api("POST", "/v1/cluster/join", {"peer": f"127.0.0.1:{port}"})
    api.problem(answer, 503, "unreachable")
    assert int(answer["retry-after"]) > 0
    assert call(node.http, "GET", f"/messages/{queue_name}?t=0").body == b"kept"


def test_join_and_leave(tmp_path: Path) -> None:
    """LMQ specification 12.4: a joining node discards its own data and shows the cluster's; leaving ends that.

    Unlike LMQ's, it does so only if it is allowed to, and a node that has left serves no client until it joins again.
    """
    with NodeProcess(tmp_path, "a") as a, NodeProcess(tmp_path, "b") as b:
        call(a.http, "POST", "/messages/of-a", b"kept")
        call(b.http, "POST", "/messages/of-b", b"thrown away")
        api = Api(b.http)
        api.problem(api("POST", "/v1/cluster/join", {"peer": a.http}), 409, "conflict")
        joined = api.ok("POST", "/v1/cluster/join", {"peer": a.http, "discard_data": True})
        assert sorted(member["name"] for member in joined["nodes"]) == ["a", "b"]
        wait_for(lambda: call(b.http, "GET", "/readyz").status == 200, "b ready in the cluster")
        assert list(call(b.http, "GET", "/stats").json["queues"]) == ["of-a"]
        api.problem(api("POST", "/v1/cluster/join", {"peer": a.http}), 409, "conflict")
        left = api.ok("POST", "/v1/cluster/leave")
        assert [member["name"] for member in left["nodes"]] == ["b"]
        assert call(b.http, "GET", "/readyz").status == 503
        refused = call(b.http, "GET", "/stats")
        assert (refused.status, refused.headers["x-lmq-error"].partition(b":")[0]) == (503, b"left_cluster")
        assert call(a.http, "GET", "/messages/of-a?t=0").body == b"kept"
        assert [member["name"] for member in Api(a.http).ok("GET", "/v1/cluster")["nodes"]] == ["a"]


# --- limits -----------------------------------------------------------------------------------------------------------


def resident_bytes(node: NodeProcess) -> int:
    status = Path(f"/proc/{node.pid}/status").read_text(encoding="ascii")
    match = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024


def test_a_message_over_the_limit_is_413_before_its_body_is_read(node: NodeProcess, queue_name: str) -> None:
    """With Expect the body is not even requested."""
    head = f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MESSAGE_BYTES_MAX + 1}\r\n"
    for expect in ("", "Expect: 100-continue\r\n"):
        with Connection(node.http) as connection:
            connection.send(f"{head}{expect}\r\n".encode())
            answer = connection.read()
            assert (answer.status, answer["connection"], answer.body) == (413, b"close", b"")


def test_a_chunked_message_over_the_limit_is_413_in_bounded_memory(node: NodeProcess, queue_name: str) -> None:
    """Reading stops at the limit; the rest is dropped, not kept."""
    before = resident_bytes(node)
    chunk = b"%x\r\n%b\r\n" % (MiB, b"x" * MiB)
    with Connection(node.http) as connection:
        connection.send(
            f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        sent = 0
        try:
            for _ in range(200):
                connection.send(chunk)
                sent += 1
        except (BrokenPipeError, ConnectionResetError):
            assert sent > MESSAGE_BYTES_MAX // MiB
        else:
            assert connection.read().status == 413
    assert resident_bytes(node) - before < 200 * MiB
    assert call(node.http, "GET", f"/messages/{queue_name}?t=0").status == 204


def test_a_message_at_the_limit_passes(node: NodeProcess, queue_name: str) -> None:
    assert call(node.http, "POST", f"/messages/{queue_name}", b"x" * MESSAGE_BYTES_MAX).status == 200
    answer = call(node.http, "GET", f"/messages/{queue_name}?t=0")
    assert len(answer.body) == MESSAGE_BYTES_MAX
    call(node.http, "DELETE", f"/queues/{queue_name}")


def test_a_batch_over_the_limit_is_413(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    head = f"POST /v1/queues/{queue_name}/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Connection(node.http) as connection:
        connection.send(f"{head}Content-Length: {REQUEST_BYTES_MAX + 1}\r\n\r\n".encode())
        answer = connection.read()
    api.check("POST", f"/v1/queues/{queue_name}/messages", answer)
    api.problem(answer, 413, "too_large")


def test_a_batch_with_one_message_over_the_limit_is_413(node: NodeProcess, queue_name: str) -> None:
    api = Api(node.http)
    messages = [{"content": "good"}, {"content": "x" * (MESSAGE_BYTES_MAX + 1)}]
    answer = api("POST", f"/v1/queues/{queue_name}/messages", {"messages": messages})
    api.problem(answer, 413, "too_large")
    assert "messages[1]" in answer.json["detail"]
    assert api("GET", f"/v1/queues/{queue_name}").status == 404


def test_a_client_that_vanishes_within_its_body_stores_nothing(node: NodeProcess, queue_name: str) -> None:
    with Connection(node.http) as connection:
        connection.send(
            f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf".encode()
        )
        settle(node.http)
    settle(node.http)
    assert call(node.http, "GET", f"/messages/{queue_name}?t=0").status == 204


def test_a_slow_reader_does_not_stop_the_others(node: NodeProcess, queue_name: str) -> None:
    """A client that requests much and reads nothing holds only its own answers."""
    body = b"x" * (8 * MiB)
    for _ in range(4):
        call(node.http, "POST", f"/messages/{queue_name}", body)
    with Connection(node.http) as slow:
        for _ in range(4):
            slow.ask("GET", f"/messages/{queue_name}?t=0")
        settle(node.http)
        assert call(node.http, "POST", f"/messages/{queue_name}-other", b"x").status == 200
        assert [len(slow.read().body) for _ in range(4)] == [len(body)] * 4
    call(node.http, "DELETE", f"/queues/{queue_name}")


def test_several_hundred_connections(node: NodeProcess, queue_name: str) -> None:
    """LMQ specification 13: several hundred connections are normal use."""
    connections = [Connection(node.http) for _ in range(400)]
    try:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue_name}", b"x")
        assert all(connection.read().status == 200 for connection in connections)
    finally:
        for connection in connections:
            connection.close()


# --- stopping, and running without a quorum
# -----------------------------------------------------------------------------


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as process:
        yield process


def test_a_stopping_node_answers_what_is_in_flight(own_node: NodeProcess) -> None:
    """SIGTERM: answer the requests in flight, exit 0; a waiting request ends as if its time were up."""
    with Connection(own_node.http) as pull, Connection(own_node.http) as batch, Connection(own_node.http) as idle:
        assert idle.call("GET", "/livez").status == 200
        pull.ask("GET", "/messages/q")
        batch.ask("POST", "/v1/queues/q/pull", b'{"timeout":null}', JSON)
        settle(own_node.http)
        assert own_node.stop() == 0
        assert pull.read().status == 204
        assert batch.read().json == {"messages": []}
        assert idle.rest() == b""


def test_without_a_quorum_a_node_is_live_but_not_ready(cluster: Cluster) -> None:
    """No leader: 503 with Retry-After and a clear error; overviews still work; LMQ's routes: 503, empty."""
    survivor = cluster.leader()
    for process in cluster:
        if process is not survivor:
            process.kill()
    wait_for(lambda: call(survivor.http, "GET", "/readyz").status == 503, "the loss of the quorum noticed")
    api = Api(survivor.http)
    requests: list[tuple[str, str, bytes | None]] = [
        ("POST", "/v1/queues/q/messages", b'{"messages":[{"content":"m"}]}'),
        ("GET", "/v1/queues/q/properties", None),
        ("POST", "/messages/q", b"m"),
        ("GET", "/messages/q?t=0", None),
        ("GET", "/properties/q", None),
        ("PATCH", "/properties/q", b"{}"),
    ]
    with open_many([survivor.http] * len(requests)) as connections:
        for connection, (method, target, body) in zip(connections, requests, strict=True):
            connection.ask(method, target, body, JSON)
        assert call(survivor.http, "GET", "/livez").status == 200
        assert b"[-]leader failed" in call(survivor.http, "GET", "/readyz").body
        assert not api.ok("GET", "/v1/cluster")["has_quorum"]
        assert call(survivor.http, "GET", "/stats").json["active_nodes"] == [survivor.name]
        listed = call(survivor.http, "GET", "/v1/queues")
        assert (listed.json["queues"], listed.json["stale"], listed["x-lmq-stale"]) == ([], True, b"true")
        assert call(survivor.http, "GET", "/stats")["x-lmq-stale"] == b"true"
        for path in ("/v1/queues/q", "/v1/queues/q/messages", "/v1/queues/q/stats", "/v1/queues/q/move-tasks"):
            api.problem(call(survivor.http, "GET", path), 503, "no_leader")
        for connection, (method, target, _body) in zip(connections, requests, strict=True):
            answer = connection.read()
            assert (answer.status, answer["retry-after"]) == (503, b"1"), target
            if target.startswith("/v1"):
                api.check(method, target, answer)
                api.problem(answer, 503, "no_leader")
                assert answer.json["retryable"]
            else:
                assert answer.body == b""
