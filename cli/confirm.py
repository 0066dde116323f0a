"""What every destructive command does first: say what it will hit, and ask."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

__all__ = ["agreed", "destructive_options"]


def destructive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--yes`` and ``--dry-run``."""
    function = click.option("--dry-run", is_flag=True, help="Only say what would happen.")(function)
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def agreed(what: str, *, yes: bool, dry_run: bool, unattended: bool = False) -> bool:
    """Whether to go on with it: after a question at a terminal, by ``--yes`` elsewhere; never with ``--dry-run``.

    Args:
        what: what will happen, with counts, as it completes "would ...".
        yes: whether ``--yes`` was given.
        dry_run: whether ``--dry-run`` was given.
        unattended: whether a script need not say ``--yes``, because LMQ's command did not ask either.

    Raises:
        click.UsageError: nobody is there to be asked.
        click.Abort: the answer was no.
    """
    if dry_run:
        print(f"would {what}")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        if unattended:
            return True
        raise click.UsageError(f"this would {what}: say --yes")
    click.confirm(f"{what[0].upper()}{what[1:]}?", abort=True, err=True)
    return True
