"""Confirmation of destructive commands: describe the effect, then ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from .errors import CliError, ExitCode

__all__ = ["confirm", "destructive_options", "yes_option"]


def yes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes``."""
    return click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def destructive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes`` and ``--dry-run``."""
    return yes_option(
        click.option("--dry-run", is_flag=True, help="Print what would happen, without doing it.")(function)
    )


def confirm(what: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Return whether to proceed: ask on a terminal, require ``--yes`` elsewhere; False with ``--dry-run``.

    Args:
        what: the effect, with counts, as it completes "would ...".
        yes: whether ``--yes`` was given.
        dry_run: whether ``--dry-run`` was given.

    Raises:
        click.UsageError: there is no terminal to ask on.
        CliError: the user declined.
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
