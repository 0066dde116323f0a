"""``lmq-admin queue rm | purge --pattern`` and a context, against a real node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lmqcluster import Client

from .cluster import NodeProcess
from .programs import Result, run_here, run_in_terminal

Admin = Callable[..., Result]


@pytest.fixture
def admin(node: NodeProcess) -> Admin:
    """Runs lmq-admin against the shared node, in this process."""
    return lambda *arguments, **more: run_here("--node", node.http, *arguments, **more)


@pytest.fixture
def queues(node: NodeProcess, queue_name: str) -> list[str]:
    """Three queues for one test, with two messages each, one of which is leased in the last queue."""
    names = [f"{queue_name}.{place}" for place in "abc"]
    with Client(node.rpc) as client:
        for name in names:
            client.push_many(name, ["x", "y"])
        client.pull(names[-1], 0)
    return names


def pattern(queue_name: str, places: str = "abc") -> str:
    return f"^{queue_name}[.][{places}]$"


def sizes(admin: Admin, queue_name: str) -> dict[str, int]:
    found = json.loads(admin("queue", "ls", "--match", pattern(queue_name), "--json").out)["queues"]
    return {queue["name"]: queue["size"] for queue in found}


def test_a_dry_run_names_every_queue(admin: Admin, queues: list[str], queue_name: str) -> None:
    first, second, third = queues
    assert admin("queue", "rm", "--pattern", pattern(queue_name), "--dry-run", "--yes").out.splitlines() == [
        f"would delete queue {name} with 2 messages" for name in queues
    ]
    assert admin("queue", "purge", "--match", pattern(queue_name), "--dry-run").out.splitlines() == [
        f"would remove 2 waiting messages from queue {first}",
        f"would remove 2 waiting messages from queue {second}",
        f"would remove 1 waiting message from queue {third}",
    ]
    assert sizes(admin, queue_name) == dict.fromkeys(queues, 2)


def test_without_yes_and_terminal_nothing_happens(admin: Admin, queues: list[str], queue_name: str) -> None:
    for verb in ("rm", "purge"):
        refused = admin("queue", verb, "--pattern", pattern(queue_name))
        assert (refused.code, refused.out) == (2, "")
        assert "pass --yes" in refused.err.splitlines()[-1]
    assert sizes(admin, queue_name) == dict.fromkeys(queues, 2)


def test_matching_queues_are_purged_and_deleted(admin: Admin, queues: list[str], queue_name: str) -> None:
    first, second, third = queues
    done = admin("queue", "purge", "--pattern", pattern(queue_name, "ac"), "--yes", "--json")
    assert (done.code, json.loads(done.out)) == (0, {"queues": 2, "purged": 3})
    assert sizes(admin, queue_name) == {first: 0, second: 2, third: 1}
    assert admin("queue", "rm", "--pattern", pattern(queue_name, "ab"), "--yes") == (0, "", "")
    assert sizes(admin, queue_name) == {third: 1}


def test_a_pattern_without_queues(admin: Admin, queue_name: str) -> None:
    for verb in ("rm", "purge"):
        missing = admin("queue", verb, "--pattern", pattern(queue_name), "--yes")
        assert missing.code == 66
        assert "no queue matches" in missing.one_line_error()


@pytest.mark.parametrize("words", [[], ["q", "--pattern", "q"]], ids=["neither", "both"])
def test_either_a_name_or_a_pattern(admin: Admin, words: list[str]) -> None:
    for verb in ("rm", "purge"):
        assert admin("queue", verb, *words, "--yes").code == 2


def test_an_invalid_pattern_is_refused(admin: Admin) -> None:
    assert admin("queue", "rm", "--pattern", "(", "--yes").code == 65


def test_the_confirmation_shows_the_affected_queues(node: NodeProcess, queues: list[str], queue_name: str) -> None:
    words = ["--node", node.http, "queue", "rm", "--pattern", pattern(queue_name)]
    code, seen = run_in_terminal("lmq-admin", *words, typed=b"y\n", typed_at=b"[y/N]", columns=200)
    assert code == 0
    lines = seen.splitlines()
    assert lines[:3] == [f"would delete queue {name} with 2 messages" for name in queues]
    assert lines[3].startswith("Delete 3 queues with 6 messages, as shown? [y/N]")
    assert lines[-1] == "3 queues were deleted."


def test_a_context_reaches_its_cluster(node: NodeProcess, tmp_path: Path, queue_name: str) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    saved = run_here("context", "save", "here", "--node", node.http, "--select", environment=environment)
    assert saved.code == 0
    assert run_here("message", "push", queue_name, "x", environment=environment).code == 0
    shown = run_here("--context", "here", "queue", "show", queue_name, "--json", environment=environment)
    assert json.loads(shown.out)["ready"] == 1
    words = {"COMP_WORDS": f"lmq-admin queue show {queue_name[:-2]}", "COMP_CWORD": "3"}
    completed = run_here(environment={**environment, **words, "_LMQ_ADMIN_COMPLETE": "bash_complete"})
    assert f"plain,{queue_name}" in completed.out.splitlines()
