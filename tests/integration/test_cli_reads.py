"""``lmq-admin``: all output formats, choice and order of columns, ``--watch``, the checks for monitoring systems."""

from __future__ import annotations

import json
import signal

import pytest

from lmqcluster import Client

from .cluster import Cluster, NodeProcess, wait_for
from .programs import DEADLINE_S, run_here, run_in_terminal, started

READS = [
    ["status"],
    ["stats"],
    ["check"],
    ["queue", "ls"],
    ["queue", "show", "{queue}"],
    ["message", "peek", "{queue}"],
    ["defaults", "show"],
    ["subscription", "ls"],
]


@pytest.fixture
def admin(node: NodeProcess):
    """Runs lmq-admin against the shared node, in this process."""
    return lambda *arguments, **more: run_here("--node", node.http, *arguments, **more)


@pytest.fixture
def three_queues(admin, queue_name: str) -> list[str]:
    """Three queues with one, three and two messages."""
    names = [f"{queue_name}-{letter}" for letter in "abc"]
    for name, count in zip(names, (1, 3, 2), strict=True):
        for place in range(count):
            assert admin("message", "push", name, f"m{place}").code == 0
    return names


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_every_read_has_every_format(admin, queue_name: str, command: list[str]) -> None:
    admin("message", "push", queue_name, "x")
    command = [word.format(queue=queue_name) for word in command]
    [header, *lines] = admin(*command, "--output", "tsv").out.splitlines()
    assert json.loads(admin(*command, "--output", "json").out) is not None
    plain = admin(*command, "-o", "plain")
    assert plain.out.splitlines()[0].split() == header.split("\t") or "\t\t" in header
    table = admin(*command, "-o", "table")
    assert (plain.code, table.code) == (admin(*command).code,) * 2
    assert (plain.err, table.err) == ("", "")
    bare = admin(*command, "-o", "tsv", "--no-headers").out.splitlines()
    assert len(bare) == len(lines)


def test_a_format_is_accepted_before_the_command(admin, three_queues: list[str]) -> None:
    assert json.loads(admin("-o", "json", "queue", "ls").out)["queues"]
    assert admin("--json", "queue", "ls", "-o", "tsv").out.startswith("queue\t")
    refused = admin("queue", "ls", "--json", "-o", "tsv")
    assert (refused.code, "exclude each other" in refused.one_line_error()) == (2, True)


def test_columns_and_their_order(admin, three_queues: list[str]) -> None:
    shown = admin("queue", "ls", "--name", three_queues[0][:-2], "--columns", "ready,queue", "--sort=-ready")
    assert shown.out == "ready\tqueue\n" + "".join(f"{n}\t{three_queues[i]}\n" for n, i in ((3, 1), (2, 2), (1, 0)))
    ascending = admin("queue", "ls", "--name", three_queues[0][:-2], "--columns", "ready", "--sort", "ready")
    assert ascending.out.split() == ["ready", "1", "2", "3"]
    for option in ("--columns", "--sort"):
        wrong = admin("queue", "ls", option, "nonsense")
        assert wrong.code == 2
        assert f"{option}: unknown column 'nonsense'; the columns are queue, ready" in wrong.one_line_error()
    refused = admin("queue", "ls", "--json", "--columns", "ready")
    assert (refused.code, "JSON is the API's answer unchanged" in refused.one_line_error()) == (2, True)


def test_the_node_filters_sorts_and_cuts_the_list(admin, three_queues: list[str]) -> None:
    stem = three_queues[0][:-2]
    shown = admin("queue", "ls", "--match", f"^{stem}", "--limit", "2", "--sort=-ready", "--json")
    answer = json.loads(shown.out)
    assert [one["name"] for one in answer["queues"]] == [three_queues[1], three_queues[2]]
    assert answer["total"] == 3
    people = admin("queue", "ls", "--name", stem.upper(), "--limit", "2", "-o", "table")
    assert "(1 further queues match.)" in people.out
    wrong = admin("queue", "ls", "--limit", "2", "--sort", "state")
    assert (wrong.code, "can be sorted by" in wrong.one_line_error()) == (2, True)
    wrong = admin("queue", "ls", "--match", "(")
    assert (wrong.code, "regular expression" in wrong.one_line_error()) == (65, True)


def test_names_of_other_programs_work_too(admin, three_queues: list[str]) -> None:
    listed = admin("queue", "list", "--name", three_queues[0])
    assert listed.out.splitlines()[1].startswith(three_queues[0])
    assert admin("queue", "delete", three_queues[0], "--yes").code == 0
    assert admin("queue", "get", three_queues[0]).code == 66


# --- repeated output -------------------------------------------------------------------------------------------------


def test_watch_prints_one_object_per_line_until_interrupted(node: NodeProcess) -> None:
    arguments = ["--node", node.http, "status", "--watch", "0.1", "--json"]
    with started("lmq-admin", *arguments) as process:
        assert process.stdout is not None
        shown = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert {one["self"] for one in shown} == {node.get_json("/v1/cluster")["self"]}


def test_watch_continues_while_the_node_is_down_but_not_after_permanent_errors() -> None:
    with started("lmq-admin", "--node", "127.0.0.1:1", "status", "--watch", "0.1") as process:
        assert process.stderr is not None
        complaints = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert all(b"cannot reach 127.0.0.1:1" in one for one in complaints)


def test_watch_ends_with_a_permanent_error(admin) -> None:
    assert admin("queue", "show", "no-such-queue", "--watch", "0.1").code == 66
    assert admin("queue", "ls", "--watch", "0").code == 2


# --- errors ----------------------------------------------------------------------------------------------------------


def test_debug_shows_a_traceback_before_and_after_the_command() -> None:
    for arguments in (["--debug", "--node", "127.0.0.1:1", "status"], ["status", "--node", "127.0.0.1:1", "--debug"]):
        result = run_here(*arguments)
        assert (result.code, result.out) == (69, "")
        assert "Traceback" in result.err
        assert "cannot reach 127.0.0.1:1" in result.err.splitlines()[-1]
    assert "Traceback" not in run_here("--node", "127.0.0.1:1", "status").err


def test_help_names_every_command_and_the_exit_codes() -> None:
    text = run_here("--help").out
    for command in (
        "status",
        "stats",
        "top",
        "check",
        "queue",
        "message",
        "defaults",
        "join",
        "leave",
        "bench",
        "drain",
    ):
        assert f"\n  {command} " in text, command
    assert "69  node unreachable, no quorum" in text
    for group, verbs in {
        "queue": "ls show set clear rm purge move suspend resume",
        "message": "push pull ack nack extend peek",
        "defaults": "show set edit add rm",
    }.items():
        shown = run_here(group, "--help").out
        assert all(f"\n  {verb} " in shown for verb in verbs.split()), group


# --- checks for monitoring systems -----------------------------------------------------------------------------------


def test_check_cluster_is_one_line_with_figures(shared_cluster: Cluster) -> None:
    result = run_here(
        "--node", shared_cluster[0].http, "check", "cluster", "--disk-warning", "101", "--disk-critical", "101"
    )
    assert (result.code, result.err) == (0, "")
    text, _bar, figures = result.out.strip().partition(" | ")
    assert text.startswith("LMQ OK - ")
    assert [figure.split("=")[0] for figure in figures.split()] == [
        "missing_members",
        "lag",
        "memory",
        "disk",
        "disk_limit",
        "quota",
    ]
    full = run_here("--node", shared_cluster[0].http, "check", "cluster", "--disk-critical", "0", "--json")
    assert full.code == 2
    assert json.loads(full.out)["state"] == "CRITICAL"


def test_check_cluster_with_members_missing(cluster: Cluster) -> None:
    survivor = cluster.leader()
    for stopped, begin in zip(cluster.followers(), ("LMQ WARNING - ", "LMQ CRITICAL - "), strict=True):
        stopped.kill()

        def seen(begin: str = begin) -> bool:
            result = run_here(
                "--node", survivor.http, "check", "cluster", "--disk-warning", "101", "--disk-critical", "101"
            )
            return result.out.startswith(begin) and result.err == ""

        wait_for(seen, begin)


def test_check_queue_against_thresholds(admin, queue_name: str) -> None:
    for content in "abc":
        admin("message", "push", queue_name, content)
    figures = "ready=3 leased=0"
    plain = admin("check", "queue", queue_name)
    assert (plain.code, figures in plain.out) == (0, True)
    warned = admin("check", "queue", queue_name, "--ready-warning", "3", "--ready-critical", "4")
    assert (warned.code, warned.out.startswith(f"LMQ WARNING - 3 messages wait in queue {queue_name}")) == (1, True)
    assert "ready=3;3;4" in warned.out
    assert admin("check", "queue", queue_name, "--ready-warning", "1", "--ready-critical", "3").code == 2
    assert admin("check", "queue", queue_name, "--age-critical", "0").code == 2


def test_every_failure_of_a_check_is_a_state(admin, queue_name: str) -> None:
    absent = admin("check", "queue", queue_name)
    assert (absent.code, absent.out.startswith("LMQ UNKNOWN - "), absent.err) == (3, True, "")
    assert admin("check", "queue", queue_name, "--absent-ok").code == 0
    wrong = admin("check", "cluster", "--lag-warning", "x")
    assert (wrong.code, wrong.out.startswith("LMQ UNKNOWN - "), wrong.err) == (3, True, "")
    away = run_here("--node", "127.0.0.1:1", "check", "cluster")
    assert (away.code, away.out.startswith("LMQ CRITICAL - cannot reach 127.0.0.1:1"), away.err) == (2, True, "")


# --- completion ------------------------------------------------------------------------------------------------------


def test_completion_works_for_every_command_that_takes_a_queue(admin, node: NodeProcess, queue_name: str) -> None:
    admin("message", "push", queue_name, "x")
    for words in ("queue purge", "message peek", "check queue", "queue move other"):
        typed = f"lmq-admin {words} {queue_name[:-1]}"
        environment = {
            "_LMQ_ADMIN_COMPLETE": "bash_complete",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
            "LMQ_NODE": node.http,
        }
        assert f"plain,{queue_name}" in run_here(environment=environment).out.splitlines(), words


def completed(node: NodeProcess, typed: str) -> list[str]:
    """Return the completions that the shell offers for the last word."""
    environment = {
        "_LMQ_ADMIN_COMPLETE": "bash_complete",
        "COMP_WORDS": f"lmq-admin {typed}",
        "COMP_CWORD": str(len(typed.split())),
        "LMQ_NODE": node.http,
    }
    # No completion is one empty line.
    return [line.partition(",")[2] for line in run_here(environment=environment).out.splitlines() if line]


def test_completion_knows_nodes_rules_and_columns(admin, node: NodeProcess, queue_name: str) -> None:
    assert admin("defaults", "add", f"^{queue_name}$", "--retry", "1", "--yes").code == 0
    try:
        assert completed(node, f"defaults rm ^{queue_name}") == [f"^{queue_name}$"]
    finally:
        admin("defaults", "rm", f"^{queue_name}$", "--yes")
    name = node.get_json("/v1/cluster")["nodes"][0]["name"]
    assert completed(node, f"remove {name[:-1]}") == [name]
    assert completed(node, f"transfer-leader {name[:-1]}") == [name]
    assert completed(node, "queue ls --columns ready,le") == ["ready,leased"]
    assert completed(node, "queue ls --sort push") == ["pushed_total", "push_rate"]
    assert completed(node, "top --sort nack") == ["nack_per_s"]
    assert completed(node, f"status --node {node.http[:-1]}") == [node.http]
    assert completed(node, "--node 127.0.0.1:1 remove n") == [], "a node that does not answer offers nothing"


def test_completion_knows_files_and_subscriptions(node: NodeProcess, queue_name: str) -> None:
    with Client(node.rpc) as client:
        client.push(queue_name, "x")
        client.reserve_batch(queue_name, 1, queue=queue_name, count=1)
        for verb in ("show", "abandon", "rm"):
            assert completed(node, f"subscription {verb} {queue_name[:-1]}") == [queue_name]
        client.delete_subscription(queue_name)
    for words in ("status --token-file", "--ca-file", "replay", "drain --output", "definitions import", "backup"):
        environment = {
            "_LMQ_ADMIN_COMPLETE": "bash_complete",
            "COMP_WORDS": f"lmq-admin {words} x",
            "COMP_CWORD": str(len(words.split()) + 1),
        }
        assert run_here(environment=environment).out == "file,x\n", words


# --- missing queues -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["queue show {}", "queue set {} --retry 1", "queue set {} --retry 1 --dry-run", "queue clear {} --yes", "queue rm {} --yes",
     "queue purge {} --yes", "queue move {} other --yes", "queue suspend {}", "queue resume {}", "message pull {}",
     "message peek {}", "message ack {} c3ef6694-e8d6-4e48-806c-000000000001",
     "message nack {} c3ef6694-e8d6-4e48-806c-000000000001", "message extend {} c3ef6694-e8d6-4e48-806c-000000000001",
     "drain {}"],
)  # fmt: skip
def test_a_missing_queue_is_reported_alike_and_not_created(admin, queue_name: str, command: str) -> None:
    missing = f"{queue_name}-missing"
    result = admin(*command.format(missing).split())
    assert result.code == 66
    assert result.err.splitlines()[-1].endswith(f"there is no queue '{missing}'")
    assert missing not in admin("queue", "ls", "--columns", "queue").out.split()


def test_a_queue_is_created_if_requested(admin, node: NodeProcess, queue_name: str) -> None:
    dry = admin("queue", "set", queue_name, "--create", "--retry", "7", "--dry-run")
    assert (dry.code, dry.out.splitlines()[0]) == (0, f"would create queue {queue_name}")
    command = ("lmq-admin", "--node", node.http, "queue", "set", queue_name, "--retry", "7")
    assert run_in_terminal(*command, "--create") == (
        0,
        f"Queue {queue_name} was created and its properties were set.\n",
    )
    assert run_in_terminal(*command) == (0, f"The properties of queue {queue_name} were set.\n")
    pushed = run_in_terminal("lmq-admin", "--node", node.http, "message", "push", queue_name, "letter")
    assert pushed == (0, f"One message of 6 B was pushed to queue {queue_name}.\n")


def test_leaving_asks_for_confirmation(node: NodeProcess) -> None:
    dry = run_here("--node", node.http, "leave", "--dry-run")
    assert (dry.code, dry.out.startswith(f"would remove {node.http} from its cluster")) == (0, True)
    code, seen = run_in_terminal("lmq-admin", "--node", node.http, "leave", typed=b"n\n", typed_at=b"[y/N]")
    assert (code, f"Remove {node.http} from its cluster" in seen) == (130, True)
    assert seen.splitlines()[-1] == "lmq-admin: not done"
