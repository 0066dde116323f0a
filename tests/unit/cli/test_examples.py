"""Every command has an example in its help, and the program accepts it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq
from lmqcluster_cli.pipeline.program import cli as lmq_pipeline

PROGRAMS: dict[str, click.Group] = {"lmq": lmq, "lmq-admin": lmq_admin, "lmq-pipeline": lmq_pipeline}
_BLOCK = re.compile(r"^  Examples?[^\n]*:\n((?:    .*\n)+)", re.MULTILINE)
_WORDS_OF_SHELLS = re.compile(r"^[A-Z]+=\S+ |^eval \"\$\(|\)\"$| [>|] .*$")


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the help of every command that is not a group, by the words that call it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, click.Context(inner, info_name=name, parent=context, max_content_width=200))
    else:
        yield context.command_path, command.get_help(context)


HELP = {
    path: text
    for name, program in PROGRAMS.items()
    for path, text in commands(program, click.Context(program, info_name=name))
}


def examples(path: str) -> list[str]:
    """Return the example lines of a command's help."""
    return [line.strip() for block in _BLOCK.findall(HELP[path]) for line in block.splitlines()]


def called(words: list[str]) -> str:
    """Parse a command line without executing it; return the words of the command."""
    command: click.Command = PROGRAMS[words[0]]
    context = command.make_context(words[0], words[1:])
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context.command_path


def test_every_command_has_an_example() -> None:
    assert len(HELP) > 60
    assert [path for path in HELP if not examples(path)] == []


@pytest.mark.parametrize("path", HELP)
def test_the_program_accepts_the_example(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in examples(path):
        words = shlex.split(_WORDS_OF_SHELLS.sub("", _WORDS_OF_SHELLS.sub("", example)))
        for word in words:
            if re.fullmatch(r"[a-z]+\.[a-z]+", word):
                (tmp_path / word).touch()
        assert called(words) == path


def test_a_wrong_example_is_found() -> None:
    for words in (["lmq-admin", "queue", "ls", "--nonsense"], ["lmq-admin", "queue", "set", "q", "--retry", "many"]):
        with pytest.raises(click.UsageError):
            called(words)
