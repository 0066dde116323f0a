"""Features of MessagePack-RPC beyond LMQ's methods: batches, order on a connection, idempotency keys, producers."""

from __future__ import annotations

import itertools
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .cluster import Cluster, NodeProcess
from .raw_http import call
from .raw_rpc import Rpc, old, request


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


def drain(address: str, queue_name: str) -> list[object]:
    """Pull and settle all messages."""
    found: list[object] = []
    with Rpc(address) as rpc:
        while messages := rpc.call("pull_many", queue_name, 1000):
            assert rpc.call("done_many", queue_name, [m[b"id"] for m in messages]) == [True] * len(messages)
            found += [m[b"content"] for m in messages]
    return found


def drain_here(rpc: Rpc, queue_name: str) -> list[Any]:
    """Pull all messages over this connection."""
    return [m[b"content"] for m in rpc.call("pull_many", queue_name, 10_000)]


# --- batches ----------------------------------------------------------------------------------------------------------


def test_push_many_answers_for_each_content(rpc: Rpc, queue_name: str) -> None:
    """push_many(name, [content, ...]) -> ["ok", ...]."""
    assert rpc.exchange(request(1, "push_many", queue_name, ["a", 1, None])) == b"\x94\x01\x01\xc0\x93" + b"\xa2ok" * 3
    assert rpc.call("push_many", queue_name, []) == []
    assert rpc.call("push_many", queue_name, list(range(20))) == [b"ok"] * 20
    assert drain_here(rpc, queue_name) == [b"a", 1, None, *range(20)]


def test_push_many_into_a_window(rpc: Rpc, queue_name: str) -> None:
    """push_many answers for each content what push would."""
    rpc.call("update_props", queue_name, {"pack": 1})
    assert rpc.call("push_many", queue_name, [1, 2, 3]) == [b"packing started", b"packed", b"packed"]
    assert rpc.call("pull", queue_name)[b"content"] == [1, 2, 3]


def test_push_many_has_a_limit(rpc: Rpc, queue_name: str) -> None:
    """More than 10 000 contents in one batch are refused with the reason, and none is stored."""
    assert rpc.call("push_many", queue_name, [0] * 10_000) == [b"ok"] * 10_000
    assert rpc.error("push_many", queue_name, [0] * 10_001).startswith(b"too_large: a batch may have at most 10000")
    assert len(rpc.call("pull_many", queue_name, 10_000)) == 10_000
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_pull_many_returns_ready_messages(rpc: Rpc, queue_name: str) -> None:
    """pull_many(name, max[, timeout]) -> [message, ...], up to max, each as of pull; without a timeout it
    does not wait.
    """
    assert rpc.call("pull_many", queue_name, 5) == []
    rpc.call("push_many", queue_name, [0, 1, 2])
    first = rpc.call("pull_many", queue_name, 2)
    assert [list(m) for m in first] == [[b"queue", b"id", b"type", b"retry", b"content"]] * 2
    assert [m[b"content"] for m in first] == [0, 1]
    assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 2, 5)] == [2]
    assert rpc.call("pull_many", queue_name, 2, 0.05) == []


def test_large_batch_pulls_of_one_segment_get_all_there_is(rpc: Rpc, queue_name: str) -> None:
    """Pulls that share a batch of the log each get what they would get alone."""
    for _ in range(3):
        rpc.call("push_many", queue_name, [0] * 5_000)
    replies = rpc.many([("pull_many", queue_name, 10_000), ("pull_many", queue_name, 10_000), ("pull", queue_name, 0)])
    assert [len(reply.result) for reply in replies[:2]] == [10_000, 5_000]
    assert replies[2].result == b"empty"


def test_pull_many_waits_for_the_first_message(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """With a timeout it returns as soon as at least one message is ready."""
    waiting = rpc.ask("pull_many", queue_name, 10, 3600)
    with Rpc(node.rpc) as other:
        other.settle()
        other.call("push", queue_name, "one")
    reply = rpc.read()
    assert (reply.msgid, [m[b"content"] for m in reply.result]) == (waiting, [b"one"])


@pytest.mark.parametrize(
    ("method", "after"),
    [("done_many", []), ("release_many", [1, 2]), ("retain_many", []), ("put_back_many", [1, 2])],
)
def test_many_replies_answer_for_each_id(rpc: Rpc, queue_name: str, method: str, after: list[int]) -> None:
    """done_many, retain_many, release_many(name, [id, ...]) -> [bool, ...]."""
    rpc.call("push_many", queue_name, [1, 2, 3])
    ids = [m[b"id"] for m in rpc.call("pull_many", queue_name, 3)]
    rpc.call("done", queue_name, ids[2])
    assert rpc.call(method, queue_name, [ids[0], ids[2], b"nonsense", ids[1]]) == [True, False, False, True]
    assert rpc.call(method, queue_name, []) == []
    assert sorted(drain_here(rpc, queue_name)) == after


def test_a_repeated_settlement_returns_the_result_of_the_first(cluster: Cluster, queue_name: str) -> None:
    """done_many(name, [id], {again: true})

    Through another node too: true for deliveries that such a call has settled before, and only for those.
    """
    nodes = list(cluster)
    with Rpc(nodes[0].rpc) as first, Rpc(nodes[1].rpc) as second:
        first.call("push_many", queue_name, list(range(5)))
        ids = [message[b"id"] for message in first.call("pull_many", queue_name, 4)]
        assert first.call("done_many", queue_name, ids[:1]) == [True]
        assert first.call("release_many", queue_name, ids[1:2]) == [True]
        assert first.call("put_back_many", queue_name, ids[2:3]) == [True]
        for verb, settled in (("done", 0), ("release", 1), ("put_back", 2)):
            before = second.call(f"{verb}_many", queue_name, ids[:3], {"again": True})
            assert before == [index == settled for index in range(3)], verb
            assert second.call(f"{verb}_many", queue_name, ids[:3]) == [False] * 3
        assert second.call("done_many", queue_name, ids[3:], {"again": True}) == [True]
        assert second.call("done_many", queue_name, ids[3:], {"again": False}) == [False]
        for verb, options in (("done", {}), ("done", {"again": 1}), ("done", 1)):
            assert second.error(f"{verb}_many", queue_name, ids, options) == b"function_clause"


def test_many_replies_to_an_unknown_queue_are_all_false(rpc: Rpc, queue_name: str) -> None:
    """An unknown queue has no message under lease; it is not created."""
    assert rpc.call("done_many", queue_name, ["a", "b"]) == [False, False]
    assert rpc.error("done", queue_name, "a") == b"throw:queue_not_found"


def test_put_back_many_returns_messages_to_their_positions_uncharged(rpc: Rpc, queue_name: str) -> None:
    """2.1 put back: due as before, deliveries plus 1: unlike release_many it costs no retry and keeps the order."""
    rpc.call("push_many", queue_name, [1, 2, 3])
    first, second = rpc.call("pull_many", queue_name, 2)
    assert rpc.call("put_back_many", queue_name, [second[b"id"], first[b"id"]]) == [True, True]
    again = rpc.call("pull_many", queue_name, 3)
    assert [(m[b"content"], m[b"retry"]) for m in again] == [(1, 2), (2, 2), (3, 2)]


@pytest.mark.parametrize("call", [("pull",), ("pull", 3600), ("pull_any",), ("pull_many", 5, 3600)], ids=str)
def test_cancel_ends_a_wait_like_its_timeout(rpc: Rpc, queue_name: str, call: tuple) -> None:
    """cancel(msgid) of a waiting pull, sent at once after it or later, as request or notification."""
    for pause in (False, True):
        for notified in (False, True):
            waiting = rpc.ask(call[0], queue_name, *call[1:])
            if pause:
                assert rpc.call("get_default_props") == []
            if notified:
                rpc.send(old([2, "cancel", [waiting]]))
            else:
                rpc.ask("cancel", waiting)
            replies = {reply.msgid: reply for reply in (rpc.read() for _ in range(1 if notified else 2))}
            assert replies.pop(waiting).result == ([] if call[0] == "pull_many" else b"empty")
            assert [reply.result for reply in replies.values()] == ([] if notified else [b"ok"])
    rpc.call("push", queue_name, "x")
    assert rpc.call("pull", queue_name, 0)[b"retry"] == 2, "a cancelled wait took a message"


def test_cancel_of_an_unknown_request_is_a_no_op(rpc: Rpc) -> None:
    """An unknown msgid is ignored."""
    assert rpc.call("cancel", 12345) == b"ok"
    assert rpc.call("cancel", ["odd"]) == b"ok"
    rpc.settle()


# --- order, pipelining ------------------------------------------------------------------------------------------------


def test_operations_of_one_connection_take_effect_in_the_order_sent(shared_cluster: Cluster, queue_name: str) -> None:
    """Requests are pipelined without limit, of all kinds, through a follower too; each sees what was sent before it."""
    for node in shared_cluster:
        name = f"{queue_name}-{node.name}"
        calls: list[tuple] = []
        wanted: list[object] = []
        for number in range(300):
            calls += [("update_props", name, {"retry": number}), ("push", name, number)]
            wanted += [b"ok", b"ok"]
            calls += [("pull", name, 0), ("pull_any", f"^{name}$", 0), ("pull_many", name, 5)]
            wanted += [(number, number), b"empty", []]
            calls += [("push_many", name, ["x", "y"]), ("delete", name)]
            wanted += [[b"ok", b"ok"], b"ok"]
            calls += [("pull", name, 0), ("done", name, "no id"), ("update_props", name)]
            wanted += [b"empty", b"throw:not_found", b"ok"]
        with Rpc(node.rpc) as rpc:
            replies = rpc.many(calls)
        seen = [
            (reply.result[b"content"], reply.result[b"retry"])
            if type(reply.result) is dict
            else reply.error or reply.result
            for reply in replies
        ]
        assert seen == wanted


def test_blocked_pull_never_delays_other_requests_of_its_connection(shared_cluster: Cluster, queue_name: str) -> None:
    """A blocked pull of every kind, and then everything else on the same connection."""
    with Rpc(shared_cluster.followers()[0].rpc) as rpc:
        for call in (("pull",), ("pull_any",), ("pull", 3600), ("pull_any", 3600), ("pull_many", 5, 3600)):
            rpc.ask(call[0], queue_name + "-nothing", *call[1:])
        assert rpc.call("push", queue_name, 1) == b"ok"
        assert rpc.call("push_many", queue_name, [2, 3]) == [b"ok", b"ok"]
        message = rpc.call("pull", queue_name)
        assert rpc.call("done", queue_name, message[b"id"]) == b"ok"
        assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 5, 3600)] == [2, 3]
        assert rpc.call("get_default_props") == []
        assert rpc.call("ping") == b"pong"


def test_default_props_and_a_pull_of_the_same_segment(rpc: Rpc, queue_name: str) -> None:
    """Requests of different kinds share a batch, in any order."""
    before = [("get_default_props",), ("set_default_props", []), ("push_all", queue_name, 1), ("delete", queue_name)]
    after = [("pull", queue_name, 0), ("push", queue_name, 1), ("pull_any", "^$", 0), ("done", queue_name, "x")]
    for pair in itertools.product(before, after):
        rpc.many(pair)
    rpc.settle()


def test_a_client_that_does_not_read_is_slowed_and_not_disconnected(node: NodeProcess) -> None:
    """Pipelined requests are all answered, although the client reads late and is blocked in the middle of a request.

    The 5 s of silence that end a partial request are the client's silence, not the server's.
    """
    # More requests and answers than the network buffers hold.
    count = 800_000
    stream = b"".join(b"\x94\x00\xce%b\xa4ping\x90" % number.to_bytes(4, "big") for number in range(count))
    with Rpc(node.rpc) as rpc:
        rpc.socket.setblocking(False)
        writable = select.poll()
        writable.register(rpc.socket, select.POLLOUT)
        sent, since_s = 0, time.monotonic()
        while time.monotonic() - since_s < 7.0:
            if writable.poll(500):
                sent, since_s = sent + rpc.socket.send(stream[sent : sent + 1_000_000]), time.monotonic()
        assert sent < len(stream), "the server was never held back"
        rpc.socket.settimeout(20)
        rest = threading.Thread(target=rpc.send, args=(stream[sent:],))
        rest.start()
        try:
            replies = [rpc.read().msgid for _ in range(count)]
        finally:
            rpc.socket.shutdown(socket.SHUT_RDWR)
            rest.join()
    assert replies == list(range(count))


# --- keys and producers -----------------------------------------------------------------------------------------------


def test_push_with_a_key_is_stored_once(shared_cluster: Cluster, queue_name: str) -> None:
    """push(name, content, {"key": ...}): a second push with the key stores nothing and answers as the first did."""
    key = secrets.token_bytes(16)
    for node in shared_cluster:
        with Rpc(node.rpc) as rpc:
            assert rpc.call("push", queue_name, "once", {"key": key}) == b"ok"
    assert drain(shared_cluster[0].rpc, queue_name) == [b"once"]
    with Rpc(shared_cluster[1].rpc) as rpc:
        assert rpc.call("push", queue_name, "once", {"key": key}) == b"ok"
        assert rpc.call("pull", queue_name, 0) == b"empty", "remembered although the message is gone"
        assert rpc.call("push", queue_name + "-other", "other", {"key": key}) == b"ok"
        assert rpc.call("pull", queue_name + "-other", 0)[b"content"] == b"other", "keys are per queue"


def test_keyed_push_into_a_window_repeats_its_answer(rpc: Rpc, queue_name: str) -> None:
    """The answer of a repeated push is that of the first."""
    rpc.call("update_props", queue_name, {"pack": 60})
    for _ in range(2):
        assert rpc.call("push", queue_name, 1, {"key": "a"}) == b"packing started"
    for _ in range(2):
        assert rpc.call("push", queue_name, 2, {"key": "b"}) == b"packed"


def test_push_many_with_keys(rpc: Rpc, queue_name: str) -> None:
    """push_many(name, contents, {"keys": [key or nil, ...]})."""
    keys = ["a", None, "b", "a"]
    assert rpc.call("push_many", queue_name, [1, 2, 3, 1], {"keys": keys}) == [b"ok"] * 4
    assert rpc.call("push_many", queue_name, [1, 6, 3, 1], {"keys": keys}) == [b"ok"] * 4
    assert rpc.error("push_many", queue_name, [7, 8, 9, 1], {"keys": keys}).startswith(b"key_reused: ")
    assert drain_here(rpc, queue_name) == [1, 2, 3, 6]


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("push", [1, {"key": 5}]),
        ("push", [1, {"key": ""}]),
        ("push", [1, {"key": "k" * 256}]),
        ("push", [1, {"unknown": 1}]),
        ("push", [1, "key"]),
        ("push", [1, None]),
        ("push_many", [[1], {"keys": "k"}]),
        ("push_many", [[1], {"keys": []}]),
        ("push_many", [[1], {"keys": ["a", "b"]}]),
        ("push_many", [[1], {"keys": [1]}]),
        ("push_many", [[1], {1: 2}]),
    ],
)
def test_wrong_options_are_refused(rpc: Rpc, queue_name: str, method: str, arguments: list[object]) -> None:
    """10.2: argument of the wrong type `function_clause`; nothing is stored."""
    assert rpc.error(method, queue_name, *arguments) == b"function_clause"
    assert rpc.call("pull", queue_name, 0) == b"empty"


def test_messages_show_the_content_type_to_producers(node: NodeProcess, rpc: Rpc, queue_name: str) -> None:
    """A connection that has called producer gets a sixth key, content_type, if it is not that of RPC pushes.

    LMQ's clients, which never call producer, get LMQ's five keys.
    """
    for _ in range(2):
        rpc.call("push", queue_name, 1)
        call(node.http, "POST", f"/messages/{queue_name}", b"x", {"Content-Type": "text/plain"})
        call(node.http, "POST", f"/messages/{queue_name}", b"y")
    five = [b"queue", b"id", b"type", b"retry", b"content"]
    assert [list(rpc.call("pull", queue_name, 0)) for _ in range(3)] == [five] * 3
    rpc.call("producer", secrets.token_bytes(16), 1)
    messages = [rpc.call("pull", queue_name, 0), *rpc.call("pull_many", queue_name, 5)]
    assert [list(m)[5:] for m in messages] == [[], [b"content_type"], [b"content_type"]]
    assert [m.get(b"content_type") for m in messages] == [None, b"text/plain", None]


class Producer:
    """A client that numbers its pushes as the protocol requires; each method uses a new connection."""

    def __init__(self) -> None:
        self.id = secrets.token_bytes(16)

    def connect(self, node: NodeProcess, first: int) -> Rpc:
        rpc = Rpc(node.rpc)
        assert rpc.call("producer", self.id, first) == b"ok"
        return rpc


def test_unresolved_pushes_resent_through_another_node_are_stored_once(
    shared_cluster: Cluster, queue_name: str
) -> None:
    """producer(id, first): each (producer, sequence) is stored at most once, through any node."""
    producer = Producer()
    with producer.connect(shared_cluster[0], 1) as rpc:
        rpc.many([("push", queue_name, number) for number in range(1, 11)])
    for node, first in ((shared_cluster[1], 4), (shared_cluster[2], 1), (shared_cluster[0], 11)):
        with producer.connect(node, first) as rpc:
            replies = rpc.many([("push", queue_name, number) for number in range(first, 13)])
            assert all(reply.result == b"ok" for reply in replies)
    assert drain(shared_cluster[0].rpc, queue_name) == list(range(1, 13))


def test_sequences_continue_over_queues_and_batches(shared_cluster: Cluster, queue_name: str) -> None:
    """Every content of push and push_many without a key takes the next number, on every queue; keyed ones take none."""
    producer, other = Producer(), queue_name + "-other"
    calls = [
        ("push", queue_name, 1),
        ("push", other, 2),
        ("push_many", queue_name, [3, 4, 5]),
        ("push", other, "keyed", {"key": secrets.token_bytes(8)}),
        ("push_many", other, []),
        ("push_many", other, [6]),
        ("push", queue_name, 7),
    ]
    with producer.connect(shared_cluster[0], 1) as rpc:
        rpc.many(calls)
    with producer.connect(shared_cluster[1], 1) as rpc:
        assert [reply.result for reply in rpc.many(calls[:3])] == [b"ok", b"ok", [b"ok"] * 3]
    with producer.connect(shared_cluster[2], 4) as rpc:
        rpc.many([("push_many", queue_name, [4, 5, 6, 7, 8])])
    assert drain(shared_cluster[0].rpc, queue_name) == [1, 3, 4, 5, 7, 8]
    assert drain(shared_cluster[0].rpc, other) == [2, b"keyed", 6]


REFUSED: list[tuple] = [
    ("push", "", 1),
    ("push", "n" * 300, 1),
    ("push", "a\nb", 1),
    ("push", "QUEUE", "x" * (64 * 1024 * 1024 + 1)),
    ("push_many", "a\nb", [1, 2, 3]),
]


@pytest.mark.parametrize("refused", REFUSED, ids=lambda call: f"{call[0]} {str(call[1])[:10]!r}")
def test_refused_push_takes_its_number(shared_cluster: Cluster, queue_name: str, refused: tuple) -> None:
    """A refused push has used up its numbers, so that client and server continue to count alike.

    Otherwise a push resent after a lost connection would be stored twice, or taken for a duplicate and lost.
    """
    producer = Producer()
    refused = tuple(queue_name if part == "QUEUE" else part for part in refused)
    after = 2 + (3 if refused[0] == "push_many" else 1)
    with producer.connect(shared_cluster[0], 1) as rpc:
        replies = rpc.many([("push", queue_name, "before"), refused, ("push", queue_name, "after")])
        assert [reply.error is None for reply in replies] == [True, False, True]
    with producer.connect(shared_cluster[1], after) as rpc:
        assert rpc.call("push", queue_name, "after") == b"ok"
        assert rpc.call("push", queue_name, "new") == b"ok"
    assert drain(shared_cluster[2].rpc, queue_name) == [b"before", b"after", b"new"]


def test_producers_do_not_mix(shared_cluster: Cluster, queue_name: str) -> None:
    """A connection may change its producer; pushes of other connections in the same batch belong to their own
    producers.
    """
    one, two = Producer(), Producer()
    with Rpc(shared_cluster[0].rpc) as rpc:
        calls = [
            ("push", queue_name, "unbound"),
            ("producer", one.id, 1),
            ("push", queue_name, "one"),
            ("producer", two.id, 1),
            ("push", queue_name, "two"),
            ("producer", one.id, 1),
            ("push", queue_name, "one again"),
            ("push", queue_name, "one more"),
        ]
        assert all(reply.result == b"ok" for reply in rpc.many(calls))
    assert drain(shared_cluster[1].rpc, queue_name) == [b"unbound", b"one", b"two", b"one more"]


def test_producer_may_skip_numbers(shared_cluster: Cluster, queue_name: str) -> None:
    """A push that was refused is retried under a new sequence, so numbers may be skipped."""
    producer = Producer()
    for first in (1, 10, 5, 2**61):
        with producer.connect(shared_cluster[0], first) as rpc:
            rpc.call("push", queue_name, first)
    assert drain(shared_cluster[1].rpc, queue_name) == [1, 10, 2**61]


# --- ping, cluster ----------------------------------------------------------------------------------------------------


def test_ping(rpc: Rpc) -> None:
    """ping() -> "pong"."""
    assert rpc.exchange(request(3, "ping")) == b"\x94\x01\x03\xc0" + old("pong")


def test_cluster_returns_the_rpc_addresses(shared_cluster: Cluster) -> None:
    """cluster() -> self, leader and the rpc addresses of the nodes."""
    leader = shared_cluster.leader()
    answers = []
    for node in shared_cluster:
        with Rpc(node.rpc) as rpc:
            answers.append(rpc.call("cluster"))
    assert all(list(answer) == [b"self", b"leader", b"rpc"] for answer in answers)
    assert len({answer[b"self"] for answer in answers}) == 3
    assert {answer[b"leader"] for answer in answers} == {leader.get_json("/v1/cluster")["self"].encode()}
    for answer in answers:
        assert sorted(answer[b"rpc"]) == sorted(address.encode() for address in shared_cluster.rpc_addresses)
