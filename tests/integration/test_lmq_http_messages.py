"""LMQ over HTTP, specification sections 2 and 8.1 to 8.3: push, pull, retries and replies."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable

import pytest

from .cluster import NodeProcess
from .lmq_queue import Queue
from .raw_http import GUARDS, Connection, call, open_many

UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")


@pytest.fixture
def queue(node: NodeProcess, queue_name: str) -> Queue:
    return Queue(node, queue_name)


# --- 8.1: push --------------------------------------------------------------------------------------------------------


def test_8_1_push_answers_byte_for_byte(queue: Queue) -> None:
    """8.1: 200 and {"accum":"no"}."""
    answer = queue.push(b"body")
    assert answer.body == b'{"accum":"no"}'
    assert answer["content-type"] == b"application/json"


def test_a_push_returns_the_sequence_of_the_message(queue: Queue) -> None:
    """This is not part of LMQ: an id that is stable over deliveries, beside answers that stay LMQ's."""
    pushed = queue.push(b"body", query="?sequence=true")
    assert int(pushed["x-lmq-message-sequence"]) > 0
    first = queue.pull()
    assert queue.reply(first, "nack") == 204
    again = queue.pull()
    assert first["x-lmq-message-sequence"] == again["x-lmq-message-sequence"] == pushed["x-lmq-message-sequence"]
    assert first["x-lmq-message-id"] != again["x-lmq-message-id"]


def test_the_sequence_is_returned_only_on_request(queue: Queue) -> None:
    for query in ("", "?", "?sequence=false", "?other=%"):
        assert "x-lmq-message-sequence" not in queue.push(b"body", query=query).headers
    answer = call(queue.node.http, "POST", f"/messages/{queue.name}?sequence=1", b"body")
    assert (answer.status, queue.size()) == (400, 4)


def test_a_message_in_a_window_has_the_sequence_of_the_compound_message(queue: Queue) -> None:
    queue.set('{"accum":0.2}')
    opened, joined = queue.push(b"1", query="?sequence=true"), queue.push(b"2", query="?sequence=true")
    assert "x-lmq-message-sequence" not in joined.headers
    assert queue.pull("t=30")["x-lmq-message-sequence"] == opened["x-lmq-message-sequence"]


def test_1_a_push_creates_the_queue(queue: Queue) -> None:
    """1: the first push that names a queue creates it."""
    assert queue.size() is None
    queue.push()
    assert queue.size() == 1


def test_1_a_pull_creates_the_queue_but_reading_and_replying_do_not(queue: Queue) -> None:
    """1: reading properties and replying do not create a queue, a pull does."""
    assert call(queue.node.http, "GET", f"/properties/{queue.name}").status == 200
    assert queue.reply(str(uuid.uuid4()), "ack") == 404
    assert queue.size() is None
    assert queue.pull().status == 204
    assert queue.size() == 0


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n\r\n", b"{}", "ü".encode(), bytes(range(256))])
def test_8_1_any_body(queue: Queue, body: bytes) -> None:
    """8.1: the body is anything, also empty."""
    queue.push(body)
    answer = queue.pull()
    assert (answer.status, answer.body, answer["content-length"]) == (200, body, str(len(body)).encode())


def test_8_1_an_absent_body_is_an_empty_one(queue: Queue) -> None:
    """8.1: also absent."""
    queue.push(None)
    assert (queue.pull().status, queue.pull().status) == (200, 204)


@pytest.mark.parametrize(
    "content_type", ["text/plain", "Text/Plain; Charset=UTF-8", "not a type", "application/x-msgpack", "キ"]
)
def test_8_1_content_types_are_kept_verbatim(queue: Queue, content_type: str) -> None:
    """8.1: Content-Type is stored without validation and returned on pull."""
    with Connection(queue.node.http) as connection:
        head = f"POST /messages/{queue.name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        connection.send(f"{head}Content-Length: 1\r\n\r\nx".encode())
        assert connection.read().status == 200
    assert queue.pull()["content-type"] == content_type.encode()


def test_8_1_without_content_type_octet_stream_is_shown(queue: Queue) -> None:
    """8.1: absent content types show as application/octet-stream."""
    queue.push()
    assert queue.pull()["content-type"] == b"application/octet-stream"


def test_8_1_a_compressed_body_is_delivered_unchanged(queue: Queue) -> None:
    """8.1: bodies are opaque."""
    queue.push(b"\x1f\x8bnot really gzip", Content_Encoding="gzip")
    assert queue.pull().body == b"\x1f\x8bnot really gzip"


def test_8_1_the_query_string_is_ignored(node: NodeProcess, queue: Queue) -> None:
    """8.1: query string ignored."""
    assert call(node.http, "POST", f"/messages/{queue.name}?t=abc&cf=x&qre=(", b"x").status == 200


# --- 8.2: pull --------------------------------------------------------------------------------------------------------


def test_8_2_pull_answers_byte_for_byte(queue: Queue) -> None:
    """8.2: the headers of a delivery, in lower case, with exactly these values."""
    queue.push(b"body", Content_Type="text/plain")
    answer = queue.pull()
    identifier = answer["x-lmq-message-id"]
    assert UUID.match(identifier)
    assert answer.head[0] == b"HTTP/1.1 200 OK"
    assert answer.lines == [
        b"content-type: text/plain",
        b"x-lmq-queue-name: " + queue.name.encode(),
        b"x-lmq-message-id: " + identifier,
        b"x-lmq-message-type: normal",
        b"x-lmq-retry-remaining: 2",
        *GUARDS,
        b"content-length: 4",
    ]
    assert answer.body == b"body"


def test_8_2_204_when_nothing_is_there(queue: Queue) -> None:
    """8.2: 204 with an empty body when the wait ends without a message."""
    answer = queue.pull()
    assert (answer.head[0], answer.body, answer["content-length"]) == (b"HTTP/1.1 204 No Content", b"", b"0")


@pytest.mark.parametrize(
    "t", ["0", "0.0", "-0", "-0.0", "0.1.2", "0.1e0", "0.05abc", "%2B0.1", "0.0001", "0.1", "0&t=abc", "0.0&t", "%30"]
)
def test_8_2_accepted_waits(queue: Queue, t: str) -> None:
    """8.2: the grammar of t; of a repeated parameter the first counts."""
    assert queue.pull(f"t={t}").status == 204


@pytest.mark.parametrize("t", ["1", "10", "12.34", "12.34abc", "007", "%2B5"])
def test_8_2_accepted_waits_with_a_message(queue: Queue, t: str) -> None:
    """8.2: longer waits end at once if there is a message."""
    queue.push()
    assert queue.pull(f"t={t}").status == 200


@pytest.mark.parametrize(
    "query",
    [
        "t=", "t=abc", "t=.5", "t=5.", "t=10abc", "t=1e3", "t=inf", "t=NaN", "t=0x1", "t=+0.1", "t=%200", "t", "t=-1",
        "t=-0.5", "t=0,3", "t=abc&t=0", "cf=", "cf=Multipart", "cf=json", "cf", "t=0&cf=xml",
    ],
)  # fmt: skip
def test_8_2_refused_parameters_consume_nothing(queue: Queue, query: str) -> None:
    """8.2: 400 before anything else happens. A negative t is refused."""
    queue.push()
    assert queue.pull(query).status == 400
    answer = queue.pull()
    assert (answer.status, answer["x-lmq-retry-remaining"]) == (200, b"2")


def test_8_2_a_refused_pull_does_not_create_the_queue(queue: Queue) -> None:
    """8.2: parameters are checked before anything else happens."""
    assert queue.pull("t=abc").status == 400
    assert queue.size() is None


@pytest.mark.parametrize("layout", ["multipart", "msgpack"])
def test_8_2_cf_is_ignored_for_normal_messages(queue: Queue, layout: str) -> None:
    """8.2: cf is ignored for normal messages."""
    queue.push(b"body", Content_Type="text/x")
    answer = queue.pull(f"t=0&cf={layout}")
    assert (answer.body, answer["content-type"], answer["x-lmq-message-type"]) == (b"body", b"text/x", b"normal")


def test_8_5_a_stray_qre_on_a_named_queue_has_no_effect(queue: Queue) -> None:
    """8.5: on /messages/NAME a qre must not change t; a thousand times as long would outlast this client."""
    assert queue.pull("t=0.1&qre=(").status == 204


def test_8_2_tiny_waits_lose_nothing(queue: Queue) -> None:
    """8.2, 15.5: waits under a millisecond behave like 0: what they do not deliver is not consumed."""
    with open_many([queue.node.http] * 2) as (puller, pusher):
        delivered = 0
        for _ in range(50):
            pusher.ask("POST", f"/messages/{queue.name}", b"x")
            delivered += puller.call("GET", f"/messages/{queue.name}?t=0.0001").status == 200
            assert pusher.read().status == 200
    assert delivered + len(queue.drain()) == 50


# --- 2.2, 2.3: deliveries and retries
# -----------------------------------------------------------------------------------


def test_2_2_fresh_messages_come_in_order(queue: Queue) -> None:
    """2.2: FIFO for fresh messages."""
    for i in range(20):
        queue.push(b"%d" % i)
    assert queue.drain() == [b"%d" % i for i in range(20)]


def test_2_2_a_nacked_message_goes_behind_waiting_messages(queue: Queue) -> None:
    """2.2, 14: a nacked message is available at once, but behind everything already waiting."""
    queue.push(b"a")
    queue.push(b"b")
    first = queue.pull()
    assert queue.reply(first, "nack") == 204
    assert queue.drain() == [b"b", b"a"]


def test_2_2_a_timed_out_message_is_ordered_by_its_deadline(queue: Queue) -> None:
    """2.2: it is delivered before messages pushed after that deadline, and after those pushed before."""
    queue.set('{"timeout":0.3}')
    queue.push(b"a")
    queue.push(b"b")
    assert queue.pull().body == b"a"
    queue.set('{"timeout":30}')
    time.sleep(0.35)
    queue.push(b"c")
    assert queue.drain() == [b"b", b"a", b"c"]


def test_2_3_the_retry_counter_counts_down_and_the_message_is_dropped(queue: Queue) -> None:
    """2.3: retry 2: 2, then 1, then 0, then gone; a nack costs one, also on the last delivery. Each delivery
    has a new id.
    """
    queue.push(b"m")
    seen = []
    for _ in range(3):
        answer = queue.pull()
        seen.append((answer["x-lmq-retry-remaining"], answer["x-lmq-message-id"]))
        assert queue.reply(answer, "nack") == 204
    assert [retry for retry, _id in seen] == [b"2", b"1", b"0"]
    assert len({identifier for _retry, identifier in seen}) == 3
    assert queue.pull().status == 204


def test_2_3_a_timeout_costs_a_retry(queue: Queue) -> None:
    """2.3: a timeout costs one; a blocked puller wakes at the first due time (2.2)."""
    queue.set('{"timeout":0.1,"retry":1}')
    queue.push(b"m")
    assert queue.pull()["x-lmq-retry-remaining"] == b"1"
    assert queue.pull("t=10")["x-lmq-retry-remaining"] == b"0"
    assert queue.pull("t=0.3").status == 204


def test_2_3_extending_costs_nothing(queue: Queue) -> None:
    """2.3: ext costs nothing."""
    queue.push(b"m")
    answer = queue.pull()
    for _ in range(3):
        assert queue.reply(answer, "ext") == 204
    assert queue.reply(answer, "nack") == 204
    assert queue.pull()["x-lmq-retry-remaining"] == b"1"


def test_2_3_retry_0_is_one_delivery(queue: Queue) -> None:
    """2.3, 14: retry 0: one delivery showing 0, never again."""
    queue.set('{"retry":0,"timeout":0.1}')
    queue.push(b"m")
    assert queue.pull()["x-lmq-retry-remaining"] == b"0"
    assert queue.pull("t=0.3").status == 204


def test_2_3_the_count_is_fixed_at_push_time(queue: Queue) -> None:
    """2.3: changing retry later does not affect messages already in the queue."""
    queue.push(b"m")
    queue.set('{"retry":7}')
    queue.push(b"n")
    assert [queue.pull()["x-lmq-retry-remaining"] for _ in range(2)] == [b"2", b"7"]


def test_2_2_an_exhausted_message_is_not_counted(queue: Queue) -> None:
    """2.2: LMQ counts it until a pull passes over it; here it is removed with its last delivery, and the
    queue works on.
    """
    queue.set('{"retry":0}')
    for i in range(3):
        queue.push(b"%d" % i)
    for _ in range(2):
        assert queue.reply(queue.pull(), "nack") == 204
    assert queue.size() == 1
    assert queue.drain() == [b"2"]
    assert queue.size() == 1


def test_2_2_very_many_exhausted_messages_do_not_block(queue: Queue) -> None:
    """2.2: passing over very many exhausted messages must not block the queue."""
    queue.set('{"retry":0,"timeout":0}')
    with Connection(queue.node.http) as connection:
        for _ in range(30):
            for _ in range(100):
                connection.ask("POST", f"/messages/{queue.name}", b"x")
            assert all(connection.read().status == 200 for _ in range(100))
        connection.ask("POST", f"/v1/queues/{queue.name}/pull", b'{"max":3000}')
        assert connection.read().status == 200
    queue.set('{"timeout":30}')
    queue.push(b"good")
    assert queue.pull("t=5").body == b"good"


def test_2_5_timeout_0(queue: Queue) -> None:
    """2.5: timeout 0: retry + 1 deliveries in a row, and no reply to any of those ids ever succeeds."""
    queue.set('{"timeout":0}')
    queue.push(b"m")
    deliveries = [queue.pull() for _ in range(3)]
    assert [answer["x-lmq-retry-remaining"] for answer in deliveries] == [b"2", b"1", b"0"]
    assert queue.pull().status == 204
    for answer in deliveries:
        assert [queue.reply(answer, kind) for kind in ("ack", "nack", "ext")] == [404, 404, 404]


# --- 2.4, 8.3: replies
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ack", "nack", "ext"])
def test_8_3_replies_succeed_with_204(queue: Queue, kind: str) -> None:
    """8.3: 204 on success; body and content type are ignored."""
    queue.push()
    identifier = queue.pull()["x-lmq-message-id"].decode()
    target = f"/messages/{queue.name}/{identifier}?reply={kind}"
    answer = call(queue.node.http, "POST", target, b"ignored", {"Content-Type": ";;;"})
    assert (answer.head[0], answer.body, answer["content-length"]) == (b"HTTP/1.1 204 No Content", b"", b"0")


def test_8_3_ack_removes_the_message(queue: Queue) -> None:
    """2.1: ack removes the entry."""
    queue.push()
    assert queue.reply(queue.pull(), "ack") == 204
    assert queue.size() == 0


def test_8_3_ext_restarts_the_lease(queue: Queue) -> None:
    """2.1, 3.2: ext: now + the queue's current timeout, later or earlier than before."""
    queue.set('{"timeout":2}')
    queue.push()
    answer = queue.pull()
    queue.set('{"timeout":60}')
    assert queue.reply(answer, "ext") == 204
    time.sleep(2.1)
    assert queue.pull().status == 204
    queue.set('{"timeout":0.1}')
    assert queue.reply(answer, "ext") == 204
    assert queue.pull("t=10")["x-lmq-retry-remaining"] == b"1"
    assert queue.reply(answer, "ack") == 404


@pytest.mark.parametrize("query", ["", "?reply", "?reply=", "?reply=ACK", "?reply=extend", "?reply=done", "?Reply=ack"])
def test_8_3_other_kinds_are_400(queue: Queue, query: str) -> None:
    """8.3: 400 for a missing or other kind, before 404."""
    queue.push()
    identifier = queue.pull()["x-lmq-message-id"].decode()
    assert call(queue.node.http, "POST", f"/messages/{queue.name}/{identifier}{query}").status == 400
    assert call(queue.node.http, "POST", f"/messages/absent/{identifier}{query}").status == 400
    assert queue.reply(identifier, "ack") == 204


@pytest.mark.parametrize("kind", ["ack", "nack", "ext"])
def test_2_4_dead_ids_are_404(node: NodeProcess, new_queue_name: Callable[[], str], kind: str) -> None:
    """2.4: acked, nacked, timed out, redelivered, wrong queue, unknown queue, unknown id: 404."""
    queue, other = Queue(node, new_queue_name()), Queue(node, new_queue_name())
    other.push()
    queue.push()
    acked = queue.pull()
    assert queue.reply(acked, "ack") == 204
    queue.push()
    nacked = queue.pull()
    assert other.reply(nacked, kind) == 404
    assert queue.reply(nacked, "nack") == 204
    assert queue.reply(acked, kind) == 404
    assert queue.reply(nacked, kind) == 404
    assert queue.pull().status == 200
    assert queue.reply(nacked, kind) == 404
    assert queue.reply(str(uuid.uuid4()), kind) == 404
    absent = Queue(node, new_queue_name())
    assert absent.reply(acked, kind) == 404
    assert absent.size() is None


@pytest.mark.parametrize("kind", ["ack", "nack", "ext"])
def test_2_4_ids_of_ended_leases_are_404(queue: Queue, kind: str) -> None:
    """2.4: a reply after the due time fails, redelivered or not."""
    queue.set('{"timeout":0.05}')
    queue.push()
    answer = queue.pull()
    time.sleep(0.1)
    assert queue.reply(answer, kind) == 404


@pytest.mark.parametrize(
    "identifier",
    [
        "x",
        "00000000",
        "zzzzzzzz-zzzz-4zzz-azzz-zzzzzzzzzzzz",
        "%20",
        "a" * 300,
        "%ff",
        "-" * 36,
        "%2f",
        "..",
        "0" * 32,
        "%00",
    ],
)
def test_8_3_malformed_ids_are_404(queue: Queue, identifier: str) -> None:
    """8.3: a malformed id is 404."""
    queue.push()
    queue.pull()
    assert queue.reply(identifier, "ack") == 404


def test_2_4_ids_in_upper_case_and_without_dashes(queue: Queue) -> None:
    """2.4: ids are accepted in upper case and without dashes too."""
    for shape in (str.upper, lambda text: text.replace("-", ""), lambda text: text.upper().replace("-", "")):
        queue.push()
        assert queue.reply(shape(queue.pull()["x-lmq-message-id"].decode()), "ack") == 204


def test_2_4_exactly_one_of_several_concurrent_acks_succeeds(queue: Queue) -> None:
    """2.4: exactly one of several concurrent acks of one id succeeds."""
    queue.push()
    identifier = queue.pull()["x-lmq-message-id"].decode()
    with open_many([queue.node.http] * 8) as connections:
        for connection in connections:
            connection.ask("POST", f"/messages/{queue.name}/{identifier}?reply=ack")
        assert sorted(connection.read().status for connection in connections) == [204] + [404] * 7
