"""``lmq-admin subscription``: who holds batch leases, and giving them back."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from .api import Api
from .output import Column, print_json, print_table
from .target import Target, queue_text, target_options

__all__ = ["subscription"]

_COLUMNS: Final = [
    Column("Subscription", "subscription"),
    Column("Settled", "settled", right=True),
    Column("Batches", "batches", right=True),
    Column("Messages", "messages", right=True),
    Column("First ends in (s)", "expires_in_s", right=True),
]
_BATCH_COLUMNS: Final = [
    Column("Epoch", "epoch", right=True),
    Column("State", "state"),
    Column("Messages", "messages", right=True),
    Column("Ends in (s)", "expires_in_s", right=True),
]


@click.group()
def subscription() -> None:
    """List subscriptions, whose consumers hold many messages under one lease, and give such leases back."""


@subscription.command("ls")
@target_options
def subscription_ls(target: Target) -> None:
    """List all subscriptions with what they hold."""
    found = target.api.get("/v1/subscriptions")
    if target.as_json:
        print_json(found)
        return
    rows = [_row(one) for one in found["subscriptions"]]
    print_table(_COLUMNS, rows, empty="No subscriptions.")


def _row(one: dict[str, Any]) -> list[object]:
    live = [batch for batch in one["batches"] if batch["state"] == "live"]
    first = min((int(batch["expires_in_s"]) for batch in live), default=None)
    return [queue_text(one["name"]), one["settled"], len(live), sum(batch["count"] for batch in live), first]


@subscription.command("show")
@click.argument("name", metavar="SUBSCRIPTION")
@target_options
def subscription_show(target: Target, name: str) -> None:
    """Show the batches of one subscription that are not settled."""
    found = target.api.get(_path(name))
    if target.as_json:
        print_json(found)
        return
    rows = [[one["epoch"], one["state"], one["count"], int(one["expires_in_s"])] for one in found["batches"]]
    print_table(_BATCH_COLUMNS, rows, empty=f"No open batches; settled up to epoch {found['settled']}.")


@subscription.command("abandon")
@click.argument("name", metavar="SUBSCRIPTION")
@click.option("--yes", is_flag=True, help="Do not ask.")
@target_options
def subscription_abandon(target: Target, name: str, yes: bool) -> None:
    """Give all batches of a subscription back: their messages return to their places in the queues, uncharged.

    A consumer that is still at work on them, or has stored them elsewhere, will see the messages again.
    """
    path = _path(name)
    count = sum(one["count"] for one in target.api.get(path)["batches"] if one["state"] == "live")
    what = f"{count:,} messages that subscription {name} holds"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"this would give back {what}: say --yes")
        click.confirm(f"Give back {what}?", abort=True, err=True)
    target.api.post(f"{path}/abandon", {})


def _path(name: str) -> str:
    return f"/v1/subscriptions/{Api.segment(name)}"
