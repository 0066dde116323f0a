"""The commands that pages mention exist, with the options and at most as many arguments as they accept."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq

ROOT = Path(__file__).parents[3]
PROGRAMS = {"lmq-admin": lmq_admin, "lmq": lmq}
INLINE = re.compile(r"(?<!`)`((?:lmq-admin|lmq) [^`\n\[]+)`(?!`)")


def commands() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (str(page.relative_to(ROOT)), line)
        for page in pages
        for line in INLINE.findall(page.read_text(encoding="utf-8"))
    ]


def complaint(line: str) -> str:
    """Return the error in a command as written; empty if there is none."""
    program, *words = shlex.split(line)
    command: click.Command = PROGRAMS[program]
    while isinstance(command, click.Group) and words:
        if words[0].startswith("-"):
            flag = _option(command, words[0])
            if flag is None:
                return f"no option {words[0]}"
            words = words[1:] if flag.is_flag or "=" in words[0] else words[2:]
            continue
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
    return _rest(command, words)


def _rest(command: click.Command, words: list[str]) -> str:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    room = 1_000 if any(one.nargs < 0 for one in arguments) else sum(one.nargs for one in arguments)
    while words:
        word, *words = words
        if word in {"...", "|"}:
            continue
        if word.startswith("-"):
            option = _option(command, word)
            if option is None and word not in {"-h", "--help"}:
                return f"no option {word}"
            takes_value = option is not None and not option.is_flag and not option.count and "=" not in word
            words = words[1:] if takes_value else words
        else:
            room -= 1
        if room < 0:
            return f"no place for {word}"
    return ""


def _option(command: click.Command, word: str) -> click.Option | None:
    name = word.split("=", maxsplit=1)[0]
    options = (one for one in command.params if isinstance(one, click.Option))
    return next((one for one in options if name in {*one.opts, *one.secondary_opts}), None)


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_mentioned_command_is_valid(page: str, line: str) -> None:
    assert complaint(line) == "", page


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("lmq-admin queue set NAME retry=5", "no place for retry=5"),
        ("lmq-admin queue sett NAME", "no command sett"),
        ("lmq-admin --nodes q1 status", "no option --nodes"),
        ("lmq-admin queue purge NAME --keeep 3", "no option --keeep"),
    ],
)
def test_a_wrong_one_is_found(line: str, wrong: str) -> None:
    assert complaint(line) == wrong
