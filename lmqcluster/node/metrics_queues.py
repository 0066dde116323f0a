"""Metrics of single queues, a page of their own: there may be very many, so it is limited, and written in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..core.queue import COUNTERS
from .metrics_table import BY_NAME, QUEUE_SECTION
from .patterns import check_pattern, compile_pattern
from .queue_totals import age_s

if TYPE_CHECKING:
    from ..core import Machine, Queue
    from .node import Node

__all__ = ["QUEUES_DEFAULT", "QUEUES_MAX", "queues_page"]

QUEUES_DEFAULT: Final = 1_000
QUEUES_MAX: Final = 100_000
_PER_SLICE: Final = 100
_NAMES_PER_SLICE: Final = 2_000
_STATES: Final = ("ready", "delayed", "leased")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


async def queues_page(node: Node, pattern: bytes | None = None, limit: int = QUEUES_DEFAULT) -> bytes:
    """The page in the text format, version 0.0.4: the first `limit` queues by name, so that a scrape shows those of the last.

    Args:
        pattern: a regular expression; only queues whose names it finds are meant. None for all.

    Raises:
        LmqError: ``bad_pattern``.
    """
    machine = node.replica.machine
    names = await _names(machine, pattern)
    now_us = node.replica.clock.now_us()
    page = _Page()
    for place, name in enumerate(names[:limit]):
        if place % _PER_SLICE == _PER_SLICE - 1:
            await asyncio.sleep(0)
        queue = machine.queues.get(name)
        if queue is not None:
            page.add(queue, now_us, node.service.pulls.waiting_for(name))
    return await page.text(max(0, len(names) - limit))


async def _names(machine: Machine, pattern: bytes | None) -> list[bytes]:
    names = sorted(machine.queues)
    if pattern is None:
        return names
    check_pattern(pattern)
    matches = compile_pattern(pattern)
    found: list[bytes] = []
    for start in range(0, len(names), _NAMES_PER_SLICE):
        found += filter(matches, names[start : start + _NAMES_PER_SLICE])
        await asyncio.sleep(0)
    return found


class _Page:
    """Lines by metric, because the format wants those of one metric together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {one.name: [] for one in QUEUE_SECTION.metrics}

    def add(self, queue: Queue, now_us: int, waiters: int) -> None:
        """Write the lines of one queue."""
        label = queue.name.decode("utf-8", "backslashreplace").translate(_ESCAPES)
        counts = (len(queue.ready), len(queue.delayed), len(queue.leases))
        self._lines["lmq_queue_messages"] += [
            f'lmq_queue_messages{{queue="{label}",state="{state}"}} {count}'
            for state, count in zip(_STATES, counts, strict=True)
        ]
        self._line("lmq_queue_message_bytes", label, queue.body_bytes)
        self._line("lmq_queue_oldest_message_age_seconds", label, age_s(queue.earliest_us(), now_us))
        self._line("lmq_queue_suspended", label, int(queue.suspended))
        self._line("lmq_queue_waiters", label, waiters)
        for counter in COUNTERS:
            self._line(f"lmq_queue_messages_{counter}", label, getattr(queue, counter))

    def _line(self, metric: str, label: str, value: float) -> None:
        self._lines[metric].append(f'{metric}{{queue="{label}"}} {value}')

    async def text(self, omitted: int) -> bytes:
        """The page, which ends with how many queues are not on it."""
        self._lines["lmq_queue_metrics_omitted"].append(f"lmq_queue_metrics_omitted {omitted}")
        parts: list[bytes] = []
        for name, lines in self._lines.items():
            parts.append("\n".join((*_head(name), *lines, "")).encode())
            await asyncio.sleep(0)
        return b"".join(parts)


def _head(name: str) -> Iterator[str]:
    one = BY_NAME[name]
    yield f"# HELP {name} {one.help}"
    yield f"# TYPE {name} {one.kind}"
