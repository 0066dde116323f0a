"""LMQ, specification 11: MessagePack-RPC and HTTP act on the same queues."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import msgpack
import pytest

from .cluster import NodeProcess
from .raw_rpc import OLD_TYPES_ONLY, Rpc, old, request, types_of

MSGPACK = "application/x-msgpack"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Http:
    """LMQ's HTTP interface over the standard library's client."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body, named)
        response = self._connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())

    def push(self, queue: str, body: bytes, content_type: str | None = None) -> Any:
        headers = {} if content_type is None else {"content_type": content_type}
        answer = self.call("POST", f"/messages/{queue}", body, **headers)
        assert answer.status == 200
        return json.loads(answer.body)["accum"]

    def pull(self, queue: str, query: str = "t=0") -> Answer:
        return self.call("GET", f"/messages/{queue}?{query}")


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


@pytest.fixture
def web(node: NodeProcess) -> Iterator[Http]:
    with Http(node.http) as connection:
        yield connection


# --- RPC push, HTTP pull ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("text", b"\xa4text"),
        (b"\xff" * 40, b"\xda\x00\x28" + b"\xff" * 40),
        (5, b"\x05"),
        (None, b"\xc0"),
        ({"k": [1.5]}, b"\x81\xa1k\x91\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_rpc_push_arrives_over_http_msgpack_encoded(
    rpc: Rpc, web: Http, queue_name: str, content: object, stored: bytes
) -> None:
    """11: stored MessagePack-encoded (old spec) with content type application/x-msgpack; `text` is a4 74 65 78 74."""
    rpc.call("push", queue_name, content)
    answer = web.pull(queue_name)
    assert (answer.status, answer.body) == (200, stored)
    assert answer.headers["content-type"] == MSGPACK


def test_rpc_push_with_new_types_is_stored_in_old_ones(rpc: Rpc, web: Http, queue_name: str) -> None:
    """11: old spec: raw types, no str8/bin."""
    rpc.send(b"\x94\x00\x01\xa4push\x92" + old(queue_name) + b"\x92\xc4\x02ab\xd9\x21" + b"s" * 33)
    assert rpc.read().result == b"ok"
    assert web.pull(queue_name).body == b"\x92\xa2ab\xda\x00\x21" + b"s" * 33


def test_rpc_push_all_of_a_string_is_stored_unchanged(rpc: Rpc, web: Http, queue_name: str) -> None:
    """11: push_all is different: the content is stored as is, without content type."""
    rpc.call("update_props", queue_name)
    for _ in range(2):
        rpc.call("push_all", f"^{queue_name}$", b"exact\xffbytes")
    answer = web.pull(queue_name)
    assert (answer.body, answer.headers["content-type"]) == (b"exact\xffbytes", "application/octet-stream")
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"exact\xffbytes"


@pytest.mark.parametrize("content", [[1, 2, 3], {"a": 1}, 7, None, 1.5], ids=repr)
def test_rpc_push_all_of_other_values_is_stored_like_push(
    rpc: Rpc, web: Http, queue_name: str, content: object
) -> None:
    """11: for non-strings store application/x-msgpack like push; 14: encode others."""
    rpc.call("update_props", queue_name)
    for _ in range(2):
        rpc.call("push_all", f"^{queue_name}$", content)
    answer = web.pull(queue_name)
    assert (answer.body, answer.headers["content-type"]) == (old(content), MSGPACK)
    assert old(rpc.call("pull", queue_name, 0)[b"content"]) == old(content)


# --- HTTP push, RPC pull ----------------------------------------------------------------------------------------------


def test_http_push_of_msgpack_is_decoded_by_rpc_pull(rpc: Rpc, web: Http, queue_name: str) -> None:
    """11: RPC pull decodes the body if the content type is exactly application/x-msgpack, whichever API pushed it."""
    web.push(queue_name, old([1, {"a": "b"}]), MSGPACK)
    assert rpc.call("pull", queue_name, 0)[b"content"] == [1, {b"a": b"b"}]


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/octet-stream",
        "application/x-msgpack; charset=utf-8",
        "application/X-Msgpack",
        "application/msgpack",
    ],
)
def test_any_other_content_type_is_returned_as_raw_bytes(
    rpc: Rpc, web: Http, queue_name: str, content_type: str | None
) -> None:
    """11: any other type, a parameter, different case, or none: the raw bytes are returned as a string."""
    body = old([1, 2])
    web.push(queue_name, body, content_type)
    raw = rpc.exchange(request(1, "pull", queue_name, 0))
    assert raw.endswith(b"\xa7content\xa3" + body)


UNDECODABLE = {
    "empty": b"",
    "c1": b"\xc1",
    "cut short": b"\x92\x01",
    "more than one value": b"\x01\x02",
    "ext": b"\xd4\x05x",
    "timestamp": b"\xd6\xff\x00\x00\x00\x01",
    "nested timestamp": b"\x91\xd6\xff\x00\x00\x00\x01",
    "timestamp out of range": b"\xc7\x0c\xff\x00\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff",
    "array as key": b"\x81\x91\x01\x02",
    "too deep": b"\x91" * 5000 + b"\xc0",
    "huge array header": b"\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("body", UNDECODABLE.values(), ids=UNDECODABLE.keys())
def test_a_body_that_does_not_decode_is_returned_as_raw_bytes(
    rpc: Rpc, web: Http, queue_name: str, body: bytes
) -> None:
    """11, defect: a body of this type that does not decode was never answered; answer with the raw bytes."""
    web.push(queue_name, body, MSGPACK)
    web.push(queue_name, old("behind it"), MSGPACK)
    raw = rpc.exchange(request(1, "pull", queue_name, 0))
    assert types_of(raw) <= OLD_TYPES_ONLY
    assert msgpack.unpackb(raw, raw=True)[3][b"content"] == body
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"behind it"


def test_an_undecodable_body_does_not_affect_other_pulls_of_its_batch(rpc: Rpc, web: Http, queue_name: str) -> None:
    """11: as above, for pulls that share a batch and for pull_many."""
    bodies = [*UNDECODABLE.values(), old("last")]
    for body in bodies:
        web.push(queue_name, body, MSGPACK)
    replies = rpc.many([("pull", queue_name, 0) for _ in bodies])
    assert [reply.result[b"content"] for reply in replies] == [*UNDECODABLE.values(), b"last"]
    rpc.many([("release", queue_name, reply.result[b"id"]) for reply in replies])
    again = rpc.call("pull_many", queue_name, 100)
    assert [message[b"content"] for message in again] == [*UNDECODABLE.values(), b"last"]


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"\xd9\x03abc", b"\xa3abc"),
        (b"\xc4\x03abc", b"\xa3abc"),
        (b"\xda\x00\x01a", b"\xa1a"),
        (b"\xca\x3f\x00\x00\x00", b"\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"),
        (b"\xcd\x00\x05", b"\x05"),
    ],
)
def test_new_and_long_forms_are_answered_in_old_ones(
    rpc: Rpc, web: Http, queue_name: str, body: bytes, seen: bytes
) -> None:
    """11, defect: a body with str8 was never answered; 10.1: responses use only the old types."""
    web.push(queue_name, body, MSGPACK)
    assert rpc.exchange(request(1, "pull", queue_name, 0)).endswith(b"\xa7content" + seen)


# --- ids, windows, waits ----------------------------------------------------------------------------------------------


def test_ids_are_usable_through_either_api(rpc: Rpc, web: Http, queue_name: str) -> None:
    """2.4: an id is usable through either API regardless of which delivered the message."""
    for _ in range(2):
        rpc.call("push", queue_name, 1)
    identifier = rpc.call("pull", queue_name, 0)[b"id"].decode()
    for kind, status in (("ext", 204), ("ack", 204), ("ack", 404)):
        assert web.call("POST", f"/messages/{queue_name}/{identifier}?reply={kind}").status == status
    identifier = web.pull(queue_name).headers["x-lmq-message-id"]
    assert rpc.call("retain", queue_name, identifier) == b"ok"
    assert rpc.call("release", queue_name, identifier) == b"ok"
    assert web.call("POST", f"/messages/{queue_name}/{identifier}?reply=nack").status == 404
    assert web.pull(queue_name).headers["x-lmq-retry-remaining"] == "1"


def test_window_opened_by_rpc_and_joined_by_http(rpc: Rpc, web: Http, queue_name: str) -> None:
    """5: both APIs may contribute to the same window; 11: the rule of decoding applies to each part of a package."""
    rpc.call("update_props", queue_name, {"pack": 3})
    assert rpc.call("push", queue_name, ["from", "rpc"]) == b"packing started"
    assert web.push(queue_name, b"plain") == "yes"
    assert web.push(queue_name, old({"k": 1}), MSGPACK) == "yes"
    assert web.push(queue_name, b"\xc1", MSGPACK) == "yes"
    message = rpc.call("pull", queue_name)
    assert (message[b"type"], message[b"content"]) == (b"package", [[b"from", b"rpc"], b"plain", {b"k": 1}, b"\xc1"])
    # The same message over HTTP (5.1).
    assert rpc.call("release", queue_name, message[b"id"]) == b"ok"
    answer = web.pull(queue_name)
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    assert answer.headers["x-lmq-message-type"] == "compound"
    assert answer.body.startswith(
        b"\r\n--%b\r\ncontent-type: application/x-msgpack\r\ncontent-transfer-encoding: binary\r\n\r\n%b\r\n--%b\r\n"
        % (boundary, old(["from", "rpc"]), boundary)
    )


def test_window_opened_by_http_and_joined_by_rpc(rpc: Rpc, web: Http, queue_name: str) -> None:
    """11: a window may be opened by one API and joined by the other; 5.2: over HTTP as msgpack."""
    rpc.call("update_props", queue_name, {"pack": 3})
    assert web.push(queue_name, b"plain", "text/plain") == "new"
    assert rpc.call("push", queue_name, "rpc") == b"packed"
    answer = web.pull(queue_name, "cf=msgpack")
    assert answer.headers["content-type"] == MSGPACK
    assert msgpack.unpackb(answer.body) == [
        [{"content-type": "text/plain"}, b"plain"],
        [{"content-type": MSGPACK}, b"\xa3rpc"],
    ]


def test_waits_of_both_apis_share_one_wait_list(node: NodeProcess, rpc: Rpc, web: Http, queue_name: str) -> None:
    """4: waiting pullers of a queue are served first come, first served, whichever API they use."""
    waiting = http.client.HTTPConnection(node.http, timeout=20)
    waiting.request("GET", f"/messages/{queue_name}")
    for _ in range(3):
        # The pull, which was sent on another connection, has been applied now.
        assert web.pull(queue_name + "-other").status == 204
    with Rpc(node.rpc) as second:
        second.ask("pull", queue_name)
        second.ask("get_default_props")
        second.read()
        rpc.call("push_many", queue_name, ["first", "second"])
        assert waiting.getresponse().read() == b"\xa5first"
        assert second.read().result[b"content"] == b"second"
    waiting.close()


def test_properties_set_over_one_api_apply_to_the_other(
    rpc: Rpc, web: Http, queue_name: str, new_queue_name: Callable[[], str]
) -> None:
    """3 and 10.3: one set of properties and rules for both."""
    body = b'{"retry": 7, "accum": 0}'
    assert web.call("PATCH", f"/properties/{queue_name}", body, content_type="application/json").status == 204
    rpc.call("push", queue_name, 1)
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 7
    rules = json.dumps([[f"^{queue_name}-other", {"accum": 1.5, "retry": 0}]]).encode()
    assert web.call("PUT", "/properties", rules, content_type="application/json").status == 204
    assert rpc.call("get_default_props") == [[f"^{queue_name}-other".encode(), {b"pack": 1.5, b"retry": 0}]]
    assert rpc.call("set_default_props", []) == b"ok"
    assert web.call("GET", "/properties").body == b"[]"


def test_rpc_push_is_not_hooked(rpc: Rpc, web: Http, queue_name: str) -> None:
    """6: pre_http_push is called on every HTTP push, never for RPC pushes."""
    hooks = {"pre_http_push": [["lmq_hook_preserve_header", ["x-foo"]]]}
    rpc.call("update_props", queue_name, {"hooks": hooks})
    rpc.call("push", queue_name, 1)
    web.call("POST", f"/messages/{queue_name}", b"x", x_foo="kept")
    assert "x-foo" not in web.pull(queue_name).headers
    assert web.pull(queue_name).headers["x-foo"] == "kept"
