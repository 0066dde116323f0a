"""``lmq-admin queue`` and ``lmq-admin message``: single queues and their messages."""

from __future__ import annotations

import base64
import sys
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

import click

from .api import Api
from .errors import CliError, ExitCode
from .output import Column, print_json, print_table
from .target import Target, complete_queue, queue_text, target_options

__all__ = ["all_queues", "message", "queue"]

_QUEUE_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Ready", "ready", right=True),
    Column("Leased", "leased", right=True),
    Column("Accumulating", "accumulating", right=True, rank=2),
    Column("Bytes", "bytes", right=True, unit="bytes"),
    Column("Pushed", "pushed_total", right=True, rank=1),
    Column("Pulled", "pulled_total", right=True, rank=1),
]
_QUEUE_ARGUMENT = click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
PULL_REPLY_S: Final = 10.0


def all_queues(api: Api) -> Iterator[dict[str, Any]]:
    """Every queue of the cluster, page by page, sorted by name."""
    path = "/v1/queues"
    while True:
        page = api.get(path)
        yield from page["queues"]
        following = page["next"]
        if following is None:
            return
        name = base64.b64decode(following["base64"]) if isinstance(following, dict) else following.encode()
        path = f"/v1/queues?after={urllib.parse.quote(name, safe='')}"


@click.group()
def queue() -> None:
    """List, show, change and delete queues."""


@queue.command("ls")
@target_options
def queue_ls(target: Target) -> None:
    """List all queues with their counts."""
    queues = list(all_queues(target.api))
    if target.as_json:
        print_json({"queues": queues, "next": None})
        return
    rows = [[queue_text(item["name"]), *(item[column.key] for column in _QUEUE_COLUMNS[1:])] for item in queues]
    print_table(_QUEUE_COLUMNS, rows, empty="No queues.")


@queue.command("show")
@_QUEUE_ARGUMENT
@target_options
def queue_show(target: Target, name: str) -> None:
    """Show the counts and effective properties of one queue."""
    found = target.api.get(f"/v1/queues/{Api.segment(name)}")
    if target.as_json:
        print_json(found)
        return
    facts = {**found, **found["properties"]}
    del facts["properties"]
    rows = [(key, f"{value:g}" if isinstance(value, float) else queue_text(value)) for key, value in facts.items()]
    print_table([Column("What", "what"), Column("Value", "value")], rows)


@queue.command("set")
@_QUEUE_ARGUMENT
@click.option("--accum", type=float, help="Accumulation window in seconds; 0 switches accumulation off.")
@click.option("--retry", type=int, help="How often a message is delivered again, for messages pushed from now on.")
@click.option("--timeout", type=float, help="Seconds until a delivered message is delivered again.")
@target_options
def queue_set(target: Target, name: str, **properties: float | None) -> None:
    """Set properties of a queue, which is created if need be; others keep their values."""
    given = {key: value for key, value in properties.items() if value is not None}
    if not given:
        raise click.UsageError("give at least one of --accum, --retry, --timeout")
    target.api.patch(f"/v1/queues/{Api.segment(name)}/properties", given)


@queue.command("rm")
@_QUEUE_ARGUMENT
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@target_options
def queue_rm(target: Target, name: str, yes: bool, dry_run: bool) -> None:
    """Delete a queue with its messages and its own properties."""
    path = f"/v1/queues/{Api.segment(name)}"
    found = target.api.get(path)
    what = f"queue {name} with {found['size']:,} messages"
    if dry_run:
        print(f"would delete {what}")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"this would delete {what}: say --yes")
        click.confirm(f"Delete {what}?", abort=True, err=True)
    target.api.delete(path)


@click.group()
def message() -> None:
    """Push and pull single messages."""


@message.command("push")
@_QUEUE_ARGUMENT
@click.argument("content", required=False)
@click.option("--content-type", help="Content type to store with the message.")
@click.option("--key", help="Idempotency key: a second push with the same key within five minutes stores nothing.")
@target_options
def message_push(target: Target, name: str, content: str | None, **options: str | None) -> None:
    """Push one message: CONTENT, or standard input if it is not given."""
    data = sys.stdin.buffer.read() if content is None else content.encode(errors="surrogateescape")
    item = {"content": _content(data), **{key: value for key, value in options.items() if value is not None}}
    answer = target.api.post(f"/v1/queues/{Api.segment(name)}/messages", {"messages": [item]})
    if target.as_json:
        print_json(answer)


@message.command("pull")
@_QUEUE_ARGUMENT
@click.option("--max", "count", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Most messages.")
@click.option("--wait", default=0.0, show_default=True, type=click.FloatRange(0), help="Seconds to wait for one.")
@click.option("--no-ack", is_flag=True, help="Leave them under lease, to be delivered again after their timeout.")
@target_options
def message_pull(target: Target, name: str, count: int, wait: float, no_ack: bool) -> None:
    """Pull messages, print their contents, one a line, and acknowledge them. Exits with 66 if there is none."""
    path = f"/v1/queues/{Api.segment(name)}"
    answer = target.api.post(f"{path}/pull", {"max": count, "timeout": wait}, timeout_s=wait + PULL_REPLY_S)
    messages = answer["messages"]
    if target.as_json:
        print_json(answer)
    else:
        for item in messages:
            for part in item["content"] if item["type"] == "compound" else [item]:
                sys.stdout.buffer.write(_bytes(part["content"]) + b"\n")
    sys.stdout.flush()
    if messages and not no_ack:
        target.api.post(f"{path}/ack", {"ids": [item["id"] for item in messages]})
    if not messages:
        raise CliError(f"{target.node}: no message is ready in queue {name}", ExitCode.NOT_FOUND)


def _content(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(content: Any) -> bytes:
    return base64.b64decode(content["base64"]) if isinstance(content, dict) else str(content).encode()
