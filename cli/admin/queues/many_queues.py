"""Operations on all queues whose names match a regular expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from lmqcluster.wire.errors import LmqError

from ...shared.confirm import confirm
from ...shared.connection.api import Api
from ...shared.connection.target import queue_text
from ...shared.errors import CliError, ExitCode, exit_code_of
from ...shared.output import plural
from .contents import content_bytes
from .queue_list import all_queues

__all__ = ["do_to_matching", "pattern_option", "require_name_or_pattern"]

SHOWN_MAX: Final = 20
"""Maximum number of queues listed in a question; ``--dry-run`` lists all."""

Row = Mapping[str, Any]


def pattern_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--pattern``, also known as ``--match``, as in ``queue ls``; the function gets it as `pattern`."""
    text = "All queues whose names match this regular expression, instead of one QUEUE."
    return click.option("--pattern", "--match", "pattern", metavar="REGEXP", help=text)(function)


def require_name_or_pattern(name: str | None, pattern: str | None) -> None:
    """Check that exactly one of the two is given.

    Raises:
        click.UsageError: neither is given, or both are.
    """
    if (name is None) is (pattern is None):
        raise click.UsageError("pass either the name of a queue or --pattern REGEXP")


def do_to_matching(
    api: Api,
    pattern: str,
    *,
    text_of: Callable[[Row], str],
    summary: Callable[[Sequence[Row]], str],
    do: Callable[[str], object],
    yes: bool,
    dry_run: bool,
) -> list[Any] | None:
    """Show what will happen to which queues, ask once, and process them one after another.

    A queue that no longer exists is skipped.

    Args:
        text_of: the effect on one queue, as it completes "would ...".
        summary: the effect on all of them.
        do: processes the queue with this name.

    Returns:
        The results of `do`; None if nothing was to be done.

    Raises:
        CliError: no queue matches, `do` failed, or the user declined.
    """
    query = pattern.encode(errors="surrogateescape")
    rows = list(all_queues(api, pattern=query, fields="size,leased"))
    if not rows:
        raise CliError(f"{api.address}: no queue matches {pattern!r}", ExitCode.NOT_FOUND)
    if dry_run or not yes:
        _show(rows, text_of, dry_run=dry_run)
    if dry_run or not confirm(f"{summary(rows)}, as shown", yes=yes):
        return None
    results = []
    for done, row in enumerate(rows):
        try:
            results.append(do(content_bytes(row["name"]).decode(errors="surrogateescape")))
        except LmqError as exc:
            if exc.code != "queue_not_found":
                text = (
                    f"queue {queue_text(row['name'])}: {exc.message} ({done} of {plural(len(rows), 'queue')} were done)"
                )
                raise CliError(text, exit_code_of(exc)) from exc
    return results


def _show(rows: Sequence[Row], text_of: Callable[[Row], str], *, dry_run: bool) -> None:
    shown = rows if dry_run else rows[:SHOWN_MAX]
    for row in shown:
        click.echo(f"would {text_of(row)}", err=not dry_run)
    if len(rows) > len(shown):
        click.echo(f"... and {plural(len(rows) - len(shown), 'further queue')} (--dry-run lists all)", err=True)
