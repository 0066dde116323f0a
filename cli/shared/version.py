"""The option ``--version`` and the command ``version`` of the programs."""

from __future__ import annotations

import click

__all__ = ["version_command", "version_option"]

version_option = click.version_option(package_name="lmqcluster", message="lmqcluster %(version)s")


def version_command(program: str) -> click.Command:
    """Return the command that prints the version of a program."""
    text = f"Print the version of the program, as --version does.\n\n\b\nExample:\n  {program} version"
    return click.Command("version", callback=_print_version, help=text, short_help="Print the version.")


def _print_version() -> None:
    # Reading the package's metadata takes longer than any other import of a program's start.
    from lmqcluster.version import __version__  # noqa: PLC0415

    print(f"lmqcluster {__version__}")
