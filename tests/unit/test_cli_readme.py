"""The README names only commands and options of the programs that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click
from lmqcluster_cli.admin.program import cli

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """All commands below a group by their words."""
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


def test_the_table_of_commands_is_complete_and_true() -> None:
    section = README.split("\n## lmq-admin\n")[1].split("\n## ")[0]
    table = [line.split(" | ")[1] for line in section.splitlines() if line.startswith("| ") and " | `" in line]
    named = {word for cell in table for text in re.findall(r"`([^`]+)`", cell) for word in text.split()[:1]}
    top = {path[0] for path in COMMANDS if len(path) == 1}
    known = top | {path[-1] for path in COMMANDS} | {"q", "s", "--name", "--match", "--limit", "--wait", "--no-ack"}
    assert named <= known, named - known
    everyday = top - {"completion", "subscription", "log-level"}
    assert everyday <= named, everyday - named


def test_every_line_with_lmq_admin_is_one_that_runs() -> None:
    lines = re.findall(r"lmq-admin ((?:--node \S+ )?[a-z][^`\n|]*)", README)
    assert len(lines) > 20
    for line in lines:
        words = re.sub(r"^--node \S+ ", "", line).split()
        command = COMMANDS.get(tuple(words[:2])) or COMMANDS.get((words[0],))
        assert command is not None, line
        options = {option for parameter in [*command.params, *cli.params] for option in parameter.opts}
        used = {word.split("=")[0] for word in re.findall(r"(?<=\s)--[a-z-]+", line)}
        assert used <= options | {"--help"}, (line, used - options)
