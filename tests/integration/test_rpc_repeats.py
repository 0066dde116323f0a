"""Pushes that a front end recognizes as repetitions behave like all others."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import Connection, call
from .raw_rpc import Rpc, RpcError, request
from .test_http_repeats import make_token

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("repeats"), environment={"LMQ_FRONT_ENDS": "2"})
    with node:
        yield node
        assert "Traceback" not in node.log()


def push(rpc: Rpc, queue: str, count: int = 5) -> None:
    """Push until the connection repeats its pushes."""
    for number in range(count):
        assert rpc.call("push", queue, b"early %d" % number) == b"ok"


def contents(node: NodeProcess, queue: str) -> list[object]:
    found: list[object] = []
    with Client(node.rpc) as client:
        while batch := client.pull_many(queue, 1000):
            found += [one.content for one in batch]
    return found


class Sender(threading.Thread):
    """A client of random habits that numbers its messages."""

    def __init__(self, node: NodeProcess, queue: str, seed: int) -> None:
        super().__init__()
        self.node, self.queue, self.random = node, queue, random.Random(seed)
        self.name = str(seed)
        self.count = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with Rpc(self.node.rpc) as rpc, Connection(self.node.http) as http:
                for _ in range(60):
                    self.random.choice((self.singly, self.singly, self.in_a_burst, self.with_a_wait))(rpc)
                    self.over_http(http)
        except Exception as exc:  # noqa: BLE001 - the test raises it
            self.error = exc

    def next_body(self) -> bytes:
        self.count += 1
        return f"{self.name}:{self.count}".encode()

    def singly(self, rpc: Rpc) -> None:
        for _ in range(self.random.randint(1, 12)):
            assert rpc.call("push", self.queue, self.next_body()) == b"ok"

    def in_a_burst(self, rpc: Rpc) -> None:
        replies = rpc.many([("push", self.queue, self.next_body()) for _ in range(self.random.randint(2, 9))])
        assert [reply.result for reply in replies] == [b"ok"] * len(replies)

    def with_a_wait(self, rpc: Rpc) -> None:
        """A push with options, and others before its answer."""
        calls: list[tuple[object, ...]] = [("push", self.queue, self.next_body(), {"wait": 5})]
        calls += [("push", self.queue, self.next_body()) for _ in range(self.random.randint(0, 3))]
        assert all(reply.error is None for reply in rpc.many(calls))

    def over_http(self, http: Connection) -> None:
        for _ in range(self.random.randint(0, 6)):
            assert http.call("POST", f"/messages/{self.queue}", self.next_body(), TEXT).status == 200
        if self.random.random() < 0.2:
            assert http.call("GET", "/livez").status == 200


def test_every_client_keeps_its_order(relayed: NodeProcess, queue_name: str) -> None:
    senders = [Sender(relayed, queue_name, seed) for seed in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
        assert sender.error is None
    found: dict[str, list[int]] = {sender.name: [] for sender in senders}
    for body in contents(relayed, queue_name):
        assert isinstance(body, bytes | str)
        name, _, number = (body.decode() if isinstance(body, bytes) else body).partition(":")
        found[name].append(int(number))
    assert found == {sender.name: list(range(1, sender.count + 1)) for sender in senders}


def test_contents_of_any_kind(relayed: NodeProcess, queue_name: str) -> None:
    bodies: list[object] = [
        b"",
        b"x" * 20_000,
        "text",
        7,
        None,
        [1, {b"a": 2}],
        b"x" * 31,
        b"x" * 32,
        b"x" * 65_536,
        b"end",
    ]
    with Rpc(relayed.rpc) as rpc:
        push(rpc, queue_name)
        for body in bodies:
            assert rpc.call("push", queue_name, body) == b"ok"
            push(rpc, queue_name)
        for body in bodies:
            for _ in range(5):
                rpc.call("pull", queue_name, 0)
            expected = body.encode() if isinstance(body, str) else body
            assert rpc.call("pull", queue_name, 0)[b"content"] == expected


def test_a_full_queue_refuses_and_has_room_again(relayed: NodeProcess, queue_name: str) -> None:
    with Rpc(relayed.rpc) as rpc, Connection(relayed.http) as http, Client(relayed.rpc) as client:
        push(rpc, queue_name, 3)
        for _ in range(3):
            assert http.call("POST", f"/messages/{queue_name}", b"x", TEXT).status == 200
        client.update_props(queue_name, {"max_items": 3})
        for _ in range(3):
            reply = rpc.many([("push", queue_name, b"x")])[0]
            assert b"full" in reply.error
            assert http.call("POST", f"/messages/{queue_name}", b"x", TEXT)["x-lmq-error"].startswith(b"full: ")
        client.purge(queue_name)
        push(rpc, queue_name, 2)
        assert http.call("POST", f"/messages/{queue_name}", b"x", TEXT).status == 200


def test_a_producer_that_binds_later(relayed: NodeProcess, queue_name: str) -> None:
    """Its pushes have numbers from then on, so that they are stored once."""
    with Rpc(relayed.rpc) as rpc:
        push(rpc, queue_name, 5)
        for _ in range(2):
            rpc.call("producer", queue_name.encode()[-60:], 1)
            for number in range(4):
                assert rpc.call("push", queue_name, b"numbered %d" % number) == b"ok"
    found = contents(relayed, queue_name)
    assert len(found) == 9


def test_bytes_inside_an_unfinished_request_are_no_push(relayed: NodeProcess, queue_name: str) -> None:
    """A push follows the beginning of another request in one read; the rest of that request looks like a push."""
    inner = request(77, "push", queue_name, b"inner")
    outer = request(60, "push", f"{queue_name}-other", b"head" + inner)
    with Rpc(relayed.rpc) as rpc:
        push(rpc, queue_name, 3)
        rpc.send(request(59, "push", queue_name, b"before") + outer[: -len(inner)])
        assert rpc.read().msgid == 59
        rpc.send(inner)
        assert rpc.read().msgid == 60
        push(rpc, queue_name, 3)
    assert len(contents(relayed, queue_name)) == 7
    assert contents(relayed, f"{queue_name}-other") == [b"head" + inner]


def test_a_refused_client_ends_nothing_else(relayed: NodeProcess, queue_name: str) -> None:
    """Answers to its earlier requests follow the end of the node's sending side."""
    too_many = b"\x94\x00\x63\xa4push\x92\xa1q\xdd" + (2_000_000).to_bytes(4, "big")
    failures = relayed.log().count("a front-end process failed")
    with Rpc(relayed.rpc) as victim:
        victim.settle()
        for attempt in range(40):
            with Rpc(relayed.rpc) as rpc:
                push(rpc, queue_name, attempt % 4)
                rpc.send(request(50, "push", queue_name, b"b") + too_many)
                rpc.read()
                rpc.send(request(51, "push", queue_name, b"c"))
                rpc.socket.shutdown(1)
                while rpc.socket.recv(4096):
                    pass
        victim.settle()
    assert relayed.log().count("a front-end process failed") == failures


def test_answers_do_not_interrupt_a_large_message(relayed: NodeProcess, queue_name: str) -> None:
    """The client repeats pushes while the message for its waiting pull arrives."""
    large = b"B" * 2_000_000
    with Rpc(relayed.rpc) as rpc, Client(relayed.rpc) as client:
        answers = 0
        for attempt in range(20):
            pulled = rpc.ask("pull", f"{queue_name}-large", 60)
            pushing = threading.Thread(target=client.push, args=(f"{queue_name}-large", large))
            pushing.start()
            while True:
                msgid = rpc.ask("push", queue_name, b"%d" % attempt)
                reply = rpc.read()
                if reply.msgid == pulled:
                    assert reply.result[b"content"] == large
                    assert rpc.read().msgid == msgid
                    break
                assert (reply.msgid, reply.result) == (msgid, b"ok")
                answers += 1
            pushing.join()
        assert answers


def test_pushes_before_a_half_close_are_answered(relayed: NodeProcess, queue_name: str) -> None:
    with Rpc(relayed.rpc) as rpc:
        push(rpc, queue_name)
        rpc.socket.sendall(request(77, "push", queue_name, b"last"))
        rpc.socket.shutdown(1)
        answer = b""
        while more := rpc.socket.recv(4096):
            answer += more
        assert msgpack.unpackb(answer, raw=True) == [1, 77, None, b"ok"]
    assert len(contents(relayed, queue_name)) == 6


def test_clients_that_disconnect_leave_nothing_behind(relayed: NodeProcess, queue_name: str) -> None:
    for _ in range(30):
        with Rpc(relayed.rpc) as rpc, Connection(relayed.http) as http:
            push(rpc, queue_name, 4)
            rpc.socket.sendall(request(77, "push", queue_name, b"last"))
            for _ in range(4):
                http.call("POST", f"/messages/{queue_name}", b"x", TEXT)
            http.ask("POST", f"/messages/{queue_name}", b"x", TEXT)
    page = call(relayed.http, "GET", "/metrics").body.decode()
    wait_for(
        lambda: 'lmq_requests_in_flight{protocol="http"} 1' in call(relayed.http, "GET", "/metrics").body.decode(), page
    )
    with Rpc(relayed.rpc) as rpc:
        push(rpc, queue_name)


class Pusher(threading.Thread):
    """A client that pushes one numbered message after the other, over one protocol, to the nodes that answer.

    Attributes:
        confirmed: numbers of the pushes that were confirmed.
    """

    def __init__(self, cluster: Cluster, queue: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.cluster, self.queue = cluster, queue
        self.confirmed: list[int] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        number = 0
        for node in itertools.cycle(self.cluster):
            if self.stopped.is_set():
                return
            try:
                with Rpc(node.rpc) as rpc, Connection(node.http) as http:
                    while not self.stopped.is_set():
                        number += 1
                        self._push(rpc, http, f"{self.name}:{number}".encode())
                        self.confirmed.append(number)
            except (OSError, EOFError, RpcError, AssertionError):
                # Its outcome is unknown, and it is not repeated.
                self.stopped.wait(0.02)

    def _push(self, rpc: Rpc, http: Connection, body: bytes) -> None:
        if self.name.startswith("rpc"):
            assert rpc.call("push", self.queue, body) == b"ok"
        else:
            assert http.call("POST", f"/messages/{self.queue}", body, TEXT).status == 200


def test_confirmed_pushes_survive_killed_leaders(tmp_path: Path, queue_name: str) -> None:
    with Cluster(3, directory=tmp_path, environment={"LMQ_FRONT_ENDS": "2"}) as cluster:
        pushers = [Pusher(cluster, queue_name, f"{kind}-{number}") for kind in ("rpc", "http") for number in range(5)]
        for pusher in pushers:
            pusher.start()
        try:
            for _ in range(2):
                before = [len(pusher.confirmed) for pusher in pushers]
                for pusher, count in zip(pushers, before, strict=True):
                    wait_for(lambda: len(pusher.confirmed) > count + 50, "pushes")  # noqa: B023 - called at once
                leader = cluster.leader()
                leader.kill()
                leader.start()
        finally:
            for pusher in pushers:
                pusher.stopped.set()
            for pusher in pushers:
                pusher.join()
        found: dict[str, list[int]] = {pusher.name: [] for pusher in pushers}
        for body in contents(cluster.leader(), queue_name):
            assert isinstance(body, bytes | str)
            name, _, number = (body.decode() if isinstance(body, bytes) else body).partition(":")
            found[name].append(int(number))
    for pusher in pushers:
        stored = found[pusher.name]
        assert stored == sorted(set(stored))
        assert set(pusher.confirmed) <= set(stored)


def test_rights_that_end(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, environment={"LMQ_FRONT_ENDS": "2"}) as node:
        with Rpc(node.rpc) as without, Connection(node.http) as http:
            push(without, "q")
            for _ in range(4):
                assert http.call("POST", "/messages/q", b"x", TEXT).status == 200
            admin = make_token(node, "admin", "admin")
            assert http.call("POST", "/messages/q", b"x", TEXT).status == 401
            with pytest.raises((EOFError, ConnectionError, OSError)):
                push(without, "q")
        writer = make_token(node, "writer", "write", admin)
        with Rpc(node.rpc) as known:
            known.call("auth", writer)
            push(known, "q")
            owner = {"Authorization": f"Bearer {admin}"}
            assert call(node.http, "DELETE", "/v1/tokens/writer", headers=owner).status == 204
            with pytest.raises((EOFError, ConnectionError, OSError)):
                push(known, "q")
