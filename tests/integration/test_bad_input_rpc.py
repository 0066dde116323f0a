"""Bad input on the MessagePack-RPC port: clear errors, bounded memory, other clients unharmed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgpack
import pytest

from .bad_input import MIB, bounded_memory, connect, dribble, end_of, fuzz_blocks, open_idle, pour, unharmed
from .canary import Canary
from .cluster import Cluster, NodeProcess
from .patience import repeatedly
from .raw_http import call
from .raw_rpc import Rpc, notification, old, request

SEED = 20_260
LARGE = 128 * MIB


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(3, directory=tmp_path_factory.mktemp("victims")) as nodes:
        yield nodes


@pytest.fixture
def canary(victims: Cluster) -> Iterator[Canary]:
    with unharmed(victims) as singer:
        yield singer


@pytest.fixture
def victim(victims: Cluster, canary: Canary) -> NodeProcess:
    """The node that gets the bad input, a follower."""
    return victims.followers()[0]


def refusal(data: bytes) -> tuple[object, bytes]:
    """Return msgid and error text of the last of several responses."""
    unpacker = msgpack.Unpacker(raw=True)
    unpacker.feed(data)
    *_, last = unpacker
    assert last[0] == 1
    assert last[3] is None
    return last[1], last[2]


# --- size -------------------------------------------------------------------------------------------------------------


def test_string_of_128_mb_is_refused(victims: Cluster, victim: NodeProcess, queue_name: str) -> None:
    """The answer names the limit; then the connection is closed."""
    with bounded_memory(victims.nodes, 200 * MIB), connect(victim.rpc) as sock:
        sock.sendall(b"\x94\x00\x07\xa4push\x92" + old(queue_name) + b"\xdb" + LARGE.to_bytes(4, "big"))
        pour(sock, b"x" * MIB, LARGE)
        msgid, text = refusal(end_of(sock))
    assert (msgid, text) == (7, b"too_large: a request may have at most 109051904 bytes")


def test_request_of_128_mb_in_small_parts_is_refused(victims: Cluster, victim: NodeProcess, queue_name: str) -> None:
    """The limit applies to the request, not to each of its strings."""
    part = b"\xda\xff\xff" + b"x" * 65535
    with bounded_memory(victims.nodes, 200 * MIB), connect(victim.rpc) as sock:
        sock.sendall(b"\x94\x00\x08\xa9push_many\x92" + old(queue_name) + b"\xdd\x00\x02\x00\x00")
        pour(sock, part, LARGE)
        msgid, text = refusal(end_of(sock))
    assert (msgid, text) == (8, b"too_large: a request may have at most 109051904 bytes")


@pytest.mark.parametrize("value", [b"\xc0", b"\x90", b"\x80", b"\xa2ab", b"\x81\x01\x01"], ids=repr)
def test_request_of_very_many_values_is_refused(
    victims: Cluster, victim: NodeProcess, canary: Canary, value: bytes
) -> None:
    """A small value takes up to a hundred times its size in memory, and time to build, so the number of
    values is bounded too.
    """
    count = 40 * MIB // len(value)
    with bounded_memory(victims.nodes, 300 * MIB), connect(victim.rpc) as sock:
        sock.sendall(b"\x94\x00\x08\xa4push\x92\xa1q\xdd" + count.to_bytes(4, "big"))
        pour(sock, value * (MIB // len(value)), 40 * MIB)
        assert refusal(end_of(sock)) == (8, b"too_large: a request may hold at most 1000000 values")


def test_stored_body_of_very_many_values_is_delivered_unchanged(
    victims: Cluster, victim: NodeProcess, canary: Canary, queue_name: str
) -> None:
    """A body is opaque over HTTP; an RPC pull does not build an unbounded number of values from it."""
    body = b"\xdd" + (20 * MIB).to_bytes(4, "big") + b"\x90" * (20 * MIB)
    headers = {"Content-Type": "application/x-msgpack"}
    with bounded_memory(victims.nodes, 400 * MIB), Rpc(victim.rpc) as rpc:
        assert repeatedly(call, victim.http, "POST", f"/messages/{queue_name}", body, headers).status == 200
        assert repeatedly(rpc.call, "pull", queue_name)[b"content"] == body
        repeatedly(rpc.call, "delete", queue_name)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x94\x00\x09\xa4push\x92\xa1q" + b"\xdb\xff\xff\xff\xff",
        b"\x94\x00\x09\xa4push\x92\xa1q" + b"\xc6\xff\xff\xff\xff",
        b"\x93\x02\xa4push\x92\xa1q" + b"\xdb\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
    ],
    ids=["raw32", "bin32", "notification", "no request"],
)
def test_string_header_of_4_gb_takes_no_memory(victims: Cluster, victim: NodeProcess, sent: bytes) -> None:
    """Announced sizes are not reserved; the connection ends at the limit or after 5 s of silence."""
    with bounded_memory(victims.nodes, 200 * MIB), connect(victim.rpc) as sock:
        sock.sendall(sent)
        pour(sock, b"x" * MIB, LARGE)
        answer = end_of(sock)
    if sent[:2] == b"\x94\x00":
        assert refusal(answer)[0] == 9


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"], ids=["array32", "map32"])
@pytest.mark.parametrize("start", [b"", b"\x94\x00\x01\xa4push\x92\xa1q"], ids=["alone", "as a content"])
def test_container_header_of_4_billion_elements(
    victims: Cluster, victim: NodeProcess, start: bytes, header: bytes
) -> None:
    """The request is refused at once: so many elements would not fit any request."""
    with bounded_memory(victims.nodes, 100 * MIB), connect(victim.rpc) as sock:
        sock.sendall(start + header)
        assert end_of(sock) == b""


def test_nested_large_container_headers(victims: Cluster, victim: NodeProcess) -> None:
    """Headers of containers that are never filled take no memory."""
    with bounded_memory(victims.nodes, 200 * MIB), connect(victim.rpc) as sock:
        sock.sendall(b"\x94\x00\x01\xa4push\x92\xa1q" + b"\xdd\x02\x00\x00\x00" * 900)
        victim_is_alive = Rpc(victim.rpc)
        victim_is_alive.settle()
        victim_is_alive.close()


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deep_nesting(victim: NodeProcess, queue_name: str, depth: int) -> None:
    """A content is as deep as the decoder goes, or the connection is closed."""
    with connect(victim.rpc) as sock:
        sock.sendall(b"\x94\x00\x01\xa4push\x92" + old(queue_name) + b"\x91" * depth + b"\xc0" + request(2, "ping"))
        sock.shutdown(1)
        end_of(sock)
    with Rpc(victim.rpc) as rpc:
        message = rpc.call("pull", queue_name, 0)
        assert message == b"empty" or depth == 1000


def test_body_over_the_limit_is_refused_and_the_connection_stays_open(victim: NodeProcess, queue_name: str) -> None:
    """The limit is 64 MiB per message; a message of exactly this size is stored."""
    with Rpc(victim.rpc) as rpc:
        text = rpc.error("push", queue_name, b"x" * (64 * MIB + 1))
        assert text == b"too_large: the message has 67108865 bytes, more than the limit of 67108864"
        assert rpc.error("push_many", queue_name, ["small", b"x" * (64 * MIB + 1)]).startswith(
            b"too_large: the message has"
        )
        assert repeatedly(rpc.call, "pull", queue_name, 0) == b"empty", "a part of a refused batch was stored"
        assert repeatedly(rpc.call, "push", queue_name, b"x" * (64 * MIB)) == b"ok"
        message = repeatedly(rpc.call, "pull", queue_name, 60)
        assert message[b"content"] == b"x" * (64 * MIB)
        repeatedly(rpc.call, "delete", queue_name)


LONG = "n" * MIB


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("push", LONG, 1), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("pull", LONG), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("push_many", LONG, [1]), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("pull_many", LONG, 1), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("update_props", LONG), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("update_props", LONG, {"retry": 1}), b"bad_name: a queue name must have 1 to 255 bytes, this has 1048576"),
        (("done", LONG, "id"), b"throw:queue_not_found"),
        (("release", LONG, LONG), b"throw:queue_not_found"),
        (("push_all", LONG, 1), b"throw:invalid_regexp"),
        (("pull_any", LONG), b"throw:invalid_regexp"),
        (("update_props", "q", {LONG: 1}), b"throw:invalid"),
        (("update_props", "q", {"hooks": {LONG: []}}), b"throw:invalid"),
        (("update_props", "q", {"hooks": {"p": [["lmq_hook_preserve_header", [LONG]]]}}), b"throw:invalid"),
        (("set_default_props", [[LONG, {}]]), b"throw:invalid"),
        (("set_default_props", [["a", {"retry": 1}]] * 10_000), b"throw:invalid"),
        (("producer", LONG, 1), b"function_clause"),
        ((LONG,), b"undef"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_names_of_1_mb(victim: NodeProcess, arguments: tuple, error: bytes) -> None:
    """Each gets an error; the connection stays open."""
    with Rpc(victim.rpc) as rpc:
        assert rpc.error(*arguments) == error
        rpc.settle()


def test_large_names_pipelined_do_not_clog_replication(victims: Cluster, victim: NodeProcess) -> None:
    """Invalid queue names are not written to the log: together they would exceed the frame limit between peers."""
    name = b"n" * (40 * MIB)
    with bounded_memory([n for n in victims if n is not victim], 100 * MIB), Rpc(victim.rpc) as rpc:
        rpc.send(b"".join(request(i, method, name, "x") for i, method in enumerate(["done", "retain", "release"])))
        rpc.send(request(3, "delete", name) + request(4, "done_many", name, ["x"]))
        replies = [rpc.read() for _ in range(5)]
        assert [reply.error for reply in replies] == [b"throw:queue_not_found"] * 3 + [None, None]
        assert rpc.call("push", "clogged", 1) == b"ok"


def test_large_messages_pipelined_through_a_follower(victims: Cluster, victim: NodeProcess, queue_name: str) -> None:
    """Several messages near the limit at once are replicated one after the other, neither refused nor retried
    forever.
    """
    body = b"x" * (25 * MIB)
    with Rpc(victim.rpc, timeout_s=60) as rpc:
        rpc.send(b"".join(request(i, "push", queue_name, body) for i in range(4)))
        errors = [rpc.read().error for _ in range(4)]
        for error in errors:
            # On a busy machine they take longer than the cluster lets a client wait.
            assert error is None or error.startswith((b"no_leader", b"unknown_outcome")), error
            if error is not None:
                assert repeatedly(rpc.call, "push", queue_name, body) == b"ok"
        for _ in range(4):
            message = repeatedly(rpc.call, "pull", queue_name, 60)
            assert len(message[b"content"]) == len(body)
        repeatedly(rpc.call, "delete", queue_name)


# --- slow and silent clients ----------------------------------------------------------------------------------------


def test_many_half_open_connections(victims: Cluster, victim: NodeProcess, canary: Canary) -> None:
    """A thousand clients send nothing, or half a request; the silent ones stay, the others are closed after 5 s."""
    half = request(1, "push", "half-open", "x" * 50)
    with bounded_memory(victims.nodes, 200 * MIB), open_idle(victim.rpc, 500) as idle:
        with open_idle(victim.rpc, 500, lambda i: half[: 1 + i % (len(half) - 1)]) as partial:
            canary.check()
            assert all(end_of(sock) == b"" for sock in partial)
        for sock in idle:
            sock.sendall(request(1, "ping"))
        assert all(sock.recv(100) == b"\x94\x01\x01\xc0\xa4pong" for sock in idle)


def test_slow_senders_are_served(victim: NodeProcess, canary: Canary) -> None:
    """Requests that arrive byte by byte are served as any other."""
    with open_idle(victim.rpc, 50) as slow:
        dribble(slow, request(1, "push", "slow", 1), 0.05)
        assert all(sock.recv(100) == b"\x94\x01\x01\xc0\xa2ok" for sock in slow)
    with Rpc(victim.rpc) as rpc:
        assert rpc.call("delete", "slow") == b"ok"


@pytest.mark.parametrize("pull", [("pull", "unread", 0), ("pull_many", "unread", 10_000)], ids=lambda pull: pull[0])
def test_client_that_asks_for_much_and_reads_late(
    victims: Cluster, victim: NodeProcess, canary: Canary, pull: tuple
) -> None:
    """Unread answers are bounded: further pulls fail with an error, and their messages are returned uncharged."""
    count, calls = 40, 1000 if pull[0] == "pull" else 10
    with bounded_memory(victims.nodes, 400 * MIB), Rpc(victim.rpc, timeout_s=60) as rpc:
        repeatedly(rpc.call, "update_props", "unread", {"timeout": 0, "retry": 10**9})
        repeatedly(rpc.call, "push_many", "unread", [b"x" * MIB] * count)
        rpc.send(b"".join(request(i, *pull) for i in range(calls)))
        canary.check()
        replies = [rpc.read() for _ in range(calls)]
        errors = [reply.error for reply in replies if reply.error is not None]
        # On a busy machine the cluster may be without a leader for a time.
        refused = [error for error in errors if not error.startswith((b"no_leader", b"unknown_outcome"))]
        assert 0 < len(refused) < calls
        assert set(refused) == {b"overloaded: the client leaves more than 100663296 bytes of responses unread"}
        assert len(repeatedly(rpc.call, "pull_many", "unread", 10_000)) == 16, "a batch ends beyond 16 MiB"
        repeatedly(rpc.call, "delete", "unread")


# --- random bytes ---------------------------------------------------------------------------------------------------


def test_random_bytes(victims: Cluster, victim: NodeProcess, canary: Canary) -> None:
    """Garbage from a fixed seed: the connection is answered or closed, and other clients are served."""
    samples = [
        request(1, "push", "fuzz", {"a": [1, "x" * 40]}),
        request(2, "pull", "fuzz", 0),
        request(3, "push_many", "fuzz", [1, 2, 3], {"keys": ["a", None, "b"]}),
        request(4, "pull_any", "^fuzz", 0.01),
        request(5, "done", "fuzz", "0fe7f7b1-0c4f-4bd0-8c4b-1f7e3f2d0c11"),
        request(6, "update_props", "fuzz", {"retry": 1, "timeout": 0.5, "pack": 0}),
        request(7, "push_all", "^fuzz$", "x"),
        request(8, "pull_many", "fuzz", 10, 0),
        request(9, "producer", "0123456789abcdef", 1),
        request(10, "get_default_props"),
        notification("push", "fuzz", "n"),
        notification("pull", "fuzz", 0),
    ]
    with bounded_memory(victims.nodes, 200 * MIB):
        for number, block in enumerate(fuzz_blocks(SEED, 600, samples)):
            # The garbage may contain a pull that waits: its answer is not awaited.
            with connect(victims[number % 3].rpc) as sock, contextlib.suppress(TimeoutError):
                sock.settimeout(1.0)
                sock.sendall(block)
                sock.shutdown(1)
                end_of(sock)
    for node in victims:
        assert "Traceback" not in node.log(), node.log_tail()
        assert '"level": "error"' not in node.log(), node.log_tail()
    with Rpc(victim.rpc) as rpc:
        assert rpc.call("set_default_props", []) == b"ok"
