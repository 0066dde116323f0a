"""Access to the Raft port: with tokens in use no peer without the cluster's secret or a certificate, not even
on loopback.
"""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgpack
import pytest

from lmqcluster import Client
from lmqcluster.core import Op
from lmqcluster.replication.peers import messages

from .cluster import Cluster, NodeProcess, wait_for
from .programs import Result, run
from .test_bad_input_raft import Stranger
from .test_membership_changes import agree, serves

SECRET = "the secret that the nodes of this cluster share"
INTRUDER = b"x" * 32


def admin(node: NodeProcess, *arguments: str, token: str | None = None) -> Result:
    """Run lmq-admin against a node."""
    environment = {} if token is None else {"LMQ_TOKEN": token}
    return run("lmq-admin", "--node", node.http, *arguments, environment=environment)


def set_token() -> bytes:
    """Return a batch as a peer would propose it, which creates a token for everything."""
    command = [Op.SET_TOKEN, b"intruder", INTRUDER, 3, b".*", 0, True, 0]
    return msgpack.packb([b"stranger", 1, 1, [command]])


def can_connect(address: str) -> bool:
    """Return whether the address accepts connections."""
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def ended_with(node: NodeProcess, code: int) -> str:
    """Start a node that cannot start; return its log."""
    node.start(wait=False)
    assert node.wait_exit() == code, node.log_tail()
    return node.log()


# --- without a secret
# -------------------------------------------------------------------------------------------------------


def test_a_cluster_without_a_secret_gets_no_tokens(shared_cluster: Cluster) -> None:
    """They would protect nothing: any local user could propose anything through the Raft port."""
    refused = admin(shared_cluster[0], "token", "create", "root", "--role", "admin")
    assert refused.code != 0
    assert "LMQ_CLUSTER_SECRET_FILE" in refused.one_line_error()
    assert "Raft port" in refused.one_line_error()
    assert admin(shared_cluster[0], "token", "list").code == 0


def test_a_lone_node_without_a_secret_closes_its_raft_port_with_the_first_token(tmp_path: Path) -> None:
    with Cluster(1, directory=tmp_path) as cluster:
        node = cluster[0]
        with Stranger(node.raft, b"") as stranger:
            assert stranger.prove()
            stranger.send(messages.encode({"type": "ask", "verb": "cluster", "arguments": []}))
            assert messages.decode(stranger.read())["ok"]
        with Stranger(node.raft, b"") as stranger:
            # Existing connections are closed.
            assert stranger.prove()
            made = admin(node, "token", "create", "root", "--role", "admin")
            assert made.code == 0, made
            assert stranger.read() == b""
        token = made.out.strip()
        assert not can_connect(node.raft)
        node.restart()
        assert not can_connect(node.raft)
        assert "Raft port stays closed" in node.log()
        refused = admin(node, "join", "127.0.0.1:1", token=token)
        assert "LMQ_CLUSTER_SECRET_FILE" in refused.one_line_error()
        # With a secret the port is open to peers that know it.
        node.stop()
        node.environment["LMQ_CLUSTER_SECRET"] = SECRET
        node.start()
        with Stranger(node.raft, b"") as stranger:
            assert not stranger.prove()
        with Stranger(node.raft, SECRET.encode()) as stranger:
            assert stranger.prove()


# --- with a secret
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """Three nodes with a secret and tokens; and a token for everything."""
    with Cluster(3, directory=tmp_path_factory.mktemp("guarded"), environment={"LMQ_CLUSTER_SECRET": SECRET}) as nodes:
        made = admin(nodes[0], "token", "create", "root", "--role", "admin")
        assert made.code == 0, made
        yield nodes, made.out.strip()


def test_no_local_user_can_create_a_token_through_the_raft_port(guarded: tuple[Cluster, str]) -> None:
    cluster, token = guarded
    for node in cluster:
        for secret in (b"", b"a guess, and a wrong one"):
            with Stranger(node.raft, secret) as stranger:
                assert not stranger.prove()
        with Stranger(node.raft, b"") as stranger:
            # Without any proof.
            stranger.hello()
            stranger.send(messages.encode({"type": "propose", "sequence": 1, "batch": set_token()}))
            assert stranger.read() == b""
    listed = admin(cluster[0], "token", "list", "--json", token=token)
    assert [one["name"] for one in json.loads(listed.out)["tokens"]] == ["root"]


def test_a_node_with_tokens_does_not_start_as_a_member_without_the_secret(guarded: tuple[Cluster, str]) -> None:
    cluster, _ = guarded
    node = cluster[2]
    node.stop()
    environment = node.environment
    node.environment = {name: value for name, value in environment.items() if name != "LMQ_CLUSTER_SECRET"}
    try:
        log = ended_with(node, 78)
    finally:
        node.environment = environment
        node.start()
    assert "could get round them through the Raft port" in log
    assert "LMQ_CLUSTER_SECRET_FILE" in log


def test_traffic_between_nodes_is_sealed(guarded: tuple[Cluster, str]) -> None:
    """A peer that knows the secret and does not seal, or seals wrongly, is disconnected at once."""
    cluster, _ = guarded
    with Stranger(cluster[0].raft, SECRET.encode()) as stranger:
        assert stranger.prove()
        stranger.socket.sendall(messages.frame(messages.encode({"type": "ask", "verb": "cluster", "arguments": []})))
        assert stranger.read() == b""
    wait_for(lambda: "is not the next one" in cluster[0].log(), "the line about the frame")


# --- TLS
# --------------------------------------------------------------------------------------------------------------------


def certificates(folder: Path, *names: str, renew: bool = False) -> None:
    """Create certificates as operators do."""
    flag = ("--renew",) if renew else ()
    assert (
        run("lmq-admin", "tls", "init", *(f"{name}=127.0.0.1" for name in names), "--dir", str(folder), *flag).code == 0
    )


def tls_settings(folder: Path, name: str, mode: str = "required") -> dict[str, str]:
    """Return the TLS settings of a node for its peers."""
    return {
        "LMQ_RAFT_TLS_CA": str(folder / "ca.crt"),
        "LMQ_RAFT_TLS_CERT": str(folder / f"{name}.crt"),
        "LMQ_RAFT_TLS_KEY": str(folder / f"{name}.key"),
        "LMQ_RAFT_TLS": mode,
    }


class Pusher:
    """A client of all nodes that pushes with endless retries, until the block ends."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged = 0
        self._addresses = ",".join(cluster.rpc_addresses)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._problem: BaseException | None = None

    def _run(self) -> None:
        try:
            with Client(self._addresses, timeout_s=60) as client:
                while not self._stop.is_set():
                    client.push("changing-over", self.acknowledged)
                    self.acknowledged += 1
        except BaseException as exc:  # noqa: BLE001 - reported where the block ends
            self._problem = exc

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._problem is None, self._problem

    def progress(self) -> None:
        """Wait for further pushes."""
        goal = self.acknowledged + 50
        wait_for(lambda: self.acknowledged > goal or self._problem, "further pushes")

    def check_exactly_once(self) -> None:
        """Check that every acknowledged message is there once, in order."""
        found: list[int] = []
        with Client(self._addresses) as client:
            while messages := client.pull_many("changing-over", 1000):
                found += [message.content for message in messages]
        assert found == list(range(self.acknowledged))


def test_a_cluster_migrates_to_tls_by_rolling_restarts_under_load(cluster: Cluster, tmp_path: Path) -> None:
    """First both are accepted, then only TLS; then tokens can be created, certificates renewed, and a fourth
    node joins.
    """
    folder = tmp_path / "tls"
    certificates(folder, "n1", "n2", "n3", "n4")
    with Pusher(cluster) as pusher:
        pusher.progress()
        for mode in ("optional", "required"):
            for node in cluster.nodes:
                node.stop()
                node.environment |= tls_settings(folder, node.name, mode)
                node.start()
                pusher.progress()
    pusher.check_exactly_once()
    agree(cluster.nodes)
    for node in cluster:
        with Stranger(node.raft, b"") as stranger:
            assert stranger.hello() == b"", "no peer connects without TLS"
    # With certificates no secret is needed for tokens.
    assert admin(cluster[0], "token", "list").code == 0
    fresh = cluster.add_node(start=False)
    fresh.start()
    refused = admin(fresh, "join", cluster[0].raft)
    assert refused.code != 0
    assert "cannot be reached" in refused.one_line_error()
    fresh.stop()
    fresh.environment |= tls_settings(folder, "n4")
    fresh.start()
    assert admin(fresh, "join", cluster[0].raft).code == 0
    agree(cluster.nodes)
    certificates(folder, "n1", renew=True)
    cluster[0].signal(signal.SIGHUP)
    wait_for(lambda: "admin token reloaded" in cluster[0].log(), "the reload")
    cluster[1].restart()
    serves(cluster.nodes, "within-tls")
    made = admin(cluster[0], "token", "create", "root", "--role", "admin")
    assert made.code == 0, made


def test_dev_creates_a_secret_that_no_other_user_can_read(tmp_path: Path) -> None:
    """test_cli_dev covers a running cluster; this covers the file and its reuse."""
    from lmqcluster_cli.lmq.local_cluster import _secret_file

    path = _secret_file(tmp_path / "var")
    secret = path.read_text()
    assert len(secret.strip()) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert _secret_file(tmp_path / "var").read_text() == secret
