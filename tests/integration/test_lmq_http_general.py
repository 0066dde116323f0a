"""LMQ over HTTP, specification sections 7 and 7.1: protocol, errors, paths, names."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote_from_bytes

import pytest

from .cluster import NodeProcess
from .raw_http import Connection, call, open_many, settle

HOST = b"Host: localhost\r\n"


def exchange(node: NodeProcess, request: bytes) -> bytes:
    """Return everything a node sends in answer to these bytes on a new connection whose end is announced."""
    with Connection(node.http) as connection:
        connection.send(request)
        return connection.rest()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# --- 7: connections ---------------------------------------------------------------------------------------------------


def test_7_keep_alive_and_pipelining_in_order(node: NodeProcess, queue_name: str) -> None:
    """7: HTTP/1.1 keep-alive; pipelined requests are answered in order."""
    with Connection(node.http) as connection:
        for i in range(40):
            connection.ask("POST", f"/messages/{queue_name}", b"%d" % i)
        for _ in range(40):
            connection.ask("GET", f"/messages/{queue_name}?t=0")
        assert [connection.read().body for _ in range(40)] == [b'{"accum":"no"}'] * 40
        assert [connection.read().body for _ in range(40)] == [b"%d" % i for i in range(40)]


def test_7_a_pipelined_request_waits_for_a_blocked_pull(node: NodeProcess, queue_name: str) -> None:
    """7: pipelining in order, a blocked pull included."""
    with Connection(node.http) as connection:
        connection.ask("GET", f"/messages/{queue_name}")
        connection.ask("GET", f"/properties/{queue_name}")
        assert connection.is_silent(0.2)
        call(node.http, "POST", f"/messages/{queue_name}", b"x")
        assert connection.read().body == b"x"
        assert connection.read().body == b'{"accum":0,"retry":2,"timeout":30}'


def test_7_requests_in_pieces(node: NodeProcess, queue_name: str) -> None:
    """7: a request may arrive byte by byte."""
    request = f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello".encode()
    with Connection(node.http) as connection:
        for i in range(len(request)):
            connection.send(request[i : i + 1])
        assert connection.read().status == 200
    assert call(node.http, "GET", f"/messages/{queue_name}?t=0").body == b"hello"


def test_7_http_1_0(node: NodeProcess, queue_name: str) -> None:
    """7: HTTP/1.0 without Host; the connection ends unless keep-alive is requested."""
    answer = exchange(node, f"GET /properties/{queue_name} HTTP/1.0\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b'{"accum":0,"retry":2,"timeout":30}')
    assert b"\r\nconnection: close\r\n" in answer
    with Connection(node.http) as connection:
        for _ in range(2):
            connection.send(f"GET /properties/{queue_name} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
            assert connection.read()["connection"] == b"keep-alive"


def test_7_connection_close_is_honoured(node: NodeProcess) -> None:
    """7: a client may request the end of the connection."""
    answer = exchange(node, b"GET /stats HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert status_of(answer) == 200
    assert b"\r\nconnection: close\r\n" in answer


def test_7_chunked_body(node: NodeProcess, queue_name: str) -> None:
    """7: Transfer-Encoding: chunked request bodies."""
    with Connection(node.http) as connection:
        head = f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        connection.send(head + b"3\r\nabc\r\n")
        connection.send(b"A;extension=1\r\ndefghijklm\r\n0\r\nTrailer: x\r\n\r\n")
        assert connection.read().body == b'{"accum":"no"}'
        assert connection.call("GET", f"/messages/{queue_name}?t=0").body == b"abcdefghijklm"


def test_7_expect_100_continue(node: NodeProcess, queue_name: str) -> None:
    """7: Expect: 100-continue is answered before the body arrives."""
    head = (
        f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    )
    with Connection(node.http) as connection:
        connection.send(head.encode())
        assert connection.read_line() == b"HTTP/1.1 100 Continue"
        assert connection.read_line() == b""
        connection.send(b"body")
        assert connection.read().status == 200
        assert connection.call("GET", f"/messages/{queue_name}?t=0").body == b"body"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET /stats HTTP/1.1\r\n\r\n", 400, id="7-no-host"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="7-malformed-request-line"),
        pytest.param(b"GET\r\n\r\n", 400, id="7-method-only"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="7-tls-on-a-plain-port"),
        pytest.param(b"POST /messages/q HTTP/1.1\r\n" + HOST + b"Content-Length: ten\r\n\r\n", 400, id="7-length-word"),
        pytest.param(b"POST /messages/q HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400, id="7-length-minus"),
        pytest.param(
            b"POST /messages/q HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            400,
            id="7-two-lengths",
        ),
        pytest.param(
            b"POST /messages/q HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="7-length-and-chunked",
        ),
        pytest.param(
            b"POST /messages/q HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, id="7-malformed-chunk"
        ),
        pytest.param(b"GET /" + b"a" * 4083 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, id="7-request-line-of-4097"),
        pytest.param(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, id="7-request-line-of-9014"),
        pytest.param(b"GET /stats HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 4097 + b"\r\n\r\n", 400, id="7-header-of-4097"),
        pytest.param(b"GET /stats HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 99999 + b"\r\n\r\n", 400, id="7-header-of-99999"),
    ],
)  # fmt: skip
def test_7_malformed_requests(node: NodeProcess, request_bytes: bytes, status: int) -> None:
    """7: statuses for malformed requests; the body is empty and the connection ends."""
    answer = exchange(node, request_bytes)
    assert status_of(answer) == status
    assert b"\r\ncontent-length: 0\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_7_limits_are_exact(node: NodeProcess) -> None:
    """7: a request line of 4096 bytes and a header value of 4096 bytes are accepted."""
    with Connection(node.http) as connection:
        assert connection.call("GET", "/" + "a" * (4096 - len("GET / HTTP/1.1"))).status == 404
        assert connection.call("GET", "/stats", headers={"X-Long": "a" * 4096}).status == 200


def test_7_idle_connections_end_after_5_s_but_blocked_pulls_do_not(node: NodeProcess, queue_name: str) -> None:
    """7: idle connections are closed after 5 s between requests; a blocked pull is not idle. The same for
    half a request.
    """
    with open_many([node.http] * 4) as (idle, silent, half, blocked):
        started = time.monotonic()
        assert idle.call("GET", f"/properties/{queue_name}").status == 200
        half.send(b"GET /stats HTTP/1.1\r\nHost: ")
        blocked.ask("GET", f"/messages/{queue_name}")
        for connection in (idle, silent, half):
            assert connection.rest() == b""
        waited = time.monotonic() - started
        assert waited > 4.5
        call(node.http, "POST", f"/messages/{queue_name}", b"late")
        assert blocked.read().body == b"late"


def test_7_at_most_10000_requests_per_connection(node: NodeProcess) -> None:
    """7: the 10,000th request of a connection is its last."""
    request = b"PUT /stats HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Connection(node.http) as connection:
        for _ in range(99):
            connection.send(request * 100)
            answers = [connection.read() for _ in range(100)]
            assert all("connection" not in answer.headers for answer in answers)
        connection.send(request * 100)
        last = [connection.read() for _ in range(100)][-1]
        assert last["connection"] == b"close"
        assert connection.rest() == b""


# --- 7: answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/", 404),
        ("GET", "/Messages/q", 404),
        ("GET", "/messages/q/id/more", 404),
        ("GET", "/queues", 404),
        ("GET", "/stats/more", 404),
        ("POST", "/messages/absent/id?reply=ack", 404),
        ("DELETE", "/queues/absent", 404),
        ("GET", "/messages/q?t=abc", 400),
        ("PUT", "/messages/q", 405),
        ("PUT", "/stats", 405),
        ("PUT", "/properties", 415),
    ],
)
def test_7_errors_have_an_empty_body_and_a_length(node: NodeProcess, method: str, target: str, status: int) -> None:
    """7: error responses have an empty body and content-length: 0; header names are lower case."""
    answer = call(node.http, method, target)
    assert answer.status == status
    assert answer["content-length"] == b"0"
    assert all(line.partition(b":")[0].islower() for line in answer.head[1:])


def test_7_success_answers_byte_for_byte(node: NodeProcess, queue_name: str) -> None:
    """7: lower-case header names, compact JSON, 204 with a length of zero."""
    pushed = call(node.http, "POST", f"/messages/{queue_name}", b"x")
    assert pushed.head[0] == b"HTTP/1.1 200 OK"
    assert pushed.lines == [b"content-type: application/json", b"content-length: 14"]
    nothing = call(node.http, "DELETE", f"/queues/{queue_name}")
    assert nothing.head[0] == b"HTTP/1.1 204 No Content"
    assert nothing.lines == [b"content-length: 0"]


@pytest.mark.parametrize("path", ["/properties", "/stats", "/properties/NAME", "/messages/NAME"])
def test_7_a_trailing_slash_is_ignored(node: NodeProcess, queue_name: str, path: str) -> None:
    """7: `/properties/` is `/properties`; `/messages/NAME/` is `/messages/NAME`."""
    path = path.replace("NAME", queue_name) + "/"
    if "messages" in path:
        assert call(node.http, "POST", path, b"x").status == 200
        assert call(node.http, "GET", path + "?t=0").body == b"x"
    else:
        assert call(node.http, "GET", path).status == 200


_RESOURCES = [
    ("/messages?qre=x", b"GET, POST", "POST GET"),
    ("/messages/q", b"GET, POST", "POST GET"),
    ("/messages/q/id?reply=ack", b"POST", "POST"),
    ("/queues/q", b"DELETE", "DELETE"),
    ("/properties", b"GET, PUT, DELETE", "GET PUT DELETE"),
    ("/properties/q", b"GET, PATCH, DELETE", "GET PATCH DELETE"),
    ("/stats", b"GET", "GET"),
]


@pytest.mark.parametrize(("target", "allow", "good"), _RESOURCES)
def test_7_wrong_methods_are_405_with_the_exact_allow(node: NodeProcess, target: str, allow: bytes, good: str) -> None:
    """7: 405 and its `allow` header; HEAD and OPTIONS are 405 everywhere."""
    with Connection(node.http) as connection:
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - set(good.split()):
            answer = connection.call(method, target)
            assert answer.status == 405, method
            assert answer.headers.get("allow", b"") == allow, method
            assert answer["content-length"] == b"0"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/messages?qre=x", 405),
        ("/messages/q", 405),
        ("/messages/q/id?reply=ack", 405),
        ("/queues/q", 501),
        ("/properties", 501),
        ("/properties/q", 501),
        ("/stats", 501),
    ],
)
@pytest.mark.parametrize("method", ["FROBNICATE", "PROPFIND", "get"])
def test_7_made_up_methods(node: NodeProcess, target: str, status: int, method: str) -> None:
    """7: a made-up method is 405 on messages, 501 elsewhere."""
    answer = call(node.http, method, target)
    assert answer.status == status
    assert answer["content-length"] == b"0"
    allow = b"POST" if "/id" in target else b"GET, POST"
    assert answer.headers.get("allow") == (allow if status == 405 else None)


def test_7_an_odd_accept_header_is_ignored(node: NodeProcess, queue_name: str) -> None:
    """7: 406 is optional; here every Accept gets JSON."""
    for target in ("/stats", "/properties", f"/properties/{queue_name}"):
        answer = call(node.http, "GET", target, headers={"Accept": "text/html"})
        assert (answer.status, answer["content-type"]) == (200, b"application/json")


def test_7_checks_in_order(node: NodeProcess) -> None:
    """7, 8.3, 8.4: method before parameters, parameters before existence; on /messages the pattern before the
    method.
    """
    assert call(node.http, "PUT", "/messages/q?t=abc").status == 405
    assert call(node.http, "GET", "/messages/q/id?reply=wrong").status == 405
    assert call(node.http, "POST", "/messages/absent/id?reply=wrong").status == 400
    assert call(node.http, "POST", "/messages/absent/id?reply=ack").status == 404
    assert call(node.http, "PUT", "/messages?qre=(").status == 400
    assert call(node.http, "PUT", "/messages").status == 400
    assert call(node.http, "PUT", "/messages?qre=x").status == 405
    assert call(node.http, "POST", "/stats", b"{").status == 405
    assert call(node.http, "PATCH", "/properties/q", b"{", {"Content-Type": "text/plain"}).status == 415


def test_7_large_messages(node: NodeProcess, queue_name: str) -> None:
    """7: 20 MB bodies pass, both ways, with a length and chunked."""
    body = bytes(range(256)) * (20 * 4096)
    assert call(node.http, "POST", f"/messages/{queue_name}", body).status == 200
    with Connection(node.http) as connection:
        connection.send(
            f"POST /messages/{queue_name} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for start in range(0, len(body), 1 << 20):
            piece = body[start : start + (1 << 20)]
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        assert connection.read().status == 200
        for _ in range(2):
            answer = connection.call("GET", f"/messages/{queue_name}?t=0")
            assert answer["content-length"] == str(len(body)).encode()
            assert answer.body == body
    assert call(node.http, "DELETE", f"/queues/{queue_name}").status == 204


# --- 7.1: names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param("a b".replace(" ", "+"), b"a b", id="plus-is-a-space"),
        pytest.param("a%2Bb", b"a+b", id="escaped-plus"),
        pytest.param("a%2Fb", b"a/b", id="escaped-slash"),
        pytest.param("%2f", b"/", id="only-a-slash"),
        pytest.param(".", b".", id="dot"),
        pytest.param("..", b"..", id="dot-dot"),
        pytest.param("%25", b"%", id="percent"),
        pytest.param("%e3%82%ad", "キ".encode(), id="utf-8"),
        pytest.param("%ff%fe", b"\xff\xfe", id="not-utf-8"),
        pytest.param("a:b@c;d=e,f", b"a:b@c;d=e,f", id="unreserved"),
        pytest.param("%3f%23%26", b"?#&", id="query-characters"),
        pytest.param("x" * 200, b"x" * 200, id="long"),
        pytest.param("schema", b"schema", id="15-7-internal-name-schema"),
        pytest.param("__lmq_info__", b"__lmq_info__", id="15-7-internal-name-info"),
    ],
)
def test_7_1_names(node: NodeProcess, new_queue_name: Callable[[], str], path: str, name: bytes) -> None:
    """7.1: names are decoded; the header returns the raw bytes."""
    suffix = "" if path in {".", "..", "schema", "__lmq_info__"} else new_queue_name()[-40:]
    path, name = path + suffix, name + suffix.encode()
    with Connection(node.http) as connection:
        assert connection.call("POST", f"/messages/{path}", b"x").status == 200
        # Every escaping names the same queue.
        answer = connection.call("GET", f"/messages/{quote_from_bytes(name, safe='')}?t=0")
        assert (answer.status, answer["x-lmq-queue-name"]) == (200, name)
        assert connection.call("GET", "/stats").status == 200
        assert connection.call("DELETE", f"/queues/{path}").status == 204


def test_7_1_raw_bytes_in_the_request_line(node: NodeProcess, queue_name: str) -> None:
    """7.1: a client may leave UTF-8 unescaped, as curl does; bodies that are not ASCII are unaffected."""
    name = f"{queue_name}-キュー".encode()
    body = b"\xff\xfe\n\x80"
    with Connection(node.http) as connection:
        connection.send(b"POST /messages/" + name + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n" + body)
        assert connection.read().status == 200
        connection.send(b"GET /messages/" + name + b"?t=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = connection.read()
        assert (answer.body, answer["x-lmq-queue-name"]) == (body, name)
        other = f"/messages/{queue_name}-body".encode()
        connection.send(b"POST " + other + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n" + body)
        settle(node.http)
        connection.send(body)
        assert connection.read().status == 200
        assert connection.call("GET", other.decode() + "?t=0").body == body * 2
        connection.send(b"GET /messages/" + name[:-1])
        settle(node.http)
        connection.send(name[-1:] + b"?t=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.read().status == 204


def test_7_1_raw_bytes_on_a_busy_connection(node: NodeProcess, queue_name: str) -> None:
    """This holds however soon the next request follows an answer, and for pipelined ones."""
    target = f"/messages/{queue_name}-ü".encode()
    push = b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\xc3\xbc"
    pull = b"GET " + target + b"?t=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with Connection(node.http) as connection:
        for _ in range(500):
            connection.send(push)
            assert connection.read().status == 200
        connection.send(pull * 500)
        assert [connection.read().body for _ in range(500)] == ["ü".encode()] * 500
        for size in range(1, len(pull), 7):
            connection.send(pull[:size])
            connection.send(pull[size:] + pull)
            assert [connection.read().status for _ in range(2)] == [204, 204]


def test_7_1_names_of_255_bytes(node: NodeProcess) -> None:
    """7.1: 1 to 255 bytes; longer names are a 4xx."""
    with Connection(node.http) as connection:
        assert connection.call("POST", "/messages/" + "n" * 255, b"x").status == 200
        assert connection.call("GET", "/messages/" + "n" * 255 + "?t=0")["x-lmq-queue-name"] == b"n" * 255
        assert connection.call("DELETE", "/queues/" + "%6e" * 255).status == 204
        for method, target in (
            ("POST", "/messages/"),
            ("GET", "/messages/"),
            ("PATCH", "/properties/"),
            ("GET", "/properties/"),
        ):
            assert (
                connection.call(method, target + "n" * 256, b"{}", {"Content-Type": "application/json"}).status == 400
            )


@pytest.mark.parametrize("path", ["%0d%0aevil:%201", "a%00b", "%0A", "%7f", "tab%09", "%", "%2", "%zz", "a%2g"])
@pytest.mark.parametrize(("method", "prefix", "query"), [
    ("POST", "/messages/", ""),
    ("GET", "/messages/", "?t=0"),
    ("POST", "/messages/", "/id?reply=ack"),
    ("DELETE", "/queues/", ""),
    ("GET", "/properties/", ""),
    ("PATCH", "/properties/", ""),
    ("DELETE", "/properties/", ""),
])  # fmt: skip
def test_7_1_control_characters_and_bad_escapes_are_400(
    node: NodeProcess, method: str, prefix: str, query: str, path: str
) -> None:
    """7.1: invalid escapes and control characters are refused, and no answer holds an injected header."""
    body = b"{}" if method in {"POST", "PATCH"} else None
    answer = call(node.http, method, prefix + path + query, body, {"Content-Type": "application/json"})
    assert answer.status == 400
    assert "evil" not in answer.headers
    assert answer.body == b""


def test_7_1_an_empty_name_is_refused(node: NodeProcess) -> None:
    """7.1: a name has at least one byte."""
    assert call(node.http, "POST", "/messages//", b"x").status == 400
    assert call(node.http, "GET", "/properties//").status == 400


def test_7_1_names_that_are_not_utf8_do_not_break_stats_or_push_all(node: NodeProcess, queue_name: str) -> None:
    """7.1: keep /stats and push-to-all working with any name."""
    path = f"{queue_name}%ff"
    call(node.http, "POST", f"/messages/{path}", b"x")
    assert f"{queue_name}\\xff" in call(node.http, "GET", "/stats").json["queues"]
    answer = call(node.http, "POST", f"/messages?qre=%5E{queue_name}", b"y")
    assert answer.json == {f"{queue_name}\\xff": {"accum": "no"}}
    call(node.http, "DELETE", f"/queues/{path}")


def test_7_errors_say_why_in_a_header(node: NodeProcess) -> None:
    """Bad input gets a clear error although LMQ's bodies are empty."""
    answer = call(node.http, "GET", "/messages/q?t=abc")
    assert answer["x-lmq-error"].startswith(b"bad_request: t must be a number of seconds")
