"""Recorded requests of Kestrel's clients and the answers they need: kestrel-client, Finagle, pykestrel, Storm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .cluster import Cluster
from .kestrel_ports import Lines
from .test_kestrel_thrift import LONG_MS, generated

END = b"END\r\n"
STORED = b"STORED\r\n"
FOR_EVER_MS = 2_147_483_647


@pytest.fixture
def queue(queue_name: str) -> bytes:
    return queue_name.encode()


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[Lines]:
    with Lines(shared_cluster[0]) as found:
        yield found


def value(queue: bytes, body: bytes) -> bytes:
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(body), body)


def ruby_stats(client: Lines, queue: bytes) -> dict[str, int]:
    """Return the statistics as kestrel-client parses them: it sends a bare LF, and searches lines."""
    client.send(b"STATS\n")
    said = client.until(END).decode("latin-1")
    found = re.findall(rf"^STAT queue_{re.escape(queue.decode())}_(\w+) (\d+)\r$", said, re.MULTILINE)
    return {name: int(number) for name, number in found}


def test_kestrel_client_of_ruby(shared_cluster: Cluster, client: Lines, queue: bytes) -> None:
    with Lines(shared_cluster[1]) as consumer:
        for body in (b"one", b"two", b"\x04\x08i\x06", b""):
            client.ask(b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(body), body), STORED)
        # Its transactional reader: the options are in this order, or with the time first.
        consumer.ask(b"get %b/open/t=250\r\n" % queue, value(queue, b"one"))
        consumer.ask(b"get %b/abort\r\n" % queue, END)
        consumer.ask(b"get %b/t=250/open\r\n" % queue, value(queue, b"one"))
        consumer.ask(b"get %b/close/open/t=250\r\n" % queue, value(queue, b"two"))
        found = ruby_stats(client, queue)
        wanted = ("items", "bytes", "total_items", "logsize", "expired_items", "mem_items", "mem_bytes", "age")
        assert {*wanted, "discarded"} <= found.keys()
        assert (found["items"], found["bytes"], found["total_items"]) == (2, 4, 4)
        consumer.ask(b"get %b/close\r\n" % queue, END)
        consumer.ask(b"get %b/peek\r\n" % queue, value(queue, b"\x04\x08i\x06"))
        # Its flush gets until there are no items.
        gets = 0
        while ruby_stats(client, queue)["items"]:
            client.send(b"get %b\r\n" % queue)
            assert client.until(END).startswith(b"VALUE ")
            gets += 1
        assert gets == 2
        client.ask(b"get %b/t=0\r\n" % queue, END)
        client.ask(b"delete %b\r\n" % queue, b"DELETED\r\n")


def test_finagle(shared_cluster: Cluster, client: Lines, queue: bytes) -> None:
    with Lines(shared_cluster[2]) as reader:
        # A read handle opens, and closes with the next open; without a time it waits for the maximum.
        reader.send(b"get %b/t=%d/open\r\n" % (queue, FOR_EVER_MS))
        for body in (b"one", b"two", b"three"):
            client.ask(b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(body), body), STORED)
        reader.expect(value(queue, b"one"))
        reader.ask(b"get %b/t=%d/close/open\r\n" % (queue, FOR_EVER_MS), value(queue, b"two"))
        reader.ask(b"get %b/t=100/peek\r\n" % queue, value(queue, b"three"))
        reader.ask(b"get %b/t=100/abort\r\n" % queue, END)
        reader.ask(b"get %b/t=100/open\r\n" % queue, value(queue, b"two"))
        reader.ask(b"get %b/t=100/close\r\n" % queue, END)
        reader.ask(b"get %b/t=%d\r\n" % (queue, FOR_EVER_MS), value(queue, b"three"))
        client.ask(b"set %b 0 0 4\r\nfour\r\nflush %b\r\nget %b\r\ndelete %b\r\n" % ((queue,) * 4), STORED + END * 2)
        client.expect(b"DELETED\r\n")


def test_pykestrel(client: Lines, queue: bytes) -> None:
    client.ask(b"set %b 0 0 3\r\none\r\n" % queue, STORED)
    client.ask(b"set %b 0 0 3\r\ntwo\r\n" % queue, STORED)
    client.ask(b"get %b/open\r\n" % queue, value(queue, b"one"))
    client.ask(b"get %b/close/t=100/open\r\n" % queue, value(queue, b"two"))
    client.send(b"DUMP_STATS\r\n")
    blocks = re.findall(r"queue\s'([^']*)'\s{([^}]*)}", client.until(b"}\r\nEND\r\n").decode("latin-1"))
    mine = dict(blocks)[queue.decode()]
    found = dict(line.strip().split("=") for line in mine.strip().splitlines())
    assert (found["items"], found["open_transactions"]) == ("0", "1")
    client.send(b"VERSION\r\n")
    assert re.fullmatch(rb"VERSION \S+\r\n", client.until(b"\r\n"))
    client.ask(b"FLUSH %b\r\n" % queue, END)
    client.send(b"RELOAD\r\n")
    assert client.until(b"\r\n").endswith(b"\r\n")
    # No client may stop a cluster with it; the connection stays open.
    client.send(b"SHUTDOWN\r\n")
    assert client.until(b"\r\n").endswith(b"\r\n")
    client.ask(b"get %b/close\r\n" % queue, END)
    client.ask(b"get %b/t=10/open\r\n" % queue, END)


def test_a_spout_of_storm(shared_cluster: Cluster, queue_name: str) -> None:
    with generated(shared_cluster[0]) as producer, generated(shared_cluster[1]) as spout:
        assert producer.put(queue_name, [b"%d" % number for number in range(130)], 0) == 130
        first = spout.get(queue_name, 4000, 0, LONG_MS)
        # The maximum per connection; one more batch is empty, and not an error.
        assert [one.data for one in first] == [b"%d" % number for number in range(100)]
        assert spout.get(queue_name, 4000, 0, LONG_MS) == []
        for one in first[:50]:
            assert spout.confirm(queue_name, {one.id}) == 1
        assert spout.confirm(queue_name, {first[0].id}) == 0
        assert spout.abort(queue_name, {first[99].id}) == 1
        second = spout.get(queue_name, 4000, 0, LONG_MS)
        assert [one.data for one in second] == [b"99", *(b"%d" % number for number in range(100, 130))]
        for one in [*first[50:99], *second]:
            assert spout.confirm(queue_name, {one.id}) == 1
        assert spout.get(queue_name, 4000, 0, LONG_MS) == []
