"""Large requests that a node refuses, and connections that break, of every kind and on every port.

Each is a function that sends one such request to a `Target` and reads the answer. Tests send them often and check what
the node keeps of them.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgpack

from lmqcluster.replication.peers import messages

from .bad_input import connect
from .cluster import wait_for
from .raw_http import call
from .raw_rpc import request
from .refusal_target import TIMEOUT_S, Data, Kind, Send, Target, exchange, lines, plain
from .sqs_refusals import sqs_kinds
from .test_bad_input_raft import Stranger

__all__ = ["BROKEN", "CLUSTER_SECRET", "FORBIDDEN", "LATE", "OTHERS", "REFUSALS", "prepare"]

OTHERS = "others"
"""Name of a token that covers no queue that refusals name; Kestrel's ports serve their clients with it."""
CLUSTER_SECRET = "the secret of a cluster that gets refused requests"
LONG_NAME = "n" * 300
_NO_LIMIT = 1 << 20


def prepare(address: str) -> None:
    """Create the queues that the refusals name, at a node's HTTP port; they hold almost nothing."""
    for queue, properties in {
        "full": {"max_items": 1},
        "small": {"max_item_size": 10},
        "narrow": {"max_items": 1},
    }.items():
        kind = {"Content-Type": "application/json"}
        answer = call(address, "PATCH", f"/properties/{queue}", json.dumps(properties).encode(), kind)
        assert _is_ok(answer.status), answer
    assert call(address, "POST", "/messages/full", b"x").status == 200
    assert call(address, "POST", "/messages/parent", b"x").status == 200
    key = {"Idempotency-Key": "used"}
    assert _is_ok(call(address, "POST", "/v1/queues/keyed/messages", _messages(b"x"), key).status)
    assert _is_ok(call(address, "POST", "/v1/queues/keyed/messages", _keyed(b"x"), None).status)


def _is_ok(status: int) -> bool:
    return 200 <= status < 300


# --- HTTP
# ---------------------------------------------------------------------------------------------------------------


def _text(target: Target) -> str:
    return "x" * target.size


def _messages(content: bytes, count: int = 1) -> bytes:
    return json.dumps({"messages": [{"content": content.decode()}] * count}).encode()


def _keyed(content: bytes) -> bytes:
    return json.dumps({"messages": [{"content": content.decode(), "key": "used"}]}).encode()


def _http(
    method: str,
    path: str,
    body: Data,
    headers: Mapping[str, str] | None = None,
    port: str = "http",
    host: str = "",
) -> Send:
    def send(target: Target, says: bytes) -> bytes:
        data = body(target)
        fields = {"Content-Length": str(len(data)), "Connection": "close", **(headers or {})}
        if target.secret:
            fields.setdefault("Authorization", f"Bearer {target.secret}")
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or target.addresses[port]}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return exchange(target.addresses[port], "\r\n".join(lines).encode() + b"\r\n\r\n" + data, says)

    return send


def _batch(target: Target) -> bytes:
    return _messages(b"x" * (target.size // 8), 8)


def _operations(*more: dict[str, Any], queue: str = "free") -> Data:
    def body(target: Target) -> bytes:
        push = {"op": "push", "queue": queue, "content": _text(target)}
        return json.dumps({"operations": [push, *more]}).encode()

    return body


def _broken_chunk(target: Target) -> bytes:
    return b"5\r\nwhole\r\nno chunk\r\n" + plain(target)


_NO_LEASE = {"op": "ack", "queue": "free", "id": "00000000-0000-0000-0000-000000000000"}


def _chunked(path: str, body: Data, port: str = "http") -> Send:
    def send(target: Target, says: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: {target.addresses[port]}\r\nTransfer-Encoding: chunked\r\n\r\n"
        return exchange(target.addresses[port], head.encode() + body(target), says)

    return send


_JSON = {"Content-Type": "application/json"}


def _v1(verb: str, queue: str) -> str:
    return f"/v1/queues/{queue}/{verb}"


def _http_kinds() -> Iterator[Kind]:
    key = {"Idempotency-Key": "used"}
    push = partial(_http, "POST")
    for name, send, says in (
        ("full", push("/messages/full", plain), b" 507 "),
        ("larger than the queue takes", push("/messages/small", plain), b" 413 "),
        (
            "larger than the node takes",
            push("/messages/free", plain, {"Content-Length": str(_NO_LIMIT << 10)}),
            b" 413 ",
        ),
        ("a bad name", push(f"/messages/{LONG_NAME}", plain), b" 400 "),
        ("a bad pattern", push("/messages?qre=(", plain), b" 400 "),
        ("copies into a full queue", push("/messages?qre=%5Efull$", plain), b'"error":"full"'),
        ("an unknown reply", push("/messages/free/no-id?reply=ack", plain), b" 404 "),
        ("a bad argument", push("/messages/full?wait=no-number", plain), b"HTTP/1.1 "),
        ("bad properties", _http("PATCH", "/properties/free", plain, _JSON), b" 400 "),
        ("bad rules", _http("PUT", "/properties", plain, _JSON), b" 400 "),
        ("v1: full", push(_v1("messages", "full"), _batch), b'"full"'),
        ("v1: stored in part", push(_v1("messages", "narrow"), _batch), b"HTTP/1.1 "),
        ("v1: too large", push(_v1("messages", "small"), _batch), b'"too_large"'),
        ("v1: no JSON", push(_v1("messages", "free"), lambda target: _batch(target)[:-1]), b'"bad_request"'),
        ("v1: no base64", push(_v1("messages", "free"), _bad_base64), b'"bad_request"'),
        ("v1: no message", push(_v1("messages", "free"), _bad_member), b'"bad_request"'),
        ("v1: a bad name", push(_v1("messages", LONG_NAME), _batch), b'"bad_name"'),
        ("v1: a key of a message used before", push(_v1("messages", "keyed"), _keyed_batch), b'"key_reused"'),
        ("v1: ids of no lease", push(_v1("ack", "free"), _bad_ids), b'"bad_request"'),
        ("v1: no session", push("/v1/sessions/no-session/renew", plain), b"HTTP/1.1 "),
        ("transaction: full", push("/v1/transactions", _operations(queue="full")), b'"full"'),
        ("transaction: too large", push("/v1/transactions", _operations(queue="small")), b'"too_large"'),
        ("transaction: lease lost", push("/v1/transactions", _operations(_NO_LEASE)), b'"lease_lost"'),
        ("transaction: a repetition", push("/v1/transactions", _operations(_NO_LEASE), key), b'"lease_lost"'),
        ("transaction: no operation", push("/v1/transactions", _operations({"op": "sing"})), b'"bad_request"'),
        ("transaction: key reused", push("/v1/transactions", _operations(queue="keyed"), key), b"HTTP/1.1 "),
        ("no resource", push("/v1/no-such-thing", plain), b" 404 "),
        ("no method", _http("PUT", "/v1/transactions", plain), b" 405 "),
        ("another host", push("/messages/free", plain, host="evil.example"), b" 421 "),
        ("another origin", push("/messages/free", plain, {"Origin": "http://evil.example"}), b" 403 "),
        ("a broken chunk", _chunked("/messages/free", _broken_chunk), b" 400 "),
        ("a large head", lines("http", _endless_head), b" 431 "),
    ):
        yield Kind("http", name, send, says)


def _endless_head(target: Target) -> bytes:
    head = f"GET /livez HTTP/1.1\r\nHost: {target.addresses['http']}\r\n"
    return head.encode() + b"".join(b"X-%d: %b\r\n" % (number, b"v" * 4000) for number in range(20))


def _bad_base64(target: Target) -> bytes:
    encoded = base64.b64encode(plain(target)).decode()
    return json.dumps({"messages": [{"content": {"base64": encoded[:-1] + "!"}}]}).encode()


def _bad_member(target: Target) -> bytes:
    return json.dumps({"messages": [{"content": _text(target), "priority": "high"}]}).encode()


def _keyed_batch(target: Target) -> bytes:
    return _keyed(plain(target))


def _bad_ids(target: Target) -> bytes:
    return json.dumps({"ids": [_text(target)]}).encode()


# --- queued's port
# --------------------------------------------------------------------------------------------------------


def _queued_push(target: Target) -> bytes:
    return json.dumps({"messages": [{"contents": _text(target), "visibility_timeout_secs": 0}]}).encode()


def _queued_bad(target: Target) -> bytes:
    return json.dumps({"messages": [{"contents": _text(target), "visibility_timeout_secs": "soon"}]}).encode()


def _queued_kinds() -> Iterator[Kind]:
    def push(queue: str, body: Data, headers: Mapping[str, str] | None = None) -> Any:
        fields = {"Content-Type": "application/json", **(headers or {})}
        return _http("POST", f"/queue/{queue}/messages/push", body, fields, port="queued")

    for name, send, says in (
        ("full", push("full", _queued_push), b"HTTP/1.1 "),
        ("too large", push("small", _queued_push), b"HTTP/1.1 "),
        ("no JSON", push("free", lambda target: _queued_push(target)[:-1]), b" 400 "),
        ("a bad member", push("free", _queued_bad), b" 400 "),
        ("a key used before", push("full", _queued_push, {"Idempotency-Key": "k" * 250}), b" 400 "),
        ("a bad name", push(LONG_NAME, _queued_push), b" 400 "),
        ("no route", _http("POST", "/queue/free/sing", plain, port="queued"), b" 404 "),
        (
            "another host",
            _http("POST", "/queue/free/messages/push", plain, port="queued", host="evil.example"),
            b" 421 ",
        ),
        ("a broken chunk", _chunked("/queue/free/messages/push", _broken_chunk, "queued"), b" 400 "),
    ):
        yield Kind("queued", name, send, says)


# --- MessagePack-RPC
# ------------------------------------------------------------------------------------------------------


def _rpc(*calls: Callable[[Target], tuple[Any, ...]]) -> Send:
    """Send calls whose answers are read together."""

    def send(target: Target, _says: bytes) -> bytes:
        auth = [request(0, "auth", target.secret)] if target.secret else []
        data = b"".join([*auth, *(request(number, *one(target)) for number, one in enumerate(calls, 1))])
        return _answers(target.addresses["rpc"], data, len(auth) + len(calls))

    return send


def _answers(address: str, data: bytes, count: int) -> bytes:
    with connect(address, TIMEOUT_S) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        unpacker, pieces, seen = msgpack.Unpacker(raw=True, max_buffer_size=0), [], 0
        with contextlib.suppress(ConnectionError):
            while seen < count and (piece := sock.recv(1 << 16)):
                pieces.append(piece)
                unpacker.feed(piece)
                seen += sum(1 for _ in unpacker)
        return b"".join(pieces)


def _contents(target: Target, count: int = 8) -> list[bytes]:
    return [b"x" * (target.size // count)] * count


def _rpc_kinds() -> Iterator[Kind]:
    def push_many(queue: object, *more: Any) -> Callable[[Target], tuple[Any, ...]]:
        return lambda target: ("push_many", queue, _contents(target), *more)

    def push(queue: object, *more: Any) -> Callable[[Target], tuple[Any, ...]]:
        return lambda target: ("push", queue, plain(target), *more)

    def transaction(*operations: Any, **options: Any) -> Callable[[Target], tuple[Any, ...]]:
        more = [options] if options else []
        return lambda target: ("transaction", [["push", operations[0], plain(target)], *operations[1:]], *more)

    no_lease = ["done", "free", "00000000-0000-0000-0000-000000000000"]
    for name, send, says in (
        ("full", _rpc(push_many("full")), b"full: "),
        ("full, with options", _rpc(push_many("full", {"options": [{"priority": 1}] * 8})), b"full: "),
        ("too large", _rpc(push_many("small")), b"too_large: "),
        ("one message, full", _rpc(push("full")), b"full: "),
        ("one message with a key, full", _rpc(push("full", {"key": "k"})), b"full: "),
        ("one message with a priority, full", _rpc(push("full", {"priority": 1})), b"full: "),
        ("one message that waits, full", _rpc(push("full", {"wait": 0.02})), b"full: "),
        (
            "a key used before",
            _rpc(push_many("keyed", {"keys": ["used", *["new"] * 7], "sequence": True})),
            b"key_reused: ",
        ),
        ("stored in part", _rpc(push_many("narrow")), b""),
        ("copies into a full queue", _rpc(lambda target: ("push_all", "^full$", plain(target))), b"full: "),
        ("a bad pattern", _rpc(lambda target: ("push_all", "(", plain(target))), b"throw:invalid_regexp"),
        ("each, full", _rpc(lambda target: ("push_each", [["full", plain(target)]])), b""),
        ("a bad name", _rpc(push_many(LONG_NAME)), b"bad_name: "),
        ("bad options", _rpc(push_many("free", {"sing": 1})), b"function_clause"),
        ("bad keys", _rpc(push_many("free", {"keys": 1})), b"function_clause"),
        ("a bad queue", _rpc(push_many(7)), b"function_clause"),
        ("no method", _rpc(lambda target: ("sing", _contents(target))), b"undef"),
        ("too many arguments", _rpc(lambda target: ("pull", "free", 1, {}, plain(target))), b""),
        ("a bad id", _rpc(lambda target: ("done", "free", plain(target))), b""),
        ("transaction: full", _rpc(transaction("full")), b"full: "),
        ("transaction: too large", _rpc(transaction("small")), b"too_large: "),
        ("transaction: lease lost", _rpc(transaction("free", no_lease)), b"lease_lost: "),
        ("transaction: a repetition", _rpc(transaction("free", no_lease, again=True)), b""),
        ("transaction: no operation", _rpc(transaction("free", ["sing"])), b""),
        ("a producer's pushes behind a refused one", _rpc(*_producer()), b""),
        ("bad properties", _rpc(lambda target: ("update_props", "free", {"no": plain(target)})), b""),
        ("bad rules", _rpc(lambda target: ("set_default_props", [["(", {"no": plain(target)}]])), b""),
        ("a wrong token", _rpc(lambda target: ("auth", plain(target))), b""),
        ("no MessagePack", lines("rpc", _rpc_garbage), b""),
        ("larger than the node takes", lines("rpc", _rpc_endless), b""),
    ):
        yield Kind("rpc", name, send, says)


def _producer() -> list[Callable[[Target], tuple[Any, ...]]]:
    return [
        lambda _target: ("producer", "a producer of refusals", 1),
        lambda target: ("push_many", LONG_NAME, _contents(target)),
        lambda target: ("push_many", "full", _contents(target)),
    ]


def _rpc_garbage(target: Target) -> bytes:
    return request(1, "push", "full", plain(target)) + b"\xc1" * 100


def _rpc_endless(target: Target) -> bytes:
    return b"\x94\x00\x01\xa4push\x92\xa1q\xc6" + struct.pack("!I", 1 << 31) + plain(target)


# --- Kestrel's ports
# ------------------------------------------------------------------------------------------------------


def _set(queue: str, expiry: int = 0, line: bytes = b"") -> Data:
    head = line or b"set %b 0 %d %%d\r\n" % (queue.encode(), expiry)
    return lambda target: head % target.size + plain(target) + b"\r\n"


def _put(queue: str, items: int = 1, ttl: str = "") -> Data:
    def data(target: Target) -> bytes:
        item = b"x" * (target.size // items) + b"\n"
        return f"put {queue}{ttl}:\n".encode() + item * items + b"\n"

    return data


def thrift_call(method: bytes, arguments: bytes) -> bytes:
    """Return a framed Thrift call."""
    message = b"\x80\1\0\1" + struct.pack("!i", len(method)) + method + struct.pack("!i", 1) + arguments
    return struct.pack("!i", len(message)) + message


def _thrift_put(queue: str, method: bytes = b"put", items: int = 2) -> Data:
    def data(target: Target) -> bytes:
        name = b"\x0b\0\1" + struct.pack("!i", len(queue)) + queue.encode()
        item = b"x" * (target.size // items)
        put = b"\x0f\0\2\x0b" + struct.pack("!i", items) + (struct.pack("!i", len(item)) + item) * items
        return thrift_call(method, name + put + b"\0")

    return data


def _kestrel_kinds() -> Iterator[Kind]:
    endless = b"\xff" * 8
    for port, name, data, says in (
        ("memcache", "full", _set("full"), b"NOT_STORED"),
        ("memcache", "full, with an expiry", _set("full", 1000), b"NOT_STORED"),
        ("memcache", "too large for the queue", _set("small"), b"NOT_STORED"),
        ("memcache", "a bad name", _set("a~b"), b"_ERROR "),
        ("memcache", "bad flags", _set("", line=b"set free high 0 %d\r\n"), b"_ERROR "),
        ("memcache", "a bad expiry", _set("", line=b"set free 0 soon %d\r\n"), b"_ERROR "),
        ("memcache", "larger than the node takes", lambda t: b"set free 0 0 2147483647\r\n" + plain(t), b"_ERROR "),
        ("memcache", "no such command", _set("", line=b"cas free 0 0 %d\r\n"), b"_ERROR "),
        ("memcache", "a line without end", plain, b""),
        ("memcache", "many, of which the last is refused", lambda t: _set("full")(t) + b"sing\r\n", b"_ERROR "),
        ("text", "full", _put("full", 4), b"+0"),
        ("text", "full, with an expiry", _put("full", 4, " 1000"), b"+0"),
        ("text", "too large for the queue", _put("small"), b"+0"),
        ("text", "a bad name", _put("a~b"), b"-"),
        ("text", "a bad expiry", _put("free", 1, " soon"), b"-"),
        ("text", "no such command", lambda t: b"sing:\n" + plain(t) + b"\n\n", b"-"),
        ("text", "a line without end", plain, b""),
        ("thrift", "full", _thrift_put("full"), b""),
        ("thrift", "too large for the queue", _thrift_put("small"), b""),
        ("thrift", "a bad name", _thrift_put("a~b"), b"bad_name"),
        ("thrift", "no such method", _thrift_put("full", b"sing"), b"no method"),
        ("thrift", "no call", lambda t: struct.pack("!i", t.size) + plain(t), b""),
        ("thrift", "a broken call", _broken_call, b"bad_request"),
        ("thrift", "larger than the node takes", lambda t: struct.pack("!i", 1 << 30) + plain(t), b""),
        ("thrift", "no size", lambda t: endless + plain(t), b""),
    ):
        yield Kind(port, name, lines(port, data), says)


def _broken_call(target: Target) -> bytes:
    return thrift_call(b"put", b"\x0b\0\1" + struct.pack("!i", target.size + 5) + plain(target))


# --- connections that break
# ---------------------------------------------------------------------------------------------


def _half(port: str, data: Data, *, reset: bool) -> Send:
    """Send three quarters of a request, and close once the node has read it."""

    def send(target: Target, _says: bytes) -> bytes:
        whole = data(target)
        with connect(target.addresses[port], TIMEOUT_S) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(whole[: len(whole) * 3 // 4])
                _wait_taken(sock)
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return b""

    return send


_SIOCOUTQ = 0x5411


def _wait_taken(sock: socket.socket) -> None:
    """Wait until the node's machine has confirmed the data, or the node has closed the connection."""

    def is_taken() -> bool:
        if struct.unpack("i", fcntl.ioctl(sock, _SIOCOUTQ, b"\0\0\0\0"))[0] == 0:
            return True
        try:
            return sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False

    sock.setblocking(False)
    with contextlib.suppress(ConnectionError):
        wait_for(is_taken, "the sent data is confirmed", TIMEOUT_S)


def _post(path: str, body: Data, port: str) -> Data:
    def data(target: Target) -> bytes:
        content = body(target)
        head = f"POST {path} HTTP/1.1\r\nHost: {target.addresses[port]}\r\nContent-Length: {len(content)}\r\n\r\n"
        return head.encode() + content

    return data


def _posted_chunk(target: Target) -> bytes:
    head = f"POST /messages/free HTTP/1.1\r\nHost: {target.addresses['http']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + b"%x\r\n" % target.size + plain(target)


def _rpc_push(target: Target) -> bytes:
    return request(1, "push_many", "free", _contents(target))


def _small_head(target: Target) -> bytes:
    head = f"GET /livez HTTP/1.1\r\nHost: {target.addresses['http']}\r\n"
    return head.encode() + b"".join(b"X-%d: %b\r\n" % (number, b"v" * 4000) for number in range(8))


def _of_a_peer(*, in_pieces: bool) -> Send:
    """Send most of a large message as a peer that knows the secret, and close."""

    def send(target: Target, _says: bytes) -> bytes:
        with Stranger(target.addresses["raft"], CLUSTER_SECRET.encode()) as peer:
            assert peer.prove()
            part = messages.encode({"type": "part", "data": b"x" * (target.size // 8)})
            if in_pieces:
                for _ in range(8):
                    peer.send(part)
            else:
                frame = peer.frame(part)
                peer.socket.sendall(frame[: len(frame) * 3 // 4])
            _wait_taken(peer.socket)
        return b""

    return send


def _broken_kinds() -> Iterator[Kind]:
    for port, name, data in (
        ("http", "a body", _post("/messages/free", plain, "http")),
        ("http", "a JSON body", _post(_v1("messages", "free"), _batch, "http")),
        ("http", "a chunk", _posted_chunk),
        ("http", "a head", _small_head),
        ("queued", "a body", _post("/queue/free/messages/push", _queued_push, "queued")),
        ("rpc", "a request", _rpc_push),
        ("memcache", "a put", _set("free")),
        ("memcache", "a put behind others", lambda t: b"get none\r\n" * 20 + _set("free")(t)),
        ("text", "a put", _put("free")),
        ("text", "a put of many items", _put("free", 64)),
        ("thrift", "a put", _thrift_put("free")),
        ("raft", "a handshake", lambda _target: b"\0\0\x0f\xff" + b"x" * 4000),
        ("raft", "garbage", plain),
    ):
        for reset in (False, True):
            yield Kind(port, f"{name}, {'reset' if reset else 'closed'}", _half(port, data, reset=reset))
    yield Kind("raft", "a frame of a peer", _of_a_peer(in_pieces=False))
    yield Kind("raft", "a message of a peer in pieces", _of_a_peer(in_pieces=True))


# --- without permission
# -------------------------------------------------------------------------------------------------


def _without_secret(send: Send) -> Send:
    return lambda target, says: send(Target(target.addresses, target.size), says)


def _forbidden_kinds() -> Iterator[Kind]:
    """Yield requests for a node with tokens; clients of Kestrel's ports have a principal without access to
    these queues.
    """
    push = _http("POST", "/messages/free", plain)
    batch = _http("POST", _v1("messages", "free"), _batch)
    queued = _http("POST", "/queue/free/messages/push", _queued_push, port="queued")
    rpc = _rpc(lambda target: ("push_many", "free", _contents(target)))
    for port, name, send, says in (
        ("http", "no token", _without_secret(push), b" 401 "),
        ("http", "a wrong token", _http("POST", "/messages/free", plain, {"Authorization": "Bearer no"}), b" 401 "),
        ("http", "another's queue", push, b" 403 "),
        ("http", "v1: another's queue", batch, b" 403 "),
        ("http", "transaction: another's queue", _http("POST", "/v1/transactions", _operations()), b" 403 "),
        ("queued", "no token", _without_secret(queued), b" 401 "),
        ("queued", "another's queue", queued, b" 401 "),
        ("rpc", "no token", _without_secret(rpc), b""),
        ("rpc", "another's queue", rpc, b"forbidden: "),
        ("memcache", "another's queue", lines("memcache", _set("free")), b"forbidden"),
        ("text", "another's queue", lines("text", _put("free")), b"-"),
        ("thrift", "another's queue", lines("thrift", _thrift_put("free")), b"forbidden"),
    ):
        yield Kind(port, name, send, says)


def _late_kinds() -> Iterator[Kind]:
    """Yield requests for a node that accepts no more requests."""
    for port, name, send in (
        ("http", "late", _http("POST", "/messages/free", plain)),
        ("http", "v1: late", _http("POST", _v1("messages", "free"), _batch)),
        ("http", "transaction: late", _http("POST", "/v1/transactions", _operations())),
        ("queued", "late", _http("POST", "/queue/free/messages/push", _queued_push, port="queued")),
        ("rpc", "late", _rpc(*[lambda target: ("push_many", "free", _contents(target))] * 3)),
        ("rpc", "one message, late", _rpc(lambda target: ("push", "free", plain(target)))),
        ("rpc", "transaction, late", _rpc(lambda target: ("transaction", [["push", "free", plain(target)]]))),
        ("memcache", "late", lines("memcache", _set("free"))),
        ("memcache", "late, with an expiry", lines("memcache", _set("free", 1000))),
        ("text", "late", lines("text", _put("free"))),
        ("thrift", "late", lines("thrift", _thrift_put("free"))),
    ):
        yield Kind(port, name, send)


REFUSALS = (*_http_kinds(), *_queued_kinds(), *sqs_kinds(), *_rpc_kinds(), *_kestrel_kinds())
BROKEN = tuple(_broken_kinds())
FORBIDDEN = tuple(_forbidden_kinds())
LATE = tuple(_late_kinds())
