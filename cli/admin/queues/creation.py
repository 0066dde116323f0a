"""``lmq-admin queue create``: new queues, plain, FIFO or fair."""

from __future__ import annotations

from typing import Any

import click

from ...shared.connection.target import Target, complete_queue, target_options
from ...shared.errors import CliError, ExitCode
from .property_options import annotations_option, given_annotations, given_properties, property_options
from .queue_list import queue_path

__all__ = ["queue_create"]


@click.command("create", short_help="Create a queue: plain, FIFO or fair.")
@click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
@click.option("--fifo", "kind", flag_value="fifo", help="As Amazon SQS creates FIFO queues; the name ends with .fifo.")
@click.option("--fair", "kind", flag_value="fair", help="Groups of messages, such as tenants, take turns.")
@click.option(
    "--content-deduplication/--no-content-deduplication",
    "by_content",
    default=None,
    help="With --fifo: take the hash of a body for the deduplication id of a message of SQS that has none.",
)
@property_options
@annotations_option
@target_options
def queue_create(
    target: Target, name: str, kind: str | None, by_content: bool | None, annotate: tuple[str, ...], **values: Any
) -> None:
    """Create a queue; fail and change nothing if it exists.

    With --fifo it is the queue that CreateQueue of Amazon SQS creates: each group in strict order, and a message with
    a deduplication id stored once in five minutes, in the whole queue or, with --key-scope group, in its group. Options
    set other properties than those of its kind; `queue set` can change all later.

    \b
    Examples:
      lmq-admin queue create jobs --retry 5 --timeout 60
      lmq-admin queue create orders.fifo --fifo --content-deduplication
      lmq-admin queue create tenants --fair
    """
    if by_content is not None and kind != "fifo":
        raise click.UsageError("--content-deduplication applies to --fifo")
    body: dict[str, Any] = {
        "kind": kind or "plain",
        "properties": given_properties(values),
        "annotations": given_annotations(annotate),
    }
    if by_content is not None:
        body["content_deduplication"] = by_content
    answer = target.api.put(queue_path(name), body)
    if not answer["new"]:
        text = f"there is a queue {name} already, and it was not changed; lmq-admin queue set {name} changes it"
        raise CliError(text, ExitCode.BAD_DATA)
    target.print_result(answer, f"Queue {name} was created.")
