"""LMQ over HTTP, specification section 5: accumulation windows and compound messages."""

from __future__ import annotations

import time

import msgpack
import pytest

from .cluster import NodeProcess
from .raw_http import GUARDS, Answer, Connection, call, open_many, settle

JSON = {"Content-Type": "application/json"}


def set_properties(node: NodeProcess, name: str, text: str) -> None:
    assert call(node.http, "PATCH", f"/properties/{name}", text.encode(), JSON).status == 204


def push(node: NodeProcess, name: str, body: bytes, content_type: str | None = None) -> str:
    headers = {"Content-Type": content_type} if content_type else {}
    answer = call(node.http, "POST", f"/messages/{name}", body, headers)
    assert answer.status == 200
    return str(answer.json["accum"])


def push_together(node: NodeProcess, name: str, *pushes: tuple[bytes, str | None]) -> list[str]:
    """Push several messages in one segment, so that they fall into one window even on a busy machine."""
    with Connection(node.http) as connection:
        requests = b""
        for body, content_type in pushes:
            head = f"POST /messages/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            head += f"Content-Type: {content_type}\r\n" if content_type else ""
            requests += head.encode() + b"\r\n" + body
        connection.send(requests)
        return [connection.read().json["accum"] for _ in pushes]


def pull(node: NodeProcess, name: str, query: str = "t=10") -> Answer:
    return call(node.http, "GET", f"/messages/{name}?{query}")


def multipart(identifier: bytes, *parts: tuple[bytes, bytes]) -> bytes:
    """Return the body of 5.1, written independently."""
    body = b""
    for content_type, content in parts:
        body += b"\r\n--" + identifier + b"\r\ncontent-type: " + content_type
        body += b"\r\ncontent-transfer-encoding: binary\r\n\r\n" + content
    return body + b"\r\n--" + identifier + b"--\r\n"


def test_5_a_window_opens_is_joined_and_ends(node: NodeProcess, queue_name: str) -> None:
    """5, 5.1: `new`, then `yes`; nothing before the end; a blocked puller gets it at the end, parts in push order."""
    set_properties(node, queue_name, '{"accum":1}')
    started = time.monotonic()
    flags = push_together(node, queue_name, (b"one", "text/plain"), (b"two", None), (b"\r\n", None))
    assert flags == ["new", "yes", "yes"]
    assert pull(node, queue_name, "t=0").status == 204
    answer = pull(node, queue_name)
    assert time.monotonic() - started >= 0.99
    identifier = answer["x-lmq-message-id"]
    assert answer.lines == [
        b"content-type: multipart/mixed; boundary=" + answer.boundary,
        b"x-lmq-queue-name: " + queue_name.encode(),
        b"x-lmq-message-id: " + identifier,
        b"x-lmq-message-type: compound",
        b"x-lmq-retry-remaining: 2",
        *GUARDS,
        b"content-length: " + str(len(answer.body)).encode(),
    ]
    assert answer.body == multipart(
        answer.boundary,
        (b"text/plain", b"one"),
        (b"application/octet-stream", b"two"),
        (b"application/octet-stream", b"\r\n"),
    )


def test_5_2_msgpack(node: NodeProcess, queue_name: str) -> None:
    """5.2: one array of [{header: value}, content]; str headers, bin contents, minimal encodings."""
    set_properties(node, queue_name, '{"accum":1}')
    assert push_together(node, queue_name, (b"abc", "text/plain"), (b"", None)) == ["new", "yes"]
    answer = pull(node, queue_name, "t=10&cf=msgpack")
    assert answer["content-type"] == b"application/x-msgpack"
    assert answer["x-lmq-message-type"] == b"compound"
    assert answer.body == (
        b"\x92\x92\x81\xaccontent-type\xaatext/plain\xc4\x03abc"
        b"\x92\x81\xaccontent-type\xb8application/octet-stream\xc4\x00"
    )
    assert msgpack.unpackb(answer.body)[0] == [{"content-type": "text/plain"}, b"abc"]


def test_5_a_single_message_is_compound_too(node: NodeProcess, queue_name: str) -> None:
    """5: a window with a single message still yields a compound message."""
    set_properties(node, queue_name, '{"accum":0.05}')
    assert push(node, queue_name, b"alone") == "new"
    answer = pull(node, queue_name)
    assert answer["x-lmq-message-type"] == b"compound"
    assert answer.body == multipart(answer.boundary, (b"application/octet-stream", b"alone"))


def test_5_later_pushes_and_changes_do_not_move_the_end(node: NodeProcess, queue_name: str) -> None:
    """5: the window is fixed when it opens; pushes join it as long as the current accum is not zero."""
    set_properties(node, queue_name, '{"accum":2}')
    started = time.monotonic()
    assert push(node, queue_name, b"a") == "new"
    set_properties(node, queue_name, '{"accum":60}')
    assert push(node, queue_name, b"b") == "yes"
    answer = pull(node, queue_name)
    assert time.monotonic() - started >= 1.99
    assert answer.body.count(b"content-type:") == 2
    assert push(node, queue_name, b"c") == "new"


def test_5_without_accum_a_plain_message_is_stored_though_a_window_is_open(node: NodeProcess, queue_name: str) -> None:
    """5: with accum 0 the flag is `no`, even if a window is still open; 3.2: accum applies to later pushes."""
    set_properties(node, queue_name, '{"accum":2}')
    assert push(node, queue_name, b"a") == "new"
    set_properties(node, queue_name, '{"accum":0}')
    assert push(node, queue_name, b"plain") == "no"
    assert pull(node, queue_name, "t=0").body == b"plain"
    set_properties(node, queue_name, '{"accum":5}')
    assert push(node, queue_name, b"b") == "yes"
    assert pull(node, queue_name).body.count(b"content-type:") == 2


def test_5_a_delivered_window_takes_no_more_messages(node: NodeProcess, queue_name: str) -> None:
    """5: once delivered or nacked a compound entry never takes more messages."""
    set_properties(node, queue_name, '{"accum":0.1}')
    push(node, queue_name, b"a")
    answer = pull(node, queue_name)
    assert push(node, queue_name, b"b") == "new"
    target = f"/messages/{queue_name}/{answer['x-lmq-message-id'].decode()}?reply=nack"
    assert call(node.http, "POST", target).status == 204
    bodies = {pull(node, queue_name).body.split(b"\r\n\r\n")[1][:1] for _ in range(2)}
    assert bodies == {b"a", b"b"}


def test_5_a_compound_message_is_settled_as_a_whole(node: NodeProcess, queue_name: str) -> None:
    """5: redelivery, retry count, ack, nack, ext work on the whole; the retry count is that of the opening push."""
    set_properties(node, queue_name, '{"accum":2,"retry":1}')
    push(node, queue_name, b"a")
    set_properties(node, queue_name, '{"retry":9}')
    push(node, queue_name, b"b")
    first = pull(node, queue_name)
    assert first["x-lmq-retry-remaining"] == b"1"
    target = "/messages/" + queue_name + "/{}?reply={}"
    identifier = first["x-lmq-message-id"].decode()
    assert call(node.http, "POST", target.format(identifier, "ext")).status == 204
    assert call(node.http, "POST", target.format(identifier, "nack")).status == 204
    second = pull(node, queue_name)
    assert second["x-lmq-retry-remaining"] == b"0"
    again = second["x-lmq-message-id"]
    assert second.body == first.body.replace(first.boundary, second.boundary)
    assert call(node.http, "POST", target.format(again.decode(), "ack")).status == 204
    assert pull(node, queue_name, "t=0").status == 204


def test_9_3_an_open_window_counts_as_one(node: NodeProcess, queue_name: str) -> None:
    """9.3: an open window is 1; 2.4: it cannot be replied to."""
    set_properties(node, queue_name, '{"accum":60}')
    for _ in range(3):
        push(node, queue_name, b"x")
    assert call(node.http, "GET", "/stats").json["queues"][queue_name]["size"] == 1
    assert call(node.http, "DELETE", f"/queues/{queue_name}").status == 204


def test_3_a_negative_accum_is_a_window_that_has_ended(node: NodeProcess, queue_name: str) -> None:
    """3: a negative accum behaves like a window that has already ended."""
    set_properties(node, queue_name, '{"accum":-1}')
    assert push(node, queue_name, b"a") == "new"
    assert push(node, queue_name, b"b") == "new"
    for content in (b"a", b"b"):
        answer = pull(node, queue_name, "t=0")
        assert answer.body == multipart(answer.boundary, (b"application/octet-stream", content))


def test_5_two_racing_pushes_make_one_window(node: NodeProcess, queue_name: str) -> None:
    """5: two pushes racing on an idle queue must yield one `new` and one `yes`."""
    set_properties(node, queue_name, '{"accum":60}')
    with open_many([node.http] * 8) as connections:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue_name}", b"x")
        flags = sorted(connection.read().json["accum"] for connection in connections)
    assert flags == ["new"] + ["yes"] * 7
    call(node.http, "DELETE", f"/queues/{queue_name}")


def test_5_a_blocked_puller_is_woken_by_the_end_of_a_window(node: NodeProcess, queue_name: str) -> None:
    """5, 2.2: a blocked puller gets it at the end, pull-any too."""
    set_properties(node, queue_name, '{"accum":0.2}')
    with Connection(node.http) as one, Connection(node.http) as other:
        one.ask("GET", f"/messages/{queue_name}?t=10")
        settle(node.http)
        push(node, queue_name, b"a")
        assert one.read()["x-lmq-message-type"] == b"compound"
        other.ask("GET", f"/messages?qre=%5E{queue_name}%24&t=10&cf=msgpack")
        settle(node.http)
        push(node, queue_name, b"b")
        assert msgpack.unpackb(other.read().body) == [[{"content-type": "application/octet-stream"}, b"b"]]


@pytest.mark.parametrize(
    ("seconds", "flag"), [("0.0001", "no"), ("0.0004", "no"), ("0.0006", "new"), ("0.0015", "new")]
)
def test_3_accum_is_kept_in_whole_milliseconds(node: NodeProcess, queue_name: str, seconds: str, flag: str) -> None:
    """3: rounded half away from zero; 0.0001 becomes 0 = off."""
    set_properties(node, queue_name, f'{{"accum":{seconds}}}')
    assert push(node, queue_name, b"x") == flag


def test_5_many_parts(node: NodeProcess, queue_name: str) -> None:
    """5, 15.16: a window of a thousand parts keeps their order."""
    set_properties(node, queue_name, '{"accum":1.5}')
    with Connection(node.http) as connection:
        for i in range(1000):
            connection.ask("POST", f"/messages/{queue_name}", b"%d" % i)
        flags = [connection.read().json["accum"] for _ in range(1000)]
    assert flags[0] == "new"
    contents = []
    with Connection(node.http) as connection:
        while len(contents) < 1000:
            answer = connection.call("GET", f"/messages/{queue_name}?t=10&cf=msgpack")
            contents += [int(content) for _headers, content in msgpack.unpackb(answer.body)]
    assert contents == list(range(1000))
