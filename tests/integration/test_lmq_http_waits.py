"""LMQ over HTTP, specification sections 4, 8.4 to 8.6 and 13: waits, push to all, pull from any, delete,
concurrency.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from .cluster import NodeProcess
from .lmq_queue import Queue
from .raw_http import GUARDS, Connection, call, open_many, settle


@pytest.fixture
def queue(node: NodeProcess, queue_name: str) -> Queue:
    return Queue(node, queue_name)


# --- 4: waiting
# --------------------------------------------------------------------------------------------------------


def test_4_a_blocked_pull_gets_the_next_message(queue: Queue) -> None:
    """4: without t a pull waits without limit."""
    with Connection(queue.node.http) as connection:
        connection.ask("GET", f"/messages/{queue.name}")
        assert connection.is_silent(0.2)
        queue.push(b"now")
        assert connection.read().body == b"now"


def test_4_a_wait_ends_in_time(queue: Queue) -> None:
    """4: a positive t waits up to that many seconds; a puller that got "empty" has not consumed a message."""
    started = time.monotonic()
    assert queue.pull("t=0.3").status == 204
    assert time.monotonic() - started >= 0.29
    queue.push()
    assert queue.pull()["x-lmq-retry-remaining"] == b"2"


def test_4_waiters_are_served_first_come_first_served(queue: Queue) -> None:
    """4: first come, first served; one push wakes one puller."""
    with open_many([queue.node.http] * 4) as connections:
        for connection in connections:
            connection.ask("GET", f"/messages/{queue.name}")
            settle(queue.node.http)
        for i, connection in enumerate(connections):
            queue.push(b"%d" % i)
            assert connection.read().body == b"%d" % i
            assert all(later.is_silent(0.02) for later in connections[i + 1 :])


def test_4_a_vanished_client_is_forgotten(queue: Queue) -> None:
    """4, 2.3: a waiting client that disconnects consumes nothing; clients behind it are served."""
    with open_many([queue.node.http] * 3) as (gone, reset, behind):
        for connection in (gone, reset, behind):
            connection.ask("GET", f"/messages/{queue.name}")
            settle(queue.node.http)
        gone.close()
        reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" * 2)
        reset.close()
        settle(queue.node.http)
        queue.push(b"m")
        answer = behind.read()
        assert (answer.body, answer["x-lmq-retry-remaining"]) == (b"m", b"2")


def test_4_clients_that_vanish_while_messages_come_lose_nothing(queue: Queue) -> None:
    """4, 2.1, 2.3: a message already taken for a client that disconnected is returned at no retry cost."""
    total = 60
    with Connection(queue.node.http) as pusher:
        for i in range(total):
            with Connection(queue.node.http) as puller:
                puller.ask("GET", f"/messages/{queue.name}?t=5")
                pusher.ask("POST", f"/messages/{queue.name}", b"%d" % i)
            assert pusher.read().status == 200
    settle(queue.node.http)
    queue.push(b"last")
    delivered = []
    with Connection(queue.node.http) as connection:
        while (answer := connection.call("GET", f"/messages/{queue.name}?t=0")).status == 200:
            delivered.append(answer)
    # A message whose answer was already in flight is redelivered after its timeout; all others are here.
    assert delivered[-1].body == b"last"
    assert {answer["x-lmq-retry-remaining"] for answer in delivered} == {b"2"}
    assert len({answer.body for answer in delivered}) == len(delivered)
    assert queue.size() == total + 1


def test_4_fifty_blocked_pullers(queue: Queue) -> None:
    """13: 50 or more simultaneous blocked pullers are normal use; no message goes to two of them."""
    with open_many([queue.node.http] * 60) as connections, Connection(queue.node.http) as pusher:
        for connection in connections:
            connection.ask("GET", f"/messages/{queue.name}?t=10")
        settle(queue.node.http)
        for i in range(60):
            pusher.ask("POST", f"/messages/{queue.name}", b"%d" % i)
        assert all(pusher.read().status == 200 for _ in range(60))
        assert sorted(int(connection.read().body) for connection in connections) == list(range(60))


def test_4_deleting_a_queue_does_not_orphan_its_waiters(queue: Queue) -> None:
    """4: waiters stay attached to the name and get messages of a re-created queue."""
    with Connection(queue.node.http) as connection:
        connection.ask("GET", f"/messages/{queue.name}?t=10")
        settle(queue.node.http)
        assert call(queue.node.http, "DELETE", f"/queues/{queue.name}").status == 204
        queue.push(b"anew")
        assert connection.read().body == b"anew"


def test_4_a_waiter_gets_a_nacked_message(queue: Queue) -> None:
    """14: redelivery after a nack is immediate."""
    queue.push(b"m")
    answer = queue.pull()
    with Connection(queue.node.http) as connection:
        connection.ask("GET", f"/messages/{queue.name}?t=10")
        settle(queue.node.http)
        assert queue.reply(answer, "nack") == 204
        assert connection.read()["x-lmq-retry-remaining"] == b"1"


def test_3_2_timeout_applies_at_delivery(queue: Queue) -> None:
    """3.2: timeout: for deliveries made afterwards, including messages pushed before the change."""
    queue.push(b"m")
    queue.set('{"timeout":0.1}')
    answer = queue.pull()
    assert queue.pull("t=10").body == b"m"
    assert queue.reply(answer, "ack") == 404


# --- 8.4: push to all
# --------------------------------------------------------------------------------------------------


def test_8_4_push_to_all_byte_for_byte(node: NodeProcess, queue_name: str) -> None:
    """8.4: an object from decoded queue name to the flag object, sorted by name; the pattern is percent-decoded."""
    a, b, other = Queue(node, f"{queue_name}%2Fa"), Queue(node, f"{queue_name}%2Fb"), Queue(node, f"x{queue_name}")
    a.set("{}")
    b.set('{"accum":30}')
    other.set("{}")
    answer = call(node.http, "POST", f"/messages?qre=%5E{queue_name}%2F.%2B", b"all", {"Content-Type": "text/x"})
    assert answer.lines[0] == b"content-type: application/json"
    assert answer.body == f'{{"{queue_name}/a":{{"accum":"no"}},"{queue_name}/b":{{"accum":"new"}}}}'.encode()
    pulled = a.pull()
    assert (pulled.body, pulled["content-type"]) == (b"all", b"text/x")
    assert other.pull().status == 204


def test_8_4_no_match_creates_nothing(node: NodeProcess, queue_name: str) -> None:
    """8.4: no match: 200 {}, nothing is created."""
    answer = call(node.http, "POST", f"/messages?qre=%5E{queue_name}%24", b"x")
    assert (answer.status, answer.body) == (200, b"{}")
    assert Queue(node, queue_name).size() is None


def test_8_4_the_search_is_unanchored(node: NodeProcess, queue_name: str) -> None:
    """8.4: unanchored; 3.1: applied to the decoded name."""
    queue = Queue(node, f"before-{queue_name}-after")
    queue.set("{}")
    assert call(node.http, "POST", f"/messages?qre={queue_name}", b"x").json == {queue.name: {"accum": "no"}}


@pytest.mark.parametrize(
    "query", ["", "?qre", "?qre=(", "?qre=%5B", "?qre=a%7B2,1%7D", "?other=x", "?qre=%28%3F%3Da%29", "?qre=%zz"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_8_4_a_missing_or_invalid_pattern_is_400(node: NodeProcess, query: str, method: str) -> None:
    """8.4, 8.5: qre missing or invalid: 400, checked before the method."""
    assert call(node.http, method, f"/messages{query}", b"x" if method == "POST" else None).status == 400


def test_8_5_catastrophic_patterns_take_no_time(node: NodeProcess, new_queue_name: Callable[[], str]) -> None:
    """3.1: any regular expression matches in linear time."""
    Queue(node, "a" * 200 + new_queue_name()[-40:]).set("{}")
    assert call(node.http, "POST", f"/messages?qre={quote('^(a+)+$', safe='')}", b"x").status == 200
    assert call(node.http, "GET", f"/messages?qre={quote('(a|aa)+$', safe='')}&t=0").status in {200, 204}


# --- 8.5: pull from any -----------------------------------------------------------------------------------------------


def test_8_5_pull_any_answers_like_a_pull(node: NodeProcess, queue_name: str) -> None:
    """8.5: answer as in 8.2; x-lmq-queue-name names the queue."""
    queue = Queue(node, f"{queue_name}%2Fa")
    queue.push(b"m", Content_Type="text/x")
    answer = call(node.http, "GET", f"/messages?qre=%5E{queue_name}%2F&t=0")
    assert answer.lines == [
        b"content-type: text/x",
        b"x-lmq-queue-name: " + f"{queue_name}/a".encode(),
        b"x-lmq-message-id: " + answer["x-lmq-message-id"],
        b"x-lmq-message-type: normal",
        b"x-lmq-retry-remaining: 2",
        *GUARDS,
        b"content-length: 1",
    ]
    assert queue.reply(answer, "ack") == 204


def test_8_5_without_a_match_it_waits_for_one(node: NodeProcess, queue_name: str) -> None:
    """4, 8.5: with no matching queue it waits for one to appear, until t."""
    assert call(node.http, "GET", f"/messages?qre=%5E{queue_name}&t=0").status == 204
    assert call(node.http, "GET", f"/messages?qre=%5E{queue_name}&t=0.1").status == 204
    with Connection(node.http) as connection:
        connection.ask("GET", f"/messages?qre=%5E{queue_name}")
        settle(node.http)
        Queue(node, f"{queue_name}-later").push(b"m")
        assert connection.read().body == b"m"


def test_4_pull_any_consumes_exactly_one_and_loses_no_order(node: NodeProcess, queue_name: str) -> None:
    """4, 15.11: exactly one message is consumed; messages of other queues keep their position and their retries."""
    queues = [Queue(node, f"{queue_name}-{i}") for i in range(3)]
    for queue in queues:
        for i in range(2):
            queue.push(b"%d" % i)
    answer = call(node.http, "GET", f"/messages?qre=%5E{queue_name}&t=5")
    name = answer["x-lmq-queue-name"].decode()
    for queue in queues:
        assert queue.drain() == ([b"1"] if queue.name == name else [b"0", b"1"])


def test_15_11_pull_any_does_not_starve(node: NodeProcess, queue_name: str) -> None:
    """15.11: with backlog in several queues the message that is due first is delivered first."""
    queues = [Queue(node, f"{queue_name}-{i}") for i in range(2)]
    for i in range(4):
        queues[i % 2].push(b"%d" % i)
    with Connection(node.http) as connection:
        bodies = [connection.call("GET", f"/messages?qre=%5E{queue_name}&t=5").body for _ in range(4)]
    assert bodies == [b"0", b"1", b"2", b"3"]


def test_8_5_many_any_waiters_each_get_one(node: NodeProcess, queue_name: str) -> None:
    """4: several pull-any waiters; each message goes to exactly one."""
    with open_many([node.http] * 5) as connections:
        for connection in connections:
            connection.ask("GET", f"/messages?qre=%5E{queue_name}&t=10")
        settle(node.http)
        for i in range(5):
            Queue(node, f"{queue_name}-{i}").push(b"%d" % i)
        assert sorted(connection.read().body for connection in connections) == [b"%d" % i for i in range(5)]


def test_8_5_a_vanished_any_waiter_consumes_nothing(node: NodeProcess, queue_name: str) -> None:
    """4: holds for multi pulls too."""
    with Connection(node.http) as connection:
        connection.ask("GET", f"/messages?qre=%5E{queue_name}")
        settle(node.http)
    settle(node.http)
    queue = Queue(node, queue_name)
    queue.push(b"m")
    assert queue.pull("t=5")["x-lmq-retry-remaining"] == b"2"


@pytest.mark.parametrize("query", ["t=abc", "t=", "cf=x", "t=-1"])
def test_8_5_parameters_are_checked_as_for_a_pull(node: NodeProcess, queue_name: str, query: str) -> None:
    """8.5: t and cf as in 8.2."""
    Queue(node, queue_name).push()
    assert call(node.http, "GET", f"/messages?qre=%5E{queue_name}&{query}").status == 400
    assert Queue(node, queue_name).pull()["x-lmq-retry-remaining"] == b"2"


# --- 8.6: delete ------------------------------------------------------------------------------------------------------


def test_8_6_delete(queue: Queue) -> None:
    """8.6: 204; messages and own properties are gone. 404 if it does not exist."""
    queue.set('{"retry":9,"accum":0}')
    queue.push()
    leased = queue.pull()
    queue.push()
    assert call(queue.node.http, "DELETE", f"/queues/{queue.name}").status == 204
    assert queue.size() is None
    assert queue.reply(leased, "ack") == 404
    assert call(queue.node.http, "GET", f"/properties/{queue.name}").body == b'{"accum":0,"retry":2,"timeout":30}'
    assert call(queue.node.http, "DELETE", f"/queues/{queue.name}").status == 404
    assert queue.pull().status == 204


# --- 13: concurrency --------------------------------------------------------------------------------------------------


def test_13_concurrent_producers_and_consumers_lose_and_duplicate_nothing(queue: Queue) -> None:
    """13: no message is delivered to two clients at a time; none is lost by concurrent pushes and pulls."""
    per_producer, producers, consumers = 100, 4, 4
    expected = sorted(b"%d-%d" % (p, i) for p in range(producers) for i in range(per_producer))
    seen: list[bytes] = []

    def produce(number: int) -> None:
        with Connection(queue.node.http) as connection:
            for i in range(per_producer):
                assert connection.call("POST", f"/messages/{queue.name}", b"%d-%d" % (number, i)).status == 200

    def consume() -> None:
        with Connection(queue.node.http) as connection:
            while len(seen) < len(expected):
                answer = connection.call("GET", f"/messages/{queue.name}?t=0.2")
                if answer.status == 200:
                    seen.append(answer.body)
                    target = f"/messages/{queue.name}/{answer['x-lmq-message-id'].decode()}?reply=ack"
                    assert connection.call("POST", target).status == 204

    with ThreadPoolExecutor(producers + consumers) as pool:
        futures = [pool.submit(produce, i) for i in range(producers)]
        futures += [pool.submit(consume) for _ in range(consumers)]
        for future in futures:
            future.result()
    assert sorted(seen) == expected
    assert queue.size() == 0


def test_13_a_change_is_visible_to_the_next_request(queue: Queue) -> None:
    """13, 3.2: a response is sent after the change is visible."""
    with Connection(queue.node.http) as connection:
        for i in range(30):
            body = b'{"retry":%d}' % i
            connection.ask("PATCH", f"/properties/{queue.name}", body, {"Content-Type": "application/json"})
            connection.ask("POST", f"/messages/{queue.name}", b"x")
            connection.ask("GET", f"/messages/{queue.name}?t=0")
            assert (connection.read().status, connection.read().status) == (204, 200)
            assert connection.read()["x-lmq-retry-remaining"] == b"%d" % i
