"""Clients that use as much as they are allowed to: the cost of one client for a node is bounded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from .bad_input import MIB, bounded_memory, connect, pour, unharmed
from .cluster import Cluster
from .raw_http import call
from .raw_rpc import Rpc, request

GROWTH = 384 * MIB
"""Half of 512 MiB is one client's share of a large machine; the queue's messages and copies in progress are added."""


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, directory=tmp_path_factory.mktemp("victims")) as nodes:
        yield nodes


def test_unread_peeks(victims: Cluster) -> None:
    """60 peeks at 16 MiB each, sent at once and not read: few are made, and all are answered when the client reads."""
    node = victims[0]
    with unharmed(victims) as canary, Rpc(node.rpc, 60) as rpc:
        rpc.call("push_many", "peeked", [b"x" * MIB] * 17)
        with bounded_memory([node], GROWTH):
            rpc.send(b"".join(request(number, "peek", "peeked", 17, 0) for number in range(60)))
            canary.check()
            canary.check()
            replies = [rpc.read() for _ in range(60)]
        assert {reply.msgid for reply in replies} == set(range(60))
        assert all(len(reply.result[b"body"]) == 16 for reply in replies if reply.error is None)
        assert {(reply.error or b"")[:10] for reply in replies} <= {b"", b"overloaded"}
        rpc.call("delete", "peeked")


def test_unread_peeks_of_many_connections(victims: Cluster) -> None:
    """The bound applies to the client, not to the connection."""
    node = victims[0]
    with unharmed(victims) as canary, contextlib.ExitStack() as stack, Rpc(node.rpc, 60) as rpc:
        rpc.call("push_many", "peeked", [b"x" * MIB] * 17)
        with bounded_memory([node], GROWTH):
            for _ in range(60):
                sock = stack.enter_context(connect(node.rpc))
                sock.sendall(request(1, "peek", "peeked", 17, 0))
            canary.check()
            canary.check()
        stack.close()
        rpc.call("delete", "peeked")


def test_large_msgids_are_not_kept(victims: Cluster) -> None:
    """A msgid has to be kept while its pull waits."""
    node = victims[0]
    with bounded_memory([node], 64 * MIB), contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(connect(node.rpc))
            with contextlib.suppress(ConnectionError):
                for number in range(20):
                    sock.sendall(request(b"%d" % number + b"x" * MIB, "pull", "never"))
        with Rpc(node.rpc) as rpc:
            rpc.settle()
            assert rpc.exchange(request("a msgid of some bytes", "ping")).endswith(b"pong")


def test_unfinished_requests_hold_bytes_and_no_values(victims: Cluster) -> None:
    """30 requests of nearly a million empty lists each, without their last byte."""
    node = victims[0]
    values = 900_000
    start = b"\x94\x00\x01\xa4push\x92\xa1q\xdd" + values.to_bytes(4, "big")
    with unharmed(victims) as canary, contextlib.ExitStack() as stack, bounded_memory([node], 128 * MIB):
        for _ in range(30):
            sock = stack.enter_context(connect(node.rpc, 60))
            pour(sock, start + b"\x90" * (values - 1), values)
        canary.check()


def test_bodies_of_a_million_values_do_not_block_the_node(victims: Cluster) -> None:
    """One ``pull_many`` of 16 of them: other clients are served between the slices, and it gets all messages."""
    node = victims[0]
    values = 400_000
    body = b"\xdd" + values.to_bytes(4, "big") + b"\x90" * values
    headers = {"Content-Type": "application/x-msgpack"}
    with unharmed(victims) as canary, Rpc(node.rpc, 60) as rpc:
        for _ in range(8):
            assert call(node.http, "POST", "/messages/valued", body, headers).status == 200
        rounds = canary.rounds
        rpc.send(request(1, "pull_many", "valued", 8))
        messages = rpc.read().result
        assert canary.rounds > rounds, "no other client was served while the bodies were decoded"
        assert [len(message[b"content"]) for message in messages] == [values] * 8
        rpc.call("delete", "valued")


def test_a_client_that_leaves_while_its_messages_are_made_loses_none(victims: Cluster) -> None:
    node = victims[0]
    values = 400_000
    body = b"\xdd" + values.to_bytes(4, "big") + b"\x90" * values
    assert call(node.http, "POST", "/messages/left", body, {"Content-Type": "application/x-msgpack"}).status == 200
    for _ in range(5):
        leaving = Rpc(node.rpc)
        leaving.send(request(1, "pull", "left"))
        leaving.settle()
        leaving.abort()
    with Rpc(node.rpc, 60) as rpc:
        message = rpc.call("pull", "left", 30)
        assert (len(message[b"content"]), message[b"retry"]) == (values, 2), "a lost delivery was charged"
        rpc.call("done", "left", message[b"id"])
