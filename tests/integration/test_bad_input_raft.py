"""Bad input on the Raft port: unauthenticated peers are refused before their data is used; the cluster is
unaffected.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Self

import msgpack
import pytest

from lmqcluster.replication.peers import handshake, messages
from lmqcluster.replication.peers.handshake import Exchange, Identity, stretched
from lmqcluster.replication.peers.sealing import SEAL_BYTES, Seal
from lmqcluster.wire.limits import FRAME_BYTES_MAX

from .bad_input import MIB, bounded_memory, connect, dribble, end_of, fuzz_blocks, open_idle, pour, unharmed
from .canary import Canary
from .cluster import Cluster, NodeProcess, wait_for
from .raw_http import call
from .raw_rpc import Rpc

SEED = 19_980
SECRET = b"the secret of the cluster under test"
OTHER_SECRET = "another secret, of another cluster"


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("victims")
    with Cluster(3, directory=directory, environment={"LMQ_CLUSTER_SECRET": SECRET.decode()}) as nodes:
        yield nodes


@pytest.fixture
def canary(victims: Cluster) -> Iterator[Canary]:
    term = victims.leader().get_json("/v1/cluster")["term"]
    with unharmed(victims) as singer:
        yield singer
    assert victims.leader().get_json("/v1/cluster")["term"] == term, "the cluster had to elect again"


@pytest.fixture
def victim(victims: Cluster, canary: Canary) -> NodeProcess:
    """The node that gets the bad input: the leader, whose loss would be noticed most."""
    return victims.leader()


def refusals(node: NodeProcess, client: str) -> list[dict]:
    """Return the log lines of the node about connections from this address."""
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "connections ended" and line["client"] == client]


_numbers = itertools.count(1)


def new_address() -> str:
    """Return a loopback address without log lines yet: a node logs each address once a minute."""
    return f"127.0.7.{next(_numbers)}"


class Stranger:
    """A client of the Raft port that knows the protocol, and perhaps the secret."""

    def __init__(
        self, address: str, secret: bytes = SECRET, node_id: str = "stranger", source: str | None = None
    ) -> None:
        self.socket = connect(address, source=source)
        self.exchange = Exchange(Identity(node_id, 1, "127.0.0.1:1"), stretched(secret))
        self._secret = secret
        self._buffer = b""
        self._seal: Seal | None = None
        self._open: Seal | None = None

    def send(self, payload: bytes) -> None:
        """Send a frame, sealed after the handshake."""
        self.socket.sendall(self.frame(payload))

    def frame(self, payload: bytes) -> bytes:
        """Return the bytes of a frame."""
        return messages.frame(payload if self._seal is None else self._seal.seal(payload))

    def hello(self) -> bytes:
        """Send the greeting, and return the node's challenge."""
        self.send(self.exchange.hello())
        return self.read()

    def prove(self) -> bool:
        """Do the whole handshake; return whether the node accepts it."""
        proof, known = self.exchange.answer(self.hello())
        self.send(proof)
        welcome = self.read()
        if not welcome:
            return False
        self.exchange.read_welcome(welcome, known)
        if not self._secret:
            return True
        self._seal = Seal(self.exchange.seal_key(known, handshake.TO_LISTENER))
        self._open = Seal(self.exchange.seal_key(known, handshake.TO_DIALER))
        return True

    def read(self) -> bytes:
        """Read one frame, empty at the end of the connection."""
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return b""
            self._buffer += data
        size = int.from_bytes(self._buffer[:4], "big")
        payload, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
        return payload if self._open is None else self._open.open(payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.socket.close()


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,
    "4 GB frame": b"\xff\xff\xff\xff",
    "64 MB frame": (64 * MIB).to_bytes(4, "big"),
    "frame over the limit of a handshake": (4097).to_bytes(4, "big") + b"x" * 4097,
    "empty frame": b"\x00\x00\x00\x00",
    "no MessagePack": b"\x00\x00\x00\x01\xc1",
    "cut MessagePack": b"\x00\x00\x00\x02\x92\x01",
    "a map": b"\x00\x00\x00\x01\x80",
    "pickle": messages.frame(b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94."),
    "deep": messages.frame(b"\x91" * 4000),
    "append_entries at once": messages.frame(
        messages.encode(
            {
                "type": "append_entries",
                "term": 10**6,
                "seq": 1,
                "commit_index": 10**6,
                "prevLogIdx": 1,
                "prevLogTerm": 0,
                "last": 1,
                "entries": [],
            }
        )
    ),
    "wrong magic": messages.frame(msgpack.packb([b"other", 1, "n", 1, "a:1", b"n" * 32])),
    "wrong version": messages.frame(msgpack.packb([b"lmqcluster-raft", 9, "n", 1, "a:1", b"n" * 32])),
    "short nonce": messages.frame(msgpack.packb([b"lmqcluster-raft", 1, "n", 1, "a:1", b"n"])),
    "no id": messages.frame(msgpack.packb([b"lmqcluster-raft", 1, "", 1, "a:1", b"n" * 32])),
    "long id": messages.frame(msgpack.packb([b"lmqcluster-raft", 1, "n" * 300, 1, "a:1", b"n" * 32])),
    "huge incarnation": messages.frame(msgpack.packb([b"lmqcluster-raft", 1, "n", -1.5, "a:1", b"n" * 32])),
    "invalid utf-8": messages.frame(b"\x96\xc4\x0flmqcluster-raft\x01\xa2\xff\xfe\x01\xa1a\xc4\x20" + b"n" * 32),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_closed_with_a_log_line(victim: NodeProcess, sent: bytes) -> None:
    """Data that is no peer's greeting closes the connection at once and leaves one clear log line."""
    client = new_address()
    with connect(victim.raft, source=client) as sock:
        sock.sendall(sent)
        assert end_of(sock) == b""
    (line,) = wait_for(lambda: refusals(victim, client), "a line in the log")
    assert (line["port"], line["reason"], line["count"]) == ("raft", "handshake", 1)
    assert len(line["detail"]) > 20


def test_a_thousand_bad_connections_are_one_line_in_the_log(victim: NodeProcess) -> None:
    client = new_address()
    for _ in range(1000):
        with connect(victim.raft, source=client) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert end_of(sock) == b""
    # Another minute may have begun.
    assert len(refusals(victim, client)) <= 2


def test_flood_before_the_handshake_takes_no_memory(victims: Cluster, victim: NodeProcess) -> None:
    """An unauthenticated peer can make a node buffer at most 4 KiB."""
    with bounded_memory(victims.nodes, 50 * MIB), open_idle(victim.raft, 20) as sockets:
        for sock in sockets:
            sock.sendall((4096).to_bytes(4, "big"))
            pour(sock, b"x" * 4096, 64 * MIB)


def test_wrong_secret_is_refused(victim: NodeProcess) -> None:
    """A peer with the wrong cluster secret leaves a clear log line."""
    client = new_address()
    with Stranger(victim.raft, b"wrong", "impostor", source=client) as stranger:
        assert not stranger.prove()
    (line,) = wait_for(lambda: refusals(victim, client), "the line about the secret")
    assert line["detail"] == "node impostor has another cluster secret"


def test_right_secret_is_accepted(victim: NodeProcess) -> None:
    """The client of these tests is correct, so refusals in the other tests are due to their faults."""
    with Stranger(victim.raft) as stranger:
        assert stranger.prove()
        stranger.send(messages.encode({"type": "ask", "verb": "cluster", "arguments": []}))
        answer = messages.decode(stranger.read())
        assert answer["ok"]
        assert len(answer["result"]["members"]) == 3


def test_replayed_proof_is_refused(victim: NodeProcess) -> None:
    """A recorded proof is useless: it covers the listener's fresh nonce."""
    with Stranger(victim.raft) as first:
        proof, _ = first.exchange.answer(first.hello())
        first.send(proof)
        assert first.read() != b""
        with Stranger(victim.raft) as second:
            second.exchange = first.exchange
            second.hello()
            second.send(proof)
            assert second.read() == b""


def test_a_stranger_who_dials_learns_nothing(victim: NodeProcess) -> None:
    """The node's messages before a proof are the same for every client: a fresh key of 32 bytes."""
    said = []
    for _ in range(2):
        with Stranger(victim.raft, b"") as stranger:
            said.append(msgpack.unpackb(stranger.hello()))
            stranger.send(msgpack.packb(said[-1]))
            assert stranger.read() == b""
    assert [[len(field) for field in fields] for fields in said] == [[32], [32]]
    assert said[0] != said[1]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x91\x63",
        b"\x91\x01",
        msgpack.packb([8, "1", b"batch"]),
        msgpack.packb([8, True, b"batch"]),
        msgpack.packb([8, 1, "batch"]),
        msgpack.packb([1, 1, 1, 1, 1, 1, 1, [[b"", 2, 1]]]),
        msgpack.packb([1, 1, 1, 1, 1, 1, 1, [[b"x", 2]]]),
        msgpack.packb([11, "cluster", {}]),
        msgpack.packb([10, 1, 2, 3, 4]),
        b"\x91" * 10_000,
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=lambda payload: repr(payload)[:20],
)
def test_malformed_frames_of_an_authenticated_peer_are_refused(victim: NodeProcess, payload: bytes) -> None:
    """The set of frames is closed, and every field has one type."""
    with Stranger(victim.raft) as stranger:
        assert stranger.prove()
        stranger.send(payload)
        assert stranger.read() == b""


def test_a_frame_over_the_limit_of_an_authenticated_peer_is_refused(victims: Cluster, victim: NodeProcess) -> None:
    """A frame is refused by its length."""
    with bounded_memory(victims.nodes, 50 * MIB), Stranger(victim.raft) as stranger:
        assert stranger.prove()
        stranger.socket.sendall((FRAME_BYTES_MAX + SEAL_BYTES + 1).to_bytes(4, "big"))
        pour(stranger.socket, b"x" * MIB, 8 * MIB)
        assert stranger.read() == b""


@pytest.mark.parametrize(
    ("verb", "arguments"), [("nonsense", []), ("add", []), ("add", [1, 2, 3]), ("rem", ["", "", ""])]
)
def test_wrong_questions_get_an_answer(victim: NodeProcess, verb: str, arguments: list[object]) -> None:
    """An invalid question is answered with the reason, and changes nothing."""
    with Stranger(victim.raft) as stranger:
        assert stranger.prove()
        stranger.socket.settimeout(5)
        stranger.send(messages.encode({"type": "ask", "verb": verb, "arguments": arguments}))
        answer = messages.decode(stranger.read())
    assert not answer["ok"]
    assert len(answer["result"]) > 10
    assert len(victim.get_json("/v1/cluster")["nodes"]) == 3


UNDECODABLE = [b"", b"\xc1", b"\x94", b"\x90", b"\x01", msgpack.packb([b"o", 1, 1, 5]), msgpack.packb([1, 2, 3, []])]
WRONG_COMMANDS = [
    [99],
    [],
    [1],
    [[]],
    ["push"],
    [3, b"q"],
    [3, b"q", "x"],
    [1, b"q", None, 5, None, 1],
    5,
    None,
    [3] * 9,
]


def test_batches_that_make_no_sense_are_skipped_by_all(cluster: Cluster) -> None:
    """The same bytes fail alike on every replica, so each skips them and the cluster continues."""
    batches = [*UNDECODABLE, *(msgpack.packb([b"stranger", 1, i, [c]]) for i, c in enumerate(WRONG_COMMANDS, 1))]
    leader = cluster.leader()
    with Rpc(leader.rpc) as rpc:
        for number, batch in enumerate(batches):
            with Stranger(leader.raft, b"") as stranger:
                assert stranger.prove()
                stranger.send(messages.encode({"type": "propose", "sequence": 1, "batch": batch}))
                # The answer shows that the preceding batch was received.
                stranger.send(messages.encode({"type": "ask", "verb": "cluster", "arguments": []}))
                assert messages.decode(stranger.read())["ok"]
            assert rpc.call("push", "sane", number) == b"ok", batch
    assert len(cluster.alive) == 3


def test_node_with_another_secret(victims: Cluster, canary: Canary) -> None:
    """A node of another cluster that dials this one reports the error, and so does this one; nothing else happens."""
    stranger = NodeProcess(
        victims.directory,
        "wrong-secret",
        peers=[node.raft for node in victims],
        environment={"LMQ_CLUSTER_SECRET": OTHER_SECRET},
    )
    try:
        stranger.start(wait=False)
        wait_for(lambda: "another cluster secret" in stranger.log(), "the stranger's complaint")
        canary.check()
        assert len(victims[0].get_json("/v1/cluster")["nodes"]) == 3
        assert stranger.running
    finally:
        stranger.kill()


def test_node_without_the_secret_cannot_join(victims: Cluster, canary: Canary) -> None:
    """The client that requested the join gets the reason."""
    with NodeProcess(victims.directory, "no-secret") as stranger:
        answer = join(stranger, victims[0].raft)
        assert answer["code"] == "unreachable"
        assert "secret" in answer["detail"]
        canary.check()


def join(node: NodeProcess, peer: str) -> dict:
    """Ask a node to join; return the body of the answer."""
    body = json.dumps({"peer": peer}).encode()
    return call(node.http, "POST", "/v1/cluster/join", body, {"Content-Type": "application/json"}).json


# --- slow peers and random bytes
# ---------------------------------------------------------------------------------------


def test_half_open_and_slow_strangers(victims: Cluster, victim: NodeProcess, canary: Canary) -> None:
    """A connection without authentication after 5 s is closed, even if it sends data."""
    hello = messages.frame(handshake.hello(Identity("slow", 1, "a:1"), b"n" * 32))
    with bounded_memory(victims.nodes, 100 * MIB), open_idle(victim.raft, 300) as sockets:
        for number, sock in enumerate(sockets[:280]):
            sock.sendall(hello[: number % 60])
        dribble(sockets[280:], hello[:40], 0.05)
        canary.check()
        assert all(end_of(sock) == b"" for sock in sockets)


def test_a_member_connects_despite_two_thousand_silent_clients(victims: Cluster) -> None:
    """Silent clients hold their connections as long as possible, and reconnect when they are closed; the leader stays
    the same.
    """
    victim, member = victims.leader(), victims.followers()[0]
    term = victim.get_json("/v1/cluster")["term"]
    before = descriptors(victim)
    with bounded_memory(victims.nodes, 100 * MIB), open_idle(victim.raft, 2000) as sockets:
        done = threading.Event()

        def reconnect() -> None:
            while not done.is_set():
                sockets.pop(0).close()
                sockets.append(connect(victim.raft))

        flood = threading.Thread(target=reconnect)
        flood.start()
        try:
            with Canary([node for node in victims if node is not member]) as canary:
                member.restart()
                canary.check()
            assert descriptors(victim) - before < 1100
        finally:
            done.set()
            flood.join()
    assert victim.get_json("/v1/cluster")["term"] == term
    assert [line["reason"] for line in refusals(victim, "127.0.0.1")].count(
        "unauthenticated_full"
    ) <= 1 + flood_minutes(victim)


def descriptors(node: NodeProcess) -> int:
    """Return the number of open files and sockets of the node."""
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def flood_minutes(node: NodeProcess) -> int:
    """Return for how many minutes the node has been writing its log, rounded up."""
    stamps = [json.loads(line)["timestamp"] for line in node.log().splitlines() if line.startswith("{")]
    first, last = (datetime.fromisoformat(stamp) for stamp in (stamps[0], stamps[-1]))
    return int((last - first).total_seconds() // 60) + 1


def test_random_bytes(victims: Cluster, victim: NodeProcess) -> None:
    """Garbage from a fixed seed, before and after the handshake."""
    hello = messages.frame(handshake.hello(Identity("fuzz", 1, "127.0.0.1:1"), b"n" * 32))
    with bounded_memory(victims.nodes, 100 * MIB):
        for number, block in enumerate(fuzz_blocks(SEED, 300, [hello, messages.frame(b"\x91\x01")])):
            with connect(victims[number % 3].raft) as sock:
                sock.sendall(block)
                sock.shutdown(1)
                end_of(sock)
        about = {"type": "about", "name": "n", "http": "", "rpc": "", "raft": "", "empty": True}
        about |= {"recovering": False, "machine_version": 1, "members": b""}
        frames = [messages.encode(about), messages.encode({"type": "not_leader", "sequence": 1})]
        reply = {"type": "append_reply", "term": 0, "seq": 1, "success": True, "match": 1, "hint": 0, "counts": True}
        frames.append(messages.encode(reply))
        for block in fuzz_blocks(SEED + 1, 200, frames):
            with Stranger(victim.raft, node_id="fuzz") as stranger:
                assert stranger.prove()
                stranger.send(block)
                stranger.socket.shutdown(1)
                end_of(stranger.socket)
    for node in victims:
        assert "Traceback" not in node.log(), node.log_tail()
