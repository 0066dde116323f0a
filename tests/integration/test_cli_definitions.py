"""``lmq-admin definitions``: from one real cluster to another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmqcluster import Client
from lmqcluster.node.access.sqs_keys import secret_access_key, sqs_key

from .cluster import Cluster, NodeProcess
from .programs import Result, run_here, run_in_terminal

HEAD = {"format": "lmqcluster definitions", "version": 1}
COPIES = ["audit", {"base64": "/w=="}]
NOT_UTF8 = "\udcff"

Admin = Callable[..., Result]


def admin_of(node: NodeProcess) -> Admin:
    """Runs lmq-admin against a node."""
    return lambda *arguments, **more: run_here("--node", node.http, *arguments, **more)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """A node with definitions of every kind."""
    with Cluster(1, directory=tmp_path_factory.mktemp("source")) as cluster:
        admin = admin_of(cluster[0])
        for arguments in (
            ["defaults", "add", "^mail[.]", "--retry", "5", "--yes"],
            ["queue", "set", "orders", "--retry", "3", "--accum", "0.5", "--annotate", "team=a=b", "--create"],
            [
                "queue",
                "set",
                "hooked",
                "--create",
                "--hooks",
                '{"pre_http_push": [["lmq_hook_preserve_header", ["x-a"]]]}',
            ],
            ["queue", "set", NOT_UTF8, "--timeout", "1.5", "--create"],
            ["message", "push", "plain", "letter"],
            ["message", "push", "held", "letter"],
            ["queue", "suspend", "held"],
            ["queue", "bind", "orders", "audit"],
            ["queue", "bind", "orders", NOT_UTF8],
        ):
            assert admin(*arguments).code == 0, arguments
        yield admin


@pytest.fixture
def target(tmp_path: Path) -> Iterator[NodeProcess]:
    """An empty node."""
    with NodeProcess(tmp_path, "target") as node:
        yield node


def exported(admin: Admin, **more: Any) -> dict[str, Any]:
    done = admin("definitions", "export", **more)
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_what_is_exported(source: Admin, tmp_path: Path) -> None:
    found = exported(source)
    assert found == {
        **HEAD,
        "default_properties": [["^mail[.]", {"retry": 5}]],
        "queues": [
            {"name": "held", "properties": {}, "suspended": True, "bindings": []},
            {
                "name": "hooked",
                "properties": {"hooks": {"pre_http_push": [["lmq_hook_preserve_header", ["x-a"]]]}},
                "suspended": False,
                "bindings": [],
            },
            {
                "name": "orders",
                "properties": {"accum": 0.5, "retry": 3},
                "suspended": False,
                "bindings": COPIES,
                "annotations": {"team": "a=b"},
            },
            {"name": {"base64": "/w=="}, "properties": {"timeout": 1.5}, "suspended": False, "bindings": []},
        ],
        "tokens": [],
    }
    assert source("definitions", "export", str(tmp_path / "file")) == (0, "", "")
    assert json.loads((tmp_path / "file").read_text()) == found


def test_a_cluster_gets_the_definitions_of_another_one(source: Admin, target: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    source("definitions", "export", str(file))
    admin = admin_of(target)
    changes = [
        "would replace the default properties, 0 rules, with 1 rule",
        "would create queue held",
        "would suspend queue held",
        'would create queue hooked with hooks {"pre_http_push": [["lmq_hook_preserve_header", ["x-a"]]]}',
        "would create queue orders with accum 0.5, retry 3",
        'would set the annotations of queue orders to team "a=b"',
        "would bind queue orders: audit gets copies of messages pushed to it",
        "would bind queue orders: base64:/w== gets copies of messages pushed to it",
        "would create queue base64:/w== with timeout 1.5",
    ]
    assert admin("definitions", "import", str(file), "--dry-run") == (0, "\n".join(changes) + "\n", "")
    assert exported(admin)["queues"] == [], "nothing has happened yet"
    refused = admin("definitions", "import", str(file))
    assert (refused.code, refused.out) == (2, "")
    assert "this would make 9 changes, as shown, and there is no terminal" in refused.err.splitlines()[-1]
    done = admin("definitions", "import", str(file), "--yes")
    assert (done.code, done.out, done.err.splitlines()) == (0, "", changes)
    assert exported(admin) == json.loads(file.read_text())
    for more in ((), ("--dry-run",), ("--yes",)):
        assert admin("definitions", "import", str(file), *more) == (0, "", "lmq-admin: no changes\n")


def test_an_import_replaces_exactly_what_the_file_has(target: NodeProcess) -> None:
    admin = admin_of(target)
    for queue in ("orders", "others"):
        admin("queue", "set", queue, "--retry", "3", "--timeout", "60", "--create")
        admin("message", "push", queue, "letter")
    admin("queue", "suspend", "orders")
    wanted = {**HEAD, "queues": [{"name": "orders", "properties": {"retry": 4}}]}
    done = admin("definitions", "import", "-", "--yes", stdin=json.dumps(wanted))
    assert done.err.splitlines() == [
        "would change the properties of queue orders from retry 3, timeout 60 to retry 4",
        "would resume queue orders",
    ]
    assert exported(admin)["queues"] == [
        {"name": "orders", "properties": {"retry": 4}, "suspended": False, "bindings": []},
        {"name": "others", "properties": {"retry": 3, "timeout": 60}, "suspended": False, "bindings": []},
    ]
    with Client(target.rpc) as client:
        message = client.pull("orders", 0)
        assert message is not None
        assert message.text == "letter"


def test_tokens_get_new_secrets(target: NodeProcess, tmp_path: Path) -> None:
    admin, secrets = admin_of(target), tmp_path / "secrets"
    tokens: list[dict[str, Any]] = [
        {"name": "shop", "role": "write", "queues": "^orders", "expires_at": None, "principal": "shops", "sqs": True},
        {"name": "root", "role": "admin", "queues": ".*", "expires_at": None},
        {"name": "brief", "role": "read", "queues": ".*", "expires_at": 4_000_000_000.5},
        {"name": "late", "role": "read", "queues": ".*", "expires_at": 1},
    ]
    wanted = json.dumps({**HEAD, "queues": [{"name": "q", "properties": {"retry": 1}}], "tokens": tokens})
    without = admin("definitions", "import", "-", "--yes", stdin=wanted)
    assert without.code == 0
    assert "created only with --new-tokens FILE: shop, root, brief" in without.err
    dry = admin("definitions", "import", "-", "--new-tokens", str(secrets), "--dry-run", stdin=wanted)
    assert [line.split()[:4] for line in dry.out.splitlines()] == [
        ["would", "create", "token", name] for name in ("root", "shop", "brief")
    ]
    assert "create token shop of principal shops for ^orders" in dry.out
    assert not secrets.exists()
    done = admin("definitions", "import", "-", "--new-tokens", str(secrets), "--yes", stdin=wanted)
    assert (done.code, done.out) == (0, "")
    assert secrets.stat().st_mode & 0o777 == 0o600
    lines = [line.split("\t") for line in secrets.read_text().splitlines()]
    made = {name: secret for name, secret, *_key in lines}
    keys = {name: key for name, secret, *key in lines if key}
    assert keys == {"shop": [secret_access_key(sqs_key(made["shop"].encode()))]}
    assert made.keys() == {"shop", "root", "brief"}
    assert not any(secret in done.err for secret in made.values())
    assert admin("status").code == 77
    root = {"environment": {"LMQ_TOKEN": made["root"]}}
    found = exported(admin, **root)["tokens"]
    assert [one["name"] for one in found] == ["brief", "root", "shop"]
    assert abs(found[0]["expires_at"] - 4_000_000_000.5) < 60
    assert [found[1], found[2]] == [{**tokens[1], "principal": "root"}, tokens[0]]
    assert admin("definitions", "import", "-", stdin=wanted, **root).err == "lmq-admin: no changes\n"
    with Client(target.rpc, token=made["shop"]) as client:
        assert client.push("orders", "x") == "ok"
    other = json.dumps({**HEAD, "tokens": [{**tokens[0], "role": "read"}]})
    assert "token shop differs in role" in admin("definitions", "import", "-", stdin=other, **root).err


def test_secrets_are_never_written_over_a_file(target: NodeProcess, tmp_path: Path) -> None:
    admin, secrets = admin_of(target), tmp_path / "secrets"
    secrets.write_text("important data")
    wanted = json.dumps({**HEAD, "tokens": [{"name": "root", "role": "admin"}]})
    done = admin("definitions", "import", "-", "--new-tokens", str(secrets), "--yes", stdin=wanted)
    assert done.code == 78
    assert done.one_line_error().endswith("already exists; choose a new file for the secrets")
    assert secrets.read_text() == "important data"
    assert admin("status").code == 0, "no token was made"


def test_a_change_that_fails_ends_the_import(target: NodeProcess) -> None:
    """The node refuses what only it can check: a regular expression."""
    admin = admin_of(target)
    queues = [{"name": "q", "properties": {"retry": 1}}]
    wanted = {**HEAD, "default_properties": [["(", {"retry": 1}]], "queues": queues}
    done = admin("definitions", "import", "-", "--yes", stdin=json.dumps(wanted))
    assert done.code == 65
    last = done.err.splitlines()[-1]
    assert last.startswith("lmq-admin: cannot replace the default properties")
    assert last.endswith("(0 of 2 changes were made; the import may be repeated)")
    assert exported(admin)["queues"] == []


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({**HEAD, "version": 2}), "[" * 100_000], ids=range(5))
def test_an_invalid_file_changes_nothing(source: Admin, text: str) -> None:
    before = exported(source)
    done = source("definitions", "import", "-", "--yes", stdin=text)
    assert done.code == 65
    assert done.one_line_error().startswith("lmq-admin: standard input")
    assert exported(source) == before


def test_an_import_asks_for_confirmation(target: NodeProcess, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps({**HEAD, "queues": [{"name": "q", "properties": {"retry": 1}}]}))
    words = ["--node", target.http, "definitions", "import", str(file)]
    code, seen = run_in_terminal("lmq-admin", *words, typed=b"n\n", typed_at=b"[y/N]")
    assert (code, seen.splitlines()[-1]) == (130, "lmq-admin: not done")
    code, seen = run_in_terminal("lmq-admin", *words, typed=b"y\n", typed_at=b"[y/N]")
    assert code == 0
    assert seen.splitlines()[-1] == "1 change was made."
