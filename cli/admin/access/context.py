"""``lmq-admin context``: named clusters with their connection options."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from lmqcluster.client.transport.tls import SYSTEM

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection import contexts
from ...shared.connection.credentials import given_credentials, wants_tls
from ...shared.connection.node_address import NODE_DEFAULT
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column

__all__ = ["context"]

_COLUMNS: Final = [
    Column("Context", "context"),
    Column("Selected", "selected"),
    Column("Node", "node"),
    Column("TLS", "tls"),
    Column("Token file", "token_file", rank=1),
]
_WHAT_COLUMNS: Final = [Column("What", "what"), Column("Value", "value")]


_NAME_ARGUMENT = click.argument("name", shell_complete=contexts.complete_context)
_NAME_OR_NONE = click.argument("name", required=False, shell_complete=contexts.complete_context)


@click.group(cls=AliasGroup)
def context() -> None:
    """Name clusters and save how to reach them.

    A context contains the address of a node and the names of files with the token, the authority and the certificate.
    --context NAME or LMQ_CONTEXT uses it; the selected context applies if neither --node nor LMQ_NODE names a node. Its
    options override LMQ_TOKEN and the other variables; options of the command line override it.
    """


@context.command("save", short_help="Create or change a context.")
@_NAME_ARGUMENT
@click.option("--select", is_flag=True, help="Also select the context.")
@target_options
def context_save(target: Target, name: str, select: bool) -> None:
    """Save the options --node, --token-file, --ca-file and --cert-file as the context NAME; replace an existing one.

    \b
    Example:
      lmq-admin context save prod --node q1.example.com:9980 --token-file ~/.lmq-token --ca-file ca.pem
    """
    given = given_credentials()
    if "token" in given:
        raise click.UsageError(
            "a context stores no tokens: write the token to a file that only you can read, and pass --token-file"
        )
    if target.given_node is None:
        raise click.UsageError("pass --node HOST:PORT")
    ca_file = given.get("ca_file", SYSTEM if wants_tls() else None)
    saved = contexts.Context(
        node=target.given_node,
        token_file=_absolute(given.get("token_file")),
        ca_file=ca_file if ca_file in (None, SYSTEM) else _absolute(ca_file),
        cert_file=_absolute(given.get("cert_file")),
    )
    is_new = contexts.save_context(name, saved)
    if select:
        contexts.select_context(name)
    if sys.stdout.isatty():
        print(f"Context {name} {'saved' if is_new else 'replaced'}{' and selected' if select else ''}.")


def _absolute(file: str | None) -> str | None:
    return None if file is None else str(Path(file).expanduser().absolute())


@context.command("ls")
@reads(_COLUMNS)
def context_ls(_target: Target) -> Report:
    """List all contexts.

    \b
    Example:
      lmq-admin context ls
    """
    selected = contexts.selected_name()
    rows: list[list[object]] = []
    for name in contexts.context_names():
        one = contexts.load_context(name)
        tls = None if one.ca_file is None and one.cert_file is None else one.ca_file or SYSTEM
        rows.append([name, "yes" if name == selected else None, one.node, tls, one.token_file])
    keys = [column.key for column in _COLUMNS]
    value = [dict(zip(keys, row, strict=True)) for row in rows]
    return Report(value, _COLUMNS, rows, empty="No contexts. Create one with lmq-admin context save.")


@context.command("show")
@_NAME_OR_NONE
@reads(_WHAT_COLUMNS)
def context_show(_target: Target, name: str | None) -> Report:
    """Show a context, by default the selected one. The token itself is not shown.

    \b
    Example:
      lmq-admin context show prod
    """
    name = name or contexts.selected_name()
    if name is None:
        raise CliError("no context is selected; name one", ExitCode.NOT_FOUND)
    found = {"context": name, **asdict(contexts.load_context(name))}
    return Report(found, _WHAT_COLUMNS, [[key, value] for key, value in found.items()])


@context.command("select", short_help="Select a context.")
@_NAME_OR_NONE
@click.option("--none", is_flag=True, help="Select no context.")
def context_select(name: str | None, none: bool) -> None:
    """Select the context to use if neither --context nor --node is given.

    \b
    Example:
      lmq-admin context select prod
    """
    if (name is None) is not none:
        raise click.UsageError("pass the name of a context, or --none")
    if name is not None:
        contexts.load_context(name)
    contexts.select_context(name)
    if sys.stdout.isatty():
        print(
            f"No context is selected; the default node is {NODE_DEFAULT}." if none else f"Context {name} is selected."
        )


@context.command("rm", short_help="Remove a context.")
@_NAME_ARGUMENT
@destructive_options
def context_rm(name: str, yes: bool, dry_run: bool) -> None:
    """Remove a context. The files that it names are kept.

    \b
    Example:
      lmq-admin context rm prod --yes
    """
    if name not in contexts.context_names():
        raise CliError(f"context {name!r} does not exist", ExitCode.NOT_FOUND)
    if confirm(f"remove the context {name}", yes=yes, dry_run=dry_run):
        contexts.remove_context(name)
