"""What every destructive command does first: say what it will hit, and ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from .errors import CliError, ExitCode

__all__ = ["agreed", "destructive_options", "yes_option"]


def yes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes``."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def destructive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes`` and ``--dry-run``."""
    return yes_option(click.option("--dry-run", is_flag=True, help="Only say what would happen.")(function))


def agreed(what: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Whether to go on with it: after a question at a terminal, by ``--yes`` elsewhere; never with ``--dry-run``.

    Args:
        what: what will happen, with counts, as it completes "would ...".
        yes: whether ``--yes`` was given.
        dry_run: whether ``--dry-run`` was given.

    Raises:
        click.UsageError: nobody is there to be asked.
        CliError: the answer was no.
    """
    if dry_run:
        print(f"would {what}")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"this would {what}, and there is no terminal to ask on: pass --yes")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise CliError("not done", ExitCode.INTERRUPTED)
    return True
