"""``lmq-admin import kestrel``: imports Kestrel's journals into queues.

The items left in a journal are the stream of a job named by a digest of the journal's bytes. The cluster stores the
position of the next item with the items, so an interrupted import resumes there and a repeated one stores nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from lmqcluster import AsyncClient
from lmqcluster.client.options import PushOptions
from lmqcluster.wire.errors import LmqError

from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode, exit_code_of
from ...shared.interrupt import run_until_interrupted
from ...shared.output import Column, print_table
from ..transfer.bulk import clients_of, nodes_option, patience_option, progress_line, rpc_addresses
from .kestrel_journal import Item, Journal, journal_files, queues_in

__all__ = ["kestrel"]

BATCH_ITEMS: Final = 1000
CONTENT_TYPE: Final = "application/octet-stream"
BATCH_BYTES: Final = 4 * 1024 * 1024
TTL_S_MIN: Final = 1e-6
"""Time to live of an item that has expired: it is stored and expires at once."""
_COLUMNS: Final = [
    Column("Queue", "queue"),
    Column("Items", "items", right=True),
    Column("Stored before", "before", right=True),
    Column("Bytes", "bytes", right=True),
]
Show = Callable[[int, int], None]


@dataclass
class _Import:
    """The import of one queue.

    Attributes:
        before: items stored by earlier runs.
        stored: items stored so far.
    """

    queue: str
    journal: Journal
    before: int = 0
    stored: int = 0

    @property
    def job(self) -> str:
        return f"kestrel-import:{self.journal.digest}"

    def size_bytes(self, count: int | None = None) -> int:
        """Return the size of the first `count` items, or of all."""
        return sum(item.size for item in islice(self.journal.items, count))


def _batches(journal: Journal, first: int) -> Iterator[list[tuple[Item, bytes]]]:
    batch: list[tuple[Item, bytes]] = []
    size = 0
    for item, content in journal.contents(first):
        batch.append((item, content))
        size += len(content)
        if len(batch) == BATCH_ITEMS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _options(item: Item) -> PushOptions | None:
    return {"ttl": max(TTL_S_MIN, item.expires_ms / 1000 - time.time())} if item.expires_ms else None


async def _store(one: _Import, client: AsyncClient, show: Show, stop: asyncio.Event) -> None:
    """Push the items that are not stored yet."""
    mark = await client.mark(one.job, one.queue)
    one.before = one.stored = 0 if mark is None else mark.position
    total = len(one.journal.items)
    size = one.size_bytes(one.stored)
    show(0, size)
    for batch in _batches(one.journal, one.stored):
        if stop.is_set():
            return
        await client.push_marked(
            one.queue,
            [content for _, content in batch],
            job=one.job,
            stream=one.queue,
            first=one.stored,
            done=one.stored + len(batch) == total,
            content_types=[CONTENT_TYPE] * len(batch),
            options=[_options(item) for item, _ in batch],
        )
        one.stored += len(batch)
        size += sum(len(content) for _, content in batch)
        show(len(batch), size)


async def _store_all(
    found: list[_Import], target: Target, addresses: list[str], patience_s: float, stop: asyncio.Event
) -> None:
    total = sum(one.size_bytes() for one in found)
    done_items = done_bytes = 0
    async with clients_of(addresses, patience_s) as clients:
        with progress_line("import", total) as progress:
            for one in found:

                def show(items: int, size: int, before: tuple[int, int] = (done_items, done_bytes)) -> None:
                    nonlocal done_items, done_bytes
                    done_items, done_bytes = done_items + items, before[1] + size
                    progress(done_items, done_bytes)

                try:
                    await _check_copies(one, target, clients[0])
                    await _store(one, clients[0], show, stop)
                except LmqError as exc:
                    text = (
                        f"{one.queue}: {exc.message}; {one.stored} items are stored; run the command again to continue"
                    )
                    raise CliError(text, exit_code_of(exc)) from exc
                if stop.is_set():
                    return
                _bind(one.queue, target)


async def _check_copies(one: _Import, target: Target, client: AsyncClient) -> None:
    """Check that the queue has no copies to make: its children have separate journals, which already contain its
    items.

    Raises:
        CliError: the queue copies messages to other queues.
    """
    mark = await client.mark(one.job, one.queue)
    if mark is not None and mark.done:
        return
    path = f"/v1/queues/{quote(one.queue, safe='')}/bindings"
    try:
        copies = await asyncio.to_thread(target.api.get, path)
    except CliError as exc:
        if exc.exit_code != ExitCode.NOT_FOUND:
            raise
        return
    if copies["targets"]:
        names = ", ".join(copies["targets"])
        text = f"{one.queue} copies its messages to {names}, which would get its old items twice; unbind them first"
        raise CliError(text, ExitCode.BAD_DATA)


def _bind(queue: str, target: Target) -> None:
    """Bind a child to its parent, so that it gets messages pushed from now on."""
    parent, plus, _ = queue.partition("+")
    if plus:
        target.api.post(f"/v1/queues/{quote(parent, safe='')}/bind", {"target": queue})


def _read_all(folder: Path, names: tuple[str, ...]) -> list[_Import]:
    """Read the journals; parents come before their children."""
    done_bytes = 0
    try:
        files = {queue: _files_of(folder, queue) for queue in sorted(set(names) or queues_in(folder))}
        total = sum(path.stat().st_size for paths in files.values() for path in paths)
        with progress_line("read", total, counts=False) as progress:

            def on_bytes(size: int) -> None:
                nonlocal done_bytes
                done_bytes += size
                progress(0, done_bytes)

            found = [_Import(queue, Journal.read(paths, on_bytes)) for queue, paths in files.items()]
    except OSError as exc:
        raise CliError(f"the journals in {folder} cannot be read: {exc.strerror}", ExitCode.BAD_DATA) from exc
    return found


def _files_of(folder: Path, queue: str) -> list[Path]:
    paths = journal_files(folder, queue)
    if not paths:
        raise CliError(f"{folder} has no journal of a queue {queue}", ExitCode.NOT_FOUND)
    return paths


@click.command(short_help="Read Kestrel's journals into queues.")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@nodes_option
@patience_option
@target_options
def kestrel(target: Target, folder: Path, names: tuple[str, ...], nodes: str | None, patience: float) -> ExitCode:
    """Read the journals in DIR, Kestrel's queue_path, into queues of the same names: all, or the named ones.

    Stop Kestrel first, or copy its files after it has stopped. Items keep their order and expiry. Items that were open
    go to the head. Children follow their parents and are bound to them.

    Each item is stored exactly once: the command may be interrupted and repeated at any time, even from copies of the
    files. The cluster remembers the position for 30 days. A damaged journal is read up to the damage; the rest is
    reported, and the exit code is 65.

    \b
    Example:
      lmq-admin import kestrel /var/spool/kestrel mail work
    """
    found = _read_all(folder, names)
    addresses = rpc_addresses(target, nodes)
    stopped = run_until_interrupted(partial(_run, found, target, addresses, patience))
    rows = [(one.queue, one.stored, one.before, one.size_bytes(one.stored)) for one in found]
    print_table(_COLUMNS, rows, view=target.view)
    if stopped:
        raise CliError("interrupted; run the command again to continue", ExitCode.INTERRUPTED)
    for one in found:
        for damage in one.journal.damages:
            click.echo(f"lmq-admin: {damage}", err=True)
        if one.journal.missing:
            click.echo(f"lmq-admin: {one.queue}: {one.journal.missing} removed items are not in any file", err=True)
    return ExitCode.BAD_DATA if any(one.journal.damages for one in found) else ExitCode.DONE


async def _run(
    found: list[_Import], target: Target, addresses: list[str], patience_s: float, stop: asyncio.Event
) -> bool:
    await _store_all(found, target, addresses, patience_s, stop)
    return stop.is_set()
