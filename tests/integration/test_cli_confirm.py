"""Destructive commands do nothing without a terminal for confirmation, unless the command line has --yes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq

from lmqcluster import Client

from .cluster import Cluster, NodeProcess
from .programs import Result, run, run_here, run_in_terminal

# Words that make each command destroy something, in a cluster as `full` prepares it.
DESTRUCTIVE: Final = {
    "message withdraw": ["kept", "marked"],
    "queue clear": ["kept"],
    "queue purge": ["kept"],
    "queue move": ["kept", "elsewhere"],
    "queue rm": ["kept"],
    "defaults set": ["-"],
    "defaults add": ["^kept$", "--retry", "0"],
    "defaults rm": ["^ruled$"],
    "token delete": ["worker"],
    "subscription abandon": ["keeper"],
    "subscription rm": ["reader"],
    "lock free": ["nightly"],
    "leave": [],
    "remove": ["n1", "--force"],
}
# These ask too, in special ways: an editor comes first, the node does not run, or other tests cover them.
ELSEWHERE: Final = {
    "defaults edit",
    "definitions import",
    "session end",
    "job rm",
    "schedule rm",
    "context rm",
    "lmq repair",
    "queue redrive",
    "recover",
    "replace",
    "client close",
}
# These lose nothing that cannot be restored, or the command line itself names the loss.
HARMLESS: Final = {
    "status", "stats", "top", "check", "check cluster", "check queue", "queue ls", "queue show", "queue set", "queue create",
    "queue suspend",
    "queue resume", "message push", "message pull", "message ack", "message nack", "message extend", "message peek",
    "defaults show", "subscription ls", "subscription show", "replay", "drain", "bench", "join", "transfer-leader", "log-level",
    "snapshot", "backup", "verify", "restore", "version", "lmq version",
    "token create", "token list", "tls init", "completion", "lmq start", "lmq dev", "lmq ping",
    "context ls", "context save", "context select", "context show", "definitions export",
    "import kestrel",
    "import kestrel-config",
    "import queued", "import sqs",
    "schedule ls", "schedule show", "schedule add", "schedule pause", "schedule resume", "schedule run-now",
    "job ls", "session ls", "lock ls", "client ls", "client waiting", "client leases",
    "queue bind", "queue unbind", "queue bindings", "lmq config show", "lmq config check", "lmq config docs", "lmq completion",
}  # fmt: skip


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command of a program with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not isinstance(command, click.Group):
            yield f"{prefix}{name}", command
            continue
        if command.invoke_without_command:
            yield f"{prefix}{name}", command
        yield from commands(command, f"{prefix}{name} ")


def test_every_command_is_listed_as_destructive_or_not() -> None:
    """A new command must be added to one of the tables; destructive ones have --yes, and no others."""
    found = dict(commands(lmq_admin)) | dict(commands(lmq, "lmq "))
    assert set(found) == {*DESTRUCTIVE, *ELSEWHERE, *HARMLESS}
    for name, command in found.items():
        asks = any(parameter.name == "yes" for parameter in command.params)
        assert asks == (name not in HARMLESS), name


Admin = Callable[..., Result]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node for this module."""
    with Cluster(1, directory=tmp_path_factory.mktemp("confirm")) as cluster:
        yield cluster[0]


@pytest.fixture(scope="module")
def admin(node: NodeProcess) -> Admin:
    """Runs lmq-admin against a node that has something of everything that can be destroyed."""
    root = run_here("--node", node.http, "token", "create", "root", "--role", "admin").out.strip()

    def call(*arguments: str, stdin: str = "") -> Result:
        return run_here("--node", node.http, *arguments, stdin=stdin, environment={"LMQ_TOKEN": root})

    for arguments in (
        ["token", "create", "worker", "--role", "write"],
        ["message", "push", "kept", "letter"],
        ["message", "push", "kept", "marked letter", "--label", "marked"],
        ["queue", "set", "kept", "--retry", "5"],
        ["defaults", "add", "^ruled$", "--retry", "3", "--yes"],
    ):
        assert call(*arguments).code == 0
    with Client([node.rpc], token=root) as client:
        # One for each command: a subscription that has settled nothing ends when it is abandoned.
        for subscription in ("keeper", "reader"):
            client.push("held", "letter")
            assert client.reserve_batch(subscription, 1, queue="held", count=1).count == 1
        assert client.lock("nightly", client.open_session(3600))
    return call


def state(admin: Admin) -> list[Any]:
    """Return everything that a destructive command could change, without what changes with time."""
    commands = ("queue show kept", "queue ls", "defaults show", "token list", "status", "lock ls")
    columns = {"queue ls": ["--columns", "queue,ready,leased"], "status": ["--columns", "node,state,raft"]}
    shown = [admin(*words.split(), *columns.get(words, ["--json"])).out for words in commands]
    batches = json.loads(admin("subscription", "ls", "--json").out)["subscriptions"]
    return [re.sub(r'"(oldest_age_s|push_rate|pull_rate)": [^,}]+', "", text) for text in shown] + [
        [one["name"], len(one["batches"])] for one in batches
    ]


@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_without_a_terminal_and_without_yes_nothing_happens(admin: Admin, name: str) -> None:
    before = state(admin)
    words = [*name.split(), *DESTRUCTIVE[name]]
    refused = admin(*words, stdin="[]")
    assert (refused.code, refused.out) == (2, "")
    complaint = refused.err.splitlines()[-1]
    assert complaint.startswith(f"lmq-admin {name}: this would ")
    assert "there is no terminal to ask on: pass --yes" in complaint
    dry = admin(*words, "--dry-run", stdin="[]")
    assert (dry.code, dry.out.startswith("would ")) == (0, True)
    # Giving both changes nothing either.
    both = admin(*words, "--dry-run", "--yes", stdin="[]")
    assert (both.code, both.out.startswith("would ")) == (0, True)
    assert state(admin) == before


@pytest.mark.parametrize("name", [name for name in DESTRUCTIVE if name not in {"leave", "remove"}])
def test_with_yes_it_is_done(admin: Admin, name: str) -> None:
    """In the order of the table each command still finds what it destroys."""
    assert admin("message", "push", "kept", "letter").code == 0
    before = state(admin)
    done = admin(*name.split(), *DESTRUCTIVE[name], "--yes", stdin='[["^ruled$", {"retry": 9}]]')
    assert done.code == 0, done
    assert state(admin) != before


@pytest.mark.parametrize(
    ("words", "nodes"),
    [("lmq repair", 2), ("lmq repair --alone", 1), ("lmq-admin recover", 1)],
    ids=["lmq-repair", "lmq-repair-alone", "lmq-admin-recover"],
)
def test_a_stopped_nodes_data_is_not_touched_without_yes(words: str, nodes: int, tmp_path: Path) -> None:
    program, *command = words.split()
    with Cluster(nodes, directory=tmp_path) as cluster:
        folder = cluster[0].data_dir

    def files() -> dict[Path, bytes]:
        # The identity file counts its openings.
        paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("node."))
        return {path: path.read_bytes() for path in paths}

    before = files()
    assert before
    refused = run(program, *command, "--data-dir", str(folder))
    assert refused.code == 2
    assert "there is no terminal to ask on: pass --yes" in refused.err.splitlines()[-1]
    code, seen = run_in_terminal(program, *command, "--data-dir", str(folder), typed=b"n\n", typed_at=b"[y/N]")
    assert (code, seen.splitlines()[-1]) == (130, f"{program}: not done")
    assert files() == before
