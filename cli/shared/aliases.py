"""Groups of commands, with aliases that other programs use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import click

__all__ = ["AliasGroup", "Deferred", "SectionGroup"]

_KEYWORDS: Final = {"import": "imports"}
"""Commands whose names are Python keywords, with the names of their functions."""
_ALIASES: Final = {"list": "ls", "ls": "list", "delete": "rm", "rm": "delete", "get": "show"}


class Deferred(click.Command):
    """A placeholder that imports a command when it is called, so that a program imports only what it needs.

    Args:
        name: the command's name.
        home: the module of `lmqcluster_cli` that defines it, under its name with underscores.
        summary: one line for the help of its group.
    """

    def __init__(self, name: str, home: str, summary: str) -> None:
        super().__init__(name, short_help=summary)
        self._home = home

    def load(self) -> click.Command:
        """Import and return the command."""
        module = import_module(f"..{self._home}", __package__)
        command: click.Command = getattr(module, _KEYWORDS.get(str(self.name)) or str(self.name).replace("-", "_"))
        return command


class AliasGroup(click.Group):
    """A group in which ``ls`` and ``list``, ``rm`` and ``delete``, and ``get`` and ``show`` are synonyms."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name or alias."""
        command = super().get_command(ctx, cmd_name) or super().get_command(ctx, _ALIASES.get(cmd_name, ""))
        return command.load() if isinstance(command, Deferred) else command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, without truncation."""
        self.write_commands(formatter, "Commands", self.list_commands(ctx))

    def write_commands(self, formatter: click.HelpFormatter, title: str, names: Sequence[str]) -> None:
        """Write commands under a title."""
        found = [(name, self.commands[name]) for name in names]
        rows = [(name, command.get_short_help_str(1000)) for name, command in found if not command.hidden]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class SectionGroup(AliasGroup):
    """A group whose help lists its commands in sections.

    Attributes:
        sections: maps the title of a section to the names of its commands.
    """

    sections: Mapping[str, Sequence[str]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = {}

    def add_section(self, title: str, commands: Sequence[click.Command]) -> None:
        """Add commands as a section with a title."""
        for command in commands:
            self.add_command(command)
        self.sections = {**self.sections, title: [command.name or "" for command in commands]}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, then the commands that are in no section."""
        placed = {name for names in self.sections.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in placed]
        for title, names in {**self.sections, "Other commands": others}.items():
            self.write_commands(formatter, title, names)
