"""``lmq-admin queue``: single queues, their properties, and operations on all messages of a queue."""

from __future__ import annotations

import json
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from lmqcluster.wire.queue_options import QUEUE_OPTIONS

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, complete_queue, queue_text, queue_value, target_options
from ...shared.output import Column, plural, time_text
from .creation import queue_create
from .many_queues import do_to_matching, pattern_option, require_name_or_pattern
from .property_options import annotations_option, given_annotations, given_properties, property_options
from .queue_links import BULK_TIMEOUT_S
from .queue_links import COMMANDS as LINK_COMMANDS
from .queue_list import all_queues, queue_exists, queue_path, require_queue, sequence_option

__all__ = ["queue"]

_QUEUE_COLUMNS: Final = [
    Column("Queue", "queue", cut="middle"),
    Column("Ready", "ready", right=True),
    Column("Leased", "leased", right=True),
    Column("Delayed", "delayed", right=True, rank=3),
    Column("Accumulating", "accumulating", right=True, rank=3),
    Column("Bytes", "bytes", right=True, unit="bytes"),
    Column("Oldest (s)", "oldest_age_s", right=True, digits=1, rank=2),
    Column("Pushed", "pushed_total", right=True, rank=1),
    Column("Pulled", "pulled_total", right=True, rank=1),
    Column("Push/s", "push_rate", right=True, digits=1, extra=True),
    Column("Pull/s", "pull_rate", right=True, digits=1, extra=True),
    Column("Timed out", "redelivered_total", right=True, extra=True),
    Column("Dropped", "dropped_total", right=True, extra=True),
    Column("Dead letters", "dead_letters", right=True, rank=3),
    Column("State", "state", rank=2),
]
STATES: Final = ("ready", "leased", "delayed", "empty", "suspended", "dropped", "dead_letters")
_SORTS: Final = {
    "queue": "name",
    "ready": "ready",
    "leased": "leased",
    "delayed": "delayed",
    "bytes": "bytes",
    "oldest_age_s": "oldest",
    "pushed_total": "pushed",
    "pulled_total": "pulled",
    "push_rate": "push_rate",
    "pull_rate": "pull_rate",
    "redelivered_total": "redelivered",
    "dropped_total": "dropped",
    "dead_letters": "dead_letters",
}
_WHAT_COLUMNS: Final = [Column("What", "what"), Column("Value", "value"), Column("Set", "set")]
PAGE_MAX: Final = 10_000
_QUEUE_ARGUMENT = click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
_QUEUE_OR_PATTERN = click.argument("name", metavar="[QUEUE]", required=False, shell_complete=complete_queue)


@click.group(cls=AliasGroup)
def queue() -> None:
    """Create, list, show, change, bind, empty and delete queues.

    The first push or pull also creates a queue, a plain one.
    """


@queue.command("ls")
@click.option("--name", metavar="TEXT", help="Only queues whose names contain this text, ignoring case.")
@click.option(
    "--match",
    "--pattern",
    "match",
    metavar="REGEXP",
    help="Only queues whose names match this regular expression.",
)
@click.option("--state", type=click.Choice(STATES), help="Only queues with such messages, or in this state.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, PAGE_MAX), help="Only the first N, in the order of --sort."
)
@reads(_QUEUE_COLUMNS)
def queue_ls(target: Target, name: str | None, match: str | None, state: str | None, limit: int | None) -> Report:
    """List queues with their counts.

    \b
    Examples:
      lmq-admin queue ls --match '^orders' --sort=-ready
      lmq-admin queue ls --state suspended
    """
    # Arguments that are not UTF-8 are sent as raw bytes.
    given = (("name", name), ("pattern", match), ("state", state))
    query = {key: value.encode(errors="surrogateescape") for key, value in given if value is not None}
    if limit is None:
        queues = list(all_queues(target.api, **query))
        answer: dict[str, Any] = {"queues": queues, "total": len(queues), "next": None}
    else:
        answer = target.api.get(f"/v1/queues?{urllib.parse.urlencode({**query, **_order(target), 'limit': limit})}")
    rows = [_queue_row(item) for item in answer["queues"]]
    further = answer["total"] - len(rows)
    remark = f"({further:,} further queues match.)" if further else ""
    return Report(answer, _QUEUE_COLUMNS, rows, empty="No queues.", remark=remark, is_sorted=limit is not None)


def _order(target: Target) -> dict[str, str]:
    """Return the order in the node's terms, so that it sends only the rows that are shown."""
    key = target.view.sort.removeprefix("-") or "queue"
    if key not in _SORTS:
        raise click.UsageError(f"with --limit, queues can be sorted by {', '.join(_SORTS)}")
    return {"sort": _SORTS[key], "order": "desc" if target.view.sort.startswith("-") else "asc"}


def _queue_row(item: Mapping[str, Any]) -> list[object]:
    known = {"queue": queue_text(item["name"]), "state": "suspended" if item["suspended"] else None}
    return [known[column.key] if column.key in known else item[column.key] for column in _QUEUE_COLUMNS]


@queue.command("show")
@_QUEUE_ARGUMENT
@reads(_WHAT_COLUMNS)
def queue_show(target: Target, name: str) -> Report:
    """Show the counts of one queue and its properties, its own and the defaults.

    \b
    Example:
      lmq-admin queue show orders
    """
    found = target.api.get(queue_path(name))
    rows: list[list[object]] = [
        [key, time_text(value) if key in _TIMES else _value_text(value), None]
        for key, value in found.items()
        if "properties" not in key and key != "annotations"
    ]
    rows += [
        [key, _value_text(value), "own" if key in found["own_properties"] else "default"]
        for key, value in found["properties"].items()
    ]
    rows += [[key, value, "annotation"] for key, value in found["annotations"].items()]
    return Report(found, _WHAT_COLUMNS, rows)


_TIMES = ("created_at", "changed_at")


def _value_text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (dict, list)) and not (isinstance(value, dict) and value.keys() == {"base64"}):
        return json.dumps(value, ensure_ascii=False)
    return queue_text(value)


@queue.command("set", short_help="Set properties of a queue.")
@_QUEUE_ARGUMENT
@property_options
@click.option("--hooks", metavar="JSON", help="LMQ's hooks, an object from hook point to a list of modules.")
@click.option(
    "--unset", metavar="PROPERTY", multiple=True, type=click.Choice(list(QUEUE_OPTIONS)), help="Remove a property."
)
@annotations_option
@click.option("--create", is_flag=True, help="Create the queue if it does not exist.")
@click.option("--dry-run", is_flag=True, help="Print what would change, without changing it.")
@target_options
def queue_set(
    target: Target,
    name: str,
    create: bool,
    dry_run: bool,
    hooks: str | None,
    unset: tuple[str, ...],
    annotate: tuple[str, ...],
    **values: Any,
) -> None:
    """Set properties and annotations of a queue; others keep their values.

    A TIME is a number of seconds, or a number with ms, s, m, h or d. A SIZE is a number of bytes, or a number with K, M or G.

    \b
    Examples:
      lmq-admin queue set jobs --retry 5 --timeout 60
      lmq-admin queue set jobs --dead-letter-queue jobs.failed --retry-delay 5s --retry-backoff 2 --retry-delay-max 10m
      lmq-admin queue set jobs --max-items 10000 --unset max_size
    """
    given: dict[str, Any] = {**given_properties(values), **dict.fromkeys(unset)}
    if hooks is not None:
        given["hooks"] = _json_option("--hooks", hooks)
    annotations = given_annotations(annotate)
    if not given and not annotations:
        raise click.UsageError(
            "pass at least one property, such as --retry, --timeout or --max-items; --help lists them"
        )
    path = f"{queue_path(name)}/properties"
    is_new = create and not queue_exists(target.api, name)
    if not create:
        require_queue(target.api, name)
    if dry_run:
        if is_new:
            print(f"would create queue {name}")
        _print_changes(target.api.get(path), given)
        _print_changes({} if is_new else target.api.get(queue_path(name))["annotations"], annotations)
        return
    target.api.patch(path, {**given, "annotations": annotations} if annotations else given)
    if sys.stdout.isatty():
        print(
            f"Queue {name} was created and its properties were set."
            if is_new
            else f"The properties of queue {name} were set."
        )


def _json_option(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise click.UsageError(f"{option}: {text!r} is not JSON: {exc}") from exc


def _print_changes(now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    for key, value in then.items():
        before, after = _value_text(now.get(key)), _value_text(value)
        if before != after:
            print(f"would change {key} from {before} to {after}")


@queue.command("clear", short_help="Remove the queue's own properties.")
@_QUEUE_ARGUMENT
@destructive_options
@target_options
def queue_clear(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Remove the queue's own properties, so that the default properties apply.

    \b
    Example:
      lmq-admin queue clear orders --dry-run
    """
    own = target.api.get(queue_path(name))["own_properties"]
    what = ", ".join(f"{key} {_value_text(value)}" for key, value in own.items()) or "none are set"
    if confirm(f"remove the own properties of queue {name} ({what})", yes=yes, dry_run=dry_run):
        target.api.delete(f"{queue_path(name)}/properties")


@queue.command("rm", short_help="Delete a queue with its messages, or all that match.")
@_QUEUE_OR_PATTERN
@pattern_option
@destructive_options
@target_options
def queue_rm(target: Target, name: str | None, pattern: str | None, yes: bool, dry_run: bool) -> None:
    """Delete a queue with its messages and its own properties, or all queues that match --pattern.

    \b
    Examples:
      lmq-admin queue rm orders --yes
      lmq-admin queue rm --pattern '^test[.]' --dry-run
    """
    require_name_or_pattern(name, pattern)
    if pattern is not None:
        _delete_matching(target, pattern, yes=yes, dry_run=dry_run)
        return
    found = target.api.get(queue_path(str(name)))
    if confirm(f"delete queue {name} with {plural(found['size'], 'message')}", yes=yes, dry_run=dry_run):
        target.api.delete(queue_path(str(name)))


def _delete_matching(target: Target, pattern: str, *, yes: bool, dry_run: bool) -> None:
    deleted = do_to_matching(
        target.api,
        pattern,
        text_of=lambda row: f"delete queue {queue_text(row['name'])} with {plural(row['size'], 'message')}",
        summary=lambda rows: (
            f"delete {plural(len(rows), 'queue')} with {plural(sum(row['size'] for row in rows), 'message')}"
        ),
        do=lambda name: target.api.delete(queue_path(name)),
        yes=yes,
        dry_run=dry_run,
    )
    if deleted is not None:
        text = f"{plural(len(deleted), 'queue was', 'queues were')} deleted."
        target.print_result({"deleted": len(deleted)}, text)


@queue.command("purge", short_help="Remove all waiting messages of a queue, or of all that match.")
@_QUEUE_OR_PATTERN
@pattern_option
@click.option(
    "--keep", type=click.IntRange(0), default=0, metavar="N", help="Keep the N messages that would be delivered last."
)
@sequence_option
@destructive_options
@target_options
def queue_purge(
    target: Target,
    name: str | None,
    pattern: str | None,
    keep: int,
    sequences: tuple[int, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove all waiting messages of a queue, or of all queues that match --pattern.

    Leased messages and the queues are kept. --keep is evaluated when the command begins: if messages are delivered
    during the purge, fewer than N are left.

    \b
    Examples:
      lmq-admin queue purge orders --dry-run
      lmq-admin queue purge orders --keep 100 --yes
      lmq-admin queue purge --pattern '^test[.]' --yes
      lmq-admin queue purge orders.failed --sequence 4711 --yes
    """
    require_name_or_pattern(name, pattern)
    if sequences and (keep or pattern is not None):
        raise click.UsageError("--sequence names single messages of one QUEUE, so it excludes --keep and --pattern")
    if pattern is not None:
        if keep:
            raise click.UsageError("--keep applies to one QUEUE, not to --pattern")
        _purge_matching(target, pattern, yes=yes, dry_run=dry_run)
        return
    found = target.api.get(queue_path(str(name)))
    surplus = len(sequences) or max(0, found["size"] - found["leased"] - keep)
    waiting = plural(surplus, "waiting message")
    what = f"remove {waiting} from queue {name} ({plural(found['leased'], 'leased one stays', 'leased ones stay')})"
    if confirm(what, yes=yes, dry_run=dry_run):
        # A request with count 0 would purge all messages.
        wanted = {"sequences": sequences} if sequences else {"max": surplus} if keep else {}
        answer = {"purged": 0} if keep and not surplus else _purge(target, str(name), wanted)
        target.print_result(
            answer, f"{plural(answer['purged'], 'message was', 'messages were')} removed from queue {name}."
        )


def _purge(target: Target, name: str, wanted: dict[str, Any]) -> Any:
    return target.api.post(f"{queue_path(name)}/purge", wanted, timeout_s=BULK_TIMEOUT_S)


def _purge_matching(target: Target, pattern: str, *, yes: bool, dry_run: bool) -> None:
    def waiting(rows: Sequence[Mapping[str, Any]]) -> str:
        return plural(sum(row["size"] - row["leased"] for row in rows), "waiting message")

    answers = do_to_matching(
        target.api,
        pattern,
        text_of=lambda row: f"remove {waiting([row])} from queue {queue_text(row['name'])}",
        summary=lambda rows: f"remove {waiting(rows)} from {plural(len(rows), 'queue')}",
        do=lambda name: _purge(target, name, {}),
        yes=yes,
        dry_run=dry_run,
    )
    if answers is not None:
        purged = sum(answer["purged"] for answer in answers)
        text = f"{plural(purged, 'message was', 'messages were')} removed from {plural(len(answers), 'queue')}."
        target.print_result({"queues": len(answers), "purged": purged}, text)


@queue.command("move", short_help="Move ready messages to another queue.")
@_QUEUE_ARGUMENT
@click.argument("destination", metavar="DESTINATION", shell_complete=complete_queue)
@click.option(
    "--max",
    "count",
    type=click.IntRange(1),
    help="Maximum number of messages, the oldest first. [default: all that are ready]",
)
@destructive_options
@target_options
def queue_move(target: Target, name: str, destination: str, count: int | None, yes: bool, dry_run: bool) -> None:
    """Move ready messages to the end of the queue DESTINATION, in order, as if they were pushed there again.

    \b
    Example:
      lmq-admin queue move orders.failed orders --max 100
    """
    ready = target.api.get(queue_path(name))["ready"]
    most = ready if count is None else min(count, ready)
    if confirm(f"move {plural(most, 'message')} from queue {name} to queue {destination}", yes=yes, dry_run=dry_run):
        to = queue_value(destination)
        request: dict[str, Any] = {"to": to} if count is None else {"to": to, "max": count}
        answer = target.api.post(f"{queue_path(name)}/move", request, timeout_s=BULK_TIMEOUT_S)
        target.print_result(
            answer, f"{plural(answer['moved'], 'message was', 'messages were')} moved to queue {destination}."
        )


@queue.command("suspend", short_help="Stop delivering messages.")
@_QUEUE_ARGUMENT
@target_options
def queue_suspend(target: Target, name: str) -> None:
    """Stop delivering messages of a queue until it is resumed. Pushes, acks and lease expiries continue.

    \b
    Example:
      lmq-admin queue suspend orders
    """
    answer = target.api.post(f"{queue_path(name)}/suspend", {})
    target.print_result(answer, f"Queue {name} is suspended; continue with lmq-admin queue resume {name}.")


@queue.command("resume", short_help="Deliver messages again.")
@_QUEUE_ARGUMENT
@target_options
def queue_resume(target: Target, name: str) -> None:
    """Deliver messages of a suspended queue again.

    \b
    Example:
      lmq-admin queue resume orders
    """
    answer = target.api.post(f"{queue_path(name)}/resume", {})
    target.print_result(answer, f"Queue {name} delivers messages.")


for _command in (queue_create, *LINK_COMMANDS):
    queue.add_command(_command)
