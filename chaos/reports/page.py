"""The report as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..drill import Result
from .figures import BUCKET_US, buckets
from .svg import timeline

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --line: #d7dce3; --paper: #fff; --shade: #f4b36a55;
  --push: #2563eb; --pull: #0f9d6a; --slow: #c2410c; --bad: #b42318; --good: #067647; --doubt: #93670a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2b3; --line: #344054; --paper: #14181f;
  --push: #7aa5ff; --pull: #4fd1a1; --slow: #fb923c; --bad: #ff8a80; --good: #6ce9a6; --doubt: #fdd36b; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 64rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { margin: 2.5rem 0 0.2rem; } p { margin: 0.3rem 0; } .soft { color: var(--soft); }
table { border-collapse: collapse; margin: 0.8rem 0; display: block; overflow-x: auto; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.pass { color: var(--good); } .fail { color: var(--bad); font-weight: 600; } .unknown { color: var(--doubt); }
svg { width: 100%; height: auto; margin: 0.5rem 0; } svg text { font: 10px system-ui, sans-serif; fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 0.6; } svg .fault { fill: var(--shade); }
svg polyline { fill: none; stroke-width: 1.4; } svg .push { stroke: var(--push); } svg .pull { stroke: var(--pull); }
svg .slow { stroke: var(--slow); } svg .half { stroke: var(--push); }
svg line.leader { stroke: var(--bad); stroke-dasharray: 4 3; } svg text.leader { fill: var(--bad); }
.key b { font-weight: 400; } .key .push { color: var(--push); } .key .pull { color: var(--pull); }
.key .slow { color: var(--slow); }
pre { overflow-x: auto; }
"""


def page(results: list[Result]) -> str:
    """Return the page."""
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Drills</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head><body><h1>Drills</h1>",
            *_overview(results),
            *(part for number, result in enumerate(results) for part in _section(number, result)),
            "</body></html>\n",
        ]
    )


def _table(head: list[str], rows: list[list[str]], numbers_from: int = 1) -> str:
    def cells(tag: str, row: list[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if position >= numbers_from else ''}>{cell}</{tag}>"
            for position, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def _overview(results: list[Result]) -> Iterator[str]:
    rows = [
        [
            f'<a href="#d{number}">{escape(result.scenario.name)}</a>',
            f'<span class="{result.verdict}">{result.verdict}</span>',
            str(result.seed),
            f"{result.judgement.totals.acknowledged:,}",
            *(f"{count:,}" for count in result.judgement.faults.values()),
        ]
        for number, result in enumerate(results)
    ]
    faults = [name.replace("_", " ") for name in results[0].judgement.faults] if results else []
    yield _table(["Drill", "Verdict", "Seed", "Acknowledged", *faults], rows, numbers_from=2)


def _section(number: int, result: Result) -> Iterator[str]:
    scenario = result.scenario
    yield f'<h2 id="d{number}">{escape(scenario.name)}: <span class="{result.verdict}">{result.verdict}</span></h2>'
    yield f'<p>{escape(scenario.title)}.</p><p class="soft">{escape(scenario.why)}</p>'
    yield (
        f'<p class="soft">{scenario.cluster.nodes} nodes of version {escape(result.version)}, durability'
        f" {scenario.cluster.durability}, seed {result.seed}, {result.seconds:.0f} s in total</p>"
    )
    for reason in result.reasons:
        yield f'<pre class="{result.verdict}">{escape(reason)}</pre>'
    yield timeline(buckets(result.events), result.windows, result.elections, BUCKET_US)
    yield (
        '<p class="key soft"><b class="push">pushes acknowledged, median latency</b> · <b class="pull">messages delivered</b> ·'
        ' <b class="slow">slowest push</b> · shaded: faults · dashed: new leaders</p>'
    )
    yield from _figures(result)


def _figures(result: Result) -> Iterator[str]:
    begin_us = result.begin_us
    yield _table(
        [
            "Fault",
            "Affected nodes",
            "From",
            "To",
            "New leader after",
            "Longest pause of others",
            "Replicas caught up after",
        ],
        [
            [
                escape(window.kind),
                escape(", ".join(window.hit)),
                f"{(window.begin_us - begin_us) / 1e6:.1f} s",
                f"{(window.end_us - begin_us) / 1e6:.1f} s",
                *(_seconds(value) for value in (window.leader_s, window.pause_s, window.in_step_s)),
            ]
            for window in result.windows
        ],
        numbers_from=2,
    )
    yield _table(
        ["Operation", "ok", "failed", "unknown"],
        [
            [op, *(f"{outcomes.get(outcome, 0):,}" for outcome in ("ok", "failed", "unknown"))]
            for op, outcomes in result.operations.items()
        ],
    )
    yield _table(
        ["Process", "Attempted", "Acknowledged", "Unknown", "Delivered", "Acked", "Lost", "Where lost"],
        [
            [
                escape(name),
                *(f"{figure:,}" for figure in (a.attempted, a.acknowledged, a.unknown, a.delivered, a.acked, a.lost)),
                a.lost_where or "",
            ]
            for name, a in result.judgement.by_process.items()
        ],
    )
    for name, cases in result.judgement.examples.items():
        yield f'<p class="fail">{escape(name.replace("_", " "))}</p><pre>{escape(chr(10).join(cases))}</pre>'
    for text in result.notes:
        yield f'<p class="soft">{escape(text)}</p>'


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"
