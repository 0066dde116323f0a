"""``lmq-admin message``: pushes, pulls, settles and peeks at single messages."""

from __future__ import annotations

import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from ...shared.aliases import AliasGroup
from ...shared.confirm import confirm, destructive_options
from ...shared.connection.api import Api
from ...shared.connection.reads import Report, reads
from ...shared.connection.target import Target, complete_queue, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, human_bytes, plural, print_json, print_table
from ...shared.units import duration
from ..queues.contents import Show, content_bytes, content_json, format_body
from ..queues.queue_links import BULK_TIMEOUT_S
from ..queues.queue_list import require_queue
from .attributes import NAMED_VALUE, attribute_text, filter_text

__all__ = ["message"]

PULL_REPLY_S: Final = 10.0
BATCH_MAX: Final = 10_000
_ID_COLUMNS: Final = [Column("Message", "id"), Column("Result", "result")]
_PEEK_COLUMNS: Final = [
    Column("Sequence", "sequence", right=True),
    Column("State", "state"),
    Column("Age (s)", "age_s", right=True, digits=1),
    Column("Deliveries left", "deliveries_left", right=True, rank=1),
    Column("Content type", "content_type", rank=2),
    Column("Bytes", "size", right=True, unit="bytes", rank=1),
    Column("Attributes", "attributes", rank=2),
    Column("Content", "content", cut="end"),
]
_QUEUE_ARGUMENT = click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
_IDS_ARGUMENT = click.argument("ids", metavar="ID...", nargs=-1, required=True)
_show_option = click.option(
    "--show",
    type=click.Choice([show.value for show in Show]),
    default=Show.AUTO.value,
    show_default=True,
    help="Format of message bodies; auto decodes MessagePack and prints binary data as hex.",
)


@click.group(cls=AliasGroup)
def message() -> None:
    """Push, pull, settle and peek at single messages."""


@message.command("push")
@_QUEUE_ARGUMENT
@click.argument("content", required=False)
@click.option("--content-type", help="Content type to store with the message.")
@click.option("--key", help="Idempotency key: a second push with the same key within five minutes stores nothing.")
@click.option("--delay", type=duration, metavar="TIME", help="Delay until the message becomes ready.")
@click.option("--ttl", type=duration, metavar="TIME", help="Time to live.")
@click.option("--priority", type=int, metavar="N", help="Priority; lower is delivered first. [default: 0]")
@click.option("--label", help="Label by which the message can be found while it waits.")
@click.option(
    "--group", help="Group, whose messages are delivered in order, or in turn with other groups; see group_mode."
)
@click.option("--wait", type=duration, metavar="TIME", help="Time to wait for space if the queue is full.")
@click.option(
    "--attribute",
    "attributes",
    type=NAMED_VALUE,
    multiple=True,
    metavar="NAME=VALUE",
    help="Attribute of the message, NAME:=5 for a number; may be repeated.",
)
@target_options
def message_push(
    target: Target,
    name: str,
    content: str | None,
    wait: float | None,
    attributes: tuple[tuple[str, Any], ...],
    **options: str | float | None,
) -> None:
    """Push one message: CONTENT, or standard input, which must not be empty, if CONTENT is omitted.

    \b
    Examples:
      lmq-admin message push orders 'one coffee'
      lmq-admin message push orders 'one tea' --delay 5m --priority -1 --label 'table 7'
      lmq-admin message push orders 'one tea' --attribute tenant=north --attribute cups:=2
    """
    data = sys.stdin.buffer.read() if content is None else content.encode(errors="surrogateescape")
    if not data and content is None:
        raise click.UsageError("standard input is empty; to push an empty message, pass '' as its content")
    item = {"content": content_json(data), **{key: value for key, value in options.items() if value is not None}}
    if attributes:
        item["attributes"] = dict(attributes)
    body: dict[str, Any] = {"messages": [item]}
    timeout_s = None
    if wait:
        body["wait"] = wait
        timeout_s = wait + PULL_REPLY_S
    answer = target.api.post(f"{_path(name)}/messages", body, timeout_s=timeout_s)
    if target.as_json:
        print_json(answer)
    elif sys.stdout.isatty():
        print(f"One message of {human_bytes(len(data))} was pushed to queue {name}.")


@message.command("pull", short_help="Pull, print and acknowledge messages.")
@_QUEUE_ARGUMENT
@click.option(
    "--max",
    "count",
    default=1,
    show_default=True,
    type=click.IntRange(1, BATCH_MAX),
    help="Maximum number of messages.",
)
@click.option("--wait", default=0.0, show_default=True, type=click.FloatRange(0), help="Seconds to wait for a message.")
@click.option(
    "--no-ack", is_flag=True, help="Do not acknowledge: the messages are delivered again when their leases expire."
)
@_show_option
@click.option("--raw", is_flag=True, help="Print the stored bytes, without separators.")
@target_options
def message_pull(target: Target, name: str, count: int, wait: float, no_ack: bool, show: str, raw: bool) -> None:
    """Pull messages, print their contents, one a line, and acknowledge them. Exits with 66 if there is none.

    With --wait, the command also waits for a queue that does not exist.

    Use --no-ack with --json: it prints the ids that `message ack | nack | extend` take.

    \b
    Example:
      lmq-admin message pull orders --wait 10
    """
    if not wait:
        require_queue(target.api, name)
    answer = target.api.post(f"{_path(name)}/pull", {"max": count, "timeout": wait}, timeout_s=wait + PULL_REPLY_S)
    messages = answer["messages"]
    if target.as_json:
        print_json(answer)
    else:
        for data in _contents(messages, Show(show), raw=raw):
            sys.stdout.buffer.write(data)
    sys.stdout.flush()
    if messages and not no_ack:
        # A message that is printed but acknowledged too late is delivered again; the user should know.
        results = target.api.post(f"{_path(name)}/ack", {"ids": [item["id"] for item in messages]})["results"]
        if not all(results):
            text = f"{target.node}: {results.count(False)} of {len(results)} leases expired before the ack; redelivery follows"
            raise CliError(text, ExitCode.NOT_FOUND)
    if not messages:
        raise CliError(f"{target.node}: no message is ready in queue {name}", ExitCode.NOT_FOUND)


def _settle(target: Target, name: str, verb: str, ids: tuple[str, ...], **more: object) -> None:
    given = {key: value for key, value in more.items() if value is not None}
    answer = target.api.post(f"{_path(name)}/{verb}", {"ids": list(ids), **given})
    results = answer["results"]
    if target.as_json:
        print_json(answer)
    elif len(ids) > 1:
        print_table(
            _ID_COLUMNS, [(one, "done" if ok else "no such lease") for one, ok in zip(ids, results, strict=True)]
        )
    if not any(results):
        require_queue(target.api, name)
    if not all(results):
        text = f"{target.node}: {results.count(False)} of {len(ids)} messages of queue {name} are not leased under these ids"
        raise CliError(text, ExitCode.NOT_FOUND)


@message.command("ack", short_help="Acknowledge messages.")
@_QUEUE_ARGUMENT
@_IDS_ARGUMENT
@target_options
def message_ack(target: Target, name: str, ids: tuple[str, ...]) -> None:
    """Acknowledge leased messages. Exits with 66 if a lease had expired.

    \b
    Example:
      lmq-admin message ack orders 1dc8c7e6-ac08-4471-8c20-000000000001
    """
    _settle(target, name, "ack", ids)


@message.command("nack", short_help="Return messages to the queue.")
@_QUEUE_ARGUMENT
@_IDS_ARGUMENT
@click.option("--place", type=click.Choice(["tail", "keep", "head"]), help="Position in the queue. [default: tail]")
@click.option("--delay", type=duration, metavar="TIME", help="Delay until they become ready.")
@click.option("--reason", metavar="TEXT", help="Becomes their attribute lmq.reason, cut to 1 KiB.")
@target_options
def message_nack(
    target: Target, name: str, ids: tuple[str, ...], place: str | None, delay: float | None, reason: str | None
) -> None:
    """Return leased messages to the queue; this counts as a delivery. Exits with 66 if a lease had expired.

    \b
    Example:
      lmq-admin message nack orders 1dc8c7e6-ac08-4471-8c20-000000000001 --delay 5m --reason 'no such customer'
    """
    _settle(target, name, "nack", ids, place=place, delay=delay, reason=reason)


@message.command("extend", short_help="Restart leases.")
@_QUEUE_ARGUMENT
@_IDS_ARGUMENT
@click.option(
    "--lease", type=duration, metavar="TIME", help="Duration of the leases from now on. [default: the queue's timeout]"
)
@target_options
def message_extend(target: Target, name: str, ids: tuple[str, ...], lease: float | None) -> None:
    """Restart the leases of messages. Exits with 66 if a lease had expired.

    \b
    Example:
      lmq-admin message extend orders 1dc8c7e6-ac08-4471-8c20-000000000001 --lease 10m
    """
    _settle(target, name, "extend", ids, lease=lease)


@message.command("withdraw", short_help="Remove waiting messages with a label.")
@_QUEUE_ARGUMENT
@click.argument("label")
@click.option(
    "--max", "count", type=click.IntRange(1), help="Maximum number of messages, the oldest first. [default: all]"
)
@click.option(
    "--attribute", type=NAMED_VALUE, metavar="NAME=VALUE", help="Only messages that also have this attribute."
)
@destructive_options
@target_options
def message_withdraw(
    target: Target,
    name: str,
    label: str,
    count: int | None,
    attribute: tuple[str, Any] | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove waiting messages with this LABEL. Leased messages are kept.

    \b
    Example:
      lmq-admin message withdraw orders 'table 7' --yes
    """
    query = urllib.parse.urlencode({"label": label.encode(errors="surrogateescape")})
    waiting = target.api.get(f"{_path(name)}/labels?{query}")["count"]
    most = plural(waiting if count is None else min(count, waiting), "message")
    request: dict[str, Any] = {"label": label} if count is None else {"label": label, "max": count}
    what = f"remove {most} with label {label}"
    if attribute is not None:
        request["attribute"] = filter_text(attribute)
        what = f"remove up to {most} with label {label} and attribute {filter_text(attribute)}"
    if confirm(f"{what} from queue {name}", yes=yes, dry_run=dry_run):
        answer = target.api.post(f"{_path(name)}/withdraw", request, timeout_s=BULK_TIMEOUT_S)
        target.print_result(
            answer, f"{plural(answer['withdrawn'], 'message was', 'messages were')} removed from queue {name}."
        )


@message.command("peek", short_help="Show messages without pulling them.")
@_QUEUE_ARGUMENT
@click.option(
    "--max", "count", default=20, show_default=True, type=click.IntRange(1, 1000), help="Maximum number of messages."
)
@click.option("--after", type=click.IntRange(0), help="Start after the message with this sequence.")
@click.option("--label", help="Only messages with this label.")
@click.option("--group", help="Only messages of this group.")
@click.option("--attribute", type=NAMED_VALUE, metavar="NAME=VALUE", help="Only messages with this attribute.")
@_show_option
@reads(_PEEK_COLUMNS)
def message_peek(
    target: Target,
    name: str,
    count: int,
    after: int | None,
    label: str | None,
    group: str | None,
    attribute: tuple[str, Any] | None,
    show: str,
) -> Report:
    """Show messages in the order in which they were pushed, including leased ones, without pulling any.

    At most 64 KiB of each are fetched; people see the beginning, scripts all of that.

    \b
    Example:
      lmq-admin message peek orders --show json
    """
    texts = {"label": label, "group": group, "attribute": None if attribute is None else filter_text(attribute)}
    query: dict[str, Any] = {
        key: text.encode(errors="surrogateescape") for key, text in texts.items() if text is not None
    }
    answer = _peek(target.api, name, query, count, 0 if after is None else after)
    rows = [_peek_row(item, Show(show)) for item in answer["messages"]]
    if not answer["messages"]:
        require_queue(target.api, name)
    remark = f"(More messages: continue with --after {answer['next']}.)" if answer["next"] is not None else ""
    return Report(answer, _PEEK_COLUMNS, rows, empty=f"Queue {name} is empty.", remark=remark)


def _peek(api: Api, name: str, query: Mapping[str, Any], count: int, after: int) -> dict[str, Any]:
    """Return the answer with `count` messages, or all there are; a node splits answers with large messages."""
    messages: list[Any] = []
    while True:
        asked = urllib.parse.urlencode({**query, "limit": count - len(messages), "after": after})
        answer: dict[str, Any] = api.get(f"{_path(name)}/messages?{asked}")
        messages += answer["messages"]
        if answer["next"] is None or len(messages) >= count:
            return {**answer, "messages": messages}
        after = answer["next"]


def _peek_row(item: Mapping[str, Any], show: Show) -> list[object]:
    content = " | ".join(
        format_body(content_bytes(part["content"]), part["content_type"], show, dump=False) for part in _parts(item)
    )
    attributes = " | ".join(filter(None, (attribute_text(part["attributes"]) for part in _parts(item))))
    return [*(item[column.key] for column in _PEEK_COLUMNS[:-2]), attributes, content]


def _contents(messages: list[dict[str, Any]], show: Show, *, raw: bool) -> Iterator[bytes]:
    if raw:
        yield from (content_bytes(part["content"]) for item in messages for part in _parts(item))
        return
    for part in (part for item in messages for part in _parts(item)):
        data = content_bytes(part["content"])
        yield format_body(data, part["content_type"], show, for_terminal=sys.stdout.isatty()).encode() + b"\n"


def _parts(item: Mapping[str, Any]) -> list[Any]:
    """Return the contents of a message: several if it is compound, else one."""
    return item["content"] if item["type"] == "compound" else [item]


def _path(name: str) -> str:
    return f"/v1/queues/{Api.segment(name)}"
