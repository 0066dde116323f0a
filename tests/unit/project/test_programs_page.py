"""The page on programs names every command of `lmq-admin`; `test_documentation` checks that named commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
from lmqcluster_cli.admin.program import cli

PAGE = (Path(__file__).parents[3] / "docs" / "admin.md").read_text(encoding="utf-8")


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Yield all commands below a group with their words."""
    context = click.Context(group)
    found: dict[tuple[str, ...], click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[*path, name] = command
        if isinstance(command, click.Group):
            found |= commands_of(command, (*path, name))
    return found


COMMANDS = commands_of(cli)


def test_the_table_of_commands_is_complete_and_correct() -> None:
    section = PAGE.split("\n## lmq-admin\n")[1].split("\n## ")[0]
    table = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ") and " | `" in line]
    named = {word for cell in table for text in re.findall(r"`([^`]+)`", cell) for word in text.split()[:1]}
    top = {path[0] for path in COMMANDS if len(path) == 1}
    options = {name for command in COMMANDS.values() for parameter in command.params for name in parameter.opts}
    known = top | {path[-1] for path in COMMANDS} | {"q", "s", "--help"} | options
    assert named <= known, named - known
    everyday = top - {"completion"}
    assert everyday <= named, everyday - named
