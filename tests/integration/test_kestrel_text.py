"""The text protocol of Kestrel byte by byte, through any node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import Cluster, NodeProcess, wait_for
from .kestrel_ports import Lines, limit


class Text(Lines):
    """A client of the text protocol."""

    def __init__(self, node: NodeProcess) -> None:
        super().__init__(node, "text")


@pytest.fixture
def queue(queue_name: str) -> bytes:
    return queue_name.encode()


@pytest.fixture
def client(shared_cluster: Cluster) -> Iterator[Text]:
    with Text(shared_cluster[0]) as found:
        yield found


def test_every_get_is_an_open_read_that_the_next_one_confirms(
    shared_cluster: Cluster, client: Text, queue: bytes
) -> None:
    client.ask(b"PUT %b:\none\r\n\xe9 two\nthree\n\nversion\n" % queue, b"+3\n:")
    assert client.until(b"\n")
    with Text(shared_cluster[1]) as consumer, Lines(shared_cluster[2]) as other:
        consumer.ask(b"get %b\r\n" % queue, b":one\n")
        consumer.ask(b"get %b 250\n" % queue, b":\xe9 two\n")
        other.ask(b"get %b/peek\r\n" % queue, b"VALUE %b 0 5\r\nthree\r\nEND\r\n" % queue)
        # A peek confirms too.
        consumer.ask(b"peek %b\n" % queue, b":three\n")
        consumer.ask(
            b"confirm %b 1\nget %b\nconfirm %b 2\nconfirm %b 1\nconfirm %b 0\n" % ((queue,) * 5),
            b"-Not that many transactions open.\n:three\n-Not that many transactions open.\n+1\n"
            b"-Not that many transactions open.\n",
        )
        consumer.ask(b"get %b\nget %b 10\npeek %b 10\n" % (queue, queue, queue), b"*\n*\n*\n")


def test_items_of_a_closed_connection_return_to_the_head(shared_cluster: Cluster, client: Text, queue: bytes) -> None:
    client.ask(b"put %b:\n1\n2\n3\n\n" % queue, b"+3\n")
    with Text(shared_cluster[1]) as consumer:
        consumer.ask(b"get %b\n" % queue, b":1\n")
        consumer.send(b"quit\n")
        consumer.expect_end()

    def is_back() -> bool:
        client.send(b"peek %b\n" % queue)
        return client.until(b"\n") == b":1\n"

    wait_for(is_back, "the open item is at the head")
    client.ask(b"monitor %b 300\n" % queue, b":1\n:2\n:3\n*\n")
    client.ask(b"confirm %b 3\nmonitor %b 0\n" % (queue, queue), b"+3\n*\n")


def test_expiry_in_milliseconds(client: Text, queue: bytes) -> None:
    client.ask(b"put %b 0:\ngone\n\nput %b -5:\ngone\n\nput %b 3600000:\nstays\n\n" % ((queue,) * 3), b"+1\n+1\n+1\n")
    client.ask(b"get %b\nget %b\n" % (queue, queue), b":stays\n*\n")


def test_a_full_queue_takes_what_fits_and_counts_it(client: Text, queue: bytes, shared_cluster: Cluster) -> None:
    client.ask(b"put %b\n" % queue, b"+0\n")
    limit(shared_cluster[0], queue.decode(), 2)
    client.ask(b"put %b:\na\nb\nc\n\nget %b\nget %b\nget %b\n" % ((queue,) * 4), b"+2\n:a\n:b\n*\n")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"put\n", b"-Queue name required.\n"),
        (b"put :\nx\n\n", b"-Queue name required.\n"),
        (b"put x soon:\ny\n\n", b"-Error parsing expiration time.\n"),
        (b"get\n", b"-Queue name required.\n"),
        (b"get x soon\n", b"-Error parsing timeout.\n"),
        (b"peek x soon\n", b"-Error parsing timeout.\n"),
        (b"monitor x\n", b"-Queue name & timeout required.\n"),
        (b"monitor x soon\n", b"-Error parsing timeout.\n"),
        (b"confirm x\n", b"-Queue name & count required.\n"),
        (b"confirm x soon\n", b"-Error parsing count.\n"),
        (b"flush\n", b"-Queue name required.\n"),
        (b"delete\n", b"-Queue name required.\n"),
        (b"Dance\n", b"-Unknown command: dance\n"),
        (b"\n", b"-Unknown command: \n"),
        (b"status down\n", b"-Unknown status.\n"),
    ],
)
def test_wrong_requests_after_which_the_connection_stays(client: Text, request_: bytes, answer: bytes) -> None:
    client.ask(request_, answer)
    client.ask(b"flush no-such\ndelete no-such\nSTATUS\n", b"+0\n+0\n:UP\n")


@pytest.mark.parametrize(
    "line",
    [
        b"POST / HTTP/1.1",
        b"get x HTTP/1.0",
        b"Host: x",
        b"\x16\3\1\2",
        b"\0\3\0\x10!\x12\xa4B",
        b"\x1b[2j",
        b"8=FIX.4.4",
    ],
)
def test_another_protocol_ends_the_connection(client: Text, queue: bytes, line: bytes) -> None:
    client.send(line + b"\nput %b:\nx\n\n" % queue)
    refusal = client.until(b"\n")
    assert refusal.startswith(b"-bad_request: this ")
    assert refusal[:-1].isascii()
    assert refusal[:-1].decode().isprintable()
    client.expect_end()


def test_invalid_queue_names_are_refused(client: Text) -> None:
    for request in (b"get a.b\n", b"put a/b:\nx\n\n", b"peek ~\n", b"shutdown\n"):
        client.send(request)
        assert client.until(b"\n").startswith(b"-")
    client.ask(b"status\n", b":UP\n")


def test_unbounded_input_ends_the_connection(shared_cluster: Cluster) -> None:
    for request in (b"x" * 70_000, b"put x:\n" + b"i\n" * 10_001):
        with Text(shared_cluster[0]) as client:
            client.send(request)
            assert client.until(b"\n").startswith(b"-too_large: ")
            client.expect_end()


def test_the_status_of_a_server_blocks_what_it_says(shared_cluster: Cluster, client: Text, queue: bytes) -> None:
    client.ask(b"put %b:\none\ntwo\n\nget %b\n" % (queue, queue), b"+2\n:one\n")
    try:
        client.ask(b"status readonly\nput %b:\nx\n\n" % queue, b"+0\n-Server not available for operation set\n")
        client.ask(b"status quiescent\n", b"+0\n")
        # The get confirms the open item, although it fetches none.
        client.ask(b"get %b\n" % queue, b"-Server not available for operation get\n")
    finally:
        client.ask(b"status up\n", b"+0\n")
    client.ask(b"confirm %b 1\nget %b\n" % (queue, queue), b"-Not that many transactions open.\n:two\n")
