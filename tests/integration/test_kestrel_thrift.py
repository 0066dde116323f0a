"""Kestrel's Thrift port with the clients of two libraries, as they are published, through any node."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import thriftpy2
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport
from thriftpy2.protocol import TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException as OtherException
from thriftpy2.transport import TCyFramedTransportFactory

from .cluster import Cluster, NodeProcess, wait_for
from .kestrel_ports import TIMEOUT_S, Lines, address_of, limit
from .kestrel_thrift.generated.Kestrel import Client

INTERFACE = thriftpy2.load(
    str(Path(__file__).parent / "kestrel_thrift" / "kestrel.thrift"), module_name="kestrel_thrift"
)
LONG_MS = 600_000


@contextmanager
def generated(node: NodeProcess) -> Iterator[Any]:
    """A client that Apache's compiler has made."""
    host, port = address_of(node, "thrift")
    plain = TSocket(host, port)
    plain.setTimeout(int(TIMEOUT_S * 1000))
    transport = TFramedTransport(plain)
    transport.open()
    with closing(transport):
        yield Client(TBinaryProtocol(transport))


@contextmanager
def loaded(node: NodeProcess) -> Iterator[Any]:
    """A client of thriftpy2."""
    host, port = address_of(node, "thrift")
    client = make_client(
        INTERFACE.Kestrel,
        host,
        port,
        timeout=int(TIMEOUT_S * 1000),
        proto_factory=TCyBinaryProtocolFactory(),
        trans_factory=TCyFramedTransportFactory(),
    )
    with closing(client):
        yield client


CLIENTS = pytest.mark.parametrize("connect", [generated, loaded])


@CLIENTS
def test_put_get_confirm_and_abort(shared_cluster: Cluster, queue_name: str, connect: Any) -> None:
    with connect(shared_cluster[0]) as producer, connect(shared_cluster[1]) as consumer:
        assert producer.put(queue_name, [b"one", b"\0\xff", b"", b"four"], 0) == 4
        (plain,) = consumer.get(queue_name, 1, 0, 0)
        assert (plain.data, plain.id) == (b"one", 0)
        opened = consumer.get(queue_name, 10, 0, LONG_MS)
        assert [one.data for one in opened] == [b"\0\xff", b"", b"four"]
        assert len({one.id for one in opened}) == 3
        assert min(one.id for one in opened) > 0
        # Whoever has the id may settle it, through any node.
        assert producer.abort(queue_name, {one.id for one in opened[:2]} | {12345}) == 2
        assert producer.confirm("another", {opened[2].id}) == 0
        assert producer.confirm(queue_name, {opened[2].id, 0, -1}) == 1
        assert producer.confirm(queue_name, {opened[2].id}) == 0
        assert [one.data for one in consumer.get(queue_name, 10, 0, 0)] == [b"\0\xff", b""]
        assert consumer.get(queue_name, 10, 50, 0) == consumer.get(queue_name, 0, 0, 0) == []
        assert consumer.get(queue_name, -1, 0, 0) == []


@CLIENTS
def test_the_rest_of_the_interface(shared_cluster: Cluster, queue_name: str, connect: Any) -> None:
    with connect(shared_cluster[0]) as client, connect(shared_cluster[2]) as other:
        assert client.peek(queue_name).head_item is None
        assert client.put(queue_name, [b"head", b"next"], 0) == 2
        info = other.peek(queue_name)
        assert (info.head_item, info.items, info.bytes, info.open_transactions) == (b"head", 2, 8, 0)
        assert client.put(queue_name, [b"gone"], 1) == 1
        other.flush_queue(queue_name)
        assert client.get(queue_name, 5, 0, 0) == []
        other.delete_queue(queue_name)
        assert client.get_version()
        assert client.current_status() == 3
        other.set_status(2)
        try:
            assert other.current_status() == 2
            with pytest.raises((TApplicationException, OtherException)):
                other.put(queue_name, [b"x"], 0)
        finally:
            other.set_status(3)
        for wrong in (lambda: other.set_status(0), lambda: other.put("a.b", [b"x"], 0), lambda: other.get("", 1, 0, 0)):
            with pytest.raises((TApplicationException, OtherException)) as caught:
                wrong()
            assert caught.value.type == TApplicationException.INTERNAL_ERROR
        assert other.current_status() == 3


def test_open_reads_outlive_their_connection_until_their_time_is_over(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as first:
        assert first.put(queue_name, [b"1", b"2", b"3"], 0) == 3
        kept = first.get(queue_name, 1, 0, LONG_MS)
        ended = first.get(queue_name, 2, 0, 1)
    with generated(shared_cluster[1]) as second:
        found: list[bytes] = []

        def are_back() -> bool:
            found.extend(one.data for one in second.get(queue_name, 10, 1_000, 0))
            return len(found) >= 2

        wait_for(are_back, "the time of two is over")
        assert found == [b"2", b"3"]
        assert second.confirm(queue_name, {one.id for one in ended}) == 0
        assert second.confirm(queue_name, {one.id for one in kept}) == 1


def test_a_get_waits_for_all_or_for_its_time(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as producer, generated(shared_cluster[1]) as consumer:
        producer.put(queue_name, [b"a"], 0)
        assert [one.data for one in consumer.get(queue_name, 2, 100, LONG_MS)] == [b"a"]
        consumer.send_get(queue_name, 2, 2**31 - 1, LONG_MS)
        producer.put(queue_name, [b"b"], 0)
        producer.put(queue_name, [b"c"], 0)
        assert [one.data for one in consumer.recv_get()] == [b"b", b"c"]


def test_a_client_that_goes_while_it_waits_leaves_what_it_had_got(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as producer:
        producer.put(queue_name, [b"a"], 0)
        with generated(shared_cluster[1]) as consumer:
            consumer.send_get(queue_name, 2, 2**31 - 1, 0)
            wait_for(lambda: producer.peek(queue_name).open_transactions == 1, "the first item is out")
        assert [one.data for one in producer.get(queue_name, 1, 100_000, 0)] == [b"a"]


def test_the_limit_of_open_reads_shortens_lists(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as client, generated(shared_cluster[0]) as other:
        assert client.put(queue_name, [b"x"] * 120, 0) == 120
        opened = client.get(queue_name, 150, 0, LONG_MS)
        assert len(opened) == 100
        assert client.get(queue_name, 150, 0, LONG_MS) == []
        # Without a time it is no open read.
        assert len(client.get(queue_name, 10, 0, 0)) == 10
        assert client.confirm(queue_name, {one.id for one in opened[:60]}) == 60
        assert other.abort(queue_name, {one.id for one in opened[60:]}) == 40
        assert len(client.get(queue_name, 150, 0, LONG_MS)) == 50


def test_a_queue_that_is_full_stores_a_prefix(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as client:
        client.peek(queue_name)
        limit(shared_cluster[0], queue_name, 2)
        assert client.put(queue_name, [b"a", b"b", b"c"], 0) == 2
        assert client.put(queue_name, [b"d"], 0) == 0
        assert [one.data for one in client.get(queue_name, 9, 0, 0)] == [b"a", b"b"]


def framed(message: bytes) -> bytes:
    return struct.pack("!i", len(message)) + message


def called(name: bytes, arguments: bytes = b"\0") -> bytes:
    return b"\x80\1\0\1" + struct.pack("!i", len(name)) + name + struct.pack("!i", 7) + arguments


def test_the_probe_of_finagle_and_messages_without_a_version(shared_cluster: Cluster) -> None:
    with Lines(shared_cluster[0], "thrift") as client:
        probe = b"__can__finagle__trace__v3__"
        client.send(
            framed(called(probe)) + framed(struct.pack("!i", 11) + b"get_version\1" + struct.pack("!i", 8) + b"\0")
        )
        said = client.read(struct.unpack("!i", client.read(4))[0])
        assert said.startswith(b"\x80\1\0\3" + struct.pack("!i", len(probe)) + probe + struct.pack("!i", 7))
        assert said.endswith(b"\x08\0\2\0\0\0\1\0")
        said = client.read(struct.unpack("!i", client.read(4))[0])
        assert said.startswith(b"\x80\1\0\2" + struct.pack("!i", 11) + b"get_version" + struct.pack("!i", 8))


DEEP = b"\x0c\0\1" * 50_000
MANY_LISTS = b"\x0f\0\x63\x0f" + struct.pack("!i", 2**31 - 1)
MALFORMED = {
    "a size of nothing": b"\0\0\0\0",
    "a size beyond all bounds": b"\x7f\xff\xff\xff" + b"x" * 100,
    "a negative size": b"\xff\xff\xff\xff",
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "an empty message": framed(b"x"),
    "another version": framed(b"\x80\2\0\1" + b"\0" * 20),
    "a name beyond the end": framed(b"\x80\1\0\1\x7f\xff\xff\xff"),
    "a negative name": framed(b"\x80\1\0\1\xff\xff\xff\xff"),
    "a name of no characters": framed(called(b"\xff\xfe")),
    "an answer": framed(b"\x80\1\0\2\0\0\0\3get\0\0\0\1\0"),
    "no end": framed(called(b"put", b"\x0b\0\1\0\0\0\1q")),
    "deep structures": framed(called(b"get", DEEP)),
    "endless lists": framed(called(b"get", MANY_LISTS)),
    "a list of nothing": framed(called(b"get", b"\x0f\0\x63\1" + struct.pack("!i", 2**31 - 1))),
    "a negative list": framed(called(b"put", b"\x0f\0\2\x0b" + struct.pack("!i", -1) + b"\0")),
    "many fields": framed(called(b"get", b"\2\0\x63\1" * 200_000)),
    "a list of another type": framed(called(b"put", b"\x0f\0\2\3" + struct.pack("!i", 1) + b"\1\0")),
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_calls_end_their_connection_and_no_other(shared_cluster: Cluster, message: bytes) -> None:
    with Lines(shared_cluster[0], "thrift") as other, Lines(shared_cluster[0], "thrift") as hostile:
        hostile.send(message)
        try:
            while hostile.read(4096):
                pass
        except ConnectionResetError:
            # Closed while bytes were on their way.
            pass
        other.send(framed(called(b"current_status")))
        assert other.read(struct.unpack("!i", other.read(4))[0]).endswith(b"\x08\0\0\0\0\0\3\0")


def test_pipelined_calls_are_answered_in_order(shared_cluster: Cluster) -> None:
    host, port = address_of(shared_cluster[1], "thrift")
    with socket.create_connection((host, port), TIMEOUT_S) as sock, sock.makefile("rb") as answers:
        for number in range(100):
            call = b"\x80\1\0\1" + struct.pack("!i", 14) + b"current_status" + struct.pack("!i", number) + b"\0"
            sock.sendall(framed(call))
        for number in range(100):
            said = answers.read(struct.unpack("!i", answers.read(4))[0])
            assert struct.unpack_from("!i", said, 8 + 14) == (number,)
