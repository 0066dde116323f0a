"""Front-end processes: every port works, and one that ends costs only its own connections."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import NodeProcess, ports, wait_for
from .front_end_kills import FRONT_ENDS, MemcacheLoad, QueuedLoad, kill_front_ends, with_front_ends
from .raw_http import Connection
from .raw_rpc import Rpc
from .test_access_tls import SECRET, TlsNode

BODY_BYTES = 32 * 1024 * 1024
MEMORY_BYTES_MAX = 64 * 1024 * 1024
"""A front end takes 41 MiB, so that it cannot hold such a body."""


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A cluster of one with two front ends."""
    environment = {"LMQ_FRONT_ENDS": "2", "LMQ_MEMCACHE": f"127.0.0.1:{ports.take()}"}
    node = NodeProcess(tmp_path_factory.mktemp("relayed"), environment=environment)
    with node:
        yield node
        assert "Traceback" not in node.log()


def front_end_of(node: NodeProcess, client: socket.socket) -> int:
    """Return the front end that has the other end of a client's connection, once one has accepted it."""
    local = f"127.0.0.1:{client.getsockname()[1]}"
    return wait_for(lambda: _front_end_with(node, local), f"a front end to accept {local}")


def _front_end_with(node: NodeProcess, client: str) -> int | None:
    local_hex = "0100007F:" + f"{int(client.rpartition(':')[2]):04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[2] == local_hex and fields[3] == "01":
            inode = f"socket:[{fields[9]}]"
            for pid in node.front_ends:
                if inode in (str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()):
                    return pid
    return None


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_every_port_is_served_by_front_ends(relayed: NodeProcess, queue_name: str) -> None:
    clients = [
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        for address in (relayed.http, relayed.rpc, relayed.queued, relayed.environment["LMQ_MEMCACHE"])
    ]
    for client in clients:
        wait_for(lambda: front_end_of(relayed, client) or True, "a front end")  # noqa: B023 - called at once
        client.close()
    with Connection(relayed.http) as http, Rpc(relayed.rpc) as rpc:
        assert http.call("POST", f"/messages/{queue_name}", b"one").status == 200
        assert rpc.call("pull", queue_name)[b"content"] == b"one"
    for kind, address in ((MemcacheLoad, relayed.environment["LMQ_MEMCACHE"]), (QueuedLoad, relayed.queued)):
        with kind(address, queue_name) as load:
            assert load.push(b"two")
            assert load.pull() == b"two"
            assert load.ack()


def test_the_address_of_a_client_is_known(relayed: NodeProcess) -> None:
    with Rpc(relayed.rpc) as rpc:
        rpc.call("ping")
        port = rpc.socket.getsockname()[1]
        shown = relayed.get_json("/v1/connections")
        assert f"127.0.0.1:{port}" in str(shown)


def test_requests_of_a_connection_keep_their_order(relayed: NodeProcess, queue_name: str) -> None:
    with Rpc(relayed.rpc) as rpc:
        calls = [("push", queue_name, b"%d" % number) for number in range(2_000)]
        assert all(reply.error is None for reply in rpc.many(calls))
        pulled = rpc.many([("pull", queue_name, 0)] * 2_000)
        assert [reply.result[b"content"] for reply in pulled] == [b"%d" % number for number in range(2_000)]


def test_large_messages_cross_and_a_client_that_does_not_read_fills_no_memory(
    relayed: NodeProcess, queue_name: str
) -> None:
    with Client(relayed.rpc) as client:
        client.push(queue_name, os.urandom(BODY_BYTES))
    with Rpc(relayed.rpc) as idle:
        idle.ask("pull", queue_name)
        with Client(relayed.rpc) as client:
            wait_for(lambda: relayed.get_json(f"/v1/queues/{queue_name}")["leased"] == 1, "the delivery")
            assert client.pull(queue_name, timeout=0) is None
            assert max(map(resident_bytes, relayed.front_ends)) < MEMORY_BYTES_MAX
        received = 0
        while received < BODY_BYTES:
            received += len(idle.socket.recv(1 << 20))


def test_a_half_closed_client_gets_its_answer(relayed: NodeProcess, queue_name: str) -> None:
    with Rpc(relayed.rpc) as client:
        client.ask("pull", queue_name)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.socket.recv(2) == b"\x94\x01"
        with Rpc(relayed.rpc) as rpc:
            rpc.call("push", queue_name, b"late")
        answer = b""
        while more := client.socket.recv(4096):
            answer += more
        assert b"late" in answer


def test_an_open_read_returns_when_its_front_end_is_killed_and_others_notice_nothing(
    relayed: NodeProcess, queue_name: str
) -> None:
    address = relayed.environment["LMQ_MEMCACHE"]
    with MemcacheLoad(address, queue_name) as reader, contextlib.ExitStack() as stack:
        reader.push(b"kept")
        assert reader.pull() == b"kept"
        victim = front_end_of(relayed, reader.socket)
        others: list[Rpc] = []

        def is_elsewhere() -> bool:
            rpc = stack.enter_context(Rpc(relayed.rpc))
            others.extend([rpc] if front_end_of(relayed, rpc.socket) != victim else [])
            return bool(others)

        wait_for(is_elsewhere, "a client of the other front end")
        for rpc in others:
            rpc.ask("pull", queue_name + "-other")
        os.kill(victim, signal.SIGKILL)
        with MemcacheLoad(address, queue_name) as other:
            wait_for(lambda: other.pull() == b"kept", "the message of the lost connection")
            assert other.ack()
        for number, _rpc in enumerate(others):
            with Rpc(relayed.rpc) as pusher:
                pusher.call("push", queue_name + "-other", b"%d" % number)
        for rpc in others:
            assert rpc.read().error is None
    wait_for(lambda: len(relayed.front_ends) == 2 and victim not in relayed.front_ends, "a new front end")
    assert "a front-end process failed" in relayed.log()


def test_front_ends_end_with_a_killed_node(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, environment={"LMQ_FRONT_ENDS": "2"}) as node:
        pids = node.front_ends
        assert len(pids) == 2
        node.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}/fd").exists() and _runs(pid) for pid in pids), "their end")
        # The ports are free, so the node can start again.
        node.start()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_signal_to_the_process_group_lets_the_node_answer_first(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, environment={"LMQ_FRONT_ENDS": "2"}) as node, Connection(node.http) as waiting:
        waiting.ask("GET", "/messages/empty?t=60")
        wait_for(lambda: "lmq_waiters 1" in _metrics(node), "the wait")
        for pid in node.front_ends:
            os.kill(pid, signal.SIGTERM)
        node.signal(signal.SIGTERM)
        assert waiting.read().status == 204
        assert node.wait_exit() == 0


def _metrics(node: NodeProcess) -> str:
    with Connection(node.http) as http:
        return str(http.call("GET", "/metrics").body.decode())


def test_metrics_count_front_ends(relayed: NodeProcess) -> None:
    wait_for(lambda: f"lmq_front_ends {FRONT_ENDS}\n" in _metrics(relayed), "both front ends")


def test_tls_ends_at_the_front_end_and_certificates_are_reloaded(tmp_path: Path) -> None:
    with TlsNode(tmp_path, "--front-ends=2") as node:
        first = node.serial(node.process.rpc)
        node.renew()
        node.process.signal(signal.SIGHUP)
        wait_for(lambda: node.serial(node.process.rpc) != first, "the new certificate")
        with socket.create_connection(("127.0.0.1", int(node.process.rpc.rpartition(":")[2])), 10) as plain:
            plain.sendall(b"not TLS at all\r\n\r\n")
            while plain.recv(100):
                pass
        wait_for(lambda: 'reason="handshake"} 1' in _tls_metrics(node), "the count of the failed handshake")


def _tls_metrics(node: TlsNode) -> str:
    request = urllib.request.Request(
        f"https://{node.process.http}/metrics", headers={"Authorization": f"Bearer {SECRET}"}
    )
    with urllib.request.urlopen(request, context=node.context, timeout=10) as answer:
        return str(answer.read().decode())


def test_kills_of_front_ends_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    """A short run; ``python -m tests.integration.front_end_kills`` is the long one."""
    with with_front_ends(tmp_path) as cluster:
        loads, kills = kill_front_ends(cluster, 10.0, seed=1)
    print(kills, *loads, sep="\n")
    assert kills >= 2
    assert not [text for load in loads for text in load.violations]


def test_a_front_end_that_hangs_is_replaced(relayed: NodeProcess, queue_name: str) -> None:
    with Rpc(relayed.rpc) as rpc:
        rpc.call("push", queue_name, b"x")
        hung = front_end_of(relayed, rpc.socket)
        os.kill(hung, signal.SIGSTOP)
        wait_for(lambda: hung not in relayed.front_ends and len(relayed.front_ends) == 2, "another front end")
        assert rpc.is_closed()
    with Rpc(relayed.rpc) as rpc:
        assert rpc.call("pull", queue_name, 0)[b"content"] == b"x"
    assert "a front-end process hangs and is killed" in relayed.log()
