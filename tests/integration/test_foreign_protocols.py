"""Requests that a browser can be made to send to a port without a web server: no port mistakes them for its own.

A page chooses the body of a POST, and after DNS rebinding the method too; with TLS to an address of its choice a
session ticket, and with TURN a user name. But it never chooses the first bytes of the connection.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import msgpack
import pytest
from lmqcluster_cli.lmq.local_cluster import PORTS

from .bad_input import connect, end_of
from .cluster import NodeProcess, ports, wait_for
from .kestrel_ports import PROTOCOLS, Lines, address_of
from .raw_http import call
from .test_kestrel_security import call as thrift_call
from .test_kestrel_security import put_of

KEPT = "kept"
THRIFT_DELETE = thrift_call(b"delete_queue", b"\x0b\0\1\0\0\0\4kept\0")
COMMANDS = {
    "memcache": b"\r\nset web 0 0 1\r\nx\r\nget kept\r\ndelete kept\r\nstatus readonly\r\n",
    "text": b"\nput web:\nx\n\nget kept\nconfirm kept 1\nflush kept\ndelete kept\nstatus readonly\n",
    "thrift": put_of(b"web", b"x") + THRIFT_DELETE,
    "rpc": msgpack.packb([0, 1, "push", ["web", "x"]]) + msgpack.packb([0, 2, "delete", ["kept"]]),
    "http": b"POST /messages/web HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx"
    b"DELETE /queues/kept HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "queued": b"PUT /queue/web HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nDELETE /queue/kept HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}
"""By port, requests that store a message and remove another one if they are accepted."""
ALL = b"\r\n\r\n".join(COMMANDS.values())
HTTP = ("http", "queued")


def browser_request(method: bytes, port: bytes, more: bytes, body: bytes, path: bytes = b"/") -> bytes:
    """Return a request as Chromium sends it."""
    return (
        b"%b %b HTTP/1.1\r\nHost: 127.0.0.1:%b\r\nConnection: keep-alive\r\nContent-Length: %d\r\n"
        b'sec-ch-ua-platform: "Linux"\r\n'
        b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36\r\n"
        b"%bAccept-Encoding: gzip, deflate, br, zstd\r\nAccept-Language: en-US,en;q=0.9\r\n\r\n%b"
    ) % (method, path, port, len(body), more, body)


FETCH = (
    b"Content-Type: text/plain;charset=UTF-8\r\nAccept: */*\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"
    b"Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: empty\r\nReferer: https://evil.example/\r\n"
)
FORM = (
    b"Cache-Control: max-age=0\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\nUpgrade-Insecure-Requests: 1\r\n"
    b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
    b"Sec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\n"
)
REBOUND = b"Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n"
"""After DNS rebinding the browser takes the node for the page's server, so the page may choose the method; it still
names its origin.
"""


def tls_hello(body: bytes) -> bytes:
    """Return the first message of a TLS client that resumes a session whose ticket the page's server has chosen."""
    ticket = struct.pack("!HH", 35, len(body)) + body
    hello = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack("!H", len(ticket)) + ticket
    message = b"\1" + struct.pack("!I", len(hello))[1:] + hello
    return b"\x16\3\1" + struct.pack("!H", len(message)) + message


def turn_allocate(body: bytes) -> bytes:
    """Return a request to a TURN server over TCP, with a user name that the page has chosen."""
    attribute = struct.pack("!HH", 6, len(body)) + body + bytes(-len(body) % 4)
    return struct.pack("!HHI", 3, len(attribute), 0x2112A442) + b"0123456789ab" + attribute


def vectors(port: bytes) -> dict[str, bytes]:
    """Return the requests that browsers can be made to send, by name."""
    found = {
        "fetch": browser_request(b"POST", port, FETCH, ALL),
        "form": browser_request(b"POST", port, FORM, b"a=" + ALL),
    }
    for method in (b"PUT", b"DELETE", b"FLUSH", b"put", b"flush", b"set", b"status", b"monitor", b"quit", b"gets"):
        found[f"rebound {method.decode()}"] = browser_request(method, port, REBOUND, ALL, b"/kept")
    return found | {"TLS": tls_hello(ALL), "TURN": turn_allocate(ALL)}


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with every port of ``lmq dev`` and without tokens."""
    arguments = [word for name in PROTOCOLS for word in (f"--{name}", f"127.0.0.1:{ports.take()}")]
    with NodeProcess(tmp_path_factory.mktemp("open"), arguments=arguments) as process:
        yield process


@pytest.fixture
def node(open_node: NodeProcess) -> Iterator[NodeProcess]:
    """The node with one message, which must be the only one at the end."""
    call(open_node.http, "POST", f"/messages/{KEPT}", b"x", {"Content-Type": "text/plain"})
    yield open_node
    for name in contents(open_node):
        call(open_node.http, "DELETE", f"/queues/{name}")
    with Lines(open_node, "text") as client:
        client.ask(b"status up\n", b"+0\n")


def address(node: NodeProcess, port: str) -> str:
    if port in PROTOCOLS:
        host, number = address_of(node, port)
        return f"{host}:{number}"
    return str(getattr(node, port))


def contents(node: NodeProcess) -> dict[str, int]:
    """Return the number of messages in each queue, including leased ones."""
    queues = node.get_json("/v1/queues")["queues"]
    return {queue["name"]: queue["ready"] + queue["leased"] for queue in queues}


@pytest.mark.parametrize("port", PORTS)
def test_no_port_accepts_requests_of_a_browser(node: NodeProcess, port: str) -> None:
    where = address(node, port)
    sent = vectors(where.rpartition(":")[2].encode())
    for name, data in sent.items():
        with connect(where) as sock:
            sock.sendall(data)
            if port in HTTP and name not in {"TLS", "TURN"}:
                assert sock.recv(12) in {b"HTTP/1.1 403", b"HTTP/1.1 421", b"HTTP/1.1 400", b"HTTP/1.1 501"}, name
            else:
                if name == "TURN":
                    # Its length makes it the beginning of a larger Thrift call.
                    sock.shutdown(socket.SHUT_WR)
                # The connection is closed, so nothing of it can be applied later.
                end_of(sock)
        assert contents(node) == {KEPT: 1}, name
    with Lines(node) as client:
        client.ask(b"status\r\n", b"UP\r\n")


@pytest.mark.parametrize("port", COMMANDS)
def test_the_commands_alone_are_accepted(node: NodeProcess, port: str) -> None:
    """The same commands without a prefix take effect, so the test above can fail."""
    with connect(address(node, port)) as sock:
        sock.sendall(COMMANDS[port].lstrip())
        wait_for(lambda: KEPT not in contents(node) and "web" in contents(node), "the commands take effect")
