"""``lmq-admin top`` and ``bench``: a live view, lines for scripts, and a measurement that cleans up after itself."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .programs import DEADLINE_S, run_here, run_in_terminal, started

LOOKS_MAX = 100


@contextmanager
def pushes(address: str, queue: str) -> Iterator[None]:
    """Push continuously."""
    ended = threading.Event()
    with Client(address) as client:
        client.push(queue, b"first")

        def push() -> None:
            while not ended.is_set():
                client.push(queue, b"x" * 10)

        pusher = threading.Thread(target=push)
        pusher.start()
        yield
        ended.set()
        pusher.join()


@pytest.fixture
def traffic(node: NodeProcess, queue_name: str) -> Iterator[str]:
    """A queue with continuous pushes."""
    with pushes(node.rpc, queue_name):
        yield queue_name


def test_top_for_scripts_prints_one_object_per_update(node: NodeProcess, traffic: str) -> None:
    arguments = ["--node", node.http, "top", "--interval", "0.5", "--json", "--limit", "10000"]
    with started("lmq-admin", *arguments) as process:
        assert process.stdout is not None
        for _ in range(LOOKS_MAX):
            look = json.loads(process.stdout.readline())
            [queue] = [one for one in look["queues"] if one["queue"] == traffic]
            if queue["push_per_s"] > 0 and look["totals"]["push_per_s"] > 0:
                break
        else:
            raise AssertionError(f"no look has shown a rate: {look}")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert queue["pull_per_s"] == 0
    assert [one["state"] for one in look["nodes"]] == ["leader"]


def test_top_as_lines_has_one_header(node: NodeProcess, queue_name: str) -> None:
    run_here("--node", node.http, "message", "push", queue_name, "x")
    options = ["--interval", "0.5", "--count", "2", "--limit", "1", "--columns", "queue,ready", "--sort", "-ready"]
    header, *lines = run_here("--node", node.http, "top", *options).out.splitlines()
    assert header == "time\tqueue\tready"
    assert len(lines) == 2
    assert run_here("--node", node.http, "top", "--count", "1", "--sort", "nonsense").code == 2


@pytest.mark.parametrize("typed", [b"q", b"srq"])
def test_top_is_live_on_a_terminal_until_a_key(shared_cluster: Cluster, typed: bytes) -> None:
    arguments = ["--node", shared_cluster[0].http, "top", "--interval", "0.5"]
    code, seen = run_in_terminal("lmq-admin", *arguments, typed=typed, typed_at=b"q quits")
    assert code == 0
    assert "\x1b[?1049h" in seen, "it draws on the alternate screen"
    assert "\x1b[?1049l" in seen, "and leaves the terminal as it was"


def test_top_shows_nodes_and_queues(shared_cluster: Cluster, queue_name: str) -> None:
    arguments = ["--node", shared_cluster[0].http, "top", "--interval", "0.5", "--count", "3"]
    # The queues that others left in the cluster have a lower rate, so this one is on the page.
    with pushes(shared_cluster[0].rpc, queue_name):
        code, seen = run_in_terminal("lmq-admin", *arguments, columns=160)
    assert code == 0
    for text in ("n1", "n2", "n3", "leader", "follower", "Push/s \N{DOWNWARDS ARROW}", queue_name[:16]):
        assert text in seen, text


def test_top_says_when_the_node_does_not_answer() -> None:
    away = run_here("--node", "127.0.0.1:1", "top", "--count", "1")
    assert (away.code, "cannot reach 127.0.0.1:1" in away.one_line_error()) == (69, True)


# --- bench -----------------------------------------------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing_behind(shared_cluster: Cluster) -> None:
    result = run_here("--node", shared_cluster[0].http, "bench", "--messages", "300", "--seconds", "30", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert sorted(found["nodes"]) == sorted(shared_cluster.rpc_addresses)
    phases = {phase["phase"]: phase for phase in found["phases"]}
    assert list(phases) == ["push", "pull", "ack", "push, one at a time"]
    for phase in phases.values():
        assert 0 < phase["messages"] <= 300
        assert phase["per_second"] > 0
        assert 0 < phase["p50_ms"] <= phase["p99_ms"] <= phase["p999_ms"] <= phase["max_ms"]
    assert phases["push"]["messages"] == 300
    assert phases["ack"]["messages"] == phases["pull"]["messages"]
    queues = shared_cluster[0].get_json("/v1/queues?name=lmq-bench-")["queues"]
    assert queues == []


def test_bench_that_is_interrupted_deletes_its_queue(shared_cluster: Cluster) -> None:
    node = shared_cluster[0]
    arguments = ["--node", node.http, "bench", "--seconds", "600", "--in-flight", "4"]
    with started("lmq-admin", *arguments) as process:
        wait_for(lambda: node.get_json("/v1/queues?name=lmq-bench-")["queues"], "its queue")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (0, 130), err
    assert out.startswith(b"phase\t")
    assert node.get_json("/v1/queues?name=lmq-bench-")["queues"] == []


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--size", "-1"], ["--in-flight", "0"], ["--nodes", "x"]])
def test_bench_refuses_invalid_arguments(node: NodeProcess, arguments: list[str]) -> None:
    assert run_here("--node", node.http, "bench", *arguments).code == 2
