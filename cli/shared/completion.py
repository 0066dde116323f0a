"""The command ``completion`` of the programs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion_command"]

_SHELLS = ("bash", "zsh", "fish")


def completion_command(cli: click.Group, program: str, note: str) -> click.Command:
    """Return the command that prints the completion script of a program.

    Args:
        cli: the program's commands.
        program: the program's name.
        note: the kinds of words that it completes, for the help text.
    """

    def completion(shell: str) -> None:
        kind = get_completion_class(shell)
        if kind is None:
            raise click.UsageError(f"completion is not available for {shell}; use bash, zsh or fish")
        print(kind(cli, {}, program, f"_{program.upper().replace('-', '_')}_COMPLETE").source())

    text = f"""Print a script that completes {program}'s {note}.

    \b
    Examples, for bash, zsh and fish:
      eval "$({program} completion bash)"
      eval "$({program} completion zsh)"
      {program} completion fish | source
    """
    shell = click.Argument(["shell"], type=click.Choice(_SHELLS))
    short = "Print a completion script for the shell."
    return click.Command("completion", callback=completion, params=[shell], help=text, short_help=short)
