"""``lmq-admin job``: the positions of writers that store exactly once."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, completes, queue_text, target_options
from ...shared.output import Column

__all__ = ["job"]

_COLUMNS: Final = [
    Column("Job", "job"),
    Column("Owner", "owner", rank=1),
    Column("Finished epoch", "finished_epoch", right=True),
    Column("Open epoch", "open_epoch", right=True),
    Column("Messages", "messages", right=True),
    Column("Notes (bytes)", "note_bytes", right=True, rank=2),
    Column("Idle (s)", "idle_s", right=True),
]


def _names(api: Api, _incomplete: str) -> list[object]:
    return [one["name"] for one in api.get("/v1/jobs")["jobs"]]


@click.group(cls=AliasGroup)
def job() -> None:
    """List and forget the jobs of writers that store exactly once.

    A write of Spark is such a job.
    """


@job.command("ls")
@reads(_COLUMNS)
def job_ls(target: Target) -> Report:
    """List the jobs, the least recently used first.

    The cluster forgets a job that was not used for 30 days.

    \b
    Example:
      lmq-admin job ls
    """
    found = target.api.get("/v1/jobs")
    return Report(found, _COLUMNS, [_row(one) for one in found["jobs"]], empty="No jobs.")


def _row(one: dict[str, Any]) -> list[object]:
    return [
        queue_text(one["name"]),
        queue_text(one["owner"]) or None,
        one["finished_epoch"],
        one["open_epoch"],
        one["messages"],
        one["note_bytes"],
        int(one["idle_s"]),
    ]


@job.command("rm")
@click.argument("name", metavar="JOB", shell_complete=completes(_names))
@click.option("--owner", metavar="PRINCIPAL", help="The principal that the job belongs to.  [default: your own]")
@destructive_options
@target_options
def job_rm(target: Target, name: str, owner: str | None, yes: bool, dry_run: bool) -> None:
    """Forget a job. Repeating its writes stores all their rows again.

    \b
    Example:
      lmq-admin job rm spark/application/nightly --yes
    """
    if not confirm(f"forget job {name}: if it is repeated, its rows are stored again", yes=yes, dry_run=dry_run):
        return
    query = "" if owner is None else f"?{urlencode({'owner': owner})}"
    target.api.delete(f"/v1/jobs/{Api.segment(name)}{query}")
