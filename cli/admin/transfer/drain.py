"""``lmq-admin drain``: moves all messages of queues into a file of JSON lines."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import click

from ...shared.connection.credentials import complete_file
from ...shared.connection.target import Target, complete_queue, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.interrupt import run_until_interrupted
from ...shared.output import plural, print_json
from ..queues.queue_list import all_queues, require_queue
from .bulk import clients_of, nodes_option, patience_option, print_counts, progress_line, rpc_addresses
from .drainer import Drain, DrainReport

__all__ = ["drain"]


@click.command(short_help="Write all messages of queues as JSON lines.")
@click.argument("names", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queue)
@click.option("--match", metavar="REGEXP", help="Also drain the queues whose names match this regular expression.")
@click.option(
    "--output",
    default="-",
    show_default=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="A new file to write; - for stdout.",
)
@click.option(
    "--wait",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds without a message after which a queue counts as empty.",
)
@nodes_option
@patience_option
@target_options
def drain(
    target: Target,
    names: tuple[str, ...],
    match: str | None,
    output: str,
    wait: float,
    nodes: str | None,
    patience: float,
) -> int:
    """Pull all messages of queues and write them as JSON lines; each is acknowledged after it is written.

    Messages leased by other consumers become ready only after their leases expire: choose a longer --wait to get these
    too. Ctrl-C stops gracefully. If the messages go to standard output, the counts go to standard error.

    \b
    Example:
      lmq-admin drain orders > orders.jsonl
    """
    if not names and match is None:
        raise click.UsageError("name queues, or pass --match REGEXP")
    pattern = _pattern(match)
    run = _Run(wait_s=wait, patience_s=patience)
    # Errors of the command line are reported before the first request.
    with _writer(output) as write:
        addresses = rpc_addresses(target, nodes)
        queues = _queues(target, names, pattern)
        with progress_line("drain", None) as run.show:
            run_until_interrupted(lambda stop: run.pull(addresses, queues, write, stop))
    _print_report(target, run.report, queues, to_stdout=output == "-")
    if run.report.unconfirmed:
        click.echo(
            f"lmq-admin: {plural(run.report.unconfirmed, 'message')} were not acknowledged in time and may be delivered again",
            err=True,
        )
    if run.trouble is not None:
        raise run.trouble
    if run.interrupted:
        raise CliError("interrupted: every message written is acknowledged", ExitCode.INTERRUPTED)
    return ExitCode.DONE


class _Run:
    """One run of the command, between its options and `Drain`."""

    def __init__(self, *, wait_s: float, patience_s: float) -> None:
        self._wait_s = wait_s
        self._patience_s = patience_s
        self.show: Callable[[int, int], None] = lambda _messages, _position: None
        self.report = DrainReport()
        self.trouble: CliError | None = None
        self.interrupted = False

    async def pull(
        self, addresses: list[str], queues: list[bytes], write: Callable[[Iterable[str]], None], stop: asyncio.Event
    ) -> None:
        """Drain everything; afterwards the outcome is in the attributes."""
        async with clients_of(addresses, self._patience_s) as clients:
            work = Drain(
                clients,
                wait_s=self._wait_s,
                write=write,
                on_progress=lambda report: self.show(report.queues.total(), 0),
            )
            self.report = work.report
            try:
                await work.run(queues, stop)
            except CliError as exc:
                self.trouble = exc
            else:
                self.interrupted = stop.is_set()


def _pattern(match: str | None) -> re.Pattern[str] | None:
    if match is None:
        return None
    try:
        return re.compile(match)
    except re.error as exc:
        raise click.UsageError(f"--match: {match!r} is not a regular expression: {exc}") from exc


def _queues(target: Target, names: Iterable[str], pattern: re.Pattern[str] | None) -> list[bytes]:
    for name in names:
        require_queue(target.api, name)
    queues = {name.encode(errors="surrogateescape") for name in names}
    if pattern is not None:
        found = (item["name"] for item in all_queues(target.api))
        queues.update(name.encode() for name in found if isinstance(name, str) and pattern.search(name))
    return sorted(queues)


@contextmanager
def _writer(output: str) -> Iterator[Callable[[Iterable[str]], None]]:
    """Return a function that stores lines, in a file durably. A failure before the first line leaves no file."""
    if output == "-":
        yield lambda lines: _write(sys.stdout.buffer, lines, "standard output")
        return
    try:
        # Never overwrite: an existing file may hold the only copy of messages of an earlier drain.
        file = Path(output).open("xb", buffering=0)  # noqa: SIM115  closed below
    except OSError as exc:
        raise click.UsageError(f"cannot create {output}: {exc.strerror}") from exc
    with file:

        def store(lines: Iterable[str]) -> None:
            _write(file, lines, output)

        try:
            yield store
        except BaseException:
            if file.tell() == 0:
                Path(output).unlink()
            raise


def _write(stream: BinaryIO | FileIO, lines: Iterable[str], name: str) -> None:
    """Write lines, durably if `stream` is a file on disk.

    Raises:
        CliError: they cannot be written; their messages must not be acknowledged.
    """
    try:
        for line in lines:
            rest = f"{line}\n".encode()
            while rest:
                rest = rest[stream.write(rest) :]
        stream.flush()
        if stream is not sys.stdout.buffer:
            os.fsync(stream.fileno())
    except BrokenPipeError:
        raise
    except OSError as exc:
        text = f"cannot write {name}: {exc.strerror}; messages that were not completely written are not acknowledged"
        raise CliError(text, ExitCode.IO) from exc


def _print_report(target: Target, report: DrainReport, queues: list[bytes], *, to_stdout: bool) -> None:
    counts = {queue.decode(errors="replace"): report.queues[queue] for queue in queues}
    if to_stdout:
        for name, count in sorted(counts.items()):
            click.echo(f"{name}\t{count}", err=True)
    elif target.as_json:
        print_json({"messages": report.queues.total(), "unconfirmed": report.unconfirmed, "queues": counts})
    else:
        print_counts(counts, target.form)
