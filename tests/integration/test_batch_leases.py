"""Batch leases over the clients: the same epoch returns the same messages through every node and after crashes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lmqcluster import Client, LmqError, Outcome
from lmqcluster.client import BatchMessage

from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import call
from .raw_rpc import Rpc

S = "subscription"


def client_of(*nodes: NodeProcess) -> Client:
    return Client([node.rpc for node in nodes], decode=True)


def contents(messages: list[BatchMessage]) -> list[bytes]:
    """Return the bodies of short strings without their MessagePack head."""
    return [message.body[1:] for message in messages if isinstance(message.body, bytes)]


def read_all(client: Client, name: str, epoch: int, count: int, step: int = 10_000) -> list[BatchMessage]:
    found: list[BatchMessage] = []
    while len(found) < count:
        part = list(client.read_batch(name, epoch, len(found), step))
        assert part
        found += part
    return found


def test_an_epoch_is_the_same_through_every_node_and_after_crashes(cluster: Cluster) -> None:
    """After a kill of the leader, then of all nodes, the batch, its order and its receipts stay; others pull
    the rest.
    """
    with client_of(*cluster) as client:
        client.push_many("q", [f"{n:06}" for n in range(25_000)])
        first = client.reserve_batch(S, 1, queue="q", count=22_000)
        assert (first.state, first.count, first.epoch) == ("live", 22_000, 1)
        assert 86_000 < first.expires_in_s <= 86_400
        messages = read_all(client, S, 1, 22_000)
        assert contents(messages) == [b"%06d" % n for n in range(22_000)]
        assert len({message.id for message in messages}) == 22_000
        assert [message.retry for message in messages[:2]] == [2, 2]
        rest = client.pull_many("q", 10_000)
        assert [message.content for message in rest] == [f"{n:06}" for n in range(22_000, 25_000)]
        for node in cluster:
            with client_of(node) as other:
                again = other.reserve_batch(S, 1, queue="another", count=1, lease_s=1)
                assert (again.state, again.count) == ("live", 22_000)
                assert list(other.read_batch(S, 1, 21_990, 100)) == messages[21_990:]
        cluster.leader().kill()
        assert read_all(client, S, 1, 22_000, 7_000) == messages
        for node in cluster:
            if node.running:
                node.kill()
        for node in cluster:
            node.start(wait=False)
        for node in cluster:
            node.wait_ready()
        assert read_all(client, S, 1, 22_000) == messages
        assert client.settle_batches(S, 1) == []
        assert client.settle_batches(S, 1) == []
        assert client.reserve_batch(S, 1, queue="q", count=1).state == "settled"
        assert all(client.done_many("q", [message.id for message in rest]))
        assert call(cluster.nodes[0].http, "GET", "/v1/queues/q").json["size"] == 0


def test_batches_end_in_every_way(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        client.push_many(queue_name, list("abcdef"))
        name = f"{queue_name}-s"
        assert client.subscription(name) is None
        assert client.reserve_batch(name, 3, queue=queue_name, count=2).count == 2
        assert client.reserve_batch(name, 4, queue=queue_name, count=2, lease_s=0.4).count == 2
        with pytest.raises(LmqError, match="later epoch"):
            client.reserve_batch(name, 2, queue=queue_name, count=1)
        wait_for(lambda: client.reserve_batch(name, 4, queue=queue_name, count=2).state == "expired", "the lease ended")
        with pytest.raises(LmqError, match="its lease ended") as raised:
            client.read_batch(name, 4, 0, 10)
        assert (raised.value.code, raised.value.retryable, raised.value.outcome) == (
            "lease_expired",
            False,
            Outcome.NOT_APPLIED,
        )
        # Expired messages are redelivered, uncharged, after those that were due before.
        assert client.reserve_batch(name, 5, queue=queue_name, count=10).count == 4
        assert contents(list(client.read_batch(name, 5, 0, 10))) == [b"e", b"f", b"c", b"d"]
        known = client.subscription(name)
        assert known is not None
        assert [(one["epoch"], one["state"], one["count"]) for one in known["batches"]] == [
            (3, "live", 2),
            (4, "expired", 2),
            (5, "live", 4),
        ]
        assert client.settle_batches(name, 4) == [4], "the result shows that epoch 4 had expired"
        with pytest.raises(LmqError, match="it was settled"):
            client.read_batch(name, 3, 0, 1)
        assert client.abandon_batches(name) == "ok"
        with pytest.raises(LmqError, match="no batch") as missing:
            client.read_batch(name, 5, 0, 1)
        assert missing.value.code == "batch_not_found"
        back = client.pull_many(queue_name, 10)
        assert [(one.content, one.retry) for one in back] == [("e", 2), ("f", 2), ("c", 2), ("d", 2)]
        after = client.subscription(name)
        assert after == {"owner": "", "session": None, "settled": 4, "batches": []}


def test_a_renewed_batch_stays_leased(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        client.push_many(queue_name, ["1", "2"])
        assert client.reserve_batch(queue_name, 1, queue=queue_name, count=1, lease_s=0.7).count == 1
        assert client.reserve_batch(queue_name, 2, queue=queue_name, count=1, lease_s=60).count == 1
        assert client.renew_batches(queue_name, 30) == 2
        left = client.subscription(queue_name)
        assert left is not None
        assert all(29 < one["expires_in_s"] <= 30 for one in left["batches"])
        assert client.renew_batches("unknown", 30) == 0


def test_a_pattern_reserves_from_all_matching_queues(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        for n in range(5):
            client.push_many(f"{queue_name}-{n}", [f"{n}{m}" for m in range(3)])
        client.push(f"other-{queue_name}", "x")
        assert client.backlog(pattern=f"^{queue_name}-").messages == 15
        batch = client.reserve_batch(queue_name, 1, pattern=f"^{queue_name}-", count=100)
        assert batch.count == 15
        found = read_all(client, queue_name, 1, 15, 4)
        assert sorted(contents(found)) == [f"{n}{m}".encode() for n in range(5) for m in range(3)]
        assert [message.queue for message in found] == sorted(message.queue for message in found)
        assert client.backlog(pattern=f"^{queue_name}-").messages == 0
        assert client.reserve_batch(queue_name, 2, pattern=f"^{queue_name}-", count=1).state == "empty"
        assert [one["name"] for one in client.subscriptions() if queue_name in one["name"]] == [queue_name]


def test_messages_are_delivered_as_they_are_stored(cluster: Cluster, queue_name: str) -> None:
    """Types, headers and the parts of compound messages are kept."""
    node = cluster.nodes[0]
    hooks = b'{"accum":0,"hooks":{"pre_http_push":[["lmq_hook_preserve_header",["x-a"]]]}}'
    assert (
        call(node.http, "PATCH", f"/properties/{queue_name}", hooks, {"content-type": "application/json"}).status == 204
    )
    call(node.http, "POST", f"/messages/{queue_name}", b"plain", {"content-type": "text/plain", "x-a": "1"})
    with client_of(*cluster) as client:
        client.push(queue_name, {"a": 1})
        client.update_props(queue_name, {"accum": 0.2})
        client.push_many(queue_name, ["p1", "p2"])
        wait_for(lambda: client.backlog(queue=queue_name).messages == 3, "the window has closed")
        peeked = list(client.peek(queue_name, 10))
        assert client.reserve_batch(queue_name, 1, queue=queue_name, count=10).count == 3
        one, two, three = read_all(client, queue_name, 1, 3)
        assert (one.body, one.content_type, one.attributes) == (b"plain", "text/plain", {"x-a": "1"})
        assert (two.body, two.content_type, two.attributes) == (b"\x81\xa1a\x01", "application/x-msgpack", {})
        assert isinstance(three.body, list)
        assert [(part.content_type, part.body) for part in three.body] == [
            ("application/x-msgpack", b"\xa2p1"),
            ("application/x-msgpack", b"\xa2p2"),
        ]
        assert [(m.sequence, m.body, m.due_us, m.id) for m in peeked] == [
            (m.sequence, m.body, m.due_us, None) for m in (one, two, three)
        ]
        assert client.peek(queue_name, 10).sequences == []


def test_a_backlog_shows_its_largest_queues(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        for number, count in enumerate((3, 9, 6, 0)):
            client.push_many(f"{queue_name}-{number}", [bytes(100)] * (count + 1))
            assert client.pull(f"{queue_name}-{number}") is not None
        found = client.backlog(pattern=f"^{queue_name}-", queues_max=2)
        assert (found.messages, found.fitting) == (18, None)
        assert [(one.queue, one.messages) for one in found.queues] == [(f"{queue_name}-1", 9), (f"{queue_name}-2", 6)]
        each = found.queues[0].body_bytes // 9
        assert 100 < each < 110, "a body with the head of its type"
        assert found.body_bytes == 18 * each
        assert found.oldest_due_us is not None
        assert found.oldest_due_us < min(one.oldest_due_us or 0 for one in found.queues)
        one = client.backlog(queue=f"{queue_name}-3", bytes_max=1_000, queues_max=5)
        assert (one.messages, one.queues, one.body_bytes) == (0, [], 0)
        assert client.backlog(queue=f"{queue_name}-1").queues == []


def test_peek_continues_after_a_sequence(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        client.push_many(queue_name, list("abcde"))
        first = list(client.peek(queue_name, 2))
        rest = list(client.peek(queue_name, 10, first[-1].sequence + 1))
        assert contents([*first, *rest]) == [b"a", b"b", b"c", b"d", b"e"]
        assert len(client.pull_many(queue_name, 10)) == 5
        with pytest.raises(LmqError) as raised:
            client.peek(f"{queue_name}-absent", 1)
        assert raised.value.code == "queue_not_found"


def test_a_queue_is_peeked_at_by_ranges_and_times(cluster: Cluster, queue_name: str) -> None:
    with client_of(*cluster) as client:
        client.push_many(queue_name, list(range(9)))
        bounds = client.peek_ranges(queue_name, 1 << 20, 3)
        parts = [client.peek(queue_name, 10, a, end_sequence=b) for a, b in pairwise(bounds)]
        assert [len(part) for part in parts] == [3, 3, 3]
        assert [part.next for part in parts] == [None] * 3
        assert [one for part in parts for one in part.sequences] == client.peek(queue_name, 10).sequences
        message = client.pull(queue_name)
        assert message is not None
        message.nack()
        every = client.peek(queue_name, 10)
        last_us = max(every.due_us)
        assert client.peek(queue_name, 10, due_from_us=last_us).sequences == every.sequences[:1]
        assert client.peek(queue_name, 10, due_to_us=last_us).sequences == every.sequences[1:]
        assert client.peek(queue_name, 10, end_sequence=every.sequences[0]).sequences == []


@pytest.mark.parametrize(
    ("method", "arguments", "code"),
    [
        ("peek", (1, 0, {"ending": 1}), b"function_clause"),
        ("peek", (1, 0, {"end": "x"}), b"function_clause"),
        ("peek", (1, 0, {"due_from": 1.5}), b"function_clause"),
        ("peek", (1, 0, {"bodies": 1}), b"function_clause"),
        ("peek", (1, 0, True), b"function_clause"),
        ("peek_ranges", (0, 1), b"bad_request"),
        ("peek_ranges", (1, 0), b"bad_request"),
        ("peek_ranges", (1, 1_001), b"bad_request"),
        ("peek_ranges", (1, "x"), b"function_clause"),
        ("peek_ranges", (1, 1), b"queue_not_found"),
    ],
)
def test_invalid_peeks_are_refused(
    cluster: Cluster, queue_name: str, method: str, arguments: tuple[object, ...], code: bytes
) -> None:
    with Rpc(cluster[0].rpc) as rpc:
        assert code in rpc.error(method, queue_name, *arguments)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"count": 0}, "bad_request"),
        ({"count": 100_001}, "bad_request"),
        ({"count": 1, "lease_s": 0}, "bad_request"),
        ({"count": 1, "lease_s": 1e9}, "bad_request"),
        ({"count": 1, "epoch": 0}, "bad_request"),
        ({"count": 1, "subscription": ""}, "bad_name"),
        ({"count": 1, "subscription": "x" * 256}, "bad_name"),
        ({"count": 1, "queue": ""}, "bad_name"),
        ({"count": 1, "queue": None, "pattern": "("}, "bad_pattern"),
        ({"count": "1"}, "bad_arguments"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(
    cluster: Cluster, arguments: dict[str, object], code: str
) -> None:
    with client_of(*cluster) as client:
        given = {"subscription": "bad", "epoch": 1, "queue": "bad", **arguments}
        with pytest.raises(LmqError) as raised:
            client.reserve_batch(given.pop("subscription"), given.pop("epoch"), **given)  # type: ignore[arg-type]
        assert raised.value.code == code
        assert client.subscription("bad") is None
