"""LMQ over HTTP, specification section 6: hooks that preserve request headers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgpack
import pytest

from .cluster import NodeProcess
from .raw_http import Connection, call

JSON = {"Content-Type": "application/json"}
HOOKS = '{"pre_http_push":[["lmq_hook_preserve_header",["user-agent","x-foo"]]]}'


def set_properties(node: NodeProcess, name: str, text: str) -> None:
    assert call(node.http, "PATCH", f"/properties/{name}", text.encode(), JSON).status == 204


@pytest.fixture
def hooked(node: NodeProcess, queue_name: str) -> str:
    set_properties(node, queue_name, f'{{"hooks":{HOOKS}}}')
    return queue_name


def test_6_preserved_headers_are_returned_on_a_pull(node: NodeProcess, hooked: str) -> None:
    """6: as response headers of a pull of a normal message, lower case, in argument order; others are not kept."""
    call(node.http, "POST", f"/messages/{hooked}", b"m", {"X-Foo": "bar baz", "X-Other": "no", "USER-AGENT": "test/1"})
    answer = call(node.http, "GET", f"/messages/{hooked}?t=0")
    assert answer.lines[:4] == [
        b"content-type: application/octet-stream",
        b"user-agent: test/1",
        b"x-foo: bar baz",
        b"x-lmq-queue-name: " + hooked.encode(),
    ]
    assert "x-other" not in answer.headers


def test_6_absent_headers_add_nothing(node: NodeProcess, hooked: str) -> None:
    """6: absent headers add nothing."""
    call(node.http, "POST", f"/messages/{hooked}", b"m", {"X-Foo": "1"})
    answer = call(node.http, "GET", f"/messages/{hooked}?t=0")
    assert "user-agent" not in answer.headers
    assert answer["x-foo"] == b"1"


def test_6_header_values_are_raw_bytes(node: NodeProcess, hooked: str) -> None:
    """6: a value is copied unchanged."""
    with Connection(node.http) as connection:
        connection.send(
            f"POST /messages/{hooked} HTTP/1.1\r\nHost: localhost\r\n".encode()
            + b"X-Foo: \xe9\xff\r\nContent-Length: 0\r\n\r\n"
        )
        assert connection.read().status == 200
        assert connection.call("GET", f"/messages/{hooked}?t=0")["x-foo"] == b"\xe9\xff"


def test_6_compound_messages_have_them_in_their_parts(node: NodeProcess, hooked: str) -> None:
    """6, 5.1, 5.2: as part headers before content-transfer-encoding, and in the header map."""
    set_properties(node, hooked, '{"accum":1.5}')
    call(node.http, "POST", f"/messages/{hooked}", b"a", {"X-Foo": "1", "Content-Type": "text/x"})
    call(node.http, "POST", f"/messages/{hooked}", b"b", {"User-Agent": "u"})
    answer = call(node.http, "GET", f"/messages/{hooked}?t=10")
    identifier = answer["x-lmq-message-id"]
    assert answer.body == (
        b"\r\n--"
        + answer.boundary
        + b"\r\ncontent-type: text/x\r\nx-foo: 1\r\ncontent-transfer-encoding: binary\r\n\r\na"
        b"\r\n--" + answer.boundary + b"\r\ncontent-type: application/octet-stream\r\nuser-agent: u\r\n"
        b"content-transfer-encoding: binary\r\n\r\nb\r\n--" + answer.boundary + b"--\r\n"
    )
    assert "x-foo" not in answer.headers
    target = f"/messages/{hooked}/{identifier.decode()}?reply=nack"
    assert call(node.http, "POST", target).status == 204
    again = call(node.http, "GET", f"/messages/{hooked}?t=10&cf=msgpack")
    assert msgpack.unpackb(again.body) == [
        [{"content-type": "text/x", "x-foo": "1"}, b"a"],
        [{"content-type": "application/octet-stream", "user-agent": "u"}, b"b"],
    ]


def test_6_new_hooks_replace_old_ones(node: NodeProcess, hooked: str) -> None:
    """6: setting hooks again deactivates hooks no longer listed; pushes made before keep theirs (3.2)."""
    headers = {"X-Foo": "1", "X-Bar": "2"}
    call(node.http, "POST", f"/messages/{hooked}", b"a", headers)
    set_properties(node, hooked, '{"hooks":{"pre_http_push":[["lmq_hook_preserve_header",["x-bar"]]]}}')
    call(node.http, "POST", f"/messages/{hooked}", b"b", headers)
    first, second = (call(node.http, "GET", f"/messages/{hooked}?t=0") for _ in range(2))
    assert ("x-foo" in first.headers, "x-bar" in first.headers) == (True, False)
    assert ("x-foo" in second.headers, "x-bar" in second.headers) == (False, True)


def test_6_push_to_all_is_hooked_per_queue(node: NodeProcess, hooked: str) -> None:
    """6: also once per queue for push-to-all."""
    plain = f"{hooked}-plain"
    set_properties(node, plain, "{}")
    assert call(node.http, "POST", f"/messages?qre=%5E{hooked}", b"m", {"X-Foo": "1"}).status == 200
    assert call(node.http, "GET", f"/messages/{hooked}?t=0")["x-foo"] == b"1"
    assert "x-foo" not in call(node.http, "GET", f"/messages/{plain}?t=0").headers


def test_6_modules_run_in_list_order(node: NodeProcess, queue_name: str) -> None:
    """6: several modules; a name requested twice is kept once."""
    modules = '[["lmq_hook_preserve_header",["x-b"]],["lmq_hook_preserve_header",["x-a","x-b"]]]'
    set_properties(node, queue_name, f'{{"hooks":{{"pre_http_push":{modules}}}}}')
    call(node.http, "POST", f"/messages/{queue_name}", b"m", {"X-A": "1", "X-B": "2"})
    answer = call(node.http, "GET", f"/messages/{queue_name}?t=0")
    assert answer.lines[1:3] == [b"x-b: 2", b"x-a: 1"]
    assert sum(line.startswith(b"x-b:") for line in answer.lines) == 1


@pytest.mark.parametrize(
    "hooks",
    [
        HOOKS,
        "{}",
        '{"made_up_point":[]}',
        '{"made_up_point":[["lmq_hook_preserve_header",[]]],"pre_http_push":[]}',
        '{"pre_http_push":[["lmq_hook_preserve_header",["a"]],["lmq_hook_preserve_header",["b"]]]}',
    ],
)
def test_6_hooks_read_back_as_given(node: NodeProcess, queue_name: str, hooks: str) -> None:
    """6: reads back with exactly the structure given; unknown points are stored; `{}` is stored and shown."""
    set_properties(node, queue_name, f'{{"hooks":{hooks}}}')
    answer = call(node.http, "GET", f"/properties/{queue_name}")
    assert answer.body == f'{{"accum":0,"hooks":{hooks},"retry":2,"timeout":30}}'.encode()


@pytest.mark.parametrize(
    "hooks",
    [
        "[]", "null", "1", '"x"', '{"pre_http_push":{}}', '{"pre_http_push":[["no_such_module",[]]]}',
        '{"pre_http_push":[["lmq_hook_preserve_header"]]}', '{"pre_http_push":[["lmq_hook_preserve_header",{}]]}',
        '{"pre_http_push":[["lmq_hook_preserve_header",[1]]]}', '{"pre_http_push":["lmq_hook_preserve_header"]}',
        '{"made_up_point":[["no_such_module",[]]]}', '{"pre_http_push":[[[],[]]]}',
    ],
)  # fmt: skip
def test_6_malformed_hooks_are_400(node: NodeProcess, queue_name: str, hooks: str) -> None:
    """6: `[]`, an unknown module or a malformed inner list: 400, and nothing changes."""
    body = f'{{"retry":9,"hooks":{hooks}}}'.encode()
    assert call(node.http, "PATCH", f"/properties/{queue_name}", body, JSON).status == 400
    assert call(node.http, "GET", f"/properties/{queue_name}").body == b'{"accum":0,"retry":2,"timeout":30}'


RESERVED = [
    "x-lmq-message-id", "X-LMQ-Queue-Name", "content-encoding", "content-type", "content-length", "transfer-encoding",
    "connection", "set-cookie", "set-cookie2", "location", "access-control-allow-origin", "content-security-policy",
    "x-content-type-options", "www-authenticate", "content-transfer-encoding", "service-worker-allowed", "Authorization",
    "cookie", "proxy-authorization",
]  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_protocol_headers_cannot_be_preserved(node: NodeProcess, queue_name: str, name: str) -> None:
    """An answer must describe its contents correctly, and must not change what a browser does; producers'
    secrets stay secret.
    """
    hooks = f'{{"hooks":{{"pre_http_push":[["lmq_hook_preserve_header",["x-foo","{name}"]]]}}}}'.encode()
    refused = call(node.http, "PATCH", f"/properties/{queue_name}", hooks, JSON)
    assert refused.status == 400
    assert name.encode() in refused["x-lmq-error"]
    assert call(node.http, "PATCH", f"/v1/queues/{queue_name}/properties", hooks, JSON).json["code"] == "bad_property"
    assert call(node.http, "PUT", "/properties", b'[["x",' + hooks + b"]]", JSON).status == 400


@pytest.mark.parametrize("name", ["x-foo\r\nx-evil: 1", "x\n", "x y", "x:", "", "\x1b[2j", "b\u00fccher"])
def test_invalid_header_names_cannot_be_preserved(node: NodeProcess, queue_name: str, name: str) -> None:
    hooks = json.dumps({"hooks": {"pre_http_push": [["lmq_hook_preserve_header", ["x-foo", name]]]}}).encode()
    refused = call(node.http, "PATCH", f"/properties/{queue_name}", hooks, JSON)
    assert (refused.status, b"is not the name of a header" in refused["x-lmq-error"]) == (400, True)
    assert call(node.http, "PUT", "/properties", b'[["x",' + hooks + b"]]", JSON).status == 400


@pytest.fixture
def default_hooks(node: NodeProcess, queue_name: str) -> Iterator[str]:
    rules = f'[["^{queue_name}",{{"hooks":{HOOKS}}}]]'.encode()
    assert call(node.http, "PUT", "/properties", rules, JSON).status == 204
    yield queue_name
    assert call(node.http, "DELETE", "/properties").status == 204


def test_6_hooks_of_a_default_rule_apply_to_the_push_that_creates_the_queue(
    node: NodeProcess, default_hooks: str
) -> None:
    """6: the push that creates a queue should be hooked too."""
    for body in (b"first", b"second"):
        call(node.http, "POST", f"/messages/{default_hooks}", body, {"X-Foo": "1"})
        assert call(node.http, "GET", f"/messages/{default_hooks}?t=0")["x-foo"] == b"1"


def test_9_3_stats_show_hooks_as_nested_objects(node: NodeProcess, hooked: str) -> None:
    """9.3: hooks as nested objects {"point":{"module":[args]}}."""
    body = call(node.http, "GET", "/stats").body
    hooks = b'{"pre_http_push":{"lmq_hook_preserve_header":["user-agent","x-foo"]}}'
    assert b'"props":{"accum":0,"hooks":' + hooks + b',"retry":2,"timeout":30}' in body
