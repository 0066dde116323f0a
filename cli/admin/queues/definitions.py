"""``lmq-admin definitions``: exports and imports the configuration of a cluster's queues."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Any

import click

from lmqcluster.wire.errors import LmqError

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, exit_code_of
from ...shared.output import plural
from .definition_changes import Change, Secrets, changes
from .definition_file import (
    FILE_BYTES_MAX,
    Definitions,
    QueueDefinition,
    TokenDefinition,
    parse_definitions,
    queue_name,
)
from .queue_list import all_queues

__all__ = ["definitions"]


@click.group(cls=AliasGroup)
def definitions() -> None:
    """Export and import default properties, properties and bindings of queues, and tokens."""


@definitions.command("export", short_help="Write the definitions of the cluster as JSON.")
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@target_options
def definitions_export(target: Target, file: str) -> None:
    """Write the definitions of the cluster as JSON to FILE, or to standard output.

    They contain the default properties, the queues with their own properties, annotations or bindings or that are
    suspended, and the tokens without secrets. For messages, see lmq-admin backup and lmq-admin drain.

    \b
    Example:
      lmq-admin definitions export cluster.json
    """
    text = json.dumps(_export(target.api).as_json(), indent=2, ensure_ascii=False) + "\n"
    if file == "-":
        click.echo(text, nl=False)
    else:
        Path(file).write_text(text, encoding="utf-8")


def _export(api: Api) -> Definitions:
    queues = []
    for row in all_queues(api, fields="suspended"):
        found = _found(api, row["name"])
        if found is None:
            continue
        own, annotations = found["own_properties"], found["annotations"]
        bindings = api.get(f"/v1/queues/{Api.segment(queue_name(row['name']))}/bindings")["targets"]
        if own or annotations or bindings or row["suspended"]:
            queues.append(QueueDefinition(row["name"], own, row["suspended"], bindings, annotations or None))
    tokens = [
        TokenDefinition(one["name"], one["role"], one["queues"], one["expires_at"], one["principal"], one["sqs"])
        for one in api.get("/v1/tokens")["tokens"]
        if not one["expired"]
    ]
    return Definitions(api.get("/properties"), queues, tokens)


def _found(api: Api, name: object) -> dict[str, Any] | None:
    """Return a queue; None if it was deleted since it was listed."""
    try:
        found: dict[str, Any] = api.get(f"/v1/queues/{Api.segment(queue_name(name))}")
    except LmqError as exc:
        if exc.code != "queue_not_found":
            raise
        return None
    return found


@definitions.command("import", short_help="Apply a file of definitions to the cluster.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--new-tokens",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Create missing tokens with new secrets, and write the secrets to this new file.",
)
@destructive_options
@target_options
def definitions_import(target: Target, file: str, new_tokens: str | None, yes: bool, dry_run: bool) -> None:
    """Apply the definitions in FILE (- for standard input), as written by `definitions export`.

    The default properties are replaced. Queues in the file get exactly the properties and bindings in the file, and are
    created if they do not exist. Everything else is kept. The changes are shown first; an import may be repeated.

    \b
    Example:
      lmq-admin definitions import cluster.json --dry-run
    """
    with click.open_file(file, "rb") as stream:
        wanted = parse_definitions("standard input" if file == "-" else file, _read_bounded(stream))
    api = target.api
    todo, remarks = changes(api, wanted, Secrets(new_tokens))
    for remark in remarks:
        click.echo(f"lmq-admin: {remark}", err=True)
    if not todo:
        click.echo("lmq-admin: no changes", err=True)
        return
    for change in todo:
        click.echo(f"would {change.text}", err=not dry_run)
    if dry_run or not confirm(f"make {plural(len(todo), 'change')}, as shown", yes=yes):
        return
    _make(api, todo)
    if sys.stdout.isatty():
        print(f"{plural(len(todo), 'change was', 'changes were')} made.")


def _read_bounded(stream: IO[bytes]) -> bytes:
    return stream.read(FILE_BYTES_MAX + 1)


def _make(api: Api, todo: list[Change]) -> None:
    for done, change in enumerate(todo):
        try:
            change.make(api)
        except (LmqError, CliError) as exc:
            text = exc.message if isinstance(exc, LmqError) else str(exc)
            code = exit_code_of(exc) if isinstance(exc, LmqError) else exc.exit_code
            how_far = f"{done} of {plural(len(todo), 'change was', 'changes were')} made; the import may be repeated"
            raise CliError(f"cannot {change.text}: {text} ({how_far})", code) from exc
