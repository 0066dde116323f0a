"""Messages of the largest size on every port: unchanged through any node, refused above the limit, bounded
when half sent.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import socket
import struct
from collections.abc import Callable, Iterator

import msgpack
import pytest

from lmqcluster import Client
from lmqcluster.wire.limits import MESSAGE_BYTES_MAX

from .bad_input import MIB, bounded_memory, open_idle, pour, unharmed
from .cluster import Cluster, NodeProcess
from .elections import assert_no_election
from .kestrel_ports import Lines, address_of, with_kestrel_ports
from .raw_http import Connection
from .raw_rpc import Rpc, old

BODY = random.Random(1).randbytes(MESSAGE_BYTES_MAX)
TIMEOUT_S = 120.0
HALF_SENT = 24
HALF_BYTES = 60
CLIENTS_BYTES_MAX = 512 * MIB
"""The maximum for clients on the largest machines."""
NODE_BYTES = 150 * MIB
"""Memory that a node may need besides, to serve others."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_kestrel_ports(Cluster(3, directory=tmp_path_factory.mktemp("largest"))) as cluster:
        yield cluster


@contextlib.contextmanager
def http(node: NodeProcess) -> Iterator[Connection]:
    with Connection(node.http) as connection:
        connection.socket.settimeout(TIMEOUT_S)
        yield connection


def push_http(node: NodeProcess, queue: str, body: bytes) -> int:
    with http(node) as connection:
        return connection.call("POST", f"/messages/{queue}", body).status


def push_json(node: NodeProcess, queue: str, body: bytes) -> int:
    content = json.dumps({"messages": [{"content": {"base64": base64.b64encode(body).decode()}}]}).encode()
    with http(node) as connection:
        headers = {"Content-Type": "application/json"}
        return connection.call("POST", f"/v1/queues/{queue}/messages", content, headers).status


def push_packed(node: NodeProcess, queue: str, body: bytes) -> int:
    content = msgpack.packb({"messages": [{"content": body}]})
    with http(node) as connection:
        headers = {"Content-Type": "application/x-msgpack"}
        return connection.call("POST", f"/v1/queues/{queue}/messages", content, headers).status


def push_rpc(node: NodeProcess, queue: str, body: bytes) -> int:
    with Rpc(node.rpc, timeout_s=TIMEOUT_S) as rpc:
        if len(body) <= MESSAGE_BYTES_MAX:
            assert rpc.call("push", queue, body) == b"ok"
            return 200
        assert rpc.error("push", queue, body).startswith(b"too_large: ")
        # The connection stays open.
        assert rpc.call("ping") == b"pong"
        return 413


PUSHES = pytest.mark.parametrize("push", [push_http, push_json, push_packed, push_rpc])


@PUSHES
def test_the_largest_message_passes_through_any_node_unchanged(
    nodes: Cluster, queue_name: str, push: Callable[[NodeProcess, str, bytes], int]
) -> None:
    """Nacked through one node, it is redelivered through another; there is no election."""

    def step() -> None:
        follower, other = nodes.followers()
        assert push(follower, queue_name, BODY) == 200
        for node, settle in ((nodes.leader(), "nack"), (other, "ack")):
            with Client(node.rpc) as client:
                message = client.pull(queue_name, timeout=TIMEOUT_S)
                assert message is not None
                assert message.content == BODY
                getattr(message, settle)()

    assert_no_election(nodes, step)


@PUSHES
def test_one_byte_more_is_refused_and_nothing_breaks(
    nodes: Cluster, queue_name: str, push: Callable[[NodeProcess, str, bytes], int]
) -> None:

    def step() -> None:
        assert push(nodes.followers()[0], queue_name, BODY + b"x") == 413

    assert_no_election(nodes, step)
    with Client(nodes[0].rpc) as client:
        assert client.pull(queue_name, timeout=0) is None


def test_a_batch_of_100_mib_goes_in_one_request(nodes: Cluster, queue_name: str) -> None:
    body = BODY[:MIB]

    def step() -> None:
        with Rpc(nodes.followers()[0].rpc, timeout_s=TIMEOUT_S) as rpc:
            assert rpc.call("push_many", queue_name, [body] * 100) == [b"ok"] * 100
        with Client(nodes.leader().rpc) as client:
            assert [message.content for message in client.pull_many(queue_name, 16)] == [body] * 16
            assert client.backlog(queue=queue_name).messages >= 84

    assert_no_election(nodes, step)


def test_kestrels_clients_send_and_get_the_largest_item(nodes: Cluster, queue_name: str) -> None:
    follower, other = nodes.followers()
    name = queue_name.encode()
    with Lines(follower) as client:
        client.send(b"set %b 0 0 %d\r\n" % (name, len(BODY)) + BODY + b"\r\n")
        client.expect(b"STORED\r\n")
        client.send(b"set %b 0 0 %d\r\n" % (name, len(BODY) + 1))
        assert b"ERROR" in client.until(b"\r\n")
    with Lines(other) as client:
        client.send(b"get %b/t=60000\r\n" % name)
        client.expect(b"VALUE %b 0 %d\r\n" % (name, len(BODY)))
        assert client.read(len(BODY)) == BODY
        client.expect(b"\r\nEND\r\n")


def test_the_text_protocol_takes_the_largest_items(nodes: Cluster, queue_name: str) -> None:
    """Two in one request, after and before small ones, unchanged and in order. An item ends with its line."""
    name, large = queue_name.encode(), BODY.replace(b"\n", b"x")
    items = [b"small", large[: 40 * MIB], large[40 * MIB :], b"last", large]
    with Lines(nodes.followers()[0], "text") as client:
        for request in (items[:4], items[4:]):
            client.send(b"put %b:\n" % name + b"\n".join(request) + b"\n\n")
            client.expect(b"+%d\n" % len(request))
        for item in items:
            client.send(b"get %b 60000\n" % name)
            client.expect(b":" + item + b"\n")
        client.send(b"put %b:\n" % name + large + b"x\n\n")
        assert b"too_large" in client.until(b"\n")


def answer_of(sock: socket.socket) -> bytes:
    """Return the received data of a connection, without waiting."""
    sock.setblocking(False)
    try:
        return sock.recv(1000)
    except (BlockingIOError, ConnectionResetError):
        return b""


def start_rpc(_node: NodeProcess) -> bytes:
    return b"\x94\x00\x05\xa4push\x92" + old("q") + b"\xdb" + MESSAGE_BYTES_MAX.to_bytes(4, "big")


def start_http(node: NodeProcess) -> bytes:
    return b"POST /messages/q HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n\r\n" % (
        node.http.encode(),
        MESSAGE_BYTES_MAX,
    )


def start_memcache(_node: NodeProcess) -> bytes:
    return b"set q 0 0 %d\r\n" % MESSAGE_BYTES_MAX


def start_text(_node: NodeProcess) -> bytes:
    return b"put q:\n"


def start_thrift(_node: NodeProcess) -> bytes:
    method, name = b"put", b"q"
    head = b"\x80\1\0\1" + struct.pack("!i", len(method)) + method + struct.pack("!i", 1)
    head += b"\x0b\0\1" + struct.pack("!i", len(name)) + name + b"\x0f\0\2\x0b"
    head += struct.pack("!ii", 1, MESSAGE_BYTES_MAX)
    return struct.pack("!i", len(head) + MESSAGE_BYTES_MAX + 1) + head


@pytest.mark.parametrize(
    ("port", "start"),
    [
        ("rpc", start_rpc),
        ("http", start_http),
        ("memcache", start_memcache),
        ("text", start_text),
        ("thrift", start_thrift),
    ],
)
def test_many_half_sent_messages_are_bounded_together(
    nodes: Cluster, port: str, start: Callable[[NodeProcess], bytes]
) -> None:
    """24 connections with 60 MiB each, 1.4 GiB together: most get an error for lack of room, and other
    clients are served.
    """
    victim = nodes.followers()[0]
    # In the text protocol an item ends with its line.
    block = BODY[:MIB].replace(b"\n", b"x")
    address = {"rpc": victim.rpc, "http": victim.http}.get(port) or ":".join(map(str, address_of(victim, port)))
    with (
        unharmed(nodes) as canary,
        bounded_memory(nodes.nodes, CLIENTS_BYTES_MAX + NODE_BYTES),
        open_idle(address, HALF_SENT, lambda _number: start(victim)) as sockets,
    ):
        sent = 0
        for _ in range(HALF_BYTES):
            for sock in sockets:
                sent += pour(sock, block, MIB)
        canary.check()
        overloaded = [sock for sock in sockets if b"overload" in answer_of(sock).lower()]
        # A protocol without a suitable answer closes the connection.
        assert overloaded or sent < HALF_SENT * HALF_BYTES * MIB
