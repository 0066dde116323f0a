"""Common parts of bulk transfers: clients of several nodes, and a progress line."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final

import click
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from lmqcluster import AsyncClient
from lmqcluster.client import ClientOptions
from lmqcluster.client.aio.client import TIMEOUT_S_MAX
from lmqcluster.wire.address import Address

from ...shared.connection.credentials import credentials
from ...shared.connection.target import Target
from ...shared.output import Column, Form, View, make_console, print_table

__all__ = ["clients_of", "nodes_option", "patience_option", "print_counts", "progress_line", "rpc_addresses"]

_COUNT_COLUMNS: Final = [Column("Queue", "queue"), Column("Messages", "messages", right=True)]

nodes_option = click.option(
    "--nodes",
    metavar="HOST:PORT,...",
    help="MessagePack-RPC addresses to use. [default: those of all nodes of the cluster]",
)
patience_option = click.option(
    "--patience",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, TIMEOUT_S_MAX, min_open=True),
    help="Seconds to retry while nodes are unreachable, have no leader or are overloaded.",
)


def rpc_addresses(target: Target, nodes: str | None) -> list[str]:
    """Return the addresses of ``--nodes``, else those of the whole cluster.

    Raises:
        click.UsageError: an address is malformed, or there is none.
    """
    if nodes is None:
        return target.rpc_addresses()
    try:
        addresses = [str(Address.parse(text)) for text in nodes.split(",") if text.strip()]
    except ValueError as exc:
        raise click.UsageError(f"--nodes: {exc}") from exc
    if not addresses:
        raise click.UsageError("--nodes contains no address")
    return addresses


@asynccontextmanager
async def clients_of(addresses: Sequence[str], patience_s: float) -> AsyncIterator[list[AsyncClient]]:
    """Yield one client for each address; it falls back to the other addresses when its own fails.

    A request fails for good after it was retried for `patience_s` (at most `TIMEOUT_S_MAX`).
    """
    async with AsyncExitStack() as stack:
        options: ClientOptions = {**credentials().for_clients, "timeout_s": patience_s}
        yield [
            await stack.enter_async_context(AsyncClient([*addresses[place:], *addresses[:place]], **options))
            for place in range(len(addresses))
        ]


class _RateColumn(ProgressColumn):
    """The number of messages so far and the rate."""

    def render(self, task: Task) -> Text:
        count = int(task.fields["messages"])
        rate = count / task.elapsed if task.elapsed else 0.0
        return Text(f"{count:,} messages, {rate:,.0f}/s")


@contextmanager
def progress_line(description: str, total: int | None, *, counts: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error if that is a terminal.

    Yields a function that takes the number of messages so far, shown if `counts`, and the progress towards `total`, in
    bytes of input.
    """
    if not sys.stderr.isatty():
        yield lambda _messages, _position: None
        return
    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if total is None:
        columns += [SpinnerColumn(), _RateColumn(), TimeElapsedColumn()]
    else:
        rate: list[ProgressColumn] = [_RateColumn()] if counts else []
        columns += [BarColumn(), TaskProgressColumn(), *rate, DownloadColumn(True), TimeRemainingColumn()]
    with Progress(*columns, console=make_console(stderr=True)) as progress:
        task = progress.add_task(description, total=total, messages=0)

        def update(messages: int, position: int) -> None:
            progress.update(task, completed=position, messages=messages)

        yield update


def print_counts(counts: Mapping[str, int], form: Form | None) -> None:
    """Print messages by queue, sorted by name."""
    print_table(_COUNT_COLUMNS, sorted(counts.items()), view=View(form))
