"""Bad input on the HTTP port: clear errors, bounded memory, other clients unharmed."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from lmqcluster.wire.limits import REQUEST_BYTES_MAX

from .bad_input import MIB, bounded_memory, connect, dribble, end_of, fuzz_blocks, open_idle, pour, unharmed
from .canary import Canary
from .cluster import Cluster, NodeProcess
from .raw_http import Connection, call

SEED = 9_980
LARGE = REQUEST_BYTES_MAX + MIB
JSON = {"Content-Type": "application/json"}
MSGPACK = {"Content-Type": "application/x-msgpack"}


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


def status_of(answer: bytes) -> int:
    """Return the status of the first answer in a stream."""
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


# --- size -------------------------------------------------------------------------------------------------------------

PUSH_ROUTES = ["/messages/large", "/v1/queues/large/messages", "/messages?qre=%5Elarge"]


def test_bodies_over_the_limit_are_refused(victims: Cluster, victim: NodeProcess) -> None:
    """Every route answers 413: before the body is read if its length is announced, else once a chunked body
    passes the limit.
    """
    announced = f"Content-Length: {LARGE}\r\n"
    framings = [announced, announced + "Expect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n"]
    chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
    with bounded_memory(victims.nodes, 250 * MIB), contextlib.ExitStack() as stack:
        refused = []
        for path, framing in itertools.product(PUSH_ROUTES, framings):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n"
            # Opened when it is needed, because the node closes silent connections.
            sock = stack.enter_context(connect(victim.http))
            sock.sendall(head.encode())
            if "Expect" not in framing:
                pour(sock, chunk if "chunked" in framing else b"x" * MIB, LARGE)
            refused.append((path, framing, sock))
        # The node keeps each connection for seconds, in case the client still sends.
        for path, framing, sock in refused:
            assert status_of(end_of(sock)) == 413, (path, framing)


def test_problem_of_a_body_over_the_limit_names_the_limit(victim: NodeProcess) -> None:
    """Design 2.3: errors carry application/problem+json; the limit is in the text."""
    with Connection(victim.http) as connection:
        connection.send(
            b"POST /v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        answer = connection.read()
    problem = answer.json
    assert (answer.status, problem["code"], problem["retryable"], problem["outcome"]) == (
        413,
        "too_large",
        False,
        "not_applied",
    )
    assert "bytes" in problem["detail"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"POST /messages/" + b"n" * MIB + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 414),
        (b"GET /messages/" + b"n" * 3000 + b"?t=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: " + b"v" * MIB + b"\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: v\r\n" * 100_000 + b"\r\n", 400),
        (b"G" * MIB + b"\r\n\r\n", 400),
        (b"\x00" * 1000, 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, 400),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /messages/q HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n", 400),
        (b"POST /messages/%zz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
    ],
    ids=range(13),
)
def test_malformed_and_oversized_heads(victims: Cluster, victim: NodeProcess, head: bytes, status: int) -> None:
    """7: 414 for long request lines, 400 for long header values and malformed heads."""
    with bounded_memory(victims.nodes, 50 * MIB), connect(victim.http) as sock:
        pour(sock, head, len(head))
        try:
            answer = sock.recv(1000)
        except ConnectionResetError:
            # The server closed while data was in flight, so its answer was lost.
            assert len(head) > 100_000
        else:
            assert status_of(answer) == status


# --- content ----------------------------------------------------------------------------------------------------------

BAD_JSON = [
    b"",
    b"{",
    b"nonsense",
    b'{"messages": [',
    b'{"messages": NaN}',
    b"[" * 100_000,
    b'{"messages": [{"content": "\\ud800"}]}',
    b"\xff\xfe",
    b'{"messages": 5}',
    b'{"messages": [5]}',
    b'{"messages": [{}]}',
    b'{"messages": [{"content": 5}]}',
    b'{"messages": [{"content": {"base64": "!"}}]}',
    b'{"messages": [{"content": "x", "key": 5}]}',
    b'{"messages": [{"content": "x", "unknown": 5}]}',
    b'{"unknown": []}',
    b'{"messages": [{"content": "x", "key": "' + b"k" * 300 + b'"}]}',
    b"1" * 100_000,
]
BAD_MSGPACK = [
    b"",
    b"\xc1",
    b"\x81",
    b"\x81\xa8messages\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\x91" * 100_000,
    b"\x81\xa8messages\x91\xd4\x05x",
    b"\x81\xa8messages\x91\x81\xa7content\xd6\xff\x00\x00\x00\x01",
    b"\x80\x80",
    b"\x81\x91\x01\x02",
]


@pytest.mark.parametrize(
    ("body", "headers"),
    [*((body, JSON) for body in BAD_JSON), *((body, MSGPACK) for body in BAD_MSGPACK)],
    ids=lambda value: repr(value)[:24],
)
def test_malformed_bodies(victims: Cluster, victim: NodeProcess, body: bytes, headers: dict[str, str]) -> None:
    """The answer is a problem of status 400 that says what is wrong; nothing is stored; the connection stays open."""
    with bounded_memory(victims.nodes, 100 * MIB), Connection(victim.http) as connection:
        answer = connection.call("POST", "/v1/queues/malformed/messages", body, headers)
        assert answer.status == 400, answer
        assert answer["content-type"] == b"application/problem+json"
        problem = answer.json
        assert (problem["code"], problem["retryable"], problem["outcome"]) == ("bad_request", False, "not_applied")
        assert len(problem["detail"]) > 10
        assert connection.call("GET", "/messages/malformed?t=0").status == 204


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"[" * 100_000, b'{"retry": "x"}', b"\xff"], ids=range(7))
def test_malformed_properties(victim: NodeProcess, body: bytes) -> None:
    """9.1: malformed JSON, empty body or a non-object: 400."""
    assert call(victim.http, "PATCH", "/properties/malformed", body, JSON).status == 400


# --- regular expressions ----------------------------------------------------------------------------------------------

SUBJECT = "a" * 200 + "!"
CATASTROPHIC = [
    "^(a+)+$",
    "^aa(a|a)*$",
    "^(a|aa)+$",
    "^a(.*a){20}$",
    "^a(([a-z])+.)+[A-Z]([a-z])+$",
    "^aa(a?){50}a{50}$",
]
REFUSED = [
    ("(a{1000}){1000}", "repetition"),
    ("(", "missing )"),
    ("[", "missing ]"),
    ("*a", "no argument for repetition"),
    (r"(a)\1", "escape"),
    ("(?=a)", "(?="),
    ("(?<!a)", "(?<"),
    ("a{1001}", "repetition"),
    (r"\C(", "missing )"),
]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_catastrophic_expressions_are_answered_at_once(victim: NodeProcess, pattern: str) -> None:
    """Design 2.6: regular expressions match in linear time; a backtracking engine would need years for these."""
    assert call(victim.http, "POST", f"/messages/{SUBJECT}", b"x").status == 200
    assert call(victim.http, "POST", f"/messages?qre={quote(pattern)}", b"x").status == 200
    assert call(victim.http, "GET", f"/messages?qre={quote('^nothing' + pattern[1:])}&t=0").status == 204
    rules = json.dumps([[pattern, {"retry": 1}]]).encode()
    assert call(victim.http, "PUT", "/properties", rules, JSON).status == 204
    assert call(victim.http, "GET", f"/properties/{SUBJECT}").status == 200
    assert call(victim.http, "DELETE", "/properties").status == 204
    assert call(victim.http, "DELETE", f"/queues/{SUBJECT}").status == 204


@pytest.mark.parametrize(("pattern", "reason"), REFUSED)
def test_expressions_that_are_refused_say_why(victim: NodeProcess, pattern: str, reason: str) -> None:
    """Design 2.6: an unusable pattern is refused with the reason; 8.5: 400."""
    for method in ("GET", "POST"):
        answer = call(victim.http, method, f"/messages?qre={quote(pattern)}", b"" if method == "POST" else None)
        assert (answer.status, answer.body) == (400, b"")
        assert answer["x-lmq-error"].startswith(b"bad_pattern: ")
        assert reason in answer["x-lmq-error"].decode()
    answer = call(victim.http, "PUT", "/properties", json.dumps([[pattern, {}]]).encode(), JSON)
    assert answer.status == 400
    assert reason in answer["x-lmq-error"].decode()
    assert call(victim.http, "GET", "/properties").body == b"[]"


# --- slow and silent clients ----------------------------------------------------------------------------------------


def test_many_half_open_connections(victims: Cluster, victim: NodeProcess, canary: Canary) -> None:
    """A thousand clients that send nothing, or half a head, are closed after a while; other clients are unaffected."""
    half = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
    with bounded_memory(victims.nodes, 200 * MIB):
        with open_idle(victim.http, 1000, lambda i: half[: (i % 3) * 12]):
            canary.check()
        canary.check()


def test_slow_senders_are_served(victim: NodeProcess) -> None:
    """Requests that arrive byte by byte are served as any other."""
    with open_idle(victim.http, 30) as slow:
        dribble(slow, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 0.02)
        assert all(end_of(sock).startswith(b"HTTP/1.1 200") for sock in slow)


def test_many_unfinished_bodies_are_bounded_together(victims: Cluster, victim: NodeProcess, canary: Canary) -> None:
    """Bodies in flight together take a bounded amount of memory; beyond it a client is asked to retry later."""
    head = f"POST /messages/unfinished HTTP/1.1\r\nHost: localhost\r\nContent-Length: {30 * MIB}\r\n\r\n".encode()
    with bounded_memory(victims.nodes, 600 * MIB), open_idle(victim.http, 24, lambda _i: head) as sockets:
        for _ in range(28):
            for sock in sockets:
                pour(sock, b"x" * MIB, MIB)
        canary.check()
        answers = []
        for sock in sockets:
            sock.setblocking(False)
            try:
                answers.append(sock.recv(1000))
            except (BlockingIOError, ConnectionResetError):
                continue
    refused = [answer for answer in answers if answer]
    assert refused
    assert all(status_of(answer) == 503 and b"retry-after: 1" in answer for answer in refused)


# --- random bytes ---------------------------------------------------------------------------------------------------


def test_random_bytes(victims: Cluster, victim: NodeProcess) -> None:
    """Garbage from a fixed seed: the connection is answered or closed, and other clients are served."""
    json_head = b"Content-Type: application/json\r\n"
    samples = [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /messages/fuzz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /messages/fuzz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /messages/fuzz?t=0&cf=msgpack HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /messages?qre=%5Efuzz&t=0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PATCH /properties/fuzz HTTP/1.1\r\nHost: localhost\r\n"
        + json_head
        + b'Content-Length: 11\r\n\r\n{"retry":1}',
        b"POST /v1/queues/fuzz/pull HTTP/1.1\r\nHost: localhost\r\n"
        + json_head
        + b'Content-Length: 9\r\n\r\n{"max":1}',
        b"GET /stats HTTP/1.0\r\n\r\n",
    ]
    with bounded_memory(victims.nodes, 200 * MIB):
        for number, block in enumerate(fuzz_blocks(SEED, 450, samples)):
            # The garbage may contain a pull that waits: its answer is not awaited.
            with connect(victims[number % 3].http) as sock, contextlib.suppress(TimeoutError):
                sock.settimeout(1.0)
                sock.sendall(block)
                sock.shutdown(1)
                end_of(sock)
    for node in victims:
        assert "Traceback" not in node.log(), node.log_tail()
        assert '"level": "error"' not in node.log(), node.log_tail()
    call(victim.http, "DELETE", "/properties")
