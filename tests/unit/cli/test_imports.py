"""Imports of programs: a command loads only what it needs itself."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq
from lmqcluster_cli.shared.aliases import AliasGroup, Deferred

import lmqcluster
import lmqcluster.client

HEAVY = {
    "aiohttp",
    "asyncio",
    "cryptography",
    "importlib.metadata",
    "lmqcluster.node.config.config",
    "prometheus_client",
    "pysyncobj",
    "re2",
    "rich",
    "structlog",
    "uvloop",
}
"""The slowest imports of all that the programs need for some command."""

UNREACHABLE = "127.0.0.1:1"

SCRIPT = """
import sys
from lmqcluster_cli.{module}.program import main
sys.argv = {words!r}
try:
    main()
except SystemExit:
    print("imported", *sys.modules, file=sys.stderr)
"""


def imported(program: str, *words: str) -> set[str]:
    """Return the modules that a program has imported when it ends."""
    module = program.removeprefix("lmq-")
    code = SCRIPT.format(module=module, words=[program, *words])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("imported ")]
    return set(line.split()[1:])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("lmq-admin", ["--help"]),
        ("lmq-admin", ["status", "--help"]),
        ("lmq-admin", ["status", "--node", UNREACHABLE]),
        ("lmq-admin", ["queue", "list", "--node", UNREACHABLE]),
        ("lmq-admin", ["message", "push", "q", "text", "--node", UNREACHABLE]),
        ("lmq-admin", ["completion", "bash"]),
        ("lmq", ["--help"]),
        ("lmq", ["ping", "--node", UNREACHABLE]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_command_imports_only_what_it_needs(program: str, words: list[str]) -> None:
    modules = imported(program, *words)
    assert "lmqcluster_cli.shared.errors" in modules
    assert modules & HEAVY == set()


def test_other_commands_import_what_they_need() -> None:
    assert imported("lmq-admin", "tls", "--help") & HEAVY >= {"cryptography"}
    assert imported("lmq-admin", "backup", "--help") & HEAVY >= {"pysyncobj", "structlog"}


@pytest.mark.parametrize("group", [lmq, lmq_admin], ids=["lmq", "lmq-admin"])
def test_help_of_a_group_has_the_summaries_of_its_commands(group: AliasGroup) -> None:
    context = click.Context(group, info_name=group.name)
    deferred = [command for command in group.commands.values() if isinstance(command, Deferred)]
    assert len(deferred) > 4
    for command in deferred:
        itself = group.get_command(context, str(command.name))
        assert itself is not None
        assert not isinstance(itself, Deferred)
        assert (itself.name, itself.hidden) == (command.name, command.hidden)
        assert itself.get_short_help_str(1000) == command.get_short_help_str(1000)


@pytest.mark.parametrize("package", [lmqcluster, lmqcluster.client], ids=lambda package: package.__name__)
def test_every_name_of_a_package_exists(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        found = getattr(package, name)
        assert isinstance(found, str) if name == "__version__" else found.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        package.Nothing  # type: ignore[attr-defined]  # noqa: B018
