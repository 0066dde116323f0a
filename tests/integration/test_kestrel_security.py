"""Kestrel's three ports, which have no tokens: which clients they serve, and protection against hostile clients."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster.node.config.config_error import ConfigError
from lmqcluster.node.config.kestrel import KESTREL_PORTS
from lmqcluster.node.config.load import load_config
from lmqcluster.protocols.kestrel.port_context import PortContext
from lmqcluster.protocols.kestrel.status import ServerStatus
from lmqcluster.wire.address import Address
from lmqcluster.wire.errors import LmqError

from .bad_input import MIB, bounded_memory, fuzz_blocks, unharmed
from .cluster import Cluster, NodeProcess, ports, wait_for
from .guarded_node import guarded_node
from .kestrel_ports import Lines
from .test_access_tls import TlsNode, init

HERE, ELSEWHERE = ("127.0.0.1", 50_000), ("192.0.2.7", 50_000)
PROTOCOLS = pytest.mark.parametrize("protocol", KESTREL_PORTS)


def call(method: bytes, arguments: bytes = b"\0") -> bytes:
    """Return a framed Thrift call."""
    message = b"\x80\1\0\1" + struct.pack("!i", len(method)) + method + struct.pack("!i", 1) + arguments
    return struct.pack("!i", len(message)) + message


def get_of(queue: bytes, wait_ms: int = 0) -> bytes:
    """Return a Thrift get of one item."""
    name = b"\x0b\0\1" + struct.pack("!i", len(queue)) + queue
    return call(b"get", name + b"\x08\0\2\0\0\0\1" + b"\x08\0\3" + struct.pack("!i", wait_ms) + b"\0")


def put_of(queue: bytes, item: bytes) -> bytes:
    name = b"\x0b\0\1" + struct.pack("!i", len(queue)) + queue
    return call(b"put", name + b"\x0f\0\2\x0b" + struct.pack("!ii", 1, len(item)) + item + b"\0")


# --- served clients -------------------------------------------------------------------------------------------------


@PROTOCOLS
def test_a_port_beyond_loopback_needs_tls_or_an_explicit_option(protocol: str, tmp_path: Path) -> None:
    flags = {"data_dir": str(tmp_path), protocol: "0.0.0.0:22133"}
    with pytest.raises(ConfigError, match=f"^{protocol} 0.0.0.0:22133 is beyond loopback"):
        load_config(flags, environ={})
    config = load_config(flags | {"kestrel_insecure": "on"}, environ={})
    assert list(config.kestrel_ports()) == [protocol]
    assert load_config({"data_dir": str(tmp_path)}, environ={}).kestrel_ports() == {}


@PROTOCOLS
def test_a_role_for_all_beyond_loopback_needs_client_certificates_or_an_explicit_option(
    protocol: str, tmp_path: Path
) -> None:
    init("n1", "--dir", str(tmp_path))
    tls = {"tls_cert": str(tmp_path / "n1.crt"), "tls_key": str(tmp_path / "n1.key")}
    flags = {"data_dir": str(tmp_path), protocol: "0.0.0.0:22133", f"{protocol}_as": "shop", **tls}
    with pytest.raises(
        ConfigError, match=f"^{protocol}_as gives everybody who reaches 0.0.0.0:22133 the role of the token 'shop'"
    ):
        load_config(flags, environ={})
    for more in (
        {"kestrel_insecure": "on"},
        {"tls_client_ca": str(tmp_path / "ca.crt")},
        {protocol: "127.0.0.1:22133"},
    ):
        assert list(load_config(flags | more, environ={}).kestrel_ports()) == [protocol]


@pytest.mark.parametrize("insecure", ["off", "on"])
def test_remote_clients_are_served_only_with_an_explicit_option(tmp_path: Path, insecure: str) -> None:
    async def main() -> None:
        address = Address("127.0.0.1", ports.take())
        async with guarded_node(tmp_path, admin=None, memcache=address, kestrel_insecure=insecure) as guarded:
            status = ServerStatus(tmp_path / "status")
            port = PortContext("memcache", guarded.node, status)
            assert port.principal(HERE) is guarded.node.access.anonymous
            if insecure == "on":
                assert port.principal(ELSEWHERE) is guarded.node.access.anonymous
            else:
                with pytest.raises(LmqError, match="no tokens have been made yet"):
                    port.principal(ELSEWHERE)
            # Once there are tokens, no client is anonymous.
            await guarded.token("root", "admin")
            for client in (HERE, ELSEWHERE):
                with pytest.raises(LmqError):
                    port.principal(client)

    asyncio.run(main())


class Secure(Lines):
    """A client that speaks TLS."""

    def __init__(self, node: TlsNode, protocol: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(node.process, protocol)
        self.sock = (context or node.context).wrap_socket(self.sock, server_hostname="127.0.0.1")


def answer(client: Lines) -> bytes:
    """Read a Thrift message."""
    return client.read(struct.unpack("!i", client.read(4))[0])


def test_clients_have_the_principal_of_their_port_and_speak_tls(tmp_path: Path) -> None:
    flags = [f"--{name}=0.0.0.0:{ports.take()}" for name in KESTREL_PORTS]
    flags += ["--memcache-as=shop", "--text-as=auditor"]
    arguments = [word for flag in flags for word in flag.split("=")]
    with TlsNode(tmp_path, *arguments, asks_clients=True) as node:
        # All clients have the role of the port's token, so only clients with a certificate are served.
        stranger = ssl.create_default_context(cafile=node.ca)
        # The client gets an alert, a reset or the end, depending on timing.
        with contextlib.suppress(OSError), Secure(node, "memcache", stranger) as client:
            client.send(b"version\r\n")
            client.expect_end()
        with Secure(node, "memcache") as client:
            client.send(b"version\r\n")
            assert b"there is no token 'shop'" in client.until(b"\r\n")
            client.expect_end()
        assert node.admin("token", "create", "shop", "--role", "write", "--queues", "^shop")[0] == 0
        assert node.admin("token", "create", "auditor", "--role", "read", "--queues", "^shop")[0] == 0
        with Secure(node, "memcache") as client:
            client.ask(b"set shop 0 0 1\r\nx\r\n", b"STORED\r\n")
            client.send(b"stats\r\n")
            shown = client.until(b"END\r\n")
            assert b"STAT queue_shop_items 1\r\n" in shown
            # Sums over all queues would include queues that the token does not cover.
            for name in (b"curr_items", b"total_items", b"bytes", b"queue_creates"):
                assert b"STAT %b " % name not in shown
        for request in (
            b"set bank 0 0 1\r\nx\r\n",
            b"get bank/peek\r\n",
            b"get bank+shop\r\n",
            b"flush shop\r\n",
            b"delete shop\r\n",
            b"flush_all\r\n",
            b"status readonly\r\n",
        ):
            with Secure(node, "memcache") as client:
                client.send(request)
                assert client.until(b"\r\n").startswith(b"CLIENT_ERROR forbidden: "), request
                client.expect_end()
        with Secure(node, "text") as client, Secure(node, "thrift") as refused:
            client.send(b"get shop\n")
            assert client.until(b"\n").startswith(b"-")
            client.ask(b"peek shop\n", b":x\n")
            refused.send(get_of(b"shop"))
            assert b"unauthorized: " in answer(refused)
            refused.expect_end()
            # Without TLS there is no answer.
            with Lines(node.process, "memcache") as plain:
                plain.send(b"get shop\r\n" * 10)
                plain.expect_end()
            assert node.admin("token", "delete", "auditor", "--yes")[0] == 0
            client.expect_end()


# --- control characters ---------------------------------------------------------------------------------------------

ESCAPES = b"\x1b[2j\x07\x9b\xe2\x80\xae"


@pytest.mark.parametrize(
    ("protocol", "request_"),
    [
        ("text", b"%b\n"),
        ("text", b"status %b\n"),
        ("text", b"get %b\n"),
        ("text", b"get q %b\n"),
        ("text", b"put %b:\nx\n\n"),
        ("text", b"delete %b\n"),
        ("text", b"get a+%b\n"),
        ("memcache", b"%b\r\n"),
        ("memcache", b"status %b\r\n"),
        ("memcache", b"get %b\r\n"),
        ("memcache", b"get q/%b\r\n"),
        ("memcache", b"set %b 0 0 1\r\nx\r\n"),
        ("memcache", b"set q %b 0 1\r\nx\r\n"),
        ("memcache", b"confirm %b 1\r\n"),
        ("memcache", b"get a+%b\r\n"),
    ],
)
def test_control_characters_are_not_repeated(shared_cluster: Cluster, protocol: str, request_: bytes) -> None:
    with Lines(shared_cluster[0], protocol) as client:
        client.send(request_ % ESCAPES + b"quit\r\n")
        answer = client.read(10_000)
    assert [byte for byte in answer.replace(b"\r\n", b"").replace(b"\n", b"") if not 0x20 <= byte < 0x7F] == []


# --- hostile and slow -----------------------------------------------------------------------------------------------

SAMPLES = {
    "memcache": [
        b"set fuzz 0 0 3\r\nabc\r\n",
        b"get fuzz/open\r\n",
        b"get fuzz/close/t=1\r\n",
        b"monitor fuzz 1 1\r\n",
    ],
    "text": [b"put fuzz 5:\na\nb\n\n", b"get fuzz 1\n", b"peek fuzz\n", b"confirm fuzz 1\n", b"monitor fuzz 1\n"],
    "thrift": [
        put_of(b"fuzz", b"abc"),
        get_of(b"fuzz", 1),
        call(b"get_version"),
        call(b"peek", b"\x0b\0\1\0\0\0\4fuzz\0"),
    ],
}


@PROTOCOLS
def test_garbage_harms_no_client(shared_cluster: Cluster, protocol: str) -> None:
    with unharmed(shared_cluster), bounded_memory(shared_cluster.nodes, 64 * MIB):
        for block in fuzz_blocks(20_261_123, 150, SAMPLES[protocol]):
            with (
                Lines(shared_cluster[0], protocol) as client,
                # The garbage may contain a get that waits: its answer is not awaited.
                contextlib.suppress(ConnectionError, TimeoutError),
            ):
                client.sock.settimeout(1.0)
                client.send(block)
                client.sock.shutdown(socket.SHUT_WR)
                while client.read(65536):
                    pass


PEEKS = {
    "memcache": b"get big/peek\r\n",
    "text": b"peek big\n",
    "thrift": call(b"peek", b"\x0b\0\1\0\0\0\3big\0"),
}


@PROTOCOLS
def test_answers_that_are_not_read_are_bounded(shared_cluster: Cluster, protocol: str) -> None:
    with Lines(shared_cluster[0]) as client, contextlib.ExitStack() as greedy:
        client.ask(b"delete big\r\nset big 0 0 %d\r\n%b\r\n" % (MIB, b"x" * MIB), b"DELETED\r\nSTORED\r\n")
        with bounded_memory(shared_cluster.nodes[:1], 128 * MIB):
            for _ in range(4):
                other = greedy.enter_context(Lines(shared_cluster[0], protocol))
                other.send(PEEKS[protocol] * 200)
            for _ in range(20):
                client.ask(b"get no-such-queue\r\n", b"END\r\n")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that allows one second for a request, with small items."""
    flags = ["--request-seconds-max=1", "--message-bytes-max=1MiB", "--durability=memory"]
    listening = [word for name in KESTREL_PORTS for word in (f"--{name}", f"127.0.0.1:{ports.take()}")]
    with NodeProcess(tmp_path_factory.mktemp("impatient"), arguments=[*flags, *listening]) as process:
        yield process


UNFINISHED = {
    "memcache": [b"set slow 0 0 100\r\nabc", b"get slow"],
    "text": [b"put slow:\nabc\nde", b"get slow"],
    "thrift": [b"\0\0", call(b"get_version")[:-1]],
}


@PROTOCOLS
def test_unfinished_requests_end_their_connection_and_waiting_ones_do_not(
    impatient: NodeProcess, protocol: str
) -> None:
    waiting = {"memcache": b"get w/t=2147483647\r\n", "text": b"get w 2147483647\n", "thrift": get_of(b"w", 2**31 - 1)}
    with Lines(impatient, protocol) as patient:
        patient.send(waiting[protocol])
        for request in UNFINISHED[protocol]:
            with Lines(impatient, protocol) as slow:
                slow.send(request)
                slow.expect_end()
        with Lines(impatient) as producer:
            producer.ask(b"set w 0 0 4\r\nitem\r\n", b"STORED\r\n")
        assert b"item" in patient.until(b"item")


def test_items_beyond_the_bound_are_not_stored(impatient: NodeProcess) -> None:
    large = b"x" * (MIB + 1)
    with Lines(impatient) as memcache, Lines(impatient, "text") as text, Lines(impatient, "thrift") as thrift:
        memcache.send(b"set large 0 0 %d\r\n" % len(large))
        assert b"too_large" in memcache.until(b"\r\n")
        memcache.expect_end()
        text.send(b"put large:\n" + large + b"\n\n")
        assert b"too_large" in text.until(b"\n")
        thrift.send(put_of(b"large", large))
        assert answer(thrift).endswith(b"\x08\0\0\0\0\0\0\0")
        thrift.send(get_of(b"large"))
        assert answer(thrift).endswith(b"\x0f\0\0\x0c\0\0\0\0\0")


def test_an_orderly_stop_answers_waiting_requests_and_returns_open_items(tmp_path: Path) -> None:
    arguments = [word for name in KESTREL_PORTS for word in (f"--{name}", f"127.0.0.1:{ports.take()}")]
    with NodeProcess(tmp_path, arguments=arguments) as node:
        with contextlib.ExitStack() as stack:
            memcache, holder = (stack.enter_context(Lines(node)) for _ in range(2))
            text, thrift = (stack.enter_context(Lines(node, name)) for name in ("text", "thrift"))
            holder.ask(b"set jobs 0 0 1\r\na\r\nset jobs 0 0 1\r\nb\r\n", b"STORED\r\n" * 2)
            holder.ask(b"get jobs/open\r\n", b"VALUE jobs 0 1\r\na\r\nEND\r\n")
            memcache.send(b"get empty/t=2147483647\r\n")
            text.send(b"get empty 2147483647\n")
            thrift.send(get_of(b"empty", 2**31 - 1))

            def all_wait() -> bool:
                holder.send(b"dump_stats empty\r\n")
                return b"waiters=3\r\n" in holder.until(b"END\r\n")

            wait_for(all_wait, "three clients that wait")
            node.signal(signal.SIGTERM)
            # No answer claims that the queue is empty.
            assert memcache.until(b"\r\n").startswith(b"SERVER_ERROR shutting_down: ")
            assert text.until(b"\n").startswith(b"-shutting_down: ")
            assert b"shutting_down: " in answer(thrift)
            for client in (memcache, text, thrift, holder):
                client.expect_end()
        assert node.wait_exit() == 0
        node.start()
        with Lines(node) as client:
            client.ask(b"get jobs\r\n", b"VALUE jobs 0 1\r\na\r\nEND\r\n")
            client.ask(b"get jobs\r\n", b"VALUE jobs 0 1\r\nb\r\nEND\r\n")
