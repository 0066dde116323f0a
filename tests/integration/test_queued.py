"""The port for queued's clients, route by route, in both formats."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .queued_http import QueuedHttp


@pytest.fixture(params=["json", "msgpack"])
def api(request: pytest.FixtureRequest, node: NodeProcess) -> QueuedHttp:
    return QueuedHttp(node.queued, request.param)


@pytest.fixture
def queue(api: QueuedHttp, queue_name: str) -> str:
    assert api("PUT", f"/queue/{queue_name}").status == 200
    return queue_name


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


# --- queues -----------------------------------------------------------------------------------------------------------


def test_a_queue_is_created_once_listed_and_deleted(api: QueuedHttp, queue_name: str) -> None:
    made = api("PUT", f"/queue/{queue_name}", b"whatever this is")
    assert made.status == 200
    assert made.value == ({} if api.media == "json" else None)
    again = api("PUT", f"/queue/{queue_name}")
    assert (again.status, again.value) == (409, {"error": "QueueAlreadyExists", "error_details": None})
    assert {"name": queue_name} in api.ok("GET", "/queues")["queues"]
    assert api("DELETE", f"/queue/{queue_name}").status == 200
    gone = api("DELETE", f"/queue/{queue_name}")
    assert (gone.status, gone.value["error"]) == (404, "NotFound")
    assert {"name": queue_name} not in api.ok("GET", "/queues")["queues"]


@pytest.mark.parametrize("verb", ["push", "poll", "update", "delete"])
def test_no_other_request_creates_a_queue(api: QueuedHttp, queue_name: str, verb: str) -> None:
    body = {"messages": [], "visibility_timeout_secs": 1, "id": 1, "poll_tag": 0}
    answer = api("POST", f"/queue/{queue_name}/messages/{verb}", body)
    assert (answer.status, answer.value["error"]) == (404, "QueueNotFound")
    assert api("GET", f"/queue/{queue_name}/metrics").status == 404


@pytest.mark.parametrize("name", ["%2E", "..%2Fx", "a%2Fb", "a%00b", "x" * 256, "%zz"])
def test_names_that_are_refused(api: QueuedHttp, name: str) -> None:
    answer = api("PUT", f"/queue/{name}")
    assert answer.status == 400
    assert answer.body


@pytest.mark.parametrize("name", ["a+b%20c", "%C3%A9.t%C3%A9", "%25", "x" * 255])
def test_names_that_are_allowed(api: QueuedHttp, name: str) -> None:
    assert api("PUT", f"/queue/{name}").status == 200
    assert api.push(name, "x")
    assert api("DELETE", f"/queue/{name}").status == 200


# --- messages ---------------------------------------------------------------------------------------------------------


def test_push_poll_delete(api: QueuedHttp, queue: str) -> None:
    ids = api.push(queue, "one", "two", "")
    assert ids == [ids[0], ids[0] + 1, ids[0] + 2]
    polled = api.poll(queue, details=True)
    assert [text(one["contents"]) for one in polled] == ["one", "two", ""]
    assert [one["id"] for one in polled] == ids
    assert all(one["poll_count"] == 1 and one["created"].endswith("Z") for one in polled)
    assert api.poll(queue) == []
    assert api.delete(queue, *polled) == {}
    assert api.ok("GET", f"/queue/{queue}/metrics", Accept=f"application/{api.media}")["message_counter"] == 0


def test_a_single_message_has_an_id_and_count_is_one(api: QueuedHttp, queue: str) -> None:
    body = {"messages": [{"contents": "x", "visibility_timeout_secs": 0, "unknown": 1}]}
    pushed = api.ok("POST", f"/queue/{queue}/messages/push", body)
    assert pushed["ids"]
    api.push(queue, "y")
    polled = api.ok("POST", f"/queue/{queue}/messages/poll", {"visibility_timeout_secs": 9})["messages"]
    assert [text(one["contents"]) for one in polled] == ["x"]
    assert api.poll(queue, count=0) == []
    assert len(api.poll(queue, count=(1 << 63))) == 1


@pytest.mark.parametrize("details", [True, False, None])
def test_both_formats_have_the_same_members_with_and_without_details(
    api: QueuedHttp, queue: str, details: bool | None
) -> None:
    # queued's JavaScript client, which speaks MessagePack, refuses members that its server does not send.
    is_detailed = api.media == "json" if details is None else details
    message = {"contents": "x", "visibility_timeout_secs": 0}
    pushed = api.ok("POST", f"/queue/{queue}/messages/push", {"messages": [message], "details": details})
    assert pushed == {"ids": pushed["ids"], **({"id": pushed["ids"][0]} if is_detailed else {})}
    (polled,) = api.poll(queue, details=details)
    more = {"created", "poll_count"} if is_detailed else set()
    assert polled.keys() == {"contents", "id", "poll_tag"} | more
    assert polled["id"] == pushed["ids"][0]


def test_binary_contents(node: NodeProcess, queue_name: str) -> None:
    packed, plain = QueuedHttp(node.queued, "msgpack"), QueuedHttp(node.queued)
    packed("PUT", f"/queue/{queue_name}")
    packed.push(queue_name, b"\xff\x00")
    (polled,) = plain.poll(queue_name, hide=0)
    assert polled["contents_base64"] == "/wA="
    assert "contents" not in polled
    body = {"messages": [{"contents_base64": "/wA=", "visibility_timeout_secs": 0}]}
    plain.ok("POST", f"/queue/{queue_name}/messages/push", body)
    assert [one["contents"] for one in packed.poll(queue_name)] == [b"\xff\x00"] * 2


def test_tags_fence_and_late_consumers_are_accepted(api: QueuedHttp, queue: str) -> None:
    (identifier,) = api.push(queue, "x")
    (first,) = api.poll(queue, hide=0)
    (second,) = api.poll(queue, hide=0)
    assert first["poll_tag"] != second["poll_tag"]
    path = f"/queue/{queue}/messages/update"
    stale = api("POST", path, {"id": identifier, "poll_tag": first["poll_tag"], "visibility_timeout_secs": 5})
    assert (stale.status, stale.value["error"]) == (404, "MessageNotFound")
    # The second lease has expired, but no other client has polled.
    late = api.ok("POST", path, {"id": identifier, "poll_tag": second["poll_tag"], "visibility_timeout_secs": 60})
    assert api.poll(queue) == []
    assert api.delete(queue, second, report_skipped=True) == {
        "skipped": [{"id": identifier, "poll_tag": second["poll_tag"]}]
    }
    third = {"id": identifier, "poll_tag": late["new_poll_tag"]}
    assert api.delete(queue, third, third, report_skipped=True) == {"skipped": [third]}


def test_tag_0_cancels_and_delays_messages_never_polled(api: QueuedHttp, queue: str) -> None:
    cancelled, put_off = api.push(queue, "cancelled", "put off", delay=60)
    path = f"/queue/{queue}/messages/update"
    api.ok("POST", path, {"id": put_off, "poll_tag": 0, "visibility_timeout_secs": 0})
    api.delete(queue, {"id": cancelled, "poll_tag": 0})
    assert [text(one["contents"]) for one in api.poll(queue, ignore_existing_visibility_timeouts=True)] == ["put off"]


def test_hidden_messages_can_be_polled_on_request(api: QueuedHttp, queue: str) -> None:
    api.push(queue, "later", delay=600)
    api.push(queue, "sooner", delay=60)
    assert api.poll(queue) == []
    polled = api.poll(queue, hide=1000, ignore_existing_visibility_timeouts=True)
    assert [text(one["contents"]) for one in polled] == ["sooner", "later"]


def test_a_push_with_a_key_can_be_repeated(api: QueuedHttp, queue: str) -> None:
    body = {"messages": [{"contents": one, "visibility_timeout_secs": 0} for one in "ab"]}
    path = f"/queue/{queue}/messages/push"
    first = api.ok("POST", path, body, Idempotency_Key="k1")
    assert api.ok("POST", path, body, Idempotency_Key="k1") == first
    assert len(api.poll(queue)) == 2


def test_messages_of_lmq_can_be_polled_and_the_other_way_round(
    api: QueuedHttp, node: NodeProcess, queue_name: str
) -> None:
    lmq = f"/v1/queues/{queue_name}"
    native = QueuedHttp(node.http)
    assert native("POST", f"{lmq}/messages", {"messages": [{"content": "from lmq"}]}).status in (200, 201)
    (polled,) = api.poll(queue_name)
    assert text(polled["contents"]) == "from lmq"
    api.delete(queue_name, polled)
    with Client(node.rpc) as client:
        client.push(queue_name, "from rpc")
    (polled,) = api.poll(queue_name)
    assert text(polled["contents"]) == "from rpc"
    api.delete(queue_name, polled)
    api.push(queue_name, "from queued")
    (pulled,) = native.ok("POST", f"{lmq}/pull", {"max": 5})["messages"]
    assert pulled["content"] == "from queued"
    assert native.ok("POST", f"{lmq}/ack", {"ids": [pulled["id"]]})["results"] == [True]


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_poll_can_wait(api: QueuedHttp, queue: str) -> None:
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(api.poll(queue, wait_secs=60)))
    waiting.start()
    api.push(queue, "x")
    waiting.join(60)
    assert [text(one["contents"]) for one in got] == ["x"]
    assert api.poll(queue, wait_secs=0.05) == []


# --- limits -----------------------------------------------------------------------------------------------------------


def test_one_kind_of_requests_is_suspended(api: QueuedHttp, queue: str) -> None:
    path = f"/queue/{queue}/suspend"
    off = {"delete": False, "poll": False, "push": False, "update": False}
    assert api.ok("GET", path) == off
    assert api.ok("POST", path, {"push": True, "poll": None}) == {**off, "push": True}
    body = {"messages": [{"contents": "x", "visibility_timeout_secs": 0}]}
    refused = api("POST", f"/queue/{queue}/messages/push", body)
    assert (refused.status, refused.value["error"]) == (503, "Suspended")
    assert api.poll(queue) == []
    assert api.ok("POST", path, {"push": False}) == off
    api.push(queue, "x")
    assert api("POST", path, {"push": 1}).status == 400


def test_polls_are_throttled_exactly(api: QueuedHttp, queue: str) -> None:
    path = f"/queue/{queue}/throttle"
    setting = {"throttle": {"max_polls_per_time_window": 3, "time_window_sec": 1 << 30}}
    assert api.ok("GET", path) == {"throttle": None}
    assert api.ok("POST", path, setting) == setting
    assert api.ok("GET", path) == setting
    body = {"count": 1, "visibility_timeout_secs": 1}
    answers = [api("POST", f"/queue/{queue}/messages/poll", body) for _ in range(5)]
    assert [one.status for one in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].value["error"] == "Throttled"
    for wrong in (0, -1):
        bad = {"throttle": {"max_polls_per_time_window": 3, "time_window_sec": wrong}}
        assert api("POST", path, bad).status == 400
    assert api.ok("POST", path, {"throttle": None}) == {"throttle": None}
    assert api.poll(queue) == []


# --- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negative", ["poll again", "update to 0", "time over"])
def test_a_message_polled_too_often_becomes_a_dead_letter(
    api: QueuedHttp, node: NodeProcess, queue: str, negative: str
) -> None:
    native, dead = QueuedHttp(node.http), f"{queue}-dead"
    properties = {"retry": 1, "dead_letter_queue": dead}
    assert native("PATCH", f"/v1/queues/{queue}/properties", properties).status in (200, 204)
    assert api("PUT", f"/queue/{dead}").status == 200
    (identifier,) = api.push(queue, "poison")
    hide = {"poll again": 0, "update to 0": 60, "time over": 1}[negative]
    tags = set()
    for delivery in (1, 2):
        (polled,) = api.poll(queue, hide=hide, wait_secs=30, details=True)
        assert (polled["id"], polled["poll_count"]) == (identifier, delivery)
        tags.add(polled["poll_tag"])
        if negative == "update to 0":
            body = {"id": identifier, "poll_tag": polled["poll_tag"], "visibility_timeout_secs": 0}
            api.ok("POST", f"/queue/{queue}/messages/update", body)
    assert len(tags) == 2
    assert api.poll(queue, hide=hide, wait_secs=1.5) == []
    (letter,) = api.poll(dead, wait_secs=30)
    assert text(letter["contents"]) == "poison"
    named = {"id": identifier, "poll_tag": polled["poll_tag"]}
    assert api.delete(queue, named, report_skipped=True) == {"skipped": [named]}
    # A dead letter can be polled and deleted like any message, or redriven.
    body = {"id": letter["id"], "poll_tag": letter["poll_tag"], "visibility_timeout_secs": 0}
    api.ok("POST", f"/queue/{dead}/messages/update", body)
    assert native("POST", f"/v1/queues/{dead}/redrive", {}).status == 200
    (back,) = api.poll(queue, wait_secs=30)
    assert api.delete(queue, back, report_skipped=True) == {"skipped": []}


# --- figures ----------------------------------------------------------------------------------------------------------


def test_metrics_of_a_queue_in_three_formats(api: QueuedHttp, queue: str) -> None:
    first, _ = api.push(queue, "a", "b", delay=100)
    api.poll(queue)
    api.delete(queue, {"id": first, "poll_tag": 7})
    path = f"/queue/{queue}/metrics"
    shown = api.ok("GET", path, Accept=f"application/{api.media}")
    assert shown["message_counter"] == 2
    assert shown["successful_push_counter"] == 2
    assert shown["empty_poll_counter"] == 1
    assert shown["missing_delete_counter"] == 1
    assert 50 < shown["first_message_visibility_timeout_sec_gauge"] <= 100
    plain = api("GET", path, Accept="*/*")
    assert plain.headers["content-type"].startswith("text/plain")
    lines = dict(line.split(" ") for line in plain.body.decode().splitlines())
    assert lines.keys() == shown.keys()
    assert lines["message_counter"] == "2"


def test_health_and_unknown_paths(api: QueuedHttp) -> None:
    assert api.ok("GET", "/healthz")["version"]
    missing = api("GET", "/nothing/here")
    assert (missing.status, missing.body) == (404, b"")
    assert api("POST", "/queues").status == 405
    assert api("GET", "/api-keys").status == 404


# --- malformed input --------------------------------------------------------------------------------------------------

BAD = [
    ("push", {}),
    ("push", {"messages": {}}),
    ("push", {"messages": [{"contents": "x"}]}),
    ("push", {"messages": [{"visibility_timeout_secs": 0}]}),
    ("push", {"messages": [{"contents": "x", "visibility_timeout_secs": -1}]}),
    ("push", {"messages": [{"contents": "x", "visibility_timeout_secs": 1 << 32}]}),
    (
        "push",
        {"messages": [{"contents": "x", "visibility_timeout_secs": 0}, {"contents": 5, "visibility_timeout_secs": 0}]},
    ),
    ("poll", {"count": 1}),
    ("poll", {"count": -1, "visibility_timeout_secs": 0}),
    ("poll", {"count": True, "visibility_timeout_secs": 0}),
    ("poll", {"count": 1, "visibility_timeout_secs": 1.5}),
    ("poll", {"count": 1, "visibility_timeout_secs": 1, "wait_secs": -1}),
    ("poll", {"count": 1, "visibility_timeout_secs": 1, "ignore_existing_visibility_timeouts": 1}),
    ("update", {"id": -1, "poll_tag": 0, "visibility_timeout_secs": 0}),
    ("update", {"id": 1, "poll_tag": 1 << 32, "visibility_timeout_secs": 0}),
    ("delete", {"messages": [{"id": 1}]}),
    ("delete", {"messages": [7]}),
    ("delete", []),
]


@pytest.mark.parametrize(("verb", "body"), BAD)
def test_malformed_requests_store_nothing(api: QueuedHttp, queue: str, verb: str, body: Any) -> None:
    answer = api("POST", f"/queue/{queue}/messages/{verb}", body)
    assert answer.status == 400
    assert answer.body
    assert api.poll(queue, ignore_existing_visibility_timeouts=True) == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xc1", b"\xff" * 100, b"[" * 100_000])
def test_bodies_that_cannot_be_decoded(api: QueuedHttp, queue: str, body: bytes) -> None:
    answer = api("POST", f"/queue/{queue}/messages/poll", body)
    assert answer.status == 400
    assert answer.body


def test_too_many_values_and_too_many_messages(api: QueuedHttp, queue: str) -> None:
    many = {"messages": [{"contents": "", "visibility_timeout_secs": 0}] * 10_001}
    assert api("POST", f"/queue/{queue}/messages/push", many).status == 413
    assert api("POST", f"/queue/{queue}/messages/delete", {"messages": [0] * 300_000}).status == 413


def test_pages_of_browsers_are_refused(api: QueuedHttp, queue: str) -> None:
    assert api("PUT", f"/queue/{queue}-2", Origin="http://evil.example").status in (401, 403)
    assert api("PUT", f"/queue/{queue}-2", Host="evil.example").status in (401, 421)


# --- several nodes ----------------------------------------------------------------------------------------------------


def test_every_node_shows_the_same(shared_cluster: Cluster, new_queue_name: Callable[[], str]) -> None:
    apis = [QueuedHttp(node.queued, "msgpack") for node in shared_cluster]
    queue = new_queue_name()
    assert apis[0]("PUT", f"/queue/{queue}").status == 200
    for round_ in range(10):
        writer, reader = apis[round_ % 3], apis[(round_ + 1) % 3]
        writer.push(queue, b"%d" % round_)
        (polled,) = reader.poll(queue)
        assert polled["contents"] == b"%d" % round_
        apis[(round_ + 2) % 3].delete(queue, polled)
        assert {"name": queue} in reader.ok("GET", "/queues")["queues"]


KEY = "a/key of sixteen bytes"
KEY_PATH = "a%2Fkey%20of%20sixteen%20bytes"


def test_keys_and_tokens(secret_cluster: Cluster) -> None:
    first, second, _ = secret_cluster.nodes
    open_api = QueuedHttp(first.queued)
    assert open_api("PUT", "/queue/orders-1").status == 200
    secret = QueuedHttp(first.http)("POST", "/v1/tokens", {"name": "boss", "role": "admin"}).value["token"]
    admin = QueuedHttp(first.queued, headers={"Authorization": secret})
    wait_for(lambda: open_api("GET", "/queues").status == 401, "a token is needed")
    assert open_api("GET", "/healthz").status == 200
    assert admin("PUT", f"/api-key/{KEY_PATH}", {"prefix": "orders-"}).status == 200
    listed = {"keys": [{"key": f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}", "prefix": "orders-"}]}
    assert admin.ok("GET", "/api-keys") == listed
    for short in ("k", "123456789012345"):
        refused = admin("PUT", f"/api-key/{short}", {"prefix": "orders-"})
        assert (refused.status, refused.value["error"]) == (400, "BadRequest")
    holder = QueuedHttp(second.queued, headers={"Authorization": KEY})
    wait_for(lambda: holder("GET", "/queue/orders-1/suspend").status == 200, "the key is known everywhere")
    holder.push("orders-1", "x")
    assert len(holder.poll("orders-1")) == 1
    for method, path in (
        ("GET", "/queues"),
        ("GET", "/metrics"),
        ("POST", "/suspend"),
        ("PUT", "/queue/orders-2"),
        ("DELETE", "/queue/orders-1"),
        ("GET", "/api-keys"),
        ("DELETE", f"/api-key/{KEY_PATH}"),
        ("GET", "/queue/unknown/metrics"),
    ):
        assert holder(method, path).status == 401, path
    assert QueuedHttp(second.http, headers={"Authorization": f"Bearer {KEY}"})("GET", "/v1/queues").status == 401
    assert admin("DELETE", f"/api-key/{KEY_PATH}").status == 200
    wait_for(lambda: holder("GET", "/queue/orders-1/suspend").status == 401, "the key is refused")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[NodeProcess, QueuedHttp]]:
    """A node that logs requests and has a queue and one API key; and its administrator."""
    secret = "the administrator's token"
    token_file = tmp_path / "admin-token"
    token_file.write_text(secret)
    with NodeProcess(tmp_path, arguments=[f"--admin-token-file={token_file}", "--request-log=on"]) as node:
        admin = QueuedHttp(node.queued, headers={"Authorization": secret})
        wait_for(lambda: admin("PUT", "/queue/orders-1").status in (200, 409), "the first queue")
        assert admin("PUT", f"/api-key/{KEY_PATH}", {"prefix": "orders-"}).status == 200
        yield node, admin


@pytest.mark.parametrize("change", ["delete", "other prefix"])
def test_a_poll_ends_with_its_key(guarded: tuple[NodeProcess, QueuedHttp], change: str) -> None:
    node, admin = guarded
    holder = QueuedHttp(node.queued, headers={"Authorization": KEY})
    answers: list[Any] = []
    body = {"count": 1, "visibility_timeout_secs": 60, "wait_secs": 3600}
    waiting = threading.Thread(
        target=lambda: answers.append(holder("POST", "/queue/orders-1/messages/poll", body)), daemon=True
    )
    waiting.start()
    api = QueuedHttp(node.http, headers={"Authorization": f"Bearer {admin.headers['Authorization']}"})
    wait_for(lambda: api.ok("GET", "/v1/consumers")["total"] == 1, "a poll that waits")
    if change == "delete":
        assert admin("DELETE", f"/api-key/{KEY_PATH}").status == 200
    else:
        assert admin("PUT", f"/api-key/{KEY_PATH}", {"prefix": "other-"}).status == 200
    admin.push("orders-1", "not for it any more")
    waiting.join(60)
    assert [answer.value for answer in answers] == [{"messages": []}]
    assert len(admin.poll("orders-1")) == 1


def test_keys_are_kept_and_logged_nowhere(guarded: tuple[NodeProcess, QueuedHttp]) -> None:
    node, admin = guarded
    holder = QueuedHttp(node.queued, headers={"Authorization": KEY})
    holder.push("orders-1", "x")
    for path in (
        f"/api-key/{KEY_PATH}/x",
        f"/API-key/{KEY_PATH}",
        f"/api%2Dkey/{KEY_PATH}",
        f"/api-keys/{KEY_PATH}?x=1",
    ):
        admin("DELETE", path)
    assert QueuedHttp(node.http, headers={"Authorization": f"Bearer {KEY}"})("GET", "/v1/queues").status == 401
    api = QueuedHttp(node.http, headers={"Authorization": f"Bearer {admin.headers['Authorization']}"})
    assert api("POST", "/v1/snapshots").status in (200, 201, 202)
    wait_for(lambda: '"/api-key/..."' in node.log(), "the request is logged")
    log = node.log()
    assert '"/queue/orders-1/messages/push"' in log
    files = [file.read_bytes() for file in node.data_dir.rglob("*") if file.is_file()]
    assert files
    for secret in (KEY, KEY_PATH, KEY[2:]):
        assert secret not in log
        assert not any(secret.encode() in content for content in files)


def test_keys_cannot_be_guessed_by_trying(guarded: tuple[NodeProcess, QueuedHttp]) -> None:
    node, _admin = guarded
    with contextlib.closing(http.client.HTTPConnection(node.queued, timeout=60)) as connection:
        codes = []
        for number in range(300):
            connection.request(
                "GET", "/queue/orders-1/metrics", headers={"Authorization": f"a guess of the key {number}"}
            )
            answer = connection.getresponse()
            answer.read()
            codes.append(answer.status)
            if answer.status == 429:
                break
    assert codes == [401] * (len(codes) - 1) + [429]
    assert answer.headers["Retry-After"] == "1"


def entries(node: NodeProcess) -> int:
    return int(node.get_json("/v1/cluster")["commit_index"])


def test_an_empty_poll_costs_no_log_entry(shared_cluster: Cluster, new_queue_name: Callable[[], str]) -> None:
    apis = [QueuedHttp(node.queued, "msgpack") for node in shared_cluster]
    queue = new_queue_name()
    apis[0]("PUT", f"/queue/{queue}")
    before = entries(shared_cluster[0])
    for _ in range(50):
        for api in apis:
            assert api.poll(queue) == []
    # The nodes write a few entries themselves.
    assert entries(shared_cluster[0]) - before < 75
    apis[0].push(queue, b"x")
    assert len(apis[1].poll(queue)) == 1
    shown = [api.ok("GET", f"/queue/{queue}/metrics", Accept="application/msgpack") for api in apis]
    assert sum(one["empty_poll_counter"] for one in shown) >= 150


def test_a_push_wakes_one_of_a_thousand_waiting_polls(node: NodeProcess, queue_name: str) -> None:
    api = QueuedHttp(node.queued, "msgpack")
    api("PUT", f"/queue/{queue_name}")
    body = msgpack.packb({"count": 1, "visibility_timeout_secs": 60, "wait_secs": 600})
    head = (
        f"POST /queue/{queue_name}/messages/poll HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
    )
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    host, _, port = node.queued.partition(":")
    others = waiting(node)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(1000)]
        for client in clients:
            client.sendall(request)
        wait_for(lambda: waiting(node) - others == 1000, "a thousand polls wait")
        before = entries(node)
        selector = stack.enter_context(selectors.DefaultSelector())
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        api.push(queue_name, b"x")
        ((answered, _),) = selector.select(60)
        assert b"200 OK" in answered.fileobj.recv(4096)
        assert waiting(node) - others == 999
        assert entries(node) - before < 20


def waiting(node: NodeProcess) -> int:
    nodes = node.get_json("/v1/overview")["cluster"]["nodes"]
    return int(nodes[0]["vitals"]["waiting_pulls"])


# --- all queues together ----------------------------------------------------------------------------------------------


def test_limits_of_all_queues_hold_besides_those_of_each_and_survive_a_restart_as_keys_do(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        api = QueuedHttp(node.queued, "msgpack")
        for name in ("a", "b", "keyed"):
            api("PUT", f"/queue/{name}")
        keyed = {"messages": [{"contents": "once", "visibility_timeout_secs": 0}]}
        stored = api.ok("POST", "/queue/keyed/messages/push", keyed, Idempotency_Key="k")
        setting = {"throttle": {"max_polls_per_time_window": 3, "time_window_sec": 1 << 30}}
        assert api.ok("POST", "/throttle", setting) == setting
        switches = api.ok("POST", "/suspend", {"push": True})
        assert (switches["push"], switches["delete"]) == (True, False)
        # Each route returns only its own settings.
        assert api.ok("GET", "/queue/a/throttle") == {"throttle": None}
        assert not any(api.ok("GET", "/queue/a/suspend").values())
        api.ok("POST", "/queue/a/suspend", {"delete": True})
        node.restart()
        api = QueuedHttp(node.queued, "msgpack")
        wait_for(lambda: api("GET", "/throttle").status == 200, "the node serves")
        assert api.ok("GET", "/throttle") == setting
        assert api.ok("GET", "/suspend") == switches
        body = {"messages": [{"contents": "x", "visibility_timeout_secs": 0}]}
        assert [api("POST", f"/queue/{name}/messages/push", body).status for name in ("a", "b")] == [503, 503]
        pairs = {"messages": [{"id": 1, "poll_tag": 0}]}
        assert [api("POST", f"/queue/{name}/messages/delete", pairs).status for name in ("a", "b")] == [503, 200]
        poll = {"count": 1, "visibility_timeout_secs": 1}
        # Polls of all queues count together.
        assert [api("POST", f"/queue/{name}/messages/poll", poll).status for name in "abab"] == [200, 200, 200, 429]
        api.ok("POST", "/suspend", {"push": False})
        assert api.ok("POST", "/queue/keyed/messages/push", keyed, Idempotency_Key="k") == stored
        assert node.get_json("/v1/queues/keyed")["size"] == 1


def test_a_client_that_disconnects_leaves_nothing_half_done(node: NodeProcess, queue_name: str) -> None:
    api = QueuedHttp(node.queued, "msgpack")
    api("PUT", f"/queue/{queue_name}")
    host, _, port = node.queued.partition(":")

    def begin(verb: str, value: Any, *, cut: int) -> socket.socket:
        """Send a request without its last bytes."""
        body = msgpack.packb(value)
        head = f"POST /queue/{queue_name}/messages/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
        client = socket.create_connection((host, int(port)), timeout=60)
        client.sendall((f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)[: -cut or None])
        return client

    begin("push", {"messages": [{"contents": b"x" * 100, "visibility_timeout_secs": 0}] * 9}, cut=50).close()
    (identifier,) = api.push(queue_name, b"kept")
    for _ in range(5):
        begin("poll", {"count": 1, "visibility_timeout_secs": 1}, cut=0).close()
    # Polled or not, the message is delivered again, and it is the only one.
    (polled,) = api.poll(queue_name, 10, 60, wait_secs=60)
    assert polled["id"] == identifier
    assert api.delete(queue_name, polled, report_skipped=True) == {"skipped": []}
    figures = api.ok("GET", f"/queue/{queue_name}/metrics", Accept="application/msgpack")
    assert (figures["message_counter"], figures["successful_push_counter"]) == (0, 1)
