"""Unauthenticated clients on every port: bounded in number, time, memory and descriptors; other clients are served."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from .bad_input import MIB, bounded_memory, connect, end_of, pour
from .cluster import NodeProcess, wait_for
from .raw_http import call
from .raw_rpc import Rpc, request

ADMIN = "the token of an administrator"
FILES = 1500
STRANGERS = 1700
BEARER = {"Authorization": f"Bearer {ADMIN}"}


class _PoorNode(NodeProcess):
    """A node with a low limit of open files."""

    def command(self) -> list[str]:
        return ["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "node", *super().command()]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    token = folder / "admin-token"
    token.write_text(ADMIN)
    token.chmod(0o600)
    with _PoorNode(folder, arguments=["--admin-token-file", str(token)]) as one:
        yield one


@pytest.fixture(autouse=True, scope="module")
def enough_files() -> Iterator[None]:
    """Raises the limit of this process, which holds the other ends."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * STRANGERS
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip(f"this needs {wanted} open files; the hard limit is {before[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def known(node: NodeProcess) -> Rpc:
    """A client that has authenticated with its token."""
    rpc = Rpc(node.rpc, 60)
    assert rpc.call("auth", ADMIN) == b"ok"
    return rpc


def files_of(node: NodeProcess) -> int:
    """Return the number of the node's open descriptors."""
    return sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())


def log_files(node: NodeProcess) -> set[Path]:
    """Return the files of the node's log; a snapshot removes old ones."""
    return set(node.data_dir.rglob("[0-9]*.log"))


def ended(node: NodeProcess, port: str, reason: str) -> int:
    """Return how many connections the node has closed for this reason."""
    page = call(node.http, "GET", "/metrics", headers=BEARER).body.decode()
    wanted = f'lmq_connections_ended_total{{port="{port}",reason="{reason}"}} '
    return next(int(float(line.removeprefix(wanted))) for line in page.splitlines() if line.startswith(wanted))


def lines_of(node: NodeProcess, event: str) -> list[dict]:
    """Return the node's log lines for one event."""
    return [line for line in map(json.loads, node.log().splitlines()) if line["event"] == event]


@pytest.mark.parametrize("port", ["http", "rpc", "raft"])
def test_strangers_do_not_use_up_descriptors(node: NodeProcess, port: str) -> None:
    """With 1,500 descriptors and 1,700 silent connections the journal gets its next files, and authenticated
    clients connect.
    """
    address = {"http": node.http, "rpc": node.rpc, "raft": node.raft}[port]
    host, number = address.rsplit(":", 1)
    before = log_files(node)
    with contextlib.ExitStack() as stack, known(node) as early:
        for _ in range(STRANGERS):
            sock = stack.enter_context(socket.socket())
            with contextlib.suppress(ConnectionError):
                sock.settimeout(20)
                sock.connect((host, int(number)))
        # Everything earlier in the port's queue has been accepted.
        with known(node) as late:
            assert late.call("push", "q", b"x" * (9 * MIB)) == b"ok"
            assert early.call("push", "q", b"x" * (9 * MIB)) == b"ok"
            assert call(node.http, "GET", "/v1/queues", headers=BEARER).status == 200
            assert call(node.http, "POST", "/v1/snapshots", b"{}", BEARER).status == 200
            assert files_of(node) < FILES - 100
            late.call("delete", "q")
    assert log_files(node) - before, "the log did not begin a new file"
    assert node.running


def test_the_oldest_stranger_makes_room_and_is_counted(node: NodeProcess) -> None:
    before = ended(node, "msgpack_rpc", "unauthenticated_full")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(connect(node.rpc))
        for _ in range(700):
            stack.enter_context(connect(node.rpc))
        assert end_of(first) == b""
        assert ended(node, "msgpack_rpc", "unauthenticated_full") > before
    # One line covers all of them.
    assert len(lines_of(node, "connections ended")) < 30


def test_values_of_strangers_are_not_built(node: NodeProcess) -> None:
    """200 connections that send 12 MiB of empty lists each take almost no memory."""
    start = b"\x94\x00\x01\xa4push\x92\xa1q\xdd" + (12 * MIB).to_bytes(4, "big")
    with known(node) as client, bounded_memory([node], 48 * MIB), contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connect(node.rpc))
            pour(sock, start + b"\x90" * MIB, 12 * MIB)
        client.settle()


def test_input_before_authentication_is_limited(node: NodeProcess) -> None:
    """A token and the request after it fit; anything larger is not read."""
    with connect(node.rpc) as sock:
        sock.sendall(request(1, "auth", ADMIN) + request(2, "push", "q", [[]] * 1000) + request(3, "delete", "q"))
        unpacker = msgpack.Unpacker(raw=True)
        answers: list[list[object]] = []
        while len(answers) < 3:
            unpacker.feed(sock.recv(4096))
            answers += unpacker
        assert sorted(answer[1:3] for answer in answers) == [[1, None], [2, None], [3, None]]
    for large in (request(7, "auth", "x" * 1000), request(7, "auth", [0] * 40), request(7, "auth", "x" * MIB)):
        with connect(node.rpc) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(large)
            assert b"unauthorized: " in end_of(sock)
    with connect(node.rpc) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request(1, "ping") * 10_000)
        assert end_of(sock).count(b"unauthorized: ") == 64


def test_garbage_gets_one_line_a_minute(node: NodeProcess) -> None:
    before = len(lines_of(node, "connections ended"))
    counted = ended(node, "msgpack_rpc", "bad_request")
    for _ in range(300):
        with connect(node.rpc) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            end_of(sock)
    wait_for(lambda: ended(node, "msgpack_rpc", "bad_request") >= counted + 300, "all are counted")
    assert len(lines_of(node, "connections ended")) <= before + 2


def test_strangers_are_closed_in_time(tmp_path: Path) -> None:
    """A client that sends nothing, or a byte now and then, is closed; no other client is affected."""
    token = tmp_path / "admin-token"
    token.write_text(ADMIN)
    token.chmod(0o600)
    with (
        NodeProcess(tmp_path, arguments=["--admin-token-file", str(token), "--request-seconds-max", "1"]) as one,
        known(one) as client,
        connect(one.http, 60) as http,
        connect(one.rpc, 60) as rpc,
    ):
        http.sendall(b"GET /v1/queues HTT")
        rpc.sendall(b"\x94\x00")
        assert end_of(rpc) == end_of(http) == b""
        client.settle()
