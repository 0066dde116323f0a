"""``lmq-admin subscription``: lists and releases batch leases."""

from __future__ import annotations

from typing import Any, Final

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, queue_text, target_options
from ...shared.output import Column, plural

__all__ = ["subscription"]

_COLUMNS: Final = [
    Column("Subscription", "subscription"),
    Column("Owner", "owner", rank=1),
    Column("Settled", "settled", right=True),
    Column("Batches", "batches", right=True),
    Column("Messages", "messages", right=True),
    Column("First expires in (s)", "expires_in_s", right=True),
]
_BATCH_COLUMNS: Final = [
    Column("Epoch", "epoch", right=True),
    Column("State", "state"),
    Column("Messages", "messages", right=True),
    Column("Expires in (s)", "expires_in_s", right=True),
]


def _names(api: Api, _incomplete: str) -> list[object]:
    return [one["name"] for one in api.get("/v1/subscriptions")["subscriptions"]]


@click.group(cls=AliasGroup)
def subscription() -> None:
    """List and release batch leases.

    A subscription's consumers hold many messages under one lease, as Spark does.
    """


@subscription.command("ls")
@reads(_COLUMNS)
def subscription_ls(target: Target) -> Report:
    """List all subscriptions with what they hold.

    \b
    Example:
      lmq-admin subscription ls
    """
    found = target.api.get("/v1/subscriptions")
    return Report(found, _COLUMNS, [_row(one) for one in found["subscriptions"]], empty="No subscriptions.")


def _row(one: dict[str, Any]) -> list[object]:
    live = [batch for batch in one["batches"] if batch["state"] == "live"]
    first = min((int(batch["expires_in_s"]) for batch in live), default=None)
    return [
        queue_text(one["name"]),
        queue_text(one["owner"]) or None,
        one["settled"],
        len(live),
        sum(batch["count"] for batch in live),
        first,
    ]


@subscription.command("show")
@click.argument("name", metavar="SUBSCRIPTION", shell_complete=completes(_names))
@reads(_BATCH_COLUMNS)
def subscription_show(target: Target, name: str) -> Report:
    """Show the unsettled batches of one subscription.

    \b
    Example:
      lmq-admin subscription show nightly
    """
    found = target.api.get(_path(name))
    rows = [[one["epoch"], one["state"], one["count"], int(one["expires_in_s"])] for one in found["batches"]]
    return Report(found, _BATCH_COLUMNS, rows, empty=f"No open batches; settled up to epoch {found['settled']}.")


@subscription.command("abandon")
@click.argument("name", metavar="SUBSCRIPTION", shell_complete=completes(_names))
@destructive_options
@target_options
def subscription_abandon(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Release all batches of a subscription: their messages return to their positions in the queues, without counting a
    delivery.

    A consumer that is still processing them, or has stored them elsewhere, will see the messages again.

    \b
    Example:
      lmq-admin subscription abandon nightly --yes
    """
    count = _count_held(target, name)
    if not confirm(f"release {plural(count, 'message')} that subscription {name} holds", yes=yes, dry_run=dry_run):
        return
    target.api.post(f"{_path(name)}/abandon", {})


@subscription.command("rm")
@click.argument("name", metavar="SUBSCRIPTION", shell_complete=completes(_names))
@destructive_options
@target_options
def subscription_rm(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Forget a subscription and release what it holds.

    A consumer that continues with it afterwards starts over, without the record of what it has settled.

    \b
    Example:
      lmq-admin subscription rm nightly --yes
    """
    count = _count_held(target, name)
    if not confirm(f"forget subscription {name} and release its {plural(count, 'message')}", yes=yes, dry_run=dry_run):
        return
    target.api.delete(_path(name))


def _count_held(target: Target, name: str) -> int:
    """Return how many messages a subscription holds."""
    return sum(one["count"] for one in target.api.get(_path(name))["batches"] if one["state"] == "live")


def _path(name: str) -> str:
    return f"/v1/subscriptions/{Api.segment(name)}"
