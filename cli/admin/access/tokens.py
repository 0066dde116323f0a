"""``lmq-admin token``: manages tokens and their permissions."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, target_options
from ...shared.output import Column, print_json, time_text

__all__ = ["token"]

_COLUMNS: Final = [
    Column("Token", "token"),
    Column("Role", "role"),
    Column("Queues", "queues"),
    Column("Principal", "principal", rank=1),
    Column("SQS", "sqs", rank=2),
    Column("Created", "created"),
    Column("Expires", "expires"),
]
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _names(api: Api, _incomplete: str) -> list[object]:
    return [one["name"] for one in api.get("/v1/tokens")["tokens"]]


@click.group(cls=AliasGroup)
def token() -> None:
    """Create, list and delete tokens; once one exists, clients need one."""


def _lifetime(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,10})([smhd])", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 90d, 12h, 30m or 45s")
    return int(match[1]) * _UNITS[match[2]]


@token.command("create", short_help="Create a token and print its secret.")
@click.argument("name")
@click.option("--role", required=True, type=click.Choice(["read", "write", "admin"]), help="Permissions of the token.")
@click.option(
    "--queues",
    default=".*",
    show_default=True,
    metavar="PATTERN",
    help="Regular expression that matches the names of permitted queues.",
)
@click.option("--expires-in", "lifetime_s", callback=_lifetime, metavar="TIME", help="Such as 90d, 12h or 30m.")
@click.option(
    "--principal",
    metavar="NAME",
    help="Owner of the state that its clients leave at the cluster; tokens can share it.  [default: the token's own]",
)
@click.option("--sqs", is_flag=True, help="Also make a secret access key for the SQS port.")
@target_options
def token_create(
    target: Target, name: str, role: str, queues: str, lifetime_s: int | None, principal: str | None, sqs: bool
) -> None:
    """Create a token and print its secret, which is shown only once.

    read inspects queues and messages; write also pushes, pulls, settles and sets properties of queues; admin also
    deletes, purges, moves and suspends queues and, if it is for all queues, manages default properties, members and
    tokens. The first token of a cluster must be an admin for all queues: from then on every client needs a token,
    including those on the machine of a node.

    Subscriptions, jobs and sessions belong to the token's principal. They outlive the token, and the next token with
    that principal continues them. The default of --principal is a new one with the token's name.

    With --sqs, clients can also sign requests to the SQS port: the access key ID is NAME, and the secret access key is
    derived from the secret of the token. The output can be appended to ~/.aws/credentials. The cluster stores this key:
    a reader of its state or of a backup can use it on the SQS port, but on no other port.

    \b
    Examples:
      lmq-admin token create shop --role write --queues '^orders' --expires-in 90d
      lmq-admin token create etl-2 --principal etl --role write
      lmq-admin token create billing --role write --sqs
    """
    wanted = {"name": name, "role": role, "queues": queues, "lifetime": lifetime_s, "principal": principal}
    if sqs:
        wanted["sqs"] = True
    made = target.api.post("/v1/tokens", wanted)
    if target.as_json:
        print_json(made)
        return
    if sys.stdout.isatty():
        print(f"The secret{'s are' if sqs else ' is'} shown only once:", file=sys.stderr)
    print(_credentials(made) if sqs else made["token"])


@token.command("list")
@reads(_COLUMNS)
def token_list(target: Target) -> Report:
    """List all tokens, without their secrets.

    \b
    Example:
      lmq-admin token list
    """
    found = target.api.get("/v1/tokens")
    rows = [
        [
            one["name"],
            one["role"],
            one["queues"],
            one["principal"],
            "yes" if one["sqs"] else "no",
            time_text(one["created_at"]),
            _format_expiry(one),
        ]
        for one in found["tokens"]
    ]
    return Report(found, _COLUMNS, rows, empty="No tokens: nodes serve clients on their own machine only.")


@token.command("delete", short_help="Delete a token.")
@click.argument("name", shell_complete=completes(_names))
@destructive_options
@target_options
def token_delete(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Delete a token. Its clients are refused from now on, and their connections are closed.

    State that they left at the cluster belongs to the token's principal and is kept.

    \b
    Example:
      lmq-admin token delete shop --yes
    """
    if confirm(f"delete token {name} and close the connections of its users", yes=yes, dry_run=dry_run):
        target.api.delete(f"/v1/tokens/{Api.segment(name)}")


def _credentials(made: dict[str, str]) -> str:
    """Return the secrets of a token as a part of the file ``~/.aws/credentials``."""
    name, key = made["name"], made["secret_access_key"]
    return (
        f"# Token for the other ports: {made['token']}\n"
        f"# Environment: AWS_ACCESS_KEY_ID={name} AWS_SECRET_ACCESS_KEY={key}\n"
        f"[{name}]\naws_access_key_id = {name}\naws_secret_access_key = {key}"
    )


def _format_expiry(one: dict[str, Any]) -> str:
    if one["expires_at"] is None:
        return "never"
    return ("expired " if one["expired"] else "") + time_text(one["expires_at"])
