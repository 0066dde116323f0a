"""``lmq-admin defaults``: the default properties, rules of a regular expression and the properties of matching queues."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from typing import Any, Final

import click

from lmqcluster.wire.errors import LmqError
from lmqcluster.wire.properties import parse_rules

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, make_console, plural
from .property_options import given_properties, property_options

__all__ = ["defaults"]

Rules = list[list[Any]]
_PATH: Final = "/properties"
_COLUMNS: Final = [
    Column("Rule", "rule", right=True),
    Column("Queues", "pattern"),
    Column("Properties", "properties"),
]


def _patterns(api: Api, _incomplete: str) -> list[object]:
    return [pattern for pattern, _properties in api.get(_PATH)]


@click.group(cls=AliasGroup)
def defaults() -> None:
    """Show and change the default properties of queues.

    Each rule has a regular expression and properties; the first rule that matches a queue's name applies.
    """


@defaults.command("show")
@reads(_COLUMNS)
def defaults_show(target: Target) -> Report:
    """Show the default properties in order.

    \b
    Example:
      lmq-admin defaults show --json > rules.json
    """
    rules = target.api.get(_PATH)
    rows = [(place, pattern, _text(properties)) for place, (pattern, properties) in enumerate(rules, 1)]
    return Report(rules, _COLUMNS, rows, empty="No default properties.")


@defaults.command("set", short_help="Replace all rules with those in a file.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@destructive_options
@target_options
def defaults_set(target: Target, file: str, yes: bool, dry_run: bool) -> None:
    """Replace all rules with those in FILE (- for standard input): JSON as `defaults show --json` prints it.

    The difference is shown before it is applied.

    \b
    Example:
      lmq-admin defaults set rules.json --dry-run
    """
    with click.open_file(file, "rb") as stream:
        rules = _parse("standard input" if file == "-" else file, stream.read())
    _replace(target, lambda _now: rules, yes=yes, dry_run=dry_run)


@defaults.command("edit", short_help="Change the rules in an editor.")
@destructive_options
@target_options
def defaults_edit(target: Target, yes: bool, dry_run: bool) -> None:
    """Change the rules in the editor named by VISUAL or EDITOR. The difference is shown before it is applied.

    \b
    Example:
      EDITOR=vi lmq-admin defaults edit
    """

    def edited(now: Rules) -> Rules:
        text = click.edit("[\n" + ",\n".join(f"  {_line(rule)}" for rule in now) + "\n]\n", extension=".json")
        return now if text is None else _parse("the edited text", text.encode())

    _replace(target, edited, yes=yes, dry_run=dry_run)


@defaults.command("add", short_help="Add a rule.")
@click.argument("pattern", metavar="REGEXP")
@property_options
@click.option("--last", is_flag=True, help="Add it after the others instead of before them.")
@destructive_options
@target_options
def defaults_add(target: Target, pattern: str, last: bool, yes: bool, dry_run: bool, **values: Any) -> None:
    """Add a rule for queues whose names match REGEXP, before the others; a rule with the same REGEXP is replaced in
    place.

    A TIME is a number of seconds, or a number with ms, s, m, h or d. A SIZE is a number of bytes, or a number with K, M
    or G.

    \b
    Example:
      lmq-admin defaults add '^mail[.]' --retry 5 --timeout 60
    """
    given = given_properties(values)
    if not given:
        raise click.UsageError(
            "pass at least one property, such as --retry, --timeout or --max-items; --help lists them"
        )
    rule: list[Any] = [pattern, given]

    def added(now: Rules) -> Rules:
        if any(old[0] == pattern for old in now):
            return [rule if old[0] == pattern else old for old in now]
        return [*now, rule] if last else [rule, *now]

    _replace(target, added, yes=yes, dry_run=dry_run)


@defaults.command("rm", short_help="Remove a rule.")
@click.argument("pattern", metavar="REGEXP", shell_complete=completes(_patterns))
@destructive_options
@target_options
def defaults_rm(target: Target, pattern: str, yes: bool, dry_run: bool) -> None:
    """Remove the rule with exactly this REGEXP. Exits with 66 if there is none.

    \b
    Example:
      lmq-admin defaults rm '^mail[.]'
    """

    def removed(now: Rules) -> Rules:
        kept = [rule for rule in now if rule[0] != pattern]
        if len(kept) == len(now):
            raise CliError(f"{target.node}: rule {pattern!r} does not exist", ExitCode.NOT_FOUND)
        return kept

    _replace(target, removed, yes=yes, dry_run=dry_run)


def _parse(where: str, data: bytes) -> Rules:
    """Return the rules in a file, validated before any request is sent.

    Raises:
        CliError: they are malformed.
    """
    try:
        rules = json.loads(data)
        parse_rules(rules)
    except ValueError as exc:
        raise CliError(f"{where} is not JSON: {exc}", ExitCode.BAD_DATA) from exc
    except LmqError as exc:
        raise CliError(f"{where}: {exc.message}", ExitCode.BAD_DATA) from exc
    return rules  # type: ignore[no-any-return]  # validated by parse_rules


def _replace(target: Target, change: Callable[[Rules], Rules], *, yes: bool, dry_run: bool) -> None:
    """Show the difference that a change makes, ask, and apply it."""
    now = target.api.get(_PATH)
    then = change(now)
    before, after = [_line(rule) for rule in now], [_line(rule) for rule in then]
    if before == after:
        click.echo("lmq-admin: no changes", err=True)
        return
    _print_difference(before, after)
    count = plural(len(then), "rule")
    if confirm(f"replace the default properties of the cluster with {count}, as shown", yes=yes, dry_run=dry_run):
        target.api.put(_PATH, then)


def _print_difference(before: list[str], after: list[str]) -> None:
    """Print a unified difference on standard error, so that standard output has only the requested data."""
    console = make_console(stderr=True)
    for line in difflib.unified_diff(before, after, "now", "then", lineterm="", n=1000):
        style = {"+": "green", "-": "red"}.get(line[0], "dim" if line.startswith("@") else "")
        if not line.startswith("@@"):
            console.print(line, style=style, markup=False, soft_wrap=True)


def _line(rule: list[Any]) -> str:
    return json.dumps(rule, ensure_ascii=False)


def _text(properties: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value if isinstance(value, (int, float)) else json.dumps(value)}" for key, value in properties.items()
    )
