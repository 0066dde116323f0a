"""Cluster secrets as an operator sees them: both sides report a wrong secret, and no cluster runs without one
by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import NodeProcess, ports, wait_for
from .programs import run
from .raw_rpc import Rpc

SECRET = {"LMQ_CLUSTER_SECRET": "the-secret-of-one-cluster"}


@pytest.fixture
def node_with_a_secret(tmp_path: Path) -> Iterator[NodeProcess]:
    """One node."""
    with NodeProcess(tmp_path, "n1", environment=SECRET) as node:
        yield node


@pytest.mark.parametrize("secret", ["another-secret-of-16+", ""])
def test_both_sides_report_different_secrets(node_with_a_secret: NodeProcess, tmp_path: Path, secret: str) -> None:
    """The command, the log of the dialling node and that of the listening one report it; both nodes continue to run."""
    one = node_with_a_secret
    environment = {"LMQ_CLUSTER_SECRET": secret} if secret else {}
    founder = NodeProcess(tmp_path, "n2", environment=environment, peers=[one.raft])
    founder.start(wait=False)
    try:
        wait_for(lambda: complaints(founder), "the dialling side says it")
        with NodeProcess(tmp_path, "n3", environment=environment) as joiner:
            result = run("lmq-admin", "--node", joiner.http, "join", one.raft)
            assert result.code == 69
            assert "secret" in result.one_line_error()
            dialler = NodeProcess(tmp_path, "n4", environment=SECRET, peers=[joiner.raft])
            dialler.start(wait=False)
            try:
                wait_for(lambda: complaints(joiner), "the dialled side says it")
            finally:
                dialler.kill()
            back = run("lmq-admin", "--node", one.http, "join", joiner.raft)
            assert back.code == 69
            assert "secret" in back.one_line_error()
            for node in (one, joiner):
                with Rpc(node.rpc) as rpc:
                    assert rpc.call("push", "q", 1) == b"ok"
        assert complaints(one)
        assert founder.running
    finally:
        founder.kill()


def complaints(node: NodeProcess) -> list[str]:
    """Return the lines of the log that mention a secret."""
    return [line for line in node.log().splitlines() if "secret" in line]


def test_beyond_loopback_without_a_secret(tmp_path: Path) -> None:
    """The node does not start, and one line says what is missing."""
    address = f"0.0.0.0:{ports.take()}"
    where = ("--raft", address, "--advertise-raft", "192.0.2.1:19980")
    result = run("lmq", "start", "--data-dir", str(tmp_path / "n1"), *where)
    assert result.code == 78
    assert "set LMQ_CLUSTER_SECRET" in result.one_line_error()
    assert not (tmp_path / "n1").exists()
