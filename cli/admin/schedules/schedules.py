"""``lmq-admin schedule``: messages that the cluster pushes at given times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, complete_queue, completes, queue_text, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, time_text
from ...shared.units import duration
from ..queues.contents import content_json

__all__ = ["schedule"]

_PAGE: Final = 1_000
_COLUMNS: Final = [
    Column("Schedule", "name"),
    Column("Queue", "queue", cut="middle"),
    Column("Rule", "rule"),
    Column("Zone", "zone", rank=1),
    Column("State", "state"),
    Column("Next (UTC)", "next_s"),
    Column("Last (UTC)", "last_s", rank=2),
    Column("Pushed", "pushed", right=True),
    Column("Missed", "missed_total", right=True),
    Column("Refused", "refused", right=True, rank=1),
]
_SHOWN_COLUMNS: Final = [Column("Member", "member"), Column("Value", "value")]
_TIMES: Final = ("start_s", "end_s", "next_s", "last_s", "created_s")


def _rows(api: Api) -> Iterator[dict[str, Any]]:
    """Yield the schedules, page by page."""
    after: Any = ""
    while after is not None:
        page = api.get(f"/v1/schedules?limit={_PAGE}&after={quote(queue_text(after), safe='')}")
        yield from page["schedules"]
        after = page["next"]


def _names(api: Api, _incomplete: str) -> list[object]:
    return [one["name"] for one in api.get(f"/v1/schedules?limit={_PAGE}")["schedules"]]


def _path(name: str) -> str:
    return f"/v1/schedules/{Api.segment(name)}"


def _moment(text: str) -> float:
    """Return the Unix time of an ISO 8601 date; without an offset it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise click.BadParameter(f"{text!r} is no date such as 2030-01-31T09:00:00+01:00") from exc
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _shown_time(unix_s: float | None) -> str | None:
    return None if unix_s is None else time_text(unix_s)


_NAME = click.argument("name", metavar="SCHEDULE", shell_complete=completes(_names))


@click.group(cls=AliasGroup)
def schedule() -> None:
    """Add, list, pause and remove schedules.

    A schedule pushes a message into a queue at each of its due times, exactly once.
    """


@schedule.command("add", short_help="Create or replace a schedule.")
@click.argument("name", metavar="SCHEDULE")
@click.argument("queue", metavar="QUEUE", shell_complete=complete_queue)
@click.argument("content", required=False)
@click.option("--every", "interval", type=duration, metavar="TIME", help="Time between two due times, at least 1s.")
@click.option("--cron", metavar="RULE", help="Cron expression of five fields, or of six with seconds first.")
@click.option("--zone", metavar="ZONE", help="IANA time zone of the cron expression.  [default: UTC]")
@click.option("--start", type=_moment, metavar="DATE", help="First possible due time, as ISO 8601.")
@click.option("--end", type=_moment, metavar="DATE", help="Last possible due time, as ISO 8601.")
@click.option("--jitter", type=duration, metavar="TIME", help="Longest random delay of each message.")
@click.option("--missed", type=click.Choice(["skip", "once"]), help="Policy for missed due times.  [default: skip]")
@click.option("--content-type", help="Content type of the messages.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Attribute of the messages.")
@click.option("--delay", type=duration, metavar="TIME", help="Delay until a message becomes ready.")
@click.option("--ttl", type=duration, metavar="TIME", help="Time to live of a message.")
@click.option("--priority", type=int, metavar="N", help="Priority; lower is delivered first.  [default: 0]")
@click.option("--label", help="Label by which the messages can be found while they wait.")
@click.option(
    "--group", help="Group, whose messages are delivered in order, or in turn with other groups; see group_mode."
)
@target_options
def schedule_add(
    target: Target, name: str, queue: str, content: str | None, attributes: tuple[str, ...], **options: Any
) -> None:
    """Create a schedule, or replace the one of this name. The message is CONTENT, or standard input if it is omitted.

    A schedule that exists with the same definition keeps its next due time.

    \b
    Examples:
      lmq-admin schedule add report jobs 'nightly report' --cron '30 2 * * *' --zone Europe/Berlin --missed once
      lmq-admin schedule add poll jobs poll --every 30s --jitter 5s
    """
    if (options["interval"] is None) == (options["cron"] is None):
        raise click.UsageError("give either --every or --cron")
    data = sys.stdin.buffer.read() if content is None else content.encode(errors="surrogateescape")
    body = {
        "queue": queue,
        "content": content_json(data),
        **{key: one for key, one in options.items() if one is not None},
    }
    if attributes:
        body["attributes"] = dict(_attribute(one) for one in attributes)
    answer = target.api.put(_path(name), body)
    target.print_result(answer, f"Schedule {name} is {answer['result']}.")


def _attribute(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} must have the form NAME=VALUE", param_hint="--attribute")
    return name, value


@schedule.command("ls")
@reads(_COLUMNS)
def schedule_ls(target: Target) -> Report:
    """List the schedules by name.

    Missed are due times that were dropped; Refused are messages that the queue had no room for.

    \b
    Example:
      lmq-admin schedule ls
    """
    found = list(_rows(target.api))
    return Report({"schedules": found}, _COLUMNS, [_row(one) for one in found], empty="No schedules.")


def _row(one: dict[str, Any]) -> list[object]:
    state = "paused" if one["paused"] else "ended" if one["ended"] else "active"
    return [
        *(
            queue_text(one["name"]),
            queue_text(one["queue"]),
            one["cron"] or f"every {one['interval_s']:g} s",
            one["zone"],
        ),
        *(state, _shown_time(one["next_s"]), _shown_time(one["last_s"])),
        *(one["pushed"], one["missed_total"], one["refused"]),
    ]


@schedule.command("show")
@_NAME
@reads(_SHOWN_COLUMNS)
def schedule_show(target: Target, name: str) -> Report:
    """Show a schedule with its message. Times are in UTC.

    \b
    Example:
      lmq-admin schedule show report
    """
    found = target.api.get(_path(name))
    rows: list[list[object]] = [
        [
            member,
            _shown_time(value) if member in _TIMES else value if isinstance(value, int | float) else _text_of(value),
        ]
        for member, value in found.items()
        if value not in (None, {}) and member != "stale"
    ]
    return Report(found, _SHOWN_COLUMNS, rows)


def _text_of(value: Any) -> str:
    """Return a member as text."""
    return (
        queue_text(value) if isinstance(value, str) or (isinstance(value, dict) and "base64" in value) else str(value)
    )


@schedule.command("pause")
@_NAME
@target_options
def schedule_pause(target: Target, name: str) -> None:
    """Stop a schedule until it is resumed.

    \b
    Example:
      lmq-admin schedule pause report
    """
    target.api.post(f"{_path(name)}/pause", {})


@schedule.command("resume")
@_NAME
@target_options
def schedule_resume(target: Target, name: str) -> None:
    """Continue a paused schedule. Due times that passed in between were missed.

    \b
    Example:
      lmq-admin schedule resume report
    """
    target.api.post(f"{_path(name)}/resume", {})


@schedule.command("run-now")
@_NAME
@target_options
def schedule_run_now(target: Target, name: str) -> None:
    """Push the message of a schedule now, in addition to its due times.

    \b
    Example:
      lmq-admin schedule run-now report
    """
    target.api.post(f"{_path(name)}/run", {})


@schedule.command("rm")
@_NAME
@destructive_options
@target_options
def schedule_rm(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Delete a schedule. Messages that it has pushed stay in their queue.

    \b
    Example:
      lmq-admin schedule rm report --yes
    """
    if not any(one["name"] == name for one in _rows(target.api)):
        raise CliError(f"schedule {name} does not exist; see lmq-admin schedule ls", ExitCode.NOT_FOUND)
    if confirm(f"delete schedule {name}", yes=yes, dry_run=dry_run):
        target.api.delete(_path(name))
