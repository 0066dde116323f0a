"""Charts as inline SVG, coloured by the page's style sheet so that they follow its light and dark schemes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

__all__ = ["Line", "bar_chart", "human_number", "human_seconds", "time_chart"]

_WIDTH: Final = 880
_HEIGHT: Final = 240
_LEFT: Final = 64
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
_ROW: Final = 26
_TICKS: Final = 5


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name, the CSS class of its colour, and its values, ``None`` where there is none."""

    name: str
    style: str
    values: Sequence[float | None]


def human_number(value: float) -> str:
    """Return a number for people: ``0``, ``7.5``, ``950``, ``1.2k``, ``3.4M``."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def human_seconds(value: float) -> str:
    """Return a duration for people: ``0``, ``350 µs``, ``12 ms``, ``4.5 s``, ``3.2 min``, ``1.5 h``."""
    if value == 0:
        return "0"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def time_chart(
    title: str,
    times: Sequence[str],
    positions: Sequence[float],
    lines: Sequence[Line],
    *,
    show: Callable[[float], str],
    logarithmic: bool = False,
    stepped: bool = False,
) -> str:
    """Return a chart of lines over time.

    Args:
        title: description of the picture for screen readers.
        times: ISO 8601 texts, for the axis and the tooltips.
        positions: the same as increasing numbers.
        lines: at least one, with a value for each time.
        show: formats a value for people.
        logarithmic: whether the scale is logarithmic; values of 0 are drawn at the bottom.
        stepped: whether to draw steps instead of slopes, for counts of an interval.
    """
    known = [value for line in lines for value in line.values if value is not None]
    scale = _log_scale(known) if logarithmic else _linear_scale(known)
    span = (positions[-1] - positions[0]) or 1.0

    def x_of(place: int) -> float:
        return _LEFT + (positions[place] - positions[0]) / span * (_WIDTH - _LEFT - _RIGHT)

    def y_of(value: float) -> float:
        return _TOP + (1 - scale.share(value)) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_grid(y_of(tick), show(tick)) for tick in scale.ticks]
    parts += _time_axis(times, x_of)
    for line in lines:
        path = _path(
            [None if value is None else (x_of(i), y_of(value)) for i, value in enumerate(line.values)], stepped
        )
        parts.append(f'<path class="line {line.style}" d="{path}"/>')
    parts += _tips(times, lines, x_of, show)
    return _picture(title, _HEIGHT, parts)


def bar_chart(
    title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], *, show: Callable[[float], str]
) -> str:
    """Return a bar chart on a logarithmic scale: each row is a bar from its first value to its last, with a mark at
    each.

    Args:
        title: description of the picture for screen readers.
        rows: a name, and named values in ascending order.
        show: formats a value for people.
    """
    scale = _log_scale([value for _, marks in rows for _, value in marks])
    left = 200
    height = _TOP + _ROW * len(rows) + _BOTTOM

    def x_of(value: float) -> float:
        return left + scale.share(value) * (_WIDTH - left - 40)

    parts = []
    for tick in scale.ticks:
        x = x_of(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{escape(show(tick))}</text>')
    for place, (name, marks) in enumerate(rows):
        y = _TOP + _ROW * (place + 0.5)
        tip = ", ".join(f"{mark} {show(value)}" for mark, value in marks)
        parts.append(f"<g><title>{escape(f'{name}: {tip}')}</title>")
        parts.append(f'<text x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(_shorten(name))}</text>')
        begin, end = x_of(marks[0][1]), x_of(marks[-1][1])
        parts.append(
            f'<rect class="range" x="{begin:.1f}" y="{y - 3:.1f}" width="{max(1.0, end - begin):.1f}" height="6" rx="3"/>'
        )
        parts += [
            f'<circle class="mark s{i}" cx="{x_of(v):.1f}" cy="{y:.1f}" r="5"/>' for i, (_, v) in enumerate(marks)
        ]
        parts.append("</g>")
    return _picture(title, height, parts)


@dataclass(frozen=True)
class _Scale:
    """Maps a value to its position between bottom (0) and top (1), with the values to label on the axis."""

    ticks: Sequence[float]
    share: Callable[[float], float]


def _linear_scale(values: Sequence[float]) -> _Scale:
    top = max(values, default=0.0) or 1.0
    rough = top / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    count = math.ceil(top / step - 1e-9)
    return _Scale([step * i for i in range(count + 1)], lambda value: value / (step * count))


def _log_scale(values: Sequence[float]) -> _Scale:
    positive = [value for value in values if value > 0]
    low = math.floor(math.log10(min(positive, default=1e-3)))
    high = max(math.ceil(math.log10(max(positive, default=1.0))), low + 1)

    def share(value: float) -> float:
        return 0.0 if value <= 0 else max(0.0, (math.log10(value) - low) / (high - low))

    return _Scale([10.0**power for power in range(low, high + 1)], share)


def _grid(y: float, label: str) -> str:
    line = f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'


def _time_axis(times: Sequence[str], x_of: Callable[[int], float]) -> list[str]:
    count = min(6, len(times))
    places = sorted({round(i * (len(times) - 1) / max(1, count - 1)) for i in range(count)})
    one_day = times[0][:10] == times[-1][:10]
    labels = [time[11:19] if one_day else f"{time[5:10]} {time[11:16]}" for time in times]
    parts = []
    for place in places:
        anchor = "start" if place == 0 and count > 1 else "end" if place == len(times) - 1 and count > 1 else "middle"
        parts.append(
            f'<text x="{x_of(place):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{escape(labels[place])}</text>'
        )
    return parts


def _path(points: Sequence[tuple[float, float] | None], stepped: bool) -> str:
    steps = []
    previous: tuple[float, float] | None = None
    for point in points:
        if point is not None:
            x, y = point
            if previous is None:
                # The short stroke makes a value between two gaps visible.
                steps.append(f"M{x:.1f},{y:.1f}h1")
            else:
                steps.append(f"H{x:.1f}V{y:.1f}" if stepped else f"L{x:.1f},{y:.1f}")
        previous = point
    return "".join(steps)


def _tips(
    times: Sequence[str], lines: Sequence[Line], x_of: Callable[[int], float], show: Callable[[float], str]
) -> list[str]:
    """Return invisible columns over the picture whose titles show the values on hover."""
    width = max(2.0, (_WIDTH - _LEFT - _RIGHT) / len(times))
    parts = []
    for place, time in enumerate(times):
        values = ((line.name, line.values[place]) for line in lines)
        labels = ", ".join(f"{name} {show(value)}" for name, value in values if value is not None)
        box = f'x="{x_of(place) - width / 2:.1f}" y="{_TOP}" width="{width:.1f}" height="{_HEIGHT - _TOP - _BOTTOM}"'
        parts.append(f'<rect class="tip" {box}><title>{escape(f"{time}: {labels}")}</title></rect>')
    return parts


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def _shorten(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"
