"""Memcache requests that arrive alone, in pieces, or while another one is in flight: answered alike and in order."""

from __future__ import annotations

import random
import re
import selectors
import socket
import struct
import threading
from collections import Counter

import pytest

from .cluster import Cluster, wait_for
from .kestrel_ports import Lines, limit
from .test_kestrel_memcache import END, put, value

STORED = b"STORED\r\n"


@pytest.fixture
def queue(queue_name: str) -> bytes:
    return queue_name.encode()


def send_in_pieces(client: Lines, other: Lines, *pieces: bytes) -> None:
    """Send the pieces so that the node reads each of them before the next one: it answers `other` in between."""
    for piece in pieces:
        client.send(piece)
        other.send(b"version\r\n")
        assert other.until(b"\r\n").startswith(b"VERSION ")


def test_a_short_request_follows_a_long_one_that_came_in_pieces(shared_cluster: Cluster, queue: bytes) -> None:
    with Lines(shared_cluster[1]) as client, Lines(shared_cluster[1]) as other:
        put(client, queue, b"1", b"2", b"3")
        # The first read makes the node open its session.
        client.ask(b"get %b/open\r\n" % queue, value(queue, b"1"))
        send_in_pieces(client, other, b"get %b/t=100" % queue, b"000/op", b"en\r\n")
        client.expect(value(queue, b"2"))
        client.ask(b"quit\n", b"")
        client.expect_end()


def test_input_during_a_request_is_answered_after_it(shared_cluster: Cluster, queue: bytes) -> None:
    """The stream is cut anywhere, so that any part of it may be a request that arrives alone."""
    rng = random.Random(5)
    for node in shared_cluster:
        with Lines(node) as client:
            requests, answers = [], []
            for number in range(60):
                body = b"%d" % number
                requests.append(b"set %b 0 0 %d\r\n%b\r\n" % (queue, len(body), body))
                requests.append(b"get %b/close/open\r\n" % queue)
                answers += [STORED, value(queue, body)]
                if number % 7 == 0:
                    requests += [b"get %b/close\r\n" % queue, b"get %b/peek\r\n" % queue, b"get %b\r\n" % queue]
                    answers += [END] * 3
            stream = b"".join(requests)
            cuts = sorted(rng.sample(range(1, len(stream)), 150))
            for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                client.send(stream[start:end])
            client.expect(b"".join(answers))
            client.ask(b"get %b/close\r\n" % queue, END)


def test_one_of_many_waiting_clients_gets_an_item(shared_cluster: Cluster, queue: bytes) -> None:
    consumers = [Lines(shared_cluster[number % 3]) for number in range(12)]
    got: Counter[bytes] = Counter()
    with Lines(shared_cluster[0]) as producer:
        for round_ in range(20):
            put(producer, queue, b"%d" % round_)
            for consumer in consumers:
                consumer.send(b"get %b/t=50/close/open\r\n" % queue)
            for consumer in consumers:
                said = consumer.until(END)
                got[said.split(b"\r\n")[1] if said != END else b""] += 1
            # Each closes its item in the next round, so that none stays open.
    assert got == {b"": 20 * 11, **{b"%d" % number: 1 for number in range(20)}}
    for consumer in consumers:
        consumer.ask(b"get %b/close\r\n" % queue, END)
        consumer.close()


def test_takers_of_single_items_share_them(shared_cluster: Cluster, queue: bytes) -> None:
    taken: list[bytes] = []

    def take(number: int) -> None:
        with Lines(shared_cluster[number % 3]) as client:
            while True:
                client.send(b"get %b\r\n" % queue)
                said = client.until(END)
                if said == END:
                    return
                taken.append(said.split(b"\r\n")[1])

    with Lines(shared_cluster[0]) as producer:
        put(producer, queue, *(b"%d" % number for number in range(300)))
    takers = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert Counter(taken) == Counter(b"%d" % number for number in range(300))


def test_a_full_queue_refuses_and_a_child_is_read(shared_cluster: Cluster, queue: bytes) -> None:
    child = queue + b"+child"
    limit(shared_cluster[0], queue.decode(), 1)
    with Lines(shared_cluster[2]) as client:
        client.ask(b"get %b\r\n" % child, END)
        for answer in (STORED, b"NOT_STORED\r\n"):
            client.ask(b"set %b 0 0 1\r\nx\r\n" % queue, answer)
        client.ask(b"get %b/open\r\n" % queue, value(queue, b"x"))
        client.ask(b"get %b/open\r\n" % child, value(child, b"x"))
        client.ask(b"get %b/close\r\n" % queue, END)
        client.ask(b"set %b 0 0 1 noreply\r\ny\r\n" % queue, b"")
        client.ask(b"get %b/t=100000/open\r\n" % queue, value(queue, b"y"))
        # A plain get during an open read still breaks the rules.
        client.ask(b"get %b\r\n" % queue, b"ERROR\r\n")
        client.expect_end()


def test_statistics_show_what_was_acknowledged_through_another_node(shared_cluster: Cluster, queue: bytes) -> None:
    items = re.compile(rb"queue_%b_items (\d+)\r\n" % re.escape(queue))
    dumped = re.compile(rb"queue '%b' {\r\n  items=(\d+)\r\n" % re.escape(queue))
    with Lines(shared_cluster[0]) as producer, Lines(shared_cluster[1]) as first, Lines(shared_cluster[2]) as second:
        for number in range(1, 51):
            put(producer, queue, b"x")
            for client in (first, second):
                client.send(b"stats\r\n")
                found = items.search(client.until(END))
                assert found is not None
                assert int(found[1]) == number
        producer.ask(b"get %b\r\n" % queue, value(queue, b"x"))
        first.send(b"dump_stats %b\r\n" % queue)
        found = dumped.match(first.until(END))
        assert found is not None
        assert int(found[1]) == 49


REQUESTS = {
    "memcache": (
        [
            b"set half 0 0 1\r\nx\r\n",
            b"set half 0 0 1 noreply\r\ny\r\nget half/open\r\nget half/close\r\n",
            b"get half\r\nversion\r\n",
        ],
        [b"STORED\r\n", b"VALUE half 0 1\r\nx\r\nEND\r\nEND\r\n", b"VALUE half 0 1\r\ny\r\nEND\r\nVERSION %b\r\n"],
    ),
    "text": ([b"put half:\none\n\n", b"get half\nconfirm half 1\nversion\n"], [b"+1\n", b":one\n+1\n:%b\n"]),
}


@pytest.mark.parametrize("protocol", REQUESTS)
def test_requests_before_a_shutdown_are_answered(shared_cluster: Cluster, protocol: str) -> None:
    """A script sends its requests and shuts down its side, as ``printf ... | nc`` does."""
    with Lines(shared_cluster[0]) as client:
        client.send(b"version\r\n")
        version = client.until(b"\r\n").split()[1]
        client.ask(b"delete half\r\n", b"DELETED\r\n")
    for request, answer in zip(*REQUESTS[protocol], strict=True):
        with Lines(shared_cluster[1], protocol) as client:
            client.send(request)
            client.sock.shutdown(socket.SHUT_WR)
            client.expect(answer.replace(b"%b", version))
            client.expect_end()


@pytest.mark.parametrize(
    ("protocol", "request_"),
    [
        ("memcache", b"get %b/t=2147483647/open\r\n"),
        ("memcache", b"get %b/t=2147483647\r\n"),
        ("memcache", b"get %b/t=2147483647/peek\r\n"),
        ("memcache", b"monitor %b 2147483647\r\n"),
        ("text", b"get %b 2147483647\n"),
    ],
)
def test_a_closed_client_takes_no_item(shared_cluster: Cluster, queue: bytes, protocol: str, request_: bytes) -> None:
    with Lines(shared_cluster[0], protocol) as waiting, Lines(shared_cluster[1], protocol) as late:
        waiting.send(request_ % queue)
        with Lines(shared_cluster[0]) as other:
            # It is waiting now.
            stat = b"STAT queue_%b_waiters 1\r\n" % queue
            is_peek = b"peek" in request_

            def waits() -> bool:
                other.send(b"stats\r\n")
                return stat in other.until(END)

            if not is_peek:
                wait_for(waits, "the client waits")
        late.send(request_ % queue)
        late.sock.shutdown(socket.SHUT_WR)
        for gone in (waiting, late):
            gone.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with Lines(shared_cluster[2]) as client:
        put(client, queue, b"x")
        client.ask(b"get %b/t=100\r\n" % queue, value(queue, b"x"))


def test_each_item_goes_to_one_client_of_those_waiting_at_different_nodes(
    shared_cluster: Cluster, queue: bytes
) -> None:
    waiting = [Lines(shared_cluster[number % 3]) for number in range(12)]
    for number, client in enumerate(waiting):
        client.send(b"get %b/t=2147483647%b\r\n" % (queue, b"/open" if number % 2 else b""))
    with Lines(shared_cluster[0]) as producer:
        put(producer, queue, *(b"%d" % number for number in range(11)))
        # All but one are served, in any order, without a further request.
        got: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            for client in waiting:
                selector.register(client.sock, selectors.EVENT_READ, client)
            while len(got) < 11:
                for key, _ in selector.select():
                    got.append(key.data.until(END).split(b"\r\n")[1])
                    selector.unregister(key.fileobj)
            assert sorted(got) == sorted(b"%d" % number for number in range(11))
            put(producer, queue, b"last")
            ((last, _),) = selector.select()
            assert last.data.until(END).split(b"\r\n")[1] == b"last"
    for client in waiting:
        client.close()
