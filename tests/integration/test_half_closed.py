"""Clients that shut down their sending side get their answers; clients that have closed get no message."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import msgpack
import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, fetch, wait_for
from .kestrel_ports import PROTOCOLS, address_of, with_kestrel_ports
from .queued_http import QueuedHttp
from .raw_http import call
from .raw_rpc import request

TIMEOUT_S = 60
TEXT = {"content-type": "text/plain"}
HTTP = "HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(scope="module")
def asked() -> Iterator[NodeProcess]:
    with with_kestrel_ports(Cluster(1)) as cluster:
        yield cluster[0]


class Shut:
    """A client that has sent `data` and shut down its sending side."""

    def __init__(self, address: tuple[str, int], data: bytes) -> None:
        self.sock = socket.create_connection(address, TIMEOUT_S)
        self.sock.sendall(data)
        self.sock.shutdown(socket.SHUT_WR)

    def answer(self) -> bytes:
        """Return everything received until the node closes the connection."""
        with self.sock:
            return b"".join(iter(lambda: self.sock.recv(65536), b""))


def http(node: NodeProcess) -> tuple[str, int]:
    host, port = node.http.rsplit(":", 1)
    return host, int(port)


def rpc(node: NodeProcess) -> tuple[str, int]:
    host, port = node.rpc.rsplit(":", 1)
    return host, int(port)


def queued(node: NodeProcess) -> tuple[str, int]:
    host, port = node.queued.rsplit(":", 1)
    return host, int(port)


def thrift_call(method: str, fields: bytes) -> bytes:
    name = method.encode()
    body = b"\x80\x01\x00\x01" + len(name).to_bytes(4, "big") + name + b"\x00\x00\x00\x01" + fields + b"\x00"
    return len(body).to_bytes(4, "big") + body


def thrift_get(queue: str, abort_ms: int) -> bytes:
    name = queue.encode()
    fields = b"\x0b\x00\x01" + len(name).to_bytes(4, "big") + name
    for number, value in ((2, 1), (3, 60_000), (4, abort_ms)):
        fields += b"\x08" + number.to_bytes(2, "big") + value.to_bytes(4, "big")
    return thrift_call("get", fields)


def pull_body(queue: str, more: str) -> bytes:
    body = b'{"max": 1, "timeout": 60%s}' % more.encode()
    return f"POST /v1/queues/{queue}/pull {HTTP}content-length: {len(body)}\r\n\r\n".encode() + body


WAITING: dict[str, Callable[[NodeProcess, str], tuple[tuple[str, int], bytes]]] = {
    "http": lambda node, queue: (http(node), f"GET /messages/{queue}?t=60 {HTTP}\r\n".encode()),
    "v1": lambda node, queue: (http(node), pull_body(queue, "")),
    "v1 auto_ack": lambda node, queue: (http(node), pull_body(queue, ', "auto_ack": true')),
    "rpc": lambda node, queue: (rpc(node), request(7, "pull", queue, 60)),
    "rpc auto_ack": lambda node, queue: (rpc(node), request(7, "pull", queue, 60, {"auto_ack": True})),
    "rpc pull_any": lambda node, queue: (rpc(node), request(7, "pull_any", f"^{queue}$", 60)),
    "memcache": lambda node, queue: (address_of(node, "memcache"), f"get {queue}/t=60000\r\n".encode()),
    "memcache open": lambda node, queue: (address_of(node, "memcache"), f"get {queue}/t=60000/open\r\n".encode()),
    "text": lambda node, queue: (address_of(node, "text"), f"get {queue} 60000\n".encode()),
}
if "thrift" in PROTOCOLS:
    WAITING["thrift"] = lambda node, queue: (address_of(node, "thrift"), thrift_get(queue, 0))
    WAITING["thrift timed"] = lambda node, queue: (address_of(node, "thrift"), thrift_get(queue, 600_000))


def metric(node: NodeProcess, name: str) -> int:
    _status, body = fetch(node.http, "/metrics", timeout_s=60)
    (line,) = [line for line in body.decode().splitlines() if line.startswith(f"{name} ")]
    return int(float(line.split()[1]))


def waiters(node: NodeProcess) -> int:
    return metric(node, "lmq_waiters")


def operations(node: NodeProcess) -> int:
    return metric(node, "lmq_operations_total")


def counts(node: NodeProcess, queue: str) -> tuple[int, int]:
    state = node.get_json(f"/v1/queues/{queue}")
    return state["ready"], state["leased"]


@pytest.mark.parametrize("kind", WAITING)
def test_a_waiting_client_gets_a_message(asked: NodeProcess, queue_name: str, kind: str) -> None:
    with Client(asked.rpc) as client:
        client.push(queue_name, "x")
        client.purge(queue_name)
        shut = Shut(*WAITING[kind](asked, queue_name))
        wait_for(lambda: waiters(asked) == 1, "the get to wait")
        assert call(asked.http, "POST", f"/messages/{queue_name}", b"the content", TEXT).status == 200
        answer = shut.answer()
        assert answer.count(b"the content") == 1
        if kind.startswith(("http", "v1")):
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        elif kind.startswith("rpc"):
            assert msgpack.unpackb(answer, raw=True)[:3] == [1, 7, None]
        elif kind.startswith("memcache"):
            assert answer == b"VALUE %b 0 11\r\nthe content\r\nEND\r\n" % queue_name.encode()
        if kind in ("v1 auto_ack", "rpc auto_ack", "memcache", "thrift"):
            wait_for(lambda: counts(asked, queue_name) == (0, 0), "the message to be settled")


@pytest.mark.parametrize("kind", [kind for kind in WAITING if not kind.startswith(("memcache", "text", "thrift"))])
def test_the_wait_of_a_half_closed_client_ends_with_the_client(asked: NodeProcess, queue_name: str, kind: str) -> None:
    """The client's host has acknowledged the start of the answer before the client closes."""
    with Client(asked.rpc) as client:
        client.push(queue_name, "x")
        client.purge(queue_name)
    shut = Shut(*WAITING[kind](asked, queue_name))
    assert shut.sock.recv(1, socket.MSG_PEEK)
    wait_for(lambda: waiters(asked) == 1, "the pull to wait")
    shut.sock.close()
    # Otherwise it would end after 60 seconds.
    wait_for(lambda: waiters(asked) == 0, "the wait to end", timeout_s=TIMEOUT_S / 2)


@pytest.mark.parametrize("kind", WAITING)
def test_a_closed_client_gets_none(asked: NodeProcess, queue_name: str, kind: str) -> None:
    """Its close tells the node at first only that it sends nothing more."""
    with Client(asked.rpc) as client:
        client.push(queue_name, "x")
        client.purge(queue_name)
        before = operations(asked)
        Shut(*WAITING[kind](asked, queue_name)).sock.close()
        # A pull that finds a message ready may have acknowledged it before the node knows of the close.
        wait_for(lambda: operations(asked) > before, "the pull to begin")
        if not kind.startswith(("memcache", "text", "thrift")):
            wait_for(lambda: waiters(asked) == 0, "the wait to end")
        assert call(asked.http, "POST", f"/messages/{queue_name}", b"the content", TEXT).status == 200
        message = client.pull(queue_name, timeout=TIMEOUT_S)
        assert message is not None
        # The message was not delivered before, or has been returned.
        assert message.content == b"the content"
        message.ack()
        wait_for(lambda: waiters(asked) == 0, "the wait to end")


def test_requests_that_do_not_wait(asked: NodeProcess, queue_name: str) -> None:
    post = f"POST /messages/{queue_name} {HTTP}content-length: 1\r\n\r\nx".encode()
    answer = Shut(http(asked), post * 3).answer()
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 3
    answer = Shut(rpc(asked), b"".join(request(number, "push", queue_name, "x") for number in range(3_000))).answer()
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(answer)
    assert [reply[2:] for reply in unpacker] == [[None, b"ok"]] * 3_000
    operations = [["push", queue_name, "x"]]
    answer = Shut(rpc(asked), b"".join(request(number, "transaction", operations) for number in range(200))).answer()
    unpacker.feed(answer)
    assert [reply[2] for reply in unpacker] == [None] * 200
    assert (
        Shut(address_of(asked, "memcache"), f"set {queue_name} 0 0 1\r\nx\r\n".encode() * 3).answer()
        == b"STORED\r\n" * 3
    )
    assert Shut(address_of(asked, "text"), f"put {queue_name}:\nx\n\n".encode()).answer() == b"+1\n"
    queue = QueuedHttp(asked.queued)
    queue("PUT", f"/queue/{queue_name}")
    body = b'{"messages": [{"contents": "x", "visibility_timeout_secs": 0}]}'
    ask = f"POST /queue/{queue_name}/messages/push {HTTP}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    assert Shut(queued(asked), ask.encode() + body).answer().startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_unfinished_request_is_dropped(asked: NodeProcess, queue_name: str) -> None:
    assert Shut(http(asked), f"POST /messages/{queue_name} {HTTP}content-length: 9\r\n\r\nx".encode()).answer() == b""
    assert Shut(rpc(asked), request(1, "push", queue_name, "x")[:-1]).answer() == b""
    assert Shut(address_of(asked, "memcache"), f"set {queue_name} 0 0 9\r\nx".encode()).answer() == b""


def test_a_client_without_requests_is_closed(asked: NodeProcess) -> None:
    """The end may arrive before the node reads requests. Such a connection was kept as long as an idle one."""
    with socket.create_connection(http(asked), TIMEOUT_S) as idle:
        idle.sendall(f"GET /livez {HTTP}\r\n".encode())
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 OK\r\n")
        for shut in [Shut(address, b"") for address in (http(asked), queued(asked)) for _ in range(40)]:
            assert shut.answer() == b""
        idle.setblocking(False)
        with pytest.raises(BlockingIOError):
            idle.recv(1)
