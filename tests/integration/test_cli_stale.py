"""``lmq-admin`` at a node that is cut off from its cluster: it shows what the node knew last, and says so."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .programs import DEADLINE_S, run_here, started

WARNING = "is cut off from its cluster"


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """The only living node of three; it holds a queue, and a task that moves the messages of another one."""
    with Cluster(3, directory=tmp_path_factory.mktemp("cut-off")) as nodes:
        with Client(nodes[0].rpc) as client:
            client.push("jobs", "the content")
            for name in ("failed", "archive"):
                client.push(name, "x")
            client.start_move_task("failed", to="archive")
        wait_for(lambda: nodes[0].get_json("/v1/queues/jobs")["ready"] == 1, "the message")
        for other in nodes.nodes[1:]:
            other.kill()
        wait_for(lambda: not nodes[0].get_json("/v1/cluster")["has_quorum"], "the node to notice")
        yield nodes[0]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["queue", "ls"], "jobs"),
        (["queue", "show", "jobs"], "jobs"),
        (["message", "peek", "jobs"], "the content"),
        (["stats"], "jobs"),
        (["session", "ls"], "session"),
        (["queue", "redrive", "failed", "--tasks"], "archive"),
    ],
)
def test_a_read_is_printed_with_a_warning(survivor: NodeProcess, words: list[str], shown: str) -> None:
    result = run_here("--node", survivor.http, *words)
    assert result.code == 69
    assert shown in result.out
    assert WARNING in result.one_line_error()


def test_json_stays_json(survivor: NodeProcess) -> None:
    result = run_here("--node", survivor.http, "queue", "show", "jobs", "--json")
    assert (result.code, json.loads(result.out)["stale"]) == (69, True)
    assert WARNING in result.one_line_error()


def test_an_export_of_definitions_fails(survivor: NodeProcess) -> None:
    result = run_here("--node", survivor.http, "definitions", "export")
    assert (result.code, result.out) == (69, "")
    assert "no leader" in result.one_line_error()


def test_a_check_of_a_queue_is_critical(survivor: NodeProcess) -> None:
    result = run_here("--node", survivor.http, "check", "queue", "jobs")
    assert (result.code, result.err) == (2, "")
    assert "may be old" in result.out


def test_a_watch_warns_each_time(survivor: NodeProcess) -> None:
    with started("lmq-admin", "--node", survivor.http, "queue", "ls", "--watch", "0.1") as process:
        assert process.stderr is not None
        warnings = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert all(WARNING.encode() in line for line in warnings), warnings


def test_a_backup_is_refused(survivor: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    result = run_here("--node", survivor.http, "backup", str(file))
    assert result.code == 69
    assert "--stale-ok" in result.one_line_error()
    assert list(tmp_path.iterdir()) == []


def test_an_old_backup_is_written_on_demand(survivor: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    result = run_here("--node", survivor.http, "backup", "--stale-ok", str(file))
    assert result.code == 0
    assert "may lack the latest changes" in result.one_line_error()
    restored = run_here("restore", str(file), "--data-dir", str(tmp_path / "restored"))
    assert restored.code == 0, restored.err


def test_a_snapshot_without_a_copy_needs_no_quorum(survivor: NodeProcess) -> None:
    assert run_here("--node", survivor.http, "snapshot").code == 0
