"""Write the tables of the documentation from the stored result: ``python -m tests.benchmarks.native.pages``.

A table is between the comments ``<!-- benchmarks:NAME -->`` and ``<!-- /benchmarks:NAME -->`` of a page.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.native.programs import ROOT
from tests.benchmarks.native.report import read_rows
from tests.benchmarks.native.rows import Operation, Protocol, Row, Via
from tests.benchmarks.native.suite import Figure

RESULT: Final = ROOT / "docs" / "plots" / "native.json"
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "sizing.md")
NOTHING: Final = "-"
COLUMNS: Final = {
    "lmqcluster": "lmqcluster",
    "lmqcluster, front ends": "lmqcluster, 2 front ends",
    "JetStream, synced": "JetStream {nats-server}, synced",
    "JetStream": "JetStream {nats-server}",
}
"""The heading of each system. Those of TLS have the rows over HTTPS and share the columns of the others."""
SHARED: Final = {"lmqcluster, TLS": "lmqcluster", "lmqcluster, TLS, front ends": "lmqcluster, front ends"}
SUMMARY: Final = (
    Row(Operation.PUSH, Protocol.OWN, 1, 256, Via.LEADER),
    Row(Operation.PUSH, Protocol.OWN, 64, 1, Via.LEADER),
    Row(Operation.PUSH, Protocol.OWN, 512, 1, Via.ALL),
    Row(Operation.CONSUME, Protocol.OWN, 1, 256, Via.LEADER),
)
ONE_AT_A_TIME: Final = Row(Operation.PUSH, Protocol.OWN, 1, 1, Via.LEADER)
FRONT_ENDS: Final = {"lmqcluster": "lmqcluster, front ends", "lmqcluster, TLS": "lmqcluster, TLS, front ends"}
"""The system with front ends for each system without them."""
SIZED: Final = (
    Row(Operation.PUSH, Protocol.OWN, 1, 256, Via.LEADER),
    Row(Operation.PUSH, Protocol.OWN, 256, 1, Via.LEADER),
    Row(Operation.PUSH, Protocol.OWN, 512, 1, Via.ALL),
    Row(Operation.PUSH, Protocol.HTTP, 256, 1, Via.LEADER),
    Row(Operation.PUSH, Protocol.HTTPS, 256, 1, Via.LEADER),
)
CORES: Final = (2, 4, 8, 16)
USED: Final = 0.8
"""The part of a core that may be used; above it, requests wait for each other."""
_BLOCK: Final = re.compile(r"(<!-- benchmarks:([a-z-]+) -->\n).*?(<!-- /benchmarks:\2 -->)", re.DOTALL)

Cell = Callable[[Figure], str]


class StalePageError(Exception):
    """A page asks for a table that does not exist, or has none."""


def blocks(document: Mapping[str, Any]) -> dict[str, str]:
    """Return all generated texts by their names."""
    rows = read_rows(document)
    versions = document["versions"]
    return {
        "summary": _summary(rows, versions),
        "rates": _table("Per second", rows, rows, versions, rate),
        "latencies": _table("p50 / p99 / p99.9, ms", rows, rows, versions, latencies),
        "processor": _table("Leader / all servers / generator, µs", rows, rows, versions, processor),
        "versions": _versions(document),
        "sizing": _sizing(rows),
        "sizing-check": _sizing_check(rows, document["machine"]["cores"]),
    }


def label(row: Row) -> str:
    """Return the text of a row."""
    protocol = "" if row.protocol is Protocol.OWN else f"{row.protocol} "
    connections = "1 connection" if row.connections == 1 else f"{row.connections} connections"
    in_flight = "one at a time" if row.in_flight == 1 else f"{row.in_flight} in flight"
    return f"{protocol}{row.operation}, {connections}, {in_flight}, {row.via}"


def rate(figure: Figure) -> str:
    """Return a rate with three digits."""
    return _rounded(figure.rate)


def _rounded(value: float) -> str:
    digits = len(str(round(value)))
    return f"{round(value, min(3 - digits, 0)):,.0f}"


def latencies(figure: Figure) -> str:
    """Return three percentiles."""
    return " / ".join(f"{time_ms:.2f}" for time_ms in (figure.p50_ms, figure.p99_ms, figure.p999_ms))


def processor(figure: Figure) -> str:
    """Return the processor time for an operation of the leader, all servers and the generator."""
    spent = (figure.leader_us, figure.servers_us, figure.generator_us)
    return " / ".join(f"{spent_us:,.1f}" if spent_us < 100 else f"{spent_us:,.0f}" for spent_us in spent)


def _median(figure: Figure) -> str:
    return f"{figure.p50_ms:.2f} ms"


def _summary(rows: Mapping[Row, Mapping[str, Figure]], versions: Mapping[str, str]) -> str:
    table = _table("Per second", SUMMARY, rows, versions, rate)
    return table + _line(f"{label(ONE_AT_A_TIME)}: p50", _cells(rows.get(ONE_AT_A_TIME, {}), _median))


def _table(
    title: str,
    wanted: Sequence[Row] | Mapping[Row, Any],
    rows: Mapping[Row, Mapping[str, Figure]],
    versions: Mapping[str, str],
    cell: Cell,
) -> str:
    headings = [heading.format_map(versions) for heading in COLUMNS.values()]
    lines = [_line(label(row), _cells(rows.get(row, {}), cell)) for row in wanted]
    return "".join([_line(title, headings), "|---" * (len(headings) + 1) + "|\n", *lines])


def _cells(figures: Mapping[str, Figure], cell: Cell) -> Sequence[str]:
    by_column = {SHARED.get(name, name): figure for name, figure in figures.items()}
    return [cell(by_column[name]) if name in by_column else NOTHING for name in COLUMNS]


def sized(row: Row, cores: int, figures: Mapping[str, Figure]) -> tuple[float, int]:
    """Return the pushes per second that the leader on a machine with some cores can take, and its front ends.

    Without front ends the leader is one process. With them, its own process and the front ends each have a limit, and both
    together have the cores.
    """
    name = "lmqcluster, TLS" if row.protocol is Protocol.HTTPS else "lmqcluster"
    one = figures.get(name)
    best = (0.0, 0) if one is None else (USED * 1e6 / one.leader_us, 0)
    relayed = figures.get(FRONT_ENDS[name])
    if relayed is None:
        return best
    front_ends_us = relayed.front_ends_us
    for count in range(1, cores):
        limits = (relayed.leader_us, front_ends_us / count, (relayed.leader_us + front_ends_us) / cores)
        best = max(best, (USED * 1e6 / max(limits), count), key=lambda found: (round(found[0]), -found[1]))
    return best


def _sizing(rows: Mapping[Row, Mapping[str, Figure]]) -> str:
    lines = [_line("Per second", [f"{cores} cores" for cores in CORES]), "|---" * (len(CORES) + 1) + "|\n"]
    for row in SIZED:
        found = [sized(row, cores, rows.get(row, {})) for cores in CORES]
        lines.append(_line(label(row), [f"{_rounded(per_s)} ({count})" for per_s, count in found]))
    return "".join(lines)


def _sizing_check(rows: Mapping[Row, Mapping[str, Figure]], cores: int) -> str:
    """Return the model for the machine of the measurement, where all servers and the generator share the cores."""
    headings = ("Expected", "Measured", "Measured / expected")
    lines = [_line("Per second", headings), "|---" * (len(headings) + 1) + "|\n"]
    for row in SIZED:
        for name, figure in rows.get(row, {}).items():
            if not name.startswith("lmqcluster"):
                continue
            expected = cores * 1e6 / (figure.servers_us + figure.generator_us)
            cells = (_rounded(expected), rate(figure), f"{figure.rate / expected:.2f}")
            lines.append(_line(label(row) + (", 2 front ends" if "front ends" in name else ""), cells))
    return "".join(lines)


def _line(first: str, others: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(others)} |\n"


def _versions(document: Mapping[str, Any]) -> str:
    machine, settings, versions = document["machine"], document["settings"], document["versions"]
    month = document["started"][:7]
    machine_text = f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB"
    servers = f"lmqcluster of commit {versions['lmqcluster']}, Python {versions['Python']}"
    duration = f"{settings['seconds']:g} seconds a row, {_repeats(settings['repeats'])}"
    lines = [
        f"- Machine: {machine_text}, Linux {versions['kernel']}.",
        f"- Servers: {servers}; nats-server {versions['nats-server']}.",
        f"- Generator: Go {versions['Go']}, nats.go {versions['nats.go']}.",
        f"- {month}: {duration}, {settings['body']} bytes, {_queues(settings['queues'])}.",
    ]
    return "\n".join(lines) + "\n"


def _repeats(count: int) -> str:
    return "measured once" if count == 1 else f"the median of {count} repeats"


def _queues(count: int) -> str:
    return "one queue" if count == 1 else f"{count} queues"


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with the generated texts in their places.

    Raises:
        StalePageError: there is no place, or no text of a place's name.
    """
    names = [found.group(2) for found in _BLOCK.finditer(page)]
    if not names or not set(names) <= set(texts):
        raise StalePageError(f"the page has places for {names}; there are {', '.join(texts)}")
    return _BLOCK.sub(lambda found: f"{found.group(1)}\n{texts[found.group(2)]}\n{found.group(3)}", page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables into all pages. Return the exit status: 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.native.pages", description=__doc__)
    parser.add_argument("--result", type=Path, default=RESULT, help="result of tests.benchmarks.native (%(default)s)")
    texts = blocks(json.loads(parser.parse_args(arguments).result.read_text(encoding="utf-8")))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
