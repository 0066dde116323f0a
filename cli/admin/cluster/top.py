"""``lmq-admin top``: live rates and states."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from lmqcluster.wire.errors import LmqError

from ...shared.connection.reads import is_temporary, view_of, view_options
from ...shared.connection.target import Target, target_options
from ...shared.errors import CliError, ExitCode
from ...shared.output import Column, Form, View, human_bytes, make_console, plural, print_json, print_table, table_of
from .keyboard import keys
from .live_figures import NODE_COLUMNS, QUEUE_COLUMNS, Figures, Sample, compare_samples, take_sample

__all__ = ["top"]

DEFAULT_SORT: Final = "-push_per_s"
LOOK_SHARE_MAX: Final = 0.1
_TIME_COLUMN: Final = Column("Time", "time")
_SORT_KEYS: Final = tuple(column.key for column in QUEUE_COLUMNS)


@click.command(short_help="Show live rates of queues and the state of nodes.")
@click.option(
    "--interval", default=2.0, show_default=True, type=click.FloatRange(0.5, 3600), help="Seconds between samples."
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N samples. [default: until q or Ctrl-C]")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    help="Show at most N queues. [default: as many as fit on the terminal, else 20]",
)
@view_options(QUEUE_COLUMNS)
@target_options
def top(target: Target, view: View, interval: float, count: int | None, limit: int | None) -> int:
    """Show live rates of each queue, and the state, lag, memory and disk of each node.

    Keys: q quits, s sorts by the next column, r reverses the order. If the output is not a terminal, each sample prints
    one line for each queue, or one object with --json. If a sample takes more than a tenth of the interval, the
    interval grows.

    \b
    Example:
      lmq-admin top --sort ready
    """
    view = view_of(target, view)
    view = replace(view, sort=view.sort or DEFAULT_SORT)
    view.chosen(QUEUE_COLUMNS, [])
    live = view.form in (None, Form.TABLE) and sys.stdout.isatty() and sys.stdin.isatty()
    sampler = _Sampler(target, interval)
    try:
        if live:
            _run_live(target, view, sampler, count, limit)
        else:
            _run_plain(view, sampler, count, limit or 20)
    except KeyboardInterrupt:
        # Ctrl-C is the regular end.
        return ExitCode.DONE
    return ExitCode.DONE


class _Sampler:
    """Samples a node repeatedly and keeps the last two samples."""

    def __init__(self, target: Target, interval_s: float) -> None:
        self._api = target.api
        self._interval_s = interval_s
        self._before: Sample | None = None
        self.trouble: CliError | LmqError | None = None

    def next(self) -> Figures | None:
        """Return the figures since the last sample; None after the first one, and while the node fails (see `trouble`).

        Raises:
            CliError, LmqError: a failure that waiting does not resolve.
        """
        before = self._before
        try:
            self._before = take_sample(self._api)
        except (CliError, LmqError) as exc:
            if not is_temporary(exc):
                raise
            self.trouble, self._before = exc, None
            return None
        self.trouble = None
        return None if before is None else compare_samples(before, self._before)

    def wait_s(self) -> float:
        """Return the seconds until the next sample: the second follows soon; a slow node is sampled less often."""
        if self._before is None:
            return self._interval_s
        return max(self._interval_s, self._before.took_s / LOOK_SHARE_MAX)


def _run_plain(view: View, sampler: _Sampler, count: int | None, limit: int) -> None:
    printed = 0
    while count is None or printed < count:
        figures = sampler.next()
        if sampler.trouble is not None:
            raise sampler.trouble
        if figures is not None:
            _print_plain(view, figures, limit, first=printed == 0)
            printed += 1
        if printed != count:
            time.sleep(sampler.wait_s())


def _print_plain(view: View, figures: Figures, limit: int, *, first: bool) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    _columns, ordered = replace(view, columns=()).chosen(QUEUE_COLUMNS, figures.queues)
    if view.effective_form is Form.JSON:
        queues = [dict(zip(_SORT_KEYS, row, strict=True)) for row in ordered[:limit]]
        nodes = [dict(zip((column.key for column in NODE_COLUMNS), row, strict=True)) for row in figures.nodes]
        print_json({"time": now, "totals": figures.totals, "nodes": nodes, "queues": queues}, one_line=True)
    else:
        chosen = (_TIME_COLUMN.key, *view.columns) if view.columns else ()
        shape = replace(view, sort="", headers=view.headers and first, columns=chosen)
        print_table([_TIME_COLUMN, *QUEUE_COLUMNS], [[now, *row] for row in ordered[:limit]], view=shape)
    sys.stdout.flush()


def _run_live(target: Target, view: View, sampler: _Sampler, count: int | None, limit: int | None) -> None:
    console = make_console()
    with keys() as read_keys, Live(console=console, screen=True, auto_refresh=False) as screen:
        figures: Figures | None = None
        shown = 0
        while True:
            latest = sampler.next()
            figures = latest or figures
            shown += latest is not None
            if count is not None and shown >= count:
                return
            until = time.monotonic() + sampler.wait_s()
            while (left := until - time.monotonic()) > 0:
                screen.update(_screen(target, view, sampler, figures, limit, console.size), refresh=True)
                for key in read_keys(left):
                    if key in "qQ":
                        return
                    view = _resort(view, key)


def _resort(view: View, key: str) -> View:
    """Return the view after a key: ``s`` sorts by the next column, ``r`` reverses the order."""
    descending, current = view.sort.startswith("-"), view.sort.removeprefix("-")
    if key == "s":
        following = _SORT_KEYS[(_SORT_KEYS.index(current) + 1) % len(_SORT_KEYS)]
        # Names are sorted ascending, figures descending.
        return replace(view, sort=following if following == "queue" else f"-{following}")
    if key == "r":
        return replace(view, sort=current if descending else f"-{current}")
    return view


def _screen(
    target: Target, view: View, sampler: _Sampler, figures: Figures | None, limit: int | None, size: tuple[int, int]
) -> RenderableType:
    width, height = size
    parts: list[RenderableType] = [
        Text(f"lmq-admin top, {target.node}, {time.strftime('%H:%M:%S')}   q quits, s sorts, r reverses", style="dim")
    ]
    if sampler.trouble is not None:
        text = sampler.trouble.message if isinstance(sampler.trouble, LmqError) else str(sampler.trouble)
        parts.append(Text(f"{text}; retrying, the figures below are outdated", style="bold red"))
    if figures is None:
        return Group(*parts, Text("Sampling ..."))
    parts += [Text(_summary(figures)), Text("")]
    nodes, _left_out = table_of(NODE_COLUMNS, figures.nodes, width)
    parts += [nodes, Text("")]
    columns, rows = view.chosen(_mark_columns(view), figures.queues)
    # The heading, and the line about further queues.
    room = limit or max(1, height - len(parts) - len(figures.nodes) - 4)
    queues, _left_out = table_of(columns, rows[:room], width, keep_all=bool(view.columns), headers=view.headers)
    parts.append(queues)
    if len(rows) > room:
        parts.append(Text(f"(and {len(rows) - room:,} further queues)", style="dim"))
    return Group(*parts)


def _mark_columns(view: View) -> list[Column]:
    """Return the columns, with an arrow at the sort column."""
    by, arrow = view.sort.removeprefix("-"), "\N{DOWNWARDS ARROW}" if view.sort.startswith("-") else "\N{UPWARDS ARROW}"
    return [replace(c, title=f"{c.title} {arrow}") if c.key == by else c for c in QUEUE_COLUMNS]


def _summary(figures: Figures) -> str:
    cluster, totals = figures.cluster, figures.totals
    leader = next((node["name"] or node["id"] for node in cluster["nodes"] if node["id"] == cluster["leader"]), None)
    rates = "  ".join(
        f"{word} {'-' if rate is None else f'{rate:,.0f}'}/s"
        for word, rate in (("push", totals["push_per_s"]), ("pull", totals["pull_per_s"]), ("ack", totals["ack_per_s"]))
    )
    quorum = "" if cluster["has_quorum"] else "NO QUORUM, "
    lead = f"leader {leader} in term {cluster['term']}" if leader else "no leader"
    return (
        f"{quorum}{lead}   {rates}\n{plural(totals['queues'], 'queue')}: {totals['ready']:,} ready, "
        f"{totals['delayed']:,} delayed, {totals['leased']:,} leased, {human_bytes(totals['bytes'])}"
    )
