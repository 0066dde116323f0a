"""Help pages: nothing is truncated, and common options are described once."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from lmqcluster_cli.admin.program import cli as lmq_admin
from lmqcluster_cli.lmq.program import cli as lmq
from lmqcluster_cli.pipeline.program import cli as lmq_pipeline

SHARED = ("--node", "--context", "--token", "--token-file", "--ca-file", "--cert-file", "--debug")


def pages(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the help page of a command and of all below it, by the words that call it."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from pages(inner, click.Context(inner, info_name=name, parent=context))


PAGES = {
    path: text
    for name, command in {"lmq": lmq, "lmq-admin": lmq_admin, "lmq-pipeline": lmq_pipeline}.items()
    for path, text in pages(command, click.Context(command, info_name=name))
}


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith("lmq-pipeline")])
def test_no_summary_is_cut_off(path: str) -> None:
    cut = [
        line
        for line in PAGES[path].splitlines()
        if line.endswith("...") and not line.lstrip().startswith(("-", "Usage"))
    ]
    assert cut == []


def test_the_options_of_every_command_are_on_one_page() -> None:
    assert all(f"{option} " in PAGES["lmq-admin"] for option in SHARED)
    commands = [text for path, text in PAGES.items() if path.startswith("lmq-admin ") and "  --node," in text]
    assert len(commands) > 30
    for text in commands:
        [line] = [line for line in text.splitlines() if "  --node," in line]
        assert line.strip() == "--node, --context, --token, ..."
        assert not any(f"  {option} " in text for option in SHARED)
        assert "lmq-admin --help" in " ".join(text.split()).replace("lmq- admin", "lmq-admin")
    assert "--ca-file FILE" in PAGES["lmq ping"], "that program has no separate page for them"


@pytest.mark.parametrize("program", ["lmq", "lmq-admin", "lmq-pipeline"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_program_completes_itself(program: str, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    {"lmq": lmq, "lmq-admin": lmq_admin, "lmq-pipeline": lmq_pipeline}[program].main(
        ["completion", shell], prog_name=program, standalone_mode=False
    )
    assert program in capsys.readouterr().out
