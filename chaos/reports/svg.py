"""An SVG timeline of a drill: throughput, latency, shaded faults, marked elections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from .figures import Bucket, Window
from .watch import Election

__all__ = ["timeline"]

_WIDTH, _LEFT, _RIGHT, _PANEL, _GAP, _TOP, _BOTTOM = 960, 64, 12, 150, 34, 40, 30
_HEIGHT = _TOP + 2 * _PANEL + _GAP + _BOTTOM
_TICKS = 4
_LANES = 3


def timeline(
    buckets: Sequence[Bucket], windows: Sequence[Window], elections: Sequence[Election], bucket_us: int
) -> str:
    """Return the picture; empty if there is nothing to show."""
    if not buckets:
        return ""
    start_us, end_us = buckets[0].time_us, buckets[-1].time_us + bucket_us
    x = _scale(start_us, end_us, _LEFT, _WIDTH - _RIGHT)
    per_s = 1e6 / bucket_us
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Throughput and latency over time">',
        *_shades(windows, x, start_us, end_us),
        *_panel(
            _TOP,
            "messages/s",
            [
                ("push", [(bucket.time_us, bucket.pushes * per_s) for bucket in buckets]),
                ("pull", [(bucket.time_us, bucket.deliveries * per_s) for bucket in buckets]),
            ],
            x,
        ),
        *_panel(
            _TOP + _PANEL + _GAP,
            "push ms",
            [
                ("slow", [(bucket.time_us, bucket.push_max_ms) for bucket in buckets]),
                ("half", [(bucket.time_us, bucket.push_p50_ms) for bucket in buckets]),
            ],
            x,
        ),
        *_leaders(elections, x, start_us, end_us),
        *_seconds(start_us, end_us, x),
        "</svg>",
    ]
    return "\n".join(parts)


Scale = Callable[[float], float]


def _scale(low: float, high: float, to_low: float, to_high: float) -> Scale:
    return lambda value: to_low + (value - low) / ((high - low) or 1) * (to_high - to_low)


def _shades(windows: Sequence[Window], x: Scale, start_us: int, end_us: int) -> Iterator[str]:
    for number, window in enumerate(windows):
        left, right = x(max(window.begin_us, start_us)), x(min(max(window.end_us, window.begin_us), end_us))
        label = f"{window.kind} {', '.join(window.hit)}".strip()
        yield (
            f'<rect class="fault" x="{left:.1f}" y="{_TOP}" width="{max(right - left, 2):.1f}"'
            f' height="{2 * _PANEL + _GAP}"><title>{escape(label)}</title></rect>'
        )
        yield f'<text class="label" x="{left:.1f}" y="{_TOP - 6 - 11 * (number % _LANES)}">{escape(label)}</text>'


def _panel(top: float, unit: str, curves: Sequence[tuple[str, Sequence[tuple[int, float]]]], x: Scale) -> Iterator[str]:
    highest = max((value for _name, points in curves for _time, value in points), default=0) or 1
    y = _scale(0, highest, top + _PANEL, top)
    for tick in range(_TICKS + 1):
        value = highest * tick / _TICKS
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text class="axis" x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
    yield f'<text class="axis" x="{_LEFT + 4}" y="{top + 12}">{unit}</text>'
    for name, points in curves:
        path = " ".join(f"{x(time_us):.1f},{y(value):.1f}" for time_us, value in points)
        yield f'<polyline class="{name}" points="{path}"/>'


def _leaders(elections: Sequence[Election], x: Scale, start_us: int, end_us: int) -> Iterator[str]:
    for election in elections:
        if start_us <= election.time_us <= end_us:
            at = x(election.time_us)
            yield f'<line class="leader" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
            yield (
                f'<text class="leader" x="{at + 3:.1f}" y="{_TOP + _PANEL + _GAP / 2 + 4:.1f}">'
                f"{escape(election.node)} leads</text>"
            )


def _seconds(start_us: int, end_us: int, x: Scale) -> Iterator[str]:
    total_s = (end_us - start_us) / 1e6
    step = next((step for step in (1, 2, 5, 10, 30, 60, 300, 600) if total_s / step <= 20), 3600)
    for second in range(0, int(total_s) + 1, step):
        at = x(start_us + second * 1_000_000)
        yield f'<text class="axis" x="{at:.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{second} s</text>'
