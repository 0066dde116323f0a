"""Contexts: their files, the choice of one, and refused ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from lmqcluster_cli.shared.connection import contexts
from lmqcluster_cli.shared.errors import CliError, ExitCode

from tests.integration.programs import Result, run_here

NODE = "127.0.0.1:1"
OTHER = "127.0.0.1:2"


@pytest.fixture
def admin(tmp_path: Path) -> Callable[..., Result]:
    """Runs lmq-admin with a configuration folder for one test."""

    def run(*arguments: str, **variables: str) -> Result:
        return run_here(*arguments, environment={"XDG_CONFIG_HOME": str(tmp_path), **variables})

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lmqcluster" / "contexts"


def reached(result: Result) -> str:
    """Return the node that a command could not reach."""
    assert result.code == ExitCode.UNAVAILABLE, result
    return result.err.split("cannot reach ")[1].split(": ")[0]


def test_save_list_select_show_and_remove(admin: Callable[..., Result], folder: Path) -> None:
    assert admin("context", "ls").out == "context\tselected\tnode\ttls\ttoken_file\n"
    assert admin("context", "save", "prod", "--node", NODE, "--token-file", "/t", "--ca-file", "/ca") == (0, "", "")
    assert admin("context", "save", "dev", "--node", "https://q.example.com", "--select") == (0, "", "")
    assert admin("context", "ls").out.splitlines()[1:] == [
        "dev\tyes\tq.example.com:9980\tsystem\t-",
        f"prod\t-\t{NODE}\t/ca\t/t",
    ]
    assert json.loads(admin("context", "show", "--json").out) == {
        "context": "dev",
        "node": "q.example.com:9980",
        "token_file": None,
        "ca_file": "system",
        "cert_file": None,
    }
    assert admin("context", "select", "prod").code == 0
    assert "prod" in admin("context", "show").out
    assert [path.stat().st_mode & 0o777 for path in sorted(folder.iterdir())] == [0o600] * 3
    assert folder.stat().st_mode & 0o777 == 0o700
    assert admin("context", "rm", "prod").one_line_error().endswith("pass --yes (see lmq-admin context rm --help)")
    assert admin("context", "rm", "prod", "--dry-run").out == "would remove the context prod\n"
    assert admin("context", "rm", "prod", "--yes").code == 0
    assert admin("context", "show").code == ExitCode.NOT_FOUND
    assert sorted(path.name for path in folder.iterdir()) == ["dev.json"]


def test_files_are_saved_with_absolute_paths(
    admin: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    admin("context", "save", "prod", "--node", NODE, "--token-file", "token", "--cert-file", "cert.pem")
    found = json.loads(admin("context", "show", "prod", "--json").out)
    assert (found["token_file"], found["cert_file"]) == (str(tmp_path / "token"), str(tmp_path / "cert.pem"))


def test_which_node_is_asked(admin: Callable[..., Result]) -> None:
    admin("context", "save", "a", "--node", NODE)
    admin("context", "save", "b", "--node", OTHER, "--select")
    assert reached(admin("status")) == OTHER
    assert reached(admin("status", "--context", "a")) == NODE
    assert reached(admin("--context", "a", "queue", "ls")) == NODE
    assert reached(admin("--context", "b", "status", "--context", "a")) == NODE
    assert reached(admin("status", LMQ_CONTEXT="a")) == NODE
    assert reached(admin("status", LMQ_NODE="127.0.0.1:3")) == "127.0.0.1:3"
    assert reached(admin("status", "--context", "a", LMQ_NODE="127.0.0.1:3")) == NODE
    assert reached(admin("status", "--node", "127.0.0.1:3")) == "127.0.0.1:3"
    assert reached(admin("status", "--context", "a", "--node", "127.0.0.1:3")) == "127.0.0.1:3"
    assert admin("context", "select", "--none").code == 0
    assert reached(admin("status", LMQ_NODE=NODE)) == NODE


def test_the_token_of_a_context_is_for_its_cluster_only(admin: Callable[..., Result], tmp_path: Path) -> None:
    """A token file that cannot be read shows whether it would be used."""
    missing = tmp_path / "missing"
    admin("context", "save", "prod", "--node", NODE, "--token-file", str(missing), "--select")
    assert admin("status").code == ExitCode.CONFIGURATION
    assert admin("status", "--context", "prod", "--node", OTHER).code == ExitCode.CONFIGURATION
    assert reached(admin("status", "--node", OTHER)) == OTHER
    assert reached(admin("status", LMQ_NODE=OTHER)) == OTHER
    assert reached(admin("status", "--token", "given")) == NODE
    admin("context", "save", "prod", "--node", NODE)
    assert reached(admin("status", LMQ_TOKEN_FILE=str(missing))) == NODE, "variables do not count beside a context"
    assert admin("status", LMQ_TOKEN_FILE=str(missing), LMQ_NODE=NODE).code == ExitCode.CONFIGURATION


def test_a_context_holds_no_token(admin: Callable[..., Result], folder: Path) -> None:
    result = admin("context", "save", "prod", "--node", NODE, "--token", "geheim")
    assert result.code == ExitCode.USAGE
    assert "geheim" not in result.err
    assert not folder.exists()
    assert admin("context", "save", "prod", LMQ_NODE=NODE, LMQ_TOKEN="geheim").code == ExitCode.USAGE


@pytest.mark.parametrize("name", ["", ".selected", "../x", "a/b", "a b", "-x", "x" * 65, "é"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(CliError) as caught:
        contexts.check_name(name)
    assert caught.value.exit_code is ExitCode.BAD_DATA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 2, "node": "a:1"}',
        '{"version": 1}',
        '{"version": 1, "node": 7}',
        '{"version": 1, "node": "a:1", "token": "geheim"}',
        '{"version": 1, "node": "a:1", "ca_file": 1}',
        '{"version": 1, "node": "no address"}',
        "[" * 50_000,
        "\ud800",
        '{"version": 1, "node": "a:1"}' + " " * contexts.FILE_BYTES_MAX,
    ],
    ids=range(13),
)
def test_a_broken_context_is_named_and_can_be_removed(admin: Callable[..., Result], folder: Path, text: str) -> None:
    admin("context", "save", "prod", "--node", NODE, "--select")
    (folder / "prod.json").write_bytes(text.encode(errors="surrogatepass"))
    result = admin("status")
    assert result.code == ExitCode.CONFIGURATION
    assert "prod.json" in result.one_line_error()
    assert "geheim" not in result.err
    assert admin("context", "rm", "prod", "--yes").code == 0
    assert contexts_of(admin) == []


def contexts_of(admin: Callable[..., Result]) -> list[str]:
    return [line.split("\t")[0] for line in admin("context", "ls").out.splitlines()[1:]]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_context_that_others_may_read_or_write_is_refused(
    admin: Callable[..., Result], folder: Path, mode: int
) -> None:
    admin("context", "save", "prod", "--node", NODE, "--select")
    (folder / "prod.json").chmod(mode)
    result = admin("status")
    assert result.code == ExitCode.CONFIGURATION
    assert "chmod 600" in result.one_line_error()
    (folder / "prod.json").chmod(0o600)
    (folder / ".selected").chmod(mode)
    assert admin("status").code == ExitCode.CONFIGURATION


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_context_of_another_user_is_refused(admin: Callable[..., Result], folder: Path) -> None:
    admin("context", "save", "prod", "--node", NODE, "--select")
    os.chown(folder / "prod.json", 1, 1)
    assert admin("status").code == ExitCode.CONFIGURATION


def test_a_context_that_is_not_a_file_is_refused(admin: Callable[..., Result], folder: Path, tmp_path: Path) -> None:
    admin("context", "save", "prod", "--node", NODE, "--select")
    file = folder / "prod.json"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert admin("status").code == ExitCode.CONFIGURATION
    file.unlink()
    os.mkfifo(file, 0o600)
    assert admin("status").code == ExitCode.CONFIGURATION


def test_a_missing_selected_context_is_reported(admin: Callable[..., Result], folder: Path) -> None:
    admin("context", "save", "prod", "--node", NODE, "--select")
    (folder / "prod.json").unlink()
    assert "context 'prod' does not exist" in admin("status").one_line_error()
    assert admin("context", "select", "--none").code == 0
    assert admin("context", "save", "prod", "--node", NODE).code == 0


def test_names_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("prod", "preview", "dev"):
        contexts.save_context(name, contexts.Context(NODE))
    context = click.Context(click.Command("x"))
    found = contexts.complete_context(context, click.Option(["--context"]), "pr")
    assert [item.value for item in found] == ["preview", "prod"]


def test_the_program_without_contexts_uses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lmq ping` has no option for contexts, so the variable does not count either."""
    monkeypatch.setenv("LMQ_CONTEXT", "prod")
    context = click.Context(click.Command("ping"))
    contexts.note_node(context)
    assert contexts.context_in_use(context) is None
