"""Lists of very many queues: made in slices, written as they are read, and consistent while queues come and go.

`python -m tests.integration.listing_blocks` measures for how long each of them blocks a node.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from lmqcluster import Client

from .cluster import NodeProcess, wait_for
from .listing_blocks import LISTINGS, Listing, fill, with_all_ports
from .test_durability_restart import metric

QUEUES = 2_500
MiB = 1 << 20


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with many queues."""
    with with_all_ports(1, tmp_path_factory.mktemp("filled")) as cluster:
        fill(cluster[0], QUEUES, 2_000)
        yield cluster[0]


def _slices(node: NodeProcess, listing: Listing) -> int:
    before = metric(node, "lmq_event_loop_slices_total")
    listing.call(node)
    return int(metric(node, "lmq_event_loop_slices_total") - before)


SLICED = [listing for listing in LISTINGS if listing.slices_min(QUEUES)]


@pytest.mark.parametrize("listing", SLICED, ids=lambda one: one.name)
def test_a_listing_takes_as_many_slices_as_it_has_rows(filled: NodeProcess, listing: Listing) -> None:
    # The scrape that ends a measurement visits the queues once, too. Slices also end by time, so a slow machine has more
    # of them. The node's periodic work, every five seconds, is not in each of three measurements.
    with_scrape = replace(listing, passes=listing.passes + 1)
    assert min(_slices(filled, listing) for _ in range(3)) >= with_scrape.slices_min(QUEUES)


# --- answers that are written as they are read -----------------------------------------------------------------------


def _ask(node: NodeProcess, request: bytes) -> socket.socket:
    """Return a connection that has sent the request and whose client reads little at a time."""
    host, port = node.http.rsplit(":", 1)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.settimeout(60)
    sock.connect((host, int(port)))
    sock.sendall(request % node.http.encode())
    return sock


def _answer(sock: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(sock, method="GET")
    answer.begin()
    return answer


def _names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), "a name occurs twice"
    return dict(pairs)


def _decoded(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body, object_pairs_hook=_names)
    return found


STATS = b"GET /stats.json HTTP/1.1\r\nHost: %b\r\n\r\n"


def test_a_long_answer_is_chunked_and_the_connection_stays(filled: NodeProcess) -> None:
    connection = http.client.HTTPConnection(filled.http)
    sizes = []
    for _ in range(2):
        connection.request("GET", "/stats.json")
        answer = connection.getresponse()
        assert (answer.getheader("transfer-encoding"), answer.getheader("content-length")) == ("chunked", None)
        body = answer.read()
        assert "q/a7/items" in _decoded(body)["gauges"]
        sizes.append(len(body) > MiB)
    assert sizes == [True, True]
    connection.request("HEAD", "/stats.json")
    assert connection.getresponse().read() == b""
    connection.request("GET", "/livez")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_client_of_http_1_0_gets_the_end_by_a_closed_connection(filled: NodeProcess) -> None:
    with _ask(filled, b"GET /stats.json HTTP/1.0\r\nHost: %b\r\nConnection: keep-alive\r\n\r\n") as sock:
        answer = _answer(sock)
        assert (answer.getheader("transfer-encoding"), answer.getheader("connection")) == (None, "close")
        assert len(_decoded(answer.read())["counters"]) > 10 * QUEUES


def test_queues_may_come_and_go_while_an_answer_is_read(filled: NodeProcess) -> None:
    with _ask(filled, STATS) as sock, Client(filled.rpc) as client:
        # The node cannot have made all of it yet, because the client does not read it.
        begun = sock.recv(1000)
        for number in range(0, QUEUES, 5):
            client.delete(f"a{number}")
            client.push(f"b{number}", b"new")
        answer = _decoded(_body_of(begun, sock))
        for number in range(0, QUEUES, 5):
            client.delete(f"b{number}")
            client.push(f"a{number}", b"x")
    for number in range(QUEUES):
        if number % 5:
            assert f"q/a{number}/items" in answer["gauges"]
            assert f"q/a{number}/total_items" in answer["counters"]
    assert any(name.startswith("q/b") for name in answer["gauges"]), "later changes were seen"


def _body_of(begun: bytes, sock: socket.socket) -> bytes:
    """Return the body of a chunked answer whose beginning was read already."""
    data = bytearray(begun)
    while not data.endswith(b"0\r\n\r\n"):
        more = sock.recv(1 << 16)
        assert more, "the answer ended early"
        data += more
    rest = bytes(data).partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def test_clients_that_do_not_read_stay_within_their_share(filled: NodeProcess) -> None:
    def held() -> float:
        return metric(filled, 'lmq_client_memory_bytes{of="clients"}')

    before = held()
    with ExitStack() as stack:
        socks = [stack.enter_context(_ask(filled, STATS)) for _ in range(40)]
        wait_for(lambda: held() - before >= 40 * MiB / 2, "40 answers are under way")
        assert held() - before <= 40 * MiB
        assert len(_decoded(_body_of(b"", socks.pop()))["gauges"]) > 10 * QUEUES
        for sock in socks:
            sock.close()
    wait_for(lambda: held() <= before, "the memory of closed clients is free")
