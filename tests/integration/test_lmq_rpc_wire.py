"""LMQ's MessagePack-RPC, specification 10.1: framing, types on the wire, and what ends a connection."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator

import msgpack
import pytest

from .cluster import NodeProcess
from .raw_rpc import OLD_TYPES_ONLY, Rpc, notification, old, open_rpc, request, types_of


@pytest.fixture
def rpc(node: NodeProcess) -> Iterator[Rpc]:
    with Rpc(node.rpc) as connection:
        yield connection


# --- requests, responses, notifications -------------------------------------------------------------------------------


def test_response_is_an_array_of_1_msgid_nil_and_result(rpc: Rpc, queue_name: str) -> None:
    """10.1: request [0, msgid, method, [args]], response [1, msgid, error, result]."""
    assert rpc.exchange(request(7, "push", queue_name, "text")) == b"\x94\x01\x07\xc0\xa2ok"
    assert rpc.exchange(request(8, "pull", queue_name + "-empty", 0)) == b"\x94\x01\x08\xc0\xa5empty"


def test_error_response_has_the_text_and_a_nil_result(rpc: Rpc) -> None:
    """10.2: the error element is non-nil, result nil."""
    assert rpc.exchange(request(9, "nonsense")) == b"\x94\x01\x09\xa5undef\xc0"


@pytest.mark.parametrize(
    "msgid",
    [
        0,
        127,
        128,
        255,
        65536,
        2**32 - 1,
        2**64 - 1,
        -1,
        -32,
        -33,
        -(2**31),
        None,
        True,
        1.5,
        "an id",
        "i" * 40,
        [1, [2]],
    ],
    ids=repr,
)
def test_msgid_is_echoed_as_sent(rpc: Rpc, msgid: object) -> None:
    """10.1: msgid is echoed as sent."""
    assert rpc.exchange(request(msgid, "ping")) == b"\x94\x01" + old(msgid) + b"\xc0\xa4pong"


def test_msgid_in_a_longer_form_than_needed_is_understood(rpc: Rpc) -> None:
    """10.1: msgid is echoed as sent, as a number."""
    rpc.send(b"\x94\x00\xcf\x00\x00\x00\x00\x00\x00\x00\x05\xa4ping\x90")
    assert rpc.read().msgid == 5


def test_notification_is_executed_and_never_answered(rpc: Rpc, queue_name: str) -> None:
    """10.1: notification [2, method, [args]], executed, never answered; a wrong one neither."""
    rpc.send(notification("push", queue_name, "from a notification"))
    rpc.send(notification("nonsense"))
    rpc.send(notification("push", queue_name))
    rpc.send(notification("done", queue_name, "no id"))
    rpc.send(notification("pull_many", queue_name + "-other", 3, 0))
    reply = rpc.exchange(request(1, "pull", queue_name, 10))
    assert reply.startswith(b"\x94\x01\x01\xc0\x85")
    assert reply.endswith(b"\xa7content\xb3from a notification")
    rpc.settle()


def test_request_in_single_bytes(rpc: Rpc, queue_name: str) -> None:
    """10.1: one request in many segments."""
    for byte in request(1, "push", queue_name, "x" * 40):
        rpc.send(bytes([byte]))
    assert rpc.read().raw == b"\x94\x01\x01\xc0\xa2ok"
    assert rpc.call("pull", queue_name, 0)[b"content"] == b"x" * 40


def test_many_requests_in_one_segment(rpc: Rpc, queue_name: str) -> None:
    """10.1: any number of requests may be in one segment."""
    count = 5000
    rpc.send(b"".join(request(i, "push", queue_name, i) for i in range(count)))
    replies = [rpc.read() for _ in range(count)]
    assert {reply.msgid for reply in replies} == set(range(count))
    assert all(reply.error is None and reply.result == b"ok" for reply in replies)
    assert [m[b"content"] for m in rpc.call("pull_many", queue_name, count)] == list(range(count))


def test_segments_that_end_in_the_middle_of_a_request(rpc: Rpc, queue_name: str) -> None:
    """10.1: requests and segments need not begin or end together."""
    stream = b"".join(request(i, "push", queue_name, f"m{i}") for i in range(40))
    for start in range(0, len(stream), 23):
        rpc.send(stream[start : start + 23])
    assert sorted(rpc.read().msgid for _ in range(40)) == list(range(40))
    assert [m[b"content"] for m in rpc.call("pull_many", queue_name, 50)] == [b"m%d" % i for i in range(40)]


def test_a_blocked_pull_does_not_delay_other_requests(rpc: Rpc, queue_name: str) -> None:
    """10.1: requests of a connection run concurrently, responses come in completion order."""
    rpc.send(request(1, "pull", queue_name) + request(2, "ping"))
    assert rpc.read().msgid == 2
    rpc.send(request(3, "push", queue_name, "wakes it"))
    assert {rpc.read().msgid, rpc.read().msgid} == {1, 3}


def test_several_hundred_connections(node: NodeProcess, queue_name: str) -> None:
    """13: 50 or more simultaneous blocked pullers on one queue, and several hundred connections, are normal use."""
    with open_rpc(node.rpc, 300) as connections:
        for connection in connections:
            connection.ask("pull", queue_name)
        for connection in connections:
            connection.send(b"")
        with Rpc(node.rpc) as producer:
            producer.call("push_many", queue_name, list(range(300)))
        assert sorted(c.read().result[b"content"] for c in connections) == list(range(300))


# --- types of responses -----------------------------------------------------------------------------------------------


def test_message_byte_for_byte(rpc: Rpc, queue_name: str) -> None:
    """10.3: a map with the keys queue, id, type, retry, content in this order; 10.1: a 36-character id is raw16."""
    name = queue_name[:31]
    rpc.call("push", name, "text")
    raw = rpc.exchange(request(2, "pull", name, 0))
    message = rpc.exchange(request(3, "pull", name, 0))
    assert message == b"\x94\x01\x03\xc0\xa5empty"
    head = b"\x94\x01\x02\xc0\x85\xa5queue" + bytes([0xA0 | len(name)]) + name.encode() + b"\xa2id\xda\x00\x24"
    assert raw[: len(head)] == head
    assert raw[len(head) + 36 :] == b"\xa4type\xa6normal\xa5retry\x02\xa7content\xa4text"


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\xa0"),
        (31, b"\xbf"),
        (32, b"\xda\x00\x20"),
        (255, b"\xda\x00\xff"),
        (256, b"\xda\x01\x00"),
        (65535, b"\xda\xff\xff"),
        (65536, b"\xdb\x00\x01\x00\x00"),
    ],
)
def test_strings_are_fixraw_raw16_raw32(rpc: Rpc, queue_name: str, size: int, header: bytes) -> None:
    """10.1: a string of 32 bytes or more is raw16, never str8 or bin; over 65535 bytes raw32."""
    content = b"\xc1" * size
    rpc.call("push", queue_name, content)
    assert rpc.exchange(request(1, "pull", queue_name, 0)).endswith(b"\xa7content" + header + content)


def test_queue_name_of_32_bytes_is_raw16(rpc: Rpc, queue_name: str) -> None:
    """10.1: a string of 32 bytes or more is raw16, the queue's name too."""
    name = queue_name.encode().ljust(40, b"n")[:40]
    rpc.call("push", name, 1)
    assert b"\xa5queue\xda\x00\x28" + name + b"\xa2id" in rpc.exchange(request(1, "pull", name, 0))


def test_floats_are_64_bit(rpc: Rpc, queue_name: str) -> None:
    """10.1: floats are 64-bit, also those that came as 32-bit."""
    rpc.call("push", queue_name, 0.5)
    assert rpc.exchange(request(1, "pull", queue_name, 0)).endswith(b"\xa7content\xcb" + struct.pack(">d", 0.5))
    rpc.send(b"\x94\x00\x02\xa4push\x92" + old(queue_name) + b"\xca" + struct.pack(">f", 0.25))
    assert rpc.read().result == b"ok"
    assert rpc.exchange(request(1, "pull", queue_name, 0)).endswith(b"\xa7content\xcb" + struct.pack(">d", 0.25))


def test_every_kind_of_response_has_old_types_only(rpc: Rpc, queue_name: str) -> None:
    """10.1: responses use only the old MessagePack types, never str8, bin or ext."""
    content = {"key": [1, -1, 300, 70000, 2**40, -(2**40), 1.5, None, True, False, "s" * 40, b"\xff" * 300, {"a": []}]}
    rules = [[queue_name, {"pack": 1.5, "retry": 3, "timeout": 2**33}]]
    calls = [
        ("push", queue_name, content),
        ("push_many", queue_name, [content, "t" * 50]),
        ("pull", queue_name, 0),
        ("pull_many", queue_name, 5),
        ("done", queue_name, "x" * 36),
        ("done_many", queue_name, ["x" * 36]),
        ("pull", queue_name, "no number"),
        ("push", "n" * 300, 1),
        ("set_default_props", rules),
        ("get_default_props",),
        ("set_default_props", []),
        ("ping",),
        ("cluster",),
    ]
    for number, call in enumerate(calls):
        raw = rpc.exchange(request(number, *call))
        assert types_of(raw) <= OLD_TYPES_ONLY, call
        assert msgpack.unpackb(raw, raw=True, strict_map_key=False)[0] == 1


# --- types of requests ------------------------------------------------------------------------------------------------


def test_new_types_are_accepted_in_requests(rpc: Rpc, queue_name: str) -> None:
    """10.1: requests may use old raw or the new str8 and bin types, method and queue names likewise."""
    content, name = b"c" * 300, queue_name.encode()
    sent = b"\x94\x00\x01\xd9\x04push\x92\xd9" + bytes([len(name)]) + name + b"\xc5\x01\x2c" + content
    assert rpc.exchange(sent) == b"\x94\x01\x01\xc0\xa2ok"
    sent = b"\x94\x00\x02\xc4\x04push\x92\xc4" + bytes([len(name)]) + name + b"\xd9\x21" + b"d" * 33
    assert rpc.exchange(sent) == b"\x94\x01\x02\xc0\xa2ok"
    assert rpc.exchange(request(3, "pull", name, 0)).endswith(b"\xda\x01\x2c" + content)
    raw = rpc.exchange(request(4, "pull", name, 0))
    assert raw.endswith(b"\xda\x00\x21" + b"d" * 33)
    receipt = msgpack.unpackb(raw, raw=True)[3][b"id"]
    assert rpc.exchange(b"\x94\x00\x05\xa4done\x92" + old(name) + b"\xd9\x24" + receipt) == b"\x94\x01\x05\xc0\xa2ok"


def test_new_types_nested_in_a_content_are_returned_as_old_ones(rpc: Rpc, queue_name: str) -> None:
    """10.1 and 11: a content is stored and returned in the old types, however it was sent."""
    nested = b"\x92\xd9\x03abc\x81\xc4\x01k\xc5\x00\x28" + b"v" * 40
    rpc.send(b"\x94\x00\x01\xa4push\x92" + old(queue_name) + nested)
    assert rpc.read().result == b"ok"
    wanted = b"\x92\xa3abc\x81\xa1k\xda\x00\x28" + b"v" * 40
    assert rpc.exchange(request(2, "pull", queue_name, 0)).endswith(b"\xa7content" + wanted)


# --- what closes a connection -----------------------------------------------------------------------------------------

NOT_REQUESTS = {
    "c1": b"\xc1",
    "c1 as an argument": b"\x94\x00\x01\xa4ping\x91\xc1",
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "an integer": b"\x01",
    "nil": b"\xc0",
    "a string": b"\xa4ping",
    "a map": b"\x81\x00\x01",
    "an empty array": b"\x90",
    "a request of 3 elements": b"\x93\x00\x01\xa4ping",
    "a request of 5 elements": b"\x95\x00\x01\xa4ping\x90\xc0",
    "a notification of 4 elements": b"\x94\x02\x01\xa4ping\x90",
    "a response": b"\x94\x01\x01\xc0\xa4pong",
    "an unknown type": b"\x94\x03\x01\xa4ping\x90",
    "a type that is no integer": b"\x94\xc2\x01\xa4ping\x90",
    "fixext1": b"\x94\x00\x01\xa4push\x92\xa1q\xd4\x05x",
    "fixext16": b"\x94\x00\x01\xa4push\x92\xa1q\xd8\x05" + b"x" * 16,
    "ext8": b"\x94\x00\x01\xa4push\x92\xa1q\xc7\x03\x05xyz",
    "ext32": b"\x94\x00\x01\xa4push\x92\xa1q\xc9\x00\x00\x00\x03\x05xyz",
    "a timestamp": b"\x94\x00\x01\xa4push\x92\xa1q\xd6\xff\x00\x00\x00\x01",
    "a timestamp nested in a content": b"\x94\x00\x01\xa4push\x92\xa1q\x91\x81\xa1t\xd6\xff\x00\x00\x00\x01",
    "ext as msgid": b"\x94\x00\xd4\x05x\xa4ping\x90",
}


@pytest.mark.parametrize("sent", NOT_REQUESTS.values(), ids=NOT_REQUESTS.keys())
def test_invalid_requests_close_the_connection(rpc: Rpc, node: NodeProcess, sent: bytes) -> None:
    """10.1: data that is not MessagePack, ext types, or an object of another shape: the connection is closed."""
    rpc.send(sent)
    assert rpc.is_closed()
    with Rpc(node.rpc) as other:
        other.settle()


def test_requests_before_a_broken_one_are_carried_out(rpc: Rpc, node: NodeProcess, queue_name: str) -> None:
    """10.1: the connection is closed, but earlier requests are executed."""
    rpc.send(
        request(1, "ping")
        + request(2, "push", queue_name, "before")
        + b"\xc1"
        + request(3, "push", queue_name, "after")
    )
    assert rpc.read().raw == b"\x94\x01\x01\xc0\xa4pong"
    with Rpc(node.rpc) as other:
        assert other.call("pull", queue_name, 10)[b"content"] == b"before"
        assert other.call("pull", queue_name, 0) == b"empty"


def test_partial_request_and_silence_close_the_connection(node: NodeProcess, queue_name: str) -> None:
    """10.1: a partial request followed by 5 s of silence: connection closed. An idle connection otherwise stays open.

    It is the silence that counts, not the time that a request takes.
    """
    whole = request(1, "push", queue_name, "x" * 40)
    cuts = [1, 2, 3, 8, 9, len(whole) - 41, len(whole) - 1]
    with open_rpc(node.rpc, len(cuts) + 4) as connections:
        *partial, late, idle, waiting, slow = connections
        started_s = time.monotonic()
        slow.send(request(9, "push", queue_name + "-slow", "x")[:5])
        second_piece = threading.Timer(2.5, slow.send, [request(9, "push", queue_name + "-slow", "x")[5:9]])
        second_piece.start()
        for connection, cut in zip(partial, cuts, strict=True):
            connection.send(whole[:cut])
        # A partial request after whole ones counts, and so does one that continues after a while.
        late.send(request(5, "ping") + whole[:9])
        assert late.read().msgid == 5
        idle.settle()
        waiting.ask("pull", queue_name + "-waiting")
        for connection, cut in zip(partial, cuts, strict=True):
            assert connection.is_closed(), f"cut after {cut} bytes"
        assert time.monotonic() - started_s > 4.5, "closed too early"
        assert late.is_closed()
        second_piece.join()
        slow.send(request(9, "push", queue_name + "-slow", "x")[9:])
        assert slow.read().result == b"ok"
        idle.settle()
        idle.call("push", queue_name + "-waiting", "still there")
        assert waiting.read().result[b"content"] == b"still there"
        assert idle.call("pull", queue_name, 0) == b"empty", "a partial request was carried out"
