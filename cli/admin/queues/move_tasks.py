"""Parts of ``lmq-admin queue redrive`` that start, show and cancel tasks of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from ...shared.confirm import confirm
from ...shared.connection.reads import Report
from ...shared.connection.target import Target, queue_text, queue_value
from ...shared.output import Column, plural, time_text
from .queue_list import queue_path

__all__ = ["cancel_move_task", "move_task_report", "start_move_task"]

_COLUMNS: Final = [
    Column("Task", "number", right=True),
    Column("State", "status"),
    Column("To", "to", cut="middle"),
    Column("Moved", "moved", right=True),
    Column("To move", "to_move", right=True),
    Column("Per second", "rate", right=True),
    Column("Started", "started_at"),
    Column("Failure", "failure"),
]


def _path(name: str) -> str:
    return f"{queue_path(name)}/move-tasks"


def start_move_task(target: Target, name: str, to: str | None, rate: float | None, *, yes: bool, dry_run: bool) -> None:
    """Start a task after a confirmation.

    Raises:
        click.UsageError: the rate is no whole number.
    """
    if rate is not None and not rate.is_integer():
        raise click.UsageError(f"with --background, --rate is a whole number, not {rate:g}")
    found = target.api.get(queue_path(name))
    waiting = plural(found["size"] - found["leased"], "waiting message")
    where = "where they came from" if to is None else f"queue {to}"
    if confirm(f"start a task that sends messages of queue {name} ({waiting}) to {where}", yes=yes, dry_run=dry_run):
        given: dict[str, Any] = {} if to is None else {"to": queue_value(to)}
        answer = target.api.post(_path(name), given if rate is None else {**given, "rate": int(rate)})
        text = f"Task {answer['number']} was started; lmq-admin queue redrive {name} --tasks shows its progress."
        target.print_result(answer, text)


def move_task_report(target: Target, name: str) -> Report:
    """Return the latest tasks of a queue."""
    answer = target.api.get(_path(name))
    shown = [
        {
            **task,
            "to": _destination(task),
            "started_at": time_text(task["started_at"]),
        }
        for task in answer["tasks"]
    ]
    rows = [[task[column.key] for column in _COLUMNS] for task in shown]
    return Report(answer, _COLUMNS, rows, empty=f"Queue {name} has no tasks.")


def _destination(task: Mapping[str, Any]) -> str:
    if "to" not in task:
        return "a queue that the token does not cover"
    return "where they came from" if task["to"] is None else queue_text(task["to"])


def cancel_move_task(target: Target, name: str, number: int, *, yes: bool, dry_run: bool) -> None:
    """Cancel a task after a confirmation."""
    if confirm(f"cancel task {number} of queue {name}", yes=yes, dry_run=dry_run):
        answer = target.api.delete(f"{_path(name)}/{number}")
        target.print_result(answer, f"Task {number} was cancelled; it has moved {plural(answer['moved'], 'message')}.")
