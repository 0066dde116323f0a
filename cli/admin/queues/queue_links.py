"""``lmq-admin queue bind | unbind | bindings | redrive``: messages that go from one queue to another."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from ...shared.confirm import confirm, destructive_options
from ...shared.connection.reads import Report, print_report, reads
from ...shared.connection.target import Target, complete_queue, queue_text, queue_value, target_options
from ...shared.output import Column, View, plural
from .move_tasks import cancel_move_task, move_task_report, start_move_task
from .queue_list import queue_path, require_queue, sequence_option

__all__ = ["COMMANDS"]

BULK_TIMEOUT_S: Final = 600.0
_COLUMNS: Final = [Column("Gets copies", "target")]
_STEPS_PER_S: Final = 10
_MODES: Final[Mapping[str, tuple[str, ...]]] = {"--background": ("--to", "--rate"), "--tasks": (), "--cancel": ()}
"""Options of ``redrive`` that change what it does, with the other options that each allows."""
_QUEUE_ARGUMENT = click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
_COPY_ARGUMENT = click.argument("copy", metavar="TARGET", shell_complete=complete_queue)


@click.command("bind", short_help="Copy pushed messages to another queue.")
@_QUEUE_ARGUMENT
@_COPY_ARGUMENT
@target_options
def bind(target: Target, name: str, copy: str) -> None:
    """Also store a copy of every message pushed to QUEUE in the queue TARGET. Both are created if they do not exist.

    \b
    Example:
      lmq-admin queue bind orders orders.audit
    """
    answer = target.api.post(f"{queue_path(name)}/bind", {"target": queue_value(copy)})
    state = "now" if answer["new"] else "already"
    target.print_result(answer, f"Queue {copy} {state} gets copies of messages pushed to queue {name}.")


@click.command("unbind", short_help="End a binding.")
@_QUEUE_ARGUMENT
@_COPY_ARGUMENT
@target_options
def unbind(target: Target, name: str, copy: str) -> None:
    """Stop storing copies of messages pushed to QUEUE in the queue TARGET. Its messages are kept.

    \b
    Example:
      lmq-admin queue unbind orders orders.audit
    """
    answer = target.api.post(f"{queue_path(name)}/unbind", {"target": queue_value(copy)})
    text = "no longer gets copies" if answer["ended"] else "did not get copies"
    target.print_result(answer, f"Queue {copy} {text} of messages pushed to queue {name}.")


@click.command("bindings", short_help="List the queues that get copies.")
@_QUEUE_ARGUMENT
@reads(_COLUMNS)
def bindings(target: Target, name: str) -> Report:
    """List the queues that get copies of messages pushed to QUEUE.

    \b
    Example:
      lmq-admin queue bindings orders
    """
    answer = target.api.get(f"{queue_path(name)}/bindings")
    rows = [[queue_text(one)] for one in answer["targets"]]
    if not rows:
        require_queue(target.api, name)
    return Report(answer, _COLUMNS, rows, empty=f"No queue gets copies of messages pushed to queue {name}.")


@click.command("redrive", short_help="Return dead letters to their queues.")
@_QUEUE_ARGUMENT
@click.option(
    "--to", metavar="QUEUE", shell_complete=complete_queue, help="Destination. [default: where they came from]"
)
@click.option("--label", help="Only messages with this label.")
@click.option(
    "--max", "count", type=click.IntRange(1), help="Maximum number of messages, the oldest first. [default: all]"
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Maximum number of messages a second.")
@click.option("--background", is_flag=True, help="Start a task of the cluster and return at once.")
@click.option("--tasks", is_flag=True, help="Show the latest tasks of QUEUE and their progress instead.")
@click.option("--cancel", type=click.IntRange(0), metavar="NUMBER", help="Cancel this running task of QUEUE instead.")
@sequence_option
@destructive_options
@target_options
def redrive(
    target: Target,
    name: str,
    to: str | None,
    label: str | None,
    count: int | None,
    rate: float | None,
    background: bool,
    tasks: bool,
    cancel: int | None,
    sequences: tuple[int, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Return messages that the cluster moved to QUEUE to where they came from: dead letters, or expired messages.

    Messages that clients pushed to QUEUE are kept. An interrupted command has moved a part of them; it may be repeated.

    With --background the cluster does the work, also if this program ends, in one task of QUEUE at a time. If --to is
    given, the task moves all waiting messages of QUEUE, and the destination must exist.

    \b
    Examples:
      lmq-admin queue redrive orders.failed --dry-run
      lmq-admin queue redrive orders.failed --label 'order 7' --yes
      lmq-admin queue redrive orders.failed --rate 100 --yes
      lmq-admin queue redrive orders.failed --sequence 4711 --yes
      lmq-admin queue redrive orders.failed --background --rate 100 --yes
      lmq-admin queue redrive orders.failed --tasks
    """
    modes = {"--background": background, "--tasks": tasks, "--cancel": cancel is not None}
    choices = {"--to": to, "--label": label, "--max": count, "--rate": rate, "--sequence": sequences or None}
    _check_modes(
        [mode for mode, is_given in modes.items() if is_given],
        [option for option, value in choices.items() if value is not None],
    )
    if tasks:
        print_report(move_task_report(target, name), View(target.form))
        return
    if cancel is not None:
        cancel_move_task(target, name, cancel, yes=yes, dry_run=dry_run)
        return
    if background:
        start_move_task(target, name, to, rate, yes=yes, dry_run=dry_run)
        return
    if sequences and (count is not None or rate is not None):
        raise click.UsageError("--sequence names single messages, so it excludes --max and --rate")
    found = target.api.get(queue_path(name))
    count = len(sequences) or count
    most = "messages" if count is None else f"at most {plural(count, 'message')}"
    where = "where they came from" if to is None else f"queue {to}"
    waiting = plural(found["size"] - found["leased"], "waiting message")
    if confirm(f"send {most} of queue {name} ({waiting}) to {where}", yes=yes, dry_run=dry_run):
        given = {"to": None if to is None else queue_value(to), "label": label}
        request = {key: value for key, value in given.items() if value is not None}
        if sequences:
            request["sequences"] = sequences
        sent = _redrive(target, name, request, None if sequences else count, rate)
        target.print_result({"redriven": sent}, f"{plural(sent, 'message was', 'messages were')} sent to {where}.")


def _check_modes(modes: list[str], options: list[str]) -> None:
    for mode in modes:
        others = [one for one in (*modes, *options) if one != mode and one not in _MODES[mode]]
        if others:
            raise click.UsageError(f"{mode} excludes {', '.join(others)}")


def _redrive(target: Target, name: str, request: dict[str, Any], count: int | None, rate: float | None) -> int:
    path = f"{queue_path(name)}/redrive"
    if rate is None:
        body = request if count is None else {**request, "max": count}
        return int(target.api.post(path, body, timeout_s=BULK_TIMEOUT_S)["redriven"])
    step = max(1, int(rate / _STEPS_PER_S))
    begun_s = time.monotonic()
    sent = 0
    while count is None or sent < count:
        wanted = step if count is None else min(step, count - sent)
        done = int(target.api.post(path, {**request, "max": wanted}, timeout_s=BULK_TIMEOUT_S)["redriven"])
        sent += done
        if done < wanted:
            break
        time.sleep(max(0.0, begun_s + sent / rate - time.monotonic()))
    return sent


COMMANDS: Final = (bind, unbind, bindings, redrive)
