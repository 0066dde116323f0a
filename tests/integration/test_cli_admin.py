"""``lmq-admin``: reading, changing members, queues and messages, and the form of each failure."""

from __future__ import annotations

import base64
import http.server
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .programs import run, run_in_terminal

FIGURES = [
    "lag", "uptime_s", "process_bytes", "disk_free_bytes", "stored_bytes", "stored_bytes_max", "kept_bytes", "kept_bytes_max",
]  # fmt: skip
NODE_KEYS = ["node", "state", "http", "rpc", "raft", "match_index", *FIGURES]


def table(text: str) -> list[dict[str, str]]:
    """Return tab-separated output as one dictionary per line."""
    header, *lines = [line.split("\t") for line in text.splitlines()]
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.fixture
def admin(node: NodeProcess):
    """Runs lmq-admin against the shared node."""
    return lambda *arguments, **more: run("lmq-admin", "--node", node.http, *arguments, **more)


# --- status and stats ------------------------------------------------------------------------------------------------


def test_status_for_scripts(shared_cluster: Cluster) -> None:
    result = run("lmq-admin", "--node", shared_cluster[1].http, "status")
    assert (result.code, result.err) == (0, "")
    rows = table(result.out)
    assert list(rows[0]) == NODE_KEYS
    assert sorted(row["state"] for row in rows) == ["follower", "follower", "leader"]
    assert {row["http"] for row in rows} == set(shared_cluster.http_addresses)
    assert {row["rpc"] for row in rows} == set(shared_cluster.rpc_addresses)
    assert all(row[key].isdigit() for row in rows for key in FIGURES), "every node reports itself"


def test_json_status_is_the_api_object(shared_cluster: Cluster) -> None:
    result = run("lmq-admin", "--node", shared_cluster[0].http, "--json", "status")
    shown, api = json.loads(result.out), shared_cluster[0].get_json("/v1/overview")["cluster"]
    for changing in (shown, api):
        for key in ("commit_index", "applied_index"):
            del changing[key]
        for item in changing["nodes"]:
            for key in ("match_index", "last_contact_s", "round_trip_s", "lag", "vitals"):
                del item[key]
    assert shown == api


def test_the_node_is_given_before_or_after_the_command_or_in_the_environment(node: NodeProcess) -> None:
    for arguments, environment in (
        (["--node", node.http, "status"], {}),
        (["status", "--node", node.http], {}),
        (["--node", "127.0.0.1:1", "status", "--node", node.http], {}),
        (["status"], {"LMQ_NODE": node.http}),
    ):
        result = run("lmq-admin", *arguments, environment=environment)
        assert (result.code, len(table(result.out))) == (0, 1), arguments


@pytest.mark.parametrize("columns", [60, 120])
def test_status_for_people(shared_cluster: Cluster, columns: int) -> None:
    code, seen = run_in_terminal("lmq-admin", "--node", shared_cluster[0].http, "status", columns=columns)
    assert code == 0
    assert "\x1b[" in seen
    code, seen = run_in_terminal(
        "lmq-admin", "--node", shared_cluster[0].http, "status", columns=columns, environment={"NO_COLOR": "1"}
    )
    assert "\x1b" not in seen
    title, *rest = seen.splitlines()
    assert re.match(
        r"3 nodes, quorum 2, leader n\d in term \d+, commit index [\d,]+, durability disk, version \S+", title
    )
    assert max(map(len, rest)) <= columns
    flat = re.sub(r"\s+", "", seen)
    assert flat.count("follower") == 2 or columns == 60


def test_status_in_the_form_of_lmq(shared_cluster: Cluster, queue_name: str) -> None:
    """LMQ 12.2: node names separated by comma and space, then two lines per queue."""
    shared_cluster[0]
    run("lmq-admin", "--node", shared_cluster[0].http, "message", "push", queue_name, "x" * 100)
    lines = run("lmq-admin", "--node", shared_cluster[0].http, "status", "--lmq").out.splitlines()
    assert lines[:2] == ["   All nodes: n1, n2, n3", "Active nodes: n1, n2, n3"]
    place = next(i for i, line in enumerate(lines) if line.startswith(queue_name[:40]))
    assert lines[place - 1] == ""
    assert re.fullmatch(r".{40} +1 messages +\d+ bytes", lines[place])
    assert len(lines[place]) == 79
    assert lines[place + 1] == "  accum: 0.0, retry: 2, timeout: 30.0"


def test_stats_in_the_form_of_lmq(admin, queue_name: str) -> None:
    """LMQ 12.2: rates with two decimals, retention in seconds with three."""
    admin("message", "push", queue_name, "x")
    lines = admin("stats", "--lmq").out.splitlines()
    place = lines.index(queue_name)
    rates = r"1min \d+\.\d\d, 5min \d+\.\d\d, 15min \d+\.\d\d, 1day \d+\.\d\d"
    assert re.fullmatch(rf"  push rate: {rates}", lines[place + 1])
    assert re.fullmatch(rf"  pull rate: {rates}", lines[place + 2])
    figure = r"\d+\.\d{3}"
    assert re.fullmatch(
        rf"  retention time: min {figure}, max {figure}, mean {figure}, median {figure}", lines[place + 3]
    )


def test_stats_as_table_and_json(admin, node: NodeProcess, queue_name: str) -> None:
    admin("message", "push", queue_name, "x")
    [row] = [row for row in table(admin("stats").out) if row["queue"] == queue_name]
    assert row["size"] == "1"
    assert json.loads(admin("--json", "stats").out).keys() == node.get_json("/stats").keys()


# --- queues and messages ---------------------------------------------------------------------------------------------


def test_the_life_of_a_queue(admin, queue_name: str) -> None:
    assert admin("queue", "show", queue_name).code == 66
    assert admin("message", "push", queue_name, "one") == (0, "", "")
    assert admin("message", "push", queue_name, stdin="two") == (0, "", "")
    [row] = [row for row in table(admin("queue", "ls").out) if row["queue"] == queue_name]
    assert (row["ready"], row["leased"], row["bytes"], row["pushed_total"]) == ("2", "0", "6", "2")

    assert admin("queue", "set", queue_name, "--create", "--timeout", "5.5", "--retry", "1") == (0, "", "")
    shown = json.loads(admin("--json", "queue", "show", queue_name).out)
    assert shown["properties"] == {"accum": 0, "retry": 1, "timeout": 5.5}
    assert ["timeout", "5.5", "own"] in [list(row.values()) for row in table(admin("queue", "show", queue_name).out)]

    assert admin("message", "pull", queue_name, "--max", "5").out == "one\ntwo\n"
    empty = admin("message", "pull", queue_name)
    assert empty.code == 66
    assert f"no message is ready in queue {queue_name}" in empty.one_line_error()

    assert admin("queue", "rm", queue_name, "--dry-run").out == f"would delete queue {queue_name} with 0 messages\n"
    refused = admin("queue", "rm", queue_name)
    assert refused.code == 2
    assert "pass --yes" in refused.one_line_error()
    assert admin("queue", "rm", queue_name, "--yes").code == 0
    assert admin("queue", "rm", queue_name, "--yes").code == 66


def test_jobs_are_listed_and_forgotten(admin, node: NodeProcess, queue_name: str) -> None:
    with Client(node.rpc) as client:
        client.begin_epoch(queue_name, 3, "run")
        client.finish_epoch(queue_name, 3, "run", 0, b"0" * 16)
    [row] = [row for row in table(admin("job", "ls").out) if row["job"] == queue_name]
    assert (row["finished_epoch"], row["open_epoch"], row["messages"]) == ("3", "-", "0")
    refused = admin("job", "rm", queue_name)
    assert f"would forget job {queue_name}: if it is repeated, its rows are stored again" in refused.one_line_error()
    assert admin("job", "rm", queue_name, "--yes").code == 0
    missing = admin("job", "rm", queue_name, "--yes")
    assert (missing.code, "there is no job" in missing.one_line_error()) == (66, True)


def test_subscriptions_are_listed_and_abandoned(admin, node: NodeProcess, queue_name: str) -> None:
    missing = admin("subscription", "show", queue_name)
    assert (missing.code, "there is no subscription '" in missing.one_line_error()) == (66, True)
    for content in "abc":
        admin("message", "push", queue_name, content)
    with Client(node.rpc) as client:
        client.reserve_batch(queue_name, 7, queue=queue_name, count=2)
    [row] = [row for row in table(admin("subscription", "ls").out) if row["subscription"] == queue_name]
    assert (row["settled"], row["batches"], row["messages"]) == ("0", "1", "2")
    [batch] = table(admin("subscription", "show", queue_name).out)
    assert (batch["epoch"], batch["state"], batch["messages"]) == ("7", "live", "2")
    refused = admin("subscription", "abandon", queue_name)
    assert refused.code == 2
    assert f"would release 2 messages that subscription {queue_name} holds" in refused.one_line_error()
    assert admin("subscription", "abandon", queue_name, "--yes").code == 0
    with Client(node.rpc) as client:
        client.reserve_batch(queue_name, 8, queue=queue_name, count=2)
    assert admin("subscription", "rm", queue_name, "--yes").code == 0
    assert admin("subscription", "show", queue_name).code == 66
    assert admin("subscription", "rm", queue_name, "--yes").code == 66
    assert admin("message", "pull", queue_name, "--max", "5").out == "a\nb\nc\n"


def test_deleting_a_queue_asks_for_confirmation(admin, node: NodeProcess, queue_name: str) -> None:
    admin("message", "push", queue_name, "x")
    code, seen = run_in_terminal("lmq-admin", "--node", node.http, "queue", "rm", queue_name, typed=b"n\n")
    assert (code, "with 1 message?" in seen) == (130, True)
    assert admin("queue", "show", queue_name).code == 0
    code, _seen = run_in_terminal("lmq-admin", "--node", node.http, "queue", "rm", queue_name, typed=b"y\n")
    assert code == 0
    assert admin("queue", "show", queue_name).code == 66


def test_every_byte_of_content_and_name_survives(admin, queue_name: str) -> None:
    name, content = f"{queue_name} /%?ü", bytes(range(256))
    assert admin("message", "push", name, stdin=content).code == 0
    pulled = json.loads(admin("--json", "message", "pull", name, "--no-ack").out)
    [message] = pulled["messages"]
    assert base64.b64decode(message["content"]["base64"]) == content
    assert name in {row["queue"] for row in table(admin("queue", "ls").out)}


def test_an_unacknowledged_pull_leaves_the_lease(admin, queue_name: str) -> None:
    admin("message", "push", queue_name, "x", "--content-type", "text/plain", "--key", "k1")
    admin("message", "push", queue_name, "x", "--key", "k1")
    admin("message", "pull", queue_name, "--no-ack")
    [row] = [row for row in table(admin("queue", "ls").out) if row["queue"] == queue_name]
    assert (row["ready"], row["leased"], row["pushed_total"]) == ("0", "1", "1")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["no-such"], 2, "No such command"),
        (["status", "extra"], 2, "unexpected extra argument"),
        (["--node", "nonsense:port", "status"], 2, "'port' is not a port"),
        (["join"], 2, "Missing argument 'PEER'"),
        (["queue", "set", "q"], 2, "pass at least one property"),
        (["queue", "set", "q", "--retry", "1.5"], 2, "--retry"),
        (["message", "pull", "q", "--max", "0"], 2, "--max"),
        (["completion", "tcsh"], 2, "'tcsh' is not one of"),
        (["queue", "show", "x" * 300], 65, "255"),
        (["message", "push", "q", "x", "--key", "k" * 300], 65, "key"),
    ],
)
def test_wrong_arguments_are_one_line_and_an_exit_code(admin, arguments: list[str], code: int, text: str) -> None:
    result = admin(*arguments)
    assert (result.code, result.out) == (code, "")
    assert text in result.one_line_error()


# --- failures of the node --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["stats"],
        ["queue", "ls"],
        ["leave", "--yes"],
        ["join", "127.0.0.1:2"],
        ["message", "push", "q", "x"],
    ],
)
def test_an_unreachable_node(command: list[str]) -> None:
    result = run("lmq-admin", "--node", "127.0.0.1:1", *command)
    assert (result.code, result.out) == (69, "")
    assert "cannot reach 127.0.0.1:1: Connection refused" in result.one_line_error()


def test_no_quorum(cluster: Cluster) -> None:
    survivor, *others = cluster
    for other in others:
        other.kill()
    wait_for(lambda: not survivor.get_json("/v1/cluster")["has_quorum"], "loss of quorum")
    status = run("lmq-admin", "--node", survivor.http, "status")
    assert status.code == 69
    assert len(table(status.out)) == 3, "the table is shown all the same"
    assert "has no quorum: it reaches 1 of 3 nodes and needs 2" in status.one_line_error()
    push = run("lmq-admin", "--node", survivor.http, "message", "push", "q", "x")
    assert push.code in (69, 75), "refused, or its outcome is unknown"
    assert push.one_line_error()


def test_after_a_majority_restarted_status_says_what_to_do(memory_cluster: Cluster) -> None:
    cluster = memory_cluster
    # A surviving leader brings the others up to date if they return before it steps down.
    survivor, last = cluster.followers()
    others = [cluster.leader(), last]
    for other in others:
        other.kill()
    for other in others:
        other.start(wait=False)
    wait_for(lambda: survivor.get_json("/v1/cluster")["problem"], "the survivor has heard of it")
    status = run("lmq-admin", "--node", survivor.http, "status")
    assert status.code == 69
    assert "2 of 3 members have forgotten what they held" in status.one_line_error()
    assert f"restart {survivor.name} too, and the cluster starts over" in status.one_line_error()
    survivor.restart()
    for node in cluster:
        node.wait_ready()
    assert run("lmq-admin", "--node", survivor.http, "status").code == 0


def test_a_node_that_does_not_answer(cluster: Cluster) -> None:
    cluster[0].pause()
    result = run("lmq", "ping", "--node", cluster[0].http, "--timeout", "0.2")
    assert result.code == 75
    assert "did not answer in time" in result.one_line_error()
    cluster[0].resume()


@pytest.fixture
def other_server() -> Iterator[str]:
    """The address of an HTTP server that is not a node."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_not_a_node(other_server: str) -> None:
    result = run("lmq-admin", "--node", other_server, "status")
    assert result.code == 69
    assert "check that it is the HTTP address of an lmqcluster node" in result.one_line_error()


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["http", "raft", "lmq"])
def test_join_and_leave(tmp_path: Path, address: str) -> None:
    """LMQ 12.2: join and leave print nothing and exit 0 on success, but leave requires --yes.

    12.4: a node that joins loses its own data. A node that has left serves no client.
    """
    with Cluster(1, directory=tmp_path) as cluster:
        [old] = cluster
        new = cluster.add_node()
        run("lmq-admin", "--node", old.http, "message", "push", "kept", "x")
        run("lmq-admin", "--node", new.http, "message", "push", "dropped", "x")
        peer = {"http": old.http, "raft": old.raft, "lmq": f"lmq@{old.raft}"}[address]
        refused = run("lmq-admin", "--node", new.http, "join", peer)
        assert refused.code == 65
        assert "holds 1 messages, which" in refused.one_line_error()
        assert run("lmq-admin", "--node", new.http, "join", peer, "--discard-data") == (0, "", "")
        new.wait_ready()
        for one in cluster:
            assert {row["raft"] for row in table(run("lmq-admin", "--node", one.http, "status").out)} == {
                old.raft,
                new.raft,
            }
        assert {row["queue"] for row in table(run("lmq-admin", "--node", new.http, "queue", "ls").out)} == {"kept"}

        assert run("lmq-admin", "--node", new.http, "leave", "--yes") == (0, "", "")
        old.wait_ready()
        for one in cluster:
            assert [row["raft"] for row in table(run("lmq-admin", "--node", one.http, "status").out)] == [one.raft]
        refused = run("lmq-admin", "--node", new.http, "queue", "ls")
        assert refused.code == 69
        assert "left" in refused.one_line_error()
        assert run("lmq-admin", "--node", old.http, "message", "pull", "kept").out == "x\n"


def test_joining_an_unreachable_peer(cluster: Cluster) -> None:
    lonely = cluster.add_node()
    result = run("lmq-admin", "--node", lonely.http, "join", "127.0.0.1:1")
    assert result.code == 69
    assert "127.0.0.1:1" in result.one_line_error()
    assert run("lmq-admin", "--node", lonely.http, "message", "push", "q", "x").code == 0, "it continues as before"


def test_a_join_that_loses_messages_asks_for_confirmation(cluster: Cluster) -> None:
    lonely = cluster.add_node()
    run("lmq-admin", "--node", lonely.http, "message", "push", "q", "x")
    join = ["lmq-admin", "--node", lonely.http, "join", cluster[0].http]
    code, seen = run_in_terminal(*join, typed=b"n\n")
    assert (code, "1 message in 1 queue " in seen) == (130, True)
    assert len(table(run("lmq-admin", "--node", lonely.http, "status").out)) == 1
    code, seen = run_in_terminal(*join, "--discard-data")
    assert code == 0
    assert "is now one of 4 nodes" in seen


# --- completion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    result = run("lmq-admin", "completion", shell)
    assert result.code == 0
    assert "_LMQ_ADMIN_COMPLETE" in result.out


def test_completion_knows_queue_names(admin, node: NodeProcess, queue_name: str) -> None:
    admin("message", "push", queue_name, "x")
    words = f"lmq-admin queue show {queue_name[:-1]}"
    environment = {
        "_LMQ_ADMIN_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": "3",
        "LMQ_NODE": node.http,
    }
    assert f"plain,{queue_name}" in run("lmq-admin", environment=environment).out.splitlines()
    silent = run("lmq-admin", environment=environment | {"LMQ_NODE": "127.0.0.1:1"})
    assert silent.out.strip() == silent.err == ""
