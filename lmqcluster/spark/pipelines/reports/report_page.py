"""The report as one HTML page: no script, no requests, light or dark like the reader's system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from .svg import Line, bar_chart, human_number, human_seconds, time_chart

__all__ = ["report_page"]

_BARS_MAX: Final = 20
_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --card: #f7f8fa; --ink: #1b2430; --soft: #5b6675; --rule: #dde2e8;
  --s0: #1f6fb4; --s1: #c2571a; --s2: #7b4bb3; --s3: #2b8a57; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #9aa6b5;
  --rule: #2e3743; --s0: #6db3f2; --s1: #f0955a; --s2: #bb94ee; --s3: #67c795; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 16px 48px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 4px; } h2 { font-size: 1.1rem; margin: 32px 0 8px; }
p { margin: 4px 0; color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 0; padding: 0; list-style: none; }
.cards li { flex: 1 1 130px; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 14px; }
.cards b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; } .cards span { color: var(--soft); }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px; overflow-x: auto; }
figcaption { display: flex; gap: 16px; flex-wrap: wrap; color: var(--soft); margin-bottom: 6px; }
.key::before { content: ""; display: inline-block; width: 14px; height: 3px; margin-right: 6px; vertical-align: middle; }
.key.s0::before { background: var(--s0); } .key.s1::before { background: var(--s1); }
.key.s2::before { background: var(--s2); } .key.s3::before { background: var(--s3); }
svg { display: block; width: 100%; min-width: 520px; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; } .tip { fill: transparent; }
.tip:hover { fill: var(--ink); fill-opacity: .07; } .range { fill: var(--rule); }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); } .line.s3 { stroke: var(--s3); }
.mark.s0 { fill: var(--s0); } .mark.s1 { fill: var(--s1); } .mark.s2 { fill: var(--s2); } .mark.s3 { fill: var(--s3); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 8px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 9em; }
"""


def report_page(report: Mapping[str, Any]) -> str:
    """Return the page for the result of `lmqcluster.spark.pipelines.reports.report.report`."""
    span, total = report["span"], report["total"]
    unread = f" {span['unreadable_lines']:,} lines could not be read." if span["unreadable_lines"] else ""
    nodes = ", ".join(span["nodes"])
    covered = f"{span['begin']} to {span['end']} ({human_seconds(span['seconds'])}), from the journals of {nodes}."
    body = [
        "<h1>Queues: arrivals, waiting and redelivery</h1>",
        f"<p>{escape(covered)}{escape(unread)}</p>",
        _cards(total, report["queue_count"]),
        *_charts(report),
        *_queue_charts(report["queues"]),
        "<h2>Queues</h2>",
        _left_out(report),
        _table([*report["queues"], {"queue": "All queues", **total}]),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>lmqcluster: report on queues</title><style>{_STYLE}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


def _cards(total: Mapping[str, Any], queue_count: int) -> str:
    waiting = total["waiting_s"]
    cards = [
        (f"{queue_count:,}", "queues"),
        (human_number(total["arrivals"]), "arrivals"),
        (human_number(total["deliveries"]), "deliveries"),
        (_percent(total["redelivered_share"]), "of them redeliveries"),
        (human_number(total["drops"]), "dropped"),
        ("-" if waiting is None else human_seconds(waiting["p50"]), "median wait"),
        ("-" if waiting is None else human_seconds(waiting["p99"]), "99 % wait at most"),
    ]
    return f'<ul class="cards">{"".join(f"<li><b>{escape(value)}</b><span>{name}</span></li>" for value, name in cards)}</ul>'


def _charts(report: Mapping[str, Any]) -> list[str]:
    series, bucket_s = _with_gaps(report["series"], report["bucket_s"]), report["bucket_s"]
    times = [entry["time"] for entry in series]
    positions = [datetime.fromisoformat(time).timestamp() for time in times]

    def rates(name: str) -> list[float]:
        return [entry[name] / bucket_s for entry in series]

    def waits(name: str) -> list[float | None]:
        return [None if entry["waiting_s"] is None else entry["waiting_s"][name] for entry in series]

    flow = [Line("arrivals", "s0", rates("arrivals")), Line("deliveries", "s1", rates("deliveries"))]
    trouble = [Line("redeliveries", "s2", rates("redeliveries")), Line("drops", "s1", rates("drops"))]
    waiting = [Line("median", "s0", waits("p50")), Line("95 %", "s1", waits("p95")), Line("99 %", "s2", waits("p99"))]
    each = f"a second, mean of {human_seconds(bucket_s)}"
    return [
        _figure("Arrivals and deliveries", each, flow, time_chart(
            "Arrivals and deliveries over time", times, positions, flow, show=human_number, stepped=True)),
        _figure("Waiting time", "from ready to delivered, by time of delivery", waiting, time_chart(
            "Waiting time over time", times, positions, waiting, show=human_seconds, logarithmic=True)),
        _figure("Redeliveries and drops", each, trouble, time_chart(
            "Redeliveries and drops over time", times, positions, trouble, show=human_number, stepped=True)),
    ]  # fmt: skip


def _with_gaps(series: Sequence[Mapping[str, Any]], bucket_s: int) -> list[Mapping[str, Any]]:
    """Return the series with an empty entry at the beginning and end of every gap, so that lines fall to 0 there."""
    filled: list[Mapping[str, Any]] = []
    for entry in series:
        at = datetime.fromisoformat(entry["time"]).timestamp()
        if filled:
            before = datetime.fromisoformat(filled[-1]["time"]).timestamp()
            steps = round((at - before) / bucket_s)
            empty = sorted({before + bucket_s, at - bucket_s}) if steps > 1 else []
            filled += [_empty_entry(time) for time in empty]
        filled.append(entry)
    return filled


def _empty_entry(time: float) -> dict[str, Any]:
    text = datetime.fromtimestamp(time, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": text, "arrivals": 0, "deliveries": 0, "redeliveries": 0, "drops": 0, "waiting_s": None}


def _queue_charts(queues: Sequence[Mapping[str, Any]]) -> list[str]:
    names = {"p50": "median", "p95": "95 %", "p99": "99 %"}
    rows = [
        (queue["queue"], [(label, queue["waiting_s"][key]) for key, label in names.items()])
        for queue in queues
        if queue["waiting_s"] is not None
    ][:_BARS_MAX]
    if not rows:
        return []
    keys = [Line(label, f"s{place}", []) for place, label in enumerate(names.values())]
    chart = bar_chart("Waiting time by queue", rows, show=human_seconds)
    return [_figure("Waiting time by queue", "logarithmic", keys, chart)]


def _figure(title: str, note: str, lines: Sequence[Line], chart: str) -> str:
    keys = "".join(f'<span class="key {line.style}">{escape(line.name)}</span>' for line in lines)
    return f"<h2>{escape(title)}</h2><figure><figcaption>{keys}<span>{escape(note)}</span></figcaption>{chart}</figure>"


def _left_out(report: Mapping[str, Any]) -> str:
    rest = report["queue_count"] - len(report["queues"])
    return (
        f"<p>The {len(report['queues']):,} busiest; {rest:,} further queues are only in the total.</p>" if rest else ""
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    titles = ("Queue", "Arrivals", "per s", "Deliveries", "Redelivered", "after nack", "after lease", "Dropped",
              "Wait p50", "p95", "p99", "max", "To ack p50", "p99")  # fmt: skip
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cells(row: Mapping[str, Any]) -> list[str]:
    def time(kind: str, name: str) -> str:
        return "-" if row[kind] is None else human_seconds(row[kind][name])

    rate = row["arrivals_per_s"]
    again = row["redeliveries"]
    return [
        row["queue"],
        f"{row['arrivals']:,}",
        "-" if rate is None else human_number(rate),
        f"{row['deliveries']:,}",
        f"{again:,} ({_percent(row['redelivered_share'])})" if again else "0",
        f"{again - row['lease_ends']:,}",
        f"{row['lease_ends']:,}",
        f"{row['drops']:,}",
        *(time("waiting_s", name) for name in ("p50", "p95", "p99", "max")),
        *(time("holding_s", name) for name in ("p50", "p99")),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
